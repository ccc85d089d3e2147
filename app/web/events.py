"""What happens when something is pressed: do it, then show what the store says.

Every handler ends in `updates`, which sends the components whose picture has changed for this tab. Nothing here waits
for the model: work is asked of the worker, and two timers, outside Gradio's queue, show how it goes. What goes wrong is
said in the notice: outside the queue, Gradio shows nothing of an error.
"""

import asyncio
import hashlib
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import gradio as gr
from fastapi.concurrency import run_in_threadpool

from app.errors import log_error, phrase
from app.jobs.worker import Worker
from app.service import Service
from app.web.actions import Actions, unasked
from app.web.chat_panel import ChatPanel
from app.web.confirm import Confirm
from app.web.new_reading import NewReading
from app.web.reading_panel import ReadingPanel
from app.web.sidebar import Sidebar
from app.web.tab_state import Props, Selection, TabState
from app.web.views.markup import notice_of, read_out

log = logging.getLogger(__name__)

QUIET: dict[str, Any] = {"show_progress": "hidden", "api_visibility": "private", "queue": False}


@dataclass
class Tab:
    """What the server knows of one tab; Gradio copies the first one for every tab.

    Gradio runs the events of a tab side by side. Here one waits for the other, in the order in which they came, so
    that each goes on from what was chosen and sent before it, and so that the answers leave in that order too.

    selection: in this tab; listed: how often more of the lists were asked for in it; seen: name of a component -> mark
    of what it was sent last; turn: held by the event at hand.
    """

    selection: Selection = field(default_factory=Selection)
    listed: int = 0
    seen: dict[str, str] = field(default_factory=dict)
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)


@dataclass(frozen=True)
class Page:
    """The areas, and what ticks."""

    sidebar: Sidebar
    new: NewReading
    reading: ReadingPanel
    chat: ChatPanel
    kept_memory: gr.HTML
    memory_map: gr.HTML
    panel: gr.HTML
    where: gr.HTML
    notice: gr.HTML
    pulse: gr.Timer
    stream: gr.Timer

    def slots(self) -> dict[str, Any]:
        """The components that `TabState.props` speaks of."""
        return {
            "where": self.where,
            "contexts": self.sidebar.contexts,
            "more_contexts": self.sidebar.more_contexts,
            "session_area": self.sidebar.session_area,
            "sessions": self.sidebar.sessions,
            "more_sessions": self.sidebar.more_sessions,
            "new_view": self.new.area,
            "kept_area": self.new.kept_area,
            "kept": self.new.kept,
            "delete_kept": self.new.delete_kept,
            "more_kept": self.new.more_kept,
            "add_to": self.new.add_to,
            "more_add_to": self.new.more_add_to,
            "how": self.new.how,
            "more_how": self.new.more_how,
            "estimate": self.new.estimate,
            "add_documents": self.sidebar.add_documents,
            "reading_view": self.reading.area,
            "chat_view": self.chat.area,
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
            "live": self.chat.live,
            "edit_area": self.chat.edit_area,
            "edit_line": self.chat.edit_line,
            "ask": self.chat.ask,
            "stop": self.chat.stop,
            "rename_what": self.chat.manage.rename_what,
            "rename_to": self.chat.manage.rename_to,
            "export": self.chat.manage.export,
            "delete_session": self.chat.manage.delete_session,
            "kept_memory": self.kept_memory,
            "memory_map": self.memory_map,
            "panel": self.panel,
            "stream": self.stream,
        }


