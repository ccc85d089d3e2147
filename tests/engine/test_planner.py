"""The planner's arithmetic against tensors that are really there."""

from __future__ import annotations

import copy
import dataclasses
import math
from pathlib import Path
from typing import Any
from weakref import WeakSet

import pytest
import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode
from transformers import AutoConfig, AutoModelForCausalLM, LlamaForCausalLM

from engine import (
    METHODS,
    Answer,
    Conversation,
    Method,
    Model,
    Reader,
    Sampling,
    SettingsError,
    load_model,
    make_method,
    suited_method,
)
from engine.footprint import Task
from engine.memories.entries import Slots
from engine.models.architectures import SUPPORTED
from engine.models.skeleton import skeleton, skeleton_of
from engine.planning import rates
from engine.planning.planner import ENOUGH, FIRST, SLOWEST, Machine, Plan, Planner
from engine.planning.rates import Rates, measure_rates
from engine.records import DEVICE, HOST
from engine.trained import beacons
from engine.trained.beacons import Beacons
from engine.trained.beside import save_weights
from kernels.rows import tensors_of
from tests.engine.conftest import byte_tokenizer, tiny_config
from tests.engine.reading import answer, loaded, read
from tests.engine.test_architectures import small_config
from tests.engine.test_methods import TIGHT
from tests.engine.test_rereading import FORGETFUL

GB = 1_000_000_000
ROOMY = Machine(device=64 * GB, host=64 * GB, shared=False)
LLAMA_8B = {
    "vocab_size": 128256,
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "max_position_embeddings": 131072,
    "tie_word_embeddings": False,
}
QWEN3_30B = {
    "vocab_size": 151936,
    "hidden_size": 2048,
    "intermediate_size": 6144,
    "moe_intermediate_size": 768,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "num_hidden_layers": 48,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "max_position_embeddings": 40960,
    "tie_word_embeddings": False,
}
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


def llama() -> Planner:
    model = skeleton(AutoConfig.for_model("llama", **LLAMA_8B), torch.bfloat16)
    return Planner(
        model, Machine(device=24 * GB, host=64 * GB, shared=False, rates=Rates(80e12, 9e11, 2e10, 1e12, 5e10))
    )


@pytest.mark.parametrize("kind", sorted(SUPPORTED))
def test_a_config_tells_what_the_loaded_model_is_like(kind: str) -> None:
    config = small_config(kind)
    planned = skeleton(config, torch.float32)
    model = Model(AutoModelForCausalLM.from_config(copy.deepcopy(config)), byte_tokenizer(), kind, "-")
    for expected, layer in zip(model.spec.layers, planned.spec.layers, strict=True):
        assert dataclasses.replace(layer, rope=expected.rope) == expected
    assert planned.weight_bytes() == sum(weight.nbytes for weight in model.network.parameters())
    loaded = skeleton_of(model.network, model.spec)
    assert dataclasses.replace(loaded, spec=planned.spec) == planned
    assert planned.spec.entry_bytes == model.spec.entry_bytes
    tables = [sorted(rope.bytes_for(5000, 4) for rope in spec.ropes) for spec in (planned.spec, model.spec)]
    assert tables[0] == tables[1]


@pytest.mark.parametrize("kind", ["granitemoe", "mixtral", "olmoe", "qwen2_moe", "qwen3_moe"])
def test_a_token_is_multiplied_with_the_experts_that_are_chosen(kind: str) -> None:
    """With two of four, and with all of them."""
    config = small_config(kind)
    two = skeleton(config, torch.float32).active
    config.num_experts_per_tok = 4
    network = AutoModelForCausalLM.from_config(config)
    experts = sum(weight.numel() for weight in network.parameters() if weight.dim() == 3)
    assert experts > 0
    assert skeleton(config, torch.float32).active - two == experts / 2


