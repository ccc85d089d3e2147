"""Rereading: the passages that a question attends to, if they are forgotten, and that it leaves no other trace."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from functools import partial
from typing import Any
from unittest.mock import MagicMock

import pytest
import torch
from torch import Tensor

from engine import Answer, AskOptions, Context, Conversation, Method, Model, Reader, Sampling, make_method
from engine.loops.passes import condense
from engine.loops.rereading import AROUND, MOST, to_read_again
from engine.parts.archive.focus import WIDEST
from engine.parts.archive.host_tier import HostTier
from engine.parts.sources import REACH
from engine.records import DEVICE
from tests.engine.matrix import FORGETFUL, TIGHT
from tests.engine.reading import loaded, read

TOKENS = 1500
QUESTION = "Who was it that came to the house?"
forgetful = pytest.mark.parametrize("method", FORGETFUL.values(), ids=FORGETFUL)
every = pytest.mark.parametrize("name", TIGHT)


@pytest.fixture(scope="module")
def text() -> Tensor:
    return torch.randint(4, 260, (TOKENS,), generator=torch.Generator().manual_seed(3))


def asked(conversation: Conversation, text: Tensor | None, question: str = QUESTION) -> Answer:
    *_, last = conversation.ask(question, Sampling(max_tokens=8), AskOptions(text=text))
    assert isinstance(last, Answer)
    return last


def state(of: Context | Conversation) -> dict[str, Tensor]:
    parts, _ = of.state()
    return {f"{part}.{name}": x.clone() for part, held in parts.items() for name, x in held.tensors.items()}


def attention(*places: int) -> Tensor:
    """Make attention for positions of a text, most for the first one."""
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


def answers_that_leave_no_trace(context: Context, ask: Callable[[Conversation], Answer]) -> list[Answer]:
    """Return the answers of two turns.

    Checks that after each the conversation equals one with the turn replayed, and that the context does not change.
    """
    before, answers = state(context), []
    first, second = Conversation(context), Conversation(context)
    for turn in range(2):
        answers.append(ask(first))
        second.replay(QUESTION, answers[-1].text)
        mine, other = state(first), state(second)
        assert mine.keys() == other.keys()
        for name, tensor in mine.items():
            torch.testing.assert_close(tensor, other[name], rtol=0, atol=0)
        assert first.turns == second.turns == turn + 1
    after = state(context)
    assert all(torch.equal(before[name], after[name]) for name in before)
    return answers


@forgetful
def test_what_was_read_again_is_forgotten_with_the_answer(model: Model, text: Tensor, method: Method) -> None:
    for answer in answers_that_leave_no_trace(read(model, method, text), lambda talk: asked(talk, text)):
        assert 2 * AROUND < answer.read_again <= MOST * (2 * REACH + 1 + 2 * AROUND)


@forgetful
def test_the_budget_holds_while_passages_are_read_again(model: Model, text: Tensor, method: Method) -> None:
    assert method.budget is not None
    conversation, seen = Conversation(read(model, method, text)), []
    events = conversation.ask(
        QUESTION,
        Sampling(max_tokens=8),
        AskOptions(lambda: seen.append(conversation.usage().entries[DEVICE]), text=text),
    )
    *_, answer = events
    assert isinstance(answer, Answer)
    assert answer.read_again
    assert max(seen) > answer.usage.entries[DEVICE], "while it is answered there is more than after it"
    assert max(seen) <= method.budget + method.passing(model.spec)


def test_nothing_is_condensed_for_passages_that_have_no_room(
    model: Model, text: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: the memory was condensed for each of them, before and behind the earlier turns."""
    context, condensed = read(model, FORGETFUL["locret"], text), []
    conversation = Conversation(context)

    def counted(*given: Any) -> Any:
        condensed.append(given)
        return condense(*given)

    monkeypatch.setattr("engine.loops.conversation.condense", counted)
    *_, last = conversation.ask(QUESTION * 7, Sampling(max_tokens=4), AskOptions(text=text))
    assert isinstance(last, Answer)
    assert last.read_again == 0
    assert len(condensed) <= 2


def test_an_answer_rests_on_what_was_read_again(model: Model, text: Tensor) -> None:
    """Check that attention to reread tokens counts at their place in the text."""
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
            contextlib.closing(conversation.ask(QUESTION, options=AskOptions(stop, text=text))) as events,
        ):
            next(events)
        after = state(conversation)
        assert before.keys() == after.keys()
        assert all(torch.equal(before[name], after[name]) for name in before)
        assert conversation.turns == 0


