"""The rows of the store as frozen dataclasses. Times are seconds since the epoch; sizes are bytes."""

import json
import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cache
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from sessions.errors import StoreCorrupt
from sessions.titles import clean, listed, shown_title

READING_STATUSES = ("reading", "paused", "ready", "failed", "cancelled")
UNDER_WAY, ENDED = ("queued", "running"), ("done", "failed", "cancelled")
JOB_STATUSES = (*UNDER_WAY, *ENDED)
RECAP, INTRODUCE = "recap", "introduce"
"""Kinds of the jobs that sum up a context in the background. Nobody waits for them, so its deletion ends them."""


ALTERED = "This question or its answer was altered on the disk: it is not what was written. Restore it from a backup."


@dataclass(frozen=True)
class DocumentRow:
    """One ingested file.

    Attributes:
        file_name: its original name, for display only; None if the file is not kept.
        newer: id of the document of a newer version of its file in a linked folder; that may be deleted by now.
        gone_at: time when its file was gone from a linked folder.
    """

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
    newer: str | None = None
    gone_at: float | None = None


@dataclass(frozen=True)
class ContextRow:
    """A reading of documents, in order, by one model with one method. Status: see READING_STATUSES.

    Attributes:
        title: own title, or the titles of its documents.
        read_before: tokens of tokens_read that come from the base context.
        seconds: time of the other tokens.
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
        """Reading speed without the tokens of the base context; 0.0 if no time was measured."""
        return (self.tokens_read - self.read_before) / self.seconds if self.seconds else 0.0


@dataclass(frozen=True)
class ContextName:
    """The columns of a context that long lists show."""

    id: str
    title: str
    method: str
    status: str
    created_at: float


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
    """A question and its answer; while status is "answering", `answer` is the text streamed so far.

    Attributes:
        reasoning: the model's reasoning before the answer, streamed likewise; empty for most models.
        pages: pages to read again before the answer, as a person named them; empty for none.
        asked_of: number of the context's documents, from the first on, that the turn was asked of. It is lower than
            their number if documents were added later.
        kept: parts that a person keeps as notes: 0 for the answer, n for the n-th source.
        intact: False if its row is not what was written, because the disk or another program changed it.
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
    kept: list[int] = field(default_factory=list)
    intact: bool = True

    @property
    def damage(self) -> str:
        """A sentence about a row that is not what was written; "" if it is."""
        return "" if self.intact else ALTERED

    def notes(self, titles: Sequence[str]) -> list[str]:
        """Return the sentences that belong below the answer. titles: see `asked_before`."""
        return [*filter(None, [self.damage, self.asked_before(titles)]), *self.measurements.get("warnings", [])]

    def noted(self) -> "TurnRow":
        """Return the turn with its kept parts alone: the answer with all sources, or only sources."""
        if 0 in self.kept:
            return self
        sources = [self.sources[number - 1] for number in self.kept if number <= len(self.sources)]
        return replace(self, answer="", sources=sources, measurements={})

    def asked_before(self, titles: Sequence[str]) -> str:
        """Return a sentence that names the documents added after this turn, or "" if there are none.

        titles: titles of the context's documents, in order.
        """
        added = [f"“{shown_title(title)}”" for title in titles[self.asked_of :]]
        if not added:
            return ""
        return f"Asked before {listed(added)} {'was' if len(added) == 1 else 'were'} added."


@dataclass(frozen=True)
class SearchHit:
    """A matching turn. `highlights` are (start, end) offsets of the matching words in `snippet`, plain text."""

    session: SessionRow
    turn: TurnRow
    snippet: str
    highlights: list[tuple[int, int]]


@dataclass(frozen=True)
class PageHit:
    """A passage of a document with the words of a search.

    Attributes:
        page: number of its page, as the file counts.
        start, end: characters of the matching words in the document's text.
        snippet: text around them, plain.
        highlights: (start, end) offsets of the matching words in `snippet`.
    """

    document_id: str
    page: int
    start: int
    end: int
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
    """Work for a worker. `worker` is the last one to claim it.

    Attributes:
        attempts: claims since the last checkpoint, without released ones.
        started_at: time of the first claim.
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
class LinkedFolderRow:
    """A folder of this computer whose files are kept in step.

    Attributes:
        folder: its whole path.
        at_once: most files of it that are read at once.
        problem: sentence that says why it could not be looked at; "" if it could.
        files: the last sight of each file that can be read, by its path below the folder; opaque here.
        left_out: reasons by path below the folder, for files and folders that cannot be looked at.
        revision: a number that grows with each change.
    """

    folder: str
    at_once: int
    problem: str
    files: dict[str, dict[str, Any]]
    left_out: dict[str, str]
    linked_at: float
    revision: int


@dataclass(frozen=True)
class WorkerRow:
    """A worker that claims jobs; `alive` is determined when the row is read."""

    name: str
    heartbeat_at: float
    alive: bool


Row = TypeVar("Row")


@cache
def _kinds(cls: Any) -> dict[str, tuple[type, bool]]:
    """Return field name -> its type and whether it may be missing. Dicts and lists are stored as JSON, bools as 0/1."""
    hints = get_type_hints(cls)
    kinds: dict[str, tuple[type, bool]] = {}
    for each in fields(cls):
        hint, optional = hints[each.name], False
        if isinstance(hint, types.UnionType):
            optional = True
            hint = next(arm for arm in get_args(hint) if arm is not type(None))
        kinds[each.name] = (get_origin(hint) or hint, optional)
    return kinds


def make_row(cls: Callable[..., Row], columns: dict[str, Any]) -> Row:
    """Build a row from the columns of a query; columns that are not fields are ignored.

    Raises:
        StoreCorrupt: a column holds no value of its type, or invalid JSON.
    """
    values: dict[str, Any] = {}
    for name, (kind, optional) in _kinds(cls).items():
        value = columns[name]
        try:
            if kind in (dict, list) and isinstance(value, str):
                value = json.loads(value)
            elif kind is bool:
                value = bool(value)
        except (ValueError, RecursionError) as error:
            raise _damaged(name, columns, f"no JSON ({error})") from error
        if not (isinstance(value, (int, float) if kind is float else kind) or (optional and value is None)):
            raise _damaged(name, columns, f"{value!r:.40}, which is no {kind.__name__}")
        values[name] = value
    return cls(**values)


def _damaged(name: str, columns: dict[str, Any], found: str) -> StoreCorrupt:
    return StoreCorrupt(
        f"The database is damaged: {name} of {columns.get('id') or 'a row'} is {found}. "
        "Restore the database from a backup, or start a new home."
    )


def to_json(value: Any) -> str:
    """Return JSON for a column or file: strings `clean`, numpy and torch numbers plain, NaN and infinities null."""

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
