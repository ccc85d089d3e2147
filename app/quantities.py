"""Parse lengths, sizes and rates as people write them on the command line. Loads nothing heavy."""

import math
import re
from fractions import Fraction

from app.errors import UsageError
from training.token_count import token_count

MOST_BYTES = 1 << 60
UNITS = {
    **{"": 1 << 30, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40},
    **{"mib": 1 << 20, "gib": 1 << 30, "tib": 1 << 40},
    **{"mb": 10**6, "gb": 10**9, "tb": 10**12},
}


def tokens_of(text: str) -> int:
    """Return the number of tokens that --tokens gives, see `token_count`.

    Raises:
        UsageError: the text is no length.
    """
    try:
        return token_count(text)
    except ValueError as error:
        raise UsageError(f"--tokens: {error}") from error


def bytes_of(text: str) -> int:
    """Return the bytes of "24GiB", "64 GB", or of "24G" and "24", which mean GiB.

    Raises:
        UsageError: the text is no size, less than a byte, or more than any machine has.
    """
    found = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([a-zA-Z]*)\s*", text)
    size = 0 if found is None else int(Fraction(found[1]) * UNITS.get(found[2].lower(), 0))
    if not 1 <= size <= MOST_BYTES:
        raise UsageError(f"A size is a number with GiB or GB behind it, such as 24GiB, not {text!r}.")
    return size


def rates_of(text: str) -> tuple[float, float, float]:
    """Return the rates "TFLOPS,GB/S,GB/S" of products, device memory and host link, in operations and bytes a second.

    Raises:
        UsageError: the text is not three positive numbers.
    """
    try:
        numbers = [float(each) for each in text.split(",")]
    except ValueError:
        numbers = []
    if len(numbers) != 3 or not all(math.isfinite(each) and each > 0 for each in numbers):
        raise UsageError(f"--rates takes three numbers, TFLOPS,GB/s,GB/s, such as 80,900,20; not {text!r}.")
    flops, memory, link = numbers
    return flops * 1e12, memory * 1e9, link * 1e9
