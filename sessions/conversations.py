"""Sessions and their turns, and full-text search in them."""

import json
import time
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

from sessions.contexts import Contexts
from sessions.errors import StoreError
from sessions.processes import stamp
from sessions.rows import SearchHit, SessionRow, TurnRow, clean, make_row, numbered, one_line, shown_title, to_json
from sessions.tensors import TensorFolder

NEW_TITLE = "New session"
MOST_HITS = 1000  # largest limit of a search
_SESSIONS = "SELECT sessions.*, (SELECT count(*) FROM turns WHERE session_id = sessions.id) AS turns FROM sessions"
_TURN_COLUMNS = """
    turns.id, turns.session_id, turns.position, turns.question,
    CASE WHEN turns.status = 'answering' THEN coalesce(drafts.text, '') ELSE turns.answer END AS answer,
    CASE WHEN turns.status = 'answering' THEN coalesce(drafts.reasoning, '') ELSE turns.reasoning END AS reasoning,
    turns.pages, turns.status, turns.sources, turns.measurements, turns.error, turns.asked_of, turns.created_at,
    turns.finished_at"""
_TURNS = f"SELECT {_TURN_COLUMNS} FROM turns LEFT JOIN drafts ON drafts.turn_key = turns.key"
_COPIED = "question, answer, reasoning, status, sources, measurements, asked_of, created_at, finished_at"
# Marks around matching words: noncharacters that hardly any text contains. `_unmark` removes them.
_OPEN, _CLOSE = "\ufdd0", "\ufdd1"


