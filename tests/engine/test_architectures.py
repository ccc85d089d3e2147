"""Compare every supported architecture with transformers' eager attention: float32, chunks of odd lengths."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForCausalLM, PretrainedConfig

from engine.errors import UnsupportedModel
from engine.memory import Memory
from engine.model import Model
from engine.models.architecture_table import DOCS, renewed
from engine.models.architectures import ARCHITECTURES, check
from engine.models.sizes import sizes_of
from engine.parts.mass import NOT_IN_SOURCE
from engine.parts.slots import SlotStore
from tests.engine.conftest import byte_tokenizer

SMALL = {
    "vocab_size": 260,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
TURNS = ["sliding_attention", "full_attention"] * 2
YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 128}
DELTA = {
    "head_dim": 16,
    "layer_types": ["linear_attention", "full_attention"] * 2,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 16,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
}
SHARED = {
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
    "shared_expert_intermediate_size": 48,
}
LATENT = {
    "num_key_value_heads": 4,
    "q_lora_rank": 24,
    "kv_lora_rank": 32,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 8,
    "v_head_dim": 12,
}
ROUTED = {
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
    "n_shared_experts": 1,
    "first_k_dense_replace": 1,
}
MAMBA = {"mamba_n_heads": 8, "mamba_d_head": 16, "mamba_d_state": 16, "mamba_chunk_size": 32}
EXTRA: dict[str, dict[str, object]] = {
    "mistral": {"sliding_window": 40, "head_dim": 16},
    "ministral": {"sliding_window": 40, "head_dim": 16},
    "ministral3": {
        "head_dim": 16,
        "rope_parameters": {**YARN, "original_max_position_embeddings": 32, "llama_4_scaling_beta": 0.5},
    },
    "qwen2": {"use_sliding_window": True, "sliding_window": 40, "max_window_layers": 2},
    "qwen3": {"head_dim": 16},
    "qwen3_moe": {"head_dim": 16, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32},
    "phi": {"partial_rotary_factor": 0.5},
    "gemma2": {"head_dim": 16, "sliding_window": 40, "query_pre_attn_scalar": 16},
    "gemma3_text": {"head_dim": 16, "sliding_window": 40, "query_pre_attn_scalar": 16, "sliding_window_pattern": 2},
    "gemma4_text": {
        "head_dim": 16,
        "global_head_dim": 32,
        "num_global_key_value_heads": 1,
        "attention_k_eq_v": True,
        "sliding_window": 40,
        "layer_types": TURNS,
        "hidden_size_per_layer_input": 8,
        "vocab_size_per_layer_input": 260,
        "enable_moe_block": True,
        "num_experts": 4,
        "top_k_experts": 2,
        "moe_intermediate_size": 32,
        "final_logit_softcapping": 30.0,
    },
    "gemma4_unified_text": {"head_dim": 16, "global_head_dim": 32, "sliding_window": 40, "layer_types": TURNS},
    "smollm3": {"no_rope_layers": [1, 1, 1, 0]},
    "gpt_oss": {
        "head_dim": 16,
        "sliding_window": 40,
        "layer_types": TURNS,
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
        "rope_parameters": {**YARN, "truncate": False},
    },
    "granite": {"logits_scaling": 2.0, "embedding_multiplier": 3.0, "attention_multiplier": 0.3},
    "granitemoe": {"logits_scaling": 2.0, "num_local_experts": 4, "num_experts_per_tok": 2},
    "olmo": {"clip_qkv": 0.3},
    "olmo3": {
        "sliding_window": 40,
        "layer_types": TURNS,
        "rope_parameters": {
            "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
            "full_attention": YARN,
        },
    },
    "olmoe": {"num_experts": 4, "num_experts_per_tok": 2},
    "mixtral": {"num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 40},
    "qwen2_moe": {
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 32,
        "shared_expert_intermediate_size": 48,
    },
    "gemma": {"head_dim": 32},
    "glm": {"head_dim": 16},
    "glm4": {"head_dim": 16},
    "cohere": {"logit_scale": 0.25, "use_qk_norm": True},
    "cohere2": {"logit_scale": 0.25, "sliding_window": 40, "layer_types": TURNS},
    "exaone4": {"sliding_window": 40, "layer_types": TURNS},
    "ernie4_5": {"head_dim": 16},
    "ernie4_5_moe": {
        "head_dim": 16,
        "moe_num_experts": 4,
        "moe_k": 2,
        "moe_intermediate_size": 32,
        "moe_num_shared_experts": 1,
        "moe_layer_start_index": 1,
    },
    "flex_olmo": {"num_experts": 4, "num_experts_per_tok": 2},
    "glm4_moe": {
        "head_dim": 16,
        "n_routed_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 32,
        "first_k_dense_replace": 1,
        "n_group": 1,
        "topk_group": 1,
    },
    "iquestcoder": {"head_dim": 16},
    "mellum": {
        "head_dim": 16,
        "sliding_window": 40,
        "layer_types": TURNS,
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 32,
        "rope_parameters": {
            "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
            "full_attention": YARN,
        },
    },
    "helium": {"head_dim": 16},
    "vaultgemma": {"head_dim": 16, "sliding_window": 40, "query_pre_attn_scalar": 16},
    "seed_oss": {"head_dim": 32},
    "starcoder2": {"sliding_window": 40},
    "qwen3_next": {**DELTA, **SHARED},
    "qwen3_5_text": DELTA,
    "qwen3_5_moe_text": {**DELTA, **SHARED},
    "olmo_hybrid": {name: value for name, value in DELTA.items() if name != "head_dim"},
    "cwm": {"head_dim": 16, "sliding_window": 40, "layer_types": TURNS},
    "hyperclovax": {"logits_scaling": 0.5, "embedding_multiplier": 3.0, "attention_multiplier": 0.3},
    "lfm2": {"layer_types": ["conv", "full_attention"] * 2},
    "lfm3": {
        "head_dim": 16,
        "sliding_window": 40,
        "layer_types": ["conv", "sliding_attention", "conv", "full_attention"],
    },
    "lfm2_moe": {
        "layer_types": ["conv", "full_attention"] * 2,
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 32,
        "num_dense_layers": 1,
    },
    "granitemoehybrid": {
        **MAMBA,
        "layer_types": ["mamba", "attention"] * 2,
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
        "shared_intermediate_size": 48,
        "logits_scaling": 2.0,
    },
    "falcon_h1": {**MAMBA, "mamba_d_ssm": 128, "lm_head_multiplier": 0.5, "key_multiplier": 0.7},
    "nemotron_h": {
        "layers_block_type": ["mamba", "moe", "attention", "moe", "mlp", "moe", "attention"],
        "head_dim": 16,
        "ssm_state_size": 16,
        "mamba_num_heads": 8,
        "mamba_head_dim": 16,
        "n_groups": 2,
        "n_routed_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 32,
        "chunk_size": 32,
    },
    "bamba": {**MAMBA, "attn_layer_indices": [1, 3]},
    "deepseek_v2": {
        **LATENT,
        **ROUTED,
        "q_lora_rank": None,
        "topk_method": "group_limited_greedy",
        "n_group": 2,
        "topk_group": 1,
        "rope_parameters": {**YARN, "mscale": 0.7, "mscale_all_dim": 0.7},
    },
    "deepseek_v3": {
        **LATENT,
        **ROUTED,
        "n_group": 2,
        "topk_group": 1,
        "rope_parameters": {**YARN, "mscale": 1.0, "mscale_all_dim": 0.5},
    },
    "glm4_moe_lite": {**LATENT, **ROUTED},
    "minicpm3": {**LATENT, "dim_model_base": 16},
    "youtu": {**LATENT, "initializer_range": 0.02},
}


def small_config(kind: str) -> PretrainedConfig:
    return AutoConfig.for_model(kind, **{**SMALL, **EXTRA.get(kind, {})})


def compare(config: PretrainedConfig, kind: str) -> Model:
    """Read 150 tokens in odd passes, the last of one token, and compare with eager attention over all of them.

    Biases, norms and routers get random weights, since a new model has only zeros and ones there.
    """
    torch.manual_seed(0)
    reference = AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    for each in reference.parameters():
        if each.dim() == 1 or not each.any():
            torch.nn.init.normal_(each, mean=float(each.detach().mean()), std=0.1)
    model = Model(copy.deepcopy(reference), byte_tokenizer(), kind, "-")
    ids = torch.randint(4, 260, (150,), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        expected = reference(input_ids=ids[None]).logits[0]
    memory = Memory(model.spec, SlotStore(model.spec))
    hidden = []
    for chunk in ids.split([37, 37, 1, 37, 36, 1, 1]):
        hidden.append(model.forward(chunk, memory, torch.full((len(chunk),), NOT_IN_SOURCE, dtype=torch.int32)))
        memory.end_pass()
    assert expected.std() > 1e-3
    torch.testing.assert_close(model.logits(torch.cat(hidden)), expected, atol=5e-6, rtol=2e-5)
    return model


def test_rows_are_in_the_order_of_the_alphabet_and_in_the_docs() -> None:
    assert list(ARCHITECTURES) == sorted(ARCHITECTURES)
    document = DOCS.read_text(encoding="utf-8")
    assert document == renewed(document), "run python -m engine.models.architecture_table"


@pytest.mark.parametrize("kind", ARCHITECTURES)
def test_matches_eager_attention(kind: str) -> None:
    ropes = [layer.rope for layer in compare(small_config(kind), kind).spec.layers]
    # Layers with the same frequencies share their tables.
    assert len({id(rope) for rope in ropes}) == len({tuple(rope.inv_freq.tolist()) for rope in ropes})


def test_layers_may_share_keys_and_values() -> None:
    """Cover the smaller models of Gemma 4: the last layers take keys and values of an earlier layer of their kind."""
    own = {"num_kv_shared_layers": 2, "use_double_wide_mlp": True, "enable_moe_block": False}
    own |= {"attention_k_eq_v": False, "num_global_key_value_heads": None}
    own |= {"num_hidden_layers": 6, "layer_types": [*TURNS, *TURNS[:2]]}
    config = AutoConfig.for_model("gemma4_text", **{**SMALL, **EXTRA["gemma4_text"], **own})
    layers = compare(config, "gemma4_text").spec.layers
    assert [each.head_size for each in layers] == [16, 32] * 3


def test_a_model_without_sliding_windows_has_rope_in_all_layers() -> None:
    config = AutoConfig.for_model("exaone4", **SMALL, sliding_window=None, layer_types=["full_attention"] * 4)
    assert all(len(layer.rope.inv_freq) for layer in compare(config, "exaone4").spec.layers)


@pytest.mark.parametrize("rope_type", ["linear", "llama3", "yarn"])
def test_matches_eager_attention_with_scaled_rope(rope_type: str) -> None:
    rope = {
        "rope_type": rope_type,
        "rope_theta": 10000.0,
        "factor": 4.0,
        "original_max_position_embeddings": 128,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
    }
    compare(AutoConfig.for_model("llama", **SMALL, rope_parameters=rope), "llama")


def test_longrope_matches_eager_attention_on_a_long_text() -> None:
    """Check that the first, short passes take the frequencies of long texts too."""
    rope = {
        "rope_type": "longrope",
        "rope_theta": 10000.0,
        "original_max_position_embeddings": 64,
        "short_factor": [1.0 + 0.1 * i for i in range(8)],
        "long_factor": [1.0 + 2.0 * i for i in range(8)],
    }
    config = AutoConfig.for_model("phi3", **SMALL, rope_parameters=rope, original_max_position_embeddings=64)
    assert compare(config, "phi3").spec.layers[0].rope.attention_scaling > 1


class Published(nn.Module):
    """A stand-in for a linear layer of gptqmodel: it holds buffers, and is no nn.Linear."""

    def __init__(self, own: nn.Linear) -> None:
        super().__init__()
        self.in_features, self.out_features, self.bias = own.in_features, own.out_features, None
        self.register_buffer("qweight", own.weight.detach())

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.qweight.T


def test_weights_that_were_published_quantised_need_not_be_in_linear_layers() -> None:
    """Regression: no GPTQ or AWQ model could be loaded."""
    torch.manual_seed(0)
    network = AutoModelForCausalLM.from_config(small_config("llama"))
    expected = Model(copy.deepcopy(network), byte_tokenizer(), "llama", "-")
    for name, module in list(network.base_model.named_modules()):
        if isinstance(module, nn.Linear):
            network.base_model.set_submodule(name, Published(module))
    model = Model(network, byte_tokenizer(), "llama", "-")
    assert model.spec.projections == expected.spec.projections
    assert sizes_of(network, model.spec).linear == sizes_of(expected.network, expected.spec).linear
    ids, source = torch.arange(3, 40), torch.arange(37, dtype=torch.int32)
    hidden = [each.forward(ids, Memory(each.spec, SlotStore(each.spec)), source) for each in (model, expected)]
    torch.testing.assert_close(*hidden)


def test_only_those_that_scale_logits_are_scaled() -> None:
    for stray in ({"logit_scale": 0.0625}, {"logit_scale": None}, {"logits_scaling": 8.0}):
        compare(AutoConfig.for_model("llama", **SMALL, **stray), "llama")


def test_only_glm_turns_a_part_of_neighbouring_dimensions() -> None:
    rope = {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5}
    for kind in ("cohere", "ernie4_5", "glm4"):
        compare(AutoConfig.for_model(kind, **{**SMALL, **EXTRA[kind]}, rope_parameters=rope), kind)


def test_windows_that_only_a_mask_knows_are_refused() -> None:
    """Regression: the attention of Qwen's mixtures never hears of these windows, and saw everything."""
    extra = {"use_sliding_window": True, "sliding_window": 40, "max_window_layers": 2}
    config = AutoConfig.for_model("qwen2_moe", **{**SMALL, **EXTRA["qwen2_moe"], **extra})
    with pytest.raises(UnsupportedModel, match=r"'qwen2_moe' with sliding windows as in its config\.json"):
        Model(AutoModelForCausalLM.from_config(config), byte_tokenizer(), "qwen2_moe", "-")


