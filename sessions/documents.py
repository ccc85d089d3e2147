"""Documents: one row each, and a folder with the text as JSON and the original file."""

import hashlib
import json
import os
import re
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sessions.database import Database
from sessions.deletion import Deletion
from sessions.errors import DiskFull, InUse, StoreCorrupt, StoreError, StoreFailing, is_disk_full, reason_of
from sessions.files import disk_free, flush_directory, flush_file, remove_tree, sha256_of, write_whole
from sessions.folders import Folders
from sessions.rows import DocumentRow, make_row, to_json
from sessions.titles import clean, one_line

_CONTENT = "content.json"
ORIGINAL = re.compile(r"original(\.[a-z0-9]{1,8})?")
"""Names of kept copies of original files."""


@dataclass(frozen=True)
class TextFile:
    """The text of a document on the disk.

    title: title of the document.
    path: the file, JSON from `ingest`.
    sha256: hash of the file.
    """

    id: str
    title: str
    path: Path
    sha256: str

    def is_whole(self) -> bool:
        """Return whether the file is there and unaltered."""
        try:
            return bool(sha256_of(self.path) == self.sha256)
        except OSError:
            return False

    def content(self) -> dict[str, Any]:
        """Return the text.

        Raises:
            StoreCorrupt: the file is missing or altered.
        """
        if not self.is_whole():
            raise StoreCorrupt(
                f"The text of document {self.id} ({self.title!r}) at {self.path} is missing or altered: "
                "read its file again, which mends it, or delete the document."
            )
        content: dict[str, Any] = json.loads(self.path.read_bytes())
        return content


