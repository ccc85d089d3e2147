"""Stop texts: where an answer ends, and how much of a growing one can be shown."""

from __future__ import annotations


def until_stop(text: str, stops: tuple[str, ...]) -> tuple[str, bool]:
    """Return the text before the first stop text, and whether there was one."""
    places = [place for place in (text.find(stop) for stop in stops) if place >= 0]
    return (text[: min(places)], True) if places else (text, False)


def whole_characters(text: str) -> str:
    """Return text without an incomplete character at its end."""
    return text.rstrip("\N{REPLACEMENT CHARACTER}")


def displayable(text: str, stops: tuple[str, ...]) -> int:
    """Return how many characters can be shown: no incomplete character, and no beginning of a stop text."""
    if (whole := whole_characters(text)) != text:
        return len(whole)
    longest = max((len(stop) for stop in stops), default=1)
    for size in range(min(longest - 1, len(text)), 0, -1):
        if any(stop.startswith(text[-size:]) for stop in stops):
            return len(text) - size
    return len(text)
