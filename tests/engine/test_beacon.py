"""Beacons against a plain, slow reading, their files against the authors' names and shapes, and their costs."""

from __future__ import annotations

import copy
import dataclasses
from pathlib import Path
from unittest.mock import MagicMock

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode, sdpa_flop_count
from transformers import AutoConfig, AutoModelForCausalLM

from engine import Conversation, Method, Model, Reader, SettingsError, WeightsError, fingerprint, make_method
from engine.loops.passes import feed
from engine.methods.beacon import Beacon
from engine.models.attention_interface import run
from engine.models.rope import NoRope
from engine.models.sizes import ModelSizes, model_sizes, sizes_of
from engine.models.spec import LayerSpec, ModelSpec, Projection, Scoring
from engine.parts.evictors.beacon_windows import RAW
from engine.parts.evictors.beacons import window_places
from engine.parts.footprint import ReadingTask
from engine.parts.mass import NOT_IN_SOURCE
from engine.planning.flops import Operations, operations
from engine.planning.machine import Machine
from engine.planning.planner import Planner
from engine.records import DEVICE
from engine.trained.beacons import FILE, RATIOS, Beacons, beacon_numbers, find_beacons
from engine.trained.sidecar_weights import save_weights
from tests.engine.architectures import small_config
from tests.engine.conftest import byte_tokenizer
from tests.engine.reading import answer, loaded, next_logits, read

SMALL = Beacon(budget=256, window=24, ratio=4)


class PlainBeacon:
    """The paper's section 3.1, entry by entry: per layer and KV head a list of (key, value, is it a beacon)."""

    def __init__(self, model: Model, window: int, ratio: int) -> None:
        self.model, self.window, self.ratio = model, window, ratio
        self.beacons = find_beacons(model.spec, "")
        self.cache: list[list[list[tuple[Tensor, Tensor, bool]]]] = [
            [[] for _ in range(layer.kv_heads)] for layer in model.spec.layers
        ]
        self.fresh = 0
        self.order: list[tuple[int, bool]] = []

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, scoring: Scoring) -> Tensor:
        rope = self.model.spec.layers[layer].rope
        group = q.shape[0] // k.shape[0]
        output = torch.zeros_like(q)
        for row, beacon in self.order:
            for head, held in enumerate(self.cache[layer]):
                held.append((k[head, row], v[head, row], beacon))
                keys = rope.rotate(torch.stack([entry[0] for entry in held]), 0)
                values = torch.stack([entry[1] for entry in held])
                for each in range(head * group, (head + 1) * group):
                    query = rope.rotate(q[each, row][None], len(held) - 1)[0]
                    output[each, row] = (keys @ query * scoring.scaling).softmax(0) @ values
        return output

    def read(self, ids: Tensor) -> Tensor:
        """Read token by token, with a beacon after every `ratio` tokens, and return the logits after each."""
        found = []
        for token in ids:
            self.fresh += 1
            due = self.fresh % self.ratio == 0
            self.order = [(0, False), (1, True)] if due else [(0, False)]
            with torch.no_grad():
                hidden = run(self.model.network, token[None], self, self.beacons.extra_tokens(int(due)))
            found.append(self.model.logits(hidden))
            if self.fresh == self.window:
                self.fresh = 0
                self.cache = [[[entry for entry in held if entry[2]] for held in layer] for layer in self.cache]
        return torch.cat(found)


@pytest.mark.parametrize("ratio", [2, 8])
@pytest.mark.parametrize("budget", [256, None])
def test_equals_the_paper_entry_by_entry(model: Model, ids: Tensor, ratio: int, budget: int | None) -> None:
    text, question = ids[:80], torch.randint(4, 260, (30,))  # the question fills a window, and is condensed with it
    method = dataclasses.replace(SMALL, ratio=ratio, budget=budget)
    memory = read(model, method, text, chunk=17).memory
    plain = PlainBeacon(model, 24, ratio)
    plain.read(torch.cat([torch.tensor(model.chat.prefix), text]))
    logits = plain.read(question)
    torch.testing.assert_close(next_logits(model, method, memory, question, 7), logits, atol=2e-5, rtol=1e-4)


