"""Quantised entries: their error, their bytes, and that each is rounded once."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import Tensor

from engine import Conversation, Model, SettingsError, make_method
from engine.loops.passes import condense, feed
from engine.memory import Memory
from engine.models.spec import Scoring
from engine.parts.attention import FEW_QUERIES, SharedKeys, causal_range
from engine.parts.mass import no_source
from engine.parts.quantized_slots import (
    QUANTIZED_TYPES,
    Quantization,
    QuantizedSlots,
    channel_scale_bytes,
    check_quantization,
)
from engine.parts.slot_plan import slot_bytes
from engine.parts.slots import SlotStore
from engine.records import DEVICE
from kernels import choice
from kernels.rows import QuantizedSlab
from tests.engine.reading import answer, read

every_store = pytest.mark.parametrize("store", QUANTIZED_TYPES)
SETTINGS = {
    "infinipot": {"budget": 160, "prompt": "Sum up."},
    "locret": {"budget": 96, "chunk": 40, "stabilizers": 16, "local": 12},
}


def first_layer(memory: Memory) -> QuantizedSlots:
    """Return the slots of the first layer, whose keys and values depend on the tokens alone."""
    assert isinstance(memory.store, SlotStore)
    assert isinstance(memory.store.own[0], QuantizedSlots)
    return memory.store.own[0]


def exact_first_layer(model: Model, ids: Tensor) -> tuple[Tensor, Tensor]:
    """Return the exact keys and values [H, T, D] of the text in the first layer."""
    memory = read(model, make_method("full"), ids).memory
    assert isinstance(memory.store, SlotStore)
    prefix = len(model.chat.prefix)
    return memory.store.own[0].keys[:, prefix : memory.store.length], memory.store.own[0].values[
        :, prefix : memory.store.length
    ]


@pytest.mark.parametrize("forked", [False, True])
def test_it_may_be_condensed_before_anything_was_coded(model: Model, ids: Tensor, forked: bool) -> None:
    """Check this since named pages may need more space than the beginning of a text leaves."""
    method = make_method("infinipot", budget=2048, prompt="Sum up.", store="int8")
    context = read(model, method, ids[:20])
    memory = context.memory.fork() if forked else context.memory
    for _ in feed(model, method, memory, ids[20:26], no_source(6), 64):
        pass
    held = memory.usage().entries[DEVICE]
    assert first_layer(memory).channel_scales is None
    condense(model, method, memory)
    slots = first_layer(memory)
    assert (slots.channel_scales is not None, slots.num_quantized) == (True, memory.usage().entries[DEVICE])
    assert 0 < slots.num_quantized <= held
    numbers = slots.dequantized("keys", None, slots.num_quantized)
    every = read(model, make_method("full"), ids[:26]).memory
    assert isinstance(every.store, SlotStore)
    exact = every.store.own[0].keys[:, : every.store.length]
    worst = (numbers[:, :, None] - exact[:, None]).abs().amax(dim=-1).amin(dim=-1).max()
    assert worst < 0.02 * exact.abs().max(), "each is one of those that there were"


@every_store
@pytest.mark.parametrize("name", SETTINGS)
def test_an_entry_is_rounded_once_however_often_it_is_kept(model: Model, ids: Tensor, name: str, store: str) -> None:
    """Check that entries kept through a reading and nine turns equal those quantised when they were read."""
    method = make_method(name, **SETTINGS[name], store=store)
    conversation = Conversation(read(model, method, ids))
    for number in range(9):
        answer(conversation, f"question number {number}?")
    assert isinstance(conversation.memory.store, SlotStore)
    assert not conversation.memory.store.base
    slots = first_layer(conversation.memory)
    source = slots.source[:, : slots.num_quantized].long()
    assert int((source >= 0).sum()) > 20
    for bank, exact in zip(("keys", "values"), exact_first_layer(model, ids), strict=True):
        held = slots.quantized_slab(bank)
        for head in range(len(source)):
            text = source[head] >= 0
            rows = exact[:, source[head][text]]
            fresh = dataclasses.replace(
                held,
                quantized=held.quantized.new_empty(len(rows), rows.shape[1], held.quantized.shape[2]),
                scale=held.scale.new_empty(len(rows), rows.shape[1]),
            )
            fresh.write(0, rows)
            torch.testing.assert_close(
                held.scale[head, : slots.num_quantized][text], fresh.scale[head], rtol=1e-5, atol=0
            )
            differ = held.quantized[head, : slots.num_quantized][text].float() != fresh.quantized[head].float()
            assert differ.float().mean() < 1e-3  # passes of another size change the last bit of a number


@every_store
def test_no_number_is_off_by_more_than_its_code_allows(model: Model, ids: Tensor, store: str) -> None:
    memory = read(model, make_method("locret", budget=None, store=store), ids).memory
    slots, prefix = first_layer(memory), len(model.chat.prefix)
    assert isinstance(memory.store, SlotStore)
    assert 0 < slots.num_quantized < memory.store.length
    for bank, exact in zip(("keys", "values"), exact_first_layer(model, ids), strict=True):
        pages = slots.quantized_slab(bank)
        error = (slots.dequantized(bank, None, memory.store.length)[:, prefix:] - exact).abs()
        count = slots.num_quantized - prefix
        step = pages.scale[:, prefix : slots.num_quantized, None] * pages.channel_scale.range[:, None]
        if store == "fp8":  # three bits of mantissa of the normalised number, and a fixed step near zero
            levelled = (exact[:, :count] - pages.channel_scale.mean[:, None]).abs()
            allowed = torch.maximum(levelled / 16, step * 2**-10)
        else:
            allowed = step / 2
        assert bool((error[:, :count] <= 1.002 * allowed + 1e-6).all())
        assert error[:, :count].max() > 1e-4  # and it is not the identity
        assert error[:, count:].max() < 1e-6  # pending entries are exact


@pytest.mark.parametrize("share", ["even", "all"])
@pytest.mark.parametrize("name", SETTINGS)
@every_store
def test_bytes_are_those_of_the_storage(model: Model, ids: Tensor, name: str, store: str, share: str) -> None:
    method = make_method(name, **SETTINGS[name], store=store, share=share)
    quantization = method.quantization(model.turn_length)
    assert quantization is not None
    assert method.budget is not None
    room = method.budget + method.passing(model.spec)
    conversation = Conversation(read(model, method, ids))
    context = conversation.context.memory
    levels = channel_scale_bytes(model.spec)
    assert context.usage().bytes[DEVICE] == quantization.slot_bytes(model.spec, room) + levels
    shared = context.fork().usage().bytes[DEVICE] - context.usage().bytes[DEVICE]
    assert shared == quantization.slot_bytes(model.spec, 256)  # a fork's own, with the context's channel scales
    for number in range(9):
        answer(conversation, f"question number {number}?")
    memory = conversation.memory
    assert isinstance(memory.store, SlotStore)
    storage = {
        t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for s in memory.store.own for t in s.tensors()
    }
    assert sum(storage.values()) == quantization.slot_bytes(model.spec, room) + levels == memory.usage().bytes[DEVICE]


@pytest.mark.parametrize("size", [48, 128])
@pytest.mark.parametrize("name", ["infinipot", "locret"])
@pytest.mark.parametrize("budget", [1024, 2048, 16384])
def test_codes_take_the_promised_share_of_sixteen_bits(model: Model, name: str, size: int, budget: int) -> None:
    layers = [dataclasses.replace(layer, head_size=size) for layer in model.spec.layers]
    spec = dataclasses.replace(model.spec, layers=layers, dtype=torch.bfloat16)
    for store, most in (("int8", 0.48), ("fp8", 0.48), ("int4", 0.32 if size == 48 else 0.30)):
        method = make_method(name, budget=budget, store=store)
        quantization, room = method.quantization(lambda text: 20), budget + method.passing(spec)  # of a catalyst
        assert quantization is not None
        assert quantization.slot_bytes(spec, room) + channel_scale_bytes(spec) <= most * slot_bytes(spec, room)


def test_a_conversation_over_a_context_without_codes_has_levels_of_its_own(model: Model, ids: Tensor) -> None:
    method = make_method("locret", budget=2048, store="int8")
    quantization = method.quantization(model.turn_length)
    assert quantization is not None
    context = read(model, method, ids[:20])
    conversation = Conversation(context)
    assert first_layer(context.memory).num_quantized == 0
    for number in range(12):
        answer(conversation, f"a long question, number {number}, of which there are some?")
    coded = first_layer(conversation.memory).num_quantized
    assert coded > 0
    assert coded % quantization.most_pending == 0
    assert first_layer(context.memory).channel_scales is None


@every_store
def test_kernels_read_codes_where_they_lie(model: Model, monkeypatch: pytest.MonkeyPatch, store: str) -> None:
    pytest.importorskip("triton")
    layer, quantization = model.spec.layers[0], Quantization(QUANTIZED_TYPES[store], 16)
    generator = torch.Generator().manual_seed(0)

    def random(heads: int, count: int) -> Tensor:
        return torch.randn(heads, count, layer.head_size, generator=generator)

    def filled(slots: QuantizedSlots, waiting: int) -> QuantizedSlots:
        keys, values = random(layer.kv_heads, 16), random(layer.kv_heads, 16)
        slots.write(0, keys, keys, values)
        slots = slots.quantize_pending(16)
        keys, values = random(layer.kv_heads, waiting), random(layer.kv_heads, waiting)
        slots.write(16, keys, keys, values)
        return slots

    base = filled(quantization.slots(layer, model.spec, 0, 64, 0), 5)
    own = quantization.slots(layer, model.spec, 21, 64, 0)
    own.share_scales(base)
    own = filled(own, 3)
    q, span = random(layer.query_heads, 3), causal_range(3, 40, None, torch.device("cpu"))
    found = []
    for implementation in ("torch", "triton"):
        monkeypatch.setattr(choice, "implementation", lambda implementation=implementation: implementation)
        keys, values, lists = own.slabs(base, 19, 3)
        assert [isinstance(slab, QuantizedSlab) for slab, _ in keys] == (
            [False] if lists is None else [True, False] * 2
        )
        segment = SharedKeys(q, keys, values, span, lists)
        output, total = segment.attend(Scoring(0.2))
        found.append((output, total, segment.attention_per_key(total, Scoring(0.2))))
    for plain, mine in zip(*found, strict=True):
        torch.testing.assert_close(mine, plain, rtol=1e-4, atol=1e-4)
    assert own.slabs(base, 19, FEW_QUERIES + 1)[2] is None  # many queries would dequantise too often
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert own.slabs(base, 19, 3)[2] is None  # beside a GPU no kernel reads the host


def test_how_much_waits_follows_the_budget() -> None:
    waits = {budget: Quantization.of("int8", budget) for budget in (None, 16, 96, 1024, 2048, 1 << 20)}
    assert [quantization.most_pending for quantization in waits.values() if quantization] == [
        256,
        4,
        24,
        128,
        256,
        2048,
    ]
    assert Quantization.of("model", 1024) is None


def test_stores_that_cannot_be_are_refused_before_reading(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in SETTINGS:
        with pytest.raises(SettingsError, match=r"store is one of model, int8, int4, fp8, not 'int2'"):
            make_method(name, store="int2")
    odd = [dataclasses.replace(layer, head_size=7) for layer in model.spec.layers]
    with pytest.raises(SettingsError, match="even head size, and this model's is 7: take int8"):
        make_method("infinipot", store="int4").new_memory(dataclasses.replace(model.spec, layers=odd), len)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (8, 6))
    with pytest.raises(SettingsError, match=r"capability 8\.9 or more: take int8"):
        check_quantization(dataclasses.replace(model.spec, device=torch.device("cuda")), torch.float8_e4m3fn)
