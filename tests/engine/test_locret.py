"""Locret against a plain, slow Algorithm 1, and its files against the authors' names and shapes."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM

from engine import Conversation, Model, Reader, SettingsError, WeightsError, fingerprint, make_method
from engine.loops.passes import feed
from engine.methods.locret import Locret
from engine.models.rope import NoRope, Rope
from engine.models.spec import LayerSpec, ModelSpec, Scoring
from engine.parts.footprint import ReadingTask
from engine.parts.mass import NOT_IN_SOURCE
from engine.parts.sharing import SPREAD
from engine.records import DEVICE
from engine.trained.retaining import FILE, RetainingHeads, find_heads, hidden_widths
from engine.trained.sidecar_weights import save_weights
from tests.engine.conftest import byte_tokenizer
from tests.engine.plain import one_by_one
from tests.engine.reading import answer, next_logits, read

SMALL = Locret(budget=40, chunk=24, stabilizers=10, local=9, pooling=5)


class PlainLocret:
    """Algorithm 1 of the paper, entry by entry: per layer and KV head a list of (key, value, score, position)."""

    def __init__(self, model: Model, settings: Locret) -> None:
        self.model, self.settings = model, settings
        assert model.spec.folder is not None
        self.weights = load_file(model.spec.folder / FILE)
        self.cache: list[list[list[tuple[Tensor, Tensor, float, int]]]] = [
            [[] for _ in range(layer.kv_heads)] for layer in model.spec.layers
        ]
        self.at: list[int] = []

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, scoring: Scoring) -> Tensor:
        rope = self.model.spec.layers[layer].rope
        fc1, fc2 = (self.weights[f"model.layers.{layer}.self_attn.fc{i}.weight"].float() for i in (1, 2))
        group = q.shape[0] // k.shape[0]
        output = torch.zeros_like(q)
        for token in range(q.shape[1]):
            seen = torch.cat([q[:, token].flatten(), k[:, token].flatten(), v[:, token].flatten()])
            scores = F.silu(seen @ fc1.T) @ fc2.T
            for head, held in enumerate(self.cache[layer]):
                held.append((k[head, token], v[head, token], round(float(scores[head]), 3), self.at[token]))
                keys = rope.rotate(torch.stack([entry[0] for entry in held]), 0)
                values = torch.stack([entry[1] for entry in held])
                for each in range(head * group, (head + 1) * group):
                    query = rope.rotate(q[each, token][None], len(held) - 1)[0]
                    output[each, token] = (keys @ query * scoring.scaling).softmax(0) @ values
        return output

    def forward(self, ids: Tensor, positions: list[int]) -> Tensor:
        self.at = positions
        with torch.no_grad():
            hidden = self.model.network.base_model(input_ids=ids[None], use_cache=False, memory=self)
            return self.model.logits(hidden.last_hidden_state[0])

    def evict(self, stabilizers: int) -> None:
        assert self.settings.budget is not None
        scores = [[self._pooled(held, stabilizers) for held in layer] for layer in self.cache]
        for layer, own, counts in zip(self.cache, scores, self._counts(scores, stabilizers), strict=True):
            for head, (held, pooled, count) in enumerate(zip(layer, own, counts, strict=True)):
                best = sorted(range(len(held)), key=lambda slot: (-pooled[slot], slot))[:count]
                layer[head] = [held[slot] for slot in sorted(best)]

    def _pooled(self, held: list[tuple[Tensor, Tensor, float, int]], stabilizers: int) -> list[float]:
        reach = self.settings.pooling // 2
        pooled = [max(entry[2] for entry in held[max(0, slot - reach) : slot + reach + 1]) for slot in range(len(held))]
        return pooled[: len(held) - stabilizers] + [float("inf")] * stabilizers

    def _counts(self, scores: list[list[list[float]]], stabilizers: int) -> list[list[int]]:
        size, heads, layers = self.settings.budget or 0, len(scores[0]), len(scores)
        if sum(len(own) for layer in scores for own in layer) <= size * heads * layers:
            return [[len(own) for own in layer] for layer in scores]
        if self.settings.share == "heads":
            return [one_by_one(layer, size, stabilizers) for layer in scores]
        if self.settings.share == "all":
            flat = one_by_one([own for layer in scores for own in layer], size, stabilizers)
            return [flat[layer * heads : (layer + 1) * heads] for layer in range(layers)]
        steep = 0.0
        if self.settings.share == "pyramid":
            steep = min(SPREAD * (size - stabilizers), len(scores[0][0]) - size)
        return [[size + round(steep * (1 - layer))] * heads for layer in range(layers)]

    def read(self, ids: Tensor, positions: list[int]) -> None:
        end = len(ids) - self.settings.local
        for begin in range(0, end, self.settings.chunk_tokens):
            stop = min(begin + self.settings.chunk_tokens, end)
            self.forward(ids[begin:stop], positions[begin:stop])
            self.evict(0 if stop == end else self.settings.stabilizer_entries)
        if self.settings.local:
            self.forward(ids[end:], positions[end:])


@pytest.mark.parametrize(
    "settings",
    [
        SMALL,
        dataclasses.replace(SMALL, pooling=1),
        dataclasses.replace(SMALL, stabilizers=0, local=0),
        dataclasses.replace(SMALL, stabilizers=30),  # more than a chunk
        dataclasses.replace(SMALL, chunk=None, stabilizers=None),
        dataclasses.replace(SMALL, share="pyramid"),
        dataclasses.replace(SMALL, share="heads"),
        dataclasses.replace(SMALL, share="all"),
    ],
    ids=["usual", "no-pooling", "nothing-spared", "many-stabilizers", "shares", "pyramid", "heads", "all"],
)
def test_equals_algorithm_1(model: Model, ids: Tensor, settings: Locret) -> None:
    text, question = ids[:120], torch.tensor([1, 80, 81, 2])
    memory = read(model, settings, text, chunk=17).memory
    prefix = model.chat.prefix
    plain = PlainLocret(model, settings)
    plain.read(torch.cat([torch.tensor(prefix), text]), [NOT_IN_SOURCE] * len(prefix) + list(range(120)))
    for layer, heads in enumerate(plain.cache):
        longest = max(map(len, heads))
        expected = [[entry[3] for entry in held] + [NOT_IN_SOURCE] * (longest - len(held)) for held in heads]
        assert memory.positions(layer).tolist() == expected
        scores = [score for number in memory.store.groups[layer] for score in memory.store.column(number, "score")]
        for score, held in zip(scores, heads, strict=True):  # rounding may differ here
            torch.testing.assert_close(score, torch.tensor([entry[2] for entry in held]), atol=1.1e-3, rtol=0)
    logits = plain.forward(question, [NOT_IN_SOURCE] * 4)
    torch.testing.assert_close(next_logits(model, settings, memory, question), logits, atol=2e-5, rtol=1e-4)


def test_a_finished_reading_holds_the_budget_and_the_last_tokens(model: Model, ids: Tensor) -> None:
    memory = read(model, SMALL, ids).memory
    assert memory.usage().entries[DEVICE] == 40 + 9
    for layer in range(3):
        for head in memory.positions(layer):
            assert head[-9:].tolist() == list(range(292, 301))


def test_a_long_conversation_stays_in_its_room_and_keeps_its_last_tokens(model: Model, ids: Tensor) -> None:
    """Check the paper's appendix H: a conversation of any length, condensed by the scores of its own tokens."""
    memory = read(model, SMALL, ids[:150]).memory.fork()
    said = torch.cat([ids, ids])
    numbers = torch.arange(1000, 1602, dtype=torch.int32)  # stand-ins for positions, to recognise tokens
    largest = 0
    for step in feed(model, SMALL, memory, said, numbers, 16):
        largest = max(largest, memory.usage().entries[DEVICE])
        if step.tokens == 0:
            last = 1000 + memory.seen - len(model.chat.prefix) - 150
            for head in memory.positions(1):
                assert head[-9:].tolist() == list(range(last - 9, last))
    assert largest == 40 + SMALL.passing(model.spec)
    for head in memory.positions(0):
        assert len(head) <= 40 + SMALL.passing(model.spec)
        assert int(((head >= 1000) & (head < 1500)).sum()) > 0, "something said long ago is still there"


