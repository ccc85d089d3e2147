"""Count the operations of passing tokens through a model: the FLOP model of Activation Beacon (appendix B).

The paper writes F(s, s_past) for s tokens that see s_past cached tokens and all of themselves. Here the second number
is the tokens that each attends to, s + s_past, so that an average serves as well. The paper's terms for query, key,
value, output, up, gate and down projections are together twice the weights that a token is multiplied with
(`models/sizes.py`). That holds for mixtures of experts too.
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.models.sizes import ModelSizes


@dataclass(frozen=True)
class Operations:
    """Multiplications and additions, by kind."""

    linear: float  # F^qkv + F^out + F^up + F^down
    attention: float  # F^qk + F^av
    softmax: float
    gate: float
    head: float  # F^lm
    recurrence: float = 0.0  # in recurrent layers, which the paper's models do not have

    @property
    def total(self) -> float:
        """Operations of all kinds."""
        return self.linear + self.attention + self.softmax + self.gate + self.head + self.recurrence


def operations(model: ModelSizes, tokens: float, attended: float, scored: float = 0) -> Operations:
    """Count the operations of `tokens` that attend to `attended` entries each; `scored` of them reach the head.

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
