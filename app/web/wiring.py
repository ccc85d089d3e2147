"""What happens when something is pressed: do it, then show what the store says.

Every handler ends in `updates`, which sends the components whose picture has changed for this tab. Nothing here waits
for the model: work is asked of the worker, and two timers, outside Gradio's queue, show how it goes.
"""

import hashlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import gradio as gr

from app.errors import expected, phrase
from app.service import Service
from app.web.actions import Actions
from app.web.new_reading import NewReading
from app.web.reading import Reading
from app.web.screen import Chosen, Props, Screen
from app.web.shelf import Shelf
from app.web.talk import Talk
from app.web.views.markup import notice_of
from app.worker import Worker

Seen = dict[str, str]
log = logging.getLogger(__name__)

QUIET: dict[str, Any] = {"show_progress": "hidden", "api_visibility": "private", "queue": False}


@dataclass(frozen=True)
class Page:
    """The areas, and what ticks."""

    shelf: Shelf
    new: NewReading
    reading: Reading
    talk: Talk
    panel: gr.HTML
    where: gr.HTML
    notice: gr.HTML
    pulse: gr.Timer
    stream: gr.Timer

    def slots(self) -> dict[str, Any]:
        """The components that `Screen.props` speaks of."""
        return {
            "where": self.where,
            "contexts": self.shelf.contexts,
            "session_area": self.shelf.session_area,
            "sessions": self.shelf.sessions,
            "new_view": self.new.area,
            "reading_view": self.reading.area,
            "talk_view": self.talk.area,
            "card": self.reading.card,
            "unlock_area": self.reading.unlock_area,
            "leave_out": self.reading.leave_out,
            "cancel": self.reading.cancel,
            "resume": self.reading.resume,
            "discard": self.reading.discard,
            "head": self.talk.head,
            "past": self.talk.past,
            "live": self.talk.live,
            "edit_area": self.talk.edit_area,
            "edit_line": self.talk.edit_line,
            "ask": self.talk.ask,
            "stop": self.talk.stop,
            "session_title": self.talk.manage.title,
            "export": self.talk.manage.export,
            "delete_session": self.talk.manage.delete_session,
            "panel": self.panel,
            "stream": self.stream,
        }


