"""Actions of a conversation: begin sessions, ask and edit questions, stop answers."""

from dataclasses import replace

from app.asking.answer_options import AnswerOptions
from app.asking.named_pages import pinning, with_pinned
from app.asking.place import keep_place, known_pages, place_of
from app.asking.turns import branch, new_session
from app.errors import AppError
from app.jobs.sweeps import SWEEP, list_request
from app.jobs.worker import Worker
from app.service import Service
from app.web.number_field import typed_number
from app.web.tab_state import Selection


class ChatActions:
    """Actions of a conversation."""

    def __init__(self, service: Service, worker: Worker) -> None:
        """Keep the home and its worker."""
        self.service, self.worker = service, worker

    def new_session(self, selection: Selection) -> Selection:
        """Begin another session over the same context; use one without a question again."""
        empty = [row for row in self.service.store.sessions.all(selection.context) if not row.turns]
        row = empty[0] if empty else new_session(self.service, selection.context)
        return Selection(selection.context, row.id)

    def ask_early(self, selection: Selection) -> Selection:
        """Ask about the text read so far, in the session that goes along if there is one."""
        along = self.service.store.sessions.all(selection.context)
        return Selection(selection.context, along[0].id) if along else self.new_session(selection)

    def ask(
        self,
        selection: Selection,
        question: str | None,
        temperature: str | None,
        top_p: str | None,
        max_tokens: str | None,
        read_again: bool = AnswerOptions.read_again,
        reason: bool | None = None,
        pages: str | None = None,
    ) -> Selection:
        """Ask a question. An edited one goes into a branch of its session, with the turns before it.

        The page itself keeps the typed question until it has arrived.
        """
        if not question or not question.strip():
            return selection
        most = typed_number(max_tokens, "Longest answer")
        options = AnswerOptions(
            typed_number(temperature, "Temperature"),
            typed_number(top_p, "Top-p"),
            AnswerOptions.max_tokens if most is None else int(most),
            reason=reason,
            read_again=read_again,
        )
        pages = pages or ""
        alone, pinned = with_pinned(pages)
        if not alone:
            known = known_pages(self.service, self.service.store.contexts.get(selection.context))
            pages = pinning(known, pinned)
        turn = self.worker.ask(lambda: self._to_ask_in(selection), question, options, pages)
        return Selection(selection.context, turn.session_id, unrolled=self._unrolled(selection, turn.session_id))

    def _unrolled(self, selection: Selection, session: str) -> int:
        return selection.unrolled if session == selection.session else 0

    def unroll(self, selection: Selection) -> Selection:
        """Show earlier turns too."""
        return replace(selection, unrolled=selection.unrolled + 1)

    def _to_ask_in(self, selection: Selection) -> str:
        """Return the session that a question belongs in; make it if needed."""
        store = self.service.store
        if selection.edited:
            edited = store.turns.get(selection.edited)
            return branch(self.service, edited.session_id, edited.position).id
        if not selection.session:
            return new_session(self.service, selection.context).id
        if store.turns.answering(selection.session):
            raise AppError("The last question is still being answered. Wait for it, or stop it.")
        return selection.session

    def edit(self, selection: Selection, turn_id: str) -> Selection:
        """Edit a question, to ask in other words or again."""
        turn = self.service.store.turns.get(turn_id)
        unrolled = self._unrolled(selection, turn.session_id)
        return Selection(selection.context, turn.session_id, turn.id, unrolled=unrolled)

    def again(
        self,
        selection: Selection,
        temperature: str | None,
        top_p: str | None,
        max_tokens: str | None,
        read_again: bool,
        reason: bool | None,
        turn_id: str,
    ) -> Selection:
        """Ask the question of a turn again, in a branch of its session with the turns before it."""
        turn = self.service.store.turns.get(turn_id)
        edited = replace(selection, edited=turn.id)
        return self.ask(edited, turn.question, temperature, top_p, max_tokens, read_again, reason, turn.pages)

    def move(self, selection: Selection, place: tuple[str, str]) -> Selection:
        """Keep how far a document has been read. place: id of the document, and the page."""
        keep_place(self.service, *place)
        return selection

    def keep(self, selection: Selection, kept: tuple[str, list[int], bool]) -> Selection:
        """Keep parts of a turn as notes, or drop them. kept: the turn, the parts, and whether to drop them."""
        turn, numbers, dropped = kept
        self.service.store.turns.keep(turn, [] if dropped else numbers, numbers if dropped else [])
        return selection

    def recap(self, selection: Selection) -> Selection:
        """Have the chapters summed up, as far as they were read."""
        context = self.service.store.contexts.get(selection.context)
        self.worker.recap(context.id, place_of(self.service, context))
        return selection

    def never_mind(self, selection: Selection) -> Selection:
        """Stop editing a question; it stays as it is."""
        return replace(selection, edited="")

    def search_whole(self, selection: Selection, turn_id: str) -> Selection:
        """Search the whole text for all that the question of a turn asks for, or go on with that."""
        question = self.service.store.turns.get(turn_id).question
        self.worker.sweep(*list_request(self.service, selection.context, question))
        return selection

    def stop_search(self, selection: Selection, turn_id: str) -> Selection:
        """Stop that search; its findings are kept."""
        question = self.service.store.turns.get(turn_id).question
        for job in self.service.store.jobs.all(subject_id=selection.context, kind=SWEEP):
            if job.payload.get("question") == question:
                self.worker.cancel(job.id)
        return selection

    def stop_answer(self, selection: Selection) -> Selection:
        """Stop the answers that are being written."""
        self.worker.stop_answer(*self.service.store.turns.answering(selection.session))
        return selection
