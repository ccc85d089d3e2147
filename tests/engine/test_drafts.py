"""Drafts of an answer: what is copied, and that nothing but the passes differs from an answer without them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

import engine.loops.conversation
from engine import Answer, AskOptions, Conversation, Model, Sampling, make_method
from engine.loops import drafts
from engine.loops.drafts import Drafts
from engine.models.integers import DIRECT
from engine.sampling import choose
from tests.engine.conftest import byte_tokenizer
from tests.engine.gguf_files import tiny_network
from tests.engine.matrix import COVERING, TIGHT
from tests.engine.reading import read
from tests.engine.test_recurrent import network as recurrent_network

QUESTION = "Who was it?"
GREEDY = Sampling(max_tokens=40)
KEEPING = {name: TIGHT[name] for name in ("full", "full-int8", "full-fp8")}
KEEPING["exact-unbounded"] = make_method("exact", budget=None)
every = pytest.mark.parametrize("name", KEEPING)


@dataclass
class Told:
    """An answer, its conversation, the tokens that were chosen, and how many each of its passes had."""

    answer: Answer
    conversation: Conversation
    tokens: list[int]
    passes: list[int]


def tell(conversation: Conversation, known: list[int], longest: int = 8, sampling: Sampling = GREEDY) -> Told:
    """Ask with drafts of up to `longest` tokens from these, and look at the passes behind the question."""
    passes: list[int] = []
    tokens: list[int] = []
    forward = Model.forward

    def noted(self: Model, ids: Tensor, *rest: Any, **more: Any) -> Tensor:
        passes.append(len(ids))
        return forward(self, ids, *rest, **more)

    def chosen(*told: Any) -> int:
        if not tokens:
            passes.clear()  # those of the question
        tokens.append(choose(*told))
        return tokens[-1]

    ends = AskOptions(sentence_end=lambda text, since: len(text) // 9 * 9, text_ids=torch.tensor(known))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(drafts, "LONGEST", longest)
        patch.setattr(Model, "forward", noted)
        patch.setattr(engine.loops.conversation, "choose", chosen)
        *_, answer = conversation.ask(QUESTION, sampling, ends)
    assert isinstance(answer, Answer)
    return Told(answer, conversation, tokens, passes)


def assert_same(one: Told, other: Told) -> None:
    """Compare answers, what they looked at, and what the memory keeps."""
    assert (one.tokens, one.answer.text) == (other.tokens, other.answer.text)
    torch.testing.assert_close(one.conversation.mass.total, other.conversation.mass.total, rtol=1e-3, atol=1e-4)
    assert [(each.start, each.end) for each in one.answer.sentences] == [
        (each.start, each.end) for each in other.answer.sentences
    ]
    weights = [[part.weight for each in told.answer.sentences for part in each.passages] for told in (one, other)]
    assert weights[0] == pytest.approx(weights[1], abs=1e-4)
    (kept, facts), (expected, others) = one.conversation.state(), other.conversation.state()
    assert facts == others
    for part, told in expected.items():
        for name, tensor in told.tensors.items():
            torch.testing.assert_close(kept[part].tensors[name].float(), tensor.float(), atol=5e-2, rtol=5e-2)


def test_a_draft_is_what_stands_behind_most_of_the_last_tokens() -> None:
    text = torch.tensor([1, 2, 3, 4, 5, 6, 9, 3, 4, 7, 8])
    found = Drafts([text, torch.tensor([0, 2, 3, 4])])
    assert found.following(8) == [5, 6, 9, 3], "three equal tokens beat a later place with two"
    assert found.following(2) == [5, 6]
    found.add([7])
    assert found.following(8) == [8, 0, 2, 3]
    found.add([1])
    assert found.following(8) == []


def test_a_pass_with_a_draft_unpacks_no_weights() -> None:
    assert 1 + drafts.LONGEST <= DIRECT


def test_drafts_grow_while_they_are_right_and_end_where_they_do_not_pay() -> None:
    found = Drafts([torch.arange(50), torch.tensor([10, 11])])
    lengths = []
    for right in (4, 8, 1, 0, 0):
        lengths.append(len(found.following(8)))
        found.checked(lengths[-1], right)
    assert lengths == [4, 8, 8, 4, 2]
    wrong = Drafts([torch.arange(50), torch.tensor([10, 11])])
    tried = 0
    while draft := wrong.following(8):
        wrong.checked(len(draft), 0)
        tried += len(draft)
    assert tried * drafts.PRICE <= drafts.LOSS + 8 * drafts.PRICE


@every
def test_an_answer_is_the_same_where_all_drafts_are_right(name: str, model: Model, ids: Tensor) -> None:
    context = read(model, KEEPING[name], ids)
    plain = tell(Conversation(context), [], longest=0)
    assert set(plain.passes) == {1}
    drafted = tell(Conversation(context), plain.tokens)
    assert len(drafted.passes) < len(plain.passes) / 2
    assert_same(drafted, plain)


@every
def test_a_wrong_token_of_a_draft_is_neither_said_nor_kept(name: str, model: Model, ids: Tensor) -> None:
    """Draft from the answer with every fifth token changed; the next turn goes on from the same memory."""
    context = read(model, KEEPING[name], ids)
    plain = tell(Conversation(context), [], longest=0)
    changed = [(token + 1) % 200 + 10 if at % 5 == 4 else token for at, token in enumerate(plain.tokens)]
    drafted = tell(Conversation(context), changed)
    assert max(drafted.passes) > 2
    assert_same(drafted, plain)
    assert tell(drafted.conversation, [], longest=0).answer.text == tell(plain.conversation, [], 0).answer.text


def test_sampled_answers_are_those_without_drafts(model: Model, ids: Tensor) -> None:
    """Draw the same tokens from the same seed, whatever is drafted: what comes, what does not, and parts of both.

    So each token is as likely as without drafts; a token that were taken because it is drafted would show.
    """
    context, wide = read(model, KEEPING["full"], ids), 0
    for seed in range(4):
        sampling = Sampling(temperature=1.0, top_p=0.9, max_tokens=24, seed=seed, repetition_penalty=1.1)
        plain = tell(Conversation(context), [], 0, sampling)
        for known in (plain.tokens, [token for token in plain.tokens for _ in range(2)], ids.tolist()):
            drafted = tell(Conversation(context), known, 8, sampling)
            wide += max(drafted.passes, default=1) > 1
            assert drafted.tokens == plain.tokens
    assert wide >= 4


def test_a_cancelled_answer_leaves_no_trace(model: Model, ids: Tensor) -> None:
    context = read(model, KEEPING["full"], ids)
    plain = tell(Conversation(context), [], longest=0)
    conversation = Conversation(context)
    events = conversation.ask(QUESTION, GREEDY, AskOptions(text_ids=torch.tensor(plain.tokens)))
    for _ in range(6):
        next(events)
    events.close()
    assert_same(tell(conversation, plain.tokens), plain)


@pytest.mark.parametrize("name", [name for name in COVERING if name not in KEEPING])
def test_memories_that_let_go_or_choose_have_no_drafts(name: str, model: Model, ids: Tensor) -> None:
    conversation = Conversation(read(model, TIGHT[name], ids))
    assert set(tell(conversation, ids.tolist() * 2).passes) == {1}


@pytest.mark.parametrize(
    "network", [recurrent_network("qwen3_5_text"), tiny_network("olmoe")], ids=["recurrent", "experts"]
)
def test_some_layers_have_no_drafts(network: Any, ids: Tensor) -> None:
    """Each token of a pass would choose experts of its own, and a state cannot leave a token out."""
    model = Model(network, byte_tokenizer(), "model", "-")
    context = read(model, make_method("full"), ids)
    plain = tell(Conversation(context), [], longest=0)
    assert set(tell(Conversation(context), plain.tokens).passes) == {1}
