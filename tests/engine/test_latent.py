"""Multi-head latent attention: the matrix of methods and promises, and tests of its own."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from engine import Conversation, Method, Reader, load_model
from engine.errors import UnsupportedModel
from engine.model import Model
from engine.models.architectures import REFUSED, check_kind
from engine.models.configuration import read_config
from engine.models.sizes import model_sizes, sizes_of
from engine.parts.footprint import ReadingTask
from engine.planning.flops import operations
from engine.planning.plan import Machine
from engine.planning.planner import Planner
from engine.records import DEVICE, HOST
from engine.trained import beacons, retaining
from engine.trained.beacons import Beacons
from engine.trained.retaining import RetainingHeads
from engine.trained.sidecar_weights import save_weights
from kernels import choice
from tests.engine.architectures import small_config
from tests.engine.checkpoints import through
from tests.engine.conftest import byte_tokenizer
from tests.engine.matrix import CLOSE, CODES_CLOSE, QUESTION, TIGHT
from tests.engine.plans import GB, peak_of_pass, with_store
from tests.engine.reading import answer, finish, next_logits, read, reopened, resumed, with_budget

KIND = "glm4_moe_lite"
NAMES = [
    "full",
    "full-int8",
    "streaming",
    "exact",
    "exact-int4-sketched",
    "infllm-int4",
    "infllm-cached",
    "infinitehip",
]
NAMES += ["recall", "infinipot-both", "infinipot-int8-heads", "locret", "beacon"]
every_method = pytest.mark.parametrize("name", NAMES)


def network(kind: str = KIND) -> PreTrainedModel:
    torch.manual_seed(0)
    config = small_config(kind)
    config.initializer_range = 0.1
    made: PreTrainedModel = AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    return made


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    """Make a random model with retaining heads and beacons beside it."""
    folder = tmp_path_factory.mktemp(KIND)
    model = Model(network(), byte_tokenizer(), KIND, "-", folder)
    save_weights(RetainingHeads(model.spec, [24] * len(model.spec.layers)), folder / retaining.FILE, model.spec, {})
    save_weights(Beacons(model.spec), folder / beacons.FILE, model.spec, {})
    return model


def close(method: Method) -> dict[str, float]:
    return CODES_CLOSE.get(getattr(method, "store", ""), CLOSE)


@pytest.mark.parametrize("name", [name for name in NAMES if "int" not in name])
def test_unlimited_budget_equals_transformers(model: Model, name: str, ids: Tensor) -> None:
    with torch.no_grad():
        everything = torch.cat([torch.tensor(model.chat.prefix), ids, QUESTION])
        expected = network()(input_ids=everything[None]).logits[0, -len(QUESTION) :]
    method = with_budget(TIGHT[name], None)
    found = next_logits(model, method, read(model, method, ids).memory, QUESTION)
    torch.testing.assert_close(found, expected, **CLOSE)


@every_method
def test_save_load_and_continue_equals_uninterrupted(model: Model, name: str, ids: Tensor) -> None:
    method = TIGHT[name]
    whole = read(model, method, ids)
    context = finish(resumed(Reader(model, method, ids, 48), 3, 64))
    expected = next_logits(model, method, whole.memory, QUESTION)
    torch.testing.assert_close(next_logits(model, method, context.memory, QUESTION), expected, **close(method))
    conversation = Conversation(whole)
    answer(conversation, "question number one?")
    again = reopened(whole, conversation)
    assert answer(again, "And then?") == answer(conversation, "And then?")


@every_method
def test_passes_of_other_sizes_hold_and_say_the_same(model: Model, name: str, ids: Tensor) -> None:
    """Check that the bytes equal the plan too."""
    method = TIGHT[name]
    footprint = method.plan(model.spec, ReadingTask(len(ids), len(model.chat.prefix), 64, model.turn_length))
    context, other = read(model, method, ids), read(model, method, ids, 111)
    assert context.usage().bytes == footprint.usage.bytes
    expected = next_logits(model, method, context.memory, QUESTION)
    torch.testing.assert_close(next_logits(model, method, other.memory, QUESTION, 111), expected, **close(method))
    conversation = Conversation(context)
    answer(conversation, "question number one?")
    assert conversation.usage().bytes[DEVICE] <= footprint.usage.bytes[DEVICE] + footprint.conversation_bytes


@pytest.mark.parametrize("name", ["full", "streaming", "exact-sketched", "infinitehip", "recall"])
def test_recorded_passes_say_what_others_say(model: Model, name: str, ids: Tensor, replayed: list[str]) -> None:
    context = read(model, TIGHT[name], ids)
    recorded, plain = Conversation(context), Conversation(context)
    said = answer(recorded, "What is it?", 24)
    assert replayed
    with model.recorder.stopped():
        assert answer(plain, "What is it?", 24) == said


def test_kernels_answer_as_the_references_do(model: Model, ids: Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("triton")
    memory = read(model, TIGHT["full"], ids).memory
    expected = next_logits(model, TIGHT["full"], memory, QUESTION[:2])
    monkeypatch.setattr(choice, "implementation", lambda: "triton")
    found = next_logits(model, TIGHT["full"], memory, QUESTION[:2])
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-3)


def test_a_token_leaves_one_vector(model: Model, ids: Tensor) -> None:
    """Check that shared key and latent are kept once, in host memory and on disk."""
    config, count = model.network.config, len(model.spec.layers)
    assert model.spec.entry_width == count * (config.qk_rope_head_dim + config.kv_lora_rank)
    context = read(model, TIGHT["exact"], ids)
    usage = context.usage()
    assert usage.bytes[HOST] == (len(ids) + len(model.chat.prefix)) * (model.spec.entry_width * 4 + 4)
    parts, _ = context.state()
    saved = sum(each.nbytes for name, part in parts.items() if "host" in name for each in part.tensors.values())
    assert saved == usage.entries[HOST] * (model.spec.entry_width * 4 + 4)


@pytest.mark.parametrize(("kind", "quantize"), [(KIND, "none"), ("minicpm3", "nf4"), ("deepseek_v2", "8bit")])
def test_what_expands_latents_is_never_quantised(kind: str, quantize: str, tmp_path: Path) -> None:
    """Check that plans count the bytes and the products of `kv_b_proj`."""
    own = network(kind)
    own.save_pretrained(tmp_path)
    byte_tokenizer().save_pretrained(tmp_path)
    model, planned = load_model(tmp_path, "cpu", quantize=quantize), model_sizes(read_config(tmp_path), torch.float32)
    layers = [module for name, module in model.network.named_modules() if name.endswith("kv_b_proj")]
    assert len(layers) == len(model.spec.layers)
    assert all(type(layer) is torch.nn.Linear for layer in layers)
    kept = sum(layer.weight.numel() for layer in layers)
    rest = sum(sizes[0] * sizes[1] for sizes in planned.linear)
    assert planned.multiplied - kept == sizes_of(own, model.spec).multiplied - kept >= 0
    assert planned.active >= rest + kept
    attention = operations(planned, 1, 100).attention
    assert attention == 4 * 100 * 4 * (8 + 32) * len(layers)  # 4 heads


def test_a_checkpoint_is_loaded_as_it_is_published(tmp_path: Path) -> None:
    """Cover the names of GLM 4.7 Flash: single experts, and one more layer for multi-token prediction."""
    own = network()
    own.save_pretrained(tmp_path)
    byte_tokenizer().save_pretrained(tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    attention = ["q_a_proj", "q_a_layernorm", "q_b_proj", "kv_a_proj_with_mqa", "kv_a_layernorm", "kv_b_proj", "o_proj"]
    routed = ["gate.weight", "gate.e_score_correction_bias", "experts.3.gate_proj.weight", "experts.3.up_proj.weight"]
    routed += ["experts.3.down_proj.weight", "shared_experts.gate_proj.weight"]
    names = {f"model.layers.1.self_attn.{name}.weight" for name in attention}
    names |= {f"model.layers.1.mlp.{name}" for name in routed}
    assert names <= weights.keys()
    count = own.config.num_hidden_layers
    more = {name.replace(".1.", f".{count}.", 1): weights[name].clone() for name in names}
    more[f"model.layers.{count}.eh_proj.weight"] = torch.zeros(64, 128)
    save_file(weights | more, tmp_path / "model.safetensors", metadata={"format": "pt"})
    ids = torch.randint(4, 260, (150,), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        expected = own(input_ids=ids[None]).logits[0]
    torch.testing.assert_close(through(load_model(tmp_path, "cpu"), ids, [149, 1]), expected, atol=5e-5, rtol=1e-4)


@pytest.mark.parametrize("kind", sorted(REFUSED))
def test_what_cannot_be_used_is_refused_with_its_reason(kind: str) -> None:
    with pytest.raises(UnsupportedModel, match=f"'{kind}' cannot be used: {REFUSED[kind]}"):
        check_kind(kind)


def test_one_that_was_published_quantised_is_refused(tmp_path: Path) -> None:
    """Check the refusal: `kv_b_proj` may be quantised there."""
    config = small_config("youtu")
    config.quantization_config = {"quant_method": "gptq", "bits": 4}
    config.save_pretrained(tmp_path)
    with pytest.raises(UnsupportedModel, match=r"'gptq', which is not supported of 'youtu': .*--quantize nf4"):
        read_config(tmp_path)


@pytest.mark.parametrize("name", ["full", "full:int8", "exact"])
def test_the_workspace_is_not_less_than_a_pass_takes(name: str) -> None:
    """Cover queries, which are far wider than the vectors that they come from."""
    config = small_config("youtu")
    config.update({"num_attention_heads": 8, "num_key_value_heads": 8, "kv_lora_rank": 64})
    model, method = Model(AutoModelForCausalLM.from_config(config), byte_tokenizer(), "wide", "-"), with_store(name)
    ids = torch.randint(4, 260, (3 * 256 - len(model.chat.prefix),))
    plan = Planner.of_loaded(model, Machine(64 * GB, 0, True)).plan(method, len(ids))
    peak = peak_of_pass(model, method, ids, plan.chunk)
    assert peak <= plan.workspace_bytes + plan.footprint.condense_bytes
    assert plan.workspace_bytes <= 2 * peak


def test_what_glm_flash_takes() -> None:
    """Check the published figures, by the default configuration of transformers."""
    sizes = model_sizes(AutoConfig.for_model(KIND), torch.bfloat16)
    assert sizes.spec.entry_bytes == 47 * 576 * 2
    assert 29e9 < sizes.parameters < 30.5e9
    assert 15e9 < sizes.weight_bytes("nf4") < 19e9
