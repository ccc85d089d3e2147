"""Actions that choose what a tab shows: open it, choose from the lists, search."""

import html
from collections.abc import Mapping
from dataclasses import replace
from itertools import count
from typing import Any

import gradio as gr

from app.language import place_words, t
from app.search import Passage, search_documents, search_home
from app.service import Service
from app.web.chat_props import first_shown
from app.web.list_props import number_before
from app.web.tab_state import ADDRESSED, Selection, TabState
from app.web.views.book import found
from app.web.views.markup import place_after
from sessions import MOST_HITS, shown_title

MOST_FOUND = 12
"""Most contexts and sessions that a search lists."""
MOST_PASSAGES = 30
"""Most passages of the open documents that a search lists."""
MOST_BESIDE = 8
"""Most passages of all documents that are listed behind the chats."""


class Navigation:
    """The actions that choose what a tab shows."""

    def __init__(self, service: Service, tab_state: TabState) -> None:
        """Keep the home and its tab states."""
        self.service, self.tab_state = service, tab_state

    def load(self, query: Mapping[str, str]) -> Selection:
        """Select what the address of a new or reloaded tab says."""
        context, session, add_to, along = (query.get(name, "") for name in ADDRESSED)
        asked = Selection(context, session, add_to=add_to, along=along)
        known = asked != Selection() or "new" in query
        return asked if known else self.tab_state.first_choice()

    def choose_context(self, selection: Selection, context: str | None) -> Selection:
        """Select a context of the list."""
        return self.tab_state.settle(Selection(context or ""))

    def choose_session(self, selection: Selection, session: str | None) -> Selection:
        """Select a session of the list."""
        return self.tab_state.settle(Selection(selection.context, session or ""))

    def choose_hit(self, selection: Selection, found: str | None) -> tuple[Selection, list[Any]]:
        """Select a context, session, turn or passage that was found.

        The list of hits then marks none, so that it can be chosen again.
        """
        unmarked = [gr.update(value=None)]
        if found and " " in found:
            context, page = found.split(" ")
            over = self.choose_context(selection, context) if context != selection.context else selection
            return replace(over if context else selection, found=page), unmarked
        if found and found.startswith("t-"):
            turn = self.service.store.turns.get(found)
            session = self.service.store.sessions.get(turn.session_id)
            hidden = (unrolled for unrolled in count() if first_shown(session, unrolled) <= turn.position)
            return Selection(session.context_id, session.id, found=turn.id, unrolled=next(hidden)), unmarked
        choose = self.choose_context if found and found.startswith("c-") else self.choose_session
        return choose(selection, found), unmarked

    def search_text(self, selection: Selection, query: str | None) -> tuple[Selection, list[Any]]:
        """List the passages of the open documents that have the words of a query."""
        if not query or not query.strip() or not selection.context or selection.context.startswith("j-"):
            return selection, [gr.update(value="")]
        context = self.service.store.contexts.get(selection.context)
        passages = search_documents(self.service, query, MOST_PASSAGES, context.document_ids, context)
        return selection, [gr.update(value=found(passages, len(context.document_ids) > 1))]

    def list_more(self, selection: Selection) -> Selection:
        """Show more items in all lists."""
        return replace(selection, listed=selection.listed + 1)

    def search(self, query: str | None) -> list[Any]:
        """List contexts and sessions by title, sessions by their turns, then passages of documents.

        The list is hidden while the query is empty.
        """
        if not query or not query.strip():
            return [gr.update(choices=[], value=None, visible=False)]
        choices: dict[str, tuple[str, str]] = {}
        for hit in search_home(self.service, query, MOST_HITS):  # one session may have many hits
            name = f"{hit.row.title}\n{number_before(hit.row.title)}" + "\n".join(hit.lines)
            choices.setdefault(hit.row.id, (name, hit.turn.id if hit.turn else hit.row.id))
        found = list(choices.values())[:MOST_FOUND]
        found += [_passage(each) for each in search_documents(self.service, query, MOST_BESIDE)]
        label = t("Found") if found else t("Nothing found")
        return [gr.update(choices=found, value=None, label=label, visible=True)]


def _passage(found: Passage) -> tuple[str, str]:
    """Return a passage for the list of hits, and the context and page that it leads to."""
    page = f"documents/{found.document}/pages/{found.page}{place_after(found.start, found.end)}"
    name = f"{place_words(found.place)} · {shown_title(found.title)}\n{' '.join(found.snippet.split())}"
    return name, f"{found.context.id if found.context else ''} {html.unescape(page)}"