class Events:
    """The handlers of one page."""

    def __init__(self, page: Page, service: Service, worker: Worker) -> None:
        """page: what was built; service, worker: what it stands on."""
        self.page = page
        self.tab_state = TabState(service)
        new = page.new
        own = [name for name, components in new.own.items() for _ in components]
        self.actions = Actions(service, worker, self.tab_state, list(new.settings), own, list(new.presets))
        self.slots = page.slots()
        self.tab = gr.State(Tab())

    def updates(self, tab: Tab, shown: str) -> list[Any]:
        """What differs from what this tab was sent before. shown: what was done in it is there, and is sent later."""
        tab.listed = max(tab.listed, tab.selection.listed)
        tab.selection = replace(self.tab_state.settle(tab.selection), listed=tab.listed)
        props: Props = self.tab_state.props(tab.selection)
        out = []
        for name in self.slots:
            mark = hashlib.sha256(repr(props[name]).encode()).hexdigest()
            out.append(gr.skip() if name == shown or tab.seen.get(name) == mark else gr.update(**props[name]))
            tab.seen[name] = "" if name == shown else mark
        return out

    def handler(
        self, act: Callable[..., Any], extra: int, quiet: bool, told: str, shown: str, done: str
    ) -> Callable[..., Awaitable[list[Any]]]:
        """A handler that does something and then shows the result, or the sentence that says why not.

        Args:
            act: `act(selection, *inputs)` returns the new choice, or that and `extra` further updates.
            quiet: leave the notice alone, as ticks do, unless something goes wrong.
            told: name of what the event itself says; `act` is given it last.
            shown: slot of a component that shows what is done already: to be told at once could undo what came since.
            done: what is read out when it is done.
        """

        def work(request: gr.Request, event: gr.EventData, tab: Tab, inputs: tuple[Any, ...]) -> list[Any]:
            # Updates even where a plain value would do: Gradio sends those on at once, so none overtakes another.
            notice = gr.skip() if quiet else gr.update(value=read_out(done) if done else "")
            out, further = [gr.skip()] * len(self.slots), [gr.skip()] * extra
            known = bool(tab.seen)
            try:
                if not known:  # new, or the server was started anew meanwhile: its address knows what it shows
                    tab.selection = self.actions.load(request.query_params)
                try:
                    result = act(tab.selection, *inputs, *([getattr(event, told)] if told else []))
                    tab.selection, further = result if extra else (result, further)
                except Exception as error:
                    notice = refusal(error)
                before = tab.selection
                out = self.updates(tab, shown)
                if missing := self.tab_state.lost(before, tab.selection, known):
                    notice = gr.update(value=notice_of(missing))
            except Exception as error:  # the choice stands, and the next tick tries to show it again
                notice = refusal(error)
            return [*out, notice, *further]

        async def handle(request: gr.Request, event: gr.EventData, tab: Tab, *inputs: Any) -> list[Any]:
            async with tab.turn:
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
        shown: str = "",
        done: str = "",
        **how: Any,
    ) -> None:
        """Let an event do something, then show the result.

        Args:
            extra: components that `act` updates itself.
            how: further settings of Gradio's listener.
        """
        outputs = [*self.slots.values(), self.page.notice, *extra]
        listener(self.handler(act, len(extra), quiet, told, shown, done), [self.tab, *inputs], outputs, **how, **QUIET)

    def aside(
        self, listener: Any, act: Callable[..., list[Any]], inputs: Sequence[Any], outputs: Sequence[Any], **how: Any
    ) -> None:
        """Let an event update components that do not depend on what is chosen; it waits for no other event."""

        def handle(*given: Any) -> list[Any]:
            try:
                return [*act(*given), gr.skip()]
            except Exception as error:
                return [*[gr.skip()] * len(outputs), refusal(error)]

        listener(handle, inputs, [*outputs, self.page.notice], **how, **QUIET)

    def connect(self, blocks: gr.Blocks) -> None:
        """Connect everything; to be called while `blocks` is being built."""
        for each in (blocks.load, self.page.pulse.tick, self.page.stream.tick):
            self.on(each, lambda selection: selection, quiet=True)
        self.aside(blocks.load, self.actions.find_models, [], [self.page.new.model, self.page.new.unusable])
        self._connect_sidebar()
        self._connect_readings(blocks)
        self._connect_chat(blocks)

    def _connect_sidebar(self) -> None:
        sidebar, do = self.page.sidebar, self.actions
        self.on(sidebar.new.click, lambda selection: Selection())
        # A list shows at once what was chosen in it: no choice may be dropped because another is on its way.
        self.on(sidebar.contexts.input, do.choose_context, [sidebar.contexts], trigger_mode="multiple")
        self.on(sidebar.sessions.input, do.choose_session, [sidebar.sessions], trigger_mode="multiple")
        self.on(sidebar.hits.input, do.choose_hit, [sidebar.hits], [sidebar.hits], trigger_mode="multiple")
        for each in (sidebar.more_contexts, sidebar.more_sessions, self.page.new.more_kept, self.page.new.more_add_to):
            self.on(each.click, do.list_more)
        self.on(sidebar.new_session.click, do.new_session)
        self.on(sidebar.add_documents.click, do.add_documents)
        self.aside(sidebar.search.change, do.search, [sidebar.search], [sidebar.hits], trigger_mode="always_last")

    def _connect_readings(self, blocks: gr.Blocks) -> None:
        new, reading, do = self.page.new, self.page.reading, self.actions
        settings, presets = list(new.settings.values()), list(new.presets.values())
        own = [component for components in new.own.values() for component in components]
        self.aside(new.method.input, do.choose_method, [new.method], own)
        self.aside(new.model.input, do.choose_model, [new.model], [*settings, *presets])
        preset = partial(gr.on, [each.input for each in presets])
        self.aside(preset, do.choose_preset, [new.method, *presets], settings)
        form = [new.method, new.model, *settings]
        changes = [self.page.sidebar.new.click, *(field.change for field in form)]
        changed = partial(gr.on, [blocks.load, *changes])
        self.aside(changed, do.estimate, form, [new.estimate], trigger_mode="always_last")
        self.on(
            new.start.click,
            do.start_reading,
            [new.files, new.method, new.title, new.password, new.ocr, new.model, *settings],
            [new.files, new.title, new.password],
        )
        self.on(new.kept.input, do.choose_kept, [new.kept], shown="kept", trigger_mode="multiple")
        self.on(new.add_to.input, do.choose_add_to, [new.add_to], shown="add_to", trigger_mode="multiple")
        self._connect_confirm(new.confirm, {"documents": new.delete_kept}, do.ask_to_delete)
        self.on(new.sample.click, do.read_sample, form)
        self.on(reading.unlock.click, do.unlock, [reading.password], [reading.password])
        self.on(reading.password.submit, do.unlock, [reading.password], [reading.password])
        self.on(reading.leave_out.click, do.leave_out)
        self.on(reading.cancel.click, do.stop_reading)
        self.on(reading.resume.click, do.resume_reading)
        self.on(reading.ask_early.click, do.ask_early)
        removes = {"context": reading.discard, "documents": reading.discard_documents}
        self._connect_confirm(reading.confirm, removes, do.ask_to_remove)

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
            self.on(each, do.ask, given, js=entered)
        self.on(chat.unroll.click, do.unroll)
        self.on(chat.earlier.edit, do.edit, told="turn")
        self.on(chat.past.edit, do.edit, told="turn")
        self.on(chat.never_mind.click, do.never_mind)
        self.on(chat.stop.click, do.stop_answer)
        self.on(manage.rename_what.input, do.choose_renamed, [manage.rename_what], trigger_mode="multiple")
        for each in (manage.rename.click, manage.rename_to.submit):
            self.on(each, do.rename, [manage.rename_what, manage.rename_to], done="Renamed.")
        deletes = {
            "session": manage.delete_session,
            "context": manage.delete_context,
            "documents": manage.delete_documents,
        }
        self._connect_confirm(manage.confirm, deletes, do.ask_to_delete)

    def _connect_confirm(self, confirm: Confirm, deletes: Mapping[str, gr.Button], ask: Callable[..., Any]) -> None:
        """deletes: by the kind of what is to be deleted, the button for it; ask: asks about it."""
        for kind, button in deletes.items():
            self.on(button.click, partial(ask, kind), extra=confirm.parts)
        self.on(confirm.yes.click, self.actions.delete, [confirm.named], confirm.parts, done="Deleted.")
        confirm.keep.click(unasked, None, confirm.parts, **QUIET)


def refusal(error: Exception) -> Any:
    """The notice that says why something could not be done; what nobody expects is logged with its traceback."""
    log_error(log, "refused", error)
    return gr.update(value=notice_of(phrase(error)))
