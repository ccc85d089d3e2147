"""The rows of the store as frozen dataclasses. Times are seconds since the epoch; sizes are bytes."""

import json
import re
import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import cache
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from sessions.errors import StoreCorrupt

READING_STATUSES = ("reading", "paused", "ready", "failed", "cancelled")
UNDER_WAY, ENDED = ("queued", "running"), ("done", "failed", "cancelled")
JOB_STATUSES = (*UNDER_WAY, *ENDED)
LONGEST_TITLE = 200
"""Characters of a title that are kept."""
SHOWN_TITLE = 60
"""Of them, those that a list has room for."""
MOST_LISTED = 3
"""Things that are named in a sentence; of more, the others are counted."""
_NUMBER = re.compile(r" (\(\d{1,3}\))$")  # of four digits it is a year
_UNSTORABLE = re.compile("[\ud800-\udfff\0]")


@dataclass(frozen=True)
class DocumentRow:
    """One ingested file. `file_name` is the name it came with, for display only; None if the file is not kept."""

    id: str
    sha256: str
    title: str
    format: str
    pages: int
    characters: int
    warnings: list[str]
    file_name: str | None
    file_bytes: int
    created_at: float


@dataclass(frozen=True)
class ContextRow:
    """A reading of documents, in their order, by one model with one method. Status: see READING_STATUSES.

    title: what a person called it, else the titles of its documents; read_before: of tokens_read, those that the
    context had read behind which it goes on; seconds: that the others took.
    """

    id: str
    title: str
    model: str
    method: str
    settings: dict[str, Any]
    budget: int | None
    fingerprint: str
    tokens: int
    document_ids: list[str]
    status: str
    tokens_read: int
    read_before: int
    seconds: float
    usage: dict[str, Any]
    warnings: list[str]
    error: str | None
    created_at: float
    updated_at: float

    @property
    def tokens_per_second(self) -> float:
        """Of what it has read itself; 0.0 where no time was taken."""
        return (self.tokens_read - self.read_before) / self.seconds if self.seconds else 0.0


@dataclass(frozen=True)
class SessionRow:
    """A saved conversation over one context."""

    id: str
    context_id: str
    title: str
    turns: int
    created_at: float
    updated_at: float


@dataclass(frozen=True)
class TurnRow:
    """A question and its answer; while status is "answering", `answer` is what has been streamed so far.

    reasoning: what the model said to itself before answering, streamed likewise; empty for most models.
    pages: those that were to be read again before, as they were named; empty for none.
    asked_of: how many of the context's documents it was asked of, from the first on: fewer than there are where the
    turn was taken along when documents were added.
    """

    id: str
    session_id: str
    position: int
    question: str
    answer: str
    status: str
    sources: list[dict[str, Any]]
    measurements: dict[str, Any]
    error: str | None
    asked_of: int
    created_at: float
    finished_at: float | None
    reasoning: str = ""
    pages: str = ""

    def asked_before(self, titles: Sequence[str]) -> str:
        """A sentence that says before what was added it was asked; "" for nothing. titles: of the context's documents,
        in their order.
        """
        added = [f"“{shown_title(title)}”" for title in titles[self.asked_of :]]
        if not added:
            return ""
        return f"Asked before {listed(added)} {'was' if len(added) == 1 else 'were'} added."


@dataclass(frozen=True)
class SearchHit:
    """A turn that matched. `highlights` are (start, end) offsets of the matching words in `snippet`, plain text."""

    session: SessionRow
    turn: TurnRow
    snippet: str
    highlights: list[tuple[int, int]]


@dataclass(frozen=True)
class MeasurementRow:
    """One record of numbers for the live panel."""

    at: float
    kind: str
    subject_id: str
    values: dict[str, Any]


@dataclass(frozen=True)
class JobRow:
    """Work for a worker. `worker` is who claimed it last.

    attempts: how often it was claimed; claims that were released, or made before the last checkpoint, are not counted.
    started_at: when it was claimed first.
    """

    id: str
    kind: str
    subject_id: str
    payload: dict[str, Any]
    status: str
    stage: str
    done: int
    total: int
    progress: dict[str, Any]
    error: str | None
    cancel_requested: bool
    worker: str | None
    attempts: int
    created_at: float
    updated_at: float
    started_at: float | None
    finished_at: float | None


