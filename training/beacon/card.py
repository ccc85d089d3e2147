"""The card that is written beside trained beacon weights."""

CARD = """# Beacon weights for {model}

For the method `beacon` ([Activation Beacon](https://arxiv.org/abs/2401.03462)); they fit this model and no other, and
must be trained anew whenever it is trained itself.

| | |
|---|---|
| parameters | {parameters} M, bfloat16 |
| window | {window} tokens |
| data | {data} |
| training | {steps} steps of {batch}, {tokens} M tokens{start} |
| phases, rates | {plain} plain text; Muon {muon_rate}, AdamW {adam_rate} |

Held out ({examples} examples), all windows at one ratio; "right" are short answers whose every token comes first when
the right ones stand before it:

| ratio | loss of answers | right |
|---|---|---|
{measured}

![curves of the training]({curves})

What readings with them get right is measured by
`stockpot bench needle --model {source} --methods beacon:weights={path}:window={window}`.
"""
