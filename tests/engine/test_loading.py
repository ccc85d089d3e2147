"""Loading: early refusals, weights that are quantised on the way in, and peak memory."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM
from transformers.utils import logging as transformers_logging

from engine import ModelNotFound, OutOfMemory, SettingsError, UnsupportedModel, load_model, make_method, model
from engine.loops.context import new_memory
from engine.model import model_stamp
from engine.models import loading, placement
from engine.models.architectures import ARCHITECTURES
from engine.models.configuration import read_config
from engine.models.loading import load_network
from engine.models.placement import dtype_on
from engine.models.sizes import model_sizes, sizes_of
from engine.parts.mass import NOT_IN_SOURCE
from tests.engine.architectures import small_config
from tests.engine.checkpoints import packed_bytes
from tests.engine.conftest import byte_tokenizer, tiny_config

CPU = torch.device("cpu")
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Save a random Llama with layers 64 wide and its tokenizer as a checkpoint."""
    path = tmp_path_factory.mktemp("models") / "small"
    config = tiny_config()
    config.update({"hidden_size": 64, "intermediate_size": 192, "head_dim": 16, "num_attention_heads": 4})
    torch.manual_seed(0)
    LlamaForCausalLM(config).save_pretrained(path)
    byte_tokenizer().save_pretrained(path)
    return path


def changed(folder: Path, target: Path, **facts: object) -> Path:
    """Copy a checkpoint, with other settings in its config.json."""
    shutil.copytree(folder, target)
    config = json.loads((target / "config.json").read_text())
    (target / "config.json").write_text(json.dumps({**config, **facts}))
    return target


