"""Sketches of the host tier: their finds, that they depend on keys alone, forks, memory that runs out."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM

from engine import Conversation, Model, SettingsError, make_method
from engine.decode import recorder
from engine.decode.recorder import Recorder
from engine.models.spec import ModelSpec
from engine.parts.archive import search
from engine.parts.archive.host_tier import HostTier
from engine.parts.archive.sketch import CANDIDATES, KINDS, Sketch, check_sketch, sketch_bytes
from kernels.rows import take
from tests.engine.architectures import small_config
from tests.engine.conftest import byte_tokenizer
from tests.engine.reading import loaded, read
from tests.engine.tiers import HEADS, LAYERS, QUERY_HEADS, SIZE, entries

pytestmark = pytest.mark.usefixtures("small_slabs")
every_kind = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)


def tier(spec: ModelSpec, kind: torch.dtype | None, dtype: torch.dtype = torch.float32, *passes: int) -> HostTier:
    """Make a tier that took in this many tokens a pass."""
    found = HostTier(spec, dtype, sketch=None if kind is None else Sketch(spec, kind))
    taken_in(found, *passes)
    return found


def taken_in(host: HostTier, *passes: int) -> None:
    """Add the same tokens in passes of any size."""
    keys, values, source = entries(300, 0)
    for part in torch.split(torch.arange(host.length, host.length + sum(passes)), list(passes)):
        host.append([k[:, part] for k in keys], [v[:, part] for v in values], source[part])


def queries(count: int = 5) -> Tensor:
    return torch.randn(QUERY_HEADS, count, SIZE, generator=torch.Generator().manual_seed(9))


def found_by(host: HostTier, top: int, limits: list[int], q: Tensor | None = None) -> list[set[int]]:
    q = queries(len(limits)) if q is None else q
    index, held, _ = host.search(1, q, torch.tensor(limits), top)
    return [set(i[h].tolist()) for i, h in zip(index.flatten(0, 1), held.flatten(0, 1), strict=True)]


@every_kind
@pytest.mark.parametrize("dtype", [torch.float32, torch.int8], ids=["float32", "int8"])
@pytest.mark.parametrize("limits", [[256] * 5, [0, 1, 63, 130, 256]])
def test_where_all_entries_are_candidates_the_best_are_found(
    model: Model, kind: torch.dtype, dtype: torch.dtype, limits: list[int]
) -> None:
    sketched, plain = tier(model.spec, kind, dtype, 100, 163), tier(model.spec, None, dtype, 100, 163)
    top = 256 // CANDIDATES[kind]
    assert found_by(sketched, top, limits) == found_by(plain, top, limits)


@pytest.mark.parametrize(("name", "least"), [("int4", 0.97), ("int2", 0.8)])
def test_few_candidates_hold_most_of_the_best_also_of_keys_far_from_zero(model: Model, name: str, least: float) -> None:
    """Want 12 of 4,096 entries from 24 or 48 candidates, also with a large common offset, as in models with biases."""
    spec, offset = model.spec, 30 * torch.randn(HEADS, 1, SIZE, generator=torch.Generator().manual_seed(3))
    plain, sketched = HostTier(spec, torch.float32), HostTier(spec, torch.float32, sketch=Sketch(spec, KINDS[name]))
    keys, values, source = entries(4096, 0)
    for host in (plain, sketched):
        host.append([key + offset for key in keys], values, source)
    best, found = (found_by(host, 12, [4096] * 40, queries(40)) for host in (plain, sketched))
    assert sum(len(one & other) for one, other in zip(best, found, strict=True)) / sum(map(len, best)) > least


@every_kind
@pytest.mark.parametrize("dtype", [torch.float32, torch.quint4x2], ids=["float32", "int4"])
def test_sketches_are_those_of_the_keys_however_they_came(model: Model, kind: torch.dtype, dtype: torch.dtype) -> None:
    """Compare to the last bit: one pass, many passes, from disk, and in a conversation."""
    at_once, slowly = tier(model.spec, kind, dtype, 300), tier(model.spec, kind, dtype, *[7] * 42, 6)
    restored = HostTier(model.spec, dtype, sketch=Sketch(model.spec, kind))
    restored.load(loaded(at_once.state()))
    fork = tier(model.spec, kind, dtype, 100).fork()
    taken_in(fork, 200)
    codes = [[codes_of(each, layer) for layer in range(LAYERS)] for each in (at_once, slowly, restored, fork)]
    assert codes[0][0].shape[1] == 256, "an open group has no sketches"
    for other in codes[1:]:
        assert all(torch.equal(ours, theirs) for ours, theirs in zip(codes[0], other, strict=True))


def codes_of(host: HostTier, layer: int) -> Tensor:
    assert host.sketch is not None
    return torch.cat([bank.quantized[:, :length] for bank, length in host.sketch.banks(layer)], dim=1)  # type: ignore[union-attr]


def test_a_fork_leaves_the_sketches_of_its_base_alone(model: Model) -> None:
    base = tier(model.spec, KINDS["int2"], torch.float32, 200)
    before = found_by(base, 16, [192] * 3)
    first, second = base.fork(), base.fork()
    for number, fork in enumerate((first, second), start=1):
        fork.append(*entries(300, number))
        fork.flush()
    assert found_by(base, 16, [192] * 3) == before
    assert found_by(first, 16, [448] * 3) != found_by(second, 16, [448] * 3)
    assert found_by(first, 16, [192] * 3) == found_by(second, 16, [192] * 3) == before


@every_kind
def test_sketches_take_the_bytes_that_are_planned(model: Model, kind: torch.dtype) -> None:
    host = HostTier(model.spec, torch.float32, sketch=Sketch(model.spec, kind))
    host.expected = 400
    for number in range(4):
        host.append(*entries(90, number))
    assert host.device_bytes() == sketch_bytes(model.spec, kind, 400)


def test_a_pass_whose_sketches_find_no_memory_is_not_taken_in(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    host, whole = (tier(model.spec, KINDS["int2"], torch.float32, 100) for _ in range(2))
    with monkeypatch.context() as patch:
        patch.setattr(Sketch, "_empty", lambda *_: (_ for _ in ()).throw(MemoryError))
        with pytest.raises(MemoryError):
            host.append(*entries(400, 1))
    assert host.length == host.stored == 100
    for each in (host, whole):
        each.append(*entries(400, 1))
    assert torch.equal(host.source(), whole.source())
    assert found_by(host, 8, [448] * 3) == found_by(whole, 8, [448] * 3)


def test_what_may_be_searched_has_a_sketch_also_where_a_pass_is_still_on_its_way(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: on a GPU, entries of an open group were in no window, and were not found."""
    host = tier(model.spec, KINDS["int2"], torch.float32, 100)
    with monkeypatch.context() as patch:
        patch.setattr(HostTier, "flush", lambda self: None)
        taken_in(host, 69)
    assert (host.stored, host.length) == (100, 169)
    host.flush(needed=64)
    assert host.stored == 100, "there is no need to wait"
    host.flush(needed=90)
    assert host.sketch is not None
    assert host.sketch.length == 128


