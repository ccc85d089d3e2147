"""The events of the page: each runs an action, then shows the state of the store.

Every handler ends in `updates`, which sends the components that have changed for this tab, in the language of its
browser. No handler waits for the model: the worker does the work. Its progress is shown by a timer while it answers,
and whenever the store was written to, both outside Gradio's queue. Errors are shown in the notice, because outside the
queue Gradio shows none.
"""

import asyncio
import hashlib
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import gradio as gr
from fastapi.concurrency import run_in_threadpool

from app.errors import log_error, phrase
from app.jobs.worker import Worker
from app.language import language_of, speaking
from app.service import Service
from app.web.actions import Actions
from app.web.actions.manage import unasked
from app.web.chat_panel import ChatPanel
from app.web.confirm import Confirm
from app.web.document_panel import DocumentPanel
from app.web.list_props import Props
from app.web.new_reading import NewReading
from app.web.reading_panel import ReadingPanel
from app.web.sidebar import Sidebar
from app.web.sweep_panel import SweepPanel
from app.web.tab_state import Selection, TabState
from app.web.views.markup import notice_of, read_out

log = logging.getLogger(__name__)

QUIET: dict[str, Any] = {"show_progress": "hidden", "show_progress_on": [], "api_visibility": "private", "queue": False}


@dataclass
class Tab:
    """The state of one tab on the server; Gradio copies the first one for every tab.

    Gradio runs the events of a tab in parallel. `page.js` sends each when the one before is answered, so that it
    continues from the selection that was made before it. Where an answer got lost, the next waits here.

    selection: the tab's selection.
    listed: how often longer lists were asked for.
    seen: name of a component and of a prop -> hash of what the browser shows.
    context: id of the context that was shown last; None before any update.
    turn: lock that the present event holds.
    """

    selection: Selection = field(default_factory=Selection)
    listed: int = 0
    seen: dict[tuple[str, str], bytes] = field(default_factory=dict)
    context: str | None = None
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)


@dataclass(frozen=True)
class Page:
    """The areas of the page, a button that `page.js` presses when the store was written to, and a timer."""

    sidebar: Sidebar
    new: NewReading
    reading: ReadingPanel
    chat: ChatPanel
    sweep: SweepPanel
    document: DocumentPanel
    where: gr.HTML
    notice: gr.HTML
    pulse: gr.Button
    stream: gr.Timer

    def slots(self) -> dict[str, Any]:
        """Return the components by the names in `TabState.props`."""
        return {
            "where": self.where,
            "contexts": self.sidebar.contexts,
            "more_contexts": self.sidebar.more_contexts,
            "remove_failed": self.sidebar.remove_failed,
            "session_area": self.sidebar.session_area,
            "sessions": self.sidebar.sessions,
            "more_sessions": self.sidebar.more_sessions,
            "new_view": self.new.area,
            "linked": self.new.linked,
            "kept_area": self.new.kept_area,
            "kept": self.new.kept,
            "delete_kept": self.new.delete_kept,
            "more_kept": self.new.more_kept,
            "each_area": self.new.each_area,
            "compare": self.new.compare,
            "add_to": self.new.add_to,
            "more_add_to": self.new.more_add_to,
            "how": self.new.how,
            "more_how": self.new.more_how,
            "fetching": self.new.model.fetching,
            "fetched": self.new.model.fetched,
            "get": self.new.model.get,
            "stop_fetching": self.new.model.stop_fetching,
            "add_documents": self.sidebar.add_documents,
            "reading_view": self.reading.area,
            "chat_view": self.chat.area,
            "sweep_view": self.sweep.area,
            "sweep": self.sweep.shown,
            "card": self.reading.card,
            "unlock_area": self.reading.unlock_area,
            "leave_out": self.reading.leave_out,
            "cancel": self.reading.cancel,
            "resume": self.reading.resume,
            "ask_early": self.reading.ask_early,
            "discard": self.reading.discard,
            "discard_documents": self.reading.discard_documents,
            "head": self.chat.head,
            "unroll": self.chat.unroll,
            "earlier": self.chat.earlier,
            "past": self.chat.past,
            "pages": self.chat.pages,
            "live": self.chat.live,
            "edit_area": self.chat.edit_area,
            "edit_line": self.chat.edit_line,
            "ask": self.chat.ask,
            "stop": self.chat.stop,
            "rename_what": self.chat.manage.rename_what,
            "rename_to": self.chat.manage.rename_to,
            "export": self.chat.manage.export,
            "delete_session": self.chat.manage.delete_session,
            "find_area": self.document.find_area,
            "book": self.document.book,
            "gauge": self.document.gauge,
            "kept_memory": self.document.kept_memory,
            "panel": self.document.panel,
            "stream": self.stream,
        }

    def of_document(self) -> list[tuple[Any, dict[str, Any]]]:
        """Return the components that people fill in for one document, with the props that empty them."""
        empty, hidden = {"value": ""}, {"visible": False}
        fields = (self.document.find, self.document.found, self.reading.password)
        questions = (self.chat.manage.confirm.area, self.reading.confirm.area)
        return [*((each, empty) for each in fields), *((each, hidden) for each in questions)]


