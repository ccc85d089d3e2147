"""What can be done on the page: each action is given the tab's choice and returns the new one.

An action that cannot be done raises, and the wiring shows the sentence. Some return further updates beside the choice.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import count, groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

import gradio as gr

from app import listing
from app.asking.answer_options import AnswerOptions
from app.asking.turns import branch, new_session
from app.errors import AppError, expected, phrase
from app.formatting import byte_size
from app.home import canonical_model, sample_book
from app.jobs.uploads import copy_in, discard, move_in, unread
from app.jobs.worker import Worker
from app.machine.local_models import local_models
from app.machine.planning import estimate
from app.machine.recommended import good_for, recommended_json
from app.reading.documents import IngestOptions
from app.reading.methods import method_for
from app.reading.preparing import base_for
from app.service import Service
from app.web.new_reading import OCR, hub_choices, model_choices, settings_from, suiting, unusable_models
from app.web.tab_state import ADDRESSED, Selection, TabState, first_shown, number_before
from app.web.views.markup import esc
from sessions import MOST_HITS, JobRow, listed

MOST_FOUND = 12
"""Contexts and sessions that a search lists."""
MOST_NAMED = 6
"""Documents that are named before they are deleted; of more, the others are counted."""
TELLING = 10_000
"""Tokens of an earlier reading whose speed says something about that of a book."""


def asked(named: str, doomed: list[tuple[str, str]], size: int) -> list[Any]:
    """Updates that ask whether something is really to be deleted.

    Args:
        doomed: kind and id of all that then is.
        size: bytes that it takes on the disk.
    """
    frees = f"frees {byte_size(size)} and " if size else ""
    text = f'<p role="alert">Delete the {esc(named)}? This {frees}cannot be undone.</p>'
    return [gr.update(visible=True), gr.update(value=text), doomed]


def unasked() -> list[Any]:
    """Updates after that: nothing is asked."""
    return [gr.update(visible=False), gr.update(value=""), []]


class Actions:
    """The actions over one home."""

    def __init__(
        self,
        service: Service,
        worker: Worker,
        tab_state: TabState,
        setting_keys: list[tuple[str, str]],
        own: list[str],
        presets: list[str],
    ) -> None:
        """Nothing is done yet.

        Args:
            setting_keys: (method, setting) of the fields whose values `start_reading` gets last.
            own: of what is shown for one method alone, which that is, in the order of `choose_method`'s updates.
            presets: the methods with a field for presets, in the order of those of `choose_model`.
        """
        self.service, self.worker, self.tab_state = service, worker, tab_state
        self.setting_keys, self.own, self.presets = setting_keys, own, presets

    def load(self, query: Mapping[str, str]) -> Selection:
        """A tab opens, or is reloaded: go where its address says."""
        context, session, add_to, along = (query.get(name, "") for name in ADDRESSED)
        asked = Selection(context, session, add_to=add_to, along=along)
        known = asked != Selection() or "new" in query
        return asked if known else self.tab_state.first_choice()

    def find_models(self) -> list[Any]:
        """A tab opens: the models that are here by now or recommended, and those that cannot be used, as HTML."""
        found = local_models(self.service.home)
        others = hub_choices(recommended_json(self.service.models.device), found)
        return [gr.update(choices=[*model_choices(found), *others]), unusable_models(found)]

    def choose_context(self, selection: Selection, context: str | None) -> Selection:
        """A context was chosen from the list."""
        return self.tab_state.settle(Selection(context or ""))

    def choose_session(self, selection: Selection, session: str | None) -> Selection:
        """A session was chosen from the list."""
        return self.tab_state.settle(Selection(selection.context, session or ""))

    def choose_hit(self, selection: Selection, found: str | None) -> tuple[Selection, list[Any]]:
        """A context, a session or a turn that was found was chosen; nothing stays marked there, to be chosen again."""
        unmarked = [gr.update(value=None)]
        if found and found.startswith("t-"):
            turn = self.service.store.turn(found)
            session = self.service.store.session(turn.session_id)
            hidden = (unrolled for unrolled in count() if first_shown(session, unrolled) <= turn.position)
            return Selection(session.context_id, session.id, found=turn.id, unrolled=next(hidden)), unmarked
        choose = self.choose_context if found and found.startswith("c-") else self.choose_session
        return choose(selection, found), unmarked

    def choose_kept(self, selection: Selection, documents: list[str] | None) -> Selection:
        """Documents that are kept were chosen, to be read again or deleted."""
        return replace(selection, kept=tuple(documents or ()))

    def add_documents(self, selection: Selection) -> Selection:
        """More is to be read behind what the chosen context has read, and its conversation to go on there."""
        turns = self.service.store.turns(selection.session) if selection.session else []
        said = any(turn.status == "done" for turn in turns)
        return Selection(add_to=selection.context, along=selection.session if said else "")

    def choose_add_to(self, selection: Selection, context: str | None) -> Selection:
        """It was chosen which context documents are to be added to, or none; no conversation was."""
        return replace(selection, add_to=context or "", along="")

    def choose_method(self, name: str) -> list[Any]:
        """A method was chosen: show its own settings."""
        return [gr.update(visible=owner == name) for owner in self.own]

    def choose_model(self, model: str | None) -> list[Any]:
        """A model was chosen: all methods get the settings that suit it, and none has a preset."""
        suited = {row["name"]: {"budget": row["budget"], **row["settings"]} for row in suiting(self._model(model))}
        return [*self._filled(suited), *(gr.update(value=None) for _ in self.presets)]

    def choose_preset(self, name: str, *chosen: str | None) -> list[Any]:
        """A preset was chosen: fill in its settings. chosen: of each method that has presets, the one chosen."""
        import engine

        preset = dict(zip(self.presets, chosen, strict=True))[name]
        return self._filled({name: engine.make_method(name, preset=preset).settings()} if preset else {})

    def _filled(self, settings: Mapping[str, Mapping[str, Any]]) -> list[Any]:
        """Updates of all fields: those of the settings that are given, by method."""
        return [
            gr.update(value=settings[owner][key]) if key in settings.get(owner, {}) else gr.skip()
            for owner, key in self.setting_keys
        ]

    def estimate(self, method: str, model: str | None, *values: Any) -> list[str]:
        """The form was opened or changed: what to expect of it, or why it cannot be, as HTML."""
        import engine

        models = self.service.models
        name = self._model(model)
        try:
            method_now = engine.make_method(method, **settings_from(method, self.setting_keys, values))
            like = (row for row in self.service.store.contexts() if (row.model, row.method) == (name, method))
            same = (row for row in like if row.settings == method_now.settings())
            told = (row.tokens_per_second for row in same if row.tokens_read - row.read_before >= TELLING)
            measured = next(filter(None, told), None)
            loaded = models.held == name
            line = estimate(name, method_now, self.service.home, models.device, loaded=loaded, measured=measured)
        except Exception as error:
            if not expected(error):
                raise
            return [f'<p class="note" role="status">{esc(phrase(error))}</p>']
        about = good_for(name)
        more = f'<p class="quiet">{esc(about)}</p>' if about else ""
        return [f'<p class="quiet" role="status">{esc(line)}</p>{more}']

    def start_reading(
        self,
        selection: Selection,
        files: list[str] | None,
        method: str,
        title: str | None,
        password: str | None,
        ocr: str,
        model: str | None,
        *values: Any,
    ) -> tuple[Selection, list[Any]]:
        """Files were dropped in, or documents that are kept were chosen, and are to be read."""
        if selection.context:  # the second click of two: the first began it
            return selection, [gr.skip()] * 3
        if not files and not selection.kept:
            raise AppError("Drop in one or more files first, and let the upload finish; or choose documents.")
        queue = self._queue(selection, method, model, values)
        kept = [self.service.store.document(id).id for id in selection.kept]
        moved = move_in(self.service.home, files) if files else []
        options = IngestOptions((title or "").strip() or None, password or None, OCR[ocr])
        job = queue(moved, options=options, wait=True, documents=kept)
        return Selection(job.id), [gr.update(value=None), gr.update(value=""), gr.update(value="")]

    def read_sample(self, selection: Selection, method: str, model: str | None, *values: Any) -> Selection:
        """The sample book is to be read."""
        if selection.context:  # as above
            return selection
        book = sample_book()
        if book is None:
            raise AppError("This installation has no sample book.")
        queue = self._queue(selection, method, model, values)
        with Path(book).open("rb") as handle:
            copied = copy_in(self.service.home, [(book.name, handle)])
        return Selection(queue(copied, options=IngestOptions()).id)

    def _queue(
        self, selection: Selection, method: str, model: str | None, values: tuple[Any, ...]
    ) -> Callable[..., JobRow]:
        """What queues files to be read as the form says, or to be added to a context.

        What cannot be is refused while the files are still in the form.
        """
        if selection.add_to:
            base = base_for(self.service, selection.add_to)
            return partial(self.worker.add, context_id=base.id, session=selection.along or None)
        settings = settings_from(method, self.setting_keys, values)
        method_for(self._model(model), method, settings)
        return partial(self.worker.ingest, method=method, settings=settings, model=self._model(model))

    def _model(self, typed: str | None) -> str:
        """The model that was typed in, or that of this server: another may come to read with it."""
        return canonical_model(typed.strip()) if typed and typed.strip() else self.service.models.default

    def stop_reading(self, selection: Selection) -> Selection:
        """Stop what is being read; what was read is kept."""
        jobs = (
            [self.service.store.job(selection.context)]
            if selection.context.startswith("j-")
            else self.service.store.jobs(subject_id=selection.context)
        )
        for job in jobs:
            self.worker.cancel(job.id)
        return selection

    def resume_reading(self, selection: Selection) -> Selection:
        """Go on from the checkpoint."""
        self.worker.read(selection.context)
        return selection

    def unlock(self, selection: Selection, password: str | None) -> tuple[Selection, list[Any]]:
        """Try an encrypted upload again, with this password."""
        if not password:
            raise AppError("Type the password of the file first.")
        return Selection(self.worker.unlock(selection.context, password).id), [gr.update(value="")]

    def leave_out(self, selection: Selection) -> Selection:
        """Read the other files of an upload without those that need a password."""
        return Selection(self.worker.unlock(selection.context, None).id)

    def new_session(self, selection: Selection) -> Selection:
        """Begin another conversation over the same context; one without a question is used again."""
        empty = [row for row in self.service.store.sessions(selection.context) if not row.turns]
        row = empty[0] if empty else new_session(self.service, selection.context)
        return Selection(selection.context, row.id)

    def ask_early(self, selection: Selection) -> Selection:
        """What has been read so far is to be asked, in the conversation that goes along, if there is one."""
        along = self.service.store.sessions(selection.context)
        return Selection(selection.context, along[0].id) if along else self.new_session(selection)

    def ask(
        self,
        selection: Selection,
        question: str | None,
        temperature: float | None,
        top_p: float | None,
        max_tokens: float,
        read_again: bool = AnswerOptions.read_again,
        reason: bool = True,
        pages: str | None = None,
    ) -> Selection:
        """A question was asked: an edited one in a branch of its session, which begins with the turns before it.

        The fields are the page's own business: they keep what is typed until it has arrived.
        """
        reasoning = AnswerOptions.max_reasoning if reason else 0
        options = AnswerOptions(temperature, top_p, int(max_tokens), reasoning, read_again=read_again)
        if not question or not question.strip():
            return selection
        turn = self.worker.ask(lambda: self._to_ask_in(selection), question, options, pages or "")
        return Selection(selection.context, turn.session_id, unrolled=self._unrolled(selection, turn.session_id))

    def _unrolled(self, selection: Selection, session: str) -> int:
        return selection.unrolled if session == selection.session else 0

    def unroll(self, selection: Selection) -> Selection:
        """Earlier turns are to be shown too."""
        return replace(selection, unrolled=selection.unrolled + 1)

    def list_more(self, selection: Selection) -> Selection:
        """More are to be listed, wherever not all are."""
        return replace(selection, listed=selection.listed + 1)

    def _to_ask_in(self, selection: Selection) -> str:
        """The session that a question belongs in, made if it is not there yet."""
        store = self.service.store
        if selection.edited:
            edited = store.turn(selection.edited)
            return branch(self.service, edited.session_id, edited.position).id
        if not selection.session:
            return new_session(self.service, selection.context).id
        if store.answering(selection.session):
            raise AppError("The last question is still being answered. Wait for it, or stop it.")
        return selection.session

    def edit(self, selection: Selection, turn_id: str) -> Selection:
        """A question is to be asked in other words, or again."""
        turn = self.service.store.turn(turn_id)
        unrolled = self._unrolled(selection, turn.session_id)
        return Selection(selection.context, turn.session_id, turn.id, unrolled=unrolled)

    def never_mind(self, selection: Selection) -> Selection:
        """The question that was being edited is left as it is."""
        return replace(selection, edited="")

    def stop_answer(self, selection: Selection) -> Selection:
        """Stop the answer that is being written."""
        self.worker.stop_answer(*self.service.store.answering(selection.session))
        return selection

    def choose_renamed(self, selection: Selection, what: str | None) -> Selection:
        """It was chosen whose title is to be changed: the session's, the context's or a document's."""
        return replace(selection, renamed=what or "")

    def rename(self, selection: Selection, what: str | None, title: str | None) -> Selection:
        """Give the session, the context or a document another title."""
        listing.rename(self.service, *listing.find(self.service, what or ""), title or "")
        return selection

    def ask_to_delete(self, kind: str, selection: Selection) -> tuple[Selection, list[Any]]:
        """Ask whether something is really to be deleted."""
        one, rows = kind.removesuffix("s"), self._to_delete(kind, selection)
        size = listing.bytes_to_free(self.service, one, *rows)
        return selection, asked(self._named(one, rows), [(one, row.id) for row in rows], size)

    def ask_to_remove(self, kind: str, selection: Selection) -> tuple[Selection, list[Any]]:
        """Ask whether a reading that stopped is really to be deleted, or an upload that failed with its documents.

        An upload that became no documents goes at once.

        Args:
            kind: "context", or "documents" for a context with those that nothing else uses.
        """
        if selection.context.startswith("j-"):
            job = self.service.store.job(selection.context)
            if rows := unread(self.service, job.progress.get("documents", []), job):
                size = listing.bytes_to_free(self.service, "document", *rows)
                return selection, asked(self._named("document", rows), [("upload", job.id)], size)
            discard(self.service, job)
            return Selection(), unasked()
        context = self.service.store.context(selection.context)
        named = self._named("context", [context])
        if kind == "documents" and (rows := listing.own_documents(self.service, context)):
            named = f"{named} and the {self._named('document', rows, also=False)}"
            return selection, asked(
                named, [("reading", context.id)], listing.bytes_to_free(self.service, "document", *rows)
            )
        return selection, asked(
            named, [("context", context.id)], listing.bytes_to_free(self.service, "context", context)
        )

    def _named(self, kind: str, rows: Sequence[Any], also: bool = True) -> str:
        """Things of a kind, by their titles. also: with what goes with them."""
        titles = listed([f"“{row.title}”" for row in rows], MOST_NAMED)
        further = listing.goes_with(self.service, kind, *rows) if also else ""
        return f"{kind}{'' if len(rows) == 1 else 's'} {titles}{further}"

    def _to_delete(self, kind: str, selection: Selection) -> list[Any]:
        store = self.service.store
        if kind == "session":
            return [store.session(selection.session)]
        if kind == "context":
            return [store.context(selection.context)]
        if selection.context:
            return store.context_documents(selection.context)
        return store.documents(selection.kept)

    def delete(self, selection: Selection, named: list[tuple[str, str]]) -> tuple[Selection, list[Any]]:
        """Delete what was named when it was asked about, whatever has been chosen since."""
        for kind, things in groupby(named, itemgetter(0)):
            ids = [id for _, id in things]
            if kind == "upload":
                discard(self.service, self.service.store.job(*ids))
            elif kind == "reading":  # with the documents that nothing else uses, also since it was asked
                context = self.service.store.context(*ids)
                documents = listing.own_documents(self.service, context)
                listing.delete(self.service, "context", context)
                if documents:
                    listing.delete(self.service, "document", *documents)
            else:
                listing.delete(self.service, kind, *(listing.find(self.service, id, (kind,))[1] for id in ids))
        return self.tab_state.settle(selection), unasked()

    def search(self, query: str | None) -> list[Any]:
        """Find contexts by title, and sessions by title or by what was said in them.

        The list is hidden while nothing is searched for.
        """
        if not query or not query.strip():
            return [gr.update(choices=[], value=None, visible=False)]
        choices: dict[str, tuple[str, str]] = {}
        for hit in listing.search(self.service, query, MOST_HITS):  # one session may have very many of them
            name = f"{hit.row.title}\n{number_before(hit.row.title)}" + "\n".join(hit.lines)
            choices.setdefault(hit.row.id, (name, hit.turn.id if hit.turn else hit.row.id))
        label = "Found" if choices else "Nothing found"
        found = list(choices.values())[:MOST_FOUND]
        return [gr.update(choices=found, value=None, label=label, visible=True)]
