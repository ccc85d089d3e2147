"""Token counts as people write them, for every command that takes one.

K and M are 1,024 and 1,048,576, as in a model's window of 128K. Imports nothing heavy.
"""

import re
from fractions import Fraction

MOST_TOKENS = 1 << 40
MULTIPLES = {"": 1, "k": 1 << 10, "m": 1 << 20}


def token_count(text: str) -> int:
    """Return the number of tokens in "2048", "12,345", "2K" (2,048) or "1.5M" (1,572,864).

    Raises:
        ValueError: it is not a number, or not between 1 and MOST_TOKENS.
    """
    found = re.fullmatch(r"([0-9]{1,3}(?:,[0-9]{3})+|[0-9][0-9_]*)(\.[0-9]+)?([kKmM]?)", text.strip())
    tokens = 0
    if found is not None:
        whole, part, multiple = found.groups(default="")
        tokens = int(Fraction(whole.replace(",", "").replace("_", "") + part) * MULTIPLES[multiple.lower()])
    if not 1 <= tokens <= MOST_TOKENS:
        raise ValueError(f"A length is a number of tokens such as 250000, 128K or 1M, not {text!r}.")
    return tokens
