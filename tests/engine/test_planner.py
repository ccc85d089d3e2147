"""Compare the planner's arithmetic with tensors that really exist."""

from __future__ import annotations

import copy
import dataclasses
from pathlib import Path
from typing import Any
from weakref import WeakSet

import pytest
import torch
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM, LlamaForCausalLM

from engine import (
    METHODS,
    Answer,
    AskOptions,
    Conversation,
    Finder,
    Method,
    Model,
    Reader,
    ReadText,
    Sampling,
    SettingsError,
    answer_from_text,
    load_model,
    make_method,
)
from engine.models.architectures import ARCHITECTURES
from engine.models.experts import has_experts
from engine.models.sizes import model_sizes, sizes_of
from engine.parts.footprint import ReadingTask
from engine.parts.slot_rows import Slots
from engine.planning.plan import Machine
from engine.planning.planner import Planner
from engine.records import DEVICE, HOST
from kernels.slab_facts import tensors_of
from tests.engine.architectures import kinds_with, small_config
from tests.engine.conftest import byte_tokenizer, tiny_config
from tests.engine.matrix import COVERING, FORGETFUL, TIGHT
from tests.engine.plans import GB, LLAMA_8B, ROOMY, llama, peak_of, peak_of_pass, with_store
from tests.engine.reading import answer, loaded, next_logits, read

MIXTURE = {
    "vocab_size": 300,
    "hidden_size": 256,
    "intermediate_size": 256,
    "moe_intermediate_size": 64,
    "num_experts": 8,
    "num_experts_per_tok": 6,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 4096,
}
METHODS_TO_READ = {**TIGHT, **{f"{name}-default": make_method(name) for name in METHODS}}


@pytest.mark.parametrize("kind", ARCHITECTURES)
def test_a_config_tells_what_the_loaded_model_is_like(kind: str) -> None:
    config = small_config(kind)
    planned = model_sizes(config, torch.float32)
    model = Model(AutoModelForCausalLM.from_config(copy.deepcopy(config)), byte_tokenizer(), kind, "-")
    for expected, layer in zip(model.spec.layers, planned.spec.layers, strict=True):
        assert dataclasses.replace(layer, rope=expected.rope) == expected
    assert planned.weight_bytes() == sum(weight.nbytes for weight in model.network.parameters())
    loaded = sizes_of(model.network, model.spec)
    assert dataclasses.replace(loaded, spec=planned.spec) == planned
    assert planned.spec.entry_bytes == model.spec.entry_bytes
    tables = [sorted(rope.bytes_for(5000, 4) for rope in spec.ropes) for spec in (planned.spec, model.spec)]
    assert tables[0] == tables[1]


@pytest.mark.parametrize("kind", kinds_with("experts"))
def test_a_token_is_multiplied_with_the_experts_that_are_chosen(kind: str) -> None:
    """Compare two experts of four with all of them."""
    config = small_config(kind)
    two = model_sizes(config, torch.float32).active
    config.num_experts_per_tok = 4
    network = AutoModelForCausalLM.from_config(config)
    stacks = [each for each in network.modules() if has_experts(each)]
    experts = sum(weight.numel() for each in stacks for weight in each.parameters() if weight.dim() == 3)
    assert experts > 0
    assert model_sizes(config, torch.float32).active - two == experts / 2


