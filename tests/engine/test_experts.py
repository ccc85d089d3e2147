"""Mixtures with quantised experts: their outputs, their loading and their bytes."""

from __future__ import annotations

import copy
import os
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import torch
from bitsandbytes.functional import dequantize_4bit, quantize_4bit
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensorMode
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

from engine import ModelNotFound, OutOfMemory, SettingsError, UnsupportedModel, load_model, make_method
from engine.decode import recorder
from engine.loops.conversation import Conversation
from engine.models.architectures import ARCHITECTURES
from engine.models.configuration import read_config
from engine.models.expert_packing import MXFP4, NF4, PACKINGS, EightBit
from engine.models.experts import BIAS, PackedExperts, has_experts, stacks_of
from engine.models.loading import load_network
from engine.models.sizes import model_sizes, sizes_of
from tests.engine.architectures import kinds_with, small_config
from tests.engine.checkpoints import saved, through
from tests.engine.conftest import byte_tokenizer
from tests.engine.reading import answer, read

CPU = torch.device("cpu")
ROOT = Path(__file__).resolve().parents[2]
QUANTIZATIONS = sorted(PACKINGS)
# Each architecture once, and each packing with stacks that have biases, or no gate, or a dense layer beside them. What
# an architecture calls its stacks and how it packs them do not depend on one another.
PAIRED = [(kind, "nf4") for kind in kinds_with("experts")]
PAIRED += [(kind, "8bit") for kind in ("qwen3_moe", "gpt_oss", "nemotron_h", "gemma4_text", "deepseek_v3")]
kinds_and_packings = pytest.mark.parametrize(("kind", "quantize"), PAIRED)


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def packed_experts(network: nn.Module) -> list[PackedExperts]:
    return [each for each in network.modules() if isinstance(each, PackedExperts)]


def unpacked(network: PreTrainedModel) -> PreTrainedModel:
    """Return the same network with transformers' own experts, holding the decoded weights."""
    other = copy.deepcopy(network)
    plain = AutoModelForCausalLM.from_config(other.config)
    for name, module in plain.named_modules():
        if has_experts(module):
            packed = other.get_submodule(name)
            assert isinstance(packed, PackedExperts)
            for stack in packed.stacks:
                everything = packed.unpacked(stack, torch.arange(packed.shape(stack)[0]), torch.float32)
                module.get_parameter(stack).data = packed.turned(everything)
                if module.has_bias:
                    module.get_parameter(stack + BIAS).data = packed.get_parameter(stack + BIAS)
            other.set_submodule(name, module)
    assert not packed_experts(other)
    return other