def test_a_conversation_may_be_condensed_many_times(model: Model, ids: Tensor) -> None:
    conversation = Conversation(read(model, dataclasses.replace(SMALL, stabilizers=0), ids))
    sizes = []
    for number in range(6):
        answer(conversation, f"Rock, paper or scissors? Round {number}.")
        sizes.append(conversation.usage().bytes[DEVICE])
    assert len(set(sizes[2:])) == 1, "memory stays what it is once the tail has been condensed"


@pytest.mark.parametrize(("kind", "projections"), [("llama", ("q_proj", "k_proj", "v_proj")), ("phi3", ("qkv_proj",))])
def test_heads_see_the_projections_before_rope(kind: str, projections: tuple[str, ...], tmp_path: Path) -> None:
    """Check queries, keys and values side by side, all heads, as projected; Phi-3 fuses them."""
    torch.manual_seed(0)
    config = AutoConfig.for_model(
        kind,
        vocab_size=260,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=4 if kind == "phi3" else 2,
        max_position_embeddings=512,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
    )
    model = Model(AutoModelForCausalLM.from_config(config), byte_tokenizer(), kind, "-", tmp_path)
    save_weights(RetainingHeads(model.spec, [16, 16]), tmp_path / FILE, model.spec, {})
    weights = load_file(tmp_path / FILE)
    outputs: dict[int, list[Tensor]] = {0: [], 1: []}
    for number, layer in enumerate(model.network.base_model.layers):  # type: ignore[union-attr,arg-type]
        for name in projections:
            projection = getattr(layer.self_attn, name)
            projection.register_forward_hook(lambda _m, _i, out, n=number: outputs[n].append(out[0]))
    memory = make_method("locret", budget=64, stabilizers=4).new_memory(model.spec, model.turn_length)
    ids = torch.randint(4, 260, (30,))
    model.forward(ids, memory, torch.arange(30, dtype=torch.int32))
    memory.end_pass()
    for number in range(2):
        fc1, fc2 = (weights[f"model.layers.{number}.self_attn.fc{i}.weight"].float() for i in (1, 2))
        expected = F.silu(torch.cat(outputs[number], dim=-1) @ fc1.T) @ fc2.T
        torch.testing.assert_close(memory.store.own[number].score[:, :30], expected.T, atol=6e-4, rtol=0)


