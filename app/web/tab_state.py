"""The state of one tab: it depends only on the store and on the tab's selection.

`props` returns what every changing component shows now; `Events.updates` sends the differences. So any event and
any reload ends in the same picture.
"""

from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlencode

from app import deletion, listing
from app.asking.introduction import can_introduce
from app.asking.place import place_in, place_of
from app.asking.recap import Part, known_recap
from app.errors import AppError, phrase
from app.jobs.job_runner import READ
from app.jobs.linked_folders import linked
from app.jobs.model_fetcher import last_fetch
from app.jobs.sweeps import SWEEP, quiz_of, title_of
from app.jobs.uploads import INGEST, is_locked, name_of, names_in
from app.language import t
from app.reading.memory_map import load_map
from app.reading.open_context import has_begun
from app.reading.preparing import can_grow
from app.service import Service
from app.web.chat_props import ChatProps, first_shown
from app.web.list_props import ListProps, Props, share_read
from app.web.metrics import MetricsReader
from app.web.model_field import fetch_line
from app.web.outline import Outlines, cells
from app.web.views.book import Book, book, no_book, recap
from app.web.views.linked_folders import linked_line
from app.web.views.markup import esc, told_html
from app.web.views.metrics_panel import Metrics, gauge_label, kept, panel
from app.web.views.reading_card import ingest_card, reading_card
from app.web.views.sweep import self_test, table
from app.web.views.turn import edit_line
from sessions import RECAP, UNDER_WAY, ContextRow, JobRow, NotFound, SessionRow, StoreError, TurnRow

ADDRESSED = ("context", "session", "add_to", "along")
"""Fields of the selection that the page's address contains."""
GONE = "What this page showed is not here any more: it was deleted."


@dataclass(frozen=True)
class Selection:
    """The selection of a tab; all fields may be empty.

    context: id of a context, or of the job that will make one, or of one that fills a table.
    session: id of a session.
    edited: id of the turn whose question is being edited.
    kept: ids of documents to be read again.
    add_to: id of the context that documents are added to.
    along: id of the session that then goes on.
    renamed: id of the thing that gets another title.
    found: id of the turn that was searched for, or the address of a page.
    unrolled: how often earlier turns of the session were asked for.
    listed: how often longer lists were asked for; it stays with any selection.
    """

    context: str = ""
    session: str = ""
    edited: str = ""
    kept: tuple[str, ...] = ()
    add_to: str = ""
    along: str = ""
    renamed: str = ""
    found: str = ""
    unrolled: int = 0
    listed: int = 0

    @property
    def query(self) -> str:
        """The query of the page's address, without an edited question and new documents."""
        given = {name: getattr(self, name) for name in ADDRESSED if getattr(self, name)}
        return f"?{urlencode(given or {'new': 1})}"