@pytest.mark.parametrize("kind", ["llama", "gemma3_text", "gpt_oss"])
def test_what_was_recorded_is_recorded_anew_when_sketches_are_moved(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: if the first layer has a sliding window, as here, the move was not noticed and later entries were not
    found.
    """
    monkeypatch.setattr("engine.parts.archive.host_tier.FIRST_OF_CONVERSATION", 64)
    monkeypatch.setattr("engine.parts.archive.tier_plan.SLAB", 1 << 15)
    monkeypatch.setattr(recorder, "choice", lambda: "static")
    torch.manual_seed(0)
    model = Model(AutoModelForCausalLM.from_config(small_config(kind)), byte_tokenizer(), kind, "-")
    monkeypatch.setattr(model, "recorder", Recorder(model.network))
    method = make_method("exact", budget=124, top_k=24, store="float32", looks=1, sketch="int4")
    ids = torch.randint(4, 260, (330,), generator=torch.Generator().manual_seed(1))
    context = read(model, method, ids[:170])
    theirs, ours, rooms = Conversation(context), Conversation(context), set()
    for token in ids[170:].tolist():
        with model.recorder.stopped():
            expected = theirs.feed([token], repeated=True)
        torch.testing.assert_close(ours.feed([token], repeated=True), expected, rtol=1e-3, atol=1e-4)
        rooms.add(ours.memory.archive.host.sketch.capacity)  # type: ignore[attr-defined]
    assert ours.memory.recordings
    assert len(rooms) >= 3


def test_a_search_that_is_recorded_finds_the_same(model: Model) -> None:
    """Check with capacity beyond the entries, whose contents are undefined."""
    base = tier(model.spec, KINDS["int2"], torch.float32, 200)
    fork = base.fork()
    fork.append(*entries(90, 1))
    assert fork.sketch is not None
    assert fork.sketch.capacity > 256
    late = torch.arange(100, fork.sketch.capacity) >= 250
    for bank in fork.sketch.own:
        bank.scale[:, fork.sketch.length - fork.sketch.before :] = float("nan")
    q = queries(1)
    index, held, keys = search.best_by_all_sketches(fork.sketch, 1, fork.keys(1), q, late, 16)
    assert bool(held.all())
    assert [set(each.tolist()) for each in index.flatten(0, 1)] == found_by(fork, 16, [250], q)
    assert keys is not None
    rows = index.reshape(HEADS, -1)
    assert torch.equal(keys.view(HEADS, -1, SIZE), take(fork.keys(1), rows)), "those that were fetched to be compared"


@pytest.mark.parametrize("dtype", [torch.float32, torch.int8], ids=str)
def test_all_that_there_is_room_for_is_searched_and_nothing_else_found(model: Model, dtype: torch.dtype) -> None:
    """Check with rows that were never written, in a block that the room does not fill."""
    base = HostTier(model.spec, dtype)
    base.append(*entries(200, 0))
    fork = base.fork()
    fork.append(*entries(90, 1))
    *others, (last, length) = fork.keys(1)
    if isinstance(last, Tensor):
        last[:, length:] = float("nan")
    room = sum(count for _, count in others) + last.shape[1]
    late = torch.arange(100, search.in_blocks(room)) >= 250
    q = queries(1)
    index, held, _ = search.best_of_room([*others, (last, last.shape[1])], q, late, 16)
    assert bool(held.all())
    expected = search.best_of_all(fork.keys(1), q, torch.tensor([250]), 16, 250).entries
    assert torch.equal(index.sort(dim=2).values, expected.sort(dim=2).values)


def test_settings_that_cannot_be_are_refused(model: Model) -> None:
    with pytest.raises(SettingsError, match="sketch is one of none, int4, int2, not 'int3'"):
        make_method("exact", sketch="int3")
    with pytest.raises(SettingsError, match="give at least 227, or a smaller top_k"):
        make_method("exact", budget=226, sketch="int2")  # the window is one group longer than without sketches
    make_method("exact", budget=227, sketch="int2")
    layer = model.spec.layers[0].__class__
    odd = [layer(**{**vars(each), "head_size": 6}) for each in model.spec.layers]
    spec = ModelSpec(**{**vars(model.spec), "layers": tuple(odd)})
    with pytest.raises(SettingsError, match="head size, 6, is no multiple of that: take sketch=none"):
        check_sketch(spec, KINDS["int2"])
    check_sketch(spec, KINDS["int4"])
