"""Search: contexts and sessions by title, and turns by their words."""

import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from app.formatting import plural
from app.listing import method_in_short
from app.service import Service
from sessions import ContextRow, DocumentRow, SessionRow, TurnRow, shown_title

Called = TypeVar("Called", DocumentRow, ContextRow, SessionRow)


@dataclass(frozen=True)
class SearchHit:
    """A context or session with a matching title, or a turn with matching words.

    row: the context or session; for a turn, its session.
    context: the context itself, or the one that a session is over.
    turn: the matching turn, if it is one.
    snippet: part of the turn with the words.
    highlights: (start, end) offsets of the words in `snippet`.
    """

    row: ContextRow | SessionRow
    context: ContextRow
    turn: TurnRow | None = None
    snippet: str = ""
    highlights: list[tuple[int, int]] = field(default_factory=list)

    @property
    def lines(self) -> list[str]:
        """Lines to show below the title: the words, and the context."""
        how = method_in_short(self.context)
        if isinstance(self.row, ContextRow):
            return [f"{plural(self.row.tokens, 'token')} · {how}"]
        said = " ".join(self.snippet.split()) if self.turn else plural(self.row.turns, "question")
        return [said, f"{shown_title(self.context.title)} · {how}"]

    def to_json(self) -> dict[str, Any]:
        """Return it as plain data; session and turn are None if there is none."""
        session = self.row if isinstance(self.row, SessionRow) else None
        return {
            "context": self.context.id,
            "context_title": self.context.title,
            "session": session and session.id,
            "title": self.row.title,
            "turn": self.turn and self.turn.id,
            "snippet": self.snippet,
            "highlights": self.highlights,
            "question": self.turn and self.turn.question,
            "answer": self.turn and self.turn.answer,
            "sources": self.turn.sources if self.turn else [],
        }


def with_title_words(rows: Iterable[Called], query: str) -> list[Called]:
    """Return the rows whose title has every word of a query.

    Accents and case do not matter, and "words in quotes" are a phrase, as in the search of turns.
    """
    given = (_folded(phrase or word) for phrase, word in re.findall(r'"([^"]+)"|([^\s"]+)', query))
    wanted = [each for each in given if each]
    return [row for row in rows if wanted and all(each in _folded(row.title) for each in wanted)]


def _folded(text: str) -> str:
    letters = (each for each in unicodedata.normalize("NFKD", text) if not unicodedata.combining(each))
    return " ".join("".join(letters).casefold().split())


def search_home(service: Service, query: str, limit: int) -> list[SearchHit]:
    """Return contexts with a matching title, then sessions with one and no matching turn, then matching turns.

    Raises:
        sessions.StoreError: the limit is below 1 or above MOST_HITS.
    """
    contexts = {row.id: row for row in service.store.contexts.all()}
    said = [
        SearchHit(hit.session, contexts[hit.session.context_id], hit.turn, hit.snippet, hit.highlights)
        for hit in service.store.search.turns(query, limit)
        if hit.session.context_id in contexts  # missing if it is new
    ]
    named = (SearchHit(row, row) for row in with_title_words(contexts.values(), query))
    titled = with_title_words(service.store.sessions.all(), query)
    there = service.store.search.sessions(query, [row.id for row in titled])
    over = ((row, contexts.get(row.context_id)) for row in titled if row.id not in there)
    talks = (SearchHit(row, context) for row, context in over if context is not None)
    return [*named, *talks, *said][:limit]