def spec_like(layers: int, query_heads: int, kv_heads: int, head_size: int) -> ModelSpec:
    layer = LayerSpec(query_heads, kv_heads, head_size, None, NoRope())
    return ModelSpec((layer,) * layers, torch.float32, torch.device("cpu"), window=2048)


def published(layers: int, heads: int, wide: int, device: str = "cpu") -> dict[str, Tensor]:
    """Make random tensors with the names and shapes of the authors' checkpoints, hidden width 1024."""
    tensors = {}
    for layer in range(layers):
        tensors[f"model.layers.{layer}.self_attn.fc1.weight"] = torch.randn(1024, wide, device=device).bfloat16()
        tensors[f"model.layers.{layer}.self_attn.fc2.weight"] = torch.randn(heads, 1024, device=device).bfloat16()
    return tensors


LLAMA = (32, 8, 128, 6144)  # Llama-3.1-8B: query heads, KV heads, head size, inputs of a head
PHI = (32, 32, 96, 9216)  # Phi-3-mini


@pytest.mark.parametrize("shape", [LLAMA, PHI], ids=["llama-3.1-8b", "phi-3-mini"])
@pytest.mark.parametrize("suffix", [".safetensors", ".bin"])
def test_published_checkpoints_load(shape: tuple[int, ...], suffix: str, tmp_path: Path) -> None:
    query_heads, kv_heads, size, wide = shape
    tensors = published(2, kv_heads, wide)
    others = {"model.norm.weight": torch.ones(4), "model.layers.0.mlp.fc1.weight": torch.ones(4, 4)}
    path = tmp_path / f"heads{suffix}"
    if suffix == ".bin":
        torch.save(tensors | others, path)
    else:
        save_file(tensors | others, path)
    heads = find_heads(spec_like(2, query_heads, kv_heads, size), str(path))
    for name, weight in heads.named_weights().items():
        assert torch.equal(weight, tensors[name].float())
    q, k = torch.randn(query_heads, 3, size), torch.randn(kv_heads, 3, size)
    assert heads.score(1, q, k, k).shape == (kv_heads, 3)