def test_an_unknown_architecture_is_refused_by_name() -> None:
    with pytest.raises(UnsupportedModel, match="granite_swa"):
        check(AutoConfig.for_model("granite_swa"))


def test_a_rope_that_changes_with_length_is_refused_by_name() -> None:
    config = small_config("llama")
    config.rope_parameters = {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 10000.0}
    with pytest.raises(UnsupportedModel, match="'dynamic' is not supported: its frequencies change with the length"):
        check(config)
    config.rope_parameters = {"rope_type": "spiral", "rope_theta": 10000.0}
    with pytest.raises(UnsupportedModel, match="'spiral' is not supported: it has not been shown to match"):
        check(config)


def test_heads_that_cannot_share_keys_evenly_are_refused() -> None:
    """Regression: they were planned, and the first pass would have failed."""
    config = small_config("llama")
    config.num_attention_heads, config.num_key_value_heads = 4, 3
    with pytest.raises(UnsupportedModel, match="4 attention heads share 3 heads of keys and values"):
        check(config)


@pytest.mark.parametrize("window", [0, -1, None])
def test_a_window_of_no_position_is_refused(window: int | None) -> None:
    config = small_config("llama")
    config.__dict__["max_position_embeddings"] = window
    with pytest.raises(UnsupportedModel, match=f"max_position_embeddings: {window}"):
        check(config)
