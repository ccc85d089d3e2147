"""Loading: files of weights, configurations and tokenizers that are damaged, odd or missing."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from engine import ModelNotFound, UnsupportedModel, load_model
from engine.models.configuration import read_config
from engine.models.loading import load_network
from tests.engine.checkpoints import changed, save_small
from tests.engine.conftest import byte_tokenizer

CPU = torch.device("cpu")
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a checkpoint of a random Llama with layers 64 wide, and its tokenizer."""
    return save_small(tmp_path_factory.mktemp("models") / "small")


def rewritten(folder: Path, target: Path, change: Callable[[dict[str, torch.Tensor]], dict[str, torch.Tensor]]) -> Path:
    """Copy a checkpoint, with other tensors."""
    shutil.copytree(folder, target)
    weights = target / "model.safetensors"
    save_file(change(load_file(weights)), weights, metadata={"format": "pt"})
    return target


Tensors = dict[str, torch.Tensor]
INCOMPLETE: dict[str, tuple[Callable[[Tensors], Tensors], str]] = {
    "tensor": (
        lambda weights: {
            name: weight for name, weight in weights.items() if name != "model.layers.1.mlp.up_proj.weight"
        },
        r"lack model\.layers\.1\.mlp\.up_proj\.weight:",
    ),
    "layer": (
        lambda weights: {name: weight for name, weight in weights.items() if ".layers.2." not in name},
        r"lack model\.layers\.2\.input_layernorm\.weight and 8 other tensors",
    ),
    "head": (
        lambda weights: {name: weight for name, weight in weights.items() if name != "lm_head.weight"},
        r"lack lm_head\.weight",
    ),
    "names": (lambda weights: {f"other.{name}": weight for name, weight in weights.items()}, "lack lm_head"),
    "shape": (
        lambda weights: {**weights, "lm_head.weight": torch.zeros(300, 64)},
        r"lm_head\.weight .* \[300, 64\], .* \[260, 64\]",
    ),
    "bias": (
        lambda weights: {**weights, "model.layers.0.self_attn.q_proj.bias": torch.ones(64)},
        r"hold model\.layers\.0\.self_attn\.q_proj\.bias, for which a llama has no place",
    ),
}


@pytest.mark.parametrize("case", INCOMPLETE)
def test_weights_that_are_not_the_models_own_are_refused_and_not_made_up(
    folder: Path, tmp_path: Path, case: str, capfd: pytest.CaptureFixture[str]
) -> None:
    change, words = INCOMPLETE[case]
    with pytest.raises(ModelNotFound, match=words):
        load_model(rewritten(folder, tmp_path / case, change), "cpu")
    assert capfd.readouterr().err == ""


def test_weights_of_layers_that_the_model_does_not_have_are_let_be(folder: Path, tmp_path: Path) -> None:
    extra = {
        "model.layers.7.mlp.up_proj.weight": torch.ones(192, 64),
        "model.other.weight": torch.ones(3),
        "model.layers.0.self_attn.k_scale": torch.ones(1),
        "model.layers.0.self_attn.bias": torch.ones(1, 1),
        "model.layers.0.self_attn.k_proj._extra_state": torch.ones(1),
    }
    load_model(rewritten(folder, tmp_path / "more", lambda weights: {**weights, **extra}), "cpu")


def test_files_that_nothing_reads_may_be_pointers(folder: Path, tmp_path: Path) -> None:
    place = tmp_path / "pulled in part"
    shutil.copytree(folder, place)
    for name in ("consolidated.safetensors", "tokenizer.model"):
        (place / name).write_text("version https://git-lfs.github.com/spec/v1\nsize 4000\n")
    (place / "tokenizer").mkdir()
    load_model(place, "cpu")


def test_beacons_and_retaining_heads_may_lie_among_the_weights(folder: Path, tmp_path: Path) -> None:
    """Cover the files that the authors of Activation Beacon publish."""
    more = {
        "model.beacon_embed_tokens.weight": torch.zeros(1, 64),
        "model.layers.0.self_attn.beacon_q_proj.weight": torch.zeros(48, 64),
        "model.layers.0.self_attn.fc1.weight": torch.zeros(8, 80),
    }
    target = rewritten(folder, tmp_path / "more", lambda weights: weights | more)
    assert load_model(target, "cpu").spec.embedding == load_model(folder, "cpu").spec.embedding


