"""Sessions: saved conversations over one context. Their own tensors are in a `TensorFolder`."""

import json
import time
from collections.abc import Callable, Sequence

from sessions.contexts import Contexts
from sessions.database import Database
from sessions.deletion import Deletion
from sessions.errors import StoreError
from sessions.folders import Folders
from sessions.rows import SessionRow, make_row
from sessions.tensors import TensorFolder
from sessions.titles import NEW_TITLE, clean, one_line, unused_title
from sessions.turns import Turns

_SELECT = "SELECT sessions.*, (SELECT count(*) FROM turns WHERE session_id = sessions.id) AS turns FROM sessions"

_BEGUN = "EXISTS (SELECT 1 FROM turns WHERE session_id = sessions.id)"


class Sessions:
    """The table of sessions, and their folders of tensors."""

    def __init__(
        self, database: Database, folders: Folders, deletion: Deletion, contexts: Contexts, turns: Turns
    ) -> None:
        self._database, self._folders, self._deletion = database, folders, deletion
        self._contexts, self._turns = contexts, turns

    def add(self, context_id: str, title: str | None = None) -> SessionRow:
        """Add a session over a context and return it.

        Without a title the session is named after its first question, with a number if another session over the context
        has that title.
        """
        now = time.time()
        with self._database.transaction() as db:
            self._contexts.get(context_id)
            id = self._database.new_id("session")
            title = one_line(title) or NEW_TITLE
            db.table("sessions").insert(
                {"id": id, "context_id": context_id, "title": title, "created_at": now, "updated_at": now}
            )
        return self.get(id)

    def branch(
        self,
        session_id: str,
        turns: int,
        context_id: str | None = None,
        renamed: Callable[[str], str] = lambda pages: pages,
    ) -> SessionRow:
        """Add a session with copies of another session's first turns, and return it; the other one does not change.

        Only turns with status "done" are copied. The title is copied too, with a number if another session over the
        context has it. If no turn is copied, the title comes from the first question.

        Args:
            session_id: the session to copy from.
            turns: number of turns to keep, counting unfinished ones.
            context_id: context of the new session, which must begin with the same documents; None for the same
                context.
            renamed: translates the page names of a turn to those of the new context.

        Raises:
            StoreError: the session has fewer turns, or the context begins with other documents.
        """
        with self._database.transaction():
            session = self.get(session_id)
            context_id = context_id or session.context_id
            read = self._contexts.get(session.context_id).document_ids
            if self._contexts.get(context_id).document_ids[: len(read)] != read:
                raise StoreError(
                    f"Context {context_id} did not begin with the documents that session {session_id} is about, and so "
                    "its turns say nothing there: begin a new session."
                )
            if not 0 <= turns <= session.turns:
                count = f"{session.turns} turn{'s' * (session.turns != 1)}"
                raise StoreError(f"Session {session_id} has {count}: a branch keeps 0 to all of them, not {turns}.")
            kept = [turn for turn in self._turns.all(session_id)[:turns] if turn.status == "done"]
            id = self.add(context_id, unused_title(self._database, context_id, session.title) if kept else None).id
            self._turns.copy(kept, id, renamed)
        return self.get(id)

    def get(self, id: str) -> SessionRow:
        """Return one session; NotFound if there is none with this id."""
        return make_row(SessionRow, self._database.one(f"{_SELECT} WHERE id = ?", id, "session"))

    def all(
        self, context_id: str | None = None, asking: str | None = None, *, most: int = -1, begun: bool = False
    ) -> list[SessionRow]:
        """Return all sessions, or those over one context; the most recently used first.

        Args:
            context_id: only sessions over this context.
            asking: only sessions in which exactly this question was asked.
            most: most sessions; -1 for all.
            begun: only sessions with a turn.
        """
        asked = "EXISTS (SELECT 1 FROM turns WHERE session_id = sessions.id AND question = ?)"
        asking = None if asking is None else clean(asking)  # questions are stored clean
        wanted = [each for each in (("context_id = ?", context_id), (asked, asking)) if each[1] is not None]
        where = " AND ".join([_BEGUN if begun else "1", *(condition for condition, _ in wanted)])
        rows = self._database.rows(
            f"{_SELECT} WHERE {where} ORDER BY updated_at DESC, rowid DESC LIMIT ?",
            [*(value for _, value in wanted), most],
        )
        return [make_row(SessionRow, row) for row in rows]

    def existing(self, ids: Sequence[str]) -> list[SessionRow]:
        """Return those of these sessions that exist, in the order of the ids."""
        return [make_row(SessionRow, row) for row in self._database.rows_of(_SELECT, ids)]

    def latest(self, context_id: str, most: int, chosen: str = "") -> tuple[list[SessionRow], int]:
        """Return the sessions over a context with a turn that were used last, and how many more there are.

        Args:
            context_id: the context.
            most: most sessions, without the chosen one.
            chosen: id of a session that is returned in any case; "" for none.
        """
        shown = f"({_BEGUN} OR id IN (SELECT value FROM json_each(:chosen)))"
        where, order = f"context_id = :value AND {shown}", "updated_at DESC, rowid DESC"
        ids, more = self._database.first("sessions", order, most, [chosen], where, context_id)
        return self.existing(ids), more

    def titles(self) -> dict[str, str]:
        """Return the titles of all sessions by id, the most recently used first."""
        rows = self._database.rows("SELECT id, title FROM sessions ORDER BY updated_at DESC, rowid DESC")
        return {row["id"]: row["title"] for row in rows}

    def rename(self, id: str, title: str) -> SessionRow:
        """Give a session another title; StoreError if it is empty."""
        if not one_line(title):
            raise StoreError(f"A title cannot be empty; session {id} keeps {self.get(id).title!r}.")
        self._database.update("session", id, {"title": one_line(title)})
        return self.get(id)

    def delete(self, *ids: str) -> None:
        """Delete sessions with their turns and tensors. Raises InUse as `Documents.delete` does."""
        self._deletion.delete("session", ids)

    def state(self, id: str) -> TensorFolder:
        """Return the folder of the session's own tensors. Saving there raises NotFound once the session is deleted."""
        self.get(id)
        return TensorFolder(self._folders.path(id), guard=lambda: self.get(id))

    def last_used(self, context_ids: Sequence[str]) -> dict[str, float]:
        """Return the time of the last use of those of these contexts that have sessions, by id."""
        rows = self._database.rows(
            "SELECT context_id, max(updated_at) AS at FROM sessions "
            "WHERE context_id IN (SELECT value FROM json_each(?)) GROUP BY context_id",
            [json.dumps(list(context_ids))],
        )
        return {row["context_id"]: row["at"] for row in rows}
