"""An introduction is made once, in the background, of questions that the text can answer."""

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import engine
from app.asking import introduction
from app.asking.introduction import (
    MOST_TRIED,
    QUESTIONS,
    Introduction,
    can_introduce,
    grounded,
    introduce,
    load_introduction,
    passage_at,
    sensible,
    singles_out,
    telling,
)
from app.jobs.work import Stopped
from app.jobs.worker import Worker
from app.listing import details
from app.reading.open_context import open_context
from app.service import Service
from app.web.tab_state import Selection, TabState
from app.web.views.welcome import welcome
from sessions import INTRODUCE, ContextRow, NotFound
from tests.app.helpers import SHORT, add, answered, in_process, read_through, wait_for

SUMMARY = "The harbours and their lighthouses stood for many winters. The Pharaoh Cheops owned each pyramid. And"
PLACES = ("Hollow", "Tarvel", "Quent", "Orlen", "Brimsby", "Castor", "Delving", "Esker", "Farrow", "Garsdale")


@pytest.fixture
def context(service: Service, tmp_path: Path) -> ContextRow:
    """Return a text whose paragraphs are about different places."""
    path = tmp_path / "Places.txt"
    paragraphs = [
        f"The harbour of {place} was built in {1700 + number} by a widow of that town. Her brother Lorenz paid for the "
        f"lighthouse of {place}, which was lit for the first time {number + 3} winters later. Since then nobody has "
        "been lost on the rocks of the harbours, where the lighthouses stood for many winters, and the keepers have "
        "been proud of it and have written every night into a book."
        for number, place in enumerate(PLACES)
    ]
    path.write_text("\n\n".join(paragraphs), encoding="utf-8")
    return read_through(service, add(service, path))


class Script:
    """Answers in place of the model: what it says to each question, and the passage that the answer rests on."""

    def __init__(self, maker: Any, summary: str = SUMMARY) -> None:
        self.maker, self.summary, self.asked = maker, summary, []
        self.rests = True

    def __call__(self, question: str, tokens: int) -> Any:
        self.maker._look()
        self.asked.append(question)
        place = next((each for each in PLACES if each in question), "")
        text, at = self.summary, range(1)
        if question.startswith("Here is"):
            text = f"Who paid for the lighthouse of {place}?"
        elif place:
            text = "Lorenz did."
            document = self.maker.service.document_cache.document(self.maker.row.document_ids[0])
            start = document.text.index(f"lighthouse of {place if self.rests else 'Hollow'}")
            at = self.maker.opened.stream.between(self.maker.row.document_ids[0], start, start + 30)
        passage = engine.Passage(at[0], at[-1] + 1, 1.0)
        return SimpleNamespace(text=text, finish_reason="stop", passages=[passage])


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> list[Script]:
    """Return the scripts of the makers, as they are begun."""
    begun: list[Script] = []

    def ask(maker: Any, question: str, tokens: int) -> Any:
        if not begun or begun[-1].maker is not maker:
            begun.append(Script(maker))
        return begun[-1](question, tokens)

    monkeypatch.setattr(introduction._Maker, "_ask", ask)
    return begun


def test_it_has_a_summary_and_questions_that_rest_on_their_passages(
    service: Service, context: ContextRow, scripted: list[Script]
) -> None:
    made = introduce(service, context.id, lambda: False)
    assert made.summary == "The harbours and their lighthouses stood for many winters."
    assert len(set(made.questions)) == QUESTIONS
    assert all(each.startswith("Who paid for the lighthouse of ") for each in made.questions)
    assert (made.done, load_introduction(service.store, context.id)) == (True, made)
    before = len(scripted[0].asked)
    assert introduce(service, context.id, lambda: False) == made
    assert len(scripted[0].asked) == before, "it is made once"


