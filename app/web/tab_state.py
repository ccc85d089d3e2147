"""What one tab shows: a function of the store and of what is chosen in that tab, and nothing else.

`props` says what every changing component should show now; `Events.updates` sends only what differs from what was sent
before. So any event, any tick and any reload ends in the same picture, however often it happens.
"""

from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlencode

from app import listing
from app.asking.named_pages import pages_in_words
from app.errors import phrase
from app.formatting import plural, shorten
from app.jobs.job_runner import READ
from app.jobs.uploads import INGEST, WAITING, is_listed, is_locked, name_of, names_in
from app.jobs.worker import ANSWER
from app.machine.recommended import good_for
from app.reading.open_context import has_begun
from app.reading.preparing import can_grow
from app.service import Service
from app.web.metrics import MetricsReader
from app.web.new_reading import OF_ITS_OWN
from app.web.views.markup import day, esc
from app.web.views.metrics_panel import Metrics, kept, map_of, panel
from app.web.views.reading_card import context_head, ingest_card, reading_card
from app.web.views.turn import conversation, edit_line, live_turn
from sessions import UNDER_WAY, ContextRow, JobRow, NotFound, SessionRow, StoreError, TurnRow, number_of

Props = dict[str, dict[str, Any]]
AT_ONCE = 20
"""Of finished turns at most this many are sent anew with each answer: those before them change once in so many."""
MOST_QUOTED = 60
"""Characters of a question that another waits for."""
LISTED = 50
"""Of each list those that are shown at first, the latest, beside what is chosen: contexts, sessions of one, documents
that are kept, and contexts that these can be added to."""
MORE = 5
"""Times AT_ONCE turns more are shown whenever earlier ones are asked for, and times LISTED of a list."""
EMPTY = "It has been read. Ask about any of it."
EMPTY_YET = "Ask about what has been read so far."
CAN_GO_ON = "Choose what has been read already, to go on behind its end."
GOES_ON = "This is read behind its end, with its method and model. Nothing of it is read again, and it stays as it is."
GOES_ON_ALONG = f"{GOES_ON} The conversation goes along."
ROOM = 28
"""Letters of a title that a list of the page surely has room for."""
ADDRESSED = ("context", "session", "add_to", "along")
"""Of what is chosen in a tab, what its address says."""
GONE = "What this page showed is not here any more: it was deleted."


