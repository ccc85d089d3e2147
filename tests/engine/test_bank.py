"""The device bank: the same answers as without it, evictions, counters, refusals."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import Tensor

from engine import Conversation, Method, Model, SettingsError, make_method
from tests.engine.matrix import STATIC
from tests.engine.reading import answer, next_logits, read

INFLLM = make_method("infllm", budget=160, block=8, units=4, query_block=16, store="float32")
INFINITEHIP = make_method("infinitehip", budget=160, stages="16:16:64:4 8:4:24:2", first_keep=32, store="float32")
QUESTION = torch.tensor([1, 80, 81, 82, 2])


def with_cache(method: Method, units: int) -> Method:
    return dataclasses.replace(method, **{"cache": units})  # type: ignore[arg-type]


@pytest.mark.parametrize(("method", "units"), [(INFLLM, 5), (INFINITEHIP, 8), (INFLLM, 30)])
def test_an_answer_is_the_same_with_a_cache(model: Model, ids: Tensor, method: Method, units: int) -> None:
    plain, cached = read(model, method, ids), read(model, with_cache(method, units), ids)
    expected = next_logits(model, method, plain.memory, QUESTION)
    assert torch.equal(next_logits(model, cached.method, cached.memory, QUESTION), expected)
    traffic = cached.usage().traffic
    assert traffic["hits"] > 0
    assert traffic["moved_bytes"] % traffic["misses"] == 0
    assert plain.usage().traffic == {}
    conversation = Conversation(cached)
    assert answer(conversation, "Who?") == answer(Conversation(plain), "Who?")
    assert conversation.usage().traffic["hits"] > 0


def test_a_cache_that_a_block_of_queries_would_not_fit_is_refused() -> None:
    with pytest.raises(SettingsError, match="A cache of 4 units cannot hold the 5 that one block"):
        with_cache(INFLLM, 4)


@pytest.mark.parametrize("name", ["infllm", "infinitehip"])
def test_conversations_that_share_a_bank_take_turns(model: Model, ids: Tensor, name: str) -> None:
    """Check that a conversation's own units and slots are never taken for another's, nor for those before a retry."""
    method = STATIC[f"{name}-banked"]
    plain_method = dataclasses.replace(method, cache=0, **({"probes": 0} if name == "infinitehip" else {}))  # type: ignore[type-var]
    plain, cached = (read(model, each, ids) for each in (plain_method, method))
    ours, theirs = ([Conversation(each) for _ in range(2)] for each in (cached, plain))
    assert ours[0].memory.selector.bank.bank is ours[1].memory.selector.bank.bank
    generator = torch.Generator().manual_seed(3)
    for turn in range(24):
        number, told = turn % 2, torch.randint(4, 260, (1 + 90 * (turn % 5 == 0),), generator=generator).tolist()
        if turn % 7 == 6:  # a line of history that is left again
            for each in (ours, theirs):
                there = each[number].memory
                each[number].memory = there.snapshot()
                each[number].feed([70, 71, 72])
                each[number].memory = there
        found, expected = (each[number].feed(told, repeated=True) for each in (ours, theirs))
        assert torch.equal(found, expected), turn
    bank = ours[0].memory.selector.bank
    misses = ours[1].usage().traffic["misses"]
    assert misses < sum(layer.facts[0] for layer in bank.bank.layers.values()) * method.cache  # type: ignore[attr-defined]


def test_a_second_question_finds_what_the_first_one_brought(model: Model, ids: Tensor) -> None:
    context = read(model, with_cache(STATIC["infllm"], 30), ids)
    first, second = Conversation(context), Conversation(context)
    for each in (first, second):
        answer(each, "Who?")
    assert second.usage().traffic["misses"] < first.usage().traffic["misses"] / 2
    bank, host = second.memory.selector.bank.bank, second.memory.archive.host  # type: ignore[union-attr]
    assert second.usage().bytes["device"] - context.usage().bytes["device"] < bank.nbytes(host)
