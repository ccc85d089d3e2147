"""Titles: stored on one line, shortened for lists, numbered where they would be equal."""

import re
from collections.abc import Sequence
from itertools import count

from sessions.database import Database

NEW_TITLE = "New chat"
FORMER_NEW_TITLE = "New session"  # by older versions
LONGEST_TITLE = 200
"""Characters of a title that are kept."""
SHOWN_TITLE = 60
"""Characters of a title that a list has room for."""
MOST_LISTED = 3
"""Names in a sentence; if there are more, the others are counted."""
_NUMBER = re.compile(r" (\(\d{1,3}\))$")  # four digits are a year
_UNSTORABLE = re.compile("[\ud800-\udfff\0]")


def clean(text: str) -> str:
    """Return text that SQLite and UTF-8 can hold: lone surrogates (odd file names) and NULs become U+FFFD."""
    return _UNSTORABLE.sub("\ufffd", text)


def one_line(title: str | None) -> str:
    """Return a title `clean`, on one line with single spaces, and at most LONGEST_TITLE characters long."""
    return " ".join(clean(title or "").split())[:LONGEST_TITLE].rstrip()


def number_of(title: str) -> str:
    """Return the number that tells equal titles apart, with its brackets: "(2)"; "" for none."""
    found = _NUMBER.search(title)
    return found[1] if found else ""


def numbered(title: str, number: int) -> str:
    """Return the title with this number in place of its own, if any."""
    tail = f" ({number})"
    return f"{_NUMBER.sub('', title)[: LONGEST_TITLE - len(tail)].rstrip()}{tail}"


def shown_title(title: str) -> str:
    """Return a title for a list: at most SHOWN_TITLE characters, with its number."""
    if len(title) <= SHOWN_TITLE:
        return title
    tail = f" {number_of(title)}" if number_of(title) else ""
    return f"{title[: SHOWN_TITLE - 1 - len(tail)].rstrip()}…{tail}"


def listed(
    names: Sequence[str], most: int = MOST_LISTED, before_last: str = " and ", others: str = "{n} others"
) -> str:
    """Join names to a phrase: "one", "one, two and three", or "one, two and 5 others" if there are more than `most`."""
    rest = others.format(n=f"{len(names) - most + 1:,}")
    shown = [*names] if len(names) <= most else [*names[: most - 1], rest]
    return before_last.join(filter(None, [", ".join(shown[:-1]), *shown[-1:]]))


def unused_title(database: Database, context_id: str, title: str) -> str:
    """Return the title, with a number if another session over the context has it: "Who is Emma? (2)"."""
    taken = {row["title"] for row in database.rows("SELECT title FROM sessions WHERE context_id = ?", [context_id])}
    if title not in taken:
        return title
    return next(each for number in count(2) if (each := numbered(title, number)) not in taken)