@pytest.mark.parametrize("quantize", ["none", "8bit", "nf4"])
def test_quantised_weights_take_the_planned_bytes_and_match_eager_attention(folder: Path, quantize: str) -> None:
    config = read_config(folder)
    reference = load_network(folder, config, CPU, torch.float32, quantize)
    assert packed_bytes(reference) == model_sizes(config, torch.float32).weight_bytes(quantize)
    reference.set_attn_implementation("eager")
    ids = torch.randint(4, 260, (150,), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        expected = reference(input_ids=ids[None], use_cache=False).logits[0]

    model = load_model(folder, "cpu", quantize=quantize)
    assert sizes_of(model.network, model.spec).weight_bytes(quantize) == model_sizes(
        config, torch.float32
    ).weight_bytes(quantize)
    memory = new_memory(model, make_method("full"))
    hidden = []
    # LLM.int8() looks for outliers in all tokens of a pass together, so results depend a little on the passes.
    for chunk in ids.split(150 if quantize == "8bit" else 37):
        hidden.append(model.forward(chunk, memory, torch.full((len(chunk),), NOT_IN_SOURCE, dtype=torch.int32)))
        memory.end_pass()
    logits = model.logits(torch.cat(hidden))
    error = float((logits - expected).norm() / expected.norm())
    assert error < (1e-3 if quantize == "8bit" else 1e-5)


@pytest.mark.parametrize("kind", ARCHITECTURES)
def test_every_architecture_is_loaded_and_quantised_as_planned(kind: str, tmp_path: Path) -> None:
    """Cover experts, which checkpoints hold one by one and models in one tensor."""
    saved = AutoModelForCausalLM.from_config(small_config(kind))
    saved.save_pretrained(tmp_path)
    config = read_config(tmp_path)
    loaded = load_network(tmp_path, config, CPU, torch.float32, "none")
    weights = dict(loaded.named_parameters())
    assert weights.keys() == dict(saved.named_parameters()).keys()
    assert all(torch.equal(weights[name], weight) for name, weight in saved.named_parameters())
    planned = model_sizes(config, torch.float32)
    assert packed_bytes(loaded) == planned.weight_bytes()
    for quantize in ("8bit", "nf4"):
        assert packed_bytes(load_network(tmp_path, config, CPU, torch.float32, quantize)) == planned.weight_bytes(
            quantize
        )


def test_nf4_is_computed_as_asked_on_every_cpu(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check a CPU with AVX-512 BF16, where bitsandbytes would compute in bfloat16, and fail at odd rows."""
    ids = torch.randint(4, 260, (50,), generator=torch.Generator().manual_seed(1))
    logits = []
    for able in (False, True):
        monkeypatch.setattr("bitsandbytes.nn.modules.has_avx512bf16", lambda able=able: able)
        network = load_network(folder, read_config(folder), CPU, torch.float32, "nf4")
        logits.append(network(input_ids=ids[None], use_cache=False).logits[0])
    assert torch.equal(*logits)


def test_loading_leaves_standard_error_alone(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    transformers_logging.enable_progress_bar()  # type: ignore[no-untyped-call]
    load_model(folder, "cpu")
    assert capfd.readouterr().err == ""


def test_quantising_changes_the_weights_and_the_fingerprint(folder: Path) -> None:
    plain, packed = (load_model(folder, "cpu", quantize=quantize) for quantize in ("none", "nf4"))
    assert plain.fingerprint != packed.fingerprint
    source = torch.zeros(8, dtype=torch.int32)
    logits = [
        model.logits(model.forward(torch.arange(10, 18), new_memory(model, make_method("full")), source))
        for model in (plain, packed)
    ]
    error = (logits[0] - logits[1]).norm() / logits[0].norm()
    assert 0.001 < error < 0.5


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"model_type": "nonsense"}, "architecture 'nonsense'"),
        ({"model_type": "qwen2_5_vl", "vision_config": {}}, "pictures .* gemma3, gemma4, gemma4_unified, internvl"),
        ({"architectures": ["LlamaForSequenceClassification"]}, "does not generate text"),
        ({"rope_parameters": {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4}}, "dynamic"),
        ({"quantization_config": {"quant_method": "gptq", "bits": 4}}, "gptqmodel"),
        ({"quantization_config": {"quant_method": "awq", "bits": 4}}, "gptqmodel"),
        ({"quantization_config": {"load_in_8bit": True}}, "accelerate"),
        ({"quantization_config": {"quant_method": "mystery"}}, "mystery"),
        ({"quantization_config": {"quant_method": "gptq"}}, "bits"),
        ({"quantization_config": "awq"}, r"config\.json"),
    ],
)
def test_what_cannot_be_used_is_refused_before_weights_are_read(
    folder: Path, tmp_path: Path, facts: dict[str, object], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    find = importlib.util.find_spec  # users do not have accelerate, which is installed for tests only
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "accelerate" else find(name))
    place = changed(folder, tmp_path / "changed", **facts)
    (place / "model.safetensors").write_bytes(b"never read")
    with pytest.raises(UnsupportedModel, match=words):
        load_model(place, "cpu")


def test_a_model_without_a_chat_template_is_refused_before_weights_are_read(folder: Path, tmp_path: Path) -> None:
    place = tmp_path / "base"
    shutil.copytree(folder, place)
    (place / "chat_template.jinja").unlink()
    (place / "model.safetensors").write_bytes(b"never read")
    with pytest.raises(UnsupportedModel, match="chat template"):
        load_model(place, "cpu")


def test_weights_that_cannot_fit_are_refused_with_what_would(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = model_sizes(read_config(folder), torch.float32)
    place = tmp_path / "large"
    shutil.copytree(folder, place)
    (place / "model.safetensors").write_bytes(b"never read")
    monkeypatch.setattr(loading, "free_bytes", lambda place: sizes.weight_bytes("8bit"))
    with pytest.raises(OutOfMemory, match="--quantize 8bit"):
        load_model(place, "cpu")
    monkeypatch.setattr(loading, "free_bytes", lambda place: 1000)
    with pytest.raises(OutOfMemory, match="smaller model"):
        load_model(place, "cpu", quantize="nf4")


def test_weights_that_were_published_quantised_need_room_before_a_file_is_there(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cover a hub id, whose files are fetched only when it is loaded."""
    place = changed(folder, tmp_path / "codes", quantization_config={"quant_method": "awq", "bits": 4})
    (place / "model.safetensors").unlink()
    assert read_config(place).model_type == "llama"  # planning needs no package
    monkeypatch.setattr("engine.models.quantised.importlib.util.find_spec", lambda name: name)
    with pytest.raises(SettingsError, match="quantised already"):
        load_model(place, "cpu", quantize="nf4")
    monkeypatch.setattr(loading, "free_bytes", lambda place: 1000)
    with pytest.raises(OutOfMemory, match="smaller model"):
        load_model(place, "cpu")


def test_plain_weights_bound_for_another_device_need_room_in_the_host_too(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "large"
    shutil.copytree(folder, place)
    (place / "model.safetensors").write_bytes(b"never read")
    config, other = read_config(place), torch.device("meta")
    monkeypatch.setattr(loading, "free_bytes", lambda device: 1000 if device.type == "cpu" else 1 << 40)
    with pytest.raises(OutOfMemory, match=r"0\.0 GB are free on cpu: --quantize 8bit would fit"):
        load_network(place, config, other, torch.bfloat16, "none")
    for dtype, quantize in ((torch.bfloat16, "nf4"), (config.dtype, "none")):  # packed, or mapped from the file
        with pytest.raises(ModelNotFound, match="damaged"):
            load_network(place, config, other, dtype, quantize)


def test_impossible_ways_of_quantising_are_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SettingsError, match="8bit, nf4"):
        load_model(folder, "cpu", quantize="2bit")
    monkeypatch.setattr(loading.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(SettingsError, match="bitsandbytes"):
        load_model(folder, "cpu", quantize="nf4")


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


def test_a_stamp_tells_what_may_have_made_another_model(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cover a file that was overwritten with the same size and time, one in a subfolder, and another Stockpot."""
    place = changed(folder, tmp_path / "own")
    (place / "below").mkdir()
    weights = shutil.move(place / "model.safetensors", place / "below" / "model.safetensors")
    names = dict.fromkeys(load_file(weights), "below/model.safetensors")
    (place / "model.safetensors.index.json").write_text(json.dumps({"weight_map": names}))
    first = model_stamp(place, "cpu")
    assert first == model_stamp(place, "cpu")
    assert first != model_stamp(place, "cpu", quantize="nf4")
    stat = os.stat(weights)
    with open(weights, "r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(b"?")
    os.utime(weights, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    second = model_stamp(place, "cpu")
    assert first != second
    monkeypatch.setattr(model, "_loaders", lambda: ["another"])
    assert second != model_stamp(place, "cpu")


PEAK = """
import sys
import torch
from engine.models.experts import PackedExperts
from engine.models.configuration import read_config
from engine.models.loading import load_network
from engine.models.placement import dtype_on

def status(name):
    return next(int(line.split()[1]) * 1024 for line in open("/proc/self/status") if line.startswith(name))

def load(folder, quantize):
    return load_network(folder, read_config(folder), torch.device("cpu"), torch.float32, quantize)

small, *folders = sys.argv[1:]
for folder, quantize in [(folder, quantize) for folder in folders for quantize in ("none", "nf4")]:
    load(small, quantize)  # what is imported and made at the first time
    open("/proc/self/clear_refs", "w").write("5")  # the high-water mark begins anew
    before = status("VmRSS:")
    network = load(folder, quantize)
    print(before, status("VmHWM:"), sum(weight.nbytes for weight in network.parameters()))
    del network
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_loading_never_holds_the_model_twice(folder: Path, tmp_path: Path) -> None:
    config = AutoConfig.for_model(
        "llama", vocab_size=4000, hidden_size=512, intermediate_size=2048, num_hidden_layers=6, num_attention_heads=8
    )
    network = AutoModelForCausalLM.from_config(config).to(torch.bfloat16)
    folders = [tmp_path / "plain", tmp_path / "fp8"]
    network.save_pretrained(folders[0], max_shard_size="10MB")
    config.update({"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}})
    config.save_pretrained(folders[1])
    for path in folders[0].glob("*.safetensors"):
        weights = load_file(path)
        coded = {name: weight for name, weight in weights.items() if "_proj." in name}
        weights |= {name: weight.to(torch.float8_e4m3fn) for name, weight in coded.items()}
        weights |= {f"{name}_scale_inv": torch.ones(len(w) // 128, w.shape[1] // 128) for name, w in coded.items()}
        save_file(weights, folders[1] / path.name, metadata={"format": "pt"})
    shutil.copy(folders[0] / "model.safetensors.index.json", folders[1])
    files = [sum(path.stat().st_size for path in each.glob("*.safetensors")) for each in folders]
    assert len(list(folders[1].glob("*.safetensors"))) > 3
    assert files[1] < 0.7 * files[0]
    plain = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "262144"}  # freed memory goes back to the system at once
    command = [sys.executable, "-c", PEAK, str(folder), *map(str, folders)]
    done = subprocess.run(command, cwd=ROOT, env=plain, capture_output=True, text=True, timeout=250)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    for line, mapped in zip(lines, [files[0]] * 2 + [files[1]] * 2, strict=True):
        before, peak, weights = map(int, line.split())
        # Pages of the checkpoint that are mapped count as resident too, though the kernel may drop them; in float32
        # the model has twice the bytes of its files, so that a second copy would be seen.
        assert peak - before < weights + 2 * mapped, done.stdout


@pytest.mark.parametrize(
    ("width", "fast", "dtype"), [(512, True, "bfloat16"), (512, False, "float32"), (192, True, "float32")]
)
def test_a_cpu_computes_in_bfloat16_what_is_wide_where_that_is_fast(
    width: int, fast: bool, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("STOCKPOT_DTYPE", raising=False)
    monkeypatch.setattr(placement, "fast_in_bfloat16", lambda device: fast)
    assert dtype_on(CPU, LlamaConfig(hidden_size=width)) == getattr(torch, dtype)


def test_the_dtype_can_be_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stamps = set()
    for name in ("float32", "bfloat16"):
        monkeypatch.setenv("STOCKPOT_DTYPE", name)
        loaded = load_model(folder, "cpu")
        assert loaded.spec.dtype == loaded.network.lm_head.weight.dtype == getattr(torch, name)
        stamps |= {loaded.stamp, loaded.fingerprint}
    assert len(stamps) == 4
    monkeypatch.setenv("STOCKPOT_DTYPE", "float8")
    with pytest.raises(SettingsError, match="STOCKPOT_DTYPE is one of auto, float32, bfloat16, not 'float8'"):
        load_model(folder, "cpu")