def test_a_question_whose_answer_rests_elsewhere_is_not_kept(
    service: Service, context: ContextRow, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ask(maker: Any, question: str, tokens: int) -> Any:
        script = Script(maker, summary="I did not find that.")
        script.rests = False
        return script(question, tokens)

    monkeypatch.setattr(introduction._Maker, "_ask", ask)
    made = introduce(service, context.id, lambda: False)
    assert made.summary == "", "a summary that says nothing"
    assert made.tried > QUESTIONS
    assert all("Hollow" in each for each in made.questions), "only of the passage on which all answers rest"


def test_a_model_that_makes_no_questions_leaves_none(
    service: Service, context: ContextRow, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was asked about names then: "What does the text say about Customer?"."""
    asked: list[str] = []

    def ask(maker: Any, question: str, tokens: int) -> Any:
        asked.append(question)
        if question.startswith("Here is"):
            return SimpleNamespace(text="The best answer to this passage is", finish_reason="stop", passages=[])
        return Script(maker)(question, tokens)

    monkeypatch.setattr(introduction._Maker, "_ask", ask)
    assert introduce(service, context.id, lambda: False).questions == ()
    assert sum(each.startswith("Here is") for each in asked) == introduction.PATIENCE


def test_a_question_names_what_the_text_says_few_times() -> None:
    passage = "The Customer shall pay within thirty days. The seat of arbitration is Geneva."
    text = f"{passage} " + "The Customer shall be heard. " * 20
    assert not singles_out("What shall the Customer do?", passage, text)
    assert singles_out("Where is the seat of arbitration?", passage, text)


def test_a_summary_has_a_new_sentence_with_a_subject_each_time(
    service: Service, context: ContextRow, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A contract was summed up with one sentence, three times."""
    told = (
        "The harbours and their lighthouses stood for many winters. The lighthouses and harbours stood for winters. "
        "And the keepers of the lighthouse wrote something every night into a book. The keepers have written nothing."
    )
    monkeypatch.setattr(
        introduction._Maker, "_ask", lambda maker, question, tokens: Script(maker, told)(question, tokens)
    )
    first, *_, last = told.split(". ")
    assert introduce(service, context.id, lambda: False).summary == f"{first}. {last}"


def test_several_documents_have_a_sentence_each(
    service: Service, context: ContextRow, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "Bridges.txt"
    other.write_text("The bridges of Anselm were painted by shepherds, and the painters were praised for it.", "utf-8")
    both = read_through(service, [*context.document_ids, *add(service, other)])
    said = {
        "Places": "The harbours and their lighthouses stood for many winters. They stood for the keepers.",
        "Bridges": "The bridges were painted by shepherds. The harbours and lighthouses stood.",
    }

    def ask(maker: Any, question: str, tokens: int) -> Any:
        title = next((each for each in said if f"“{each}”" in question), "")
        return Script(maker, said.get(title, ""))(question if not title else "", tokens)

    monkeypatch.setattr(introduction._Maker, "_ask", ask)
    summary = introduce(service, both.id, lambda: False).summary
    assert summary.splitlines() == [f"{title}: {text.split('. ')[0]}." for title, text in said.items()]


def test_what_was_made_is_kept_when_it_is_stopped_and_goes_on_from_there(
    service: Service, context: ContextRow, scripted: list[Script], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(introduction, "LOOK_SEC", 0.0)
    looks = iter([False] * 3)
    with pytest.raises(Stopped):
        introduce(service, context.id, lambda: next(looks, True))
    made = load_introduction(service.store, context.id)
    assert made is not None
    assert (bool(made.summary), len(made.questions), made.done) == (True, 1, False)
    whole = introduce(service, context.id, lambda: False)
    assert whole.questions[:1] == made.questions
    assert whole.done
    assert not any(each == introduction.SUM_UP for each in scripted[-1].asked), "the summary is not made again"


def test_a_real_model_makes_one_and_no_chat_remembers_it(service: Service, context: ContextRow) -> None:
    """The tiny model has random weights: none of its questions can be kept."""
    held = introduction.open_context(service, context.id).context.memory.seen
    made = introduce(service, context.id, lambda: False)
    assert (made.questions, made.done) == ((), True)
    assert 0 < made.tried <= MOST_TRIED
    assert introduction.open_context(service, context.id).context.memory.seen == held
    assert not service.store.sessions.all(context.id)


def test_a_deleted_context_gets_none(
    service: Service, context: ContextRow, scripted: list[Script], monkeypatch: pytest.MonkeyPatch
) -> None:
    introduction.open_context(service, context.id)
    real = introduction._Maker.summary

    def summary(maker: Any) -> str:
        service.store.contexts.delete(context.id)
        return real(maker)

    monkeypatch.setattr(introduction._Maker, "summary", summary)
    with pytest.raises(NotFound):
        introduce(service, context.id, lambda: False)
    assert load_introduction(service.store, context.id) is None


def test_it_makes_way_for_a_question_at_once_and_a_deletion_ends_it(
    service: Service, context: ContextRow, monkeypatch: pytest.MonkeyPatch
) -> None:
    under_way = threading.Event()

    def slow(service: Service, context_id: str, should_stop: Any) -> None:
        under_way.set()
        wait_for(should_stop, "something to stop for")
        under_way.clear()
        raise Stopped

    monkeypatch.setattr("app.jobs.worker.introduce", slow)
    worker = Worker(service, introduces=True)
    worker.start()
    try:
        job = worker.introduce(context.id)
        assert job is not None
        assert worker.introduce(context.id) == service.store.jobs.get(job.id), "it is queued once"
        assert under_way.wait(60)
        session = service.store.sessions.add(context.id).id
        answered(service, worker, session, SHORT)
        assert under_way.wait(60), "it goes on afterwards"
        service.store.contexts.delete(context.id)
        wait_for(lambda: not under_way.is_set(), "it to end")
    finally:
        worker.stop()


def test_it_looks_for_a_question_within_a_few_tokens(
    service: Service, context: ContextRow, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A question with a passage was read in one pass, and a person's question waited for its end."""
    maker = introduction._Maker(service, open_context(service, context.id), lambda: False)
    looks: list[None] = []
    monkeypatch.setattr(maker, "_look", lambda: looks.append(None))
    asked = introduction.ASK.format("The harbour of Orlen was built in 1703. " * 9)
    maker._ask(asked, 1)
    assert len(looks) >= maker.opened.model.turn_length(asked) // introduction.PASS_TOKENS > 9


def test_each_reading_is_introduced_where_that_is_wanted(service: Service, book: Path) -> None:
    worker = Worker(service, introduces=True)
    worker.start()
    try:
        context = read_by(worker, service, book)
        wait_for(lambda: (load_introduction(service.store, context) or Introduction()).done, "its introduction")
    finally:
        worker.stop()
    assert worker.introduce(context) is None, "it is made"
    assert [job.status for job in service.store.jobs.all(kind=INTRODUCE)] == ["done"]


def read_by(worker: Worker, service: Service, book: Path) -> str:
    from app.jobs.uploads import copy_in
    from app.reading.documents import IngestOptions

    with book.open("rb") as handle:
        job = worker.ingest(copy_in(service.home, [(book.name, handle)]), "exact", {"budget": 320}, IngestOptions())
    wait_for(lambda: bool(service.store.jobs.get(job.id).progress.get("context")), "the context")
    context = str(service.store.jobs.get(job.id).progress["context"])
    wait_for(lambda: service.store.contexts.get(context).status == "ready", "the reading to end")
    return context


def test_it_is_shown_where_the_chat_is_still_empty(
    service: Service, context: ContextRow, scripted: list[Script], capsys: pytest.CaptureFixture[str]
) -> None:
    tab_state = TabState(service)
    job = Worker(service).introduce(context.id)
    empty = tab_state.props(Selection(context.id))["past"]["value"]
    assert "Writing a summary" in empty
    assert "About 2 pages in 1 section." in empty
    made = introduce(service, context.id, lambda: False)
    assert job is not None
    service.store.jobs.request_cancel(job.id)
    shown = tab_state.props(Selection(context.id))["past"]["value"]
    assert made.summary in shown
    assert shown.count('data-action="suggested"') == QUESTIONS
    assert "Writing a summary" not in shown
    facts = details(service, "context", service.store.contexts.get(context.id))
    assert facts["introduction"] == {"summary": made.summary, "questions": list(made.questions), "done": True}
    assert facts["job"] is None
    status, out, _ = in_process(service.home, capsys, "show", context.id)
    assert status == 0
    assert f"summary: {made.summary}" in out
    assert out.count("  question: Who paid for the lighthouse of ") == QUESTIONS


def test_the_demo_model_does_not_offer_it(service: Service) -> None:
    assert not can_introduce("pocket")
    assert not can_introduce("pocket:8bit")
    assert can_introduce("smollm2")


def test_text_of_a_model_is_never_markup() -> None:
    made = Introduction("<img src=x>", ("Who is <b>?",), done=True)
    shown = welcome([], ready=True, about="", made=made, making=False, model="<i>")
    assert "<img" not in shown
    assert "<b>" not in shown
    assert "<i>" not in shown


@pytest.mark.parametrize(
    ("question", "kept"),
    [
        ("Who paid for the lighthouse of Tarvel?", True),
        ("What does this passage say about the lighthouse of Tarvel?", False),
        ("Can you tell me who paid for the lighthouse of Tarvel?", False),
        ("Who paid for the pyramid of Cheops?", False),
        ("Who paid?", False),
        ("", False),
    ],
)
def test_a_question_stands_by_itself_and_is_about_its_passage(question: str, kept: bool) -> None:
    assert sensible(question, "Her brother Lorenz paid for the lighthouse of Tarvel, which was lit.") is kept


@pytest.mark.parametrize(
    ("sentence", "kept"),
    [
        ("It is about the lighthouse of Tarvel.", True),
        ("It is about the lighthouse of Tarvel, its builders and Cheops.", False),
        ("It was built in 1872, the lighthouse of Tarvel.", False),
        ("It is good.", False),
    ],
)
def test_a_sentence_of_a_summary_has_the_names_of_the_text(sentence: str, kept: bool) -> None:
    assert grounded(sentence, telling("Lorenz paid for the lighthouse of Tarvel.")) is kept


def test_passages_are_whole_sentences_of_one_paragraph() -> None:
    sentence = "The harbour of Tarvel was built by a widow of that town, and it stands. "
    text = "Chapter I\n\n" + sentence * 4 + "\n\n" + sentence * 20
    begin, end = passage_at(text, 0) or (0, 0)
    assert text[begin:end] == (sentence * 4).strip()
    begin, end = passage_at(text, len(text) // 2 + 3) or (0, 0)
    assert text[begin:].startswith("The harbour")
    assert text[begin:end].endswith("stands.")
    assert "\n" not in text[begin:end]
    assert passage_at("Short.\n\nToo short.", 0) is None
