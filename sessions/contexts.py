"""Contexts (readings of documents): rows here, tensors in a `TensorFolder` beside the database."""

import os
import time
from collections.abc import Callable, Sequence
from typing import Any

from sessions.database import Database
from sessions.deletion import Deletion
from sessions.documents import Documents
from sessions.errors import AlreadyRead, NotFound
from sessions.files import remove_tree
from sessions.folders import Folders
from sessions.ids import kind_of
from sessions.processes import stamp
from sessions.rows import READING_STATUSES, ContextName, ContextRow, DocumentRow, make_row, to_json
from sessions.tensors import TensorFolder
from sessions.titles import one_line

_TITLE = """
    coalesce(nullif(own_title, ''), (
        SELECT CASE WHEN count(*) < 3 THEN group_concat(title, ' and ')
            ELSE max(iif(place = 1, title, NULL)) || ' and ' || (count(*) - 1) || ' more' END
        FROM (SELECT title, row_number() OVER (ORDER BY position) AS place
            FROM context_documents JOIN documents ON documents.id = document_id
            WHERE context_id = contexts.id ORDER BY position)
    )) AS title"""
_SELECT = f"""
    SELECT contexts.*, (
        SELECT json_group_array(document_id) FROM (
            SELECT document_id FROM context_documents WHERE context_id = contexts.id ORDER BY position)
    ) AS document_ids, {_TITLE} FROM contexts"""
_BY_USE = """
    max(created_at, coalesce((SELECT max(updated_at) FROM sessions WHERE context_id = contexts.id), 0)) DESC, id DESC"""
_CHANGEABLE = {"status", "tokens", "tokens_read", "seconds", "usage", "warnings", "error"}


