"""The store of one home: its tables, and the work that spans them."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from sessions.checking import damage
from sessions.contexts import Contexts
from sessions.database import Database
from sessions.deletion import Deletion
from sessions.documents import Documents
from sessions.errors import DiskFull, StoreError
from sessions.export import as_json, as_markdown
from sessions.folders import Folders
from sessions.jobs import Jobs
from sessions.linked_folders import LinkedFolders
from sessions.measurements import Measurements
from sessions.readings import Readings
from sessions.recovery import Recovery
from sessions.rows import JobRow
from sessions.search import Search
from sessions.sessions import Sessions
from sessions.turns import Turns
from sessions.workers import Workers


class Store:
    """Documents, contexts, sessions, turns, measurements, jobs and linked folders in a home folder.

    Opening a store creates the folder (readable by its owner only), migrates the database, and recovers from crashes.
    Many stores, threads and processes may share a home; a store may be used from any thread. A home that cannot be
    written can be looked at; whatever would change it raises `ReadOnlyHome`.
    """

    def __init__(self, home: Path) -> None:
        self.database = Database(home)
        self.folders = Folders(self.database)
        self.workers = Workers(self.database)
        deletion = Deletion(self.database, self.folders, self.workers)
        self.documents = Documents(self.database, self.folders, deletion)
        self.contexts = Contexts(self.database, self.folders, deletion, self.documents)
        self.turns = Turns(self.database)
        self.sessions = Sessions(self.database, self.folders, deletion, self.contexts, self.turns)
        self.search = Search(self.database, self.sessions)
        self.measurements = Measurements(self.database)
        self.linked_folders = LinkedFolders(self.database)
        self.jobs = Jobs(self.database, self.workers, self.turns)
        self._recovery = Recovery(self.database, self.folders, self.contexts, self.turns, self.workers, self.jobs)
        self.readings = Readings(self.database, self.contexts, self.workers, self.jobs, self._recovery)
        if self.database.read_only:
            return
        self.folders.sweep()
        with suppress(DiskFull):  # reading and deleting work without it
            self.recover()

    def __enter__(self) -> "Store":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections of all threads. Using the store again opens new ones."""
        self.database.close()

    @property
    def home(self) -> Path:
        """The home folder, as an absolute path."""
        return self.database.home

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Make all writes inside one transaction: all are stored or none, and no other process writes in between."""
        with self.database.transaction():
            yield

    def version(self) -> int:
        """Return a number that changes when another thread or program writes; this thread's own writes do not count."""
        return self.database.version()

    def recover(self) -> list[JobRow]:
        """Recover from dead processes, and return the jobs that were queued again (see `Recovery.run`)."""
        return self._recovery.run()

    def damage(self) -> Iterator[str]:
        """Read everything and yield one sentence for each damaged item (see `checking.damage`)."""
        return damage(self)

    def export_session(self, id: str, format: str = "md", notes: bool = False) -> str:
        """Return a session as text, with its documents, questions, answers and sources.

        Args:
            id: the session.
            format: "md" for Markdown, or "json" for every field of every row.
            notes: only the parts that are kept as notes.
        """
        if format not in ("md", "json"):
            raise StoreError(f"A session can be exported as md or json, not {format!r}.")
        session = self.sessions.get(id)
        context = self.contexts.get(session.context_id)
        turns = self.turns.all(id)
        if notes:
            turns = [turn.noted() for turn in turns if turn.kept]
        write = as_json if format == "json" else as_markdown
        return write(session, context, self.contexts.documents(context.id), turns)
