"""Actions that rename and delete."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from operator import itemgetter
from typing import Any

import gradio as gr

from app import deletion, listing
from app.formatting import byte_size
from app.jobs.uploads import discard, unread, useless
from app.language import t
from app.service import Service
from app.web.tab_state import Selection, TabState
from app.web.views.markup import esc

MOST_NAMED = 6
"""Documents that are named before they are deleted; others are counted."""

THE_ONE = {
    "document": "the document {titles}",
    "context": "the context {titles}",
    "session": "the session {titles}",
}
THE_DOCUMENTS = "the documents {titles}"
"""Several things are always documents."""


def asked(named: str, doomed: list[tuple[str, str]], size: int) -> list[Any]:
    """Return updates that ask whether things are really to be deleted.

    Args:
        named: the things in words.
        doomed: kind and id of each.
        size: bytes of disk that are freed.
    """
    frees = t("This cannot be undone.")
    if size:
        frees = t("This frees {size} and cannot be undone.", size=byte_size(size))
    text = f'<p role="alert">{t("Delete {things}?", things=esc(named))} {frees}</p>'
    return [gr.update(visible=True), gr.update(value=text), doomed]


def unasked() -> list[Any]:
    """Return updates that hide the question again."""
    return [gr.update(visible=False), gr.update(value=""), []]


class ManageActions:
    """The actions that rename and delete."""

    def __init__(self, service: Service, tab_state: TabState) -> None:
        """Keep the home and its tab states."""
        self.service, self.tab_state = service, tab_state

    def choose_renamed(self, selection: Selection, what: str | None) -> Selection:
        """Select the thing that gets another title."""
        return replace(selection, renamed=what or "")

    def rename(self, selection: Selection, what: str | None, title: str | None) -> Selection:
        """Give the session, the context or a document another title."""
        listing.rename(self.service, *listing.find(self.service, what or ""), title or "")
        return selection

    def ask_to_delete(self, kind: str, selection: Selection) -> tuple[Selection, list[Any]]:
        """Ask whether things are really to be deleted."""
        one, rows = kind.removesuffix("s"), self._to_delete(kind, selection)
        size = deletion.bytes_to_free(self.service, one, *rows)
        return selection, asked(self._named(one, rows), [(one, row.id) for row in rows], size)

    def ask_to_remove(self, kind: str, selection: Selection) -> tuple[Selection, list[Any]]:
        """Ask whether a stopped reading, or a failed upload with documents, is really to be deleted.

        An upload without documents is deleted at once.

        Args:
            kind: "context", or "documents" to delete also the documents that nothing else uses.
            selection: the tab's selection.
        """
        if selection.context.startswith("j-"):
            job = self.service.store.jobs.get(selection.context)
            if rows := unread(self.service, job.progress.get("documents", []), job):
                size = deletion.bytes_to_free(self.service, "document", *rows)
                return selection, asked(self._named("document", rows), [("upload", job.id)], size)
            discard(self.service, job)
            return Selection(), unasked()
        context = self.service.store.contexts.get(selection.context)
        named = self._named("context", [context])
        if kind == "documents" and (rows := deletion.own_documents(self.service, context)):
            named = t("{first} and {last}", first=named, last=self._named("document", rows, also=False))
            return selection, asked(
                named, [("reading", context.id)], deletion.bytes_to_free(self.service, "document", *rows)
            )
        return selection, asked(
            named, [("context", context.id)], deletion.bytes_to_free(self.service, "context", context)
        )

    def remove_failed(self, selection: Selection) -> Selection:
        """Remove all uploads that failed for good."""
        for job in useless(self.service):
            discard(self.service, job)
        return selection

    def _named(self, kind: str, rows: Sequence[Any], also: bool = True) -> str:
        """Return things of a kind by their titles. also: whether to add the things deleted with them."""
        titles = listing.joined([f"“{row.title}”" for row in rows], MOST_NAMED)
        further = deletion.deleted_with(self.service, kind, *rows) if also else ""
        return t(THE_ONE[kind] if len(rows) == 1 else THE_DOCUMENTS, titles=titles) + further

    def _to_delete(self, kind: str, selection: Selection) -> list[Any]:
        store = self.service.store
        if kind == "session":
            return [store.sessions.get(selection.session)]
        if kind == "context":
            return [store.contexts.get(selection.context)]
        if selection.context:
            return store.contexts.documents(selection.context)
        return store.documents.existing(selection.kept)

    def delete(self, selection: Selection, named: list[tuple[str, str]]) -> tuple[Selection, list[Any]]:
        """Delete the things that were asked about, whatever was selected since."""
        for kind, things in groupby(named, itemgetter(0)):
            ids = [id for _, id in things]
            if kind == "upload":
                discard(self.service, self.service.store.jobs.get(*ids))
            elif kind == "reading":  # with the documents that nothing else uses by now
                context = self.service.store.contexts.get(*ids)
                documents = deletion.own_documents(self.service, context)
                deletion.delete(self.service, "context", context)
                if documents:
                    deletion.delete(self.service, "document", *documents)
            else:
                deletion.delete(self.service, kind, *(listing.find(self.service, id, (kind,))[1] for id in ids))
        return self.tab_state.settle(selection), unasked()
