"""Events that fail say a sentence, and lose nothing that was typed."""

from pathlib import Path

import gradio as gr
import pytest

from app.service import Service
from app.web.actions.ask import ChatActions
from app.web.actions.form import FormActions
from app.web.actions.manage import ManageActions
from app.web.actions.navigate import Navigation
from app.web.actions.read import ReadingActions
from app.web.page import AGAIN
from app.web.tab_state import TabState
from tests.app.helpers import add, read_through
from tests.app.web.test_events import Visitor, play


@pytest.fixture
def context(service: Service, book: Path) -> str:
    return read_through(service, add(service, book)).id


@pytest.mark.parametrize("within", ["the handler", "Gradio's checks of the fields"])
def test_each_event_that_fails_says_a_sentence(
    service: Service, context: str, monkeypatch: pytest.MonkeyPatch, within: str
) -> None:
    """*Ask* fell silent: Gradio refused a field before any handler ran, and the page showed nothing."""

    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("planted")

    if within == "the handler":
        for kind in (ChatActions, FormActions, ManageActions, Navigation, ReadingActions):
            for name in [name for name in vars(kind) if not name.startswith("_")]:
                monkeypatch.setattr(kind, name, fail)
        monkeypatch.setattr(TabState, "settle", fail)
    else:
        monkeypatch.setattr(gr.Blocks, "preprocess_data", fail)

    async def scene(blocks: gr.Blocks) -> None:
        tab = Visitor(blocks)
        tab.query = {"context": context}
        told = [fn for fn in blocks.fns.values() if "notice" in [each.elem_id for each in fn.outputs]]
        assert len(told) > 50
        for fn in told if within == "the handler" else [fn for fn in blocks.fns.values() if fn.fn]:
            said = await tab.fail(fn)
            assert "planted" in said, fn.targets
            assert within == "the handler" or said.endswith(AGAIN)

    play(service, scene)


def test_what_was_typed_for_one_document_is_not_shown_beside_another(
    service: Service, context: str, tmp_path: Path
) -> None:
    """A search in one text stayed beside another, with places that the other does not have."""
    path = tmp_path / "other.txt"
    path.write_text("Nothing of the kind stands here.", encoding="utf-8")
    other = read_through(service, add(service, path)).id

    async def scene(blocks: gr.Blocks) -> None:
        tab = Visitor(blocks)
        await tab.open(context=context)
        await tab.do("find", "change", {"find": "lighthouse"})
        assert "Cape Orlen" in tab.value("found")
        await tab.tick()
        assert tab.value("find") == "lighthouse"
        await tab.do("delete-context", "click")
        assert tab.shown["confirm-area"]["visible"]
        await tab.do("contexts", "input", {"contexts": other})
        assert (tab.value("find"), tab.value("found")) == ("", "")
        assert not tab.shown["confirm-area"]["visible"]

    play(service, scene)


@pytest.mark.parametrize("field", ["temperature", "top-p", "max-tokens"])
def test_a_number_that_is_none_is_refused_and_nothing_is_lost(service: Service, context: str, field: str) -> None:
    async def scene(blocks: gr.Blocks) -> None:
        tab = Visitor(blocks)
        await tab.open(context=context)
        for wrong in ("much", "nan", "1e999", "-3"):
            await tab.do("ask", "click", {"question": "Who kept the lamp?", field: wrong})
            assert wrong.replace("1e999", "number") in tab.said or "must be" in tab.said or "has 1 to" in tab.said
            assert not service.store.sessions.all(context)
        await tab.do("ask", "click", {"question": "Who kept the lamp?", field: ""})
        assert len(service.store.sessions.all(context)) == 1

    play(service, scene)
