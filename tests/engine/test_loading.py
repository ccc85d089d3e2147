"""Loading: early refusals, weights that are quantised on the way in, and peak memory."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM, LlamaConfig
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
from tests.engine.checkpoints import changed, packed_bytes, save_small

CPU = torch.device("cpu")
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a checkpoint of a random Llama with layers 64 wide, and its tokenizer."""
    return save_small(tmp_path_factory.mktemp("models") / "small")


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
        (
            {"model_type": "qwen2_5_vl", "vision_config": {}},
            "pictures .* gemma3, gemma3n, gemma4, gemma4_unified, internvl",
        ),
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