def test_beacons_that_are_copies_of_a_token_are_that_token(model: Model, ids: Tensor, tmp_path: Path) -> None:
    """Check that a reading in an open window is full attention over the text with that token inserted."""
    beacons = Beacons(model.spec)
    base = model.network.base_model
    with torch.no_grad():
        for name, own in zip(beacons.names, beacons.projections, strict=True):
            own.weight.copy_(base.get_submodule(name).weight.bfloat16())  # type: ignore[operator,arg-type]
        beacons.embedding.weight.copy_(base.embed_tokens.weight[3].bfloat16())  # type: ignore[union-attr,index,operator]
    network = copy.deepcopy(model.network)
    other = network.base_model
    with torch.no_grad():  # weights are saved in bfloat16, so the model must have such too
        for name in beacons.names:
            other.get_submodule(name).weight.copy_(base.get_submodule(name).weight.bfloat16())  # type: ignore[operator,arg-type,union-attr]
        other.embed_tokens.weight.copy_(base.embed_tokens.weight.bfloat16())  # type: ignore[operator,union-attr]
    same = Model(network, model.tokenizer, "same", "-", tmp_path)
    save_weights(beacons, tmp_path / FILE, same.spec, {})
    whole = torch.cat([torch.tensor(same.chat.prefix), ids])[:96]
    text = whole[len(same.chat.prefix) :]
    place = window_places(0, 96, 4)
    put_in = torch.full((len(place),), 3).scatter_(0, place[:96], whole)
    question = torch.tensor([1, 80])
    memory = read(same, Beacon(budget=64, window=256, ratio=4), text).memory
    full = make_method("full")
    empty = full.new_memory(same.spec, same.turn_length)
    everything = torch.cat([put_in, question])
    source = torch.full((len(everything),), NOT_IN_SOURCE, dtype=torch.int32)
    (step,) = feed(same, full, empty, everything, source, 1000)
    assert step.hidden is not None
    expected = same.logits(step.hidden)[-2:]
    logits = next_logits(same, SMALL, memory, question)
    torch.testing.assert_close(logits, expected, atol=2e-5, rtol=1e-4)