def test_only_as_much_as_has_been_read_is_read_again(
    model: Model, text: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Check also a question that attends to the last token read, with nothing left around it."""
    reader = Reader(model, FORGETFUL["locret"], text, chunk=64)
    done = next(step.tokens_done for step in reader.run() if step.tokens_done >= 1000) - len(model.chat.prefix)
    conversation = Conversation(reader.so_far())
    fed: list[Tensor] = []
    feed = conversation.feed

    def spy(ids: list[int], *args: Any, **more: Any) -> Tensor:
        fed.append(more.get("source", torch.empty(0)))
        return feed(ids, *args, **more)

    monkeypatch.setattr(conversation, "feed", spy)
    monkeypatch.setattr(conversation, "attention_of", lambda *_: attention(done - 1))
    monkeypatch.setattr(conversation.memory, "remembered", torch.zeros)
    assert asked(conversation, text).read_again
    assert 0 < int(torch.cat(fed).max()) < done


@every
def test_only_what_is_forgotten_is_read_again(model: Model, ids: Tensor, name: str) -> None:
    """Use budgets so small that no passage fits beside the memory, for methods that forget in different ways."""
    context = read(model, TIGHT[name], ids)
    first, second = Conversation(context), Conversation(context)
    alone, answer = asked(first, None), asked(second, ids)
    assert (answer.read_again, answer.text) == (0, alone.text)
    mine, other = state(first), state(second)
    assert all(torch.equal(mine[part], other[part]) for part in mine)


def fed(conversation: Conversation, text: Tensor, monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """Return all tokens that are fed for a question, in order."""
    lists: list[list[int]] = []
    feed = conversation.feed

    def noting(ids: list[int], *args: Any, **more: Any) -> Tensor:
        lists.append(list(ids))
        return feed(ids, *args, **more)

    monkeypatch.setattr(conversation, "feed", noting)
    assert asked(conversation, text).read_again
    return lists


@forgetful
def test_passages_are_read_before_what_was_said(
    model: Model, text: Tensor, method: Method, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Check that they become a part of the text, since behind questions a model finds less in them."""
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
    """Check chats saved by earlier versions, and chats that leave no space for the passages."""
    context = read(model, method, text)
    first = Conversation(context)
    asked(first, text)
    parts, meta = first.state()
    del meta["said"]
    old = Conversation.load(context, loaded(parts), meta)
    assert max(map(len, fed(old, text, monkeypatch))) > 2 * AROUND
    first.said = [[5] * 2000]
    assert [5] * 2000 not in fed(first, text, monkeypatch)


def asked_of(conversation: Conversation, text: Tensor, named: Tensor, question: str = QUESTION) -> Answer:
    *_, last = conversation.ask(question, Sampling(max_tokens=8), AskOptions(text=text, named=named))
    assert isinstance(last, Answer)
    return last


@pytest.fixture
def named() -> Tensor:
    """Return two stretches of the text, one of them in the middle."""
    return torch.cat([torch.arange(120, 150), torch.arange(201, 211)])


LOOKING = [name for name in TIGHT if TIGHT[name].family == "retrieving" or name.startswith("exact")]
READING_AGAIN = [name for name in TIGHT if name not in LOOKING]


@pytest.mark.parametrize("name", READING_AGAIN)
def test_what_a_person_named_is_forgotten_with_the_answer(model: Model, ids: Tensor, named: Tensor, name: str) -> None:
    for answer in answers_that_leave_no_trace(read(model, TIGHT[name], ids), lambda talk: asked_of(talk, ids, named)):
        assert answer.read_again == len(named)


@every
def test_cancelled_while_named_pages_are_read(model: Model, ids: Tensor, named: Tensor, name: str) -> None:
    conversation = Conversation(read(model, TIGHT[name], ids))
    asked_of(conversation, ids, named)
    before = state(conversation)
    for passes in range(5):
        stop = MagicMock(side_effect=[*[None] * passes, InterruptedError])
        with (
            contextlib.suppress(InterruptedError),
            contextlib.closing(conversation.ask(QUESTION, options=AskOptions(stop, text=ids, named=named))) as events,
        ):
            next(events)
        after = state(conversation)
        assert before.keys() == after.keys()
        assert all(torch.equal(before[part], after[part]) for part in before)


@pytest.mark.parametrize("name", [name for name in READING_AGAIN if TIGHT[name].budget is not None])
def test_the_budget_holds_while_named_pages_are_read(model: Model, ids: Tensor, name: str) -> None:
    """Check several turns and many named tokens."""
    method = TIGHT[name]
    conversation, seen = Conversation(read(model, method, ids)), []
    for turn in range(3):
        events = conversation.ask(
            f"{turn}. {QUESTION}",
            Sampling(max_tokens=8),
            AskOptions(
                lambda: seen.append(conversation.usage().entries[DEVICE]), text=ids, named=torch.arange(20, 290)
            ),
        )
        *_, answer = events
        assert isinstance(answer, Answer)
        assert answer.read_again == 270
    assert method.budget is not None
    assert max(seen) <= method.budget + method.passing(model.spec)


def test_named_pages_are_read_as_if_the_text_ended_with_them(model: Model, ids: Tensor, named: Tensor) -> None:
    """Check full attention in the first and in later turns. Earlier turns follow the pages."""
    conversation = Conversation(read(model, make_method("full"), ids))
    longer = read(model, make_method("full"), torch.cat([ids, ids[named]]))
    said: list[tuple[str, str]] = []
    for question in ("Who?", "And where?", "When?"):
        answer, other = asked_of(conversation, ids, named, question), Conversation(longer)
        for turn in said:
            other.replay(*turn)
        assert answer.text == asked(other, None, question).text
        said.append((question, answer.text))


@pytest.mark.parametrize("name", ["truncate", "infinipot-both", "infinipot-nuc", "locret", "locret-int8"])
@pytest.mark.parametrize("how", ["off", "static"])
def test_what_has_no_room_beside_the_text_is_read_instead_of_it(
    model: Model, ids: Tensor, name: str, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Check that the result equals a text of the named tokens alone."""
    monkeypatch.setattr("engine.decode.recorder.choice", lambda: how)
    named = torch.arange(30, 50)
    conversation, alone = Conversation(read(model, TIGHT[name], ids)), read(model, TIGHT[name], ids[named])
    said: list[tuple[str, str]] = []
    for question in ("Who?", "And?"):
        answer, other = asked_of(conversation, ids, named, question), Conversation(alone)
        for turn in said:
            other.replay(*turn)
        assert answer.alone
        assert answer.text == asked(other, None, question).text
        said.append((question, answer.text))


def test_how_much_of_them_is_held_is_measured(model: Model, text: Tensor) -> None:
    conversation = Conversation(read(model, FORGETFUL["locret"], text))
    few, many = torch.arange(300, 340), torch.arange(100, 1100)
    assert asked_of(conversation, text, few).held_again == 1
    held = asked_of(conversation, text, many).held_again
    assert 0 < held < 0.8
    assert asked_of(Conversation(read(model, make_method("full"), text)), text, many).held_again == 1


def test_an_answer_rests_on_what_was_named(model: Model, text: Tensor) -> None:
    """Check also tokens that were never read: `truncate` skips the middle."""
    conversation = Conversation(read(model, make_method("truncate", budget=600, tail=100), text))
    named = torch.arange(700, 800)
    assert not conversation.memory.remembered(TOKENS)[named].any()
    answer = asked_of(conversation, text, named)
    assert any(700 <= passage.start < 800 for passage in answer.passages)
    assert answer.held_again == 1


def test_what_is_still_to_be_read_can_be_named(model: Model, text: Tensor) -> None:
    reader = Reader(model, FORGETFUL["locret"], text, chunk=64)
    next(step for step in reader.run() if step.tokens_done >= 600)
    answer = asked_of(Conversation(reader.so_far()), text, torch.arange(1200, 1300))
    assert (answer.read_again, answer.held_again) == (100, 1)
    assert any(1200 <= passage.start < 1300 for passage in answer.passages)


@pytest.mark.parametrize("budget", [200, 600, None])
@pytest.mark.parametrize("tokens", [10, 70, 100, 333, 700])
@pytest.mark.parametrize("name", ["beacon", "truncate"])
def test_what_condenses_only_when_it_is_full_is_not_made_to(
    model: Model, text: Tensor, name: str, tokens: int, budget: int | None
) -> None:
    """Regression: open windows became beacons, and `truncate` kept nothing of a beginning and an end."""
    settings = {"beacon": {"window": 128, "ratio": 8}, "truncate": {"tail": 50} if budget else {}}[name]
    context = read(model, make_method(name, budget=budget, **settings), text[:tokens])
    for count in (10, 40, min(tokens, 300)):
        named = torch.arange(min(count, tokens))
        for answer in answers_that_leave_no_trace(context, partial(asked_of, text=text[:tokens], named=named)):
            assert answer.read_again == len(named)
            assert answer.held_again > 0


@pytest.mark.parametrize("name", READING_AGAIN)
def test_sentences_rest_on_what_the_answer_did(model: Model, ids: Tensor, named: Tensor, name: str) -> None:
    """Regression: their shares were those of the question as it was asked again to be remembered."""
    conversation = Conversation(read(model, TIGHT[name], ids))
    events = conversation.ask(
        QUESTION, Sampling(max_tokens=8), AskOptions(sentence_end=lambda text, said: said, text=ids, named=named)
    )
    *_, answer = events
    assert isinstance(answer, Answer)
    [sentence] = answer.sentences
    assert sentence.end == len(answer.text.rstrip())
    assert [each.start for each in sentence.passages] == [each.start for each in answer.passages]
    weights = [each.weight for each in answer.passages]
    assert [each.weight for each in sentence.passages] == pytest.approx(weights, rel=1e-3)


@pytest.mark.parametrize("name", LOOKING)
def test_who_keeps_everything_looks_at_what_was_named_alone(
    model: Model, ids: Tensor, named: Tensor, name: str
) -> None:
    """Regression: the named pages were read again, which took a minute for three pages of a long text.

    Also checks that the next question searches everything.
    """
    context = read(model, TIGHT[name], ids)
    conversation = Conversation(context)
    memory: Any = conversation.memory
    near = torch.cat(
        [memory.archive.host.source()[memory.archive.num_evicted :], torch.arange(getattr(memory.store, "sinks", 0))]
    )
    answer = asked_of(conversation, ids, named)
    assert (answer.read_again, answer.held_again, answer.alone) == (0, 1, False)
    seen = conversation.mass.total.nonzero()[:, 0]
    assert torch.isin(seen, torch.cat([named, near])).all()
    assert torch.isin(named, seen).any()
    assert conversation.memory.archive.focused is None  # type: ignore[attr-defined]
    asked(conversation, None)
    assert not torch.isin(conversation.mass.total.nonzero()[:, 0], torch.cat([named, near])).all()


def test_among_many_pages_a_question_still_looks_twice(model: Model, text: Tensor) -> None:
    conversation = Conversation(read(model, make_method("exact", budget=96, top_k=24), text))
    memory: Any = conversation.memory
    memory.archive.restrict_to(torch.arange(200, 300))
    assert not memory.archive.looks_again()
    memory.archive.restrict_to(torch.arange(WIDEST + 300))
    assert memory.archive.looks_again()
    memory.archive.focus(attention(150))
    assert memory.archive.focused is memory.archive.second_look.focus is not None


def test_of_what_was_not_read_yet_nothing_is_searched_before_the_question(
    model: Model, text: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = Reader(model, make_method("exact", budget=96, top_k=24, looks=1), text, chunk=64)
    next(step for step in reader.run() if step.tokens_done >= 600)
    searched: list[int] = []
    search = HostTier.search

    def noting(tier: HostTier, layer: int, q: Tensor, *rest: Any) -> Any:
        searched.append(q.shape[1])
        return search(tier, layer, q, *rest)

    monkeypatch.setattr(HostTier, "search", noting)
    ask = partial(asked_of, text=text, named=torch.arange(1200, 1300))
    for answer in answers_that_leave_no_trace(reader.so_far(), ask):
        assert (answer.read_again, answer.held_again) == (100, 1)
        assert any(1200 <= passage.start < 1300 for passage in answer.passages)
    assert 0 < max(searched) < 100


@pytest.mark.parametrize("name", [name for name in TIGHT if name.startswith("recall")])
def test_what_a_gist_was_given_again_is_seen_once(model: Model, ids: Tensor, named: Tensor, name: str) -> None:
    """Regression: reread tokens were also looked up in the host tier."""
    conversation = Conversation(read(model, TIGHT[name], ids))
    memory: Any = None

    def look() -> None:
        nonlocal memory
        memory = conversation.memory

    *_, answer = conversation.ask(QUESTION, Sampling(max_tokens=2), AskOptions(look, text=ids, named=named))
    assert isinstance(answer, Answer)
    for layer in range(len(model.spec.layers)):
        held, places = memory.selector.held_by_heads(layer), memory.positions(layer)
        assert bool((held.diff(dim=1) >= 0).all())
        for head, place in zip(held, places, strict=True):
            assert set(head.tolist()) == set(place.tolist())


def test_of_what_was_not_read_yet_a_gist_holds_what_it_holds(model: Model, text: Tensor) -> None:
    method = make_method("recall", budget=400, select="exact", top_k=24)
    reader = Reader(model, method, text, chunk=64)
    next(step for step in reader.run() if step.tokens_done >= 600)
    answer = asked_of(Conversation(reader.so_far()), text, torch.arange(800, 1400))
    assert 0 < answer.held_again < 0.8
