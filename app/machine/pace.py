"""How long a reading takes: as the last one with the same model did, or else by the products that it needs."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from app.machine.model_names import split_model
from sessions import ContextRow

if TYPE_CHECKING:
    import engine

REACHED = 0.5
"""Share of the rate of large products that a whole reading reaches: 0.48 and 0.58 with 1.5B on two processors."""
TELLING = 2_000
"""Least tokens of an earlier reading whose time says something about the next one."""


def telling(readings: Iterable[ContextRow]) -> list[ContextRow]:
    """Return the readings whose time says something, in their order."""
    return [row for row in readings if row.seconds > 0 and row.tokens_read - row.read_before >= TELLING]


def reading_seconds(
    tokens: int,
    parameters: float,
    rates: "engine.Rates",
    readings: Iterable[ContextRow],
    is_model: Callable[[str], bool],
) -> float:
    """Return the seconds that a reading takes, roughly.

    Args:
        tokens: length of the text.
        parameters: weights that each token is multiplied with.
        rates: the measured rates of this machine.
        readings: earlier readings here, the latest first.
        is_model: whether a name without its quantisation is that of the model.
    """
    if before := telling(row for row in readings if is_model(split_model(row.model)[0])):
        return tokens / before[0].tokens_per_second
    return 2 * parameters * tokens / (REACHED * rates.flops)
