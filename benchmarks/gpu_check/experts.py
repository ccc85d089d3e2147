"""Quantised experts: a layer of Qwen3-30B-A3B's shape, and an MXFP4 layer of gpt-oss-20b's shape.

Both are compared with transformers' own experts over the same weights.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator

import torch
from torch import Tensor, nn
from transformers import AutoConfig, PretrainedConfig
from transformers.models.gpt_oss.modeling_gpt_oss import GptOssExperts
from transformers.models.qwen3_moe.modeling_qwen3_moe import Qwen3MoeExperts

from benchmarks.gpu_check.check import Check, Row
from benchmarks.gpu_check.gauge import median_seconds
from benchmarks.random_models import SPREAD
from engine.decode.recorder import record
from engine.models.expert_packing import MXFP4, PACKINGS, InRows, Packing
from engine.models.experts import PackedExperts

QWEN, GPT_OSS = "qwen3_moe", "gpt_oss"
MODULES: dict[str, type[nn.Module]] = {QWEN: Qwen3MoeExperts, GPT_OSS: GptOssExperts}
WAYS: dict[str, tuple[str, type[Packing]]] = {
    **{name: (QWEN, packing) for name, packing in PACKINGS.items()},
    "mxfp4": (GPT_OSS, MXFP4),
}
SIZES = {
    QWEN: {"hidden_size": 2048, "moe_intermediate_size": 768, "num_experts": 128, "num_experts_per_tok": 8},
    GPT_OSS: {"hidden_size": 2880, "intermediate_size": 2880, "num_local_experts": 32, "num_experts_per_tok": 4},
}
SMALL = {
    QWEN: {"hidden_size": 64, "moe_intermediate_size": 48, "num_experts": 8, "num_experts_per_tok": 2},
    GPT_OSS: {"hidden_size": 64, "intermediate_size": 96, "num_local_experts": 8, "num_experts_per_tok": 2},
}
TOKENS = {False: (1, 64, 2048, 8192), True: (1, 16)}  # tokens of a pass, by tiny
COMPARED = 64  # most tokens of a compared pass, as float32 experts take memory
SLACK = 1e-6
MXFP4_NOISE = {"_blocks": (0, 256), "_scales": (117, 121)}  # weights about as large as the others


def cells(check: Check) -> Iterator[Row]:
    """Yield the measurements to make."""
    for quantize in WAYS:
        for tokens in TOKENS[check.tiny]:
            yield {"what": quantize, "tokens": tokens}


@torch.no_grad()
def check_experts(check: Check) -> None:
    """Check each packing: error at most twice transformers' own, seconds of a pass, and CUDA-graph recording of one
    token.
    """
    for quantize, (kind, packing) in WAYS.items():
        config = AutoConfig.for_model(kind, **(SMALL if check.tiny else SIZES)[kind])
        config._experts_implementation = "eager"
        packed = _packed(check, config, packing)
        for tokens in TOKENS[check.tiny]:
            row = check.row("experts", what=quantize, tokens=tokens)
            row |= {**_measured(check, config, packed, tokens), "status": "done"}


def _measured(check: Check, config: PretrainedConfig, packed: PackedExperts, tokens: int) -> Row:
    """Return the measurements of a pass of `tokens` tokens of noise."""
    x = torch.randn(tokens, config.hidden_size, device=check.place, dtype=check.dtype)
    likely = torch.randn(tokens, config.num_experts, device=check.place).softmax(dim=1)
    weights, which = likely.topk(config.num_experts_per_tok, dim=1)
    given = x, which, (weights / weights.sum(dim=1, keepdim=True)).to(check.dtype)
    row = _compared(packed, config, *given) if tokens <= COMPARED else {}
    if check.place.type == "cuda":
        row["seconds"] = median_seconds(check.place, lambda: packed(*given))
        if tokens == 1:
            row["recorded_seconds"] = _recorded(check, packed, given)
    return row


def _experts(config: PretrainedConfig) -> nn.Module:
    """Return transformers' own experts, without weights."""
    with torch.device("meta"):
        made = MODULES[config.model_type](config)
    return made


def _packed(check: Check, config: PretrainedConfig, packing: type[Packing]) -> PackedExperts:
    """Return experts of noise; for published code formats, the codes are noise."""
    packed = PackedExperts(_experts(config), packing)
    for name in packed.stacks:
        if issubclass(packing, InRows):
            weights = torch.randn(packed.shape(name), device=check.place, dtype=check.dtype) * SPREAD
            setattr(packed, name, packed.pack(name, weights))
        else:
            for end, (least, most) in MXFP4_NOISE.items():
                shape = packed.get_buffer(name + end).shape
                setattr(packed, name + end, torch.randint(least, most, shape, dtype=torch.uint8, device=check.place))
    for name, bias in list(packed.named_parameters()):
        noise = torch.randn(bias.shape, device=check.place, dtype=check.dtype) * SPREAD
        setattr(packed, name, nn.Parameter(noise, requires_grad=False))
    return packed


def _compared(packed: PackedExperts, config: PretrainedConfig, x: Tensor, which: Tensor, weights: Tensor) -> Row:
    """Return errors against float32 of the packed experts, and of transformers' own with the dequantised weights."""
    used, places = torch.unique(which, return_inverse=True)
    fewer = copy.deepcopy(config)
    fewer.num_experts = len(used)  # gpt-oss has another name for it, and accepts this one
    own = _experts(fewer)
    for name in packed.stacks:
        held = packed.turned(packed.unpacked(name, used, x.dtype))
        setattr(own, name, nn.Parameter(held.contiguous(), requires_grad=False))
    for name, bias in packed.named_parameters():
        setattr(own, name, nn.Parameter(bias[used], requires_grad=False))
    found, theirs = packed(x, which, weights).float(), own(x, places, weights).float()
    exact = own.float()(x.float(), places, weights.float())
    error, allowed = (float((each - exact).norm() / exact.norm()) for each in (found, theirs))
    allowed = 2 * allowed + SLACK
    return {"error": error, "allowed": allowed, "ok": error <= allowed}


def _recorded(check: Check, packed: PackedExperts, given: tuple[Tensor, Tensor, Tensor]) -> float | str:
    """Return the seconds of a replayed one-token pass, or the reason why it cannot be recorded."""
    graph = torch.cuda.CUDAGraph()
    try:
        record(graph, lambda: packed(*given))
    except RuntimeError as error:
        return str(error).partition("\n")[0]
    return median_seconds(check.place, graph.replay)
