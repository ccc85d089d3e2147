"""Second looks: which passages stand out, and that a question asked twice leaves no other trace."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch

from engine import Answer, AskOptions, Context, Conversation, Model, Sampling, SettingsError
from engine.loops.passes import condense
from engine.methods.exact import Exact
from engine.methods.infinipot import InfiniPot
from engine.methods.infinitehip import InfiniteHiP
from engine.methods.infllm import InfLLM
from engine.methods.recall import Recall
from engine.parts.archive.focus import AROUND, CLOSE, FocusedEntries, SecondLook
from engine.parts.mass import NOT_IN_SOURCE, AttentionMass
from tests.engine.reading import read

TEXT = 1200
FAR = 1000
LONG = 6000


def attention(**given: float) -> torch.Tensor:
    """Make attention by position; p100=2.0 gives 2 to token 100."""
    mass = torch.zeros(TEXT)
    for name, share in given.items():
        mass[int(name[1:])] = share
    return mass


def looked_at(mass: torch.Tensor) -> set[int]:
    focus = FocusedEntries.of(mass, torch.arange(TEXT, dtype=torch.int32), FAR)
    assert focus is not None
    return set(focus.behind(FAR).tolist())


def test_what_stands_out_is_looked_at_with_its_neighbours() -> None:
    assert looked_at(attention(p300=0.5, p310=0.2)) == set(range(300 - AROUND, 311 + AROUND))


def test_look_alikes_are_left_out() -> None:
    """Check a passage with less than a quarter of the best one's attention, and the fourth best."""
    assert looked_at(attention(p100=0.06, p300=0.5, p600=0.1, p800=0.3)) == {
        *range(300 - AROUND, 301 + AROUND),
        *range(800 - AROUND, 801 + AROUND),
    }


def test_what_the_window_shows_does_not_count() -> None:
    assert looked_at(attention(p300=0.1, p1100=0.9)) == set(range(300 - AROUND, 301 + AROUND))
    assert FocusedEntries.of(attention(p1100=1.0), torch.arange(TEXT, dtype=torch.int32), FAR) is None


@pytest.mark.parametrize(("times", "stands_out"), [(4.0, True), (2.0, False), (1.0, False)])
@pytest.mark.parametrize("text", [600, 1200, 100_000])
def test_where_nothing_stands_out_everything_is_looked_at(text: int, times: float, stands_out: bool) -> None:
    """Check an overview, which gives little attention to everything."""
    mass = torch.ones(text)
    mass[400:449] = times
    assert (FocusedEntries.of(mass, torch.arange(text, dtype=torch.int32), text) is not None) == stands_out


def test_where_nothing_stands_out_the_best_passages_may_be_looked_at_closely() -> None:
    """Check that the third pass is judged like the first: a passage stands out, or all is searched."""
    source = torch.arange(100_000, dtype=torch.int32)
    overview, found = torch.ones(100_000), torch.zeros(100_000)
    places = range(2000, 82_000, 4000)  # more than CLOSE
    for rank, place in enumerate(places):
        overview[place : place + 49] = 2.0 - 0.01 * rank
    found[6010] = 1.0
    first = SecondLook(2).after(overview, source, len(source))
    assert (first.again, first.focus is not None) == (1, True)
    looked = set(first.focus.behind(len(source)).tolist())  # type: ignore[union-attr]
    assert {place for place in places if place in looked} == set(places[:CLOSE])
    assert first.after(overview, source, len(source)) == SecondLook(0)
    second = first.after(found, source, len(source))
    assert (second.again, set(second.focus.entries.tolist())) == (  # type: ignore[union-attr]
        0,
        set(range(6010 - AROUND, 6011 + AROUND)),
    )
    assert SecondLook(1).after(overview, source, len(source)) == SecondLook(0)
    assert SecondLook(2).after(found, source, len(source)).again == 0