@pytest.mark.parametrize("tokens", [40, 301, 1501])
@pytest.mark.parametrize("method", METHODS_TO_READ.values(), ids=METHODS_TO_READ.keys())
def test_the_plan_is_what_a_reading_holds(
    model: Model, method: Method, tokens: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = torch.randint(4, 260, (tokens,), generator=torch.Generator().manual_seed(3))
    passed: list[int] = []
    forward = model.forward

    def counting(ids: Tensor, *arguments: Tensor) -> Tensor:
        passed.append(len(ids))
        return forward(ids, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(model, "forward", counting)
    task = Task(tokens, len(model.chat.prefix), 64, model.turn_length)
    footprint = method.plan(model.spec, task)
    reader = Reader(model, method, ids, task.chunk)
    for _ in reader.run():
        pass
    assert footprint.usage == reader.memory.usage()
    assert footprint.passed == sum(passed)
    parts, _ = reader.state()
    host = sum(each.nbytes for name, part in parts.items() if "host" in name for each in part.tensors.values())
    slack = host * 32768 // max(1, footprint.usage.entries.get(HOST, 0))  # of the last slab, at most one
    assert host <= footprint.usage.bytes.get(HOST, 0) <= host + slack
    saved = sum(each.nbytes for name, part in parts.items() if "host" not in name for each in part.tensors.values())
    assert saved <= footprint.usage.bytes[DEVICE] + 4 * 48  # the last hidden state goes along


@pytest.mark.parametrize("extend_always", [False, True])
def test_tables_of_positions_are_planned(extend_always: bool) -> None:
    """Blocks that fit the model's window stand where they stood in the text, far beyond what they attend to."""
    config = tiny_config()
    config.max_position_embeddings = 8192
    model = Model(LlamaForCausalLM(config), byte_tokenizer(), "tiny", "-")
    method = make_method("infinitehip", budget=1024, extend_always=extend_always)
    read(model, method, torch.randint(4, 260, (6000,)), 64)
    footprint = method.plan(model.spec, Task(6000, len(model.chat.prefix), 64, model.turn_length))
    [rope] = model.spec.ropes
    planned = rope.bytes_for(max(footprint.widest, footprint.positions), model.spec.dtype.itemsize)
    assert sum(table.nbytes for table in rope.tables()) == planned


@pytest.mark.parametrize("name", METHODS)
def test_what_the_beginning_of_a_text_takes_grows_to_what_all_of_it_takes(model: Model, name: str) -> None:
    """With full attention the last tokens take longer than the first; a fixed budget makes all of them alike."""
    method, planner, total = make_method(name), Planner.of_loaded(model, ROOMY), 100_000
    whole = planner.operations(method, total, total)
    shares = [planner.operations(method, total * eighth // 8, total) / whole for eighth in range(1, 9)]
    assert shares == sorted(shares)
    if name == "full":
        assert shares[3] < 0.3
    elif name in ("streaming", "exact", "infllm", "infinipot", "locret"):
        assert shares[3] == pytest.approx(0.5, abs=0.04)


def fused_operations(q: torch.Size, k: torch.Size, *_: object, **__: object) -> int:
    """Of fused attention on a CPU, which PyTorch's counter leaves out: queries [B, HQ, T, D], keys [B, H, S, D]."""
    return 4 * q.numel() * k[2]


@pytest.mark.parametrize("name", ["beacon", "exact", "full", "infinipot-both", "infinitehip", "infllm", "recall"])
def test_reading_takes_the_operations_that_were_planned(model: Model, name: str) -> None:
    """Also far into a text, where keys that are compared outnumber those that are attended to."""
    method, ids = TIGHT[name], torch.randint(4, 260, (6000,), generator=torch.Generator().manual_seed(3))
    fused = {torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: fused_operations}
    with FlopCounterMode(display=False, custom_mapping=fused) as counted:
        read(model, method, ids, 64)
    planned = Planner.of_loaded(model, ROOMY).operations(method, len(ids), len(ids))
    assert 0.5 < planned / counted.get_total_flops() < 2


@pytest.mark.parametrize("name", [*sorted(METHODS), "infinipot:int8", "locret:int4", "recall:int8"])
def test_a_conversation_takes_no_more_than_planned(model: Model, ids: Tensor, name: str) -> None:
    method = with_store(name)
    footprint = method.plan(model.spec, Task(len(ids), len(model.chat.prefix), 64, model.turn_length))
    reader = Reader(model, method, ids, 64)
    for _ in reader.run():
        pass
    conversation = Conversation(reader.context())
    answer(conversation, "Who?", tokens=40)
    taken, planned = conversation.usage().bytes, footprint.usage.bytes
    assert taken[DEVICE] <= planned[DEVICE] + footprint.tail_bytes
    assert taken.get(HOST, 0) <= planned.get(HOST, 0) + footprint.host_tail_bytes


@pytest.mark.parametrize("method", FORGETFUL.values(), ids=FORGETFUL)
def test_turns_take_no_more_than_planned_at_any_moment(
    model: Model, method: Method, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it was before a question, and the fork in which something is read again: what is looked at, or was named,
    little or more than has room.
    """
    ids = torch.randint(4, 260, (1500,), generator=torch.Generator().manual_seed(3))
    context = read(model, method, ids)
    footprint = method.plan(model.spec, Task(len(ids), len(model.chat.prefix), 64, model.turn_length))
    alive, most = WeakSet(context.memory.own), 0  # type: ignore[attr-defined]
    begin = Slots.__init__

    def noted(self: Slots, *given: Any, **named: Any) -> None:
        nonlocal most
        begin(self, *given, **named)
        alive.add(self)
        held = {x.untyped_storage().data_ptr(): x.untyped_storage().nbytes() for each in alive for x in each.tensors()}
        most = max(most, sum(held.values()))

    monkeypatch.setattr(Slots, "__init__", noted)
    conversation = Conversation(context)
    for number, named in enumerate([None, torch.arange(100), torch.arange(1200)] * 4):
        *_, last = conversation.ask(f"Who came, {number}?", Sampling(max_tokens=40), text=ids, named=named)
    assert isinstance(last, Answer)
    planned = footprint.usage.bytes[DEVICE] + footprint.tail_bytes
    assert 0.6 * planned < most <= planned


@pytest.mark.parametrize("budget", [130, 400])
def test_slots_of_a_conversation_are_never_more_than_planned(model: Model, ids: Tensor, budget: int) -> None:
    """They begin as 256 and are doubled; of neither did the plan know where the budget holds fewer."""
    method = make_method("infinipot", budget=budget, prompt="Sum up.")
    footprint = method.plan(model.spec, Task(10, len(model.chat.prefix), 64, model.turn_length))
    conversation = Conversation(read(model, method, ids[:10]))
    most = budget - conversation.usage().entries[DEVICE] - model.turn_length("Sum up.")
    conversation._feed(ids[:most].tolist())
    parts, meta = conversation.state()
    for each in (conversation, Conversation.load(conversation.context, loaded(parts), meta)):
        taken, planned = each.usage().bytes[DEVICE], footprint.usage.bytes[DEVICE]
        assert planned < taken <= planned + footprint.tail_bytes


@pytest.mark.parametrize("name", ["exact", "exact:int8", "infllm", "infinitehip", "recall", "recall:int4"])
def test_saving_takes_no_more_than_planned(model: Model, ids: Tensor, name: str) -> None:
    """A slab that is not full is copied, so that only what counts of it is written."""
    method = with_store(name)
    footprint = method.plan(model.spec, Task(len(ids), len(model.chat.prefix), 64, model.turn_length))
    reader = Reader(model, method, ids, 64)
    running, copied = reader.run(), 0
    for _ in running:
        slabs = reader.memory.host.slabs  # type: ignore[attr-defined]
        held = [t for slab in slabs for bank in (*slab.keys, *slab.values) for t in tensors_of(bank)]
        there = {t.untyped_storage().data_ptr() for t in (*held, *(slab.source for slab in slabs))}
        parts = [part for part_name, part in reader.state()[0].items() if part_name.startswith("host-0")]
        saved = [t.contiguous() for part in parts for t in part.tensors.values()]  # as whoever writes them does
        copied = max(copied, sum(t.nbytes for t in saved if t.untyped_storage().data_ptr() not in there))
    assert 0 < copied <= footprint.host_spare_bytes


def with_store(name: str) -> Method:
    """A method by its name and, behind a colon, a store."""
    name, _, store = name.partition(":")
    return make_method(name, **({"store": store} if store else {}))


def peak_of_pass(model: Model, method: Method, ids: Tensor, chunk: int) -> int:
    """Bytes that the last pass of a reading allocates at most beyond what was there before it."""
    reader = Reader(model, method, ids, chunk)
    running = reader.run()
    for progress in running:
        if progress.tokens_total - progress.tokens_done <= chunk:
            break
    held = peak = 0
    with torch.profiler.profile(profile_memory=True) as profile:
        next(running)
    assert profile.profiler is not None
    for event in profile.profiler.kineto_results.events():
        if event.name() == "[memory]":
            held += event.nbytes()
            peak = max(peak, held)
    return peak


@pytest.mark.parametrize("name", ["exact", "infinipot", "infinipot:int4", "full", "full:int8"])
def test_the_workspace_is_not_less_than_a_pass_takes(name: str) -> None:
    config = tiny_config()
    config.update({"hidden_size": 96, "intermediate_size": 256, "head_dim": 16, "vocab_size": 1000})
    torch.manual_seed(0)
    model = Model(AutoModelForCausalLM.from_config(config), byte_tokenizer(), "wide", "-")
    method = with_store(name)
    ids = torch.randint(4, 260, (3 * 256 - len(model.chat.prefix),))
    plan = Planner(skeleton_of(model.network, model.spec), Machine(64 * GB, 0, True), model.turn_length).plan(
        method, len(ids)
    )
    peak = peak_of_pass(model, method, ids, plan.chunk)
    assert peak <= plan.workspace_bytes + plan.footprint.spare_bytes
    assert plan.workspace_bytes <= 4 * peak


@pytest.mark.parametrize("quantize", ["none", "nf4"])
def test_nor_is_it_less_than_a_mixture_takes(quantize: str, tmp_path: Path) -> None:
    """transformers has every token beside all of its experts at once, of which nothing was planned."""
    config = AutoConfig.for_model("qwen3_moe", **MIXTURE)
    torch.manual_seed(0)
    AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path)
    byte_tokenizer().save_pretrained(tmp_path)
    model, method = load_model(tmp_path, "cpu", quantize=quantize), make_method("full")
    ids = torch.randint(4, 260, (3 * 256 - len(model.chat.prefix),))
    plan = Planner(skeleton_of(model.network, model.spec), Machine(64 * GB, 0, True), model.turn_length).plan(
        method, len(ids), quantize
    )
    peak = peak_of_pass(model, method, ids, plan.chunk)
    assert peak <= plan.workspace_bytes <= 4 * peak


def test_experts_in_codes_fit_a_card_that_they_did_not_fit() -> None:
    """Qwen3-30B-A3B in 4 bits took 58 GB, because its experts stayed in bfloat16."""
    model = skeleton(AutoConfig.for_model("qwen3_moe", **QWEN3_30B), torch.bfloat16, torch.device("cuda"))
    assert model.parameters == 30_532_122_624
    assert model.active + model.head == pytest.approx(3.0e9, rel=0.05)
    sizes = {each: model.weight_bytes(each) / GB for each in model.quantizations}
    assert sizes == pytest.approx({"none": 61.06, "8bit": 31.2, "nf4": 16.69}, rel=0.01)
    best = Planner(model, Machine(24 << 30, 64 << 30, False)).best(100_000)
    assert best is not None
    assert best.plan.quantize == "nf4"
    assert best.plan.device_bytes < 24 << 30


def test_a_pass_reads_the_experts_that_its_tokens_choose() -> None:
    model = skeleton(AutoConfig.for_model("qwen3_moe", **QWEN3_30B), torch.bfloat16, torch.device("cuda"))
    assert model.hit(1) == 8 / 128
    assert 0.11 < model.hit(2) < 0.125
    assert model.hit(2048) > 0.999
    assert model.unpacked_bytes("none") == 0
    eight = 8 * 2 * 768 * 2048  # weights of as many experts' larger halves
    assert 2 * eight < model.unpacked_bytes("nf4") < 2.8 * eight < model.unpacked_bytes("8bit") < 3.1 * eight
    alone = dataclasses.replace(model, spec=dataclasses.replace(model.spec, device=torch.device("cpu")))
    assert alone.unpacked_bytes("nf4") == 2048 * 32 * 128 * 2  # of one linear layer, which is more than of one expert


def test_experts_in_codes_cost_a_gpu_their_launches() -> None:
    """A pass launches some 120,000 kernels for them, however many tokens it has."""
    model = skeleton(AutoConfig.for_model("qwen3_moe", **QWEN3_30B), torch.bfloat16, torch.device("cuda"))
    rates = Rates(80e12, 9e11, 2e10, 1e12, 5e10)

    def seconds(quantize: str, operation_sec: float) -> float:
        machine = Machine(80 * GB, 64 * GB, False, dataclasses.replace(rates, operation_sec=operation_sec))
        plan = Planner(model, machine).plan(make_method("full"), 20_480, quantize)
        assert plan.chunk == 8192
        assert plan.reading_sec is not None
        return plan.reading_sec

    launches = (seconds("nf4", 2e-4) - seconds("nf4", 1e-4)) / 1e-4
    assert 48 * 2 * 128 * 5 < launches / 2.5 < 48 * 2 * 128 * 20
    assert seconds("none", 1e-5) == pytest.approx(seconds("none", 0), rel=0.01)


def test_bytes_of_a_known_model() -> None:
    model = llama().model
    assert model.parameters == 8_030_261_248
    assert model.weight_bytes() == 16_060_522_496
    assert model.spec.entry_bytes == 131072  # 128 KiB per token, as the papers say
    assert 5.6 * GB < model.weight_bytes("nf4") < 5.8 * GB
    assert 9.0 * GB < model.weight_bytes("8bit") < 9.1 * GB


def test_best_leaves_out_what_lacks_trained_weights(tmp_path: Path) -> None:
    """A machine where beacon's largest budget fits and infinipot's does not."""
    config = tiny_config()
    config.max_position_embeddings = 1 << 17
    model = skeleton(config, torch.float32, folder=tmp_path)
    planner = Planner(model, Machine(model.weight_bytes() + 400_000_000, 60_000_000, False))
    largest = make_method("beacon", budget=1 << 17)
    plan = planner.plan(largest, 1 << 21)
    assert plan.fits
    assert "stockpot train beacon" in plan.lacks
    best = planner.best(1 << 21)
    assert best is not None
    assert best.plan.method.name == "infinipot"
    save_weights(Beacons(model.spec), tmp_path / beacons.FILE, model.spec, {})
    best = planner.best(1 << 21)
    assert best is not None
    assert best.plan.method == largest
    assert best.plan.lacks == ""


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
    model = skeleton(config, torch.bfloat16)
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
    """A reading that just fitted the disk was stopped by it at 93 %: what a save replaces stays until it is whole."""
    for module in ("host.tier_plan", "host.settings"):
        monkeypatch.setattr(f"engine.{module}.SLAB", 1024)
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


def test_what_suits_the_machine_is_chosen_with_a_reason() -> None:
    planner = llama()

    def choice(tokens: int, device: int, host: int) -> Plan | None:
        found = Planner(planner.model, dataclasses.replace(planner.machine, device=device * GB, host=host * GB)).best(
            tokens
        )
        assert found is None or found.reason
        return found.plan if found else None

    short = choice(8_000, 24, 64)
    assert short is not None
    assert (short.method.name, short.quantize) == ("full", "none")
    small = choice(8_000, 12, 64)
    assert small is not None
    assert (small.method.name, small.quantize) == ("full", "8bit")
    long = choice(1_000_000, 24, 8)  # a million tokens do not fit 8 GB of host memory
    assert long is not None
    assert long.method.family == "condensing"
    assert long.method.budget is not None
    assert not planner.plan(make_method("exact"), 1_000_000).fits
    assert choice(1_000_000, 4, 64) is None
    roomy = choice(1_000_000, 24, 192)
    assert roomy is not None
    assert roomy.method == make_method("infinitehip", preset="3k-flash")  # exact takes seconds for each token
    planner.machine = dataclasses.replace(planner.machine, rates=None)
    unknown = choice(1_000_000, 24, 192)
    assert unknown is not None
    assert unknown.method.name in ("infinitehip", "infllm")  # as long as nothing says that exact is fast enough


def test_lossless_weights_are_no_reason_to_forget_the_text() -> None:
    """With 16 GB the choice was a pot of 256 entries beside weights in bfloat16, and with 12 to keep everything."""
    planner = llama()

    def choice(tokens: int, device: int, host: int = 64) -> tuple[str, str, int]:
        best = Planner(planner.model, dataclasses.replace(planner.machine, device=device * GB, host=host * GB)).best(
            tokens
        )
        assert best is not None
        return best.plan.method.family, best.plan.quantize, best.plan.method.budget or 0

    assert choice(8_000, 17)[:2] == ("yardstick", "8bit")
    assert [choice(100_000, device)[0] for device in (10, 12, 17, 24)] == ["retrieving"] * 4
    assert [choice(100_000, device)[1] for device in (10, 12, 17, 24)] == ["nf4", "8bit", "8bit", "none"]
    # Of a pot there is to be enough of it, and no more than that for worse weights.
    budgets = {device: choice(1_000_000, device, 4) for device in (7, 10, 13, 17, 24)}
    assert {device: quantize for device, (_, quantize, _) in budgets.items()} == {
        **{7: "nf4", 10: "nf4", 13: "8bit"},
        **{17: "8bit", 24: "none"},
    }
    assert all(family == "condensing" for family, _, _ in budgets.values())
    assert all(budget >= ENOUGH for device, (_, _, budget) in budgets.items() if device >= 10)


def test_where_a_model_is_loaded_its_weights_count_as_room_for_others() -> None:
    """Of 24 GB, 8 are free beside weights in bfloat16: what fits with other weights is found as if these were not."""
    model = llama().model
    loaded = Planner(model, Machine(24 * GB - model.weight_bytes(), 4 * GB, False))
    fresh = Planner(model, Machine(24 * GB, 4 * GB, False))
    for kinds in (["none"], ["8bit"], ["nf4"], None):
        found, expected = loaded.unloaded("none").best(1_000_000, kinds), fresh.best(1_000_000, kinds)
        assert expected is not None
        assert found == expected


def test_what_a_query_looks_up_counts_as_seen_at_once() -> None:
    """A preset that looks up 3,072 entries made the pocket model say the same word for ever, and nothing had warned."""
    config = tiny_config()
    config.max_position_embeddings = 2048
    planner = Planner(skeleton(config, torch.float32), Machine(64 * GB, 64 * GB, False))
    for name, settings in (("infinitehip", {"preset": "3k"}), ("infllm", {"budget": 6000, "units": 40})):
        assert "at once: expect poor answers" in planner.plan(make_method(name, **settings), 100_000).beyond
    for name in METHODS:
        assert not planner.plan(make_method(name), 100_000).beyond or name == "full"


def test_layers_that_never_look_far_cost_no_search() -> None:
    """Of a model whose layers all have sliding windows, readings were planned eleven times too long."""

    def times(sliding: int | None, kind: str) -> tuple[float, float]:
        config = AutoConfig.for_model("mistral", **sizes, max_position_embeddings=32768, sliding_window=sliding)
        planner = Planner(
            skeleton(config, torch.float32), dataclasses.replace(ROOMY, rates=Rates(1e11, 1e10, 1e10, 1e11, 1e10))
        )
        plan = planner.plan(make_method(kind), 65_536)
        assert plan.reading_sec is not None
        assert plan.answer_tokens_per_sec is not None
        return plan.reading_sec, plan.answer_tokens_per_sec

    sizes = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 8, "intermediate_size": 128}
    plain, sliding = times(None, "infinitehip"), times(512, "infinitehip")
    window = times(512, "streaming")
    assert plain[0] > 3 * sliding[0]
    assert sliding[0] < 1.5 * window[0]
    assert sliding[1] > 1.5 * plain[1]


def test_the_host_tier_is_kept_in_fewer_bits_rather_than_condensed() -> None:
    """A million tokens of an 8B model take 142 GB as they are: with 64 the choice was to forget nearly all of them."""
    planner = llama()
    for host, store in ((192, "bfloat16"), (80, "int8"), (64, "int4")):
        planner.machine = dataclasses.replace(planner.machine, host=host * GB)
        best = planner.best(1_000_000)
        assert best is not None
        assert best.plan.method.family in ("retrieving", "yardstick")
        assert best.plan.method.settings()["store"] == store
        assert best.plan.fits
        assert (store in best.reason) == (store != "bfloat16")


def test_models_whose_layers_all_look_back_a_little_are_not_read_with_what_looks_far(tmp_path: Path) -> None:
    """Of Phi-3-mini (4K) nothing is ever looked up, and yet `exact` was said to look everything up."""
    sizes = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 8, "intermediate_size": 128}
    config = AutoConfig.for_model("mistral", **sizes, max_position_embeddings=4096, sliding_window=2047)
    planner = Planner(skeleton(config, torch.float32, folder=tmp_path), ROOMY)
    best = planner.best(1_000_000)
    assert best is not None
    assert (best.plan.method.family, best.plan.method.budget) == ("condensing", 2048)
    warned = {name: planner.plan(suited_method(4096, name), 1_000_000).beyond for name in METHODS}
    assert {name for name, doubt in warned.items() if "looks back 2,047 tokens at most" in doubt} == {
        *(name for name, kind in METHODS.items() if kind.family in ("retrieving", "yardstick")),
        "locret",  # its budget is 3,072
    }
    assert not any(warned[name] for name in ("infinipot", "beacon", "streaming", "truncate"))
    assert not planner.plan(make_method("full"), 3000).beyond  # as the model itself would read it
    config.sliding_window = None
    far = Planner(skeleton(config, torch.float32, folder=tmp_path), ROOMY).best(1_000_000)
    assert far is not None
    assert far.plan.method.family != "condensing"


def test_a_chunk_that_stands_too_far_behind_what_is_kept_is_warned_of() -> None:
    """On the pocket model `locret` answered half as much with a budget of 2,048 as with 1,024, and nobody knew."""
    config = tiny_config()
    config.max_position_embeddings = 2048
    planner = Planner(skeleton(config, torch.float32), Machine(64 * GB, 64 * GB, False))

    def beyond(name: str, budget: int, tokens: int = 20_000) -> str:
        return planner.plan(make_method(name, budget=budget), tokens).beyond

    assert "attend to 3,172 at once" in beyond("locret", 2048)
    assert "a budget of at most 1,322" in beyond("locret", 2048)
    assert "attend to 2,788 at once" in beyond("recall", 2048)
    assert not any(beyond("locret", budget) for budget in (1024, 1322, 1536))
    assert not any(beyond(name, 2048) for name in ("infinipot", "beacon", "exact"))
    assert not beyond("locret", 2048, tokens=1900)
    budgets = {plan.method.name: plan.method.budget for plan in planner._candidates(20_000, "none")}
    assert (budgets["locret"], budgets["infinipot"]) == (1024, 2048)
    for window in (2048, 4096, 1 << 17):
        config.max_position_embeddings = window
        wide = Planner(skeleton(config, torch.float32), planner.machine)
        suited = [wide.plan(suited_method(window, name), 1_000_000) for name in METHODS]
        assert [plan.method.name for plan in suited if plan.beyond] == ["full"]


def test_what_takes_days_to_read_is_not_recommended() -> None:
    """`exact` answers too slowly on this processor, and what looks up as it reads takes hours, not minutes."""
    rates = Rates(2e9, 2e8, 2e8, 2e9, 2e8)
    planner = Planner(skeleton(tiny_config(), torch.float32), Machine(64 * GB, 0, True, rates))
    best = planner.best(1_000_000)
    assert best is not None
    for plan in (planner.plan(suited_method(planner.model.spec.window, name), 1_000_000) for name in METHODS):
        if plan.method.family == "retrieving" and not plan.lacks:
            slow = (plan.answer_tokens_per_sec or 0) < SLOWEST or (plan.first_token_sec or 0) > FIRST
            assert slow or (plan.reading_sec or 0) > 10 * (best.plan.reading_sec or 0)
    assert best.plan.method.family == "condensing"
    assert (best.plan.reading_sec or 0) < 3600


def test_loaded_weights_do_not_count_again() -> None:
    planner = llama()
    method = make_method("infinipot")
    there = planner.plan(method, 1000, weights=False)
    assert planner.plan(method, 1000).device_bytes - there.device_bytes == planner.model.weight_bytes()


def test_without_rates_there_are_no_times() -> None:
    plan = Planner(llama().model, ROOMY).plan(make_method("infinipot"), 1000)
    assert plan.fits
    assert (plan.reading_sec, plan.first_token_sec, plan.answer_tokens_per_sec) == (None, None, None)


def test_on_a_gpu_products_are_measured_and_not_their_launches(monkeypatch: pytest.MonkeyPatch) -> None:
    """At 10^15 operations a second one of 1,024 rows was over in 2 µs, and the next was not there yet."""
    monkeypatch.setattr(rates, "_seconds", lambda do, device: 1.0)
    operations = rates._flops(torch.device("meta"), torch.bfloat16)
    assert operations / 1e15 > 10 * rates.SMALL_OPERATION_SEC


def test_rates_are_measured_and_times_follow_them(model: Model, ids: Tensor) -> None:
    found = measure_rates(torch.device("cpu"), torch.float32)
    assert 1e8 < found.flops < 1e14
    assert 1e8 < found.memory < 1e13
    assert 1e-8 < found.operation_sec < 1e-2
    half = dataclasses.replace(found, flops=found.flops / 2, memory=found.memory / 2, operation_sec=0.0)
    whole = dataclasses.replace(found, operation_sec=0.0)
    sizes = skeleton_of(model.network, model.spec)
    slow = Planner(sizes, Machine(GB, 0, True, half)).plan(make_method("streaming"), 5000).reading_sec
    fast = Planner(sizes, Machine(GB, 0, True, whole)).plan(make_method("streaming"), 5000).reading_sec
    assert slow is not None
    assert slow == pytest.approx(2 * (fast or 0.0))


def test_a_search_serves_as_many_tokens_as_its_interval_says() -> None:
    """Each token was said to search anew, also where the first stage runs for every 96th alone."""
    stages = "64:256:32768:{} 64:32:8192:1 64:8:2048:1"
    seconds = []
    for refresh in (1, 96):
        method = make_method("infinitehip", preset="3k", stages=stages.format(refresh))
        plan = Planner(llama().model, dataclasses.replace(ROOMY, rates=llama().machine.rates)).plan(method, 1_000_000)
        assert plan.answer_tokens_per_sec is not None
        seconds.append(1 / plan.answer_tokens_per_sec)
    searching = plan.footprint.searched * llama().model.spec.entry_bytes / 2 / 2e10  # keys, over the link
    assert seconds[0] - seconds[1] == pytest.approx(searching * 95 / 96, rel=0.01)
    assert 2 * searching < (plan.first_token_sec or 0.0) < 3 * searching, "a question's tokens search together"


@pytest.mark.parametrize("name", ["infinitehip", "infllm"])
def test_what_a_gpu_reads_of_the_host_tier_comes_over_the_link(name: str) -> None:
    planner, method = llama(), suited_method(131_072, name)
    rates = planner.machine.rates
    assert rates is not None

    def seconds(link: float, shared: bool) -> tuple[float, float]:
        machine = Machine(400 * GB, 400 * GB, shared, dataclasses.replace(rates, link=link))
        plan = Planner(planner.model, machine).plan(method, 1_000_000)
        return plan.reading_sec or 0.0, 1 / (plan.answer_tokens_per_sec or 1.0)

    footprint = method.plan(planner.model.spec, Task(1_000_000, 32, 2048, planner.turn_tokens))
    chosen = footprint.brought_answering
    assert chosen == {"infinitehip": 4096, "infllm": 17 * 128}[name]
    block = {"infinitehip": 64, "infllm": 512}[name]
    each = planner.model.spec.entry_bytes
    (slow, slow_token), (fast, fast_token) = seconds(1e9, False), seconds(1e12, False)
    searched = footprint.searched / 2 / footprint.search_every if footprint.in_place else 0  # keys are half an entry
    assert slow_token - fast_token == pytest.approx((chosen + searched) * each / 1e9, rel=0.01)
    assert slow - fast == pytest.approx((1 + chosen / block) * 1e6 * each / 1e9, rel=0.01)
    assert seconds(1e9, True)[1] == seconds(1e12, True)[1]


@pytest.mark.parametrize("name", ["exact", "recall"])
def test_what_searches_everything_has_the_keys_sent_to_a_gpu(name: str) -> None:
    """The host was planned to search, which for one question took over a minute."""
    rates = llama().machine.rates
    assert rates is not None
    model = skeleton(AutoConfig.for_model("llama", **LLAMA_8B), torch.bfloat16, torch.device("cuda"))
    method = suited_method(131_072, name, **({} if name == "exact" else {"select": "exact", "gist": "infinipot"}))
    footprint = method.plan(model.spec, Task(1_000_000, 32, 2048, len))

    def seconds(link: float, host: float) -> tuple[float, float]:
        changed = dataclasses.replace(rates, link=link, host_flops=host, host_memory=host)
        plan = Planner(model, Machine(400 * GB, 400 * GB, False, changed)).plan(method, 1_000_000)
        return plan.first_token_sec or 0.0, 1 / (plan.answer_tokens_per_sec or 1.0)

    keys = footprint.searched / 2 * model.spec.entry_bytes
    picked = footprint.brought_answering * model.spec.entry_bytes
    (slow_first, slow), (fast_first, fast) = seconds(1e9, 1e12), seconds(1e12, 1e12)
    assert slow - fast == pytest.approx((keys + picked) / 1e9, rel=0.02)
    passes = math.ceil(50 / footprint.asked_together)
    assert passes == 5, "as many queries as 1 GB holds what they find"
    assert slow_first - fast_first == pytest.approx(((passes + 1) * keys + picked) / 1e9, rel=0.02)
    assert seconds(1e9, 1e6) == (slow_first, slow), "the host searches nothing"


def test_launches_count_where_a_token_is_not_recorded() -> None:
    planner = llama()
    assert planner.machine.rates is not None
    planner.machine = dataclasses.replace(
        planner.machine, host=400 * GB, rates=dataclasses.replace(planner.machine.rates, operation_sec=1e-3)
    )
    launching = 32 * 190e-3
    recorded, coded = (make_method("infinipot", store=store) for store in ("model", "int8"))
    assert (planner.plan(recorded, 10_000).answer_tokens_per_sec or 0.0) > 20
    assert 1 / (planner.plan(recorded, 10_000, "nf4").answer_tokens_per_sec or 1.0) < 0.05
    for method, quantize in ((coded, "none"), (recorded, "8bit")):
        assert 1 / (planner.plan(method, 10_000, quantize).answer_tokens_per_sec or 1.0) == pytest.approx(launching)


def test_layers_with_a_sliding_window_take_no_time_to_search() -> None:
    config = small_config("gemma2")
    machine = dataclasses.replace(llama().machine, shared=True)
    speeds = []
    for kinds in (["sliding_attention", "full_attention"] * 2, ["full_attention"] * 4):
        config.layer_types = kinds
        planner = Planner(skeleton(config, torch.float32), machine)
        speeds.append(planner.plan(make_method("exact", looks=1), 10_000_000_000).answer_tokens_per_sec or 0.0)
    assert speeds[0] == pytest.approx(2 * speeds[1], rel=0.01)


def test_retaining_heads_take_time() -> None:
    planner = llama()
    locret = planner.plan(make_method("locret", budget=4096), 100_000)
    heads = 2 * locret.footprint.weight_bytes / planner.model.spec.dtype.itemsize  # operations for a token
    assert heads > 0.02 * 2 * planner.model.active
    assert planner.machine.rates is not None
    plain = dataclasses.replace(locret.footprint, weight_bytes=0)
    task = Task(100_000, planner.prefix, 2048, planner.turn_tokens)
    with_heads, without = (
        planner._times(locret.method, footprint, task, "none")[0] for footprint in (locret.footprint, plain)
    )
    assert with_heads is not None
    assert without is not None
    assert with_heads - without == pytest.approx(
        locret.footprint.passed * heads / planner.machine.rates.flops, rel=0.05
    )