def test_beacons_have_projections_of_their_own_and_no_hook_remains(
    model: Model, ids: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = read(model, SMALL, ids).memory
    beacons = memory.evictor.beacons
    base = model.network.base_model
    with torch.no_grad():
        hidden = base.layers[0].input_layernorm(beacons.embedding.weight)  # type: ignore[union-attr,index,operator]
        at = {name: own(hidden)[0] for name, own in zip(beacons.names, beacons.projections, strict=True)}
    kept = (len(model.chat.prefix) + 301) // 24 * 6
    for what, name in (("keys", "k_proj"), ("values", "v_proj")):
        expected = at[f"layers.0.self_attn.{name}"].view(2, 1, 8).expand(2, kept, 8)
        found = getattr(memory.store.own[0], what)[:, :kept]  # the first layer knows no text
        torch.testing.assert_close(found, expected)
    assert not any(module._forward_hooks for module in model.network.modules())

    failing = SMALL.new_memory(model.spec, model.turn_length)
    monkeypatch.setattr(failing, "attend", MagicMock(side_effect=RuntimeError("stop")))
    with pytest.raises(RuntimeError, match="stop"):
        model.forward(ids, failing, torch.arange(301, dtype=torch.int32))
    assert not any(module._forward_hooks for module in model.network.modules())


@pytest.mark.parametrize("kind", ["qwen2", "qwen3", "phi3", "gemma2", "gemma3_text", "granite"])
def test_other_architectures_carry_beacons(kind: str, ids: Tensor, tmp_path: Path) -> None:
    """Check biases, normalised queries and keys, fused projections and scaled embeddings, in passes of any size."""
    torch.manual_seed(0)
    model = Model(AutoModelForCausalLM.from_config(small_config(kind)), byte_tokenizer(), kind, "-", tmp_path)
    save_weights(Beacons(model.spec), tmp_path / FILE, model.spec, {})
    question = torch.tensor([1, 80, 81, 2])
    found = [next_logits(model, SMALL, read(model, SMALL, ids, chunk).memory, question) for chunk in (7, 64)]
    torch.testing.assert_close(found[0], found[1], atol=1e-4, rtol=1e-3)
    without = make_method("full")
    assert not torch.allclose(found[0], next_logits(model, without, read(model, without, ids).memory, question))


def test_places_in_a_window() -> None:
    assert window_places(0, 5, 2).tolist() == [0, 1, 3, 4, 6, 2, 5]
    assert window_places(3, 2, 2).tolist() == [0, 2, 1]  # the fourth token of the window brings its second beacon
    assert window_places(3, 2, RAW).tolist() == [0, 1]


@pytest.mark.parametrize(
    ("tokens", "budget", "ratio"), [(60, 64, RAW), (100, 64, 2), (200, 64, 4), (1000, 64, 16), (9999, 64, 32)]
)
def test_the_smallest_ratio_that_fits_is_chosen(model: Model, tokens: int, budget: int, ratio: int) -> None:
    method = Beacon(budget=budget, window=32)
    assert method.windows(model.spec).ratio_for(tokens) == ratio
    chosen = method.new_memory(model.spec, model.turn_length)
    chosen.reserve(tokens)
    assert chosen.evictor.ratio == ratio


def test_what_is_kept_is_spread_evenly_over_the_text(model: Model, ids: Tensor) -> None:
    """Check that every second beacon is evicted above the budget, and that the open window is whole."""
    method = Beacon(budget=20, window=24, ratio=4)
    memory = read(model, method, ids).memory
    prefix, total = len(model.chat.prefix), len(model.chat.prefix) + 301
    last = total // 24 * 24
    beacons = last // 4
    stride = next(stride for stride in (1, 2, 4, 8) if beacons // stride <= 20)
    expected = [place - 1 - prefix for place in range(4 * stride, last + 1, 4 * stride)]
    for layer in range(3):
        for head in memory.positions(layer):
            assert head[: len(expected)].tolist() == [max(at, NOT_IN_SOURCE) for at in expected]
            assert sorted(head[len(expected) :].unique().tolist())[1:] == list(range(last - prefix, 301))


def test_a_conversation_that_outgrows_a_raw_text_leaves_the_text_whole(model: Model, ids: Tensor) -> None:
    """Check that its windows get beacons once they would not fit raw, and that its oldest entries go first."""
    method, text = Beacon(budget=206, window=24), 148 - len(model.chat.prefix)
    context = read(model, method, ids[:text])
    said = torch.cat([ids, ids])[: 20 + 24 * 12]  # the window that the text ends in has room for twenty more
    numbers = 1000 + torch.arange(len(said), dtype=torch.int32)
    memory, kept, ratios = context.memory.fork(), [NOT_IN_SOURCE] * (148 - text) + list(range(text)), []
    at, full = 0, 20
    for step in feed(model, method, memory, said, numbers, 11):
        if step.tokens == 0:
            ratio = (1, 1, 2, 8)[min(len(ratios), 3)]  # 168, 192 and 204 entries, and then three more each time
            kept += range(1000 + at + ratio - 1, 1000 + full, ratio)
            kept = kept[:148] + kept[148:][-58:]
            assert all(head.tolist() == kept for head in memory.positions(1))
            ratios.append(ratio)
            at, full = full, full + 24
    assert len(ratios) == 12
    assert memory.usage().entries[DEVICE] <= 206 + method.passing(model.spec)
    question = torch.tensor([1, 80, 81, 2])
    again = context.memory.fork()
    parts, meta = memory.state()
    again.load(loaded(parts), meta)
    found = []
    for each in (memory, again):
        source = torch.full((len(said),), NOT_IN_SOURCE, dtype=torch.int32)
        steps = feed(model, method, each, torch.cat([said[4:], question]), source, 64)
        found.append([step.hidden for step in steps if step.hidden is not None][-1])
    assert torch.equal(*found)


def test_a_budget_holds_at_any_length(model: Model) -> None:
    for settings in ({}, {"ratio": 2}, {"ratio": 32, "budget": 64}):
        method = make_method("beacon", **settings)
        assert method.budget is not None
        for tokens in (10**6, 10**8):
            footprint = method.plan(model.spec, ReadingTask(tokens, 4, 256, len))
            held = footprint.usage.entries[DEVICE]
            assert method.budget // 2 <= held <= method.budget + method.passing(model.spec)


def test_without_a_budget_a_ratio_is_kept_to(model: Model, ids: Tensor) -> None:
    """Regression: without a budget it was full attention. Beacons must grow with text and chat, and survive saving."""
    context = read(model, Beacon(budget=None, window=24, ratio=8), ids)
    total = len(model.chat.prefix) + 301
    assert context.usage().entries[DEVICE] == total // 24 * 3 + total % 24 + total % 24 // 8
    conversation, before = Conversation(context), context.usage().entries[DEVICE]
    for number in range(40):
        answer(conversation, f"Rock, paper or scissors? Round {number}.")
    memory = conversation.memory
    assert memory.evictor.made == memory.seen // 24 * 3
    assert conversation.usage().entries[DEVICE] > 2 * before
    parts, meta = conversation.state()
    again = Conversation.load(context, loaded(parts), meta)
    assert answer(again, "And then?") == answer(conversation, "And then?")


def test_a_long_conversation_is_condensed_like_the_text(model: Model, ids: Tensor) -> None:
    method = Beacon(budget=16, window=24, ratio=2)
    conversation = Conversation(read(model, method, ids))
    sizes = set()
    for number in range(10):
        answer(conversation, f"Rock, paper or scissors? Round {number}.")
        sizes.add(conversation.usage().bytes[DEVICE])
        assert conversation.usage().entries[DEVICE] <= 16 + method.passing(model.spec)
    assert len(sizes) <= 2, "memory stays what it is once the tail has been condensed"


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"window": 100, "ratio": 8}, "100 tokens cannot be divided by the ratio 8"),
        ({"window": 33}, "33 tokens cannot be divided by the ratio 2"),
        ({"ratio": 3}, "2, 4, 8, 16, 32, not 3"),
        ({"budget": 8}, "16 or more, not 8"),
        ({"window": -2}, "not -2"),
    ],
)
def test_impossible_settings_are_refused(settings: dict[str, int], named: str) -> None:
    with pytest.raises(SettingsError, match=named):
        make_method("beacon", **settings)


