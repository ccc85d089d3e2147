"""How many operations passing tokens takes: the FLOP model of Activation Beacon (appendix B, equations 9 to 13).

The paper writes F(s, s_past) for s tokens that see s_past cached ones and all of themselves. Here the second number
is what a token attends to, s + s_past, so that an average serves as well. The sizes are those of `skeleton.py`: the
paper's terms for queries, keys, values, output, up, gate and down projections are together twice the weights that a
token is multiplied with, which holds for mixtures of experts too.
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.models.skeleton import Skeleton


@dataclass(frozen=True)
class Operations:
    """Multiplications and additions.

    linear: F^qkv + F^out + F^up + F^down; attention: F^qk + F^av; softmax, gate: element by element; head: F^lm.
    """

    linear: float
    attention: float
    softmax: float
    gate: float
    head: float

    @property
    def total(self) -> float:
        """Of all kinds."""
        return self.linear + self.attention + self.softmax + self.gate + self.head

    def __add__(self, other: Operations) -> Operations:
        return Operations(
            self.linear + other.linear,
            self.attention + other.attention,
            self.softmax + other.softmax,
            self.gate + other.gate,
            self.head + other.head,
        )


def operations(model: Skeleton, tokens: float, attended: float, scored: float = 0) -> Operations:
    """Of `tokens` tokens that attend to `attended` entries each and of which `scored` go through the head.

    The paper scores all tokens. Its F^softmax has (s + s_past) twice as a factor; one of them must be s.
    """
    spec = model.spec
    return Operations(
        linear=2.0 * tokens * model.active,
        attention=4.0 * tokens * attended * spec.query_width,
        softmax=float(tokens) * attended * spec.query_heads,
        gate=float(tokens) * model.mlp * len(spec.layers),
        head=2.0 * scored * model.head,
    )


def beacon_operations(model: Skeleton, tokens: int, window: int, ratio: int) -> Operations:
    """Of reading a text with beacons, each window in one pass; none of its tokens is scored (equation 10).

    The last window may be short. What the model's own projections do for beacons, whose results are not used, is left
    out, as in the paper.
    """
    full, rest = divmod(tokens, window)
    size, each = window + window // ratio, window // ratio
    found = operations(model, rest + rest // ratio, full * each + rest + rest // ratio)
    # What is seen grows by as much with each window, so that all see what the average does.
    return found + operations(model, full * size, size + (full - 1) * each / 2)
