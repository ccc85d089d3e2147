"""Integrity check of a home: every row, every text, every byte of saved states, and SQLite's own structure."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path

from sessions.checksums import SUMMED, altered
from sessions.errors import InUse, NotFound, StoreError
from sessions.export import Export
from sessions.files import sha256_of
from sessions.tensors import TensorFolder


class Checking(Export):
    """Finds damage by comparing stored data with its checksums."""

    def damage(self) -> Iterator[str]:
        """Read everything and yield one sentence for each damaged item, with the way to mend it.

        Items deleted during the check are left out.
        """
        yield from self._database_damage()
        for document in self.documents():
            if not self.has_content(document.id):
                yield (
                    f"The text of document {document.id} ({document.title!r}) is missing or altered: read its file "
                    "again, which mends it, or delete the document."
                )
            original = self.document_file(document.id)
            if original is not None and sha256_of(original) != document.sha256:
                yield f"The original of document {document.id} at {original} is not the file that was read."
        states = [self.home / "contexts" / each.id for each in self.contexts()]
        states += [self.home / "sessions" / each.id for each in self.sessions()]
        for path in states:
            yield from self._state_damage(path)

    def _database_damage(self) -> Iterator[str]:
        again = "Restore the database from a backup, or export what can still be read and start a new home."
        for check in ("integrity_check", "foreign_key_check"):
            try:
                found = [" ".join(map(str, row.values())) for row in self._rows(f"PRAGMA {check}")]
            except (StoreError, sqlite3.DatabaseError) as error:
                found = [str(error)]
            for each in found:
                if each != "ok":
                    yield f"The database {self.path} is damaged ({each}). {again}"
        try:
            with self._write() as db:
                db.execute("INSERT INTO turns_fts(turns_fts, rank) VALUES ('integrity-check', 1)")
        except (StoreError, sqlite3.DatabaseError) as error:
            if not isinstance(error, InUse):
                yield "The index by which questions are searched is not that of the turns: `stockpot doctor --repair`."
        for table in SUMMED:
            try:
                ids = [row["id"] for row in self._rows(altered(table))]
            except (StoreError, sqlite3.DatabaseError) as error:
                yield f"The {table} cannot be read ({error}). {again}"
                continue
            for id in ids:
                yield f"What the database says of {table.removesuffix('s')} {id} is not what was written there. {again}"

    def _state_damage(self, path: Path) -> Iterator[str]:
        try:
            TensorFolder(path).load()
        except NotFound:  # nothing has been saved yet, or it was deleted
            return
        except StoreError as error:
            yield str(error)

    def mend_search(self) -> None:
        """Rebuild the search index of questions and answers."""
        with self._write() as db:
            db.execute("INSERT INTO turns_fts(turns_fts) VALUES ('rebuild')")