@dataclass(frozen=True)
class Selection:
    """What a tab has chosen; all may be empty.

    context: id of a context, or of the job that will make one; edited: of the turn whose question is being edited;
    kept: of documents that are to be read again; add_to: of the context that documents are to be added to; along: of
    the session that then goes on; renamed: of what gets another title; found: of the turn that was searched for;
    unrolled: how often earlier turns of the session have been asked for; listed: how often more of the lists have been,
    which stays whatever is chosen.
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
        """As the address of the page says it: without what is being edited, and what is yet to be read."""
        given = {name: getattr(self, name) for name in ADDRESSED if getattr(self, name)}
        return f"?{urlencode(given or {'new': 1})}"


class TabState:
    """Makes props for tabs."""

    def __init__(self, service: Service) -> None:
        """service: the home that is shown."""
        self.service = service
        self.store = service.store
        self.metrics_reader = MetricsReader(service)
        self._coverages: dict[str, str] = {}  # of documents, which never change

    def settle(self, selection: Selection) -> Selection:
        """The nearest thing to what was chosen that is there now."""
        try:
            if selection.session:
                return replace(selection, context=self.store.session(selection.session).context_id)
            if selection.context.startswith("j-"):
                job = self.store.job(selection.context)
                if job.status == "failed" and job.progress.get("dismissed"):
                    return Selection()
                made = job.progress.get("context")
                return self.settle(Selection(made)) if made else selection
            if selection.context:
                ready = self.store.context(selection.context).status == "ready"
                sessions = self.store.sessions(selection.context) if ready else []
                return replace(selection, session=sessions[0].id if sessions else "")
        except NotFound:
            return self.settle(Selection(selection.context)) if selection.session and selection.context else Selection()
        return replace(selection, **self._still_to_add(selection))

    def _still_to_add(self, selection: Selection) -> dict[str, Any]:
        """What is chosen of documents that are kept, and what they are to be added to, as far as it is there."""
        kept, base, along = self.store.documents(selection.kept), None, None
        with suppress(NotFound):
            base = self.store.context(selection.add_to) if selection.add_to else None
            along = self.store.session(selection.along) if selection.along else None
        grows, read = base is not None and can_grow(base), base.document_ids if base else []
        goes_along = along is not None and base is not None and along.context_id == base.id
        return {
            "kept": tuple(row.id for row in kept if row.id not in read),
            "add_to": selection.add_to if grows else "",
            "along": selection.along if grows and goes_along else "",
        }

    def lost(self, before: Selection, now: Selection, shown: bool = True) -> str:
        """A sentence where `settle` found that what was chosen is not there; an upload that became a context is.

        shown: the page showed it before; else an address named it.
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
        """Where a person who comes back finds themselves: the session used last, or what is being read."""
        if sessions := self.store.sessions():
            return Selection(sessions[0].context_id, sessions[0].id)
        jobs = [job for job in self.store.jobs(status="running") if job.kind == INGEST]
        if jobs:
            return Selection(jobs[-1].id)
        contexts = self.store.contexts()
        return Selection(contexts[0].id) if contexts else Selection()

    def props(self, selection: Selection) -> Props:
        """What every changing component shows."""
        job, context, session, turns = self._look_up(selection)
        contexts = self.store.contexts()
        hidden = turns[0].position if turns else 0
        answering = [turn for turn in turns if turn.status == "answering"]
        edited = self._edited(selection)
        begun = context is not None and has_begun(self.service, context)
        talking = context is not None and (context.status == "ready" or (begun and session is not None))
        return {
            "where": {"value": _where(selection, edited, turns)},
            **_list_props(
                "contexts", "contexts", self._context_choices(contexts), selection.context or None, selection.listed
            ),
            "session_area": {"visible": begun},
            **_list_props(
                "sessions",
                "sessions",
                self._session_choices(context) if begun and context else [],
                selection.session or None,
                selection.listed,
            ),
            "new_view": {"visible": job is None and context is None},
            **self._kept_props(selection),
            **self._add_to_props(selection, context, contexts),
            "reading_view": {"visible": job is not None or (context is not None and not talking)},
            "chat_view": {"visible": talking},
            **self._reading_props(job, context),
            **self._chat_props(context if talking else None, session, turns, answering),
            **self._rename_props(selection, context, session),
            "unroll": {
                "visible": bool(hidden),
                "value": f"Show earlier questions ({hidden:,})" if hidden else "",
            },
            "ask": {"visible": edited is not None or not answering},
            "edit_area": {"visible": edited is not None},
            "edit_line": {"value": edit_line(edited) if edited else ""},
            **_metrics_props(self.metrics_reader.read(context, session)),
            "stream": {"active": bool(answering)},
        }

    def _edited(self, selection: Selection) -> TurnRow | None:
        with suppress(NotFound):  # deleted meanwhile
            return self.store.turn(selection.edited) if selection.edited else None
        return None

    def _look_up(
        self, selection: Selection
    ) -> tuple[JobRow | None, ContextRow | None, SessionRow | None, list[TurnRow]]:
        job = self.store.job(selection.context) if selection.context.startswith("j-") else None
        context = self.store.context(selection.context) if selection.context and job is None else None
        session = self.store.session(selection.session) if selection.session else None
        turns = self.store.turns(session.id, first_shown(session, selection.unrolled)) if session else []
        return job, context, session, turns

    def _context_choices(self, contexts: list[ContextRow]) -> list[tuple[str, str]]:
        """What is under way comes first, then what there is and what failed, the last that was used or made first."""
        used, found = self.store.last_used(), []
        states = ("queued", "running", "failed")
        jobs = (job for status in states for job in self.store.jobs(kind=INGEST, status=status))
        for job in {job.id: job for job in jobs}.values():  # one may be claimed between two looks
            if not is_listed(self.service, job):
                continue
            running = "waiting" if job.stage == WAITING else "opening"
            words = {"queued": "waiting", "running": running, "failed": "could not be read"}
            state = "needs a password" if is_locked(self.service, job) else words[job.status]
            name = f"{name_of(self.service, job)}\n{state}"
            found.append((job.status in UNDER_WAY, job.created_at, (name, job.id)))
        for context in contexts:
            name = f"{context.title}\n{_state_of(context, self._percent(context))}"
            found.append((False, max(context.created_at, used.get(context.id, 0.0)), (name, context.id)))
        return [choice for *_, choice in sorted(found, reverse=True)]

    def _kept_props(self, selection: Selection) -> Props:
        read = self.store.context(selection.add_to).document_ids if selection.add_to else []
        kept = [
            (f"{row.title} · {plural(row.characters, 'character')}", row.id)
            for row in self.store.documents()
            if row.id not in read
        ]
        return {
            "kept_area": {"visible": bool(kept)},
            **_list_props("kept", "documents", kept, list(selection.kept), selection.listed),
            "delete_kept": {"interactive": bool(selection.kept)},
        }

    def _add_to_props(self, selection: Selection, context: ContextRow | None, contexts: list[ContextRow]) -> Props:
        able = [] if selection.context else [row for row in contexts if can_grow(row)]
        choices = [(f"{row.title} · {_state_of(row, 1.0)}", row.id) for row in able]
        listed = _list_props("add_to", "contexts", choices, selection.add_to, selection.listed)
        alone = {"visible": not selection.add_to}
        return {
            **listed,
            "add_to": {
                "choices": [(OF_ITS_OWN, ""), *listed["add_to"]["choices"]],
                "value": selection.add_to,
                "visible": bool(able),
                "info": GOES_ON_ALONG if selection.along else GOES_ON if selection.add_to else CAN_GO_ON,
            },
            "how": alone,
            "more_how": alone,
            "estimate": alone,
            "add_documents": {"visible": context is not None and can_grow(context)},
        }

    def _percent(self, context: ContextRow) -> float:
        work = self.store.work_on(context.id) if context.status == "reading" else None
        done = max(context.tokens_read, work.done if work else 0)
        return done / context.tokens if context.tokens else 0.0

    def _session_choices(self, context: ContextRow) -> list[tuple[str, str]]:
        return [
            (
                f"{row.title}\n{number_before(row.title)}{plural(row.turns, 'question')} · {day(row.updated_at)}",
                row.id,
            )
            for row in self.store.sessions(context.id)
        ]

    def _reading_props(self, job: JobRow | None, context: ContextRow | None) -> Props:
        card, cancel, resume, discard, locked, others, own, early = "", *[False] * 7
        if job is not None:
            active = job.status in UNDER_WAY
            kept = self.store.documents(job.progress.get("documents", []))
            card = ingest_card(job, name_of(self.service, job), len(kept), names_in(self.service, job))
            cancel, discard = active and not job.cancel_requested, not active
            locked = is_locked(self.service, job)
            others = locked and bool(job.progress.get("documents"))
        elif context is not None and context.status != "ready":
            work = self.store.work_on(context.id, READ)
            progress = work.progress if work else {}
            card = reading_card(context, self.store.context_documents(context.id), work, progress)
            cancel = work is not None and not work.cancel_requested
            resume = context.status in ("paused", "failed", "cancelled")
            discard, own = resume, resume and bool(listing.own_documents(self.service, context))
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

    def _chat_props(
        self, context: ContextRow | None, session: SessionRow | None, turns: list[TurnRow], answering: list[TurnRow]
    ) -> Props:
        head, earlier, past = "", "", ""
        if context is not None:
            documents = self.store.context_documents(context.id)
            lines = [self._coverage(document.id) for document in documents]
            if [document.title for document in documents] != [context.title]:
                lines = [f"{document.title}: {line}" for document, line in zip(documents, lines, strict=True)]
            head = context_head(context, documents, lines, self._percent(context), expanded=not turns)
            titles = {document.id: document.title for document in documents}
            finished = [turn for turn in turns if turn.status != "answering"]
            apart = max(0, len(finished) - 1) // AT_ONCE * AT_ONCE
            earlier = conversation(finished[:apart], titles)
            past = conversation(finished[apart:], titles, last=True) if turns else _empty(context)
        return {
            "head": {"value": head},
            "earlier": {"value": earlier},
            "past": {"value": past},
            "live": {"value": self.live_turn_value(context, answering)},
            "stop": {"visible": bool(answering)},
            "export": {"value": _export_links(session) if session and turns else ""},
            "delete_session": {"visible": session is not None},
        }

    def _rename_props(self, selection: Selection, context: ContextRow | None, session: SessionRow | None) -> Props:
        named: list[tuple[str, listing.Titled]] = []
        if session is not None:
            named.append(("this session", session))
        if context is not None:
            named.append(("this context", context))
            named += [(f"the document “{row.title}”", row) for row in self.store.context_documents(context.id)]
        what = next((row for _, row in named if row.id == selection.renamed), named[0][1] if named else None)
        return {
            "rename_what": {"choices": [(name, row.id) for name, row in named], "value": what.id if what else None},
            "rename_to": {"value": what.title if what else ""},
        }

    def live_turn_value(self, context: ContextRow | None, answering: list[TurnRow]) -> str:
        """The turns that are being answered."""
        if context is None:
            return ""
        return "".join(
            live_turn(turn, self._stage(context, turn) if turn is answering[0] else "Waiting for its turn")
            for turn in answering
        )

    def _stage(self, context: ContextRow, turn: TurnRow) -> str:
        """What happens before the first word of an answer."""
        work = self.store.work_on(turn.id)
        if work and work.status == "queued":
            return self._waits_for()
        if context.id not in self.service.contexts and not self.service.read_here(context.id):
            return "Opening the context"
        if work and work.stage:
            return work.stage
        return f"Turning to {pages_in_words(turn.pages)}" if turn.pages else "Thinking"

    def _waits_for(self) -> str:
        """What has to be over before a question is answered: another answer, which may be somebody else's."""
        for job in self.store.jobs(status="running", kind=ANSWER):
            with suppress(NotFound):  # deleted meanwhile
                return f"Waiting for the answer to “{shorten(self.store.turn(job.subject_id).question, MOST_QUOTED)}”"
        return "Waiting for its turn"

    def _coverage(self, document_id: str) -> str:
        if document_id not in self._coverages:
            try:
                self._coverages[document_id] = self.service.document_cache.document(document_id).coverage()
            except StoreError as error:
                return phrase(error)
        return self._coverages[document_id]


