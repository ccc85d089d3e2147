"""Reading again: what a question looks at, where not all of it is remembered; and that it leaves no other trace."""

from __future__ import annotations

import contextlib
import json
from typing import Any
from unittest.mock import MagicMock

import pytest
import torch
from torch import Tensor

from engine import Answer, Context, Conversation, Method, Model, Reader, Sampling, make_method
from engine.passes import condense
from engine.records import DEVICE
from engine.rereading import AROUND, MOST, to_read_again
from engine.sources import REACH
from tests.engine.reading import loaded, read
from tests.engine.test_methods import TIGHT

TOKENS = 1500
QUESTION = "Who was it that came to the house?"
FORGETFUL: dict[str, Method] = {
    "infinipot": make_method("infinipot", budget=900, prompt="Sum up."),
    "infinipot-nuc": make_method("infinipot", budget=900, novelty_share=1.0, share="heads", store="int8"),
    "locret": make_method("locret", budget=400, chunk=400, stabilizers=16, local=12),
    "locret-int4": make_method("locret", budget=400, chunk=400, stabilizers=16, local=12, store="int4", share="all"),
}
forgetful = pytest.mark.parametrize("method", FORGETFUL.values(), ids=FORGETFUL)


@pytest.fixture(scope="module")
def text() -> Tensor:
    return torch.randint(4, 260, (TOKENS,), generator=torch.Generator().manual_seed(3))


def asked(conversation: Conversation, text: Tensor | None) -> Answer:
    *_, last = conversation.ask(QUESTION, Sampling(max_tokens=8), text=text)
    assert isinstance(last, Answer)
    return last


def state(of: Context | Conversation) -> dict[str, Tensor]:
    parts, _ = of.state()
    return {f"{part}.{name}": x.clone() for part, held in parts.items() for name, x in held.tensors.items()}


def attention(*places: int) -> Tensor:
    """Given to places of a text, to the first the most."""
    mass = torch.zeros(TOKENS)
    for rank, place in enumerate(places):
        mass[place] = 1.0 / (1 + rank)
    return mass


def test_the_passages_that_got_most_attention_are_read_best_first() -> None:
    first, second, third = to_read_again(attention(700, 200, 1200, 450), torch.zeros(TOKENS))
    for passage, place in ((first, 700), (second, 200), (third, 1200)):
        assert passage.tolist() == list(range(place - AROUND, place + AROUND + 1))
    assert MOST == 3


def test_no_token_is_read_twice_nor_any_beyond_the_text() -> None:
    first, second = to_read_again(attention(TOKENS - 1, TOKENS - 2 - 2 * REACH), torch.zeros(TOKENS))
    assert first.tolist() == list(range(TOKENS - 1 - AROUND, TOKENS))
    assert second.tolist() == list(range(TOKENS - 2 - 2 * REACH - AROUND, TOKENS - 1 - AROUND))


def test_what_is_remembered_whole_is_not_read_again() -> None:
    remembered = torch.ones(TOKENS)
    assert to_read_again(attention(300), remembered) == []
    remembered[300 + AROUND] = 0.5
    assert len(to_read_again(attention(300), remembered)) == 1
    assert to_read_again(torch.zeros(TOKENS), torch.zeros(TOKENS)) == []


@forgetful
def test_what_was_read_again_is_forgotten_with_the_answer(model: Model, text: Tensor, method: Method) -> None:
    """The conversation is as if question and answer had been said without; the context is never touched."""
    context = read(model, method, text)
    before = state(context)
    first, second = Conversation(context), Conversation(context)
    for turn in range(2):
        answer = asked(first, text)
        assert 2 * AROUND < answer.read_again <= MOST * (2 * REACH + 1 + 2 * AROUND)
        second.replay(QUESTION, answer.text)
        mine, other = state(first), state(second)
        assert mine.keys() == other.keys()
        for name, tensor in mine.items():
            torch.testing.assert_close(tensor, other[name], rtol=0, atol=0)
        assert first.turns == second.turns == turn + 1
    after = state(context)
    assert all(torch.equal(before[name], after[name]) for name in before)


@forgetful
def test_the_budget_holds_while_passages_are_read_again(model: Model, text: Tensor, method: Method) -> None:
    assert method.budget is not None
    conversation, seen = Conversation(read(model, method, text)), []
    events = conversation.ask(
        QUESTION, Sampling(max_tokens=8), lambda: seen.append(conversation.usage().entries[DEVICE]), text=text
    )
    *_, answer = events
    assert isinstance(answer, Answer)
    assert answer.read_again
    assert max(seen) > answer.usage.entries[DEVICE], "while it is answered there is more than after it"
    assert max(seen) <= method.budget + method.passing(model.spec)


