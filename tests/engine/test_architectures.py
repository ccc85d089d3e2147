"""Compare every supported architecture with transformers' eager attention: float32, chunks of odd lengths."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForCausalLM

from engine.errors import UnsupportedModel
from engine.memory import Memory
from engine.model import Model
from engine.models.architecture_table import DOCS, renewed
from engine.models.architectures import ARCHITECTURES, check
from engine.models.sizes import sizes_of
from engine.parts.slots import SlotStore
from tests.engine.architectures import EXTRA, SMALL, TURNS, compare, small_config
from tests.engine.conftest import byte_tokenizer


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
