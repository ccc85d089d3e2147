"""Numbers and lists as text for people, the same in the command line and on the page."""

import math
from collections.abc import Sequence

from app.language import figure, t

Z = 1.959964
"""Normal quantile of a 95 % interval."""


def byte_size(size: float) -> str:
    """Return bytes with their unit: "512 B", "8.5 MB"."""
    for unit, factor in (("{n} GB", 1e9), ("{n} MB", 1e6), ("{n} kB", 1e3)):
        if size >= factor:
            return t(unit, n=figure(f"{size / factor:.1f}"))
    return t("{n} B", n=f"{size:.0f}")


def clock(seconds: float | None) -> str:
    """Return seconds as a clock shows them: "0:07", "1:02:03"; "?" for None."""
    if seconds is None:
        return "?"
    whole = round(seconds)
    hours, minutes = whole // 3600, whole % 3600 // 60
    return f"{hours}:{minutes:02}:{whole % 60:02}" if hours else f"{minutes}:{whole % 60:02}"


def duration(seconds: float | None) -> str:
    """Return seconds with units: "8 s", "2 min 15 s", "6 h 12 min"; "?" for None."""
    if seconds is None:
        return "?"
    whole = round(seconds)
    hours, minutes = whole // 3600, whole % 3600 // 60
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {whole % 60} s" if minutes else f"{whole} s"


def time_in_words(seconds: float | None) -> str:
    """Return a time that is only known roughly: "a few seconds", "about 2 minutes"; "" for None."""
    if seconds is None:
        return ""
    if seconds < 10:
        return t("a few seconds")
    if seconds < 50:
        return t("about {n} seconds", n=round(seconds / 10) * 10)
    if seconds < 90 * 60:
        return t("about {time}", time=plural(max(1, round(seconds / 60)), "minute"))
    return t("about {time}", time=plural(round(seconds / 3600), "hour"))


def speed(per_second: float) -> str:
    """Return tokens per second: "8.1", "1,136"."""
    return figure(f"{per_second:,.0f}" if per_second >= 100 else f"{per_second:.1f}")


def roughly(number: float) -> str:
    """Return a number with two digits: "8.1", "1,100", "840,000", "3.2 M"."""
    rough = float(f"{number:.2g}")
    return figure(f"{rough / 1e6:,g}") + " M" if rough >= 1e6 else figure(f"{rough:,g}")


def percent(share: float) -> str:
    """Return a share with two digits: "100%", "8.1%", "0.098%"."""
    return t("{n}%", n=roughly(100 * share))


def whole_percent(share: float) -> str:
    """Return a share in whole hundredths: "8%"."""
    return t("{n}%", n=f"{100 * share:.0f}")


def short_seconds(seconds: float) -> str:
    """Return a short time: "42 ms", "1.3 s"."""
    return f"{seconds * 1000:.0f} ms" if seconds < 0.9995 else f"{figure(f'{seconds:.1f}')} s"


def plural(count: int, noun: str) -> str:
    """Return a number with its noun: "1 page", "1,200 pages"."""
    return t(f"1 {noun}") if count == 1 else t(f"{{n}} {noun}s", n=count)


def of_text(read: int, tokens: int) -> str:
    """Return the tokens of a text: "80,936 tokens", or "324 of 80,936 tokens" if fewer were read."""
    whole = plural(tokens, "token")
    return t("{n} of {whole}", n=read, whole=whole) if read < tokens else whole


def of_budget(entries: int, budget: int | None) -> str:
    """Return a budget as it follows a number of entries: "of 1,024 entries".

    Some methods hold tokens beyond the budget for a while (locret): "entries: 1,024 and 512 on their way through".
    """
    if budget is None:
        return "entries, no budget"
    more = entries - budget
    return f"entries: {budget:,} and {more:,} on their way through" if more > 0 else f"of {budget:,} entries"


def together_in_words(titles: Sequence[str]) -> str:
    """Return one title for several things in the language in use: "Kim", "Kim and Emma", "Kim and 3 more"."""
    if len(titles) < 3:
        return t(" and ").join(titles)
    return t("{title} and {n} more", title=titles[0], n=len(titles) - 1)


def either(names: Sequence[str]) -> str:
    """Return names to choose from: "one", "one or two", "one, two or three"."""
    return " or ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def replay_progress(done: int, total: int) -> str:
    """Return how many of a branch's first turns are read."""
    return f"Reading what was said before: {done:,} of {plural(total, 'turn')}"


def wilson(mean: float, count: int) -> tuple[float, float]:
    """Return Wilson's 95 % interval of a mean of scores between 0 and 1.

    It is exact in the usual sense for scores of 0 and 1; with scores in between it is too wide, never too narrow.
    """
    if count == 0:
        return 0.0, 1.0
    centre = mean + Z * Z / (2 * count)
    spread = Z * math.sqrt(mean * (1 - mean) / count + Z * Z / (4 * count * count))
    divisor = 1 + Z * Z / count
    return max(0.0, (centre - spread) / divisor), min(1.0, (centre + spread) / divisor)


def shorten(text: str, most: int) -> str:
    """Return text of at most `most` characters: "A very long ti…"."""
    return text if len(text) <= most else f"{text[: most - 1].rstrip()}…"


def name_as_text(name: object) -> str:
    """Return the name or the path of a file as text: bytes that are none become question marks."""
    return str(name).encode(errors="replace").decode()


def printable(text: str) -> str:
    """Return text without control characters except line ends and tabs, so that a document or model cannot steer a
    terminal.
    """
    return "".join(letter for letter in text if letter in "\n\t" or (letter >= " " and not "\x7f" <= letter <= "\x9f"))
