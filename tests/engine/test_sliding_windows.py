"""Layers with a sliding window: without a budget they keep what is in it and some slack, and nothing else changes."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode
from transformers import AutoModelForCausalLM, PreTrainedModel

from engine import Context, Conversation, Reader, make_method
from engine.footprint import Task
from engine.memories.memory import NOT_IN_SOURCE
from engine.memories.slots import SlotMemory
from engine.models.model import Model
from engine.planning.planner import Planner
from engine.records import DEVICE
from tests.engine.conftest import byte_tokenizer
from tests.engine.reading import answer, loaded, next_logits, read
from tests.engine.test_architectures import small_config
from tests.engine.test_planner import ROOMY, fused_operations

KINDS = ["gemma2", "gemma3_text", "mistral"]  # every second layer, also with another RoPE, and all of them
STORES = ["model", "int8"]
QUESTION = torch.arange(10, 150)
CLOSE = {"atol": 2e-5, "rtol": 1e-4}


def sliding(kind: str) -> Model:
    return Model(network(kind), byte_tokenizer(), kind, "-")


def network(kind: str) -> PreTrainedModel:
    torch.manual_seed(0)
    made: PreTrainedModel = AutoModelForCausalLM.from_config(small_config(kind), attn_implementation="eager").eval()
    return made


@pytest.fixture
def everything_kept(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """As it was before: no layer lets go of anything."""
    monkeypatch.setattr(SlotMemory, "_window", lambda memory, heads: None)
    return monkeypatch


@pytest.fixture
def ids() -> Tensor:
    return torch.randint(4, 260, (2000,), generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("chunk", [1, 37, 600])
def test_a_long_text_is_seen_as_by_transformers(kind: str, chunk: int, ids: Tensor) -> None:
    """A chunk of 600 is longer than the slack."""
    model = sliding(kind)
    ids = ids[:1300]
    with torch.no_grad():
        expected = network(kind)(input_ids=ids[None]).logits[0]
    memory, hidden = SlotMemory(model.spec), []
    for part in ids.split(chunk):
        hidden.append(model.forward(part, memory, torch.full((len(part),), NOT_IN_SOURCE, dtype=torch.int32)))
        memory.commit()
    torch.testing.assert_close(model.logits(torch.cat(hidden)), expected, **CLOSE)
    for layer, held in zip(model.spec.layers, memory.own, strict=True):
        assert (held.capacity < len(ids)) == (layer.sliding_window is not None)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("tokens", [30, 500, 2000])
def test_the_plan_is_what_a_reading_holds(kind: str, store: str, tokens: int, ids: Tensor) -> None:
    model, method = sliding(kind), make_method("full", store=store)
    footprint = method.plan(model.spec, Task(tokens, len(model.chat.prefix), 64, model.turn_length))
    context = read(model, method, ids[:tokens])
    assert context.usage() == footprint.usage
    saved = sum(part.nbytes for part in context.state()[0]["slots"].tensors.values())
    assert saved <= footprint.saved_bytes + 4 * 64  # the last hidden state goes along
    conversation = Conversation(context)
    answer(conversation, "Who?", tokens=40)
    assert conversation.usage().bytes[DEVICE] <= footprint.usage.bytes[DEVICE] + footprint.tail_bytes


def test_reading_takes_the_operations_that_were_planned(ids: Tensor) -> None:
    model, method = sliding("mistral"), make_method("full")
    fused = {torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: fused_operations}
    with FlopCounterMode(display=False, custom_mapping=fused) as counted:
        read(model, method, ids)
    planned = Planner.of_loaded(model, ROOMY).plan(method, len(ids)).reading_flops
    assert 0.5 < planned / counted.get_total_flops() < 1.5


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("store", STORES)
def test_nothing_changes_by_it_but_what_it_takes(
    kind: str, store: str, ids: Tensor, request: pytest.FixtureRequest
) -> None:
    model, method = sliding(kind), make_method("full", store=store)
    context = read(model, method, ids)
    logits, told = next_logits(model, method, context.memory, QUESTION), answer(Conversation(context), "What?")
    mine, remembered = context.usage().bytes[DEVICE], context.remembered()
    request.getfixturevalue("everything_kept")
    whole = read(model, method, ids)
    expected = next_logits(model, method, whole.memory, QUESTION)
    assert answer(Conversation(whole), "What?") == told
    most = (0.5 if kind == "mistral" else 0.75) if store == "model" else 1.0  # what is in the window is not coded
    assert mine < most * whole.usage().bytes[DEVICE]
    assert bool((remembered == 1).all()) == (kind != "mistral")
    torch.testing.assert_close(logits, expected, **(CLOSE if store == "model" else {"atol": 0.015, "rtol": 0.0}))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("store", STORES)
def test_save_load_and_continue_equals_uninterrupted(kind: str, store: str, ids: Tensor) -> None:
    model, method = sliding(kind), make_method("full", store=store)
    whole = read(model, method, ids, 48)
    reader = Reader(model, method, ids, chunk=48)
    for _, _progress in zip(range(15), reader.run(), strict=False):
        pass
    parts, meta = reader.state()
    resumed = Reader.resume(model, method, ids, loaded(parts), meta, chunk=48)
    for _ in resumed.run():
        pass
    context = resumed.context()
    expected = next_logits(model, method, whole.memory, QUESTION)
    torch.testing.assert_close(next_logits(model, method, context.memory, QUESTION), expected, **CLOSE)
    parts, meta = context.state()
    again = Context.load(model, method, loaded(parts), meta)
    torch.testing.assert_close(next_logits(model, method, again.memory, QUESTION), expected, **CLOSE)


@pytest.mark.parametrize("kind", KINDS)
def test_what_was_saved_before_still_opens(kind: str, ids: Tensor, everything_kept: pytest.MonkeyPatch) -> None:
    model, method = sliding(kind), make_method("full")
    whole = read(model, method, ids)
    expected = next_logits(model, method, whole.memory, QUESTION)
    parts, meta = whole.state()
    everything_kept.undo()
    again = Context.load(model, method, loaded(parts), meta)
    torch.testing.assert_close(next_logits(model, method, again.memory, QUESTION), expected, **CLOSE)


@pytest.mark.parametrize("kind", KINDS)
def test_a_conversation_goes_far_beyond_the_window_and_leaves_its_context_alone(kind: str, ids: Tensor) -> None:
    model, method = sliding(kind), make_method("full")
    context = read(model, method, ids[:1000])
    before = {name: tensor.clone() for name, tensor in context.state()[0]["slots"].tensors.items()}
    logits = next_logits(model, method, context.memory, ids[1000:])
    after = context.state()[0]["slots"].tensors
    assert all(torch.equal(before[name], after[name]) for name in before)
    at_once = read(model, method, ids[:1999])
    torch.testing.assert_close(logits[-1:], next_logits(model, method, at_once.memory, ids[1999:]), **CLOSE)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("store", STORES)
def test_a_saved_conversation_goes_on(kind: str, store: str, ids: Tensor) -> None:
    model, method = sliding(kind), make_method("full", store=store)
    context = read(model, method, ids[:1000])
    conversation = Conversation(context)
    answer(conversation, "Who?", tokens=60)
    parts, meta = conversation.state()
    again = Conversation.load(context, loaded(parts), meta)
    logits, expected = (each._feed(QUESTION.tolist())[None] for each in (again, conversation))
    torch.testing.assert_close(model.logits(logits), model.logits(expected), **CLOSE)