@dataclass(frozen=True)
class WorkerRow:
    """Somebody who claims jobs; `alive` is judged when the row is read."""

    name: str
    heartbeat_at: float
    alive: bool


Row = TypeVar("Row")


@cache
def _kinds(cls: Any) -> dict[str, type | None]:
    """Field name -> dict/list (kept as JSON), bool (kept as 0/1) or None (kept as it is)."""
    hints = get_type_hints(cls)
    kinds: dict[str, type | None] = {}
    for field in fields(cls):
        hint = hints[field.name]
        if isinstance(hint, types.UnionType):
            hint = next(arm for arm in get_args(hint) if arm is not type(None))
        hint = get_origin(hint) or hint
        kinds[field.name] = hint if hint in (dict, list, bool) else None
    return kinds


def make_row(cls: Callable[..., Row], columns: dict[str, Any]) -> Row:
    """Build a row from the columns of a query; columns that are not fields are left out.

    Raises:
        StoreCorrupt: a column that holds JSON does not.
    """
    values: dict[str, Any] = {}
    for name, kind in _kinds(cls).items():
        value = columns[name]
        if kind in (dict, list) and isinstance(value, str):
            try:
                value = json.loads(value)
            except ValueError as error:
                raise StoreCorrupt(
                    f"The database is damaged: {name} of {columns.get('id', 'a row')} is no JSON ({error}). "
                    "Restore the database from a backup, or start a new home."
                ) from error
        values[name] = bool(value) if kind is bool else value
    return cls(**values)


def clean(text: str) -> str:
    """Text that SQLite and UTF-8 can hold: lone surrogates (odd file names) and NULs become U+FFFD."""
    return _UNSTORABLE.sub("\ufffd", text)


def one_line(title: str | None) -> str:
    """A title as lists show it: `clean`, without line breaks, with single blanks, and no longer than LONGEST_TITLE."""
    return " ".join(clean(title or "").split())[:LONGEST_TITLE].rstrip()


def number_of(title: str) -> str:
    """The number that tells a title from others that are the same, with its brackets: "(2)"; "" for none."""
    found = _NUMBER.search(title)
    return found[1] if found else ""


def numbered(title: str, number: int) -> str:
    """The title with another number, or with one."""
    tail = f" ({number})"
    return f"{_NUMBER.sub('', title)[: LONGEST_TITLE - len(tail)].rstrip()}{tail}"


def shown_title(title: str) -> str:
    """A title as a list has room for it: at most SHOWN_TITLE characters, with its number."""
    if len(title) <= SHOWN_TITLE:
        return title
    tail = f" {number_of(title)}" if number_of(title) else ""
    return f"{title[: SHOWN_TITLE - 1 - len(tail)].rstrip()}…{tail}"


def listed(names: Sequence[str], most: int = MOST_LISTED) -> str:
    """Names in a sentence: "one", "one, two and three", "one, two and 5 others" where there are more than `most`."""
    shown = [*names] if len(names) <= most else [*names[: most - 1], f"{len(names) - most + 1:,} others"]
    return " and ".join(filter(None, [", ".join(shown[:-1]), *shown[-1:]]))


def to_json(value: Any) -> str:
    """JSON for a column or a file: its texts `clean`, numbers of numpy and torch plain, NaN and infinities null."""

    def plain(item: Any) -> Any:
        if isinstance(item, dict):
            return {clean(str(key)): plain(each) for key, each in item.items()}
        if isinstance(item, list | tuple):
            return [plain(each) for each in item]
        if isinstance(item, str):
            return clean(item)
        if not isinstance(item, int | float | bool | None) and hasattr(item, "item"):
            item = item.item()
        if isinstance(item, float) and (item != item or item in (float("inf"), float("-inf"))):
            return None
        return item

    return json.dumps(plain(value))