class Events:
    """The handlers of one page."""

    def __init__(self, page: Page, service: Service, worker: Worker) -> None:
        """Make the actions of a page over a home and its worker."""
        self.page = page
        self.tab_state = TabState(service)
        new = page.new
        expert = new.expert
        own = [name for name, components in expert.own.items() for _ in components]
        self.actions = Actions(service, worker, self.tab_state, list(expert.settings), own, list(expert.presets))
        self.slots, self.of_document = page.slots(), page.of_document()
        self.names = {component: name for name, component in self.slots.items()}
        self.tab = gr.State(Tab())

    def updates(self, tab: Tab) -> list[Any]:
        """Return updates of the props that the browser does not show yet; fields of a document that is left are
        emptied.

        A prop that has not changed is never sent again: an update of a list would undo a choice made meanwhile.
        """
        tab.listed = max(tab.listed, tab.selection.listed)
        tab.selection = replace(self.tab_state.settle(tab.selection), listed=tab.listed)
        props: Props = self.tab_state.props(tab.selection)
        out = []
        for name in self.slots:
            marks = {prop: mark_of(value) for prop, value in props[name].items()}
            changed = {prop: props[name][prop] for prop, mark in marks.items() if tab.seen.get((name, prop)) != mark}
            out.append(gr.update(**changed) if changed else gr.skip())
            tab.seen.update({(name, prop): mark for prop, mark in marks.items()})
        left = tab.context not in (None, tab.selection.context)
        tab.context = tab.selection.context
        return [*out, *(gr.update(**props) if left else gr.skip() for _, props in self.of_document)]

    def handler(
        self, act: Callable[..., Any], given: Sequence[str | None], extra: int, quiet: bool, told: str, done: str
    ) -> Callable[..., Awaitable[list[Any]]]:
        """Return a handler that runs an action, and shows the result or the reason of a refusal.

        Args:
            act: `act(selection, *inputs)` returns the new selection, or a pair of it and `extra` further updates.
            given: slots of the inputs, None for others. The browser shows their values already.
            extra: number of further updates.
            quiet: whether to leave the notice alone unless something fails, as events that nobody caused do.
            told: name of a field of the event to pass to `act` as the last argument.
            done: words to read out when it is done.
        """

        def work(request: gr.Request, event: gr.EventData, tab: Tab, inputs: tuple[Any, ...]) -> list[Any]:
            # Always use updates: Gradio sends them at once, so none overtakes another.
            notice = gr.skip() if quiet else gr.update(value=read_out(done) if done else "")
            out, further = [gr.skip()] * (len(self.slots) + len(self.of_document)), [gr.skip()] * extra
            known = bool(tab.seen)
            try:
                if not known:  # a new tab, or a restarted server: the address has the selection
                    tab.selection = self.actions.navigate.load(request.query_params)
                entered = [(slot, value) for slot, value in zip(given, inputs, strict=True) if slot]
                tab.seen.update({(slot, "value"): mark_of(value) for slot, value in entered})
                try:
                    result = act(tab.selection, *inputs, *([getattr(event, told)] if told else []))
                    tab.selection, further = result if extra else (result, further)
                except Exception as error:
                    notice = refusal(error)
                before = tab.selection
                out = self.updates(tab)
                if missing := self.tab_state.lost(before, tab.selection, known):
                    notice = gr.update(value=notice_of(missing))
            except Exception as error:  # the selection stays, and the next event tries again
                notice = refusal(error)
            return [*out, notice, *further]

        async def handle(request: gr.Request, event: gr.EventData, tab: Tab, *inputs: Any) -> list[Any]:
            async with tab.turn:
                with speaking_with(request):
                    return await run_in_threadpool(work, request, event, tab, inputs)

        return handle

    def on(
        self,
        listener: Any,
        act: Callable[..., Any],
        inputs: Sequence[Any] = (),
        extra: Sequence[Any] = (),
        quiet: bool = False,
        told: str = "",
        done: str = "",
        **how: Any,
    ) -> None:
        """Let an event run an action, then show the result.

        Args:
            listener: Gradio's listener.
            act: the action, see `handler`.
            inputs: components whose values `act` gets.
            extra: components that `act` updates itself.
            quiet: see `handler`.
            told: see `handler`.
            done: see `handler`.
            how: further arguments of Gradio's listener.
        """
        emptied = [each for each, _ in self.of_document]
        outputs = [*self.slots.values(), *emptied, self.page.notice, *extra]
        given = [self.names.get(each) for each in inputs]
        handle = self.handler(act, given, len(extra), quiet, told, done)
        listener(handle, [self.tab, *inputs], outputs, **how, **QUIET)

    def aside(
        self,
        listener: Any,
        act: Callable[..., list[Any]],
        inputs: Sequence[Any],
        outputs: Sequence[Any],
        filled: gr.HTML | None = None,
        **how: Any,
    ) -> None:
        """Let an event update components that do not depend on the selection. It does not wait for other events.

        filled: component to change when the others were updated.
        """
        stamps = [filled] * (filled is not None)

        def handle(request: gr.Request, *given: Any) -> list[Any]:
            with speaking_with(request):
                try:
                    return [*act(*given), gr.skip(), *[str(time.time_ns())] * len(stamps)]
                except Exception as error:
                    return [*[gr.skip()] * len(outputs), refusal(error), *[gr.skip()] * len(stamps)]

        listener(handle, inputs, [*outputs, self.page.notice, *stamps], **how, **QUIET)

    def connect(self, blocks: gr.Blocks) -> None:
        """Connect all events. Call it while `blocks` is being built."""
        for each in (blocks.load, self.page.stream.tick):
            self.on(each, lambda selection: selection, quiet=True)
        self.on(self.page.pulse.click, lambda selection: selection, quiet=True, trigger_mode="always_last")
        self._connect_sidebar()
        self._connect_readings(blocks)
        self._connect_chat(blocks)

    def _connect_sidebar(self) -> None:
        sidebar, do = self.page.sidebar, self.actions
        self.on(sidebar.new.click, lambda selection: Selection())
        # A list shows a choice at once, so no choice may be dropped because another is on its way.
        self.on(sidebar.contexts.input, do.navigate.choose_context, [sidebar.contexts], trigger_mode="multiple")
        self.on(sidebar.sessions.input, do.navigate.choose_session, [sidebar.sessions], trigger_mode="multiple")
        self.on(sidebar.hits.input, do.navigate.choose_hit, [sidebar.hits], [sidebar.hits], trigger_mode="multiple")
        for each in (sidebar.more_contexts, sidebar.more_sessions, self.page.new.more_kept, self.page.new.more_add_to):
            self.on(each.click, do.navigate.list_more)
        self.on(sidebar.remove_failed.click, do.manage.remove_failed)
        self.on(sidebar.new_session.click, do.ask.new_session)
        self.on(sidebar.add_documents.click, do.read.add_documents)
        self.aside(
            sidebar.search.change, do.navigate.search, [sidebar.search], [sidebar.hits], trigger_mode="always_last"
        )

    def _connect_readings(self, blocks: gr.Blocks) -> None:
        new, reading, do = self.page.new, self.page.reading, self.actions
        settings = list(new.expert.settings.values())
        form = [new.expert.method, new.model.model, *settings]
        self._connect_form(blocks, form)
        self.on(
            new.start.click,
            do.read.start_reading,
            [new.files, new.expert.method, new.title, new.password, new.ocr, new.model.model, *settings],
            [new.files, new.title, new.password],
        )
        self.on(new.kept.input, do.read.choose_kept, [new.kept], trigger_mode="multiple")
        self.on(new.add_to.input, do.read.choose_add_to, [new.add_to], trigger_mode="multiple")
        self._connect_confirm(new.confirm, {"documents": new.delete_kept}, do.manage.ask_to_delete)
        for each in (new.ask_each.click, new.columns.submit):
            self.on(each, do.sweep.ask_each, [new.columns], [new.columns])
        self.on(new.compare.click, do.sweep.compare)
        sweep = self.page.sweep.shown
        self.on(sweep.submit, do.sweep.go_on)
        self.on(sweep.stop, do.sweep.stop)
        self.on(sweep.clear, do.sweep.remove)
        self.on(new.sample.click, do.read.read_sample, form)
        self.on(reading.unlock.click, do.read.unlock, [reading.password], [reading.password])
        self.on(reading.password.submit, do.read.unlock, [reading.password], [reading.password])
        self.on(reading.leave_out.click, do.read.leave_out)
        self.on(reading.cancel.click, do.read.stop_reading)
        self.on(reading.resume.click, do.read.resume_reading)
        self.on(reading.ask_early.click, do.ask.ask_early)
        removes = {"context": reading.discard, "documents": reading.discard_documents}
        self._connect_confirm(reading.confirm, removes, do.manage.ask_to_remove)

    def _connect_form(self, blocks: gr.Blocks, form: list[Any]) -> None:
        """Connect the fields of a new document. form: method, model, and the settings of all methods."""
        new, expert, do = self.page.new, self.page.new.expert, self.actions.form
        method, model, *settings = form
        presets, chosen = list(expert.presets.values()), self.page.new.model
        own = [component for components in expert.own.values() for component in components]
        models, filled = [chosen.model, chosen.unusable], new.filled
        self.aside(blocks.load, do.find_models, [], models)
        self.aside(
            partial(gr.on, [blocks.load, chosen.fetched.change]), do.find_others, [], [chosen.offered, chosen.get]
        )
        self.aside(chosen.fetched.change, do.find_fetched, [], models, filled, trigger_mode="multiple")
        self.aside(new.memory.input, do.choose_memory, [new.memory, model], [method, *own])
        self.aside(method.input, do.choose_method, [method, model], [new.memory, *own])
        self.aside(model.change, do.choose_model, [model, new.memory], [*settings, *presets, method, *own], filled)
        preset = partial(gr.on, [each.change for each in presets])
        self.aside(preset, do.choose_preset, [method, *presets], settings)
        self.aside(new.folder.upload, do.take_folder, [new.files, new.folder], [new.files, new.folder])
        given = [new.files, new.kept, new.add_to, *form]
        told = [new.estimate, new.looking, chosen.about, new.start]
        changes = [blocks.load, filled.change, *(each.change for each in (new.files, new.kept, new.add_to))]
        opened, entered = self.page.sidebar.new.click, [each.change for each in (method, *settings)]
        self._connect_follower([*changes, new.looking.tick, *entered], [opened], do.estimate, given, told)
        self.on(chosen.get.click, do.fetch, [chosen.offered])
        offer = self.actions.offer
        about = [model, new.add_to, new.files, new.kept]
        row = [new.offer_area, new.offer, new.take]
        clicks = [opened, chosen.get.click, chosen.stop_fetching.click]
        taken = [new.files, method, new.title, new.password, new.ocr, model, *settings]
        self.on(new.take.click, offer.take, taken, [new.files, new.title, new.password, model, new.offer_area])
        self.on(chosen.stop_fetching.click, do.stop_fetching)
        self._connect_follower(changes, clicks, offer.show, about, row)

    def _connect_follower(
        self,
        changes: Sequence[Any],
        clicks: Sequence[Any],
        act: Callable[..., list[Any]],
        inputs: Sequence[Any],
        outputs: Sequence[Any],
    ) -> None:
        """Let components follow changes, where only the last counts, and clicks that have an action of their own.

        Where the last counts, Gradio keeps an event back, and later fires all of the event that was under way then. Its
        action would come twice: *New document* took away what had been chosen meanwhile. So no change may have one.
        """
        self.aside(partial(gr.on, changes), act, inputs, outputs, trigger_mode="always_last")
        self.aside(partial(gr.on, clicks), act, inputs, outputs, trigger_mode="multiple")

    def _connect_chat(self, blocks: gr.Blocks) -> None:
        chat, manage, do = self.page.chat, self.page.chat.manage, self.actions
        options = [
            chat.temperature,
            chat.top_p,
            chat.max_tokens,
            chat.read_again,
            chat.reason,
        ]
        blocks.load(None, options, options, js="(...options) => stockpotFound(options)", **QUIET)
        gr.on([each.input for each in options], None, options, js="(...options) => stockpotLeft(options)", **QUIET)
        given = [chat.question, *options, chat.pages]
        entered = "(tab, question, ...options) => [tab, ...stockpotEntered(question, options)]"
        for each in (chat.question.submit, chat.pages.submit, chat.ask.click):
            self.on(each, do.ask.ask, given, js=entered)
        self.on(chat.unroll.click, do.ask.unroll)
        self.on(chat.earlier.edit, do.ask.edit, told="turn")
        self.on(chat.past.edit, do.ask.edit, told="turn")
        for each in (chat.earlier, chat.past):
            self.on(each.retry, do.ask.again, options, told="turn")
            self.on(each.like, do.ask.keep, told="kept", trigger_mode="multiple")
            self.on(each.submit, do.ask.search_whole, told="turn")
            self.on(each.stop, do.ask.stop_search, told="turn")
        document = self.page.document
        self.on(
            document.find.change,
            do.navigate.search_text,
            [document.find],
            [document.found],
            trigger_mode="always_last",
        )
        self.on(document.book.submit, do.ask.move, told="place")
        self.on(document.book.apply, do.ask.recap)
        self.on(document.book.retry, do.sweep.test)
        self.on(document.book.stop, do.sweep.stop_test)
        self.on(chat.never_mind.click, do.ask.never_mind)
        self.on(chat.stop.click, do.ask.stop_answer)
        self.on(manage.rename_what.input, do.manage.choose_renamed, [manage.rename_what], trigger_mode="multiple")
        for each in (manage.rename.click, manage.rename_to.submit):
            self.on(each, do.manage.rename, [manage.rename_what, manage.rename_to], done="Renamed.")
        deletes = {
            "session": manage.delete_session,
            "context": manage.delete_context,
            "documents": manage.delete_documents,
        }
        self._connect_confirm(manage.confirm, deletes, do.manage.ask_to_delete)

    def _connect_confirm(self, confirm: Confirm, deletes: Mapping[str, gr.Button], ask: Callable[..., Any]) -> None:
        """Connect the buttons that delete with the question before it.

        Args:
            confirm: components of the question.
            deletes: kind of things -> the button that deletes them.
            ask: action that asks about them.
        """
        for kind, button in deletes.items():
            self.on(button.click, partial(ask, kind), extra=confirm.parts)
        self.on(confirm.yes.click, self.actions.manage.delete, [confirm.named], confirm.parts, done="Deleted.")
        confirm.keep.click(unasked, None, confirm.parts, **QUIET)


def mark_of(value: Any) -> bytes:
    """Return a hash of the value of a prop."""
    return hashlib.sha256(repr(value).encode()).digest()


def speaking_with(request: gr.Request | None) -> AbstractContextManager[None]:
    """Use the language of the browser that sent a request."""
    return speaking(language_of(request.headers.get("accept-language", "") if request else ""))


def refusal(error: Exception) -> Any:
    """Return the notice with the reason of an error. Unexpected errors are logged with their traceback."""
    log_error(log, "refused", error)
    return gr.update(value=notice_of(phrase(error)))