def number_before(title: str) -> str:
    """What stands before the line below a title: its number, where the title is so long that a list may cut it off."""
    number = number_of(title)
    return f"{number} · " if number and len(title) > ROOM else ""


def first_shown(session: SessionRow, unrolled: int) -> int:
    """The position of the first turn that is shown: a long session would take seconds to draw."""
    apart = max(0, session.turns - 1) // AT_ONCE * AT_ONCE
    return max(0, apart - AT_ONCE * (1 + MORE * unrolled))


def _empty(context: ContextRow) -> str:
    """What stands where no question has been asked yet."""
    about = good_for(context.model)
    more = f"<p>{esc(about)}</p>" if about else ""
    return f'<div class="empty"><p>{EMPTY if context.status == "ready" else EMPTY_YET}</p>{more}</div>'


def _list_props(
    name: str, things: str, choices: list[tuple[str, str]], value: str | list[str] | None, more: int
) -> Props:
    """A list of the latest, with what is chosen in it, and the button that asks for more.

    Args:
        things: what it is a list of.
        more: how often more were asked for.
    """
    most, selection = LISTED * (1 + MORE * more), value if isinstance(value, list) else [value]
    shown = choices[:most] + [each for each in choices[most:] if each[1] in selection]
    hidden = len(choices) - len(shown)
    return {
        name: {"choices": shown, "value": value},
        f"more_{name}": {"visible": bool(hidden), "value": f"Show more {things} ({hidden:,})" if hidden else ""},
    }