@pytest.mark.parametrize("head", [True, False])
def test_a_head_that_is_the_embedding_need_not_be_stored(folder: Path, tmp_path: Path, head: bool) -> None:
    def tie(weights: Tensors) -> Tensors:
        rest = {name: weight for name, weight in weights.items() if name != "lm_head.weight"}
        return {**rest, "lm_head.weight": rest["model.embed_tokens.weight"].clone()} if head else rest

    place = rewritten(changed(folder, tmp_path / "config", tie_word_embeddings=True), tmp_path / "tied", tie)
    network = load_model(place, "cpu").network
    assert network.lm_head.weight is network.model.embed_tokens.weight


def test_a_shard_is_read_whole_though_its_index_leaves_a_tensor_out(folder: Path, tmp_path: Path) -> None:
    network = load_network(folder, read_config(folder), CPU, torch.float32, "none")
    place = tmp_path / "shards"
    shutil.copytree(folder, place)
    (place / "model.safetensors").unlink()
    network.save_pretrained(place, max_shard_size="100KB")
    index = place / "model.safetensors.index.json"
    facts = json.loads(index.read_text())
    name = "model.layers.1.mlp.up_proj.weight"
    shard = facts["weight_map"].pop(name)
    index.write_text(json.dumps(facts))
    again = load_network(place, read_config(place), CPU, torch.float32, "none")
    assert torch.equal(again.get_parameter(name), network.get_parameter(name))
    (place / shard).unlink()
    with pytest.raises(ModelNotFound, match=f"fetch {shard}"):
        load_model(place, "cpu")
    for text in ('{"weight_map": ', "{}"):
        index.write_text(text)
        with pytest.raises(ModelNotFound, match=r"index\.json is damaged"):
            load_model(place, "cpu")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is damaged"),
        (b"\xff" * 20, "is damaged"),
        (b"cut", "is damaged"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:abc\nsize 123\n", "git lfs pull"),
    ],
)
def test_a_damaged_file_of_weights_is_named(folder: Path, tmp_path: Path, content: bytes, words: str) -> None:
    place = tmp_path / "damaged"
    shutil.copytree(folder, place)
    weights = place / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] if content == b"cut" else content)
    with pytest.raises(ModelNotFound, match=rf"model\.safetensors .*{words}"):
        load_model(place, "cpu")


def test_codes_without_a_word_on_what_they_stand_for_are_refused(folder: Path, tmp_path: Path) -> None:
    place = rewritten(folder, tmp_path / "codes", lambda weights: {k: v.to(torch.int8) for k, v in weights.items()})
    with pytest.raises(UnsupportedModel, match=r"is stored as I8, and config\.json has no quantization_config"):
        load_model(place, "cpu")


def test_pickled_weights_are_not_read(folder: Path, tmp_path: Path) -> None:
    place = tmp_path / "pickled"
    shutil.copytree(folder, place)
    torch.save(load_file(place / "model.safetensors"), place / "pytorch_model.bin")
    (place / "model.safetensors").unlink()
    with pytest.raises(ModelNotFound, match=r"no weights at .* model\.safetensors"):
        load_model(place, "cpu")


