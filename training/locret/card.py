"""Template of the card beside trained retaining heads."""

CARD = """# Retaining heads for {model}

For the method `locret` ([Locret](https://arxiv.org/abs/2410.01805)). They fit this model and no other, and must be
trained anew whenever the model itself is trained.

| | |
|---|---|
| parameters | {parameters} M, bfloat16; hidden width {width} |
| the model's weights | {kept} while they were trained |
| data | {data} |
| labels | {labels} |
| training | {steps} steps of {batch}, {tokens} M prompt tokens; AdamW, rate {rate}, warm-up {warmup}, alpha {alpha} |
| held out ({examples} examples) | Smooth-L1 {regression}, top-10 % overlap {overlap} |

![curves of the training]({curves})

To measure what readings with them answer correctly:
`stockpot bench needle --model {source} --methods locret:heads={path}`.
"""
