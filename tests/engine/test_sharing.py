"""Budgets shared among layers and heads: counts against plain arithmetic, and bytes of real tensors."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor

from engine import Conversation, Model, SettingsError, make_method
from engine.parts.footprint import ReadingTask
from engine.parts.sharing import SHARES, SPREAD, pyramid, shared, threshold
from engine.parts.slot_plan import slot_bytes
from engine.parts.slots import SlotStore
from engine.records import DEVICE
from tests.engine.plain import one_by_one
from tests.engine.reading import answer, read


@pytest.mark.parametrize("spared", [0, 7, 40])
@pytest.mark.parametrize("rounded", [False, True], ids=["scores-differ", "many-equal"])
def test_one_threshold_gives_what_choosing_one_by_one_gives(spared: int, rounded: bool) -> None:
    generator = torch.Generator().manual_seed(spared)
    scores = [torch.randn(1, held, generator=generator) * (2 - head) for head, held in enumerate((90, 60, 75, 99))]
    if rounded:
        scores = [score.round() for score in scores]
    for score in scores:
        score[:, score.shape[1] - spared :] = float("inf")
    counts = threshold(scores, 40, spared)
    assert counts == one_by_one([score[0].tolist() for score in scores], 40, spared)
    assert sum(counts) == 4 * 40
    rest = 40 - spared
    assert all(spared + round((1 - SPREAD) * rest) <= count <= spared + round((1 + SPREAD) * rest) for count in counts)


@pytest.mark.parametrize("layers", [1, 2, 5, 32])
@pytest.mark.parametrize("spared", [0, 9])
def test_a_pyramid_falls_by_equal_steps_and_sums_to_an_even_share(layers: int, spared: int) -> None:
    counts = pyramid([300] * layers, 101, spared)
    assert sum(counts) == layers * 101
    assert counts == sorted(counts, reverse=True)
    steps = {above - below for above, below in itertools.pairwise(counts)}
    assert not steps or max(steps) - min(steps) <= 1
    if layers > 1:
        assert counts[0] - 101 == 101 - counts[-1] == round(SPREAD * (101 - spared))


def test_a_pyramid_is_flatter_where_lower_layers_hold_too_little() -> None:
    assert pyramid([120, 120, 120], 100, 0) == [120, 100, 80]
    assert pyramid([180, 100, 30], 100, 0) == [180, 100, 20]
    assert pyramid([100, 100, 100], 100, 0) == [100, 100, 100]


def test_of_all_heads_one_layer_may_win() -> None:
    high, low = torch.full((1, 50), 2.0), torch.full((1, 50), 1.0)
    assert shared("all", [[high, high], [low, low]], 20, 0) == [[36, 36], [4, 4]]
    assert shared("heads", [[high, high], [low, low]], 20, 0) == [[36, 4], [36, 4]]  # of equals the earlier head


SETTINGS = {
    "infinipot": {"budget": 160, "prompt": "Sum up."},
    "locret": {"budget": 96, "chunk": 40, "stabilizers": 16, "local": 12},
}


@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize("name", SETTINGS)
def test_what_one_head_gets_another_frees(model: Model, ids: Tensor, name: str, share: str) -> None:
    """Check that the storage has the bytes of an even share, however unevenly heads are treated."""
    method = make_method(name, **SETTINGS[name], share=share)
    planned = method.plan(model.spec, ReadingTask(len(ids), len(model.chat.prefix), 64, model.turn_length))
    conversation = Conversation(read(model, method, ids))
    for number in range(9):
        answer(conversation, f"question number {number}?")
    for memory in (conversation.context.memory, conversation.memory):
        assert isinstance(memory.store, SlotStore)
        assert not memory.store.base
        held = [memory.store.held(number) for number in range(len(memory.store.own))]
        assert sum(held) == len(held) * memory.store.entries
        assert (max(held) > min(held)) == (share != "even")
        assert max(held) <= planned.work.widest
        storage = sum(
            getattr(slots, column).untyped_storage().nbytes()
            for slots in memory.store.own
            for column in ("keys", "rotated", "values", "source", "score")
        )
        assert method.budget is not None
        assert (
            storage
            == slot_bytes(model.spec, method.budget + method.passing(model.spec))
            == memory.usage().bytes[DEVICE]
        )
        for layer, group in enumerate(memory.store.groups):
            known = (memory.positions(layer) >= 0).sum(dim=1).view(len(group), -1)
            assert all(int(count.max()) <= held[number] for number, count in zip(group, known, strict=True))


def test_unknown_shares_are_refused_by_name() -> None:
    for name in SETTINGS:
        with pytest.raises(SettingsError, match=r"share is one of even, pyramid, heads, all, not 'fair'"):
            make_method(name, share="fair")