class Documents:
    """The table of documents, and their folders."""

    def __init__(self, database: Database, folders: Folders, deletion: Deletion) -> None:
        self._database, self._folders, self._deletion = database, folders, deletion
        self._home = database.home

    def add(
        self,
        *,
        sha256: str,
        title: str,
        format: str,
        pages: int,
        characters: int,
        content: dict[str, Any],
        file: Path | None = None,
        warnings: list[str] | None = None,
        instead_of: str | None = None,
    ) -> DocumentRow:
        """Store a document and return its row. For a sha256 that is already stored, return that row unchanged.

        Args:
            sha256: hash of the original file; it identifies a document.
            title: title; "Untitled" if it is empty.
            format: format of the file, such as "pdf".
            pages: number of pages, slides or sections.
            characters: length of the text.
            content: the text as JSON from `ingest`; `content` returns it.
            file: the original file, copied into the home if given.
            warnings: sentences about the text; None for none.
            instead_of: id of the document with this sha256 to replace in the same transaction, if it still exists.
                The new one gets a new id, as holders of the old id expect the old text.

        Raises:
            DiskFull: no room. Nothing was added or removed.
            InUse: a context reads the document to replace. Nothing was added or removed.
        """
        if (known := self.find(sha256)) and known.id != instead_of:
            return known
        # Prepared aside and renamed inside the transaction: a row never lacks its files, and a folder without a row
        # (a crash between rename and commit) is swept up at the next start.
        data = to_json(content).encode()
        id = self._folders.new_id("document")
        staging = self._folders.incoming(id)
        needed = len(data) + (file.stat().st_size if file else 0)
        if needed > (free := disk_free(self._home)):
            raise DiskFull(self._home, needed, free)
        try:
            staging.mkdir(mode=0o700)
            write_whole(staging / _CONTENT, data)
            kept = self._keep_original(file, staging) if file else None
            flush_directory(staging)
            with self._database.transaction() as db:
                if known := self.find(sha256):
                    if known.id != instead_of:
                        return known
                    self._give_way(known)
                db.table("documents").insert(
                    {
                        "id": id,
                        "sha256": sha256,
                        "title": one_line(title) or "Untitled",
                        "format": format,
                        "pages": pages,
                        "characters": characters,
                        "warnings": to_json(warnings or []),
                        "file_name": clean(file.name) if file else None,
                        "file_path": kept.name if kept else None,
                        "file_bytes": kept.stat().st_size if kept else 0,
                        "content_sha256": hashlib.sha256(data).hexdigest(),
                        "created_at": time.time(),
                    }
                )
                self._folders.keep([id])
                os.rename(staging, self._folders.path(id))
                flush_directory(self._home / "documents")
        except OSError as error:
            if is_disk_full(error):
                raise DiskFull(self._home, needed, disk_free(self._home)) from error
            raise StoreFailing(f"Cannot keep {title!r} in {self._home}: {reason_of(error)}.") from error
        finally:
            remove_tree(staging)
        if known:
            remove_tree(self._folders.path(known.id))
        return self.get(id)

    def _give_way(self, row: DocumentRow) -> None:
        """Remove a document's row and note its folder as a leftover. Only inside a transaction.

        Raises:
            InUse: a context reads it.
        """
        if self._database.rows("SELECT 1 FROM context_documents WHERE document_id = ?", [row.id]):
            raise InUse(
                f"{row.title!r} was read meanwhile, so it stays as it is: delete {row.id} with what was read of it, "
                "then read the file again."
            )
        with self._database.transaction() as db:
            db.execute("DELETE FROM documents WHERE id = ?", [row.id])
            self._folders.note([row.id])

    @staticmethod
    def _keep_original(file: Path, folder: Path) -> Path:
        # The file name is not used in the path, except for a plain, short suffix.
        name = f"original{file.suffix.lower()}"
        kept = folder / (name if ORIGINAL.fullmatch(name) else "original")
        shutil.copyfile(file, kept)
        flush_file(kept)
        return kept

    def _one(self, id: str) -> dict[str, Any]:
        return self._database.one("SELECT * FROM documents WHERE id = ?", id, "document")

    def get(self, id: str) -> DocumentRow:
        """Return one document; NotFound if there is none with this id."""
        return make_row(DocumentRow, self._one(id))

    def find(self, sha256: str) -> DocumentRow | None:
        """Return the document with this hash, or None."""
        rows = self._database.rows("SELECT * FROM documents WHERE sha256 = ?", [sha256])
        return make_row(DocumentRow, rows[0]) if rows else None

    def all(self) -> list[DocumentRow]:
        """Return all documents, newest first."""
        rows = self._database.rows("SELECT * FROM documents ORDER BY created_at DESC, rowid DESC")
        return [make_row(DocumentRow, row) for row in rows]

    def existing(self, ids: Sequence[str]) -> list[DocumentRow]:
        """Return those of these documents that exist, in the order of the ids."""
        return [make_row(DocumentRow, row) for row in self._database.rows_of("SELECT * FROM documents", ids)]

    def latest(
        self, most: int, chosen: Sequence[str] = (), without: Sequence[str] = ()
    ) -> tuple[list[DocumentRow], int]:
        """Return the newest documents, and how many more there are.

        Args:
            most: most documents, without the chosen ones.
            chosen: ids of documents that are returned in any case.
            without: ids of documents to leave out.
        """
        where, order = "id NOT IN (SELECT value FROM json_each(:value))", "created_at DESC, rowid DESC"
        ids, more = self._database.first("documents", order, most, chosen, where, json.dumps(list(without)))
        return self.existing(ids), more

    def content(self, id: str) -> dict[str, Any]:
        """Return the text of a document as JSON from `ingest`.

        Raises:
            StoreCorrupt: the file is missing or altered.
        """
        return self.text(id).content()

    def text(self, id: str) -> TextFile:
        """Return the file with the text of a document."""
        row = self._one(id)
        return TextFile(id, row["title"], self._content_of(id), row["content_sha256"])

    def texts(self, ids: Sequence[str]) -> tuple[TextFile, ...]:
        """Return the files with the texts of those of these documents that exist, in the order of the ids."""
        rows = self._database.rows_of("SELECT * FROM documents", ids)
        return tuple(
            TextFile(row["id"], row["title"], self._content_of(row["id"]), row["content_sha256"]) for row in rows
        )

    def has_content(self, id: str) -> bool:
        """Return whether a document's text file is there and unaltered."""
        return self.text(id).is_whole()

    def mend_content(self, id: str, content: dict[str, Any]) -> bool:
        """Write a document's text again if it is the same text; return whether it is."""
        data = to_json(content).encode()
        row = self._one(id)
        if hashlib.sha256(data).hexdigest() != row["content_sha256"]:
            return False
        path = self._content_of(id)
        path.parent.mkdir(mode=0o700, exist_ok=True)
        write_whole(path, data)
        return True

    def _content_of(self, id: str) -> Path:
        return self._folders.path(id) / _CONTENT

    def file(self, id: str) -> Path | None:
        """Return the kept copy of the original file; None if there was none or it was removed from the folder.

        A row that names anything else, as one of a forged database does, names no file.
        """
        name = self._one(id)["file_path"]
        if not isinstance(name, str) or not ORIGINAL.fullmatch(name):
            return None
        path = self._folders.path(id) / name
        return path if path.is_file() and not path.is_symlink() and not path.parent.is_symlink() else None

    def rename(self, id: str, title: str) -> DocumentRow:
        """Give a document another title; StoreError if it is empty."""
        if not one_line(title):
            raise StoreError(f"A title cannot be empty; document {id} keeps {self.get(id).title!r}.")
        self._database.update("document", id, {"title": one_line(title)})
        return self.get(id)

    def mark(self, id: str, **marks: str | float | None) -> None:
        """Set `newer` or `gone_at` of a document; None takes the mark away. Raises NotFound if it was deleted."""
        self._database.update("document", id, marks)

    def delete(self, *ids: str) -> None:
        """Delete documents with every context that read one, their tensors, sessions, turns and index entries.

        Raises:
            InUse: a live worker is reading or answering from one. Nothing was deleted.
        """
        self._deletion.delete("document", ids)

    def check(self, ids: list[str]) -> None:
        """Raise NotFound for an unknown id, and StoreError for an empty list or repeated ids."""
        for id in ids:
            self.get(id)
        if not ids or len(set(ids)) != len(ids):
            raise StoreError(f"A context reads one or more different documents, not {ids}.")
