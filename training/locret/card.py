"""The card that is written beside trained retaining heads."""

CARD = """# Retaining heads for {model}

For the method `locret` ([Locret](https://arxiv.org/abs/2410.01805)); they fit this model and no other, and it must be
trained for them anew whenever it is trained itself.

| | |
|---|---|
| parameters | {parameters} M, bfloat16; hidden width {width} |
| model | {kept} while they were trained |
| data | {data} |
| training | {steps} steps of {batch}, {tokens} M prompt tokens; AdamW, rate {rate}, warm-up {warmup}, alpha {alpha} |
| held out ({examples} examples) | Smooth-L1 {regression}, top-10 % overlap {overlap} |

![curves of the training]({curves})

What readings with them get right is measured by
`stockpot bench needle --model {source} --methods locret:heads={path}`.
"""
