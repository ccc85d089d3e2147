"""Folders of documents, contexts and sessions: their sizes, and the removal of those that a crash left behind.

An id is noted in the table `leftovers` before its folder is made, until its row is stored; and from the deletion of the
row until the folder is gone. `sweep` removes the folders of noted ids.
"""

import os
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from sessions.database import Database
from sessions.errors import DiskFull, NotFound
from sessions.files import remove_tree, tree_bytes
from sessions.ids import ID, kind_of, random_id
from sessions.tensors import TensorFolder

NAMES = {"document": "documents", "context": "contexts", "session": "sessions"}
_INCOMING_SEC = 600.0  # far longer than it takes to copy a file or to start a reading


class Folders:
    """The folders beside the database, one for each document, context and session."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._home = database.home

    def path(self, id: str) -> Path:
        """Return the folder of an id, which need not exist.

        Raises:
            NotFound: the id is not that of a document, context or session.
        """
        kind = kind_of(id)
        if kind not in NAMES:
            raise NotFound(f"A {kind} has no files of its own; ask for the size of its session or context.")
        return self._home / NAMES[kind] / id

    def incoming(self, id: str) -> Path:
        """Return the folder where this process prepares the files of a new item."""
        return self._home / "incoming" / f"{id}.{os.getpid()}"

    @contextmanager
    def staging(self) -> Iterator[Path]:
        """Make a folder for files on their way, removed at the end, or by the sweep if this process is killed."""
        folder = self.incoming(random_id("context"))  # a name that the sweep knows
        try:
            folder.mkdir(mode=0o700)
            yield folder
        finally:
            remove_tree(folder)

    def new_id(self, kind: str) -> str:
        """Return a new id, noted as a leftover: its folder is swept up unless its row is added and the note removed."""
        with self._database.transaction():
            id = self._database.new_id(kind)
            self.note([id])
        return id

    def note(self, ids: Sequence[str]) -> None:
        """Note that the folders of these ids are to be swept up. An id may be noted already, by a killed program."""
        with self._database.transaction() as db:
            for id in ids:
                db.execute("INSERT OR REPLACE INTO leftovers VALUES (?, ?)", [id, time.time()])

    def keep(self, ids: Sequence[str]) -> None:
        """Remove the notes of these ids, so that their folders stay."""
        with self._database.transaction() as db:
            for id in ids:
                db.execute("DELETE FROM leftovers WHERE id = ?", [id])

    def remove(self, ids: Sequence[str]) -> None:
        """Remove the folders of these ids, and the notes of those that are gone."""
        for id in ids:
            remove_tree(self.path(id))
        self._forget_gone(ids)

    def _forget_gone(self, ids: Sequence[str]) -> None:
        """Remove the notes of those ids whose folder is gone."""
        if gone := [id for id in ids if not self.path(id).exists()]:
            with suppress(DiskFull):  # the next sweep removes the notes
                self.keep(gone)

    def size(self, id: str) -> int:
        """Return the bytes of the files of a document, context or session, without those derived from it."""
        return tree_bytes(self._known(id))

    def bytes_to_free(self, ids: Iterable[str]) -> int:
        """Return the bytes that removing the files of these documents, contexts and sessions would free."""
        return tree_bytes(*map(self._known, ids), freed=True)

    def _known(self, id: str) -> Path:
        """Return the folder of an id; NotFound if it has no row."""
        path, kind = self.path(id), kind_of(id)
        self._database.one(f"SELECT id FROM {NAMES[kind]} WHERE id = ?", id, kind)
        return path

    def sweep(self) -> list[Path]:
        """Remove folders left by a crash, of deleted items or of items not finished yet, and return them.

        Done at opening.

        Temporary files of killed saves are removed too. Only folders noted in the database are removed: beside a
        database restored from a backup there are folders it does not know (`strays`). A note of an item that has its
        row is wrong, and goes.
        """
        with self._database.transaction():
            noted = self._database.rows("SELECT id, noted_at FROM leftovers")
            wrong = [row["id"] for row in noted if self._needs_no_sweep(row["id"])]
            left = [row["id"] for row in noted if row["id"] not in wrong and self.path(row["id"]).exists()]
            incoming = [each for each in (self._home / "incoming").iterdir() if self._is_left(each)]
            aside = [self._set_aside(id) for id in left]
        # Outside the write lock, as it takes long. An id may get a folder again, from a backup that is added.
        for folder in (*aside, *incoming):
            remove_tree(folder)
        for name in ("contexts", "sessions"):
            for folder in self._named(name):
                with suppress(OSError):  # deleted meanwhile, or owned by another user: a later sweep tries again
                    TensorFolder(folder).sweep()
        old = [row["id"] for row in noted if time.time() - row["noted_at"] > _INCOMING_SEC]
        with suppress(DiskFull):  # the next sweep removes the notes
            self.keep([*wrong, *(id for id in {*left, *old}.difference(wrong) if not self.path(id).exists())])
        return [*map(self.path, left), *incoming]

    def _needs_no_sweep(self, id: str) -> bool:
        """Return whether an id has its row, so that its folder stays, or is that of nothing with a folder."""
        if not (isinstance(id, str) and ID.fullmatch(id) and kind_of(id) in NAMES):
            return True
        return bool(self._database.rows(f"SELECT 1 FROM {NAMES[kind_of(id)]} WHERE id = ?", [id]))

    def _set_aside(self, id: str) -> Path:
        """Move the folder of an id to where no item has its folder, and return its path."""
        aside = self._home / "incoming" / f"{id}.{os.getpid()}.{time.monotonic_ns()}"
        try:
            os.rename(self.path(id), aside)
        except OSError:  # owned by another user: a later sweep tries again
            return self.path(id)
        return aside

    def _named(self, name: str) -> list[Path]:
        """Return the folders in this folder of the home that are named like ids."""
        return [each for each in (self._home / name).iterdir() if ID.fullmatch(each.name)]

    @staticmethod
    def _is_left(incoming: Path) -> bool:
        with suppress(FileNotFoundError):  # its owner has just moved it into place
            ours = ID.fullmatch(incoming.name.partition(".")[0])
            return bool(ours) and time.time() - incoming.stat().st_mtime > _INCOMING_SEC
        return False

    def strays(self) -> list[Path]:
        """Return folders named like ids that the database does not know, as after a restore of an older database."""
        found = []
        with self._database.transaction():  # documents and contexts get folder and row under the write lock
            noted = {row["id"] for row in self._database.rows("SELECT id FROM leftovers")}
            for kind, name in NAMES.items():
                known = noted | {row["id"] for row in self._database.rows(f"SELECT id FROM {name}")}
                found += [each for each in self._named(name) if kind_of(each.name) == kind and each.name not in known]
        return found
