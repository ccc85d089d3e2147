"""The page's events as Gradio runs them: events of one tab may overlap, and errors are shown."""

import asyncio
import html
import re
import threading
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import gradio as gr
import pytest
from gradio.state_holder import SessionState

from app.errors import AppError
from app.jobs.uploads import name_of
from app.jobs.worker import Worker
from app.service import Service
from app.web.list_props import LISTED, Props
from app.web.page import build_page
from app.web.tab_state import Selection, TabState
from sessions import InUse, StoreCorrupt
from tests.app.helpers import add, add_context, add_document, read_through


class Visitor:
    """One tab: its events go through Gradio, and `shown` has the props that its browser shows, by elem_id."""

    def __init__(self, blocks: gr.Blocks) -> None:
        self.blocks, self.state = blocks, SessionState(blocks)
        self.shown: dict[str, dict[str, Any]] = {}
        self.query: dict[str, str] = {}

    async def do(self, target: str, event: str, values: Mapping[str, Any] | None = None, **told: Any) -> None:
        """Fire an event of a component.

        Args:
            target: elem_id of its component, or "" for the page and its timers.
            values: elem_id -> value that a person entered; other components keep theirs.
            told: data of the event itself.
        """
        names = {id: getattr(block, "elem_id", None) or "" for id, block in self.blocks.blocks.items()}
        fns = self.blocks.fns.values()
        does = next(fn for fn in fns if (target, event) in [(names.get(id or 0, ""), each) for id, each in fn.targets])
        inputs = [None if each.stateful else (values or {}).get(each.elem_id, each.value) for each in does.inputs]
        for name, value in (values or {}).items():
            self.shown.setdefault(name, {})["value"] = value
        request, data = gr.Request(headers={}, query_params=self.query), gr.EventData(None, told)
        sent = await self.blocks.process_api(does, inputs, self.state, request, event_data=data)
        for block, update in zip(does.outputs, sent["data"], strict=True):
            if not block.stateful:
                changes = update if isinstance(update, dict) else {"value": update}
                self.shown.setdefault(names[block._id], {}).update(changes)

    async def fail(self, does: Any) -> str:
        """Return the sentence that the page says after an event that fails."""
        inputs = [None if each.stateful else each.value for each in does.inputs]
        request, data = gr.Request(headers={}, query_params=self.query), gr.EventData(None, {"turn": ""})
        try:
            sent = await self.blocks.process_api(does, inputs, self.state, request, event_data=data)
        except AppError as error:
            return str(error)
        said = [update for block, update in zip(does.outputs, sent["data"], strict=True) if block.elem_id == "notice"]
        return "".join(str(update.get("value", "")) for update in said)

    async def open(self, **query: str) -> None:
        self.query = query
        await self.do("", "load")

    async def tick(self) -> None:
        await self.do("", "tick")

    def value(self, name: str) -> str:
        return str(self.shown[name]["value"])

    @property
    def session(self) -> str:
        return self.value("sessions")

    @property
    def editing(self) -> bool:
        return bool(self.shown["edit-area"]["visible"])

    @property
    def said(self) -> str:
        """Return the text of the notice."""
        return html.unescape(re.sub("<.*?>", "", self.value("notice")))


def play(service: Service, scene: Callable[[gr.Blocks], Coroutine[Any, Any, None]]) -> None:
    """Run a scene on the page. Its worker does not run, so nothing happens by itself."""

    async def whole() -> None:
        await scene(build_page(service, Worker(service)))  # inside the loop, because Gradio would open one of its own

    with ThreadPoolExecutor(1) as alone:  # in a thread without another loop, such as that of browser tests
        alone.submit(lambda: asyncio.run(whole())).result()


def session_with_a_turn(service: Service, context: str, title: str) -> tuple[str, str]:
    """Return the ids of a session and of its turn."""
    session = service.store.sessions.add(context, title).id
    turn = service.store.turns.add(session, f"Who is {title}?").id
    service.store.turns.finish(turn, answer="Nobody.")
    return session, turn


@pytest.fixture
def context(service: Service, book: Path) -> str:
    return read_through(service, add(service, book)).id


