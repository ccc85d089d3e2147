"""Template of the card beside trained beacon weights."""

CARD = """# Beacon weights for {model}

For the method `beacon` ([Activation Beacon](https://arxiv.org/abs/2401.03462)). They fit this model and no other, and
must be trained anew whenever the model itself is trained.

| | |
|---|---|
| parameters | {parameters} M, bfloat16 |
| window | {window} tokens |
| data | {data} |
| training | {steps} steps of {batch}, {tokens} M tokens{start} |
| phases, rates | {plain} plain text; Muon {muon_rate}, AdamW {adam_rate} |

On {examples} held-out examples, with all windows at one ratio. "Right" is the share of short answers whose every token
is the most likely one, given the right ones before it:

| ratio | loss of answers | right |
|---|---|---|
{measured}

![curves of the training]({curves})

To measure what readings with them answer correctly:
`stockpot bench needle --model {source} --methods beacon:weights={path}:window={window}`.
"""