def test_nothing_is_condensed_for_passages_that_have_no_room(
    model: Model, text: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The memory was condensed for each of them, before what was said and behind it."""
    context, condensed = read(model, FORGETFUL["locret"], text), []
    conversation = Conversation(context)

    def counted(*given: Any) -> Any:
        condensed.append(given)
        return condense(*given)

    monkeypatch.setattr("engine.conversation.condense", counted)
    *_, last = conversation.ask(QUESTION * 7, Sampling(max_tokens=4), text=text)
    assert isinstance(last, Answer)
    assert last.read_again == 0
    assert len(condensed) <= 2


def test_an_answer_rests_on_what_was_read_again(model: Model, text: Tensor) -> None:
    """Its attention is counted where the passages stand in the text."""
    conversation = Conversation(read(model, FORGETFUL["locret"], text))
    assert asked(conversation, None).read_again == 0
    remembered = conversation.memory.remembered(TOKENS)
    answer = asked(Conversation(conversation.context), text)
    places = torch.cat([torch.arange(each.start, each.end) for each in answer.passages])
    assert bool(remembered[places].eq(0).any()), "of tokens that no head remembers"


@forgetful
def test_a_cancelled_question_leaves_no_trace(model: Model, text: Tensor, method: Method) -> None:
    conversation = Conversation(read(model, method, text))
    before = state(conversation)
    for passes in (1, 2, 3, 4):
        stop = MagicMock(side_effect=[*[None] * passes, InterruptedError])
        with (
            contextlib.suppress(InterruptedError),
            contextlib.closing(conversation.ask(QUESTION, on_pass=stop, text=text)) as events,
        ):
            next(events)
        after = state(conversation)
        assert before.keys() == after.keys()
        assert all(torch.equal(before[name], after[name]) for name in before)
        assert conversation.turns == 0


def test_only_as_much_as_has_been_read_is_read_again(
    model: Model, text: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the question looks at the last token so far, and nothing is left around it."""
    reader = Reader(model, FORGETFUL["locret"], text, chunk=64)
    done = next(step.tokens_done for step in reader.run() if step.tokens_done >= 1000) - len(model.chat.prefix)
    conversation = Conversation(reader.so_far())
    fed: list[Tensor] = []
    feed = conversation._feed

    def spy(ids: list[int], *args: Any, **more: Any) -> Tensor:
        fed.append(more.get("source", torch.empty(0)))
        return feed(ids, *args, **more)

    monkeypatch.setattr(conversation, "_feed", spy)
    monkeypatch.setattr(conversation, "_looked_at", lambda *_: attention(done - 1))
    monkeypatch.setattr(conversation.memory, "remembered", torch.zeros)
    assert asked(conversation, text).read_again
    assert 0 < int(torch.cat(fed).max()) < done


@pytest.mark.parametrize("name", TIGHT)
def test_only_what_is_forgotten_is_read_again(model: Model, ids: Tensor, name: str) -> None:
    """Budgets here are so small that no passage fits beside what is remembered; and most methods forget otherwise."""
    context = read(model, TIGHT[name], ids)
    first, second = Conversation(context), Conversation(context)
    alone, answer = asked(first, None), asked(second, ids)
    assert (answer.read_again, answer.text) == (0, alone.text)
    mine, other = state(first), state(second)
    assert all(torch.equal(mine[part], other[part]) for part in mine)


def fed(conversation: Conversation, text: Tensor, monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """All tokens that are fed when the question is asked, in their order."""
    lists: list[list[int]] = []
    feed = conversation._feed

    def noting(ids: list[int], *args: Any, **more: Any) -> Tensor:
        lists.append(list(ids))
        return feed(ids, *args, **more)

    monkeypatch.setattr(conversation, "_feed", noting)
    assert asked(conversation, text).read_again
    return lists


@forgetful
def test_passages_are_read_before_what_was_said(
    model: Model, text: Tensor, method: Method, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a part of the text: behind questions and answers a model finds less in them."""
    conversation = Conversation(read(model, method, text))
    first = asked(conversation, text)
    [said] = conversation.said
    assert said == model.chat.told(QUESTION, first.text, first=True)
    lists = fed(conversation, text, monkeypatch)
    passages = [number for number, ids in enumerate(lists) if len(ids) > 2 * AROUND]
    assert max(passages) < lists.index(said) < len(lists) - 1
    assert len(conversation.said) == 2


@forgetful
def test_a_saved_conversation_goes_on_as_an_uninterrupted_one(model: Model, text: Tensor, method: Method) -> None:
    context = read(model, method, text)
    first = Conversation(context)
    asked(first, text)
    parts, meta = first.state()
    second = Conversation.load(context, loaded(parts), json.loads(json.dumps(meta)))
    one, other = asked(first, text), asked(second, text)
    assert (one.text, one.read_again) == (other.text, other.read_again)
    assert one.read_again
    mine, theirs = state(first), state(second)
    assert all(torch.equal(mine[name], theirs[name]) for name in mine)


@forgetful
def test_where_it_is_not_known_what_was_said_passages_come_behind_it(
    model: Model, text: Tensor, method: Method, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tails that were saved before, and those of conversations that leave no room for them otherwise."""
    context = read(model, method, text)
    first = Conversation(context)
    asked(first, text)
    parts, meta = first.state()
    del meta["said"]
    old = Conversation.load(context, loaded(parts), meta)
    assert max(map(len, fed(old, text, monkeypatch))) > 2 * AROUND
    first.said = [[5] * 2000]
    assert [5] * 2000 not in fed(first, text, monkeypatch)
