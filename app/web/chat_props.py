"""Props of the conversation: the head of its context, finished turns, and turns that are being answered."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from app.asking.introduction import load_introduction
from app.asking.named_pages import pages_in_words
from app.asking.place import known_pages
from app.asking.whole_list import MOST, list_question, search_seconds
from app.errors import phrase
from app.formatting import shorten
from app.jobs.sweeps import SWEEP, result_of
from app.jobs.worker import ANSWER
from app.language import place_words, t, told
from app.machine.good_for import good_for
from app.machine.model_names import shown_name
from app.service import Service
from app.web.list_props import MORE, Props, share_read
from app.web.views.linked_folders import version_notes
from app.web.views.markup import esc
from app.web.views.reading_card import context_head
from app.web.views.sweep import whole_list
from app.web.views.turn import conversation, live_turn
from app.web.views.welcome import welcome
from sessions import INTRODUCE, ContextRow, DocumentRow, JobRow, NotFound, SessionRow, StoreError, TurnRow

AT_ONCE = 20
"""Most finished turns that are sent again with each answer; older ones change once in so many turns."""
MOST_OPENED = 16
"""Most documents whose lengths the welcome tells; the cache holds as many."""
MOST_QUOTED = 60
"""Most characters quoted of a question that another one waits for."""


class ChatProps:
    """Makes the props of the conversation."""

    def __init__(self, service: Service) -> None:
        """Keep the home that is shown."""
        self.service = service
        self.store = service.store
        self._coverages: dict[str, str] = {}  # by document id; they never change
        self._found: dict[str, tuple[object, dict[str, Any] | None]] = {}  # by job: how far it was, and its result

    def props(
        self, context: ContextRow | None, session: SessionRow | None, turns: list[TurnRow], answering: list[TurnRow]
    ) -> Props:
        """Return the props of the conversation; without a context they are empty."""
        head, earlier, past, known = "", "", "", ""
        if context is not None:
            documents = self.store.contexts.documents(context.id)
            with suppress(StoreError):  # the head says what is damaged
                known = known_pages(self.service, context)
            lines = [self._coverage(document.id) for document in documents]
            if [document.title for document in documents] != [context.title]:
                lines = [f"{document.title}: {line}" for document, line in zip(documents, lines, strict=True)]
            head = context_head(context, documents, lines, share_read(self.store, context), expanded=not turns)
            head += version_notes(documents, self._newer(documents))
            titles = {document.id: document.title for document in documents}
            finished = [turn for turn in turns if turn.status != "answering"]
            apart = max(0, len(finished) - 1) // AT_ONCE * AT_ONCE
            lists = self._lists(context, finished)
            earlier = conversation(finished[:apart], titles, lists)
            past = conversation(finished[apart:], titles, lists, last=True) if turns else self._welcome(context, known)
        return {
            "head": {"value": head},
            "earlier": {"value": earlier},
            "past": {"value": past},
            "pages": {"placeholder": t("Only {pages}", pages=known) if known else t("All pages")},
            "live": {"value": self.live_turn_value(context, answering)},
            "stop": {"visible": bool(answering)},
            "export": {"value": _export_links(session) if session and turns else ""},
            "delete_session": {"visible": session is not None},
        }

    def _newer(self, documents: Sequence[DocumentRow]) -> dict[str, str]:
        """Return the context of the newer version of each document that has one, "" if that has not been read."""
        there = {row.id for row in self.store.documents.existing([row.newer for row in documents if row.newer])}
        read = {row.id: self.store.contexts.all(row.newer) for row in documents if row.newer in there}
        return {id: contexts[0].id if contexts else "" for id, contexts in read.items()}

    def _lists(self, context: ContextRow, turns: list[TurnRow]) -> dict[str, str]:
        """Return the searches below answers to questions for a list or a count of a long text, by id of the turn."""
        whole = (each for each in turns if each.status == "done" and not each.pages)
        asking = [each for each in whole if not each.measurements.get("counted") and list_question(each.question)]
        if not asking or context.status != "ready" or context.tokens <= MOST:
            return {}
        jobs = {job.payload.get("question"): job for job in self.store.jobs.all(subject_id=context.id, kind=SWEEP)}
        found = {}
        for turn in asking:
            job, speed = jobs.get(turn.question), turn.measurements.get("tokens_per_second")
            seconds = search_seconds(context, speed) if speed else None
            found[turn.id] = whole_list(job, self.found_by(job) if job else None, seconds)
        return found

    def found_by(self, job: JobRow) -> dict[str, Any] | None:
        """Return the result of a sweep so far."""
        now = job.done, job.status
        if self._found.get(job.id, (None, None))[0] != now:
            self._found[job.id] = now, result_of(self.service, job)
        return self._found[job.id][1]

    def live_turn_value(self, context: ContextRow | None, answering: list[TurnRow]) -> str:
        """Return the turns that are being answered, as HTML."""
        if context is None:
            return ""
        return "".join(
            live_turn(turn, self._stage(context, turn) if turn is answering[0] else t("Waiting for its turn"))
            for turn in answering
        )

    def _stage(self, context: ContextRow, turn: TurnRow) -> str:
        """Return the work before the first word of an answer, in words."""
        work = self.store.jobs.work_on(turn.id)
        if work and work.status == "queued":
            return self._waits_for()
        if context.id not in self.service.contexts and not self.service.read_here(context.id):
            held = self.service.models.held == context.model
            return t("Opening the document") if held else t("Loading the model, then opening the document")
        if work and work.stage:
            return told(work.stage)
        return t("Turning to {place}", place=place_words(pages_in_words(turn.pages))) if turn.pages else t("Thinking")

    def _welcome(self, context: ContextRow, known: str) -> str:
        """Return what is shown before the first question. known: pages that its reader knows; "" for all."""
        documents = []
        with suppress(StoreError):  # the head says what is damaged
            documents = [self.service.document_cache.document(id) for id in context.document_ids[:MOST_OPENED]]
        return welcome(
            documents if len(documents) == len(context.document_ids) else [],
            ready=context.status == "ready",
            about=good_for(context.model),
            made=None if known else load_introduction(self.store, context.id),
            making=self.store.jobs.work_on(context.id, INTRODUCE) is not None,
            model=shown_name(context.model),
        )

    def _waits_for(self) -> str:
        """Return in words which answer must end before a question is answered."""
        for job in self.store.jobs.all(status="running", kind=ANSWER):
            with suppress(NotFound):  # deleted meanwhile
                question = shorten(self.store.turns.get(job.subject_id).question, MOST_QUOTED)
                return t("Waiting for the answer to “{question}”", question=question)
        return t("Waiting for its turn")

    def _coverage(self, document_id: str) -> str:
        if document_id not in self._coverages:
            try:
                self._coverages[document_id] = self.service.document_cache.document(document_id).coverage()
            except StoreError as error:
                return phrase(error)
        return self._coverages[document_id]


def _export_links(session: SessionRow) -> str:
    at = f"api/sessions/{esc(session.id)}/export?format="
    return (
        f'<p class="export">{t("Take this chat with you:")} <a href="{at}md" download id="export-md">Markdown</a> '
        f'<a href="{at}docx" download>Word</a> <a href="{at}json" download id="export-json">JSON</a></p>'
    )


def first_shown(session: SessionRow, unrolled: int) -> int:
    """Return the position of the first turn to show; a long session would take seconds to draw."""
    apart = max(0, session.turns - 1) // AT_ONCE * AT_ONCE
    return max(0, apart - AT_ONCE * (1 + MORE * unrolled))
