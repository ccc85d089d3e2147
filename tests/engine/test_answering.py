"""Answers from the text itself: what is read again answers alone, and leaves nothing but the turn."""

from __future__ import annotations

import contextlib
import json
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from engine import (
    Answer,
    AnswerPiece,
    AskOptions,
    Context,
    Conversation,
    Finder,
    Model,
    Reader,
    ReadText,
    Sampling,
    answer_from_text,
    make_method,
)
from engine.finding.finder import Signs
from engine.loops import answering
from engine.loops.answering import joined, read_alone, runs
from engine.models.thinking import Marks
from tests.engine.matrix import COVERING, TIGHT
from tests.engine.reading import loaded, read, with_budget

PLANTED = "The heron nested by the old mill. "
QUESTION = "Where did the heron nest?"
TEXT = "".join(f"In year {n} the river rose and people moved their cattle uphill. " for n in range(12))
TEXT = TEXT[: len(TEXT) // 2] + PLANTED + TEXT[len(TEXT) // 2 :]
KINDS = (
    "full",
    "exact",
    "infllm",
    "infinitehip",
    "recall",
    "locret-int8",
    "infinipot-both",
    "beacon",
)
every = pytest.mark.parametrize("name", KINDS)


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Search texts of a few hundred tokens too, let the memory begin an answer, and read one passage again."""
    monkeypatch.setattr(answering, "SHORT", 100)
    monkeypatch.setattr(answering, "WIDE", 0)
    monkeypatch.setattr(answering, "PASSAGES", 1)
    monkeypatch.setattr(answering, "LOOKED", 1e-9)  # of random weights


@pytest.fixture(scope="module")
def text(model: Model) -> ReadText:
    ids = model.encode(TEXT).ids
    return ReadText(ids, Finder(ids, model.decode, letters=60))


def asked(conversation: Conversation, text: ReadText, question: str = QUESTION, **options: Any) -> Answer:
    *_, last = answer_from_text(conversation, question, text, Sampling(max_tokens=8), AskOptions(**options))
    assert isinstance(last, Answer)
    return last


def state(of: Context | Conversation) -> dict[str, Tensor]:
    parts, _ = of.state()
    return {f"{part}.{name}": x.clone() for part, held in parts.items() for name, x in held.tensors.items()}


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def said(model: Model, text: ReadText, answer: Answer) -> str:
    return "".join(model.decode(text.ids[each.start : each.stop].tolist()) for each in answer.read_again)


@every
def test_the_planted_place_answers_alone_and_only_the_turn_stays(model: Model, text: ReadText, name: str) -> None:
    context = read(model, TIGHT[name], text.ids)
    before, first, second = state(context), Conversation(context), Conversation(context)
    for turn in range(2):
        answer = asked(first, text)
        assert PLANTED.strip() in said(model, text, answer)
        alone = Conversation(read_alone(context, text.ids, list(answer.read_again), lambda *_: None))
        *_, expected = alone.ask(QUESTION, Sampling(max_tokens=8))
        assert isinstance(expected, Answer)
        assert (answer.text, answer.passages) == (expected.text, expected.passages)
        second.replay(QUESTION, answer.text)
        assert same(state(first), state(second))
        assert first.turns == second.turns == turn + 1
    assert same(before, state(context))


def test_what_is_read_alone_equals_a_reading_of_these_words(model: Model, text: ReadText) -> None:
    """Sources name places of the whole text all the same."""
    context = read(model, TIGHT["locret"], text.ids)
    places = [range(20, 60), range(200, 260)]
    gap = model.encode("\n\n").ids
    words = torch.cat([torch.cat([text.ids[each.start : each.stop], gap]) for each in places])
    fresh = Conversation(read(model, make_method("full"), words, chunk=4096))
    alone = Conversation(read_alone(context, text.ids, places, lambda *_: None))
    answers = [list(each.ask(QUESTION, Sampling(max_tokens=8)))[-1] for each in (fresh, alone)]
    assert isinstance(answers[0], Answer)
    assert isinstance(answers[1], Answer)
    assert answers[0].text == answers[1].text
    inside = {token for each in places for token in each}
    assert answers[1].passages
    assert {each.start for each in answers[1].passages} <= inside


@every
@pytest.mark.parametrize("pieces", [3, 32])
def test_the_memory_goes_on_if_the_text_says_what_it_begins_with(
    model: Model, text: ReadText, name: str, pieces: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = read(model, TIGHT[name], text.ids)
    one, other = Conversation(context), Conversation(context)
    *_, own = other.ask(QUESTION, Sampling(max_tokens=8))
    assert isinstance(own, Answer)
    monkeypatch.setattr(answering, "BEGINNING", pieces)
    begun = asked(Conversation(context), text).from_memory
    assert begun == own.text if pieces == 32 else begun and own.text.startswith(begun)
    checked = []
    monkeypatch.setattr(answering, "sureness", lambda words, *told: checked.append(told) or answering.TRUSTED)
    answer = asked(one, text)
    assert (answer.text, answer.read_again, answer.from_memory) == (own.text, (), "")
    assert same(state(one), state(other))
    ((question, told, passages),) = checked
    assert (question, told) == (QUESTION, begun)
    assert any(PLANTED.strip() in each for each in passages)


def test_a_model_that_reasons_first_does_not_go_on_without(
    model: Model, text: ReadText, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answering, "TRUSTED", 0.0)
    context = read(model, TIGHT["exact"], text.ids)
    assert not asked(Conversation(context), text).read_again
    monkeypatch.setattr(model.chat, "marks", Marks("<think>", "</think>"))
    *_, answer = answer_from_text(
        Conversation(context), QUESTION, text, Sampling(max_tokens=8, max_reasoning=8), AskOptions()
    )
    assert isinstance(answer, Answer)
    assert answer.read_again


def test_where_the_memory_looked_is_read_again(model: Model, text: ReadText, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answering, "LOOKED", 1e9)
    monkeypatch.setattr(answering, "PASSAGES", 2)
    context = read(model, TIGHT["exact"], text.ids)
    answer = asked(Conversation(context), text)
    begun = Conversation(context)
    list(begun.ask(QUESTION, Sampling(max_tokens=8)))
    looked = begun.looked()
    sums = [float(looked[each.start : each.stop].sum()) for each in text.finder.passages]
    best = sorted(range(len(sums)), key=lambda at: -sums[at])[:2]
    assert [*answer.read_again] == joined([text.finder.passages[at] for at in best])


@every
@pytest.mark.parametrize("trusted", [True, False])
def test_passages_begin_where_the_memory_does_not_show_the_whole_text(
    model: Model, text: ReadText, name: str, trusted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They go on if the text says what they begin with. Otherwise the one answers that they looked at most."""
    monkeypatch.setattr(answering, "WIDE", 4)
    monkeypatch.setattr(answering, "sureness", lambda *told: answering.TRUSTED * trusted)
    context = read(model, TIGHT[name], text.ids)
    first, second = Conversation(context), Conversation(context)
    answer = asked(first, text)
    if name == "full":
        assert bool(answer.read_again) is not trusted
        assert trusted or answer.from_memory
        return
    wide = text.finder.find(Signs(QUESTION), 4)
    alone = Conversation(read_alone(context, text.ids, joined(wide), lambda *_: None))
    *_, own = alone.ask(QUESTION, Sampling(max_tokens=8))
    assert isinstance(own, Answer)
    looked = alone.looked()
    most = max(wide, key=lambda each: float(looked[each.start : each.stop].sum()))
    assert answer.read_again == (tuple(joined(wide)) if trusted else (most,))
    assert answer.from_memory == ""
    if trusted:
        assert (answer.text, answer.passages) == (own.text, own.passages)
    second.replay(QUESTION, answer.text)
    assert same(state(first), state(second))
    assert first.turns == 1


def test_sixteen_passages_have_a_bound_in_tokens_and_go_on_from_the_answer_before(
    model: Model, text: ReadText, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A passage in another script, or of numbers, has four times the tokens of 600 letters."""
    monkeypatch.setattr(answering, "WIDE", 4)
    monkeypatch.setattr(answering, "TRUSTED", 0.0)
    question = "Where did the heron nest by the river?"
    best = text.find(question, 4)
    monkeypatch.setattr(answering, "READ_WIDE", len(best[0]) + len(best[1]))
    context = read(model, TIGHT["exact"], text.ids)
    assert asked(Conversation(context), text, question).read_again == tuple(joined(best[:2]))
    follow = Conversation(context)
    follow.replay("Which bird nested there?", "A heron.")
    assert PLANTED.strip() in said(model, text, asked(follow, text, "When did people see it?"))


def test_words_alone_lead_a_model_that_looks_nowhere(model: Model, text: ReadText) -> None:
    """Nothing is begun, so the memory is asked once less."""
    context = read(model, TIGHT["exact"], text.ids)
    answer = asked(Conversation(context), replace(text, by_words=True))
    assert answer.read_again == tuple(text.find(QUESTION, 1))
    assert answer.from_memory == ""
    *_, own = Conversation(read_alone(context, text.ids, [*answer.read_again], lambda *_: None)).ask(
        QUESTION, Sampling(max_tokens=8)
    )
    assert isinstance(own, Answer)
    assert answer.text == own.text


@pytest.mark.parametrize("name", COVERING)
def test_a_memory_shows_a_text_whole_if_nothing_leaves_it(model: Model, text: ReadText, name: str) -> None:
    for method, shown in ((TIGHT[name], name.startswith("full")), (with_budget(TIGHT[name], None), True)):
        assert read(model, method, text.ids).memory.shows(len(text.ids)) == shown


def test_a_question_about_no_place_is_left_to_the_memory(model: Model, text: ReadText) -> None:
    context = read(model, TIGHT["exact"], text.ids)
    for question in ("What is it about?", "Who is it?"):
        one, other = Conversation(context), Conversation(context)
        *_, own = other.ask(question, Sampling(max_tokens=8))
        answer = asked(one, text, question)
        assert isinstance(own, Answer)
        assert (answer.text, answer.read_again, answer.from_memory) == (own.text, (), "")
        assert same(state(one), state(other))


def test_words_that_all_passages_have_lead_to_reading_again(model: Model, text: ReadText) -> None:
    """Regression: in a short text, where all words stand in many passages, the memory answered unchecked."""
    answer = asked(Conversation(read(model, TIGHT["exact"], text.ids)), text, "Where did people move their cattle?")
    assert "moved their cattle" in said(model, text, answer)


@every
def test_named_tokens_answer_alone(model: Model, text: ReadText, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The end of the text, which a window always sees, and the planted place have no part in it."""
    context = read(model, TIGHT[name], text.ids)
    answer = asked(Conversation(context), ReadText(text.ids, text.finder, torch.arange(50, 90)))
    assert answer.read_again == (range(50, 90),)
    assert all(50 <= each.start < each.end <= 90 for each in answer.passages)
    long = torch.arange(300, len(text.ids))
    answer = asked(Conversation(context), ReadText(text.ids, text.finder, long), "What of the heron and of year 11?")
    assert answer.read_again
    assert "year 11" in said(model, text, answer)
    assert all(each.start >= 300 for each in answer.read_again)
    (planted,) = text.find(QUESTION, 1)
    for named in (torch.arange(planted.start + 5), torch.arange(planted.start + 5, len(text.ids))):
        answer = asked(Conversation(context), ReadText(text.ids, text.finder, named))
        assert {token for each in answer.read_again for token in each} <= {*named.tolist()}, "nor the rest of a passage"
    whole = asked(Conversation(context), ReadText(text.ids, text.finder, long), "What is it about?")
    assert whole.read_again == (range(300, len(text.ids)),)
    behind = ReadText(text.ids, text.finder, torch.arange(520, len(text.ids)))
    assert asked(Conversation(context), behind).read_again == (range(520, len(text.ids)),), "no word is there"
    monkeypatch.setattr(answering, "LONGEST_READ_AGAIN", 150)
    assert asked(Conversation(context), ReadText(text.ids, text.finder, long), "Who?").read_again == (range(300, 450),)


@every
def test_pinned_tokens_are_read_beside_what_is_found(
    model: Model, text: ReadText, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    context, pinned = read(model, TIGHT[name], text.ids), torch.arange(7, 30)
    (planted,) = text.find(QUESTION, 1)
    for small in (False, True):
        answer = asked(Conversation(context), ReadText(text.ids, text.finder, None, pinned, small))
        (first, *others) = answer.read_again
        assert (first, answer.from_memory) == (range(7, 30), "")
        assert any(each.start <= planted.start and planted.stop <= each.stop for each in others)
        answer = asked(Conversation(context), ReadText(text.ids, text.finder, None, pinned, small), "What is it about?")
        assert answer.read_again == (), "the memory answers for the whole text"
    answer = asked(Conversation(context), ReadText(text.ids, text.finder, torch.arange(50, 90), pinned))
    assert answer.read_again == (range(7, 30), range(50, 90))
    monkeypatch.setattr(answering, "LONGEST_READ_AGAIN", 45)
    answer = asked(Conversation(context), ReadText(text.ids, text.finder, torch.arange(50, 90), pinned))
    assert answer.read_again == (range(7, 12), range(50, 90))


def test_only_what_has_been_read_is_found(model: Model, text: ReadText) -> None:
    reader = Reader(model, TIGHT["exact"], text.ids, chunk=64)
    done = next(step.tokens_done for step in reader.run() if step.tokens_done >= 200) - len(model.chat.prefix)
    answer = asked(Conversation(reader.so_far()), ReadText(text.ids[:done], text.finder), QUESTION + " By the river?")
    assert answer.read_again
    assert all(each.start < done for each in answer.read_again)
    assert PLANTED not in said(model, text, answer)


def test_a_question_about_what_is_not_read_yet_is_left_to_the_memory(
    model: Model, text: ReadText, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: nothing at all was read again, and the answer came from that."""
    monkeypatch.setattr(Conversation, "looked", lambda self: torch.zeros(self.context.source_tokens))
    reader = Reader(model, TIGHT["exact"], text.ids, chunk=64)
    done = next(step.tokens_done for step in reader.run() if step.tokens_done >= 200) - len(model.chat.prefix)
    one, other = Conversation(reader.so_far()), Conversation(reader.so_far())
    *_, own = other.ask(QUESTION, Sampling(max_tokens=8))
    answer = asked(one, ReadText(text.ids[:done], text.finder))
    assert isinstance(own, Answer)
    assert (answer.text, answer.read_again, answer.from_memory) == (own.text, (), "")
    assert same(state(one), state(other))


@every
def test_a_cancelled_question_leaves_no_trace(model: Model, text: ReadText, name: str) -> None:
    conversation = Conversation(read(model, TIGHT[name], text.ids))
    before = state(conversation)
    left = 0

    def stop() -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise InterruptedError

    for passes in (0, 1, 2, 3, 5, 8):
        left = passes
        events = answer_from_text(conversation, QUESTION, text, Sampling(max_tokens=8), AskOptions(stop))
        with contextlib.suppress(InterruptedError), contextlib.closing(events) as pieces:
            assert isinstance(next(pieces), AnswerPiece)
        assert same(before, state(conversation))
        assert conversation.turns == 0


def test_how_far_passages_are_read_is_told(model: Model, text: ReadText, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page said "Thinking" for a minute while a slow processor read them."""
    monkeypatch.setattr(answering, "default_chunk", lambda on_cpu: 16)
    told: list[tuple[int, int]] = []
    context = read(model, TIGHT["full"], text.ids)
    answer = asked(Conversation(context), text, on_passages=lambda *far: told.append(far))
    total = told[0][1]
    assert sum(map(len, answer.read_again)) < total < len(text.ids)
    assert [done for done, _ in told] == [*range(0, total, 16), total]
    assert {each for _, each in told} == {total}


def test_a_saved_conversation_goes_on_as_an_uninterrupted_one(model: Model, text: ReadText) -> None:
    context = read(model, TIGHT["infinipot-both"], text.ids)
    first = Conversation(context)
    asked(first, text)
    parts, meta = first.state()
    second = Conversation.load(context, loaded(parts), json.loads(json.dumps(meta)))
    one, other = asked(first, text), asked(second, text)
    assert (one.text, one.read_again) == (other.text, other.read_again)
    assert same(state(first), state(second))


def test_places_that_touch_become_one() -> None:
    assert joined([range(30, 40), range(0, 10), range(10, 20), range(15, 18)]) == [range(0, 20), range(30, 40)]
    assert runs(torch.tensor([1, 2, 3, 7, 9, 10])) == [range(1, 4), range(7, 8), range(9, 11)]
    assert runs(torch.tensor([], dtype=torch.long)) == []