def test_where_nothing_got_any_attention_there_is_nothing_to_look_at_closely() -> None:
    """Regression: the next pass searched no entries and failed, which hid that the model's logits were not finite."""
    source = torch.arange(TEXT, dtype=torch.int32)
    for nothing in (torch.zeros(TEXT), torch.full((TEXT,), float("nan"))):
        assert SecondLook(2).after(nothing, source, FAR) == SecondLook(0)


def test_what_the_window_shows_is_looked_at_when_it_has_left_it() -> None:
    focus = FocusedEntries.of(attention(p300=1.0), torch.arange(TEXT, dtype=torch.int32), FAR)
    assert focus is not None
    assert set(focus.behind(TEXT).tolist()) == {*range(300 - AROUND, 301 + AROUND), *range(FAR, TEXT)}


def test_what_was_said_is_looked_at_in_any_case() -> None:
    said = torch.full((50,), NOT_IN_SOURCE, dtype=torch.int32)
    focus = FocusedEntries.of(attention(p300=1.0), torch.cat([torch.arange(TEXT, dtype=torch.int32), said]), TEXT + 10)
    assert focus is not None
    text = set(range(300 - AROUND, 301 + AROUND))
    assert set(focus.behind(TEXT + 10).tolist()) == text | set(range(TEXT, TEXT + 10))
    # When the turn before and 20 tokens of the answer have left the window:
    assert set(focus.behind(TEXT + 70).tolist()) == text | set(range(TEXT, TEXT + 70))
    assert set(focus.behind(TEXT).tolist()) == text


Looking = Exact | InfLLM | InfiniteHiP | Recall
METHODS: dict[str, Looking] = {
    "exact": Exact(budget=160, top_k=64, store="float32"),
    "infllm": InfLLM(budget=160, block=8, units=4, query_block=16, store="float32"),
    "infinitehip": InfiniteHiP(budget=300, stages="8:16:128:1 8:4:32:1", first_keep=64, store="float32"),
    "recall": Recall(budget=400, gist="infinipot", stages="8:16:128:1 8:4:32:1", store="float32"),
}


@pytest.fixture(params=METHODS)
def method(request: pytest.FixtureRequest) -> Looking:
    return METHODS[request.param]


@pytest.fixture(scope="module")
def context_of(model: Model) -> Callable[..., Context]:
    """Return a function that reads the long text with settings, once with each."""
    return functools.cache(lambda method, **other: read(model, dataclasses.replace(method, **other), long_text(), 256))


@pytest.fixture
def focused(monkeypatch: pytest.MonkeyPatch) -> list[FocusedEntries | None]:
    """Collect every focus from now on, with limits so low that a random model's best passage stands out."""
    monkeypatch.setattr("engine.parts.archive.focus.AHEAD", 0.0)
    found: list[FocusedEntries | None] = []
    choose = FocusedEntries.of

    def noted(*given: Any) -> FocusedEntries | None:
        found.append(choose(*given))
        return found[-1]

    monkeypatch.setattr(FocusedEntries, "of", staticmethod(noted))
    return found


def long_text() -> torch.Tensor:
    """Make a long text of random tokens."""
    return torch.randint(10, 200, (LONG,), generator=torch.Generator().manual_seed(2))


def answer_of(conversation: Conversation, question: str, on_pass: Callable[[], None] = lambda: None) -> Answer:
    *_, answer = conversation.ask(question, Sampling(max_tokens=3), AskOptions(on_pass))
    assert isinstance(answer, Answer)
    return answer


def test_the_answer_looks_only_where_the_question_found_something(
    context_of: Callable[..., Context], method: Looking, focused: list[FocusedEntries | None]
) -> None:
    conversation = Conversation(context_of(method))
    layers = range(len(conversation.context.model.spec.layers)) if method.name == "recall" else ()
    held = {each for layer in layers for each in conversation.memory.positions(layer).flatten().tolist()}
    answer_of(conversation, "Who?")
    [focus] = focused
    assert focus is not None
    there = conversation.memory.archive.host.source()[focus.entries].tolist()  # type: ignore[attr-defined]
    assert len(there) < LONG // 3
    near = set(range(LONG - 400, LONG)) | set(range(4))
    looked = set(conversation.mass.total.nonzero()[:, 0].tolist())
    assert looked <= near | set(there) | held
    assert looked & set(there) - near - held