class TabState:
    """Makes the props of tabs."""

    def __init__(self, service: Service) -> None:
        """Keep the home that is shown."""
        self.service = service
        self.store = service.store
        self.metrics_reader = MetricsReader(service)
        self.lists, self.chat = ListProps(service), ChatProps(service)
        self._outlines = Outlines(service)

    def settle(self, selection: Selection) -> Selection:
        """Return the selection, or the nearest one to it that still exists."""
        try:
            if selection.session:
                return replace(selection, context=self.store.sessions.get(selection.session).context_id)
            if selection.context.startswith("j-"):
                job = self.store.jobs.get(selection.context)
                if job.status == "failed" and job.progress.get("dismissed"):
                    return Selection()
                made = job.progress.get("context")
                return self.settle(Selection(made)) if made else selection
            if selection.context:
                ready = self.store.contexts.get(selection.context).status == "ready"
                sessions = self.store.sessions.all(selection.context, most=1, begun=True) if ready else []
                return replace(selection, session=sessions[0].id if sessions else "")
        except NotFound:
            return self.settle(Selection(selection.context)) if selection.session and selection.context else Selection()
        return replace(selection, **self._still_to_add(selection))

    def _still_to_add(self, selection: Selection) -> dict[str, Any]:
        """Return the chosen documents and the context to add them to, as far as they still exist."""
        kept, base, along = self.store.documents.existing(selection.kept), None, None
        with suppress(NotFound):
            base = self.store.contexts.get(selection.add_to) if selection.add_to else None
            along = self.store.sessions.get(selection.along) if selection.along else None
        grows, read = base is not None and can_grow(base), base.document_ids if base else []
        goes_along = along is not None and base is not None and along.context_id == base.id
        return {
            "kept": tuple(row.id for row in kept if row.id not in read),
            "add_to": selection.add_to if grows else "",
            "along": selection.along if grows and goes_along else "",
        }

    def lost(self, before: Selection, now: Selection, shown: bool = True) -> str:
        """Return a sentence if `settle` found that something selected is gone; an upload that became a context is not.

        Args:
            before: the selection before `settle`.
            now: the selection after it.
            shown: whether the page showed it before; otherwise an address named it.
        """
        missing = ""
        if before.session and before.session != now.session:
            missing = f"session {before.session}"
        elif before.add_to and not now.add_to:
            missing = f"context {before.add_to} that can be added to"
        elif before.context and not before.context.startswith("j-") and before.context != now.context:
            missing = f"context {before.context}"
        return missing and (GONE if shown else f"There is no {missing}: it may have been deleted.")

    def first_choice(self) -> Selection:
        """Return the selection for a person who comes back: the session used last, or the present upload."""
        if sessions := self.store.sessions.all(most=1, begun=True):
            return Selection(sessions[0].context_id, sessions[0].id)
        jobs = [job for job in self.store.jobs.all(status="running") if job.kind == INGEST]
        if jobs:
            return Selection(jobs[-1].id)
        contexts = self.store.contexts.all(most=1)
        return Selection(contexts[0].id) if contexts else Selection()

    def props(self, selection: Selection) -> Props:
        """Return the props of every changing component."""
        job, context, session, turns = self._look_up(selection)
        hidden = turns[0].position if turns else 0
        answering = [turn for turn in turns if turn.status == "answering"]
        edited = self._edited(selection)
        begun = context is not None and has_begun(self.service, context)
        new = job is None and context is None
        job, swept = (None, job) if job and job.kind == SWEEP else (job, None)
        talking = context is not None and (context.status == "ready" or (begun and session is not None))
        return {
            "where": {"value": _where(selection, edited, turns, passes=job is not None)},
            **self.lists.contexts(selection),
            "remove_failed": self.lists.remove_failed(),
            "session_area": {"visible": begun},
            **self.lists.sessions(selection if begun else Selection()),
            "new_view": {"visible": new},
            "linked": {"value": linked_line(linked(self.service)) if new else ""},
            **self._fetch_props(),
            **self.lists.kept(selection),
            **self.lists.add_to(selection, context),
            "reading_view": {"visible": job is not None or (context is not None and not talking)},
            "chat_view": {"visible": talking},
            "sweep_view": {"visible": swept is not None},
            "sweep": {"value": self._swept(swept) if swept else ""},
            **self._reading_props(job, context),
            **self.chat.props(context if talking else None, session, turns, answering),
            **self._rename_props(selection, context, session),
            "unroll": {
                "visible": bool(hidden),
                "value": t("Show earlier questions ({n})", n=hidden) if hidden else "",
            },
            "ask": {"visible": edited is not None or not answering},
            "edit_area": {"visible": edited is not None},
            "edit_line": {"value": edit_line(edited) if edited else ""},
            **self._document_props(context, turns),
            **_metrics_props(self.metrics_reader.read(context, session)),
            "stream": {"active": bool(answering)},
        }

    def _fetch_props(self) -> Props:
        """Return the props of the model that is being fetched."""
        job = last_fetch(self.service)
        active = job is not None and job.status in UNDER_WAY
        done = job.id if job is not None and job.status == "done" else ""
        return {
            "fetching": {"value": fetch_line(job)},
            "fetched": {"value": f'<i data-job="{esc(done)}"></i>'},
            "get": {"visible": not active},
            "stop_fetching": {"visible": active},
        }

    def _edited(self, selection: Selection) -> TurnRow | None:
        with suppress(NotFound):  # deleted meanwhile
            return self.store.turns.get(selection.edited) if selection.edited else None
        return None

    def _look_up(
        self, selection: Selection
    ) -> tuple[JobRow | None, ContextRow | None, SessionRow | None, list[TurnRow]]:
        job = self.store.jobs.get(selection.context) if selection.context.startswith("j-") else None
        context = self.store.contexts.get(selection.context) if selection.context and job is None else None
        session = self.store.sessions.get(selection.session) if selection.session else None
        turns = self.store.turns.all(session.id, first_shown(session, selection.unrolled)) if session else []
        return job, context, session, turns

    def _reading_props(self, job: JobRow | None, context: ContextRow | None) -> Props:
        card, cancel, resume, discard, locked, others, own, early = "", *[False] * 7
        if job is not None:
            active = job.status in UNDER_WAY
            kept = self.store.documents.existing(job.progress.get("documents", []))
            card = ingest_card(job, name_of(self.service, job), len(kept), names_in(self.service, job))
            cancel, discard = active and not job.cancel_requested, not active
            locked = is_locked(self.service, job)
            others = locked and bool(job.progress.get("documents"))
        elif context is not None and context.status != "ready":
            work = self.store.jobs.work_on(context.id, READ)
            progress = work.progress if work else {}
            card = reading_card(context, self.store.contexts.documents(context.id), work, progress)
            cancel = work is not None and not work.cancel_requested
            resume = context.status in ("paused", "failed", "cancelled")
            discard, own = resume, resume and bool(deletion.own_documents(self.service, context))
            early = has_begun(self.service, context)
        return {
            "card": {"value": card},
            "unlock_area": {"visible": locked},
            "leave_out": {"visible": others},
            "cancel": {"visible": cancel},
            "resume": {"visible": resume},
            "ask_early": {"visible": early},
            "discard": {"visible": discard},
            "discard_documents": {"visible": own},
        }

    def _swept(self, job: JobRow) -> str:
        """Return a table over documents as far as it is filled."""
        try:
            found = self.chat.found_by(job)
        except (AppError, StoreError) as error:  # a document was deleted: its address may be known still
            return table(job, title_of(job), None) + f"<p>{told_html(phrase(error))}</p>"
        return table(job, title_of(job), found)

    def _document_props(self, context: ContextRow | None, turns: list[TurnRow]) -> Props:
        """Return the props of the document: its map, its contents and the search in it."""
        if context is None:
            return {"find_area": {"visible": False}, "book": {"value": no_book()}}
        documents, outlines = self.store.contexts.documents(context.id), {}
        for row in documents:
            with suppress(StoreError, ValueError):  # its text is missing or altered, which the conversation says
                outlines[row.id] = self._outlines.of(row.id)
        remembered = load_map(self.store, context.id)
        places = {row.id: place_in(self.service, row.id) for row in documents}
        drawn = cells([*outlines.items()], remembered)
        answered = [turn for turn in turns if turn.status == "done"]
        looked = answered[-1].sources if answered and answered[-1].measurements.get("found", True) else []
        return {
            "find_area": {"visible": bool(outlines)},
            "book": {
                "value": book(
                    Book(documents, outlines, drawn, remembered, looked, share_read(self.store, context), places)
                )
                + self._recap(context)
                + self._test(context)
            },
        }

    def _recap(self, context: ContextRow) -> str:
        """Return the recap up to the reader's place, as far as it is made."""
        jobs = self.store.jobs.all(subject_id=context.id, kind=RECAP)
        if not can_introduce(context.model) or not has_begun(self.service, context):
            return ""
        parts = list[Part]()
        with suppress(StoreError):  # the conversation says what is damaged
            if jobs:
                parts = known_recap(self.service, context, place_of(self.service, context))
        return recap(parts, jobs[-1] if jobs else None)

    def _test(self, context: ContextRow) -> str:
        """Return the self-test of a context, or the button that begins one."""
        if context.status != "ready" or not can_introduce(context.model):
            return ""
        job, found = quiz_of(self.service, context.id), None
        with suppress(StoreError):  # the conversation says what is damaged
            found = self.chat.found_by(job) if job else None
        return self_test(job, found)

    def _rename_props(self, selection: Selection, context: ContextRow | None, session: SessionRow | None) -> Props:
        named: list[tuple[str, listing.Titled]] = []
        if session is not None:
            named.append((t("this chat"), session))
        if context is not None:
            named.append((t("what was read"), context))
            documents = self.store.contexts.documents(context.id)
            named += [(t("the document “{title}”", title=row.title), row) for row in documents]
        what = next((row for _, row in named if row.id == selection.renamed), named[0][1] if named else None)
        return {
            "rename_what": {"choices": [(name, row.id) for name, row in named], "value": what.id if what else None},
            "rename_to": {"value": what.title if what else ""},
        }


def _metrics_props(metrics: Metrics) -> Props:
    """Return the props of the gauge, apart by how often they change."""
    return {
        "gauge": {"label": gauge_label(metrics)},
        "kept_memory": {"value": kept(metrics)},
        "panel": {"value": panel(metrics)},
    }


def _where(selection: Selection, edited: TurnRow | None, turns: list[TurnRow], passes: bool) -> str:
    """Return facts for the page's script (assets/page.js), as HTML.

    These are the address and whether it passes, as an upload does, the place of the question field and its first
    content, the last question with its turn, and what was searched for.
    """
    place = edited.id if edited else selection.session or selection.context
    question, pages = (edited.question, edited.pages) if edited else ("", "")
    asked, said = (turns[-1].id, turns[-1].question) if turns else ("", "")
    return (
        f'<i data-query="{esc(selection.query)}" data-passes="{"yes" if passes else ""}" data-place="{esc(place)}" '
        f'data-question="{esc(question)}" data-pages="{esc(pages)}" '
        f'data-asked="{esc(asked)}" data-said="{esc(said)}" data-found="{esc(selection.found)}"></i>'
    )
