"""Full-text search in questions and answers, over the index that triggers keep up to date."""

import json
import sqlite3
from collections.abc import Sequence

from sessions.database import Database
from sessions.errors import InUse, StoreError, sqlite_errors
from sessions.rows import SearchHit, TurnRow, make_row
from sessions.sessions import Sessions
from sessions.titles import clean
from sessions.turns import TURN_COLUMNS

MOST_HITS = 1000  # largest limit of a search
# Marks around matching words: noncharacters that hardly any text contains. `_unmark` removes them.
_OPEN, _CLOSE = "\ufdd0", "\ufdd1"


class Search:
    """The search index of turns."""

    def __init__(self, database: Database, sessions: Sessions) -> None:
        self._database, self._sessions = database, sessions

    def turns(self, query: str, limit: int = 20) -> list[SearchHit]:
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
        rows = self._database.rows(
            f"""
            SELECT {TURN_COLUMNS}, snippet(turns_fts, -1, :open, :close, '…', 24) AS snippet
            FROM turns_fts JOIN turns ON turns.key = turns_fts.rowid LEFT JOIN drafts ON drafts.turn_key = turns.key
            WHERE turns_fts MATCH :query ORDER BY turns_fts.rank LIMIT :limit""",
            {"query": quoted, "limit": limit, "open": _OPEN, "close": _CLOSE},
        )
        hits = []
        for row in rows:
            text, highlights = _unmark(row["snippet"])
            turn = make_row(TurnRow, row)
            hits.append(SearchHit(self._sessions.get(turn.session_id), turn, text, highlights))
        return hits

    def sessions(self, query: str, session_ids: Sequence[str]) -> set[str]:
        """Return those of these sessions that have a turn `turns` would find without a limit."""
        quoted = self._quoted(query)
        if not quoted or not session_ids:
            return set()
        rows = self._database.rows(
            """
            SELECT DISTINCT turns.session_id FROM turns_fts JOIN turns ON turns.key = turns_fts.rowid
            WHERE turns_fts MATCH ? AND turns.session_id IN (SELECT value FROM json_each(?))""",
            [quoted, json.dumps(list(session_ids))],
        )
        return {row["session_id"] for row in rows}

    def _quoted(self, query: str) -> str:
        """Return a query in the syntax of the index; "" if it has no letters and no digits."""
        quoted = str(self._database.connection.quote_fts(clean(query).replace("\ufffd", " ")))
        if not any(letter.isalnum() for letter in quoted):
            return ""
        unfinished = not query.rstrip(" ").endswith('"') and quoted.endswith('"') and not query[-1:].isspace()
        return quoted + "*" if unfinished else quoted

    def is_intact(self) -> bool:
        """Return whether the index agrees with the turns; True if another process keeps it locked."""
        db = self._database.connection
        try:
            with sqlite_errors(self._database.path):
                db.execute("INSERT INTO turns_fts(turns_fts, rank) VALUES ('integrity-check', 1)")
        except (StoreError, sqlite3.DatabaseError) as error:
            return isinstance(error, InUse)
        finally:
            db.rollback()  # nothing was written
        return True

    def rebuild(self) -> None:
        """Build the index again from the turns."""
        with self._database.transaction() as db:
            db.execute("INSERT INTO turns_fts(turns_fts) VALUES ('rebuild')")


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