class Contexts:
    """The table of contexts, and their folders of tensors."""

    def __init__(self, database: Database, folders: Folders, deletion: Deletion, documents: Documents) -> None:
        self._database, self._folders, self._deletion, self._documents = database, folders, deletion, documents

    def add(
        self,
        *,
        model: str,
        method: str,
        settings: dict[str, Any],
        budget: int | None,
        fingerprint: str,
        document_ids: list[str],
        tokens: int,
        warnings: list[str] | None = None,
        title: str | None = None,
        base: ContextRow | None = None,
        save: Callable[[ContextRow], object] = lambda row: None,
        check: Callable[[], object] = lambda: None,
    ) -> ContextRow:
        """Add a context with status "reading", owned by this process, and return it.

        Args:
            model: name of the model.
            method: name of the method.
            settings: the method's settings.
            budget: the method's budget; None if it has none.
            fingerprint: identifies model, tokenizer, method and settings; opaque here.
            document_ids: the documents, in reading order.
            tokens: tokens to read; 0 if not known yet.
            warnings: sentences about the reading; None for none.
            title: title of the context; None to name it after its documents.
            base: a finished context to continue from. Its tokens count as read, and the new context starts with its
                state (`TensorFolder.begin_like`).
            save: saves the first state. The row becomes visible, and survives a crash, only after that. An
                exception removes the row.
            check: called under the write lock, before anything is stored. An exception aborts.
        """
        now, id = time.time(), self._folders.new_id("context")
        staging, folder = self._folders.incoming(id), self._folders.path(id)
        try:
            if base is not None:  # outside the write lock: it takes long where hard links are not supported
                TensorFolder(staging).begin_like(self.state(base.id))
            with self._database.transaction() as db:
                check()
                self._documents.check(document_ids)
                self._folders.keep([id])
                db.table("contexts").insert(
                    {
                        "id": id,
                        "model": model,
                        "method": method,
                        "settings": to_json(settings),
                        "budget": budget,
                        "fingerprint": fingerprint,
                        "tokens": tokens,
                        "status": "reading",
                        "tokens_read": base.tokens if base else 0,
                        "read_before": base.tokens if base else 0,
                        "seconds": 0.0,
                        "usage": to_json(base.usage if base else {}),
                        "warnings": to_json(warnings or []),
                        "own_title": one_line(title),
                        "owner": stamp(),
                        "created_at": now,
                        "updated_at": now,
                    }
                )
                db.table("context_documents").insert_all(
                    {"context_id": id, "document_id": document_id, "position": position}
                    for position, document_id in enumerate(document_ids)
                )
                if base is not None:
                    os.replace(staging, folder)
                save(self.get(id))
        except BaseException:
            for each in (staging, folder):
                remove_tree(each)
            raise
        return self.get(id)

    def restore(self, id: str, document_ids: list[str], **fields: Any) -> ContextRow:
        """Restore the lost row of a context that still has its folder. `fields` are the other columns.

        Raises:
            NotFound: one of its documents is missing.
        """
        if kind_of(id) != "context":
            raise NotFound(f"{id} is no context.")
        now = time.time()
        fields = {**fields, "settings": to_json(fields["settings"])}
        empty = {"seconds": 0.0, "usage": "{}", "warnings": "[]", "updated_at": now, "created_at": now}
        with self._database.transaction() as db:
            self._documents.check(document_ids)
            db.table("contexts").insert({"id": id, **empty, **fields})
            db.table("context_documents").insert_all(
                {"context_id": id, "document_id": document_id, "position": position}
                for position, document_id in enumerate(document_ids)
            )
        return self.get(id)

    def get(self, id: str) -> ContextRow:
        """Return one context; NotFound if there is none with this id."""
        return make_row(ContextRow, self._database.one(f"{_SELECT} WHERE id = ?", id, "context"))

    def all(self, document_id: str | None = None, *, model: str | None = None, most: int = -1) -> list[ContextRow]:
        """Return all contexts, or those that read a document, or that a model read; newest first.

        most: most contexts; -1 for all.
        """
        read = "id IN (SELECT context_id FROM context_documents WHERE document_id = ?)"
        wanted = [each for each in ((read, document_id), ("model = ?", model)) if each[1] is not None]
        where = " AND ".join(["1", *(condition for condition, _ in wanted)])
        rows = self._database.rows(
            f"{_SELECT} WHERE {where} ORDER BY created_at DESC, rowid DESC LIMIT ?",
            [*(value for _, value in wanted), most],
        )
        return [make_row(ContextRow, row) for row in rows]

    def names(self) -> list[ContextName]:
        """Return the names of all contexts, newest first."""
        rows = self._database.rows(
            f"SELECT id, method, status, created_at, {_TITLE} FROM contexts ORDER BY created_at DESC, rowid DESC"
        )
        return [make_row(ContextName, row) for row in rows]

    def existing(self, ids: Sequence[str]) -> list[ContextRow]:
        """Return those of these contexts that exist, in the order of the ids."""
        return [make_row(ContextRow, row) for row in self._database.rows_of(_SELECT, ids)]

    def latest(self, most: int, chosen: str = "", *, whole: bool = False) -> tuple[list[ContextRow], int]:
        """Return the contexts that were used or made last, and how many more there are.

        Args:
            most: most contexts, without the chosen one.
            chosen: id of a context that is returned in any case; "" for none.
            whole: whether to leave out those that have not been read to their end.
        """
        where = "status = 'ready' AND tokens_read >= tokens" if whole else "1"
        ids, more = self._database.first("contexts", _BY_USE, most, [chosen], where, "")
        return self.existing(ids), more

    def update(self, id: str, **changes: Any) -> ContextRow:
        """Change status, tokens, tokens_read, seconds, usage, warnings or error; other fields are fixed.

        Progress in tokens_read resets the attempts of the running job.

        Raises:
            NotFound: the context was deleted, so its reader should stop.
            AlreadyRead: the context is ready, which is final.
            TypeError: an unknown field.
            ValueError: an unknown status.
        """
        if unknown := set(changes) - _CHANGEABLE:
            raise TypeError(f"A context has no changeable {sorted(unknown)}; there are {sorted(_CHANGEABLE)}.")
        if changes.get("status", "ready") not in READING_STATUSES:
            raise ValueError(f"{changes['status']!r} is not one of {READING_STATUSES}.")
        columns = {name: to_json(each) if name in ("usage", "warnings") else each for name, each in changes.items()}
        columns["updated_at"] = time.time()
        if changes.get("status") == "reading":
            columns["owner"] = stamp()
        with self._database.transaction() as db:
            before = self.get(id)
            if changes.get("status", "ready") != "ready":
                self.check_unread(id)
            self._database.update("context", id, columns)
            if changes.get("tokens_read", 0) > before.tokens_read:
                db.execute("UPDATE jobs SET attempts = 1 WHERE subject_id = ? AND status = 'running'", [id])
        return self.get(id)

    def rename(self, id: str, title: str) -> ContextRow:
        """Give a context its own title; an empty title names it after its documents again."""
        self._database.update("context", id, {"own_title": one_line(title)})
        return self.get(id)

    def delete(self, *ids: str) -> None:
        """Delete contexts with their tensors and sessions. Raises InUse as `Documents.delete` does."""
        self._deletion.delete("context", ids)

    def documents(self, id: str) -> list[DocumentRow]:
        """Return the documents of a context, in reading order."""
        rows = self._database.rows(
            "SELECT documents.* FROM context_documents JOIN documents ON documents.id = document_id "
            "WHERE context_id = ? ORDER BY position",
            [self.get(id).id],
        )
        return [make_row(DocumentRow, row) for row in rows]

    def state(self, id: str) -> TensorFolder:
        """Return the folder of a context's tensors.

        Saving there raises NotFound after the context was deleted, and AlreadyRead after it was finished.
        """
        self.get(id)
        return TensorFolder(self._folders.path(id), guard=lambda: self.check_unread(id))

    def check_unread(self, id: str) -> None:
        """Raise AlreadyRead if a context is ready, NotFound if there is none."""
        if self.get(id).status == "ready":
            raise AlreadyRead(f"Context {id} has been read: nothing had to be done. Ask it.")