def qwen2_7b(layers: int) -> ModelSpec:
    """Return the configuration of Qwen2-7B at another depth."""
    layer = LayerSpec(28, 4, 128, None, NoRope())
    projections = [
        Projection(f"layers.{number}.self_attn.{name}", 3584, outputs, True)
        for number in range(layers)
        for name, outputs in (("q_proj", 3584), ("k_proj", 512), ("v_proj", 512))
    ]
    return ModelSpec(
        (layer,) * layers, torch.float32, torch.device("cpu"), window=32768, projections=tuple(projections)
    )


def published(layers: int, device: str = "cpu") -> dict[str, Tensor]:
    """Make random tensors with the names and shapes of the authors' checkpoint for Qwen2-7B-instruct."""
    tensors = {"model.beacon_embed_tokens.weight": torch.randn(1, 3584, device=device).bfloat16()}
    for number in range(layers):
        for name, rows in (("q", 3584), ("k", 512), ("v", 512)):
            start = f"model.layers.{number}.self_attn.beacon_{name}_proj"
            tensors[f"{start}.weight"] = torch.randn(rows, 3584, device=device).bfloat16()
            tensors[f"{start}.bias"] = torch.randn(rows, device=device).bfloat16()
    return tensors


@pytest.mark.parametrize("form", ["safetensors", "bin", "folder"])
def test_the_published_checkpoint_loads(form: str, tmp_path: Path) -> None:
    """Cover the authors' files: they hold the whole model in shards, and the beacons' tensors are found by name."""
    tensors = published(2)
    others = {"model.norm.weight": torch.ones(4), "model.layers.0.self_attn.q_proj.weight": torch.ones(4, 4)}
    if form == "folder":
        path = tmp_path / "shards"
        path.mkdir()
        names = sorted(tensors)
        save_file({name: tensors[name] for name in names[:5]} | others, path / "model-00001-of-00002.safetensors")
        save_file({name: tensors[name] for name in names[5:]}, path / "model-00002-of-00002.safetensors")
    elif form == "bin":
        path = tmp_path / "all.bin"
        torch.save(tensors | others, path)
    else:
        path = tmp_path / "all.safetensors"
        save_file(tensors | others, path)
    beacons = find_beacons(qwen2_7b(2), str(path))
    assert beacons.window == 0
    for name, weight in beacons.named_weights().items():
        assert torch.equal(weight, tensors[name].float())
    keys = beacons.modules_by_name["layers.1.self_attn.k_proj"](torch.ones(1, 3584))
    start = "model.layers.1.self_attn.beacon_k_proj"
    expected = tensors[f"{start}.weight"].float().sum(1) + tensors[f"{start}.bias"].float()
    torch.testing.assert_close(keys[0], expected, atol=1e-3, rtol=1e-4)


