"""Work as values: all that a reading or an answer needs, and what it gives back.

Whoever asks makes the value from rows, and writes rows from the result. The work itself opens no database, so that it
can be done by any `Runner`. Values can be pickled. Folders and files are named by their paths, and known by digests:
the fingerprint of a context, the SHA-256 of a text.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from app.asking.answer_options import AnswerOptions
from app.reading.memory_map import Remembered
from app.reading.progress import Report
from sessions import ContextRow, TextFile

if TYPE_CHECKING:
    from app.asking.answers import Checked


class Stopped(Exception):
    """The work was asked to stop. A reading has saved a checkpoint and can be resumed."""


@dataclass(frozen=True)
class SavedContext:
    """A context on the disk, finished or up to a checkpoint.

    row: its model, method, settings, fingerprint and counts.
    folder: its tokens and tensors.
    """

    row: ContextRow
    folder: Path


@dataclass(frozen=True)
class SavedSession:
    """A session over a context.

    folder: the tensors of its conversation, if that was saved.
    turns: ids of all its turns.
    said: question and answer of each finished turn.
    """

    id: str
    folder: Path
    turns: tuple[str, ...]
    said: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class ReadingWork:
    """A reading to be begun or resumed, from its last checkpoint.

    checkpoint_sec: least time between checkpoints.
    """

    context: SavedContext
    checkpoint_sec: float


@dataclass(frozen=True)
class ReadingDone:
    """The result of a reading, whose context is saved.

    map: the memory map, without the names of places.
    """

    tokens_read: int
    seconds: float
    usage: dict[str, Any]
    map: tuple[Remembered, ...]


@dataclass(frozen=True)
class AnswerWork:
    """A question to be answered.

    turn: id of its turn.
    pages: pages to answer from alone, as the store keeps them; "" for none.
    options: options for the answer, with a seed.
    texts: the documents of the context.
    """

    context: SavedContext
    session: SavedSession
    turn: str
    question: str
    pages: str
    options: AnswerOptions
    texts: tuple[TextFile, ...]


@dataclass(frozen=True)
class ReadingHooks:
    """Functions that a reading calls while it goes on.

    report: told about progress after each step.
    should_stop: asked after each step.
    saved: told the progress that a checkpoint has saved.
    may_save: raises if nothing may be saved in the folder of the context any more.
    """

    report: Callable[[Report], None] = lambda report: None
    should_stop: Callable[[], bool] = lambda: False
    saved: Callable[[Report], None] = lambda report: None
    may_save: Callable[[], object] = lambda: None


@dataclass(frozen=True)
class AnswerHooks:
    """Functions that an answer calls while it goes on.

    piece: told every piece of the answer.
    reasoning: told every piece of the reasoning before the answer.
    stage: told in words about the work before the first piece; "" when that is over.
    should_stop: asked at every piece and after every pass.
    may_save: raises if nothing may be saved in the folder of the session any more.
    """

    piece: Callable[[str], None] = lambda text: None
    reasoning: Callable[[str], None] = lambda text: None
    stage: Callable[[str], None] = lambda words: None
    should_stop: Callable[[], bool] = lambda: False
    may_save: Callable[[], object] = lambda: None


class Runner(Protocol):
    """Does work: in this process (`app/jobs/here.py`), or elsewhere."""

    def read(self, work: ReadingWork, hooks: ReadingHooks) -> ReadingDone:
        """Read a context to its end and save it.

        Raises:
            Stopped: `should_stop` returned True; a checkpoint is saved.
            Exception: any error; the last checkpoint stays.
        """

    def answer(self, work: AnswerWork, hooks: AnswerHooks) -> "Checked | None":
        """Return the answer, saved with its conversation; None if it was stopped, which leaves that as it was."""
