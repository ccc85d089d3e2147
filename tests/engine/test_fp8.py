"""Checkpoints in FP8 equal plain checkpoints with the same numbers."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText, PreTrainedModel
from transformers.integrations.finegrained_fp8 import Fp8Dequantize

from engine import ModelNotFound, OutOfMemory, UnsupportedModel, check_files, load_model
from engine.models import hub, loading
from engine.models.configuration import read_config
from engine.models.fp8 import Block, scaled
from engine.models.loading import load_network
from engine.models.sizes import QUANTIZATIONS, model_sizes
from tests.engine.architectures import SMALL, small_config
from tests.engine.checkpoints import OWN, SEEING, VISION, packed_bytes
from tests.engine.conftest import byte_tokenizer

CPU = torch.device("cpu")
BY_BLOCKS = {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [24, 40]}
WHOLE = {"quant_method": "fp8", "activation_scheme": "static", "weight_block_size": None}  # Ministral 3's


def group(strategy: str, **facts: Any) -> dict[str, Any]:
    """Describe weights that are scaled alike, as compressed tensors do."""
    return {"weights": {"num_bits": 8, "type": "float", "symmetric": True, "strategy": strategy, **facts}}


def compressed(*groups: dict[str, Any]) -> dict[str, Any]:
    named = {f"group_{number}": {"targets": ["Linear"], **each} for number, each in enumerate(groups)}
    return {"quant_method": "compressed-tensors", "format": "float-quantized", "config_groups": named}


BLOCK = (24, 40)  # neither divides a weight of 64 by 64 evenly
LAYOUTS: dict[str, tuple[dict[str, Any], list[Block], str]] = {
    "blocks": (BY_BLOCKS, [BLOCK], "_scale_inv"),
    "whole": (WHOLE, [(None, None)], "_scale_inv"),
    "whole-unsaid": ({"quant_method": "fp8", "activation_scheme": "static"}, [(None, None)], "_scale"),  # AutoFP8's
    "rows": (compressed(group("channel")), [(1, None)], "_scale"),
    "groups": (
        compressed(group("tensor"), group("block", block_structure=list(BLOCK)), {"weights": None}),
        [(None, None), BLOCK],
        "_scale",
    ),
}
Tensors = dict[str, Tensor]


def numbers_of(codes: Tensor, scales: Tensor, block: Block) -> Tensor:
    """Decode codes [R, C] into float32, one by one."""
    high, wide = (each or size for each, size in zip(block, codes.shape, strict=True))
    factors = scales.reshape(math.ceil(len(codes) / high), -1).tolist()
    values = codes.float().tolist()
    exact = [[value * factors[i // high][j // wide] for j, value in enumerate(row)] for i, row in enumerate(values)]
    return torch.tensor(exact, dtype=torch.float64).float()


def in_fp8(network: PreTrainedModel, folder: Path, layout: str, kept: str = "lm_head") -> Path:
    """Save a network as two checkpoints: `fp8`, and `plain` with the decoded numbers in float32.

    kept: linear layers with this in their name stay plain, like embeddings and routers.
    """
    facts, blocks, end = LAYOUTS[layout]
    random = torch.Generator().manual_seed(1)
    network.save_pretrained(folder / "plain", max_shard_size="200KB")
    byte_tokenizer().save_pretrained(folder / "plain")
    shutil.copytree(folder / "plain", folder / "fp8")
    apart: Tensors = {}
    count = 0
    for path in sorted((folder / "plain").glob("*.safetensors")):
        plain, coded = load_file(path), load_file(path)
        for name, weight in load_file(path).items():
            if weight.dim() != 2 or "_proj." not in name or kept in name:
                continue
            block = blocks[count % len(blocks)]
            grid = [math.ceil(size / (each or size)) for size, each in zip(weight.shape, block, strict=True)]
            codes = (torch.randn(weight.shape, generator=random) * 60).to(torch.float8_e4m3fn)
            scales = torch.rand(grid, generator=random) * 2e-3 + 1e-4  # bfloat16 cannot represent these
            apart[name + end] = scales if any(block) else scales.reshape([1] * (count % 2))
            coded[name], plain[name] = codes, numbers_of(codes, scales, block)
            if facts.get("activation_scheme") == "static":
                apart[name.replace(".weight", ".activation_scale")] = torch.tensor(3.0)
            count += 1
        save_file(plain, path, metadata={"format": "pt"})
        save_file(coded, folder / "fp8" / path.name, metadata={"format": "pt"})
    assert count > 20
    # Scales lie in a shard of their own, as some do in large checkpoints.
    save_file(apart, folder / "fp8" / "scales.safetensors", metadata={"format": "pt"})
    index = folder / "fp8" / "model.safetensors.index.json"
    found = json.loads(index.read_text())
    found["weight_map"] |= dict.fromkeys(apart, "scales.safetensors")
    index.write_text(json.dumps(found))
    config = json.loads((folder / "fp8" / "config.json").read_text())
    facts = {**facts, "modules_to_not_convert" if end == "_scale_inv" else "ignore": [kept, "lm_head"]}
    (folder / "fp8" / "config.json").write_text(json.dumps({**config, "quantization_config": facts}))
    return folder


def random_model(kind: str) -> PreTrainedModel:
    torch.manual_seed(0)
    network: PreTrainedModel = AutoModelForCausalLM.from_config(small_config(kind))
    return network


def tensors_of(network: PreTrainedModel) -> Iterator[tuple[str, Tensor]]:
    for name, tensor in network.state_dict().items():
        yield name, tensor.view(torch.uint8) if tensor.dtype == torch.int8 else tensor


@pytest.mark.parametrize(
    ("kind", "layout"),
    [*(("qwen3", each) for each in LAYOUTS), ("qwen3_moe", "blocks"), ("qwen3_moe", "rows"), ("deepseek_v3", "blocks")],
)
def test_a_checkpoint_in_fp8_is_loaded_as_a_plain_one_with_its_numbers(kind: str, layout: str, tmp_path: Path) -> None:
    in_fp8(random_model(kind), tmp_path, layout, kept="layers.2.self_attn")
    config, plain = (read_config(tmp_path / each) for each in ("fp8", "plain"))
    ids = torch.randint(4, 260, (1, 40), generator=torch.Generator().manual_seed(1))
    for quantize in QUANTIZATIONS if layout == "blocks" else ("none", "nf4"):
        found = load_network(tmp_path / "fp8", config, CPU, torch.bfloat16, quantize)
        expected = load_network(tmp_path / "plain", plain, CPU, torch.bfloat16, quantize)
        assert packed_bytes(found) == model_sizes(config, torch.bfloat16).weight_bytes(quantize)
        for (name, one), (_, other) in zip(tensors_of(found), tensors_of(expected), strict=True):
            assert one.dtype == other.dtype
            assert torch.equal(one, other), (quantize, name)
        with torch.no_grad():
            logits = [each(input_ids=ids, use_cache=False).logits for each in (found, expected)]
        assert logits[0].std() > 1e-3
        assert torch.equal(*logits), quantize


def test_a_model_in_fp8_is_planned_as_a_plain_one(tmp_path: Path) -> None:
    in_fp8(random_model("qwen3_moe"), tmp_path, "blocks")
    for dtype in (torch.float32, torch.bfloat16):
        found, plain = (model_sizes(read_config(tmp_path / each), dtype) for each in ("fp8", "plain"))
        assert replace(found, spec=plain.spec) == plain
        assert found.quantizations == QUANTIZATIONS


def test_what_else_lies_beside_the_weights_is_read_as_of_a_plain_one(tmp_path: Path) -> None:
    in_fp8(random_model("llama"), tmp_path, "whole")
    for each in ("fp8", "plain"):
        (tmp_path / each / "generation_config.json").write_text(json.dumps({"eos_token_id": [7, 9]}))
    found, plain = (load_model(tmp_path / each, "cpu", quantize="nf4") for each in ("fp8", "plain"))
    assert {7, 9} < found.stop_ids == plain.stop_ids
    assert found.network.config.name_or_path == str(tmp_path / "fp8")
    assert found.fingerprint != plain.fingerprint  # their configurations differ


@pytest.mark.parametrize("said", ["whole", "part"])
def test_the_part_for_text_of_a_model_for_pictures_may_be_in_fp8(said: str, tmp_path: Path) -> None:
    """Cover Ministral 3. said: the config that describes FP8."""
    torch.manual_seed(0)
    text = {**SMALL, "model_type": "ministral3", "head_dim": 16}
    parts = {"text_config": text, "vision_config": VISION | SEEING["mistral3"]}
    config = AutoConfig.for_model("mistral3", **parts, **OWN["mistral3"])
    in_fp8(AutoModelForImageTextToText.from_config(config), tmp_path, "whole", kept="vision_tower")
    if said == "part":
        path = tmp_path / "fp8" / "config.json"
        facts = json.loads(path.read_text())
        facts["text_config"]["quantization_config"] = facts.pop("quantization_config")
        path.write_text(json.dumps(facts))
    for quantize in ("none", "nf4"):
        found, plain = (load_model(tmp_path / each, "cpu", quantize=quantize).network for each in ("fp8", "plain"))
        for (name, one), (_, other) in zip(tensors_of(found), tensors_of(plain), strict=True):
            assert torch.equal(one, other), name


def test_experts_of_a_layer_may_lie_in_one_tensor(tmp_path: Path) -> None:
    """Cover codes [E, R, C] with scales for each expert."""
    config = small_config("qwen3_moe")
    AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path)
    network = load_network(tmp_path, read_config(tmp_path), CPU, torch.float32, "none")
    weights = {name: weight.clone() for name, weight in network.state_dict().items()}
    stack = "model.layers.1.mlp.experts.down_proj"
    count, rows, columns = weights[stack].shape
    codes = (torch.randn(count, rows, columns) * 60).to(torch.float8_e4m3fn)
    scales = torch.rand(count, math.ceil(rows / 24), math.ceil(columns / 40))
    save_file({**weights, stack: codes, f"{stack}_scale_inv": scales}, tmp_path / "model.safetensors")
    config.update({"quantization_config": BY_BLOCKS})
    config.save_pretrained(tmp_path)
    found = load_network(tmp_path, read_config(tmp_path), CPU, torch.float32, "none").get_parameter(stack)
    assert torch.equal(found, torch.stack([numbers_of(*each, BLOCK) for each in zip(codes, scales, strict=True)]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_numbers_are_those_that_transformers_makes(dtype: torch.dtype) -> None:
    """Cover blocks that divide a weight evenly, whose size transformers infers."""
    codes = (torch.randn(384, 256) * 60).to(torch.float8_e4m3fn)
    theirs = Fp8Dequantize(None)
    for block, grid in (((128, 128), (3, 2)), ((1, None), (384, 1)), ((None, None), ())):
        scales = torch.rand(grid) * 1e-3
        assert torch.equal(scaled(codes, scales, block, dtype), theirs._dequantize_one(codes, scales, dtype))


def test_one_of_the_hub_is_loaded_from_its_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr(hub, "_FORBIDDEN", True)
    kept = tmp_path / "hub" / "models--some--one"
    (kept / "refs").mkdir(parents=True)
    (kept / "refs" / "main").write_text("0" * 40)
    in_fp8(random_model("llama"), tmp_path, "blocks")
    snapshot = kept / "snapshots" / ("0" * 40)
    shutil.copytree(tmp_path / "fp8", snapshot)
    plain = load_model(tmp_path / "plain", "cpu").network
    assert len(list(snapshot.glob("*.safetensors"))) > 2
    for (name, one), (_, other) in zip(
        tensors_of(load_model("some/one", "cpu").network), tensors_of(plain), strict=True
    ):
        assert torch.equal(one, other), name
    (snapshot / "scales.safetensors").unlink()
    with pytest.raises(ModelNotFound, match=r"weights at 'some/one' cannot be loaded: .*scales\.safetensors"):
        load_model("some/one", "cpu")


def test_what_is_in_fp8_goes_through_the_host_to_another_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = small_config("llama")
    config.update({"quantization_config": BY_BLOCKS, "dtype": torch.bfloat16})
    config.save_pretrained(tmp_path)
    monkeypatch.setattr(loading, "free_bytes", lambda device: 1000 if device.type == "cpu" else 1 << 40)
    with pytest.raises(OutOfMemory, match=r"0\.0 GB are free on cpu: --quantize 8bit would fit"):
        load_network(tmp_path, read_config(tmp_path), torch.device("meta"), torch.bfloat16, "none")


NAME = "model.layers.1.mlp.up_proj.weight"
DAMAGED: dict[str, tuple[Callable[[Tensors], Tensors], type[Exception], str]] = {
    "missing": (
        lambda weights: {name: weight for name, weight in weights.items() if name != f"{NAME}_scale_inv"},
        ModelNotFound,
        r"lack the scale of model\.layers\.1\.mlp\.up_proj\.weight, which is in FP8: fetch the checkpoint anew",
    ),
    "shape": (
        lambda weights: {**weights, f"{NAME}_scale_inv": torch.ones(4, 1)},
        ModelNotFound,
        r"has the shape \[4, 1\], and for a weight of \[96, 64\] its config\.json asks for \[4, 2\]: fetch",
    ),
    "whole": (
        lambda weights: {**weights, f"{NAME}_scale_inv": torch.tensor(1.0)},
        ModelNotFound,
        r"has the shape \[\], .* asks for \[4, 2\]: fetch",
    ),
    "exponents": (
        lambda weights: {**weights, f"{NAME}_scale_inv": torch.ones(4, 2, dtype=torch.uint8)},
        UnsupportedModel,
        "up_proj.weight_scale_inv .* is stored as U8, .*: choose a plain checkpoint",
    ),
    "other codes": (
        lambda weights: {**weights, NAME: torch.ones(96, 32, dtype=torch.int8)},
        UnsupportedModel,
        "up_proj.weight .* is stored as I8, .*: choose a checkpoint in bfloat16",
    ),
    "row": (
        lambda weights: {**weights, NAME: torch.ones(64).to(torch.float8_e4m3fn)},
        ModelNotFound,
        r"for a weight of \[64\] its config",
    ),
    "weight": (
        lambda weights: {**weights, NAME: torch.ones(95, 64).to(torch.float8_e4m3fn)},
        ModelNotFound,
        r"up_proj\.weight at .* has the shape \[95, 64\], and its config\.json asks for \[96, 64\]: fetch",
    ),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Save a checkpoint in FP8 in one file."""
    made = in_fp8(random_model("llama"), tmp_path_factory.mktemp("models"), "blocks") / "fp8"
    paths = list(made.glob("*.safetensors"))
    weights = {name: weight for path in paths for name, weight in load_file(path).items()}
    for path in (*paths, made / "model.safetensors.index.json"):
        path.unlink()
    save_file(weights, made / "model.safetensors", metadata={"format": "pt"})
    return made