def test_the_spec_of_qwen2_7b_is_the_models_own() -> None:
    config = AutoConfig.for_model(
        "qwen2",
        hidden_size=3584,
        intermediate_size=18944,
        num_hidden_layers=28,
        num_attention_heads=28,
        num_key_value_heads=4,
        vocab_size=152064,
        max_position_embeddings=32768,
    )
    model = model_sizes(config, torch.bfloat16)
    assert model.spec.projections == qwen2_7b(28).projections
    with torch.device("meta"):
        own = {name: weight.shape for name, weight in Beacons(model.spec).named_weights().items()}
    assert own == {name: tensor.shape for name, tensor in published(28, "meta").items()}
    assert beacon_numbers(model.spec) == sum(shape.numel() for shape in own.values())
    assert make_method("beacon").windows(model.spec).window == 2048
    plan = Planner(model, Machine(64 << 30, 64 << 30, False)).plan(make_method("beacon"), 100_000)
    other = Planner(model, Machine(64 << 30, 64 << 30, False)).plan(make_method("infinipot"), 100_000)
    assert plan.footprint.weight_bytes == 2 * beacon_numbers(model.spec)
    assert plan.device_bytes > other.device_bytes + 900_000_000, "the beacons' own projections take a GB"


def test_other_tensors_than_the_models_are_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "beacon.safetensors"
    tensors = published(2)
    save_file(tensors, path)
    with pytest.raises(WeightsError, match=r"19 tensors.*6 are missing.*layers\.2\.self_attn\.beacon_q_proj\.weight"):
        find_beacons(qwen2_7b(3), str(path))
    with pytest.raises(
        WeightsError, match=r"none is missing.*layers\.1\.self_attn\.beacon_\w_proj\.\w+, which it has no"
    ):
        find_beacons(dataclasses.replace(qwen2_7b(1)), str(path))
    renamed = {name.replace("1.self_attn.beacon_q", "1.self_attn.beacon_query"): t for name, t in tensors.items()}
    save_file(renamed, tmp_path / "renamed.safetensors")
    with pytest.raises(WeightsError, match=r"2 are missing.*beacon_q_proj.*beacon_query_proj"):
        find_beacons(qwen2_7b(2), str(tmp_path / "renamed.safetensors"))
    cut = dict(tensors)
    cut["model.layers.1.self_attn.beacon_v_proj.weight"] = torch.randn(512, 1000).bfloat16()
    save_file(cut, tmp_path / "cut.safetensors")
    with pytest.raises(WeightsError, match=r"beacon_v_proj.weight.*\[512, 1000\].*\[512, 3584\]"):
        find_beacons(qwen2_7b(2), str(tmp_path / "cut.safetensors"))
    (tmp_path / "short.safetensors").write_bytes(path.read_bytes()[:-1000])
    with pytest.raises(WeightsError, match="damaged"):
        find_beacons(qwen2_7b(2), str(tmp_path / "short.safetensors"))
    save_file({"model.norm.weight": torch.ones(4)}, tmp_path / "none.safetensors")
    with pytest.raises(WeightsError, match=r"no beacon weights.*beacon_embed_tokens"):
        find_beacons(qwen2_7b(2), str(tmp_path / "none.safetensors"))


def test_what_does_not_fit_is_refused_before_reading(model: Model, ids: Tensor, tmp_path: Path) -> None:
    other = dataclasses.replace(model.spec, embedding="0123456789")
    path = tmp_path / "beacon.safetensors"
    save_weights(Beacons(other), path, other, {})
    with pytest.raises(WeightsError, match=r"01234567.*stockpot train beacon"):
        Reader(model, make_method("beacon", weights=str(path)), ids)
    save_weights(Beacons(model.spec), path, model.spec, {"window": "128"})
    with pytest.raises(WeightsError, match=r"windows of 128 tokens, and the window is set to 64: set window=128"):
        Reader(model, make_method("beacon", weights=str(path), window=64), ids)
    Reader(model, make_method("beacon", weights=str(path), window=128), ids)
    with pytest.raises(WeightsError, match=r"no-such\.safetensors.*stockpot train beacon"):
        Reader(model, make_method("beacon", weights=str(tmp_path / "no-such.safetensors")), ids)


