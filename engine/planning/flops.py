"""How many operations passing tokens takes: the FLOP model of Activation Beacon (appendix B).

The paper writes F(s, s_past) for s tokens that see s_past cached ones and all of themselves. Here the second number
is what a token attends to, s + s_past, so that an average serves as well. The sizes are those of `models/sizes.py`: the
paper's terms for queries, keys, values, output, up, gate and down projections are together twice the weights that a
token is multiplied with, which holds for mixtures of experts too.
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.models.sizes import ModelSizes


@dataclass(frozen=True)
class Operations:
    """Multiplications and additions.

    linear: F^qkv + F^out + F^up + F^down; attention: F^qk + F^av; softmax, gate: element by element; head: F^lm;
    recurrence: of recurrent layers, which the paper's models do not have.
    """

    linear: float
    attention: float
    softmax: float
    gate: float
    head: float
    recurrence: float = 0.0

    @property
    def total(self) -> float:
        """Of all kinds."""
        return self.linear + self.attention + self.softmax + self.gate + self.head + self.recurrence


def operations(model: ModelSizes, tokens: float, attended: float, scored: float = 0) -> Operations:
    """Of `tokens` tokens that attend to `attended` entries each and of which `scored` go through the head.

    The paper scores all tokens. Its F^softmax has (s + s_past) twice as a factor; one of them must be s.
    """
    spec = model.spec
    return Operations(
        linear=2.0 * tokens * model.active,
        attention=4.0 * tokens * attended * spec.query_width,
        softmax=float(tokens) * attended * spec.query_heads,
        gate=float(tokens) * model.mlp * model.depth,
        head=2.0 * scored * model.head,
        recurrence=tokens * model.recurrence.products if model.recurrence else 0.0,
    )
