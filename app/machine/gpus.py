"""Common graphics cards, for plans for a card that is not in this machine.

The figures are the makers': memory in GiB, dense bfloat16 products with float32 sums in TFLOPS, memory bandwidth and
host link in GB/s. Plans assume a share of them (`REACHED`), because no program reaches them fully.
"""

import difflib
from dataclasses import dataclass

from app.errors import UsageError
from app.quantities import bytes_of

REACHED = (0.7, 0.85, 0.8)
"""Shares of products, bandwidth and link that plans assume."""


@dataclass(frozen=True)
class Card:
    """A graphics card: memory in GiB, bfloat16 TFLOPS, memory bandwidth and host link in GB/s."""

    memory: int
    tflops: float
    bandwidth: float
    link: float

    @property
    def rates(self) -> tuple[float, float, float]:
        """Operations and bytes a second that plans assume, in the order of `quantities.rates_of`."""
        flops, memory, link = REACHED
        return flops * self.tflops * 1e12, memory * self.bandwidth * 1e9, link * self.link * 1e9


CARDS = {
    "rtx3060": Card(12, 25, 360, 32),
    "rtx3090": Card(24, 71, 936, 32),
    "rtx4060ti": Card(16, 44, 288, 16),
    "rtx4070tisuper": Card(16, 88, 672, 32),
    "rtx4080": Card(16, 97, 717, 32),
    "rtx4090": Card(24, 165, 1008, 32),
    "rtx5070ti": Card(16, 88, 896, 64),
    "rtx5080": Card(16, 113, 960, 64),
    "rtx5090": Card(32, 210, 1792, 64),
    "h100": Card(80, 989, 3350, 64),
}


def gpu_of(text: str) -> tuple[int, tuple[float, float, float] | None]:
    """Return the memory in bytes of a card, or of a size such as "24GiB", and a card's rates.

    Raises:
        UsageError: the text is neither.
    """
    name = (
        "".join(letter for letter in text.casefold() if letter.isalnum()).removeprefix("nvidia").removeprefix("geforce")
    )
    card = CARDS.get(name) or CARDS.get(f"rtx{name}")
    if card is not None:
        return card.memory << 30, card.rates
    if text[:1].isdigit():
        return bytes_of(text), None
    near = difflib.get_close_matches(name, CARDS, n=1)
    meant = f"Did you mean {near[0]}? " if near else ""
    raise UsageError(
        f"There is no card {text!r} in the list. {meant}Give one of {', '.join(CARDS)}, or the memory, such as 24GiB."
    )