def test_the_fingerprint_changes_with_the_weights(model: Model, ids: Tensor, tmp_path: Path) -> None:
    path = tmp_path / "beacon.safetensors"
    settings = dataclasses.replace(SMALL, weights=str(path))
    found = set()
    for _ in range(2):
        save_weights(Beacons(model.spec), path, model.spec, {})
        found.add(fingerprint(model.fingerprint, model.spec, settings, ids))
    assert len(found) == 2
    assert load_file(path)["model.beacon_embed_tokens.weight"].dtype == torch.bfloat16


def counted(model: Model, method: Method, ids: Tensor) -> int:
    """Count operations of matrix products and attention of a reading, with one window a pass."""
    reader = Reader(model, method, ids, 1000)
    fused = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu  # unknown to the counter

    def products(q: list[int], k: list[int], v: list[int], *_: object, **__: object) -> int:
        return sdpa_flop_count(q, k, v)

    with FlopCounterMode(display=False, custom_mapping={fused: products}) as counter:
        for _ in reader.run():
            pass
    return int(counter.get_total_flops())


def by_windows(model: ModelSizes, tokens: int, window: int, ratio: int) -> list[Operations]:
    """Compute the operations of all full windows and of the last one, by the paper's equation 10 without scored tokens.

    The model's own projections of beacons are left out, as in the paper, since their results are not used.
    """
    full, rest = divmod(tokens, window)
    size, each = window + window // ratio, window // ratio
    last = operations(model, rest + rest // ratio, full * each + rest + rest // ratio)
    # The visible entries grow by equal steps, so the average window stands for all.
    return [operations(model, full * size, size + (full - 1) * each / 2), last]


@pytest.mark.parametrize("ratio", RATIOS)
def test_operations_are_those_that_are_counted(model: Model, ids: Tensor, ratio: int) -> None:
    sizes = sizes_of(model.network, model.spec)
    total, window = len(model.chat.prefix) + 301, 64
    work = sum(each.linear + each.attention for each in by_windows(sizes, total, window, ratio))
    unused = 2 * (total // ratio) * sum(p.inputs * p.outputs for p in model.spec.projections)
    found = counted(model, Beacon(budget=512, window=window, ratio=ratio), ids)
    assert found == work + unused


def test_operations_are_those_of_the_appendix(model: Model) -> None:
    """Compare with equations 12 and 13 written out."""
    s, past = 40, 200
    D, d, hq, hk, inner, V, layers = 48, 8, 6, 2, 96, 260, 3
    qkv = 2 * s * D * d * hq + 2 * 2 * s * D * d * hk
    qk = av = 2 * hq * s * (s + past) * d
    out = 2 * s * d * hq * D
    up, gate, down, lm = 2 * s * D * 2 * inner, s * inner, 2 * s * D * inner, 2 * s * D * V
    found = operations(sizes_of(model.network, model.spec), s, s + past, s)
    assert found.linear == layers * (qkv + out + up + down)
    assert found.attention == layers * (qk + av)
    assert found.softmax == layers * hq * s * (s + past)
    assert found.gate == layers * gate
    assert found.head == lm


def test_the_planner_counts_beacons_as_tokens_and_saves_as_the_paper_says(model: Model) -> None:
    config = AutoConfig.for_model(
        "qwen2",
        hidden_size=3584,
        intermediate_size=18944,
        num_hidden_layers=28,
        num_attention_heads=28,
        num_key_value_heads=4,
        vocab_size=152064,
        max_position_embeddings=131072,
    )
    planner = Planner(model_sizes(config, torch.bfloat16), Machine(80 << 30, 80 << 30, False))
    tokens = 128 * 1024
    beacon = planner.operations(make_method("beacon", ratio=8, budget=1 << 15), tokens, tokens)
    own = sum(each.total for each in by_windows(planner.model, tokens, 2048, 8))
    assert beacon == pytest.approx(own, rel=0.1)
    assert 1.1 < operations(planner.model, tokens, tokens / 2).total / beacon < 2.5


def test_where_they_are_missing_and_cannot_be_trained_nobody_is_sent_to_train_them(tmp_path: Path) -> None:
    """Cover sliding windows, which training refuses."""
    for kind, advice in (("gemma2", "cannot be trained yet for a model that has layers with"), ("llama", "Train them")):
        spec = model_sizes(small_config(kind), torch.float32, folder=tmp_path).spec
        with pytest.raises(WeightsError, match=advice):
            find_beacons(spec, "")
