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
    """What was searched for: a context or a session that is called so, or a turn that says it, and its session.

    context: that is called so, or that it was said over; `highlights` are (start, end) offsets of the matching words in
    `snippet`.
    """

    row: ContextRow | SessionRow
    context: ContextRow
    turn: TurnRow | None = None
    snippet: str = ""
    highlights: list[tuple[int, int]] = field(default_factory=list)

    @property
    def lines(self) -> list[str]:
        """What is shown below the title: what was said, and over which context."""
        how = method_in_short(self.context)
        if isinstance(self.row, ContextRow):
            return [f"{plural(self.row.tokens, 'token')} · {how}"]
        said = " ".join(self.snippet.split()) if self.turn else plural(self.row.turns, "question")
        return [said, f"{shown_title(self.context.title)} · {how}"]

    def to_json(self) -> dict[str, Any]:
        """A plain object; a context that was found has no session, and what is called so no turn."""
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
    """Those whose title has every word of a query, which is taken as in a search of what was said: neither accents nor
    case matter, and "words in quotes" are a phrase.
    """
    given = (_folded(phrase or word) for phrase, word in re.findall(r'"([^"]+)"|([^\s"]+)', query))
    wanted = [each for each in given if each]
    return [row for row in rows if wanted and all(each in _folded(row.title) for each in wanted)]


def _folded(text: str) -> str:
    letters = (each for each in unicodedata.normalize("NFKD", text) if not unicodedata.combining(each))
    return " ".join("".join(letters).casefold().split())


def search_home(service: Service, query: str, limit: int) -> list[SearchHit]:
    """The contexts that are called so, the sessions that are, unless it was also said there, and the turns that say it.

    Raises:
        sessions.StoreError: a limit below 1 or above MOST_HITS.
    """
    contexts = {row.id: row for row in service.store.contexts()}
    said = [
        SearchHit(hit.session, contexts[hit.session.context_id], hit.turn, hit.snippet, hit.highlights)
        for hit in service.store.search(query, limit)
        if hit.session.context_id in contexts  # else it is new
    ]
    named = (SearchHit(row, row) for row in with_title_words(contexts.values(), query))
    titled = with_title_words(service.store.sessions(), query)
    there = service.store.saying(query, [row.id for row in titled])
    over = ((row, contexts.get(row.context_id)) for row in titled if row.id not in there)
    talks = (SearchHit(row, context) for row, context in over if context is not None)
    return [*named, *talks, *said][:limit]