def hold_first(monkeypatch: pytest.MonkeyPatch) -> tuple[threading.Event, threading.Event]:
    """Hold the next picture back after it is made, until the second event is set, or half a second has passed.

    Returns:
        An event that is set when the picture is held, and the one that releases it.
    """
    held, go, make = threading.Event(), threading.Event(), TabState.props

    def props(tab_state: TabState, selection: Selection) -> Props:
        made = make(tab_state, selection)
        if not held.is_set():
            held.set()
            go.wait(0.5)
        return made

    monkeypatch.setattr(TabState, "props", props)
    return held, go


async def overlapping(
    monkeypatch: pytest.MonkeyPatch, first: Coroutine[Any, Any, None], second: Coroutine[Any, Any, None]
) -> None:
    """Start the second event while the first is being handled, and end it if possible."""
    held, go = hold_first(monkeypatch)
    early = asyncio.create_task(first)
    await asyncio.to_thread(held.wait)
    await second
    go.set()
    await early


def test_a_tick_that_began_before_a_click_does_not_undo_what_the_click_showed(
    service: Service, context: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It noted the old picture as sent, so after Never mind the tab kept it for ever."""
    session, turn = session_with_a_turn(service, context, "Maren")

    async def scene(blocks: gr.Blocks) -> None:
        tab, other = Visitor(blocks), Visitor(blocks)
        await tab.open(session=session)
        await other.open(session=session)
        await overlapping(monkeypatch, tab.tick(), tab.do("past", "edit", turn=turn))
        assert tab.editing
        await tab.do("never-mind", "click")
        assert not tab.editing
        await tab.do("past", "edit", turn=turn)
        await other.tick()
        assert (tab.editing, other.editing) == (True, False)

    play(service, scene)


def test_what_is_clicked_while_the_page_opens_stands(
    service: Service, context: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scene(blocks: gr.Blocks) -> None:
        tab = Visitor(blocks)
        await overlapping(monkeypatch, tab.open(context=context), tab.do("new-reading", "click"))
        await tab.tick()
        assert tab.shown["new-view"]["visible"]
        assert 'data-query="?new=1"' in tab.value("where")

    play(service, scene)


def test_a_picture_that_cannot_be_made_says_why_and_the_choice_stands(
    service: Service, context: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The click did nothing, and the selection was lost."""
    (one, _), (two, _) = (session_with_a_turn(service, context, each) for each in ("Maren", "Tobias"))
    make, settle = TabState.props, TabState.settle

    def locked(tab_state: TabState, selection: Selection) -> Props:
        raise InUse("Another process keeps the database locked.")

    def deleted_at_once(tab_state: TabState, selection: Selection) -> Selection:
        """Delete in another tab the thing that was just found."""
        settled = settle(tab_state, selection)
        if any(row.id == two for row in service.store.sessions.all()):
            service.store.sessions.delete(two)
        return settled

    async def scene(blocks: gr.Blocks) -> None:
        tab = Visitor(blocks)
        monkeypatch.setattr(TabState, "props", locked)
        await tab.open(session=one)
        assert tab.said == "Another process keeps the database locked."
        monkeypatch.setattr(TabState, "props", make)
        await tab.tick()
        assert tab.session == one

        monkeypatch.setattr(TabState, "props", locked)
        await tab.do("sessions", "input", {"sessions": two})
        assert tab.said == "Another process keeps the database locked."
        monkeypatch.setattr(TabState, "props", make)
        await tab.tick()
        assert tab.session == two

        monkeypatch.setattr(TabState, "settle", deleted_at_once)
        await tab.tick()
        assert two in tab.said
        await tab.tick()
        assert tab.session == one

    play(service, scene)


def test_what_was_deleted_elsewhere_or_before_is_told(service: Service, context: str) -> None:
    """An old address, or a tab with a deleted context, led to another place without a message."""
    (one, _), (two, _) = (session_with_a_turn(service, context, each) for each in ("Maren", "Tobias"))

    async def scene(blocks: gr.Blocks) -> None:
        addresses = {
            "context c-nothere": {"context": "c-nothere"},
            "session s-nothere": {"context": context, "session": "s-nothere"},
            "context c-nothere that can be added to": {"add_to": "c-nothere"},
        }
        for gone, address in addresses.items():  # nobody knows whether it ever was there
            old = Visitor(blocks)
            await old.open(**address)
            assert old.said == f"There is no {gone}: it may have been deleted."
        tab = Visitor(blocks)
        await tab.open(session=one)
        await tab.do("sessions", "input", {"sessions": two})
        assert not tab.said
        service.store.sessions.delete(two)
        await tab.tick()
        assert (tab.session, "it was deleted" in tab.said) == (one, True)

    play(service, scene)


def test_what_is_refused_beside_the_choice_is_said_too(
    service: Service, context: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Gradio itself refused a budget below 1 without a message, and a search that failed showed none."""

    def damaged(query: str, limit: int) -> list[Any]:
        raise StoreCorrupt("The index is damaged.")

    async def scene(blocks: gr.Blocks) -> None:
        tab = Visitor(blocks)
        await tab.open()
        await tab.do("new-reading", "click")
        await tab.do("budget-exact", "change")
        assert "There is room" in tab.value("estimate")
        for budget in (0, -1):
            form = {"budget-infinipot": budget, "method": "infinipot"}
            refused = f"'infinipot' needs a budget of 128 or more, not {budget}."
            await tab.do("budget-infinipot", "change", form)
            assert html.unescape(re.sub("<.*?>", "", tab.value("estimate"))) == refused
            await tab.do("sample", "click", form)
            assert tab.said == refused
        monkeypatch.setattr(service.store.search, "turns", damaged)
        await tab.do("search", "change", {"search": "lamp"})
        assert tab.said == "The index is damaged."

    play(service, scene)


def test_what_was_found_can_be_opened_again(service: Service, context: str) -> None:
    """A radio button that is on fires no event when it is clicked."""
    (one, said), (two, _) = (session_with_a_turn(service, context, each) for each in ("Maren", "Tobias"))

    async def scene(blocks: gr.Blocks) -> None:
        tab = Visitor(blocks)
        await tab.open(session=two)
        await tab.do("search", "change", {"search": "Maren"})
        assert [id for _, id in tab.shown["hits"]["choices"]][:1] == [said]  # passages follow
        await tab.do("hits", "input", {"hits": said})
        assert (tab.session, tab.shown["hits"]["value"]) == (one, None)

    play(service, scene)


def test_documents_that_are_kept_are_read_again_or_deleted(service: Service, context: str) -> None:
    """The page listed contexts alone: documents without one stayed for good, and another method needed the file
    again.
    """
    [keeper] = service.store.contexts.documents(context)
    fox = add_document(service, "Fox")

    async def scene(blocks: gr.Blocks) -> None:
        tab = Visitor(blocks)
        await tab.open(new="1")
        assert [id for _, id in tab.shown["kept"]["choices"]] == [fox.id, keeper.id]
        await tab.do("kept", "input", {"kept": [keeper.id, fox.id]})
        await tab.do("start", "click", {"method": "streaming", "budget-streaming": 64, "title": "Both"})
        [job] = service.store.jobs.all(status="queued")
        given = job.payload["documents"], job.payload["files"], job.payload["title"], job.payload["settings"]["budget"]
        assert given == ([keeper.id, fox.id], [], "Both", 64)
        assert "<h1>Both</h1>" in tab.value("reading-card")
        assert name_of(service, replace(job, payload={**job.payload, "title": None})) == "The Keeper and Fox"
        assert [name for name, id in tab.shown["contexts"]["choices"] if id == job.id] == ["Both\nwaiting"]

        await tab.do("new-reading", "click")
        assert (tab.shown["kept"]["value"], tab.shown["delete-kept"]["interactive"]) == ([], False)
        await tab.do("start", "click", {"method": "streaming", "budget-streaming": 64})
        assert "or choose documents" in tab.said
        await tab.do("kept", "input", {"kept": [fox.id, keeper.id]})
        service.store.documents.delete(fox.id)  # by another
        await tab.tick()
        assert tab.shown["kept"]["value"] == [keeper.id]
        await tab.do("delete-kept", "click")
        assert "the document “The Keeper” with 1 context (“The Keeper”)" in tab.value("kept-confirm-text")
        await tab.do("kept-confirm", "click")
        assert not tab.shown["kept-row"]["visible"]
        assert service.store.documents.all() == service.store.contexts.all() == []

    play(service, scene)


def test_documents_and_readings_are_renamed_where_their_session_is(service: Service, context: str) -> None:
    """The page could not rename a book that was dropped in as scan0001.pdf."""
    [book] = service.store.contexts.documents(context)

    async def scene(blocks: gr.Blocks) -> None:
        tab = Visitor(blocks)
        await tab.open(context=context)  # before there is a session
        choices = [["what was read", context], ["the document “The Keeper”", book.id]]
        assert tab.shown["rename-what"]["choices"] == choices
        assert (tab.value("rename-what"), tab.value("rename-to")) == (context, "The Keeper")
        await tab.do("rename", "click", {"rename-what": book.id, "rename-to": "The Keeper of the Lamp"})
        assert ">The Keeper of the Lamp</a></h1>" in tab.value("context-head")
        await tab.do("rename", "click", {"rename-what": context, "rename-to": "Finely read"})
        assert "<h1>Finely read</h1>" in tab.value("context-head")
        assert ">The Keeper of the Lamp</a>: " in tab.value("context-head")
        assert tab.shown["contexts"]["choices"][0][0].startswith("Finely read\n")
        await tab.do("rename", "click", {"rename-what": context, "rename-to": " "})
        assert ">The Keeper of the Lamp</a></h1>" in tab.value("context-head")

        session, _ = session_with_a_turn(service, context, "Maren")
        await tab.tick()
        assert (tab.value("rename-what"), tab.value("rename-to")) == (session, "Maren")
        await tab.do("rename-what", "input", {"rename-what": book.id})
        assert (tab.value("rename-what"), tab.value("rename-to")) == (book.id, "The Keeper of the Lamp")
        await tab.do("rename-to", "submit", {"rename-what": book.id, "rename-to": "The Keeper"})
        assert (tab.value("rename-what"), tab.value("rename-to")) == (book.id, "The Keeper")
        await tab.do("rename-what", "input", {"rename-what": session})
        await tab.do("rename", "click", {"rename-what": session, "rename-to": "About Maren"})
        assert tab.value("rename-to") == "About Maren"
        assert (service.store.sessions.get(session).title, service.store.documents.get(book.id).title) == (
            "About Maren",
            "The Keeper",
        )

    play(service, scene)


def test_the_page_is_told_what_has_arrived(service: Service, context: str) -> None:
    """The page's script removes exactly these words from the field, and nothing that was typed after them."""

    async def scene(blocks: gr.Blocks) -> None:
        tab = Visitor(blocks)
        await tab.open(context=context)
        assert 'data-asked="" data-said=""' in tab.value("where")
        await tab.do("ask", "click", {"question": " Who kept\nthe lamp? "})
        [turn] = service.store.turns.all(tab.session)
        assert f'data-asked="{turn.id}" data-said="Who kept\nthe lamp?"' in tab.value("where")
        await tab.do("question", "submit", {"question": "And then?"})  # before the answer
        assert "still being answered" in tab.said
        assert f'data-asked="{turn.id}"' in tab.value("where")

    play(service, scene)


def test_the_panel_names_a_model_in_a_folder_by_the_folders_own_name(service: Service) -> None:
    """The whole path was shown until the model was loaded."""

    async def scene(blocks: gr.Blocks) -> None:
        tab = Visitor(blocks)
        await tab.open()
        assert ">tiny, loaded when it is needed<" in tab.value("panel")

    play(service, scene)


def test_the_memory_map_is_sent_once_whatever_becomes_of_the_numbers(
    service: Service, book: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was sent with each change of the process memory, although it is four times as long as the numbers."""
    row, taken = read_through(service, add(service, book), "streaming"), [10**9]
    monkeypatch.setattr("engine.memory_report", lambda: {"process_bytes": taken[0], "gpu_bytes": 0, "mapped_bytes": 0})

    async def scene(blocks: gr.Blocks) -> None:
        tab = Visitor(blocks)
        await tab.open(context=row.id)
        assert "% remembered</title>" in tab.value("book")
        assert "darker: remembers more" in tab.value("book")
        assert tab.shown["find-area"]["visible"]
        tab.shown.clear()
        taken[0] = 2 * 10**9
        await tab.tick()
        assert "2.0 GB" in tab.value("panel")
        sent = {name for name, props in tab.shown.items() if "value" in props}
        assert not sent & {"book", "kept-memory"}
        await tab.do("new-reading", "click")
        assert "map" not in tab.value("book").partition("<p")[0]
        assert not tab.shown["find-area"]["visible"]

    play(service, scene)


def test_no_event_does_its_action_again(service: Service) -> None:
    """Where only the last of many counts, Gradio fires all of one again: settings changed meanwhile were filled in."""

    async def scene(blocks: gr.Blocks) -> None:
        fns = blocks.fns.values()
        acts = [fn for fn in fns if not {"estimate", "offer-line"} & {each.elem_id for each in fn.outputs}]
        assert len(acts) > 60
        for fn in (each for each in fns if each.trigger_mode == "always_last"):
            for target in {target for target in fn.targets if target[1] != "load"}:  # which are fired one by one
                assert [each for each in acts if target in each.targets and each is not fn] == [], target

    play(service, scene)


def test_what_a_person_chose_is_not_sent_back(service: Service, context: str) -> None:
    """The next update of a list had the first choice, and undid a second one that was made before it came."""
    fox = add_document(service, "Fox")

    async def scene(blocks: gr.Blocks) -> None:
        tab = Visitor(blocks)
        await tab.open(new="1")
        tab.shown.clear()
        await tab.do("kept", "input", {"kept": [fox.id]})
        service.store.documents.rename(fox.id, "The Fox")
        del tab.shown["kept"]
        await tab.tick()
        assert next(name for name, _ in tab.shown["kept"].pop("choices")).startswith("The Fox · ")
        assert tab.shown["kept"] == {"__type__": "update"}, "its value is left as the person chose it"
        service.store.contexts.delete(context)  # by another
        await tab.do("contexts", "input", {"contexts": context})
        assert tab.shown["contexts"]["value"] is None, "a choice that is refused is put back"

    play(service, scene)


def test_of_long_lists_the_latest_are_shown_and_more_where_they_are_asked_for(service: Service, book: Path) -> None:
    """600 contexts were sent with every change of one of them, and 600 documents with every choice of one."""
    document = service.store.documents.get(add(service, book)[0])
    rows = [add_context(service, document) for _ in range(LISTED + 30)]
    oldest, latest = rows[0].id, rows[-1].id
    for row in rows:
        service.store.contexts.update(row.id, status="ready", tokens_read=9)
    documents = [document.id, *(add_document(service, f"Letter {number}").id for number in range(LISTED + 6))]
    sessions = [service.store.sessions.add(oldest, f"Session {number}").id for number in range(LISTED + 3)]
    for session in sessions:
        service.store.turns.add(session, "Who?")

    async def scene(blocks: gr.Blocks) -> None:
        def listed(name: str) -> list[str]:
            return [value for _, value in tab.shown[name]["choices"]]

        tab = Visitor(blocks)
        await tab.open(context=latest)
        assert listed("contexts") == [oldest, *(row.id for row in reversed(rows[-LISTED + 1 :]))], "the last used first"
        assert tab.value("more-contexts") == "Show more documents (30)"
        third = Visitor(blocks)
        await third.open(context=rows[2].id)
        choices = [value for _, value in third.shown["contexts"]["choices"]]
        assert (choices[-1], len(choices)) == (rows[2].id, LISTED + 1), "what is chosen is always there"
        assert third.value("more-contexts") == "Show more documents (29)"
        await tab.do("contexts", "input", {"contexts": oldest})
        assert listed("sessions") == sessions[: -LISTED - 1 : -1]
        assert tab.value("more-sessions") == "Show more chats (3)"
        await tab.do("more-contexts", "click")
        for selection in (oldest, latest):
            await tab.do("contexts", "input", {"contexts": selection})
            assert len(listed("contexts")) == len(rows), "it stays so"
            assert not tab.shown["more-contexts"]["visible"]

        new = Visitor(blocks)
        await new.open(add_to=rows[2].id)
        shown = [id for _, id in new.shown["kept"]["choices"]]
        assert shown == documents[: -LISTED - 1 : -1], "the last first, and none that the context has read"
        assert new.value("more-kept") == "Show more documents (6)"
        choices = [id for _, id in new.shown["add-to"]["choices"]]
        assert (choices[:2], choices[-1], len(choices)) == (["", oldest], rows[2].id, 1 + LISTED + 1)
        assert new.value("more-add-to") == "Show more documents (29)"
        await new.do("more-kept", "click")
        assert [len(new.shown[name]["choices"]) for name in ("kept", "add-to")] == [len(documents) - 1, 1 + len(rows)]
        assert not new.shown["more-kept"]["visible"]
        assert not new.shown["more-add-to"]["visible"]

    play(service, scene)