def test_code_of_a_models_own_is_never_run_nor_asked_about(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: transformers asked at the terminal, even in a chat, and ran the code on "y"."""
    ran = tmp_path / "ran"
    place = changed(folder, tmp_path / "own", auto_map={"AutoConfig": "own.A", "AutoModelForCausalLM": "own.B"})
    (place / "own.py").write_text(f"import os\nos.mkdir({str(ran)!r})\nclass Own: ...\n")
    own = {"tokenizer_class": "Own", "auto_map": {"AutoTokenizer": [None, "own.Own"]}}
    facts = json.loads((place / "tokenizer_config.json").read_text())
    (place / "tokenizer_config.json").write_text(json.dumps({**facts, **own}))
    asked: list[object] = []

    def answer(*words: object) -> str:
        asked.extend(words)
        return "y"

    monkeypatch.setattr("builtins.input", answer)
    with pytest.raises(UnsupportedModel, match="is code of its own, which is never run: choose another model, or put"):
        load_model(place, "cpu")
    assert not asked
    assert not ran.exists()


@pytest.mark.parametrize("text", ['{"model_type": "llama",', "[1, 2]", "\x00"])
def test_a_config_that_cannot_be_read_is_there_all_the_same(folder: Path, tmp_path: Path, text: str) -> None:
    place = tmp_path / "unreadable"
    shutil.copytree(folder, place)
    (place / "config.json").write_text(text)
    with pytest.raises(ModelNotFound, match=r"config\.json cannot be read"):
        load_model(place, "cpu")


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"hidden_size": "sixty"}, "Field 'hidden_size' expected int"),
        ({"num_attention_heads": 5, "num_key_value_heads": 5}, "not a multiple of the number of attention heads"),
        ({"hidden_act": "foo"}, "foo"),
        ({"rope_parameters": {"rope_type": "linear", "rope_theta": 1e4}}, "Missing required keys .*factor"),
        ({"rope_parameters": "linear"}, "rope_parameters"),
        ({"num_hidden_layers": 0}, "num_hidden_layers is 0"),
        ({"num_hidden_layers": -3}, "num_hidden_layers is -3"),
    ],
)
def test_a_config_of_no_model_is_refused_with_the_cause(
    folder: Path, tmp_path: Path, facts: dict[str, object], words: str
) -> None:
    place = changed(folder, tmp_path / "changed", **facts)
    with pytest.raises(UnsupportedModel, match=rf"config\.json.*{words}.*\.$"):
        load_model(place, "cpu")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"a":', "has no tokenizer that can be loaded: Expecting value"),
        ('{"a": 1}', "has no tokenizer that can be loaded"),
        ("version https://git-lfs.github.com/spec/v1\n", r"tokenizer\.json is a git-lfs pointer"),
    ],
)
def test_a_tokenizer_that_cannot_be_loaded_is_refused(folder: Path, tmp_path: Path, text: str, words: str) -> None:
    place = tmp_path / "broken"
    shutil.copytree(folder, place)
    (place / "tokenizer.json").write_text(text)
    with pytest.raises(ModelNotFound, match=words):
        load_model(place, "cpu")


def test_ids_without_an_embedding_are_refused_before_weights_are_read(folder: Path, tmp_path: Path) -> None:
    place = changed(folder, tmp_path / "small", vocab_size=259)
    (place / "model.safetensors").write_bytes(b"never read")
    with pytest.raises(UnsupportedModel, match=r"ids up to 259, .* for 259 \(vocab_size\)"):
        load_model(place, "cpu")
    # Like Gemma 3 without pictures: one special token more than embeddings, which no text becomes.
    tokenizer = byte_tokenizer()
    tokenizer.add_tokens(["<|picture|>"], special_tokens=True)
    place = tmp_path / "special"
    shutil.copytree(folder, place)
    tokenizer.save_pretrained(place)
    load_model(place, "cpu")
    tokenizer.chat_template = f"<|picture|>{tokenizer.chat_template}"
    tokenizer.save_pretrained(place)
    with pytest.raises(UnsupportedModel, match="ids up to 260"):
        load_model(place, "cpu")


def test_want_of_memory_stays_what_it_is(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: object, **options: object) -> None:
        raise MemoryError

    monkeypatch.setattr(AutoModelForCausalLM, "from_pretrained", fail)
    with pytest.raises(MemoryError):
        load_model(folder, "cpu")


def test_a_folder_without_weights_is_named(folder: Path, tmp_path: Path) -> None:
    place = tmp_path / "empty"
    shutil.copytree(folder, place)
    (place / "model.safetensors").unlink()
    with pytest.raises(ModelNotFound, match="empty"):
        load_model(place, "cpu")
    assert read_config(place).model_type == "llama"
    with pytest.raises(ModelNotFound, match="nowhere"):
        load_model(tmp_path / "nowhere", "cpu")
