"""The host tier: search and gather against brute force, slabs, forks, state."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM

from engine import Context, Conversation, Model, Reader, make_method
from engine.errors import OutOfMemory
from engine.models.rope import Rope
from engine.models.spec import ModelSpec, Scoring
from engine.parts.archive.archive import Archive
from engine.parts.archive.host_tier import TAIL, HostTier, Slab
from engine.parts.footprint import ReadingTask
from engine.parts.selectors.base import searched
from engine.records import DISK, HOST
from kernels import choice
from kernels.rows import QuantizedSlab
from tests.engine.architectures import small_config
from tests.engine.conftest import byte_tokenizer
from tests.engine.reading import answer, loaded, next_logits, read
from tests.engine.tiers import HEADS, LAYERS, QUERY_HEADS, SIZE, entries, gathered

pytestmark = pytest.mark.usefixtures("small_slabs")


@pytest.fixture
def tier(model: Model) -> HostTier:
    """Make a tier of 201 entries, appended in three parts."""
    tier = HostTier(model.spec, torch.float32)
    for count, seed in ((50, 0), (100, 1), (51, 2)):
        tier.append(*entries(count, seed))
    return tier


def everything(layer: int) -> tuple[Tensor, Tensor, Tensor]:
    parts = [entries(count, seed) for count, seed in ((50, 0), (100, 1), (51, 2))]
    keys, values, sources = zip(*parts, strict=True)
    return torch.cat([k[layer] for k in keys], 1), torch.cat([v[layer] for v in values], 1), torch.cat(list(sources))


@pytest.mark.parametrize("top", [1, 7, 64, 1000])
@pytest.mark.parametrize("limits", [[201] * 5, [1, 2, 63, 130, 201], [0, 0, 1, 64, 65]])
def test_search_is_exact(tier: HostTier, top: int, limits: list[int]) -> None:
    q = torch.randn(QUERY_HEADS, 5, SIZE, generator=torch.Generator().manual_seed(9))
    index, held, _ = tier.search(1, q, torch.tensor(limits), top)
    keys, _, _ = everything(1)
    scores = q @ keys.repeat_interleave(3, dim=0).transpose(1, 2)
    for query, limit in enumerate(limits):
        for head in range(QUERY_HEADS):
            wanted = min(top, limit)
            expected = set(scores[head, query, :limit].topk(wanted).indices.tolist())
            found = index[head, query][held[head, query]].tolist()
            assert set(found) == expected
            assert len(found) == wanted


@pytest.mark.parametrize("top", [1, 7, 64])
@pytest.mark.parametrize("limits", [[201] * 5, [0, 0, 1, 64, 65]])
def test_search_among_some_is_exact(tier: HostTier, top: int, limits: list[int]) -> None:
    q = torch.randn(QUERY_HEADS, 5, SIZE, generator=torch.Generator().manual_seed(9))
    some = torch.randperm(201, generator=torch.Generator().manual_seed(4))[:60].sort().values
    index, held, _ = tier.search(1, q, torch.tensor(limits), top, some)
    keys, _, _ = everything(1)
    scores = q @ keys[:, some].repeat_interleave(3, dim=0).transpose(1, 2)
    for query, limit in enumerate(limits):
        visible = int((some < limit).sum())
        for head in range(QUERY_HEADS):
            best = scores[head, query, :visible].topk(min(top, visible)).indices
            assert set(index[head, query][held[head, query]].tolist()) == set(some[best].tolist())


def partly_rotated(spec: ModelSpec) -> ModelSpec:
    """Make a rotation of four of eight dimensions with scaled cosines and sines, as in Phi-4-mini."""
    rope = Rope(torch.tensor([1.0, 0.1]), attention_scaling=1.6)
    return dataclasses.replace(spec, layers=tuple(dataclasses.replace(layer, rope=rope) for layer in spec.layers))


def test_what_is_picked_has_the_highest_logits_also_where_part_of_a_key_is_rotated_and_scaled(
    model: Model, tier: HostTier
) -> None:
    """Regression: keys were searched as stored, and only queries had the scale."""
    tier.spec = partly_rotated(model.spec)
    q = torch.randn(QUERY_HEADS, 5, SIZE, generator=torch.Generator().manual_seed(9))
    archive = Archive(model.spec, tier.dtype)
    archive.host = tier
    rope = tier.spec.layers[1].rope
    best, index = searched(archive, 1, q, rope.to_constant(q, 40), 24, torch.full((5,), 201))
    keys = rope.to_constant(everything(1)[0].repeat_interleave(3, dim=0), 0)
    logits = rope.to_constant(q, 40) @ keys.transpose(1, 2)
    torch.testing.assert_close(best.logits(Scoring(1.0)), logits.gather(2, index))
    assert torch.equal(index.sort(dim=2).values, logits.topk(24, dim=2).indices.sort(dim=2).values)


def test_search_in_steps_equals_search_at_once(tier: HostTier, monkeypatch: pytest.MonkeyPatch) -> None:
    q = torch.randn(QUERY_HEADS, 5, SIZE, generator=torch.Generator().manual_seed(9))
    limits = torch.tensor([10, 50, 100, 150, 201])
    whole = tier.search(0, q, limits, 8)
    monkeypatch.setattr("engine.parts.archive.search.SCORE_BYTES", 1)
    steps = tier.search(0, q, limits, 8)
    for query in range(5):
        for head in range(QUERY_HEADS):
            kept = [set(i[head, query][h[head, query]].tolist()) for i, h, _ in (whole, steps)]
            assert kept[0] == kept[1]


def test_a_search_holds_no_more_scores_than_are_planned(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    """Search 201 entries in four slabs for 6 heads and 5 queries, with space for 80 scores of each, or for none."""
    from engine.parts.archive import search

    tier, held = HostTier(model.spec, torch.float32), []
    for count, seed in ((50, 0), (100, 1), (51, 2)):
        tier.append(*entries(count, seed))
    scored = search._scored

    def watched(*given: Any) -> Tensor:
        scores = scored(*given)
        held.append(scores.nbytes)
        return scores

    monkeypatch.setattr(search, "_scored", watched)
    layer = dataclasses.replace(model.spec.layers[0], query_heads=QUERY_HEADS, kv_heads=HEADS, head_size=SIZE)
    spec = dataclasses.replace(model.spec, layers=(layer,) * LAYERS)
    q, limits = torch.randn(QUERY_HEADS, 5, SIZE), torch.full((5,), 201)
    for room, searches in ((1 << 20, 1), (4 * QUERY_HEADS * 5 * 130, 2), (4 * QUERY_HEADS * 5 * 80, 3), (0, 20)):
        monkeypatch.setattr(search, "SCORE_BYTES", room)
        held.clear()
        tier.search(0, q, limits, 8)
        assert len(held) == searches
        planned = search.searching_bytes(spec, torch.float32, 5, 201) // 3
        block = 4 * QUERY_HEADS * 5 * 64
        assert max(held) < planned + block, "of the last block all scores are there"
        assert planned <= max(block, room)


def test_gather_gives_the_entries_of_each_query_heads_group(tier: HostTier) -> None:
    index = torch.randint(0, 201, (QUERY_HEADS, 4, 9), generator=torch.Generator().manual_seed(3))
    keys, values = gathered(tier, 2, index)
    all_keys, all_values, all_sources = everything(2)
    for head in range(QUERY_HEADS):
        assert torch.equal(keys[head], all_keys[head // 3][index[head]])
        assert torch.equal(values[head], all_values[head // 3][index[head]])
    assert torch.equal(tier.source_of(index), all_sources[index])


@pytest.mark.parametrize("store", [torch.bfloat16, torch.int8, torch.quint4x2], ids=["bfloat16", "int8", "int4"])
def test_kernels_gather_what_the_reference_gathers(
    model: Model, monkeypatch: pytest.MonkeyPatch, store: torch.dtype
) -> None:
    pytest.importorskip("triton")
    tier = HostTier(model.spec, store)
    for seed in range(2):
        tier.append(*entries(100, seed))
    index = torch.randint(tier.stored, (QUERY_HEADS, 3, 5), generator=torch.Generator().manual_seed(0))
    found = []
    for implementation in ("torch", "triton"):
        monkeypatch.setattr(choice, "implementation", lambda implementation=implementation: implementation)
        found.append(gathered(tier, 1, index))
    for plain, mine in zip(*found, strict=True):
        assert mine.dtype == plain.dtype
        torch.testing.assert_close(mine, plain, rtol=1e-5, atol=1e-5)


def test_a_restored_conversation_has_the_levels_of_its_context(model: Model) -> None:
    """Regression: they were read again from its tail, and kernels refuse a bank with two channel scales."""
    context = HostTier(model.spec, torch.int8)
    context.append(*entries(130, 0))
    fork = context.fork()
    fork.append(*entries(140, 1))
    again = context.fork()
    again.load(loaded(fork.state()))
    assert again.length == fork.length == 270
    levels = {id(slab.channel_scale) for slab, _ in again.keys(1) if isinstance(slab, QuantizedSlab)}
    assert len(again.keys(1)) > len(context.keys(1))
    assert levels == {id(context.channel_scales[1][0])}


def test_levels_are_saved_under_the_names_that_they_always_had(model: Model) -> None:
    """Check the names, since states of earlier versions must be found."""
    tier = HostTier(model.spec, torch.int8)
    tier.append(*entries(130, 0))
    saved = loaded(tier.state())
    banks = [f"{layer}.{bank}" for layer in range(LAYERS) for bank in ("keys", "values")]
    assert saved[TAIL].keys() == {"source", *(f"{name}{end}" for name in banks for end in ("", ".centre", ".spread"))}
    narrow = dataclasses.replace(
        model.spec, layers=tuple(dataclasses.replace(x, kv_heads=1) for x in model.spec.layers)
    )
    again = HostTier(narrow, torch.int8)
    again.load(saved)
    for ours, theirs in zip(again.channel_scales, tier.channel_scales, strict=True):
        for mine, other in zip(ours, theirs, strict=True):
            assert torch.equal(mine.mean, other.mean[:1])
            assert torch.equal(mine.range, other.range[:1])


def test_a_fork_sees_the_base_and_keeps_its_own(tier: HostTier) -> None:
    first, second = tier.fork(), tier.fork()
    before = tier.source().clone()
    first.append(*entries(30, 7))
    assert first.length == 231
    assert second.length == tier.length == 201
    assert torch.equal(tier.source(), before)
    assert torch.equal(first.source()[201:], entries(30, 7)[2])
    assert sum(part.tensors["source"].shape[0] for part in first.state().values()) == 30


def test_a_snapshot_is_not_moved_by_later_entries(tier: HostTier) -> None:
    snapshot = tier.snapshot()
    tier.append(*entries(40, 5))
    assert snapshot.length == 201
    assert snapshot.source().shape[0] == 201
    assert int(snapshot.search(0, torch.ones(QUERY_HEADS, 1, SIZE), torch.tensor([201]), 1000)[0].max()) <= 200


def test_forks_and_snapshots_fill_an_open_group_each_for_themselves(model: Model) -> None:
    """Check 100 entries (36 of them wait), and 40 more in each line of history, which fill the group."""
    context = HostTier(model.spec, torch.int8)
    context.append(*entries(100, 0))
    lines = [context.fork(), context.fork(), context]
    before = lines[0].snapshot()
    lines[0].append(*entries(20, 9))  # taken back
    lines[0] = before
    for count in (7, 33):
        for seed, line in enumerate(lines):
            line.append(*entries(count, 10 * count + seed))
    index = torch.arange(128).expand(QUERY_HEADS, 1, -1)
    for seed, line in enumerate(lines):
        alone = HostTier(model.spec, torch.int8)
        for count, number in ((100, 0), (7, 70 + seed), (33, 330 + seed)):
            alone.append(*entries(count, number))
        assert line.stored == 128
        assert torch.equal(line.source(), alone.source())
        for mine, theirs in zip(*(gathered(tier, 1, index) for tier in (line, alone)), strict=True):
            assert torch.equal(mine, theirs)


def test_full_slabs_are_sealed_and_everything_comes_back(tier: HostTier, model: Model) -> None:
    parts = tier.state()
    assert [part.sealed for part in parts.values()] == [True, True, True, False]
    again = HostTier(model.spec, torch.float32)
    again.load(loaded(parts))
    assert torch.equal(again.source(), tier.source())
    again.append(*entries(40, 5))
    tier.append(*entries(40, 5))
    index = torch.arange(241).expand(QUERY_HEADS, 1, -1)
    for mine, theirs in zip(gathered(again, 1, index), gathered(tier, 1, index), strict=True):
        assert torch.equal(mine, theirs)


@pytest.mark.parametrize("stay", [False, True])
def test_for_a_gpu_slabs_from_disk_are_pinned_unless_they_stay_there(
    tier: HostTier, model: Model, monkeypatch: pytest.MonkeyPatch, stay: bool
) -> None:
    pinned: list[int] = []

    def noted(tensor: Tensor) -> Tensor:
        pinned.append(tensor.nbytes)
        return tensor.clone()

    monkeypatch.setattr(Tensor, "pin_memory", noted)  # there is no pinned memory without a GPU
    again = HostTier(dataclasses.replace(model.spec, device=torch.device("cuda")), torch.float32)
    again.load(loaded(tier.state()), stay)
    assert sum(pinned) == (0 if stay else again.nbytes())
    assert again.length == tier.length
    for ours, theirs in zip(again.keys(1), tier.keys(1), strict=True):
        assert torch.equal(ours[0][:, : ours[1]], theirs[0][:, : theirs[1]])
    monkeypatch.setattr("engine.memory_usage.free_bytes", lambda device: 100)
    if not stay:
        with pytest.raises(OutOfMemory, match="Opening this reading"):
            HostTier(again.spec, torch.float32).load(loaded(tier.state()))


def test_slab_size_does_not_change_an_answer(model: Model, ids: Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    method = make_method("exact", budget=96, top_k=24, store="float32")
    question = torch.tensor([1, 80, 81, 82, 2])
    small = next_logits(model, method, read(model, method, ids).memory, question)
    monkeypatch.setattr("engine.parts.archive.tier_plan.SLAB", 32768)
    large = next_logits(model, method, read(model, method, ids).memory, question)
    torch.testing.assert_close(small, large, atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize("store", ["bfloat16", "int8"])
def test_slabs_that_were_saved_leave_memory_as_planned(model: Model, ids: Tensor, store: str) -> None:
    settings = {"budget": 160, "top_k": 24, "store": store}
    method = make_method("exact", **settings, tier="disk")
    reader = Reader(model, method, ids, 32)
    most, saved, full = 0, None, 0
    for _ in reader.run():  # the reading goes on while a state is written
        memory = reader.memory
        if saved and memory.archive.reclaimable_bytes() > full:
            memory.archive.use_mapped_files(saved)
            saved = None
        if not saved and memory.archive.reclaimable_bytes():
            saved, full = loaded(reader.state()[0]), memory.archive.reclaimable_bytes()
        most = max(most, memory.usage().bytes[HOST])
    assert saved
    reader.memory.archive.use_mapped_files(saved)
    planned = method.plan(model.spec, ReadingTask(len(ids), len(model.chat.prefix), 32, model.turn_length))
    assert reader.memory.usage() == planned.usage
    assert most <= planned.usage.bytes[HOST] + planned.host_saving_bytes
    assert planned.usage.entries[DISK] == 320
    question = torch.tensor([1, 80, 81, 82, 2])
    logits = next_logits(model, method, reader.memory, question)
    kept = make_method("exact", **settings)
    torch.testing.assert_close(logits, next_logits(model, kept, read(model, kept, ids, 32).memory, question))


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("exact", {"budget": 160, "top_k": 24, "store": "bfloat16"}),
        ("exact", {"budget": 160, "top_k": 24, "store": "int8"}),
        ("exact", {"budget": 160, "top_k": 24, "tier": "disk"}),
        ("recall", {"budget": 400, "gist": "infinipot", "select": "exact", "top_k": 24}),
        ("recall", {"budget": 400, "gist": "infinipot", "select": "exact", "top_k": 24, "store": "int8"}),
        ("recall", {"budget": 400, "gist": "infinipot", "select": "exact", "top_k": 24, "tier": "disk"}),
    ],
    ids=["exact", "int8", "disk", "recall", "recall-int8", "recall-disk"],
)
def test_who_goes_on_reading_needs_room_for_the_rest_alone(
    model: Model, monkeypatch: pytest.MonkeyPatch, name: str, settings: dict[str, Any]
) -> None:
    """Regression: space for the whole text was required, so the last tokens of a resumed reading failed."""
    ids = torch.randint(4, 260, (1001,), generator=torch.Generator().manual_seed(1))
    method = make_method(name, **settings)
    begun = Reader(model, method, ids, 32)
    for _ in itertools.takewhile(lambda step: step.tokens_done < 900, begun.run()):
        pass
    read_so_far = begun.done - len(model.chat.prefix)
    tasks = [ReadingTask(len(ids), len(model.chat.prefix), 32, model.turn_length, count) for count in (0, read_so_far)]
    whole, rest = (method.plan(model.spec, task) for task in tasks)
    needed = [each.usage.bytes[HOST] + each.host_saving_bytes for each in (whole, rest)]
    assert needed[1] < needed[0] / (1 if settings.get("tier") == "disk" else 3)
    parts, meta = begun.state()
    monkeypatch.setattr("engine.memory_usage.free_bytes", lambda device: needed[1])
    if settings.get("tier") != "disk":
        with pytest.raises(OutOfMemory):
            Reader(model, method, ids, 32)
    reader = Reader.resume(model, method, ids, loaded(parts), meta, 32)
    reader.memory.archive.use_mapped_files(loaded(parts))
    for _ in reader.run():
        if reader.memory.archive.reclaimable_bytes():
            reader.memory.archive.use_mapped_files(loaded(reader.state()[0]))
    assert reader.memory.usage() == rest.usage
    parts, meta = reader.state()
    monkeypatch.setattr("engine.memory_usage.free_bytes", lambda device: 0)
    again = Reader.resume(model, method, ids, loaded(parts), meta, 32)
    assert [step.stage for step in again.run()] == ["ready"]


def sliding() -> Model:
    """Make layers with and without a sliding window, in turn."""
    torch.manual_seed(0)
    return Model(AutoModelForCausalLM.from_config(small_config("gemma2")), byte_tokenizer(), "sliding", "-")


@pytest.mark.parametrize("name", ["exact", "infllm", "infinitehip"])
@pytest.mark.parametrize("store", ["float32", "int8"])
def test_layers_with_a_sliding_window_keep_nothing_here(
    ids: Tensor, name: str, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: such layers, five of six in Gemma 3, took host memory and disk that they never read."""
    model, method = sliding(), make_method(name, store=store)
    context = read(model, method, ids)
    planned = method.plan(model.spec, ReadingTask(len(ids), len(model.chat.prefix), 64, model.turn_length))
    assert context.usage() == planned.usage
    with monkeypatch.context() as before:
        before.setattr(ModelSpec, "looking_far", property(lambda spec: spec))
        everywhere = read(model, method, ids)
    assert context.usage().bytes[HOST] < 0.55 * everywhere.usage().bytes[HOST]
    parts, meta = everywhere.state()  # as it was saved before
    restored = Context.load(model, method, loaded(parts), meta)
    question = torch.arange(10, 150)
    expected = next_logits(model, method, everywhere.memory, question)
    for memory in (context.memory, restored.memory):
        torch.testing.assert_close(next_logits(model, method, memory, question), expected)
    assert answer(Conversation(context), "What?") == answer(Conversation(restored), "What?")