def test_a_question_asked_twice_is_remembered_once(
    context_of: Callable[..., Context], method: Looking, focused: list[FocusedEntries | None]
) -> None:
    once, twice = (Conversation(context_of(method, looks=looks)) for looks in (1, 2))
    for question in ("Who?", "And where is it that they went?"):
        first, second = (answer_of(each, question) for each in (once, twice))
        assert first.prompt_tokens == second.prompt_tokens
        assert first.answer_tokens == second.answer_tokens
    assert len(focused) == 2
    assert once.memory.seen == twice.memory.seen
    assert once.usage().entries == twice.usage().entries


def test_a_turn_that_is_replayed_looks_where_it_looked(
    context_of: Callable[..., Context], method: Looking, focused: list[FocusedEntries | None]
) -> None:
    context = context_of(method)
    said, replayed = Conversation(context), Conversation(context)
    replayed.replay("Who?", answer_of(said, "Who?").text)
    assert focused[0] is not None
    assert focused[1] is not None
    assert torch.equal(focused[0].entries, focused[1].entries)
    for conversation in (said, replayed):
        assert conversation.memory.archive.second_look.focus is None  # type: ignore[attr-defined]


def test_a_catalyst_is_no_question(model: Model) -> None:
    """Check this since its attention would decide where the question searches."""
    method = InfiniPot(budget=400)
    memory = read(model, method, long_text(), 256).memory.fork()
    memory.mass = AttentionMass(LONG, model.device)
    condense(model, method, memory)
    assert float(memory.mass.sums.sum()) == 0.0


def test_the_first_look_can_be_stopped(
    context_of: Callable[..., Context], method: Looking, focused: list[FocusedEntries | None]
) -> None:
    context = context_of(method)
    conversation, plain = Conversation(context), Conversation(context)
    seen = conversation.memory.seen

    def stop() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        answer_of(conversation, "Who?", stop)
    assert (focused, conversation.memory.seen, conversation.turns) == ([], seen, 0)
    assert answer_of(conversation, "Who?").text == answer_of(plain, "Who?").text


def test_a_short_text_is_looked_at_once(model: Model, focused: list[FocusedEntries | None]) -> None:
    method = dataclasses.replace(METHODS["exact"], budget=300)
    answer_of(Conversation(read(model, method, torch.arange(10, 100))), "Who?")
    assert focused == []


def test_a_question_asked_three_times_in_vain_is_answered_as_one_asked_once(
    context_of: Callable[..., Context],
    method: Looking,
    focused: list[FocusedEntries | None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("engine.parts.archive.focus.AHEAD", float("inf"))
    looked = []
    close = FocusedEntries.close

    def noted(*given: Any) -> FocusedEntries:
        looked.append(close(*given))
        return looked[-1]

    monkeypatch.setattr(FocusedEntries, "close", staticmethod(noted))
    once, thrice = (Conversation(context_of(method, looks=looks)) for looks in (1, 3))
    for number, question in enumerate(("Who?", "And where is it that they went?"), start=1):
        assert answer_of(once, question).text == answer_of(thrice, question).text
        assert (focused, len(looked)) == ([None] * 2 * number, number)
        assert 0 < len(looked[-1].entries) < LONG
    assert torch.allclose(once.mass.total, thrice.mass.total, atol=1e-5)
    assert once.usage().entries == thrice.usage().entries


@pytest.mark.parametrize("method", METHODS.values())
def test_looks_are_one_to_three(method: Looking) -> None:
    with pytest.raises(SettingsError, match="looks is one of 1, 2, 3, not 4"):
        dataclasses.replace(method, looks=4)