@pytest.mark.parametrize(
    ("name", "tokens"),
    [
        (name, tokens)
        for tokens in (40, 301, 1501)
        for name in METHODS_TO_READ
        if tokens == 301 or name in COVERING or name.endswith("-default")
    ],
)
def test_the_plan_is_what_a_reading_holds(
    model: Model, name: str, tokens: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    method = METHODS_TO_READ[name]
    ids = torch.randint(4, 260, (tokens,), generator=torch.Generator().manual_seed(3))
    passed: list[int] = []
    forward = model.forward

    def counting(ids: Tensor, *arguments: Tensor) -> Tensor:
        passed.append(len(ids))
        return forward(ids, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(model, "forward", counting)
    task = ReadingTask(tokens, len(model.chat.prefix), 64, model.turn_length)
    footprint = method.plan(model.spec, task)
    reader = Reader(model, method, ids, task.chunk)
    for _ in reader.run():
        pass
    assert footprint.usage == reader.memory.usage()
    assert footprint.work.passed == sum(passed)
    parts, _ = reader.state()
    host = sum(each.nbytes for name, part in parts.items() if "host" in name for each in part.tensors.values())
    slack = host * 32768 // max(1, footprint.usage.entries.get(HOST, 0))  # of at most one slab, the last
    assert host <= footprint.usage.bytes.get(HOST, 0) <= host + slack
    saved = sum(each.nbytes for name, part in parts.items() if "host" not in name for each in part.tensors.values())
    assert saved <= footprint.usage.bytes[DEVICE] + 4 * 48  # the last hidden state goes along


@pytest.mark.parametrize("extend_always", [False, True])
def test_tables_of_positions_are_planned(extend_always: bool) -> None:
    """Cover blocks within the model's window: they keep their positions in the text, far beyond their own number."""
    config = tiny_config()
    config.max_position_embeddings = 4096
    model = Model(LlamaForCausalLM(config), byte_tokenizer(), "tiny", "-")
    method = make_method("infinitehip", budget=1024, extend_always=extend_always)
    read(model, method, torch.randint(4, 260, (3000,)), 64)
    footprint = method.plan(model.spec, ReadingTask(3000, len(model.chat.prefix), 64, model.turn_length))
    [rope] = model.spec.ropes
    planned = rope.bytes_for(max(footprint.work.widest, footprint.work.positions), model.spec.dtype.itemsize)
    assert sum(table.nbytes for table in rope.tables()) == planned


@pytest.mark.parametrize("name", METHODS)
def test_what_the_beginning_of_a_text_takes_grows_to_what_all_of_it_takes(model: Model, name: str) -> None:
    """Check that with full attention the last tokens take longest, and that a fixed budget makes all alike."""
    method, planner, total = make_method(name), Planner.of_loaded(model, ROOMY), 100_000
    whole = planner.operations(method, total, total)
    shares = [planner.operations(method, total * eighth // 8, total) / whole for eighth in range(1, 9)]
    assert shares == sorted(shares)
    if name == "full":
        assert shares[3] < 0.3
    elif name in ("streaming", "exact", "infllm", "infinipot", "locret"):
        assert shares[3] == pytest.approx(0.5, abs=0.04)


@pytest.mark.parametrize("name", [*sorted(METHODS), "infinipot:int8", "locret:int4", "recall:int8"])
def test_a_conversation_takes_no_more_than_planned(model: Model, ids: Tensor, name: str) -> None:
    method = with_store(name)
    footprint = method.plan(model.spec, ReadingTask(len(ids), len(model.chat.prefix), 64, model.turn_length))
    reader = Reader(model, method, ids, 64)
    for _ in reader.run():
        pass
    conversation = Conversation(reader.context())
    answer(conversation, "Who?", tokens=40)
    taken, planned = conversation.usage().bytes, footprint.usage.bytes
    assert taken[DEVICE] <= planned[DEVICE] + footprint.conversation_bytes
    assert taken.get(HOST, 0) <= planned.get(HOST, 0) + footprint.host_conversation_bytes


@pytest.mark.parametrize("method", FORGETFUL.values(), ids=FORGETFUL)
def test_turns_take_no_more_than_planned_at_any_moment(
    model: Model, method: Method, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cover the memory before a question, and the one of passages that are read again alone, short and long."""
    ids = torch.randint(4, 260, (1500,), generator=torch.Generator().manual_seed(3))
    context = read(model, method, ids)
    footprint = method.plan(model.spec, ReadingTask(len(ids), len(model.chat.prefix), 64, model.turn_length))
    alive, most = WeakSet(context.memory.store.own), 0  # type: ignore[attr-defined]
    begin = Slots.__init__

    def noted(self: Slots, *given: Any, **named: Any) -> None:
        nonlocal most
        begin(self, *given, **named)
        alive.add(self)
        held = {x.untyped_storage().data_ptr(): x.untyped_storage().nbytes() for each in alive for x in each.tensors()}
        most = max(most, sum(held.values()))

    monkeypatch.setattr(Slots, "__init__", noted)
    conversation = Conversation(context)
    finder = Finder(ids, model.decode)
    for number, named in enumerate([None, torch.arange(100), torch.arange(1200)] * 2):
        text = ReadText(ids, finder, named)
        *_, last = answer_from_text(conversation, f"Who came, {number}?", text, Sampling(max_tokens=40), AskOptions())
    assert isinstance(last, Answer)
    alone = make_method("full").plan(model.spec, ReadingTask(1300, len(model.chat.prefix), 64, model.turn_length))
    planned = sum(each.usage.bytes[DEVICE] + each.conversation_bytes for each in (footprint, alone))
    assert 0.6 * planned < most <= planned


@pytest.mark.parametrize("budget", [130, 400])
def test_slots_of_a_conversation_are_never_more_than_planned(model: Model, ids: Tensor, budget: int) -> None:
    """Regression: plans ignored that slots begin as 256 and are doubled, if the budget is smaller."""
    method = make_method("infinipot", budget=budget, prompt="Sum up.")
    footprint = method.plan(model.spec, ReadingTask(10, len(model.chat.prefix), 64, model.turn_length))
    conversation = Conversation(read(model, method, ids[:10]))
    most = budget - conversation.usage().entries[DEVICE] - model.turn_length("Sum up.")
    conversation.feed(ids[:most].tolist())
    parts, meta = conversation.state()
    for each in (conversation, Conversation.load(conversation.context, loaded(parts), meta)):
        taken, planned = each.usage().bytes[DEVICE], footprint.usage.bytes[DEVICE]
        assert planned < taken <= planned + footprint.conversation_bytes


@pytest.mark.parametrize("name", ["exact", "exact:int8", "infllm", "infinitehip", "recall", "recall:int4"])
def test_saving_takes_no_more_than_planned(model: Model, ids: Tensor, name: str) -> None:
    """Check that a partial slab is copied, so that only its used rows are written."""
    method = with_store(name)
    footprint = method.plan(model.spec, ReadingTask(len(ids), len(model.chat.prefix), 64, model.turn_length))
    reader = Reader(model, method, ids, 64)
    running, copied = reader.run(), 0
    for _ in running:
        slabs = reader.memory.archive.host.slabs  # type: ignore[attr-defined]
        held = [t for slab in slabs for bank in (*slab.keys, *slab.values) for t in tensors_of(bank)]
        there = {t.untyped_storage().data_ptr() for t in (*held, *(slab.source for slab in slabs))}
        parts = [part for part_name, part in reader.state()[0].items() if part_name.startswith("host-0")]
        saved = [t.contiguous() for part in parts for t in part.tensors.values()]  # as the writer does
        copied = max(copied, sum(t.nbytes for t in saved if t.untyped_storage().data_ptr() not in there))
    assert 0 < copied <= footprint.host_saving_bytes


@pytest.mark.parametrize("name", ["exact", "infinipot", "infinipot:int4", "full", "full:int8"])
def test_the_workspace_is_not_less_than_a_pass_takes(name: str) -> None:
    config = tiny_config()
    config.update({"hidden_size": 96, "intermediate_size": 256, "head_dim": 16, "vocab_size": 1000})
    torch.manual_seed(0)
    model = Model(AutoModelForCausalLM.from_config(config), byte_tokenizer(), "wide", "-")
    method = with_store(name)
    ids = torch.randint(4, 260, (3 * 256 - len(model.chat.prefix),))
    plan = Planner(sizes_of(model.network, model.spec), Machine(64 * GB, 0, True), model.turn_length).plan(
        method, len(ids)
    )
    peak = peak_of_pass(model, method, ids, plan.chunk)
    assert peak <= plan.workspace_bytes + plan.footprint.condense_bytes
    assert plan.workspace_bytes <= 4 * peak


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_nor_do_queries_that_select_take_more_than_is_planned(dtype: torch.dtype) -> None:
    """Regression: turning selected keys to their true distances was not counted."""
    config = tiny_config()
    config.update({"head_dim": 32, "max_position_embeddings": 2048})
    model = Model(AutoModelForCausalLM.from_config(config).to(dtype), byte_tokenizer(), "wide", "-")
    method, ids = make_method("exact", budget=800, top_k=512, looks=1), torch.randint(4, 260, (1500,))
    memory = read(model, method, ids, 256).memory
    peak = peak_of(lambda: next_logits(model, method, memory, ids[:64]))
    planned = method.plan(model.spec, ReadingTask(len(ids), len(model.chat.prefix), 64, model.turn_length))
    assert peak <= planned.conversation_bytes <= 4 * peak


@pytest.mark.parametrize("quantize", ["none", "nf4"])
@pytest.mark.parametrize("kind", ["qwen3_moe", "gpt_oss"])
def test_nor_is_it_less_than_a_mixture_takes(kind: str, quantize: str, tmp_path: Path) -> None:
    """Regression: plans ignored that transformers holds every token for all of its experts at once.

    Experts with biases take more.
    """
    sizes = {**MIXTURE, "intermediate_size": MIXTURE["moe_intermediate_size"]} if kind == "gpt_oss" else MIXTURE
    config = AutoConfig.for_model(kind, **sizes)
    torch.manual_seed(0)
    AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path)
    byte_tokenizer().save_pretrained(tmp_path)
    model, method = load_model(tmp_path, "cpu", quantize=quantize), make_method("full")
    ids = torch.randint(4, 260, (3 * 256 - len(model.chat.prefix),))
    plan = Planner(sizes_of(model.network, model.spec), Machine(64 * GB, 0, True), model.turn_length).plan(
        method, len(ids), quantize
    )
    peak = peak_of_pass(model, method, ids, plan.chunk)
    assert peak <= plan.workspace_bytes <= 4 * peak


def test_bytes_of_a_known_model() -> None:
    model = llama().model
    assert model.parameters == 8_030_261_248
    assert model.weight_bytes() == 16_060_522_496
    assert model.spec.entry_bytes == 131072  # 128 KiB per token, as the papers say
    assert 5.6 * GB < model.weight_bytes("nf4") < 5.8 * GB
    assert 9.0 * GB < model.weight_bytes("8bit") < 9.1 * GB


def turns(length: int, others: str, full: str = "full_attention") -> list[str]:
    """Return the kinds of a turn of layers: the last one attends to the whole text."""
    return [*[others] * (length - 1), full]


# Configurations as published, as far as keys and values depend on them.
QWEN35_9B = {
    "num_hidden_layers": 32,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 32,
    "max_position_embeddings": 262144,
}
LFM2_2B6 = {
    "num_hidden_layers": 30,
    "hidden_size": 2048,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "layer_types": ["full_attention" if each in (2, 5, 9, 12, 15, 18, 23, 27) else "conv" for each in range(30)],
}
GRANITE_H_TINY = {
    "num_hidden_layers": 40,
    "hidden_size": 1536,
    "num_attention_heads": 12,
    "num_key_value_heads": 4,
    "layer_types": 4 * turns(10, "mamba", "attention"),
    "mamba_n_heads": 48,
    "mamba_n_groups": 1,
}
GEMMA4_E2B = {
    "num_hidden_layers": 35,
    "num_key_value_heads": 1,
    "head_dim": 256,
    "global_head_dim": 512,
    "num_kv_shared_layers": 20,
    "layer_types": 7 * turns(5, "sliding_attention"),
    "hidden_size_per_layer_input": 256,
}


@pytest.mark.parametrize(
    ("kind", "settings", "attending", "token_bytes"),
    [
        pytest.param("qwen3_5_text", QWEN35_9B, 8, 8 * 4 * 256 * 4, id="Qwen3.5-9B"),
        pytest.param("lfm2", LFM2_2B6, 8, 8 * 8 * 64 * 4, id="LFM2-2.6B"),
        pytest.param("granitemoehybrid", GRANITE_H_TINY, 4, 4 * 4 * 128 * 4, id="Granite-4.0-H-Tiny"),
        # Of its seven full layers four share keys and values, and each of them holds its own copy.
        pytest.param("gemma4_text", GEMMA4_E2B, 35, 7 * 1 * 512 * 4, id="Gemma-4-E2B"),
    ],
)
def test_a_token_leaves_bytes_only_where_a_layer_looks_far(
    kind: str, settings: dict[str, Any], attending: int, token_bytes: int
) -> None:
    spec = model_sizes(AutoConfig.for_model(kind, **settings), torch.bfloat16).spec
    assert len(spec.layers) == attending
    assert spec.looking_far.entry_bytes == token_bytes
    short, long = (make_method("exact").plan(spec, ReadingTask(n, 10, 512, len)) for n in (10**5, 10**6))
    for held in (DEVICE, HOST):  # the rest, states and windows, is the same at every length
        grown = long.usage.bytes[held] - short.usage.bytes[held]
        assert grown == (9 * 10**5 * (token_bytes + 4) if held == HOST else 0)


@pytest.mark.parametrize(
    ("published", "low", "high"),
    [
        ({"quant_method": "awq", "bits": 4, "group_size": 128}, 5.70, 5.74),  # as Llama-3.1-8B is published: 5.73 GB
        ({"quant_method": "gptq", "bits": 4, "group_size": 128}, 5.70, 5.75),
        ({"quant_method": "gptq", "bits": 8, "group_size": -1}, 9.0, 9.2),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_use_double_quant": True}, 5.6, 5.8),
        ({"load_in_4bit": True}, 5.9, 6.1),  # as early versions of bitsandbytes wrote it: no double quantisation
        ({"load_in_8bit": True}, 9.0, 9.1),
        ({"load_in_8bit": True, "llm_int8_skip_modules": ["self_attn", "lm_head"]}, 10.3, 10.5),
    ],
)
def test_weights_that_were_published_quantised_are_planned_as_their_config_says(
    published: dict[str, object], low: float, high: float
) -> None:
    config = AutoConfig.for_model("llama", **LLAMA_8B, quantization_config=published)
    model = model_sizes(config, torch.bfloat16)
    assert low * GB < model.weight_bytes() < high * GB
    assert model.parameters == llama().model.parameters
    with pytest.raises(SettingsError, match="quantised already"):
        model.weight_bytes("nf4")
    assert Planner(model, Machine(5 * GB, 64 * GB, False)).best(20_000) is None  # no other weights are considered
    best = Planner(model, Machine(20 * GB, 64 * GB, False)).best(20_000)
    assert best is not None
    assert best.plan.quantize == "none"


def test_a_fixed_budget_needs_the_same_at_every_length() -> None:
    planner = llama()
    pot = make_method("infinipot", budget=4096)
    short, long = planner.plan(pot, 10_000), planner.plan(pot, 1_000_000)
    assert short.device_bytes == long.device_bytes
    assert short.fits
    assert long.longest is None
    assert long.reading_sec is not None
    assert short.reading_sec is not None
    assert 90 < long.reading_sec / short.reading_sec < 110


@pytest.mark.parametrize("name", ["full", "exact"])
def test_the_longest_text_is_the_last_that_fits(name: str) -> None:
    planner = llama()
    longest = planner.plan(make_method(name), 1000, "nf4").longest
    assert longest is not None
    assert planner.plan(make_method(name), longest, "nf4").fits
    assert not planner.plan(make_method(name), longest + 1, "nf4").fits


def test_what_is_kept_has_to_fit_the_disk_where_that_is_known() -> None:
    planner = llama()
    planner.machine = dataclasses.replace(planner.machine, disk=2 * GB)
    longest = planner.plan(make_method("exact"), 1000, "nf4").longest
    # 128 KiB a token, and twice: less than a slab is written anew at each checkpoint, beside the one before
    assert longest == pytest.approx(2 * GB / 131072 / 2, rel=0.1)  # the windows take the rest
    assert planner.plan(make_method("infinipot"), 1000, "nf4").longest is None


@pytest.mark.parametrize(
    "name", ["exact", "exact:int8", "infllm", "recall", "recall:int8", "full", "full:int4", "locret:int8"]
)
def test_no_save_of_a_reading_takes_more_disk_than_planned(
    model: Model, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: a full disk stopped a reading at 93 %, since the old files stay until a save is whole."""
    monkeypatch.setattr("engine.parts.archive.tier_plan.SLAB", 1024)
    ids = torch.randint(4, 260, (2000,), generator=torch.Generator().manual_seed(3))
    reader = Reader(model, with_store(name), ids, 256)
    saved: dict[str, int] = {}
    most = 0
    for _ in reader.run():
        parts = reader.state()[0]
        sizes = {each: sum(tensor.nbytes for tensor in part.tensors.values()) for each, part in parts.items()}
        written = (size for each, size in sizes.items() if not parts[each].sealed or saved.get(each) != size)
        most, saved = max(most, sum(saved.values()) + sum(written)), sizes
    plan = Planner.of_loaded(model, Machine(64 * GB, 0, shared=True)).plan(reader.method, len(ids))
    assert 0.5 * plan.disk_bytes < most <= plan.disk_bytes


def test_a_pass_is_made_smaller_until_it_fits() -> None:
    planner = llama()
    method = make_method("streaming", budget=8192)
    ample = planner.plan(method, 1_000_000, "nf4")
    tight = Planner(planner.model, dataclasses.replace(planner.machine, device=ample.device_bytes - 1)).plan(
        method, 1_000_000, "nf4"
    )
    assert tight.fits
    assert tight.chunk < ample.chunk
    assert tight.workspace_bytes < ample.workspace_bytes


def test_passes_are_no_smaller_where_the_host_has_no_room() -> None:
    """Regression: for lack of host memory plans shrank passes, fifty times slower, which frees nothing."""
    planner, method = llama(), make_method("exact")
    ample = planner.plan(method, 400_000, "nf4")
    tight = Planner(planner.model, dataclasses.replace(planner.machine, host=GB)).plan(method, 400_000, "nf4")
    assert (ample.fits, tight.fits) == (True, False)
    assert (tight.chunk, tight.reading_sec) == (ample.chunk, ample.reading_sec)


def test_loaded_weights_do_not_count_again() -> None:
    planner = llama()
    method = make_method("infinipot")
    there = planner.plan(method, 1000, weights=False)
    assert planner.plan(method, 1000).device_bytes - there.device_bytes == planner.model.weight_bytes()