@pytest.mark.parametrize("case", DAMAGED)
def test_weights_that_do_not_go_with_their_scales_are_refused(case: str, folder: Path, tmp_path: Path) -> None:
    change, kind, words = DAMAGED[case]
    shutil.copytree(folder, tmp_path / "damaged")
    path = tmp_path / "damaged" / "model.safetensors"
    save_file(change(load_file(path)), path, metadata={"format": "pt"})
    with pytest.raises(kind, match=words):
        load_model(tmp_path / "damaged", "cpu")
    if case != "weight":  # that is found only once the layer exists
        with pytest.raises(kind, match=words):
            check_files(tmp_path / "damaged", read_config(tmp_path / "damaged"))


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        (compressed({"weights": {"num_bits": 4, "type": "int", "strategy": "group"}}), "in another format than FP8"),
        (compressed(group("tensor"), group("channel", num_bits=4)), "in another format than FP8"),
        (compressed(group("channel", symmetric=False)), "in another format than FP8"),
        (compressed(group("group")), "in another format than FP8"),
        ({**compressed(group("channel")), "transform_config": {"config_groups": {}}}, "in another format than FP8"),
        (compressed(), "in another format than FP8, .*: choose a plain checkpoint, and --quantize nf4 or 8bit"),
        (compressed({"weights": {}}), "cannot be understood: .*type"),
        ({**BY_BLOCKS, "weight_block_size": [128]}, "cannot be understood: not enough values"),
        ({**BY_BLOCKS, "weight_block_size": [0, 128]}, "cannot be understood: it has blocks of 0 times 128"),
        ({"quant_method": "fbgemm_fp8"}, "'fbgemm_fp8'; Stockpot loads awq, .*, compressed-tensors in FP8, fp8, gptq"),
    ],
)
def test_other_formats_are_refused_before_weights_are_read(facts: dict[str, Any], words: str, tmp_path: Path) -> None:
    config = small_config("llama")
    config.update({"quantization_config": facts})
    config.save_pretrained(tmp_path)
    with pytest.raises(UnsupportedModel, match=words):
        read_config(tmp_path)
