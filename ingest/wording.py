"""Numbers and lists of names as they stand in sentences for people."""

from collections.abc import Iterable, Sequence


def count(number: int, noun: str) -> str:
    """Return a number with its noun: "1 page", "3 pages"."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def listed(names: Sequence[str], most: int) -> str:
    """Join at most `most` names with commas and count the rest."""
    left = len(names) - most
    return ", ".join(names[:most]) + (f" and {left} more" if left > 0 else "")


def ranges(numbers: Iterable[int], most: int = 12) -> str:
    """Write ascending numbers as "1, 4-7, 9": at most `most` ranges, then a count of the numbers left."""
    spans: list[list[int]] = []
    for number in numbers:
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    shown = [str(first) if first == last else f"{first}-{last}" for first, last in spans[:most]]
    left = sum(last - first + 1 for first, last in spans[most:])
    return ", ".join(shown) + (f" and {left} more" if left else "")