@pytest.mark.parametrize("shape", [LLAMA, PHI], ids=["llama-3.1-8b", "phi-3-mini"])
def test_all_32_layers_have_the_published_shapes(shape: tuple[int, ...]) -> None:
    query_heads, kv_heads, size, wide = shape
    shapes = {name: tuple(t.shape) for name, t in published(32, kv_heads, wide, "meta").items()}
    spec = spec_like(32, query_heads, kv_heads, size)
    assert hidden_widths(shapes, spec, "-") == [1024] * 32
    with torch.device("meta"):
        own = {name: tuple(weight.shape) for name, weight in RetainingHeads(spec, [1024] * 32).named_weights().items()}
    assert own == shapes


def test_heads_of_another_model_are_refused_by_shape(tmp_path: Path) -> None:
    save_file(published(2, 8, 6144), tmp_path / "heads.safetensors")
    with pytest.raises(WeightsError, match=r"\[1024, 6144\].*32 query and 32 KV heads of 96.*\[1024, 9216\]"):
        find_heads(spec_like(2, 32, 32, 96), str(tmp_path / "heads.safetensors"))
    with pytest.raises(WeightsError, match="2 layers, and this model has 1"):
        find_heads(spec_like(1, 32, 8, 128), str(tmp_path / "heads.safetensors"))
    with pytest.raises(WeightsError, match=r"no model\.layers\.2\.self_attn\.fc1\.weight: heads of all 3 layers"):
        find_heads(spec_like(3, 32, 8, 128), str(tmp_path / "heads.safetensors"))


def test_heads_trained_for_other_weights_are_refused(model: Model, tmp_path: Path) -> None:
    other = dataclasses.replace(model.spec, embedding="0123456789")
    save_weights(RetainingHeads(other, [24] * 3), tmp_path / "heads.safetensors", other, {})
    with pytest.raises(WeightsError, match=r"01234567.*stockpot train locret"):
        find_heads(model.spec, str(tmp_path / "heads.safetensors"))


def test_an_activation_with_weights_of_its_own_is_not_trained(model: Model) -> None:
    """Cover Apertus, whose activation has weights that no file of heads holds."""
    spec = dataclasses.replace(model.spec, activation="xielu")
    heads = RetainingHeads(spec, [8] * len(spec.layers))
    trained = {id(weight) for weight in heads.parameters() if weight.requires_grad}
    assert trained == {id(weight) for weight in heads.named_weights().values()}
    assert len(trained) < len(list(heads.parameters()))


def test_damaged_and_foreign_files_are_refused(model: Model, tmp_path: Path) -> None:
    assert model.spec.folder is not None
    whole = (model.spec.folder / FILE).read_bytes()
    for name, content in (("cut.safetensors", whole[:-100]), ("cut.bin", whole[:50]), ("empty.bin", b"")):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(WeightsError, match="damaged"):
            find_heads(model.spec, str(tmp_path / name))
    renamed = {f"x{name}": tensor for name, tensor in load_file(model.spec.folder / FILE).items()}
    save_file(renamed, tmp_path / "renamed.safetensors")
    with pytest.raises(WeightsError, match="no retaining heads"):
        find_heads(model.spec, str(tmp_path / "renamed.safetensors"))