def test_the_host_tier_counts_its_bytes(tier: HostTier) -> None:
    per_entry = LAYERS * 2 * HEADS * SIZE * 4 + 4
    assert tier.nbytes() == 4 * 64 * per_entry  # four slabs, the last one not full


@pytest.mark.parametrize("dtype", [torch.float32, torch.int8])
def test_what_found_no_memory_is_not_lost(model: Model, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    """Need three slabs with space for one, for the new pass or the arriving one."""
    expected, tier, coming = (HostTier(model.spec, dtype) for _ in range(3))
    for each in (expected, tier, coming):
        each.append(*entries(90, 0))
    with monkeypatch.context() as patch:
        patch.setattr(HostTier, "flush", lambda self: None)  # as it comes from a GPU
        coming.append(*entries(200, 1))
    new, made = HostTier._new_slab, []

    def few(self: HostTier, stored: int) -> Slab:
        made.append(stored)
        if len(made) > 1:
            raise MemoryError
        return new(self, stored)

    with monkeypatch.context() as patch:
        patch.setattr(HostTier, "_new_slab", few)
        with pytest.raises(MemoryError):
            tier.append(*entries(200, 1))
        made.clear()
        with pytest.raises(MemoryError):
            coming.append(*entries(30, 2))
    assert (tier.length, coming.length) == (90, 290), "a pass that counts is kept, and the one that comes does not"
    assert tier.stored == coming.stored == (90 if dtype == torch.float32 else 64)
    tier.append(*entries(200, 1))
    expected.append(*entries(200, 1))
    for each in (tier, coming, expected):
        each.append(*entries(30, 2))
    index = torch.arange(expected.stored).expand(QUERY_HEADS, 1, -1)
    for each in (tier, coming):
        assert torch.equal(each.source(), expected.source())
        assert each.stored == expected.stored
        mine, theirs = (gathered(tier, 1, index) for tier in (each, expected))
        assert all(torch.equal(*pair) for pair in zip(mine, theirs, strict=True))


def test_a_conversation_begins_with_a_small_slab(tier: HostTier, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that each later slab doubles the total, up to the size of a text's slab."""
    monkeypatch.setattr("engine.parts.archive.tier_plan.SLAB", 1024)
    fork = tier.fork()
    for number in range(25):
        fork.append(*entries(100, number))
    assert [slab.capacity for slab in fork.slabs[fork.shared :]] == [256, 256, 512, 1024, 1024]


def test_so_does_one_over_a_text_that_left_nothing_here(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: a chat over a text shorter than the sinks took a whole slab, 4 GiB for an 8B model."""
    monkeypatch.setattr("engine.parts.archive.tier_plan.SLAB", 1024)
    fork = HostTier(model.spec, torch.float32).fork()
    fork.append(*entries(10, 0))
    assert [slab.capacity for slab in fork.slabs] == [256]


def test_keys_whose_products_outgrow_float16_are_found(model: Model) -> None:
    generator = torch.Generator().manual_seed(3)
    keys = [300 * torch.randn(HEADS, 500, SIZE, generator=generator) for _ in range(LAYERS)]
    tier = HostTier(model.spec, torch.float16)
    tier.append(keys, keys, torch.arange(500, dtype=torch.int32))
    q = 100 * torch.randn(QUERY_HEADS, 1, SIZE, generator=generator)
    index, _, _ = tier.search(0, q, torch.tensor([500]), 8)
    scores = q @ keys[0].half().float().repeat_interleave(3, dim=0).transpose(1, 2)
    assert float(scores.max()) > torch.finfo(torch.float16).max
    assert torch.equal(index.sort().values, scores.topk(8).indices.sort().values)


def test_a_processor_slow_in_bfloat16_tells_keys_with_a_common_offset_apart(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kernels.rows.fast_in_bfloat16", lambda device: False)
    own, order = torch.zeros(HEADS, 200, SIZE), torch.randperm(200, generator=torch.Generator().manual_seed(1))
    own[..., 0], own[..., 1] = 64.0, order / 8.0  # beside 4,096, bfloat16 knows no smaller steps than 32
    tier = HostTier(model.spec, torch.bfloat16)
    tier.append([own] * LAYERS, [own] * LAYERS, torch.arange(200, dtype=torch.int32))
    q = torch.zeros(QUERY_HEADS, 1, SIZE)
    q[..., :2] = torch.tensor([64.0, 1.0])
    index, _, _ = tier.search(0, q, torch.tensor([200]), 8)
    assert set(order[index[0, 0]].tolist()) == set(range(192, 200))


def test_without_a_gpu_the_device_is_the_host(model: Model, ids: Tensor) -> None:
    settings = {"budget": 160, "top_k": 24, "store": "int8"}
    told = []
    for tier in ("device", "host"):
        context = read(model, make_method("exact", **settings, tier=tier), ids)
        told.append((context.usage(), answer(Conversation(context), "What is it?")))
    assert told[0] == told[1]