class Conversations(Contexts):
    """Adds sessions, turns and search to the store."""

    def add_session(self, context_id: str, title: str | None = None) -> SessionRow:
        """Add a session over a context and return it.

        Without a title the session is named after its first question, with a number if another session over the context
        has that title.
        """
        now = time.time()
        with self._write() as db:
            self.context(context_id)
            id = self._new_id("session")
            title = one_line(title) or NEW_TITLE
            db.table("sessions").insert(
                {"id": id, "context_id": context_id, "title": title, "created_at": now, "updated_at": now}
            )
        return self.session(id)

    def branch_session(
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
            turns: number of turns to keep, counting unfinished ones.
            context_id: context of the new session, which must begin with the same documents; None for the same
                context.
            renamed: translates the page names of a turn to those of the new context.

        Raises:
            StoreError: the session has fewer turns, or the context begins with other documents.
        """
        with self._write() as db:
            session = self.session(session_id)
            context_id = context_id or session.context_id
            read = self.context(session.context_id).document_ids
            if self.context(context_id).document_ids[: len(read)] != read:
                raise StoreError(
                    f"Context {context_id} did not begin with the documents that session {session_id} is about, and so "
                    "its turns say nothing there: begin a new session."
                )
            if not 0 <= turns <= session.turns:
                count = f"{session.turns} turn{'s' * (session.turns != 1)}"
                raise StoreError(f"Session {session_id} has {count}: a branch keeps 0 to all of them, not {turns}.")
            kept = [turn for turn in self.turns(session_id)[:turns] if turn.status == "done"]
            id = self.add_session(context_id, self._own_title(context_id, session.title) if kept else None).id
            for position, turn in enumerate(kept):
                db.execute(
                    f"INSERT INTO turns (id, session_id, position, pages, {_COPIED}) "
                    f"SELECT ?, ?, ?, ?, {_COPIED} FROM turns WHERE id = ?",
                    [self._new_id("turn"), id, position, renamed(turn.pages), turn.id],
                )
        return self.session(id)

    def _own_title(self, context_id: str, title: str) -> str:
        """Return the title, with a number if another session over the context has it: "Who is Emma? (2)"."""
        taken = {row["title"] for row in self._rows("SELECT title FROM sessions WHERE context_id = ?", [context_id])}
        if title not in taken:
            return title
        return next(each for number in count(2) if (each := numbered(title, number)) not in taken)

    def session(self, id: str) -> SessionRow:
        """Return one session; NotFound if there is none with this id."""
        return make_row(SessionRow, self._one(f"{_SESSIONS} WHERE id = ?", id, "session"))

    def sessions(self, context_id: str | None = None, asking: str | None = None) -> list[SessionRow]:
        """Return all sessions, or those over one context; the most recently used first.

        Args:
            asking: only sessions in which exactly this question was asked.
        """
        asked = "EXISTS (SELECT 1 FROM turns WHERE session_id = sessions.id AND question = ?)"
        asking = None if asking is None else clean(asking)  # questions are stored clean
        wanted = [each for each in (("context_id = ?", context_id), (asked, asking)) if each[1] is not None]
        where = " AND ".join(["1", *(condition for condition, _ in wanted)])
        rows = self._rows(
            f"{_SESSIONS} WHERE {where} ORDER BY updated_at DESC, rowid DESC", [value for _, value in wanted]
        )
        return [make_row(SessionRow, row) for row in rows]

    def rename_session(self, id: str, title: str) -> SessionRow:
        """Give a session another title; StoreError if it is empty."""
        if not one_line(title):
            raise StoreError(f"A title cannot be empty; session {id} keeps {self.session(id).title!r}.")
        self._update("session", id, {"title": one_line(title)})
        return self.session(id)

    def session_state(self, id: str) -> TensorFolder:
        """Return the folder of the session's own tensors. Saving there raises NotFound once the session is deleted."""
        self.session(id)
        return TensorFolder(self.home / "sessions" / id, guard=lambda: self.session(id))

    def add_turn(self, session_id: str, question: str, pages: str = "") -> TurnRow:
        """Store a question and return its turn, with status "answering" and owned by this process until `finish_turn`.

        pages: pages to read again before the answer, as a person named them.
        """
        now, question = time.time(), clean(question)
        with self._write() as db:
            session = self.session(session_id)
            id = self._new_id("turn")
            position = self._rows(
                "SELECT coalesce(max(position) + 1, 0) AS next FROM turns WHERE session_id = ?", [session_id]
            )[0]["next"]
            turn = {
                "id": id,
                "session_id": session_id,
                "position": position,
                "question": question,
                "pages": clean(pages),
                "answer": "",
                "status": "answering",
                "sources": "[]",
                "measurements": "{}",
                "asked_of": len(self.context(session.context_id).document_ids),
                "owner": stamp(),
                "created_at": now,
            }
            key = db.table("turns").insert(turn).last_pk
            db.table("drafts").insert({"turn_key": key, "text": "", "updated_at": now})
            changes: dict[str, Any] = {"updated_at": now}
            if session.title == NEW_TITLE and question.strip():
                changes["title"] = self._own_title(session.context_id, shown_title(" ".join(question.split())))
            self._update("session", session_id, changes)
        return self.turn(id)

    def append_answer(self, turn_id: str, text: str, reasoning: str = "") -> None:
        """Add newly generated text to the answer, and to the reasoning before it; other processes see it at once.

        Raises:
            NotFound: the turn was deleted, so generation should stop.
            StoreError: the turn is not being answered (any more), so generation should stop.
        """
        with self._write(passing=True) as db:
            turn = self._one("SELECT key, status FROM turns WHERE id = ?", turn_id, "turn")
            if turn["status"] != "answering":
                raise StoreError(
                    f"Turn {turn_id} is {turn['status']}, so nothing can be added to its answer; ask anew."
                )
            db.execute(
                "UPDATE drafts SET text = text || ?, reasoning = reasoning || ?, updated_at = ? WHERE turn_key = ?",
                [clean(text), clean(reasoning), time.time(), turn["key"]],
            )

    def finish_turn(
        self,
        turn_id: str,
        *,
        answer: str | None = None,
        status: str = "done",
        sources: list[dict[str, Any]] | None = None,
        measurements: dict[str, Any] | None = None,
        error: str | None = None,
        reasoning: str | None = None,
    ) -> TurnRow:
        """End a turn as done, cancelled or failed. Without `answer` or `reasoning` the streamed text is kept.

        Raises:
            ValueError: another status.
            NotFound: the turn was deleted.
        """
        if status not in ("done", "cancelled", "failed"):
            raise ValueError(f"A turn ends done, cancelled or failed, not {status!r}.")
        now = time.time()
        with self._write() as db:
            turn = self.turn(turn_id)
            changes = {
                "answer": turn.answer if answer is None else clean(answer),
                "reasoning": turn.reasoning if reasoning is None else clean(reasoning),
                "status": status,
                "sources": to_json(sources or []),
                "measurements": to_json(measurements or {}),
                "error": error,
                "finished_at": now,
            }
            self._update("turn", turn_id, changes)
            db.execute("DELETE FROM drafts WHERE turn_key = (SELECT key FROM turns WHERE id = ?)", [turn_id])
            self._update("session", turn.session_id, {"updated_at": now})
        return self.turn(turn_id)

    def turn(self, id: str) -> TurnRow:
        """Return one turn; NotFound if there is none with this id."""
        return make_row(TurnRow, self._one(f"{_TURNS} WHERE turns.id = ?", id, "turn"))

    def turns(self, session_id: str, first: int = 0) -> list[TurnRow]:
        """Return the turns of a session in order, from position `first` on."""
        self.session(session_id)
        rows = self._rows(f"{_TURNS} WHERE session_id = ? AND position >= ? ORDER BY position", [session_id, first])
        return [make_row(TurnRow, row) for row in rows]

    def answering(self, session_id: str) -> list[str]:
        """Return the ids of a session's turns that are being answered or waiting for it."""
        rows = self._rows("SELECT id FROM turns WHERE session_id = ? AND status = 'answering'", [session_id])
        return [row["id"] for row in rows]

    def last_used(self) -> dict[str, float]:
        """Return the time of the last use of each context that has sessions, by its id."""
        rows = self._rows("SELECT context_id, max(updated_at) AS at FROM sessions GROUP BY context_id")
        return {row["context_id"]: row["at"] for row in rows}

    def search(self, query: str, limit: int = 20) -> list[SearchHit]:
        """Return turns whose question or finished answer has every word of the query, best first.

        Accents and case are ignored, "words in quotes" are a phrase, and the last word may be incomplete. Every other
        character is plain text, so that no query is an error.

        Raises:
            StoreError: the limit is not 1 to MOST_HITS.
        """
        if not 1 <= limit <= MOST_HITS:
            raise StoreError(f"A search finds 1 to {MOST_HITS:,} turns, not {limit}.")
        quoted = self._quoted(query)
        if not quoted:
            return []
        # Ordered by rank alone: any other order makes SQLite build the snippets of all matches first.
        rows = self._rows(
            f"""
            SELECT {_TURN_COLUMNS}, snippet(turns_fts, -1, :open, :close, '…', 24) AS snippet
            FROM turns_fts JOIN turns ON turns.key = turns_fts.rowid LEFT JOIN drafts ON drafts.turn_key = turns.key
            WHERE turns_fts MATCH :query ORDER BY turns_fts.rank LIMIT :limit""",
            {"query": quoted, "limit": limit, "open": _OPEN, "close": _CLOSE},
        )
        hits = []
        for row in rows:
            text, highlights = _unmark(row["snippet"])
            turn = make_row(TurnRow, row)
            hits.append(SearchHit(self.session(turn.session_id), turn, text, highlights))
        return hits

    def saying(self, query: str, session_ids: Sequence[str]) -> set[str]:
        """Return those of these sessions that have a turn `search` would find without a limit."""
        quoted = self._quoted(query)
        if not quoted or not session_ids:
            return set()
        rows = self._rows(
            """
            SELECT DISTINCT turns.session_id FROM turns_fts JOIN turns ON turns.key = turns_fts.rowid
            WHERE turns_fts MATCH ? AND turns.session_id IN (SELECT value FROM json_each(?))""",
            [quoted, json.dumps(list(session_ids))],
        )
        return {row["session_id"] for row in rows}

    def _quoted(self, query: str) -> str:
        """Return a query in the syntax of the index; "" if it has no letters and no digits."""
        quoted = str(self._db.quote_fts(clean(query).replace("\ufffd", " ")))
        if not any(letter.isalnum() for letter in quoted):
            return ""
        unfinished = not query.rstrip(" ").endswith('"') and quoted.endswith('"') and not query[-1:].isspace()
        return quoted + "*" if unfinished else quoted


def _unmark(marked: str) -> tuple[str, list[tuple[int, int]]]:
    """Return plain text and the (start, end) of each marked part."""
    text, highlights, start = "", [], 0
    for letter in marked:
        if letter == _OPEN:
            start = len(text)
        elif letter == _CLOSE:
            highlights.append((start, len(text)))
        else:
            text += letter
    return text, highlights