def test_a_pickle_that_runs_code_is_refused(model: Model, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    torch.save({"model.layers.0.self_attn.fc1.weight": _Evil(ran)}, tmp_path / "evil.bin")
    with pytest.raises(WeightsError, match="damaged"):
        find_heads(model.spec, str(tmp_path / "evil.bin"))
    assert not ran.exists()


class _Evil:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (self.path,))


def test_a_model_without_heads_is_told_what_to_do_before_reading(model: Model, ids: Tensor, tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match=r"no-such\.safetensors.*stockpot train locret"):
        Reader(model, make_method("locret", heads=str(tmp_path / "no-such.safetensors")), ids)
    here, hub = (dataclasses.replace(model.spec, folder=folder) for folder in (tmp_path, None))
    for spec, name in ((here, str(tmp_path)), (hub, "MODEL --out PATH")):  # unnamed it was the pocket model
        with pytest.raises(WeightsError, match=rf"'stockpot train locret --model {name} --data FILE\.jsonl', or"):
            SMALL.new_memory(spec, model.turn_length)


def test_the_fingerprint_changes_with_the_heads(model: Model, ids: Tensor, tmp_path: Path) -> None:
    path = tmp_path / "heads.safetensors"
    settings = dataclasses.replace(SMALL, heads=str(path))
    found = []
    for seed in (1, 2, 1):
        torch.manual_seed(seed)
        save_weights(RetainingHeads(model.spec, [24] * 3), path, model.spec, {})
        found.append(fingerprint(model.fingerprint, model.spec, settings, ids))
    assert found[0] == found[2] != found[1]


def test_a_plan_counts_the_heads(model: Model, tmp_path: Path) -> None:
    """Cover heads in a file, heads of the paper's width where there is none yet, and the heads of a gist."""
    path, task = tmp_path / "heads.safetensors", ReadingTask(1000, 4, 256, len)
    for width in (24, 40):
        save_weights(RetainingHeads(model.spec, [width] * 3), path, model.spec, {})
        heads = find_heads(model.spec, str(path))
        held = sum(weight.nbytes for weight in heads.parameters())
        assert make_method("locret", heads=str(path)).plan(model.spec, task).weight_bytes == held
    beside = sum(weight.nbytes for weight in find_heads(model.spec, "").parameters())
    assert make_method("recall").plan(model.spec, task).weight_bytes == beside
    assert make_method("recall", gist="infinipot").plan(model.spec, task).weight_bytes == 0
    llama = spec_like(32, *LLAMA[:3])
    size = 2 * sum(tensor.numel() for tensor in published(32, LLAMA[1], LLAMA[3], "meta").values())
    wanted = dataclasses.replace(llama, dtype=torch.bfloat16)
    path.write_bytes(b"damaged")
    for heads in ("", str(path), str(tmp_path / "none.safetensors")):
        assert make_method("locret", heads=heads).plan(wanted, task).weight_bytes == size


def test_the_path_of_heads_is_remembered_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert make_method("locret", heads="here.safetensors").settings()["heads"] == str(tmp_path / "here.safetensors")


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"budget": 8}, "budget"),
        ({"budget": 64, "stabilizers": 64}, "64 stabilizers.*budget of 64"),
        ({"chunk": 0}, "chunk"),
        ({"stabilizers": -1}, "stabilizers"),
        ({"local": -1}, "local"),
        ({"pooling": 2}, "pooling"),
    ],
)
def test_impossible_settings_are_refused_by_name(settings: dict[str, object], named: str) -> None:
    with pytest.raises(SettingsError, match=named):
        make_method("locret", **settings)


def test_rope_spec_of_the_tiny_model_is_real(model: Model) -> None:
    """Check that RoPE changes keys, since the comparison with Algorithm 1 would else prove nothing of positions."""
    assert all(isinstance(layer.rope, Rope) and not isinstance(layer.rope, NoRope) for layer in model.spec.layers)
