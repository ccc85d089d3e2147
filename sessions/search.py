"""Full-text search in questions and answers, and in the text of documents, over indexes kept up to date by triggers."""

import json
import re
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from typing import Any

from sessions.database import Database
from sessions.errors import InUse, StoreError, sqlite_errors
from sessions.rows import PageHit, SearchHit, TurnRow, make_row
from sessions.search_words import LONG, MOST_WORDS, long_words, searched_part, spaced, unspaced, words_with
from sessions.sessions import Sessions
from sessions.titles import clean
from sessions.turns import TURN_COLUMNS

MOST_HITS = 1000  # largest limit of a search
# Marks around matching words: noncharacters that hardly any text contains. `_unmark` removes them.
_OPEN, _CLOSE = "\ufdd0", "\ufdd1"
INDEXES = ("turns_fts", "pieces_fts")


class Search:
    """The search indexes of turns and of documents."""

    def __init__(self, database: Database, sessions: Sessions) -> None:
        self._database, self._sessions = database, sessions

    def turns(self, query: str, limit: int = 20) -> list[SearchHit]:
        """Return turns whose question or finished answer has every word of the query, best first.

        Accents and case are ignored, "words in quotes" are a phrase, and the last word may be incomplete. A word may
        also be part of a longer one ("Mühle" of "Wassermühle"); those turns come last. Scripts without blanks between
        words are searched letter by letter. Every other character is plain text, so that no query is an error.

        Raises:
            StoreError: the limit is not 1 to MOST_HITS.
        """
        _check_limit(limit)
        # Ordered by rank alone: any other order makes SQLite build the snippets of all matches first.
        rows = self._found(
            self._queries(query, self._longer_in_turns),
            f"""
            SELECT turns.key AS found, {TURN_COLUMNS}, snippet(turns_fts, -1, :open, :close, '…', 24) AS snippet
            FROM turns_fts JOIN turns ON turns.key = turns_fts.rowid LEFT JOIN drafts ON drafts.turn_key = turns.key
            WHERE turns_fts MATCH :query ORDER BY turns_fts.rank LIMIT :limit""",
            limit,
        )
        over = {row.id: row for row in self._sessions.existing([row["session_id"] for row in rows])}
        there = [row for row in rows if row["session_id"] in over]  # others were deleted meanwhile
        return [SearchHit(over[row["session_id"]], make_row(TurnRow, row), *_unmark(row["snippet"])) for row in there]

    def sessions(self, query: str, session_ids: Sequence[str]) -> set[str]:
        """Return those of these sessions that have a turn `turns` would find without a limit."""
        if not session_ids:
            return set()
        rows: list[dict[str, Any]] = []
        for each in self._queries(query, self._longer_in_turns):
            rows += self._database.rows(
                """
                SELECT DISTINCT turns.session_id FROM turns_fts JOIN turns ON turns.key = turns_fts.rowid
                WHERE turns_fts MATCH ? AND turns.session_id IN (SELECT value FROM json_each(?))""",
                [each, json.dumps(list(session_ids))],
            )
        return {row["session_id"] for row in rows}

    def pages(self, query: str, limit: int = 20, document_ids: Sequence[str] | None = None) -> list[PageHit]:
        """Return passages of documents that have every word of the query, best first; see `turns`.

        Args:
            query: the words.
            limit: most passages.
            document_ids: the documents to search; None for all.

        Raises:
            StoreError: the limit is not 1 to MOST_HITS.
        """
        _check_limit(limit)
        chosen = None if document_ids is None else json.dumps(list(document_ids))
        texts = cache(lambda: self._words_of_documents(of, chosen))
        of = "AND (:documents IS NULL OR document_id IN (SELECT value FROM json_each(:documents)))"
        rows = self._found(
            self._queries(query, lambda word: words_with(word, texts())),
            f"""
            SELECT pieces.key AS found, document_id, page, start,
                snippet(pieces_fts, 0, :open, :close, '…', 24) AS snippet,
                highlight(pieces_fts, 0, :open, :close) AS whole
            FROM pieces_fts JOIN pieces ON pieces.key = pieces_fts.rowid
            WHERE pieces_fts MATCH :query {of} ORDER BY pieces_fts.rank LIMIT :limit""",
            limit,
            chosen,
        )
        return [_page_hit(row) for row in rows]

    def unindexed(self) -> list[str]:
        """Return the ids of documents whose text cannot be searched yet."""
        return [row["id"] for row in self._database.rows("SELECT id FROM documents WHERE NOT searchable")]

    def index(self, document_id: str, pieces: Iterable[tuple[int, int, str]]) -> None:
        """Make the text of a document searchable, unless it is or the document was deleted.

        Args:
            document_id: the document.
            pieces: page, first character in the document's text, and text of each piece.
        """
        with self._database.transaction(derived=True) as db:
            if not self._database.rows("SELECT 1 FROM documents WHERE id = ? AND NOT searchable", [document_id]):
                return
            pieces = list(pieces)
            for piece in pieces:
                db.execute(
                    "INSERT INTO pieces (document_id, page, start, text) VALUES (?, ?, ?, ?)", [document_id, *piece]
                )
            words = long_words(text for _, _, text in pieces)
            db.execute("INSERT OR REPLACE INTO long_words (document_id, words) VALUES (?, ?)", [document_id, words])
            db.execute("UPDATE documents SET searchable = 1 WHERE id = ?", [document_id])

    def _found(
        self, queries: Iterable[str], sql: str, limit: int, documents: str | None = None
    ) -> list[dict[str, Any]]:
        """Return the rows of the first query, then those of the next ones while there are fewer than `limit`."""
        rows: dict[int, dict[str, Any]] = {}
        for query in queries:
            given = {"query": query, "limit": limit, "open": _OPEN, "close": _CLOSE, "documents": documents}
            for row in self._database.rows(sql, given):
                rows.setdefault(row["found"], row)
            if len(rows) >= limit:
                break
        return [*rows.values()][:limit]

    def _queries(self, query: str, longer_than: Callable[[str], list[str]]) -> Iterator[str]:
        """Yield a query in the syntax of the index, then one that also finds longer words that contain its words.

        A query without letters and digits yields nothing. There is no second one without such longer words.

        Args:
            query: the words.
            longer_than: returns the longer words that contain a word.
        """
        words = re.findall(r'"([^"]*)"|([^\s"]+)', clean(query).replace("\ufffd", " "))
        given = [(phrase or word, bool(word)) for phrase, word in words if any(map(str.isalnum, phrase or word))]
        if not given:
            return
        wanted = [f'"{spaced(each)}"' for each, _ in given]
        if given[-1][1] and not query[-1:].isspace():
            wanted[-1] += "*"  # it may be incomplete
        yield " AND ".join(wanted)
        longer = [longer_than(each) if alone else [] for each, alone in given]
        if any(longer):
            either = ([each, *(f'"{word}"' for word in more)] for each, more in zip(wanted, longer, strict=True))
            yield " AND ".join(f"({' OR '.join(each)})" for each in either)

    def _longer_in_turns(self, word: str) -> list[str]:
        """Return the longer words of questions and answers that contain a word, from the index alone."""
        part = searched_part(word)
        if not part:
            return []
        with sqlite_errors(self._database.path):
            self._database.connection.execute(
                "CREATE VIRTUAL TABLE IF NOT EXISTS temp.words_of_turns USING fts5vocab(main, turns_fts, row)"
            )
        rows = self._database.rows(
            "SELECT term FROM words_of_turns WHERE length(term) >= ? AND instr(term, ?) "
            "ORDER BY length(term), term LIMIT ?",
            [LONG, part, MOST_WORDS],
        )
        return [row["term"] for row in rows]

    def _words_of_documents(self, of: str, chosen: str | None) -> list[str]:
        rows = self._database.rows(f"SELECT words FROM long_words WHERE 1 {of}", {"documents": chosen})
        return [row["words"] for row in rows]

    def is_intact(self) -> bool:
        """Return whether the indexes agree with what they index; True if another process keeps them locked."""
        try:
            with self._database.transaction(derived=True) as db:
                for index in INDEXES:
                    db.execute(f"INSERT INTO {index}({index}, rank) VALUES ('integrity-check', 1)")
        except (StoreError, sqlite3.DatabaseError) as error:
            return isinstance(error, InUse)
        return True

    def rebuild(self) -> None:
        """Build the index of turns again from the turns; documents are indexed again by the next search."""
        with self._database.transaction() as db:
            for index in INDEXES:
                db.execute(f"INSERT INTO {index}({index}) VALUES ('rebuild')")
            db.execute("DELETE FROM pieces")
            db.execute("DELETE FROM long_words")
            db.execute("UPDATE documents SET searchable = 0")


def _check_limit(limit: int) -> None:
    if not 1 <= limit <= MOST_HITS:
        raise StoreError(f"A search finds 1 to {MOST_HITS:,} hits, not {limit}.")


def _page_hit(row: dict[str, Any]) -> PageHit:
    """Return the hit of a row: its words begin where the snippet stands in the piece, or at the first match."""
    snippet, highlights = _unmark(row["snippet"])
    text, matches = _unmark(row["whole"])
    at = max(0, text.find(snippet.strip("…")))
    near = [each for each in matches if each[0] >= at] or matches or [(0, 0)]
    ends = [end for start, end in near if end <= at + len(snippet)] or [near[0][1]]
    start = int(row["start"])
    return PageHit(row["document_id"], row["page"], start + near[0][0], start + ends[-1], snippet, highlights)


def _unmark(marked: str) -> tuple[str, list[tuple[int, int]]]:
    """Return plain text and the (start, end) of each marked part."""
    text, highlights, start = "", [], 0
    for letter in unspaced(marked):
        if letter == _OPEN:
            start = len(text)
        elif letter == _CLOSE:
            highlights.append((start, len(text)))
        else:
            text += letter
    return text, highlights
