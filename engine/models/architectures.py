"""The supported architectures: one row each, with the facts that a model's configuration does not state.

Each is proven in `tests/engine/test_architectures.py`, which compares logits with transformers' own eager attention, in
float32, read in chunks of odd lengths. An architecture without a row is refused by name: a wrong rotation or a missing
mask gives fluent nonsense that nobody notices. To add one, add its row, run that test, and renew the table of
docs/models.md with `python -m engine.models.architecture_table`.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import Any

from transformers import PretrainedConfig

from engine.errors import UnsupportedModel

EXPANSION = "kv_b_proj"  # expands latents to keys and values in models with latent attention


@dataclass(frozen=True)
class GGUF:
    """How llama.cpp writes the models of one architecture."""

    name: str  # its `general.architecture`
    also: str = ""  # another name for the same
    permuted: bool = False  # rows of queries and keys are reordered, so that RoPE pairs neighbours
    norm_offset: float = 0.0  # added to the weights of norms
    interleaved_experts: bool = False  # gate and up projection alternate in transformers, not in the file

    @property
    def names(self) -> tuple[str, ...]:
        """All names of the architecture in files."""
        return (self.name, self.also) if self.also else (self.name,)


@dataclass(frozen=True)
class Architecture:
    """Facts about one architecture."""

    kind: str  # transformers' `model_type`
    models: str  # names of published models
    experts: bool = False  # layers may be mixtures of experts
    recurrent: bool = False  # some layers carry states of a fixed size instead of keys and values, or beside them
    latent: bool = False  # multi-head latent attention (MLA)
    mxfp4: bool = False  # published with its experts in MXFP4
    interleaved: bool | None = False  # RoPE pairs neighbouring dimensions, not halves; None: see `rope_interleave`
    partly_interleaved: bool = False  # only the dimensions of `partial_rotary_factor` are paired
    rope_in_windows_only: bool = False  # where some layers have a sliding window, the others have no RoPE
    rotary: str = "rotary_emb"  # attribute of the base model that holds its rotary embedding
    scales_queries: bool = False  # by their positions
    logit_factor: str = ""  # setting of the configuration that logits are multiplied with
    logit_divisor: str = ""  # setting that logits are divided by
    router: str = ""  # linear layer that chooses experts: quantised, it would choose wrong ones
    vision: tuple[str, ...] = ()  # vision models whose text part has this architecture
    gguf: GGUF | None = None  # None: not read from GGUF files

    @property
    def unquantised(self) -> tuple[str, ...]:
        """Ends of the names of linear layers that no quantisation reaches."""
        return tuple(filter(None, (self.router, EXPANSION if self.latent else "")))

    def interleaved_width(self, config: Any, head_size: int) -> int:
        """Return how many dimensions of a head RoPE pairs with their neighbours, 0 if it pairs halves."""
        if not (config.rope_interleave if self.interleaved is None else self.interleaved):
            return 0
        if self.latent:
            return int(config.qk_rope_head_dim)
        share = config.rope_parameters.get("partial_rotary_factor") if self.partly_interleaved else None
        return int(head_size * float(share or 1))


def _by_kind(*rows: Architecture) -> dict[str, Architecture]:
    return {row.kind: row for row in rows}


ARCHITECTURES = _by_kind(
    Architecture("apertus", "Apertus"),
    Architecture("arcee", "Arcee AFM", gguf=GGUF("arcee", permuted=True)),
    Architecture("bamba", "Bamba", recurrent=True),
    Architecture("cohere", "Command R", interleaved=True, logit_factor="logit_scale", gguf=GGUF("command-r")),
    Architecture(
        "cohere2",
        "Command R7B and A",
        interleaved=True,
        rope_in_windows_only=True,
        logit_factor="logit_scale",
        gguf=GGUF("cohere2"),
    ),
    Architecture("cwm", "Code World Model"),
    Architecture("deepseek_v2", "DeepSeek V2", experts=True, latent=True, interleaved=True),
    Architecture("deepseek_v3", "DeepSeek V3", experts=True, latent=True, interleaved=None, gguf=GGUF("deepseek2")),
    Architecture("ernie4_5", "ERNIE 4.5", interleaved=True, gguf=GGUF("ernie4_5")),
    Architecture("ernie4_5_moe", "ERNIE 4.5", experts=True, interleaved=True),
    Architecture("exaone4", "EXAONE 4", rope_in_windows_only=True),
    Architecture("falcon_h1", "Falcon H1", recurrent=True, logit_factor="lm_head_multiplier", gguf=GGUF("falcon-h1")),
    Architecture("flex_olmo", "FlexOlmo", experts=True),
    Architecture("gemma", "Gemma", gguf=GGUF("gemma", norm_offset=1.0)),
    Architecture("gemma2", "Gemma 2", gguf=GGUF("gemma2", norm_offset=1.0)),
    Architecture("gemma3_text", "Gemma 3", vision=("gemma3",), gguf=GGUF("gemma3", norm_offset=1.0)),
    Architecture("gemma3n_text", "Gemma 3n", vision=("gemma3n",)),
    Architecture("gemma4_text", "Gemma 4", experts=True, router="router.proj", vision=("gemma4",), gguf=GGUF("gemma4")),
    Architecture("gemma4_unified_text", "Gemma 4 of 12B", vision=("gemma4_unified",)),
    Architecture("glm", "GLM 4 of 2024", interleaved=True, partly_interleaved=True),
    Architecture("glm4", "GLM 4 of 2025", interleaved=True, partly_interleaved=True),
    Architecture("glm4_moe", "GLM 4.5 and 4.6", experts=True, gguf=GGUF("glm4moe")),
    Architecture("glm4_moe_lite", "GLM 4.7 Flash", experts=True, latent=True, interleaved=None),
    Architecture("gpt_oss", "gpt-oss", experts=True, mxfp4=True, gguf=GGUF("gpt-oss", interleaved_experts=True)),
    Architecture("granite", "Granite", logit_divisor="logits_scaling", gguf=GGUF("granite", permuted=True)),
    Architecture(
        "granitemoe", "Granite", experts=True, logit_divisor="logits_scaling", gguf=GGUF("granitemoe", permuted=True)
    ),
    Architecture(
        "granitemoehybrid",
        "Granite 4",
        experts=True,
        recurrent=True,
        logit_divisor="logits_scaling",
        gguf=GGUF("granitehybrid", permuted=True),
    ),
    Architecture("helium", "Helium", interleaved=True),
    Architecture("hyperclovax", "HyperCLOVA X SEED", logit_factor="logits_scaling"),
    Architecture("iquestcoder", "IQuest Coder"),
    Architecture("jais2", "Jais 2"),
    Architecture("lfm2", "LFM 2", recurrent=True, gguf=GGUF("lfm2")),
    Architecture("lfm2_moe", "LFM 2", experts=True, recurrent=True, rotary="pos_emb", gguf=GGUF("lfm2moe")),
    Architecture("lfm3", "LFM 3", recurrent=True),
    Architecture("llama", "Llama, and the pocket model", gguf=GGUF("llama", permuted=True)),
    Architecture("mellum", "Mellum 2", experts=True),
    Architecture("minicpm3", "MiniCPM 3", latent=True, logit_divisor="logits_scaling"),
    Architecture("ministral", "Ministral"),
    Architecture(
        "ministral3", "Ministral 3", scales_queries=True, vision=("mistral3",), gguf=GGUF("mistral3", permuted=True)
    ),
    Architecture("mistral", "Mistral", vision=("mistral3",)),
    Architecture("mixtral", "Mixtral", experts=True, gguf=GGUF("llama", permuted=True)),
    Architecture(
        "nemotron_h",
        "Nemotron H, Nano 2 and 3",
        experts=True,
        recurrent=True,
        gguf=GGUF("nemotron_h", also="nemotron_h_moe"),
    ),
    Architecture("olmo", "OLMo", gguf=GGUF("olmo", permuted=True)),
    Architecture("olmo2", "OLMo 2", gguf=GGUF("olmo2")),
    Architecture("olmo3", "OLMo 3"),
    Architecture("olmo_hybrid", "OLMo Hybrid", recurrent=True),
    Architecture("olmoe", "OLMoE", experts=True, gguf=GGUF("olmoe")),
    Architecture("phi", "Phi 1 and 2", gguf=GGUF("phi2")),
    Architecture("phi3", "Phi 3 and 4 mini", gguf=GGUF("phi3")),
    Architecture("qwen2", "Qwen 2 and 2.5", vision=("internvl",), gguf=GGUF("qwen2")),
    Architecture("qwen2_moe", "Qwen 1.5 and 2", experts=True, gguf=GGUF("qwen2moe")),
    Architecture("qwen3", "Qwen 3", vision=("internvl",), gguf=GGUF("qwen3")),
    Architecture(
        "qwen3_5_moe_text",
        "Qwen 3.5",
        experts=True,
        recurrent=True,
        vision=("qwen3_5_moe",),
        gguf=GGUF("qwen35moe", norm_offset=1.0),
    ),
    Architecture("qwen3_5_text", "Qwen 3.5", recurrent=True, vision=("qwen3_5",), gguf=GGUF("qwen35", norm_offset=1.0)),
    Architecture("qwen3_moe", "Qwen 3", experts=True, gguf=GGUF("qwen3moe")),
    Architecture("qwen3_next", "Qwen 3 Next", experts=True, recurrent=True),
    Architecture("seed_oss", "Seed-OSS", gguf=GGUF("seed_oss")),
    Architecture("smollm3", "SmolLM 3", gguf=GGUF("smollm3", permuted=True)),
    Architecture("starcoder2", "StarCoder 2", gguf=GGUF("starcoder2")),
    Architecture("vaultgemma", "VaultGemma"),
    Architecture("youtu", "Youtu", latent=True, interleaved=None),
)

# Vision models: their text part has one of these architectures and is used alone.
VISION = frozenset(kind for row in ARCHITECTURES.values() for kind in row.vision)

# Architectures that cannot be used, and why.
INDEXER = "it chooses the tokens that each attends to by an indexer of its own"
SCALED = "it scales queries and keys after RoPE, and entries change positions while a text is read"
REFUSED = {
    "axk2": INDEXER,
    "deepseek_v32": INDEXER,
    "glm_moe_dsa": INDEXER,
    "hunyuan_v1_dense": SCALED,
    "hunyuan_v1_moe": SCALED,
    "qwen4_exp": "its smallest model has 512 experts a layer and takes words three at a time",
}
REFUSED_IN_GGUF = {"glm-dsa": "glm_moe_dsa", "hunyuan-dense": "hunyuan_v1_dense", "hunyuan-moe": "hunyuan_v1_moe"}

# Frequencies that are the same at every length. "longrope" has two sets, and the one for long texts is taken.
ROPE_TYPES = frozenset({"default", "linear", "llama3", "yarn", "longrope", "proportional"})
REFUSED_ROPES = {"dynamic": "its frequencies change with the length"}


def architecture_of(config: PretrainedConfig) -> Architecture:
    """Return the row of a configuration that `check` has passed."""
    return ARCHITECTURES[config.model_type]


def check_kind(kind: str) -> None:
    """Refuse an architecture by its `model_type`.

    Raises:
        UnsupportedModel: it is not supported; names like it are listed.
    """
    if kind in REFUSED:
        raise UnsupportedModel(
            f"The architecture '{kind}' cannot be used: {REFUSED[kind]}. Choose another model: docs/models.md lists "
            f"those that can be."
        )
    if kind not in ARCHITECTURES:
        alike = ", ".join(difflib.get_close_matches(kind, ARCHITECTURES, 3))
        raise UnsupportedModel(
            f"The architecture '{kind}' has not been shown to match transformers in Stockpot. docs/models.md lists "
            f"those that have{f'; names like it are {alike}' if alike else ''}."
        )


def check(config: PretrainedConfig) -> None:
    """Refuse a configuration that has not been shown to match transformers.

    Raises:
        UnsupportedModel: the architecture or its kind of RoPE is not supported, the window holds no position, or
            attention heads cannot share keys evenly.
    """
    kind = config.model_type
    check_kind(kind)
    for rope_type in _rope_types(getattr(config, "rope_parameters", None)):
        if rope_type not in ROPE_TYPES:
            reason = REFUSED_ROPES.get(rope_type, "it has not been shown to match transformers in Stockpot")
            raise UnsupportedModel(
                f"'{kind}' with RoPE of type '{rope_type}' is not supported: {reason}. "
                f"Supported types: {', '.join(sorted(ROPE_TYPES))}."
            )
    window = getattr(config, "max_position_embeddings", None)
    if not isinstance(window, int) or window < 1:
        raise UnsupportedModel(
            f"The config.json of this '{kind}' says max_position_embeddings: {window}, and a model is trained for 1 "
            f"position or more: correct it, or fetch it anew."
        )
    heads = int(getattr(config, "num_attention_heads", 0))
    for layer in range(int(getattr(config, "num_hidden_layers", 0))):
        kv_heads = int(getattr(of_layer(config, layer), "num_key_value_heads", None) or heads)
        if kv_heads and heads % kv_heads:
            raise UnsupportedModel(
                f"The config.json of this '{kind}' says that {heads} attention heads share {kv_heads} heads of keys "
                f"and values, and they cannot evenly: correct it, or fetch it anew."
            )


def of_layer(config: PretrainedConfig, layer: int) -> Any:
    """Return the configuration of one layer: in some models heads differ in number and size between layers."""
    each: Any = config.per_layer_config
    return each[layer]


def _rope_types(parameters: object) -> list[str]:
    """Return the RoPE types of a configuration: one, or one for each kind of layer."""
    if not isinstance(parameters, dict):
        return []
    if "rope_type" in parameters:
        return [str(parameters["rope_type"])]
    return [kind for value in parameters.values() for kind in _rope_types(value)]