@pytest.mark.parametrize("shape", [(64, 64), (7, 64), (5, 13), (96, 320)])
def test_nf4_is_what_bitsandbytes_makes_of_a_layer(shape: tuple[int, int]) -> None:
    packing, weights = NF4(*shape), random(3, *shape)
    stack = torch.stack([packing.pack(weight) for weight in weights])
    assert stack.shape == (3, packing.nbytes)
    for dtype in (torch.float32, torch.bfloat16):
        for number, weight in enumerate(weights.to(dtype)):
            stack[number] = packing.pack(weight)
            filled = torch.zeros(-(-weight.numel() // 64) * 64, dtype=dtype)
            filled[: weight.numel()] = weight.reshape(-1)
            codes, state = quantize_4bit(filled, compress_statistics=True, quant_type="nf4")
            expected = dequantize_4bit(codes, state).reshape(-1)[: weight.numel()].view(shape)
            assert torch.equal(packing.unpack([stack], number, dtype), expected)
        some = torch.tensor([2, 0, 2])
        together = packing.unpack([stack], some, dtype)
        assert torch.equal(together, torch.stack([packing.unpack([stack], int(each), dtype) for each in some]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_eight_bits_are_off_by_half_a_step_at_most(dtype: torch.dtype) -> None:
    packing, weight = EightBit(6, 100), random(6, 100).to(dtype)
    weight[2] = 0
    weight[3] *= 1e-3  # a step of 2e-5: float16 keeps nine bits of it
    stack = packing.pack(weight)[None]
    step = weight.float().abs().amax(1, keepdim=True) / 127
    rounding = weight.float().abs() * 1.5 * torch.finfo(dtype).eps
    assert bool(((packing.unpack([stack], 0, dtype) - weight).float().abs() <= 0.501 * step + rounding).all())
    assert torch.equal(packing.unpack([stack], torch.tensor([0, 0]), dtype)[1], packing.unpack([stack], 0, dtype))


def test_every_packing_is_paired() -> None:
    assert {quantize for _, quantize in PAIRED} == set(QUANTIZATIONS)


@kinds_and_packings
@pytest.mark.usefixtures("as_on_a_gpu")
def test_a_packed_mixture_says_what_it_says_unpacked(kind: str, quantize: str, tmp_path: Path) -> None:
    model = load_model(saved(kind, tmp_path), "cpu", quantize=quantize)
    plain = AutoModelForCausalLM.from_config(model.network.config)
    assert len(packed_experts(model.network)) == sum(has_experts(module) for module in plain.modules()) > 2
    reference = unpacked(load_network(tmp_path, read_config(tmp_path), CPU, torch.float32, quantize))
    reference.set_attn_implementation("eager")
    reference.set_experts_implementation("eager")
    ids = torch.randint(4, 260, (150,), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        expected = reference(input_ids=ids[None], use_cache=False).logits[0]
    assert expected.std() > 1e-3
    # LLM.int8() looks for outliers in all tokens of a pass together: its linear layers depend a little on the passes.
    # It rounds their inputs too, and some fall on the other side of a half.
    passes, tolerance = (
        ([[150]], 3e-3) if quantize == "8bit" else ([[150], [37, 37, 37, 37, 2], [140] + [1] * 10], 1e-5)
    )
    for sizes in passes:
        logits = through(model, ids, sizes)
        assert float((logits - expected).norm() / expected.norm()) < tolerance, sizes


@pytest.mark.parametrize("quantize", QUANTIZATIONS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_tokens_together_get_what_each_gets_alone(dtype: torch.dtype, quantize: str) -> None:
    experts = filled("mixtral", quantize)
    x, scores = random(9, 64).to(dtype), random(9, 4)
    weights, chosen = scores.softmax(-1).topk(2)
    together = experts(x, chosen, weights)
    for way in (experts, experts.together):
        alone = torch.cat([way(x[i : i + 1], chosen[i : i + 1], weights[i : i + 1]) for i in range(9)])
        assert alone.dtype == dtype
        torch.testing.assert_close(together, alone)


def filled(kind: str, quantize: str) -> PackedExperts:
    """Make the experts of one layer with random weights."""
    if quantize == "mxfp4":
        with TemporaryDirectory() as folder:
            in_mxfp4(Path(folder))
            return packed_experts(load_network(folder, read_config(folder), CPU, torch.float32, "none"))[0]
    with torch.device("meta"):
        network = AutoModelForCausalLM.from_config(small_config(kind))
    experts = PackedExperts(next(each for each in network.modules() if has_experts(each)), PACKINGS[quantize])
    for seed, name in enumerate(experts.stacks):
        setattr(experts, name, experts.pack(name, random(*experts.shape(name), seed=seed) / 8))
    return experts


@pytest.mark.parametrize("quantize", [*QUANTIZATIONS, "mxfp4"])
def test_a_pass_of_one_token_reads_nothing_back_from_the_device(quantize: str) -> None:
    """Check that it can be recorded: meta tensors stand for those of a GPU, and a longer pass does read."""
    experts = filled("qwen3_moe", quantize)
    experts.requires_grad_(False)
    experts.together(random(1, 64), torch.tensor([[1, 3]]), torch.ones(1, 2))  # tables are made at the first call
    with FakeTensorMode(allow_non_fake_inputs=True), torch.no_grad():
        for tokens in (1, 2):
            x, chosen = torch.empty(tokens, 64), torch.empty(tokens, 2, dtype=torch.int64)
            if tokens == 1:
                assert experts.together(x, chosen, torch.empty(1, 2)).shape == (1, 64)
            else:
                with pytest.raises(DataDependentOutputException):
                    experts(x, chosen, torch.empty(tokens, 2))


@pytest.fixture
def as_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unpack the experts of one token together, as on a GPU."""
    monkeypatch.setattr("engine.models.experts.together_on", lambda device: True)


@pytest.mark.parametrize("tokens", [1, 9])
@pytest.mark.parametrize(("kind", "quantize"), [("olmoe", "nf4"), ("gpt_oss", "mxfp4")])
@pytest.mark.usefixtures("as_on_a_gpu")
def test_gradients_go_through_what_is_unpacked_again(kind: str, quantize: str, tokens: int) -> None:
    """Check that training beacons through such a model keeps no unpacked weights for the gradient."""
    experts = filled(kind, quantize)
    biases = [dict(experts.named_parameters()).get(name + BIAS, torch.zeros(4, 1)) for name in experts.stacks]
    plain = [experts.unpacked(name, torch.arange(4), torch.float32) for name in experts.stacks]
    x = random(tokens, 64).requires_grad_()
    weights, chosen = random(tokens, 4).softmax(-1).topk(2)
    kept: list[int] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda each: kept.append(each.numel()) or each, lambda each: each):
        ours = experts(x, chosen, weights)
    assert max(kept, default=0) < plain[0][0].numel()
    expected = torch.zeros_like(x)
    for token in range(tokens):
        for place, expert in enumerate(chosen[token].tolist()):
            inner = experts.inner(plain[0][expert] @ x[token] + biases[0][expert])
            made = weights[token, place] * (plain[1][expert] @ inner + biases[1][expert])
            expected = expected.index_add(0, torch.tensor([token]), made[None])
    torch.testing.assert_close(ours, expected)
    gradients = [torch.autograd.grad(each.square().sum(), x)[0] for each in (ours, expected)]
    torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-4)


@pytest.mark.usefixtures("as_on_a_gpu")
def test_recorded_passes_say_what_others_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder, "choice", lambda: "static")
    model = load_model(saved("qwen3_moe", tmp_path), "cpu", quantize="nf4")
    context = read(model, make_method("full"), torch.arange(4, 204))
    recorded, plain = Conversation(context), Conversation(context)
    said = answer(recorded, "What is it?", 40)
    assert recorded.memory.recordings
    with model.recorder.stopped():
        assert answer(plain, "What is it?", 40) == said
    assert not plain.memory.recordings


@kinds_and_packings
def test_checkpoints_have_their_experts_one_by_one_or_in_stacks(kind: str, quantize: str, tmp_path: Path) -> None:
    saved(kind, tmp_path / "each")
    config = read_config(tmp_path / "each")
    plain = load_network(tmp_path / "each", config, CPU, torch.float32, "none")
    (tmp_path / "stacks").mkdir()
    config.save_pretrained(tmp_path / "stacks")
    stacks = {name: weight.clone() for name, weight in plain.state_dict().items()}
    save_file(stacks, tmp_path / "stacks" / "model.safetensors", metadata={"format": "pt"})
    networks = [load_network(tmp_path / each, config, CPU, torch.float32, quantize) for each in ("each", "stacks")]
    layers = [packed_experts(each) for each in networks]
    assert layers[0]
    for one, other in zip(*layers, strict=True):
        assert all(torch.equal(one.get_buffer(name), other.get_buffer(name)) for name in one.stacks)
    owned = [module for module in plain.modules() if has_experts(module)]
    for own, packed in zip(owned, layers[0], strict=True):
        for name in packed.stacks:
            for number, weight in enumerate(packed.turned(own.get_parameter(name))):
                expected = PACKINGS[quantize](*packed.shape(name)[1:]).pack(weight)
                assert torch.equal(packed.get_buffer(name)[number], expected)


@kinds_and_packings
def test_packed_experts_take_the_planned_bytes(kind: str, quantize: str, tmp_path: Path) -> None:
    """Cover experts that are no whole number of blocks."""
    config = read_config(saved(kind, tmp_path, moe_intermediate_size=33, intermediate_size=45))
    network = load_network(tmp_path, config, CPU, torch.float32, quantize)
    held = sum(each.get_buffer(name).nbytes for each in packed_experts(network) for name in each.stacks)
    planned = model_sizes(config, torch.float32)
    assert held == planned.expert_bytes(quantize)
    assert held < 0.4 * planned.expert_bytes("none")
    model = load_model(tmp_path, "cpu", quantize=quantize)
    assert sizes_of(model.network, planned.spec) == planned


def test_what_chooses_among_experts_stays_as_it_is(tmp_path: Path) -> None:
    """Check routers: they are small, and a rounded one would choose wrong experts."""
    config = read_config(saved("qwen3_moe", tmp_path))
    plain, packed = (load_network(tmp_path, config, CPU, torch.float32, each) for each in ("none", "nf4"))
    name = "model.layers.1.mlp.gate.weight"
    assert torch.equal(plain.get_parameter(name), packed.get_parameter(name))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("lost", r"lack model\.layers\.1\.mlp\.experts\.down_proj"),
        ("layer", r"lack model\.layers\.1\.mlp\.experts\.down_proj and 1 other tensor"),
        ("shape", r"lack model\.layers\.1\.mlp\.experts\.down_proj"),
    ],
)
def test_experts_that_are_not_all_there_are_refused(change: str, words: str, tmp_path: Path) -> None:
    saved("qwen3_moe", tmp_path)
    weights = {name: weight for file in tmp_path.glob("*.safetensors") for name, weight in load_file(file).items()}
    layer = "model.layers.1.mlp.experts."
    if change == "lost":
        del weights[f"{layer}2.down_proj.weight"]
    elif change == "layer":
        weights = {name: weight for name, weight in weights.items() if not name.startswith(layer)}
    else:
        weights |= {f"{layer}{i}.down_proj.weight": torch.zeros(64, 30) for i in range(4)}
    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelNotFound, match=words):
        load_model(tmp_path, "cpu", quantize="nf4")


def test_a_layer_needs_room_while_it_is_packed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    planned = model_sizes(read_config(saved("qwen3_moe", tmp_path)), torch.float32)
    needed = planned.weight_bytes("nf4") + 2 * 4 * (4 * 64 * 64)
    for free in (needed - 1, needed):
        monkeypatch.setattr("engine.models.loading.free_bytes", lambda device, free=free: free)
        with pytest.raises(OutOfMemory, match="The weights of") if free < needed else nullcontext():
            load_model(tmp_path, "cpu", quantize="nf4")


def in_mxfp4(folder: Path) -> PreTrainedModel:
    """Make a random gpt-oss in MXFP4 with its tokenizer, otherwise float32, and the same network with plain experts."""
    config = small_config("gpt_oss")
    config.update({"initializer_range": 0.1})
    torch.manual_seed(0)
    network = AutoModelForCausalLM.from_config(config).eval()
    for each in network.parameters():
        if each.dim() == 1 or each.shape[1:] in ((64,), (192,)):  # norms, sinks, biases
            nn.init.normal_(each, mean=float(each.detach().mean()), std=0.1)
    weights = {}
    for name, module in network.named_modules():
        if not has_experts(module):
            continue
        for stack in stacks_of(module):
            count, columns, rows = module.get_parameter(stack).shape
            codes = torch.randint(0, 256, (count, rows, columns // 32, 16), dtype=torch.uint8)
            scales = torch.randint(120, 125, codes.shape[:3], dtype=torch.uint8)
            weights |= {f"{name}.{stack}_blocks": codes, f"{name}.{stack}_scales": scales}
            module.get_parameter(stack).data = convert_moe_packed_tensors(codes, scales, dtype=torch.float32)
    stacks = (".experts.gate_up_proj", ".experts.down_proj")
    weights |= {name: each for name, each in network.state_dict().items() if not name.endswith(stacks)}
    config.update({"quantization_config": {"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]}})
    config.architectures = ["GptOssForCausalLM"]
    config.save_pretrained(folder)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    byte_tokenizer().save_pretrained(folder)
    del network.config.quantization_config
    return network


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_mxfp4_is_what_transformers_unpacks(dtype: torch.dtype) -> None:
    packing = MXFP4(6, 96)
    assert packing.shapes == {"_blocks": (6, 3, 16), "_scales": (6, 3)}
    blocks = torch.randint(0, 256, (3, 6, 3, 16), dtype=torch.uint8)
    scales = torch.randint(*((110, 130) if dtype == torch.float16 else (0, 255)), (3, 6, 3), dtype=torch.uint8)
    expected = convert_moe_packed_tensors(blocks, scales, dtype=dtype).transpose(1, 2)
    for number in range(3):
        assert torch.equal(packing.unpack([blocks, scales], number, dtype), expected[number])
    some = torch.tensor([2, 0, 2])
    assert torch.equal(packing.unpack([blocks, scales], some, dtype), expected[some])


@pytest.mark.usefixtures("as_on_a_gpu")
def test_a_mixture_that_was_published_in_mxfp4_stays_in_it(tmp_path: Path) -> None:
    reference = in_mxfp4(tmp_path)
    model = load_model(tmp_path, "cpu")
    experts = packed_experts(model.network)
    assert len(experts) == 4
    config = read_config(tmp_path)
    planned = model_sizes(config, torch.float32)
    parts = [part for each in experts for name in each.stacks for part in each.stack(name)]
    assert sum(part.nbytes for part in parts) == planned.expert_bytes("none")
    assert sum(part.nbytes for part in (*model.network.parameters(), *parts)) == planned.weight_bytes("none")
    assert sizes_of(model.network, planned.spec) == planned
    assert planned.published is not None
    assert planned.quantizations == ("none",)
    reference.set_attn_implementation("eager")
    reference.set_experts_implementation("eager")
    ids = torch.randint(4, 260, (150,), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        expected = reference(input_ids=ids[None], use_cache=False).logits[0]
    for sizes in ([150], [37, 37, 37, 37, 2], [100] + [1] * 50):
        assert float((through(model, ids, sizes) - expected).norm() / expected.norm()) < 1e-5, sizes


def test_what_is_in_mxfp4_is_not_quantised_again(tmp_path: Path) -> None:
    in_mxfp4(tmp_path)
    with pytest.raises(SettingsError, match="quantised already"):
        load_model(tmp_path, "cpu", quantize="nf4")


@pytest.mark.parametrize(("end", "words"), [("_scales", "down_proj_scales"), ("_bias", "down_proj_bias")])
def test_experts_in_mxfp4_that_are_not_all_there_are_refused(end: str, words: str, tmp_path: Path) -> None:
    in_mxfp4(tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    del weights[f"model.layers.1.mlp.experts.down_proj{end}"]
    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelNotFound, match=rf"lack model\.layers\.1\.mlp\.experts\.{words}"):
        load_model(tmp_path, "cpu")


@pytest.mark.parametrize(
    ("kind", "method"),
    [
        *(("qwen3_moe", method) for method in ("gptq", "awq", "bitsandbytes", "mxfp4")),
        *(("gpt_oss", method) for method in ("gptq", "awq", "bitsandbytes")),
        ("llama", "mxfp4"),
    ],
)
def test_ways_of_publishing_that_do_not_go_with_an_architecture_are_refused(
    kind: str, method: str, tmp_path: Path
) -> None:
    """Regression: experts were counted as bfloat16, and could not be loaded."""
    config = small_config(kind)
    config.update({"quantization_config": {"quant_method": method, "bits": 4, "load_in_4bit": True}})
    config.save_pretrained(tmp_path)
    with pytest.raises(UnsupportedModel, match=f"'{method}', which is not supported of '{kind}': .*--quantize nf4"):
        read_config(tmp_path)


def test_every_mixture_is_known_as_one() -> None:
    for kind, row in ARCHITECTURES.items():
        assert bool(model_sizes(small_config(kind), torch.float32).experts) == row.experts, kind


PEAK = """
import sys
import torch
from engine.models.experts import PackedExperts
from engine.models.configuration import read_config
from engine.models.loading import load_network

def status(name):
    return next(int(line.split()[1]) * 1024 for line in open("/proc/self/status") if line.startswith(name))

def load(folder, quantize):
    return load_network(folder, read_config(folder), torch.device("cpu"), torch.float32, quantize)

for quantize in sys.argv[3:]:
    load(sys.argv[2], quantize)  # what is imported and made at the first time
    open("/proc/self/clear_refs", "w").write("5")  # the high-water mark begins anew
    before = status("VmRSS:")
    network = load(sys.argv[1], quantize)
    print(status("VmHWM:") - before)
    del network
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_loading_unpacked_holds_a_layer_at_a_time(tmp_path: Path) -> None:
    sizes: dict[str, Any] = {"num_experts": 16, "num_experts_per_tok": 4, "moe_intermediate_size": 256}
    config = AutoConfig.for_model(
        "qwen3_moe", vocab_size=500, hidden_size=256, num_hidden_layers=16, num_attention_heads=4, **sizes
    )
    AutoModelForCausalLM.from_config(config).to(torch.bfloat16).save_pretrained(tmp_path / "large")
    saved("qwen3_moe", tmp_path / "small")
    files = sum(path.stat().st_size for path in (tmp_path / "large").glob("*.safetensors"))
    planned = model_sizes(config, torch.float32)
    stack = 16 * 512 * 256 * 4  # bytes of a layer's larger stack, in float32
    plain = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "262144"}  # freed memory goes back to the system at once
    command = [sys.executable, "-c", PEAK, str(tmp_path / "large"), str(tmp_path / "small"), *QUANTIZATIONS]
    done = subprocess.run(command, cwd=ROOT, env=plain, capture_output=True, text=True, timeout=250)
    assert done.returncode == 0, done.stderr
    for quantize, taken in zip(QUANTIZATIONS, map(int, done.stdout.split()), strict=True):
        # Mapped pages of the file count as resident, though the kernel may drop them.
        allowed = planned.weight_bytes(quantize) + files + 4 * stack
        assert taken < allowed < 0.7 * (planned.weight_bytes() + files)