def _metrics_props(metrics: Metrics) -> Props:
    """The panel, by how often its parts change."""
    strip = map_of(metrics)
    return {
        "kept_memory": {"value": kept(metrics)},
        "memory_map": {"visible": bool(strip), "value": strip},
        "panel": {"value": panel(metrics)},
    }


def _where(selection: Selection, edited: TurnRow | None, turns: list[TurnRow]) -> str:
    """What the page's script should know (see assets/page.js).

    That is the address, where the question field stands and what stands in it and beside it at first, what has arrived:
    the last question's turn, and its words, and the turn that was searched for.
    """
    place = edited.id if edited else selection.session or selection.context
    question, pages = (edited.question, edited.pages) if edited else ("", "")
    asked, said = (turns[-1].id, turns[-1].question) if turns else ("", "")
    return (
        f'<i data-query="{esc(selection.query)}" data-place="{esc(place)}" data-question="{esc(question)}" '
        f'data-pages="{esc(pages)}" '
        f'data-asked="{esc(asked)}" data-said="{esc(said)}" data-found="{esc(selection.found)}"></i>'
    )


def _state_of(context: ContextRow, share: float) -> str:
    how = listing.read_with(context)
    states = {
        "ready": f"{how} · {context.tokens:,} tokens",
        "reading": f"{how} · reading {share:.0%}",
        "paused": f"{how} · stopped at {share:.0%}",
    }
    return states.get(context.status, f"{how} · {context.status}")


def _export_links(session: SessionRow) -> str:
    at = f"api/sessions/{esc(session.id)}/export?format="
    return (
        f'<p class="export">Take this session with you: <a href="{at}md" download id="export-md">Markdown</a> '
        f'<a href="{at}json" download id="export-json">JSON</a></p>'
    )