class Wiring:
    """The handlers of one page."""

    def __init__(self, page: Page, service: Service, worker: Worker) -> None:
        """page: what was built; service, worker: what it stands on."""
        self.page = page
        self.screen = Screen(service)
        self.actions = Actions(service, worker, self.screen, list(page.new.settings), list(page.new.groups))
        self.slots = page.slots()
        self.chosen, self.seen = gr.State(Chosen()), gr.State({})

    def updates(self, chosen: Chosen, seen: Seen) -> tuple[Chosen, Seen, list[Any]]:
        """What differs from what this tab was sent before."""
        chosen = self.screen.settle(chosen)
        props: Props = self.screen.props(chosen)
        sent, out = dict(seen), []
        for name in self.slots:
            mark = hashlib.sha256(repr(props[name]).encode()).hexdigest()
            out.append(gr.skip() if seen.get(name) == mark else gr.update(**props[name]))
            sent[name] = mark
        return chosen, sent, out

    def handler(
        self, act: Callable[..., Any], extra: int = 0, quiet: bool = False, told: str = ""
    ) -> Callable[..., list[Any]]:
        """A handler that does something and then shows the result, or the sentence that says why not.

        Args:
            act: `act(chosen, *inputs)` returns the new choice, or that and `extra` further updates.
            quiet: leave the notice alone, as ticks do.
            told: name of what the event itself says; `act` is given it last.
        """

        def handle(request: gr.Request, event: gr.EventData, chosen: Chosen, seen: Seen, *inputs: Any) -> list[Any]:
            before = chosen
            notice: Any = gr.skip() if quiet else ""
            further: Any = [gr.skip()] * extra
            try:
                if not seen:  # the server was started anew while this tab was open: its address knows what it shows
                    chosen = self.actions.load(request.query_params)
                result = act(chosen, *inputs, *([getattr(event, told)] if told else []))
                chosen, further = result if extra else (result, ())
            except Exception as error:
                log.log(
                    logging.INFO if expected(error) else logging.ERROR,
                    "refused: %s",
                    error,
                    exc_info=None if expected(error) else error,
                )
                notice = notice_of(phrase(error))
            chosen, seen, out = self.updates(chosen, seen)
            # What is not written back cannot undo the choice that another event made meanwhile.
            return [gr.skip() if chosen == before else chosen, seen, *out, notice, *further]

        return handle

    def on(
        self,
        listener: Any,
        act: Callable[..., Any],
        inputs: Sequence[Any] = (),
        extra: Sequence[Any] = (),
        quiet: bool = False,
        told: str = "",
    ) -> None:
        """Let an event do something, then show the result. extra: components that `act` updates itself."""
        state = [self.chosen, self.seen]
        outputs = [*state, *self.slots.values(), self.page.notice, *extra]
        listener(self.handler(act, len(extra), quiet, told), [*state, *inputs], outputs, **QUIET)

    def connect(self, blocks: gr.Blocks) -> None:
        """Connect everything; to be called while `blocks` is being built."""

        def load(request: gr.Request) -> list[Any]:
            chosen, seen, out = self.updates(self.actions.load(request.query_params), {})
            return [chosen, seen, *out]

        blocks.load(load, None, [self.chosen, self.seen, *self.slots.values()], **QUIET)
        blocks.load(self.actions.find_models, None, self.page.new.model, **QUIET)
        self.on(self.page.pulse.tick, lambda chosen: chosen, quiet=True)
        self.on(self.page.stream.tick, lambda chosen: chosen, quiet=True)
        self._connect_shelf()
        self._connect_readings(blocks)
        self._connect_talk()

    def _connect_shelf(self) -> None:
        shelf, do = self.page.shelf, self.actions
        self.on(shelf.new.click, lambda chosen: Chosen())
        self.on(shelf.contexts.input, do.choose_context, [shelf.contexts])
        self.on(shelf.sessions.input, do.choose_session, [shelf.sessions])
        self.on(shelf.hits.input, do.choose_session, [shelf.hits])
        self.on(shelf.new_session.click, do.new_session)
        shelf.search.change(do.search, shelf.search, shelf.hits, trigger_mode="always_last", **QUIET)

    def _connect_readings(self, blocks: gr.Blocks) -> None:
        new, reading, do = self.page.new, self.page.reading, self.actions
        new.method.input(do.choose_method, new.method, [new.budget, *new.groups.values()], **QUIET)
        settings = list(new.settings.values())
        form = [new.method, new.budget, new.model, *settings]
        changes = [self.page.shelf.new.click, *(field.change for field in form)]
        gr.on([blocks.load, *changes], do.estimate, form, new.estimate, trigger_mode="always_last", **QUIET)
        self.on(
            new.start.click,
            do.start_reading,
            [new.files, new.method, new.budget, new.title, new.password, new.ocr, new.model, *settings],
            [new.files, new.title, new.password],
        )
        self.on(new.sample.click, do.read_sample, [new.method, new.budget, new.model, *settings])
        self.on(reading.unlock.click, do.unlock, [reading.password], [reading.password])
        self.on(reading.password.submit, do.unlock, [reading.password], [reading.password])
        self.on(reading.leave_out.click, do.leave_out)
        self.on(reading.cancel.click, do.stop_reading)
        self.on(reading.resume.click, do.resume_reading)
        self.on(reading.discard.click, do.discard_reading)

    def _connect_talk(self) -> None:
        talk, manage, do = self.page.talk, self.page.talk.manage, self.actions
        given = [talk.question, talk.temperature, talk.top_p, talk.max_tokens]
        self.on(talk.question.submit, do.ask, given)
        self.on(talk.ask.click, do.ask, given)
        self.on(talk.past.edit, do.edit, told="turn")
        self.on(talk.never_mind.click, do.never_mind)
        self.on(talk.stop.click, do.stop_answer)
        self.on(manage.rename.click, do.rename, [manage.title])
        self.on(manage.title.submit, do.rename, [manage.title])
        doomed = gr.State([])
        confirm = [manage.confirm_area, manage.confirm_text, doomed]
        self.on(manage.delete_session.click, partial(do.doom, "session"), extra=confirm)
        self.on(manage.delete_context.click, partial(do.doom, "context"), extra=confirm)
        self.on(manage.delete_documents.click, partial(do.doom, "documents"), extra=confirm)
        self.on(manage.confirm.click, do.delete, [doomed], confirm)
        manage.keep.click(lambda: [gr.update(visible=False), gr.update(value=""), []], None, confirm, **QUIET)
