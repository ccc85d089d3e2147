"""The device bank: the same answers as without it, evictions of each policy, counters, refusals."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import Tensor

from engine import Conversation, Method, Model, SettingsError, make_method
from engine.parts.archive.bank import POLICIES, DeviceBank
from engine.parts.archive.host_tier import HostTier
from tests.engine.reading import answer, next_logits, read

INFLLM = make_method("infllm", budget=160, block=8, units=4, query_block=16, store="float32")
INFINITEHIP = make_method("infinitehip", budget=160, stages="16:16:64:4 8:4:24:2", first_keep=32, store="float32")
QUESTION = torch.tensor([1, 80, 81, 82, 2])


def with_cache(method: Method, units: int, policy: str = "lru") -> Method:
    return dataclasses.replace(method, **{"cache": units, "policy": policy})  # type: ignore[arg-type]


@pytest.fixture
def host(model: Model) -> HostTier:
    """Make 150 entries whose keys and values tell their number."""
    tier = HostTier(model.spec, torch.float32)
    number = torch.arange(150.0)[None, :, None].expand(2, -1, 8)
    tier.append([number] * 3, [-number] * 3, torch.arange(150, dtype=torch.int32))
    return tier


def looked_up(cache: DeviceBank, host: HostTier, *units: int) -> int:
    """Look up all entries of some units of 8, check them, and return the number of misses."""
    before = cache.traffic.misses
    index = (torch.tensor(units)[:, None] * 8 + torch.arange(8)).view(1, -1)
    keys, values = cache.gather(1, host, torch.where(index < 150, index, -1))
    expected = torch.where(index < 150, index, 0).float()[None, :, :, None].expand(2, -1, -1, 8)
    assert torch.equal(keys, expected)
    assert torch.equal(values, -expected)
    return cache.traffic.misses - before


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(("method", "units"), [(INFLLM, 5), (INFINITEHIP, 8), (INFLLM, 30)])
def test_an_answer_is_the_same_with_a_cache(model: Model, ids: Tensor, method: Method, units: int, policy: str) -> None:
    plain, cached = read(model, method, ids), read(model, with_cache(method, units, policy), ids)
    expected = next_logits(model, method, plain.memory, QUESTION)
    assert torch.equal(next_logits(model, cached.method, cached.memory, QUESTION), expected)
    traffic = cached.usage().traffic
    assert traffic["hits"] > 0
    assert traffic["moved_bytes"] % traffic["misses"] == 0
    assert plain.usage().traffic == {}
    conversation = Conversation(cached)
    assert answer(conversation, "Who?") == answer(Conversation(plain), "Who?")
    assert conversation.usage().traffic["hits"] > 0


def test_what_is_given_up(model: Model, host: HostTier) -> None:
    def cache(policy: str) -> DeviceBank:
        return DeviceBank(model.spec, 3, 8, policy)

    lru = cache("lru")
    assert [looked_up(lru, host, unit) for unit in (0, 1, 2, 0, 3, 0, 1)] == [1, 1, 1, 0, 1, 0, 1]
    fifo = cache("fifo")
    assert [looked_up(fifo, host, unit) for unit in (0, 1, 2, 0, 3, 0, 1)] == [1, 1, 1, 0, 1, 1, 1]
    frequency = cache("frequency")
    index = torch.tensor([[0, 8, 16]])  # the first entries of units 0, 1 and 2
    assert looked_up(frequency, host, 0, 1, 2) == 3
    frequency.attended(1, index, torch.tensor([[0.1, 5.0, 0.3]]))
    frequency.attended(1, index, torch.tensor([[0.1, 0.0, 0.3]]))  # 0.11, 0.5, 0.33
    assert [looked_up(frequency, host, unit) for unit in (3, 1, 2, 0)] == [1, 0, 0, 1]
    unlucky = cache("random")
    assert sum(looked_up(unlucky, host, unit) for unit in (0, 1, 2, 0, 3, 0, 1)) >= 4


def test_frequency_gives_up_what_earlier_look_ups_wanted_before_what_this_pass_does(
    model: Model, host: HostTier
) -> None:
    """Check that attention to the look-ups of a pass is counted after the pass."""
    cache = DeviceBank(model.spec, 4, 8, "frequency")
    assert looked_up(cache, host, 0, 1) == 2
    cache.attended(1, torch.tensor([[0, 8]]), torch.tensor([[9.0, 8.0]]))
    assert [looked_up(cache, host, *pair) for pair in ((2, 3), (4, 5), (2, 4), (4, 5))] == [2, 2, 0, 0]
    # 2 and 4 were wanted together, 3 not since the first look-up
    blocks = torch.tensor([[16, 24], [32, 40], [16, 32], [32, 40]])
    cache.attended(1, blocks, torch.tensor([[1.0, 5.0], [1.0, 1.0], [2.0, 1.0], [1.0, 1.0]]))
    worth = cache.layer(1).importance
    expected = {2: (1.0 * 0.01 + 2.0) * 0.1, 3: 5.0 * 0.001, 4: (1.0 * 0.1 + 1.0) * 0.1 + 1.0, 5: 1.0 * 0.01 + 1.0}
    assert worth == pytest.approx(expected)
    assert looked_up(cache, host, 0) == 1  # in the place of 3
    assert [looked_up(cache, host, unit) for unit in (2, 4, 5)] == [0, 0, 0]


def test_a_unit_that_is_not_full_yet_is_not_kept(model: Model, host: HostTier) -> None:
    cache = DeviceBank(model.spec, 3, 8, "lru")
    assert looked_up(cache, host, 17, 18) == 2  # 18 has entries 144 to 149
    assert looked_up(cache, host, 17, 18) == 1
    assert cache.traffic.moved_bytes == 3 * 8 * 2 * 2 * 8 * 4


def test_a_cache_that_a_block_of_queries_would_not_fit_is_refused() -> None:
    with pytest.raises(SettingsError, match="A cache of 4 units cannot hold the 5 that one block"):
        with_cache(INFLLM, 4)
    with pytest.raises(SettingsError, match="policy is one of lru, frequency, fifo, random"):
        with_cache(INFLLM, 8, "newest")


def test_memory_that_runs_out_while_units_come_costs_no_places(
    model: Model, host: HostTier, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = DeviceBank(model.spec, 4, 8, "lru")
    looked_up(cache, host, 0, 1)
    with monkeypatch.context() as patch:
        patch.setattr(HostTier, "gather_shared", lambda *_: (_ for _ in ()).throw(torch.OutOfMemoryError("no more")))
        for _ in range(3):
            with pytest.raises(torch.OutOfMemoryError):
                looked_up(cache, host, 2, 3, 4)
    assert looked_up(cache, host, 1, 2, 3, 4) == 3
