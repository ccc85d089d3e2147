"""Turns of sessions: questions with their answers. An answer is streamed into `drafts` until its turn is finished."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from sessions.checksums import intact
from sessions.database import Database
from sessions.errors import StoreError
from sessions.processes import stamp
from sessions.rows import TurnRow, make_row, to_json
from sessions.titles import FORMER_NEW_TITLE, NEW_TITLE, clean, shown_title, unused_title

TURN_COLUMNS = f"""
    turns.id, turns.session_id, turns.position, turns.question,
    CASE WHEN turns.status = 'answering' THEN coalesce(drafts.text, '') ELSE turns.answer END AS answer,
    CASE WHEN turns.status = 'answering' THEN coalesce(drafts.reasoning, '') ELSE turns.reasoning END AS reasoning,
    turns.pages, turns.kept, turns.status, turns.sources, turns.measurements, turns.error, turns.asked_of,
    turns.created_at, turns.finished_at, {intact("turns")} AS intact"""
_SELECT = f"SELECT {TURN_COLUMNS} FROM turns LEFT JOIN drafts ON drafts.turn_key = turns.key"
_COPIED = "question, answer, reasoning, status, sources, measurements, kept, asked_of, created_at, finished_at"


class Turns:
    """The table of turns, and their drafts."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, session_id: str, question: str, pages: str = "") -> TurnRow:
        """Store a question and return its turn, with status "answering" and owned by this process until `finish`.

        pages: pages to read again before the answer, as a person named them.
        """
        now, question = time.time(), clean(question)
        with self._database.transaction() as db:
            session = self._database.one("SELECT * FROM sessions WHERE id = ?", session_id, "session")
            read = "SELECT count(*) AS documents FROM context_documents WHERE context_id = ?"
            id = self._database.new_id("turn")
            position = self._database.rows(
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
                "asked_of": self._database.rows(read, [session["context_id"]])[0]["documents"],
                "owner": stamp(),
                "created_at": now,
            }
            key = db.table("turns").insert(turn).last_pk
            db.table("drafts").insert({"turn_key": key, "text": "", "updated_at": now})
            changes: dict[str, Any] = {"updated_at": now}
            if session["title"] in (NEW_TITLE, FORMER_NEW_TITLE) and question.strip():
                title = shown_title(" ".join(question.split()))
                changes["title"] = unused_title(self._database, session["context_id"], title)
            self._database.update("session", session_id, changes)
        return self.get(id)

    def append_answer(self, turn_id: str, text: str, reasoning: str = "") -> None:
        """Add newly generated text to the answer, and to the reasoning before it; other processes see it at once.

        Raises:
            NotFound: the turn was deleted, so generation should stop.
            StoreError: the turn is not being answered (any more), so generation should stop.
        """
        with self._database.transaction(passing=True) as db:
            turn = self._database.one("SELECT key, status FROM turns WHERE id = ?", turn_id, "turn")
            if turn["status"] != "answering":
                raise StoreError(
                    f"Turn {turn_id} is {turn['status']}, so nothing can be added to its answer; ask anew."
                )
            db.execute(
                "UPDATE drafts SET text = text || ?, reasoning = reasoning || ?, updated_at = ? WHERE turn_key = ?",
                [clean(text), clean(reasoning), time.time(), turn["key"]],
            )

    def finish(
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
        with self._database.transaction() as db:
            turn = self.get(turn_id)
            changes = {
                "answer": turn.answer if answer is None else clean(answer),
                "reasoning": turn.reasoning if reasoning is None else clean(reasoning),
                "status": status,
                "sources": to_json(sources or []),
                "measurements": to_json(measurements or {}),
                "error": error,
                "finished_at": now,
            }
            self._database.update("turn", turn_id, changes)
            db.execute("DELETE FROM drafts WHERE turn_key = (SELECT key FROM turns WHERE id = ?)", [turn_id])
            self._database.update("session", turn.session_id, {"updated_at": now})
        return self.get(turn_id)

    def finish_as_saved(self, saved: Mapping[str, Any]) -> TurnRow:
        """Finish a turn with the answer that was saved with its conversation, unless it is done.

        saved: the turn's id, answer, sources and measurements, and its reasoning if there was any.

        Raises:
            NotFound: there is no such turn, for example after an older database was restored.
        """
        turn = self.get(saved["id"])
        if turn.status == "done":
            return turn
        facts = {name: saved[name] for name in ("answer", "sources", "measurements")}
        return self.finish(turn.id, **facts, reasoning=saved.get("reasoning"))

    def keep(self, turn_id: str, numbers: Iterable[int], drop: Iterable[int] = ()) -> TurnRow:
        """Keep parts of a turn as notes, and drop others: 0 is its answer, n its n-th source.

        Raises:
            NotFound: the turn was deleted.
            StoreError: it has no such part, or is still being answered. Nothing changed.
        """
        with self._database.transaction():
            turn = self.get(turn_id)
            known = range(len(turn.sources) + 1)
            if wrong := [number for number in (*numbers, *drop) if number not in known]:
                raise StoreError(
                    f"Question {turn.position + 1} has an answer (0) and {len(turn.sources)} sources (1 and on), but "
                    f"no number {wrong[0]}: `stockpot show {turn.id}` lists them."
                )
            if turn.status == "answering":
                raise StoreError(f"Turn {turn_id} is still being answered: keep it once that has ended.")
            kept = {*turn.kept, *numbers}.difference(drop)
            self._database.update("turn", turn_id, {"kept": to_json(sorted(kept))})
        return self.get(turn_id)

    def get(self, id: str) -> TurnRow:
        """Return one turn; NotFound if there is none with this id."""
        return make_row(TurnRow, self._database.one(f"{_SELECT} WHERE turns.id = ?", id, "turn"))

    def all(self, session_id: str, first: int = 0) -> list[TurnRow]:
        """Return the turns of a session in order, from position `first` on."""
        self._database.one("SELECT id FROM sessions WHERE id = ?", session_id, "session")
        rows = self._database.rows(
            f"{_SELECT} WHERE session_id = ? AND position >= ? ORDER BY position", [session_id, first]
        )
        return [make_row(TurnRow, row) for row in rows]

    def answering(self, session_id: str) -> list[str]:
        """Return the ids of a session's turns that are being answered or waiting for it."""
        rows = self._database.rows("SELECT id FROM turns WHERE session_id = ? AND status = 'answering'", [session_id])
        return [row["id"] for row in rows]

    def copy(self, turns: Sequence[TurnRow], session_id: str, renamed: Callable[[str], str]) -> None:
        """Add copies of turns to a session that has none.

        renamed: translates the page names of a turn to those of the session's context.
        """
        with self._database.transaction() as db:
            for position, turn in enumerate(turns):
                db.execute(
                    f"INSERT INTO turns (id, session_id, position, pages, {_COPIED}) "
                    f"SELECT ?, ?, ?, ?, {_COPIED} FROM turns WHERE id = ?",
                    [self._database.new_id("turn"), session_id, position, renamed(turn.pages), turn.id],
                )
