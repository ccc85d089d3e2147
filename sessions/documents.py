"""Documents: a row each, and a folder with the ingest room's JSON and the original file."""

import hashlib
import json
import os
import re
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sessions.database import Base
from sessions.errors import DiskFull, InUse, StoreCorrupt, StoreError, StoreFailing, is_disk_full
from sessions.files import disk_free, flush_directory, flush_file, remove_tree, sha256_of, write_whole
from sessions.rows import DocumentRow, clean, make_row, one_line, to_json

_CONTENT = "content.json"


class Documents(Base):
    """What was ingested."""

    def add_document(
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
        """Keep a document. The same sha256 again gives the row that is already there, unchanged.

        Args:
            sha256: hash of the original file: what makes a document the same document.
            content: the ingest room's JSON, given back by `document_content`.
            file: the original, copied into the home if given.
            instead_of: id of the one with this sha256 that goes in the same step, if it is still there. The new one has
                an id of its own: whoever holds the old text must not take it for this.

        Raises:
            DiskFull: no room. InUse: a context reads the one that was to go. Nothing was added, and nothing went.
        """
        if (known := self.find_document(sha256)) and known.id != instead_of:
            return known
        # Prepared aside and renamed inside the transaction: a row never lacks its files, and a folder that got none
        # (a crash between rename and commit) is swept up at the next start.
        data = to_json(content).encode()
        id = self._id_for_folder("document")
        staging = self.home / "incoming" / f"{id}.{os.getpid()}"
        needed = len(data) + (file.stat().st_size if file else 0)
        if needed > (free := disk_free(self.home)):
            raise DiskFull(self.home, needed, free)
        try:
            staging.mkdir(mode=0o700)
            write_whole(staging / _CONTENT, data)
            kept = self._keep_original(file, staging) if file else None
            flush_directory(staging)
            with self._write() as db:
                if known := self.find_document(sha256):
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
                self._forget_leftovers([id])
                os.rename(staging, self.home / "documents" / id)
                flush_directory(self.home / "documents")
        except OSError as error:
            if is_disk_full(error):
                raise DiskFull(self.home, needed, disk_free(self.home)) from error
            raise StoreFailing(f"Cannot keep {title!r} in {self.home}: {error}.") from error
        finally:
            remove_tree(staging)
        if known:
            remove_tree(self.home / "documents" / known.id)
        return self.document(id)

    def _give_way(self, row: DocumentRow) -> None:
        """Take out a document's row, and note its folder as a leftover; InUse if a context reads it. In `_write`."""
        if self._rows("SELECT 1 FROM context_documents WHERE document_id = ?", [row.id]):
            raise InUse(
                f"{row.title!r} was read meanwhile, so it stays as it is: delete {row.id} with what was read of it, "
                "then read the file again."
            )
        with self._write() as db:
            db.execute("DELETE FROM documents WHERE id = ?", [row.id])
            self._note_leftovers([row.id])

    @staticmethod
    def _keep_original(file: Path, folder: Path) -> Path:
        # No path is made from a file name: only a plain, short suffix is taken over.
        suffix = file.suffix.lower()
        kept = folder / ("original" + (suffix if re.fullmatch(r"\.[a-z0-9]{1,8}", suffix) else ""))
        shutil.copyfile(file, kept)
        flush_file(kept)
        return kept

    def document(self, id: str) -> DocumentRow:
        """One document; NotFound if there is none with this id."""
        return make_row(DocumentRow, self._one("SELECT * FROM documents WHERE id = ?", id, "document"))

    def find_document(self, sha256: str) -> DocumentRow | None:
        """The document with this content, if it is kept."""
        rows = self._rows("SELECT * FROM documents WHERE sha256 = ?", [sha256])
        return make_row(DocumentRow, rows[0]) if rows else None

    def documents(self, among: Sequence[str] | None = None) -> list[DocumentRow]:
        """All documents, newest first; or those of these ids that are there, in their order."""
        if among is None:
            rows = self._rows("SELECT * FROM documents ORDER BY created_at DESC, rowid DESC")
        else:
            rows = [row for id in among for row in self._rows("SELECT * FROM documents WHERE id = ?", [id])]
        return [make_row(DocumentRow, row) for row in rows]

    def document_content(self, id: str) -> dict[str, Any]:
        """The ingest room's JSON.

        Raises:
            StoreCorrupt: the file is missing or is not what was written.
        """
        path = self._content_of(id)
        if not self.has_content(id):
            raise StoreCorrupt(
                f"The text of document {id} ({self.document(id).title!r}) at {path} is missing or altered: "
                "read its file again, which mends it, or delete the document."
            )
        content: dict[str, Any] = json.loads(path.read_bytes())
        return content

    def has_content(self, id: str) -> bool:
        """Whether a document's text is there, as it was written."""
        row = self._one("SELECT * FROM documents WHERE id = ?", id, "document")
        try:
            return bool(sha256_of(self._content_of(id)) == row["content_sha256"])
        except OSError:
            return False

    def mend_content(self, id: str, content: dict[str, Any]) -> bool:
        """Write a document's text once more, where it is the one that was written; whether it is."""
        data = to_json(content).encode()
        row = self._one("SELECT * FROM documents WHERE id = ?", id, "document")
        if hashlib.sha256(data).hexdigest() != row["content_sha256"]:
            return False
        path = self._content_of(id)
        path.parent.mkdir(mode=0o700, exist_ok=True)
        write_whole(path, data)
        return True

    def _content_of(self, id: str) -> Path:
        return self.home / "documents" / id / _CONTENT

    def document_file(self, id: str) -> Path | None:
        """The kept copy of the original file; None if it was not given, or has been removed from the folder."""
        row = self._one("SELECT * FROM documents WHERE id = ?", id, "document")
        path = self.home / "documents" / id / str(row["file_path"])
        return path if row["file_path"] and path.exists() else None

    def rename_document(self, id: str, title: str) -> DocumentRow:
        """Give a document another title; StoreError if it is empty."""
        if not one_line(title):
            raise StoreError(f"A title cannot be empty; document {id} keeps {self.document(id).title!r}.")
        self._update("document", id, {"title": one_line(title)})
        return self.document(id)

    def _check_documents(self, ids: list[str]) -> None:
        """NotFound for the first id that is no document, StoreError for none at all or one named twice."""
        for id in ids:
            self.document(id)
        if not ids or len(set(ids)) != len(ids):
            raise StoreError(f"A context reads one or more different documents, not {ids}.")
