"""Experts of a mixture in codes, unpacked as a pass needs them.

transformers holds the experts of a layer in two parameters of three dimensions, which bitsandbytes' layers do not
reach. `PackedExperts` takes their module's place. Of a stack that is packed here it holds [E, bytes]: in the row of an
expert its codes and then their constants, so that what a pass takes of a few experts are a few rows. Of one that was
published in codes it holds the tensors of the checkpoint. On a GPU the experts of a single token are unpacked together:
shapes are the same whichever they are, and no number is read back, so that the pass can be recorded (`graphs.py`).
Those of a longer pass, and of any on a CPU, are unpacked one after another.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from engine.models.quantised import BLOCK, NESTED
from kernels import mxfp4

# As transformers names them: [E, 2 I, H], or without a gate [E, I, H], and [E, H, I]; or all transposed.
STACKS = (("gate_up_proj", "down_proj"), ("up_proj", "down_proj"))
BIAS = "_bias"  # behind a stack's name, where experts have one
ALIGNED = 16  # bytes: what kernels read at once
AT_A_TIME = 256  # rows of an expert in MXFP4 that are unpacked together on a CPU


def _aligned(count: int) -> int:
    return math.ceil(count / ALIGNED) * ALIGNED


def _chosen(stack: Tensor, which: int | Tensor) -> Tensor:
    """Of a stack [E, ...] those of some experts [K, ...], or of one [1, ...]."""
    return stack[which : which + 1] if isinstance(which, int) else stack.index_select(0, which)


class Packing(ABC):
    """How the weights [R, C] of an expert are held.

    direct: whether those that a single token goes through are multiplied with as they are, on a GPU.
    """

    direct = False

    def __init__(self, rows: int, columns: int) -> None:
        """R and C."""
        self.rows, self.columns = rows, columns

    @property
    @abstractmethod
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Of what holds an expert, in bytes, by the ends of the names of what holds its stack."""

    @property
    def nbytes(self) -> int:
        """Bytes of an expert."""
        return sum(math.prod(shape) for shape in self.shapes.values())

    @abstractmethod
    def unpacking_bytes(self, size: int) -> int:
        """Bytes that are there while an expert is unpacked to numbers of so many bytes: these, and what helps."""

    @abstractmethod
    def unpack(self, stack: Sequence[Tensor], which: int | Tensor, dtype: torch.dtype) -> Tensor:
        """Weights in dtype, of one expert [R, C], of experts int64 [K] [K, R, C].

        Only what those experts are held by is read, and each byte of it once.

        Args:
            stack: uint8 [E, *shape] for each of `shapes`.
        """

    def product(self, x: Tensor, stack: Sequence[Tensor], which: int | Tensor) -> Tensor:
        """Inputs times weights: of x [T, C] by one expert's [T, R], of x [K, 1, C] by an expert's each [K, 1, R]."""
        return x @ self.unpack(stack, which, x.dtype).transpose(-1, -2)


class InRows(Packing):
    """Packed here: a row of bytes for each expert."""

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The row: codes and constants, each filled up to 16 bytes."""
        return {"": (_aligned(self.code_bytes) + _aligned(self.constant_bytes),)}

    @property
    @abstractmethod
    def code_bytes(self) -> int:
        """Bytes of the codes."""

    @property
    @abstractmethod
    def constant_bytes(self) -> int:
        """Bytes of the constants behind them."""

    @property
    @abstractmethod
    def constants(self) -> int:
        """How many constants there are that weights share."""

    def unpacking_bytes(self, size: int) -> int:
        """The row and the constants are there again."""
        return self.rows * self.columns * size + self.nbytes + 8 * self.constants

    def pack(self, weight: Tensor) -> Tensor:
        """uint8 [bytes] for weights [R, C] of any float dtype, on their device."""
        codes, *constants = (part.contiguous().view(torch.uint8).reshape(-1) for part in self._packed(weight))
        behind = torch.cat(constants)
        return torch.cat([F.pad(part, (0, _aligned(len(part)) - len(part))) for part in (codes, behind)])

    def unpack(self, stack: Sequence[Tensor], which: int | Tensor, dtype: torch.dtype) -> Tensor:
        """Of rows [E, bytes]."""
        (rows,) = stack
        begin = _aligned(self.code_bytes)
        codes = _chosen(rows[:, : self.code_bytes], which)
        weight = self._unpacked(codes, _chosen(rows[:, begin : begin + _aligned(self.constant_bytes)], which), dtype)
        return weight[0] if isinstance(which, int) else weight

    @abstractmethod
    def _packed(self, weight: Tensor) -> tuple[Tensor, ...]:
        """The codes, and the constants in their order."""

    @abstractmethod
    def _unpacked(self, codes: Tensor, constants: Tensor, dtype: torch.dtype) -> Tensor:
        """Weights [K, R, C] of codes and constants, uint8 [K, bytes], these filled up to 16."""


class NF4(InRows):
    """QLoRA's NormalFloat with double quantisation, as bitsandbytes makes it of a linear layer.

    Constants: a float32 that is the mean of the blocks' own, a float32 for each 256 blocks, a byte for each block of 64
    weights. The last block is filled up with zeros. Source: https://arxiv.org/abs/2305.14314, section 3.
    """

    @property
    def constants(self) -> int:
        """One for each block."""
        return math.ceil(self.rows * self.columns / BLOCK)

    @property
    def code_bytes(self) -> int:
        """Two weights a byte."""
        return self.constants * BLOCK // 2

    @property
    def constant_bytes(self) -> int:
        """Of both levels."""
        return self._float_bytes + self.constants

    @property
    def _float_bytes(self) -> int:
        return 4 * (1 + math.ceil(self.constants / NESTED))

    def _packed(self, weight: Tensor) -> tuple[Tensor, ...]:
        from bitsandbytes.functional import quantize_4bit

        flat = F.pad(weight.reshape(-1), (0, self.constants * BLOCK - weight.numel()))
        codes, state = quantize_4bit(flat, blocksize=BLOCK, compress_statistics=True, quant_type="nf4")
        return codes, torch.cat([state.offset.reshape(1), state.state2.absmax]), state.absmax

    def _unpacked(self, codes: Tensor, constants: Tensor, dtype: torch.dtype) -> Tensor:
        count = len(codes)
        floats = constants[:, : self._float_bytes].view(torch.float32)
        offset, scales = floats[:, :1], floats[:, 1:].repeat_interleave(NESTED, 1)[:, : self.constants]
        own = constants[:, self._float_bytes : self.constant_bytes].int()
        absmax = _levels(codes.device)[own] * scales + offset
        flat = torch.ops.bitsandbytes.dequantize_4bit(
            codes, absmax.contiguous(), BLOCK, "nf4", (count, self.constants * BLOCK), dtype
        )
        weight: Tensor = flat[:, : self.rows * self.columns]
        return weight.reshape(count, self.rows, self.columns)


@cache
def _levels(device: torch.device) -> Tensor:
    """float32 [256]: what bitsandbytes' 8-bit codes of constants stand for."""
    from bitsandbytes.functional import create_dynamic_map

    levels: Tensor = create_dynamic_map()  # type: ignore[no-untyped-call]
    return levels.to(device)


class EightBit(InRows):
    """A byte a weight, and for each row the float32 that it reaches; inputs stay as they are, unlike LLM.int8()'s."""

    @property
    def constants(self) -> int:
        """One for each row."""
        return self.rows

    @property
    def code_bytes(self) -> int:
        """One weight a byte."""
        return self.rows * self.columns

    @property
    def constant_bytes(self) -> int:
        """Four a row."""
        return 4 * self.rows

    def _packed(self, weight: Tensor) -> tuple[Tensor, ...]:
        reached = weight.abs().amax(1, keepdim=True).float()
        codes = weight / reached.clamp_min(torch.finfo(torch.float32).tiny) * 127
        return codes.round().to(torch.int8), reached

    def _unpacked(self, codes: Tensor, constants: Tensor, dtype: torch.dtype) -> Tensor:
        weight = codes.view(torch.int8).to(dtype).view(-1, self.rows, self.columns)
        reached = constants[:, : self.constant_bytes].view(torch.float32).to(dtype)
        return weight.div_(127).mul_(reached[..., None])  # what is reached, over 127, may be too small for float16


class MXFP4(Packing):
    """As gpt-oss is published: half a byte a weight, of which 32 in a row share a power of two."""

    direct = True

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """As in checkpoints: codes of 32 weights, the first of two in the low half of a byte, and their scale."""
        groups = self.columns // mxfp4.GROUP
        return {"_blocks": (self.rows, groups, mxfp4.GROUP // 2), "_scales": (self.rows, groups)}

    def unpacking_bytes(self, size: int) -> int:
        """The codes are there again, and as int32, for a table of pairs of weights; scales likewise."""
        return self.rows * self.columns * size + 5 * self.nbytes + self.rows * self.columns // mxfp4.GROUP * size

    def unpack(self, stack: Sequence[Tensor], which: int | Tensor, dtype: torch.dtype) -> Tensor:
        """Of what checkpoints hold: blocks [E, R, C / 32, 16] and scales [E, R, C / 32]."""
        blocks, scales = stack
        if isinstance(which, int):
            return mxfp4.unpack(blocks[which : which + 1], scales[which : which + 1], None, dtype)[0]
        return mxfp4.unpack(blocks, scales, which, dtype)

    def product(self, x: Tensor, stack: Sequence[Tensor], which: int | Tensor) -> Tensor:
        """For a single token on a GPU codes are multiplied with as they are. On a CPU an expert is unpacked by and by:
        the same few megabytes are used again, which takes a fifth of the time.
        """
        if not isinstance(which, int):
            blocks, scales = stack
            return mxfp4.product(x[:, 0], blocks, scales, which)[:, None]
        step = AT_A_TIME if x.device.type == "cpu" else self.rows
        rows = [[each[:, begin : begin + step] for each in stack] for begin in range(0, self.rows, step)]
        return torch.cat([x @ self.unpack(each, which, x.dtype).T for each in rows], dim=-1)


PACKINGS: dict[str, type[InRows]] = {"8bit": EightBit, "nf4": NF4}


class PackedExperts(nn.Module):
    """In place of the experts of a layer."""

    def __init__(self, own: nn.Module, packing: type[Packing]) -> None:
        """own: transformers' module of experts, whose weights are still on the meta device."""
        super().__init__()
        self.inner: Any = own._apply_gate if own.has_gate else own.act_fn
        self.transposed, self.has_bias = bool(own.is_transposed), bool(own.has_bias)
        self.packings: dict[str, Packing] = {}
        for name, (count, rows, columns) in zip(stacks_of(own), shapes_of(own), strict=True):
            self.packings[name] = packing(rows, columns)
            for end, shape in self.packings[name].shapes.items():
                self.register_buffer(name + end, torch.empty(count, *shape, dtype=torch.uint8, device="meta"))
            if self.has_bias:
                self.register_parameter(name + BIAS, own.get_parameter(name + BIAS))

    @property
    def stacks(self) -> tuple[str, ...]:
        """The names of both."""
        return tuple(self.packings)

    def stack(self, name: str) -> list[Tensor]:
        """What holds the stack of that name, see `Packing.shapes`."""
        return [self.get_buffer(name + end) for end in self.packings[name].shapes]

    def shape(self, name: str) -> tuple[int, int, int]:
        """(E, R, C) of the weights in the stack of that name."""
        packing = self.packings[name]
        return len(self.stack(name)[0]), packing.rows, packing.columns

    def turned(self, weights: Tensor) -> Tensor:
        """Weights as transformers has them [E, R, C], as they are here, and the other way round."""
        return weights.transpose(-2, -1) if self.transposed else weights

    def takes(self, name: str, weights: Tensor) -> bool:
        """Whether weights as transformers has them have the shape of the stack of that name."""
        return weights.dim() == 3 and self.turned(weights).shape == self.shape(name)

    def pack(self, name: str, weights: Tensor) -> Tensor:
        """What a stack of that name holds for weights as transformers has them: uint8 [E, bytes].

        One expert is packed at a time. Only where experts are packed here.
        """
        packing = self.packings[name]
        assert isinstance(packing, InRows)
        packed = torch.empty(self.get_buffer(name).shape, dtype=torch.uint8, device=weights.device)
        for row, weight in zip(packed, self.turned(weights), strict=True):
            row.copy_(packing.pack(weight))
        return packed

    def unpacked(self, name: str, which: int | Tensor, dtype: torch.dtype) -> Tensor:
        """Weights of one expert [R, C], or of experts int64 [K] [K, R, C]."""
        return self.packings[name].unpack(self.stack(name), which, dtype)

    def forward(self, hidden_states: Tensor, top_k_index: Tensor, top_k_weights: Tensor) -> Tensor:
        """What the chosen experts make of tokens, weighted and added up in float32.

        Args:
            hidden_states: [T, H]; top_k_index: int64 [T, K], the experts of each; top_k_weights: [T, K].

        Returns:
            [T, H] in the dtype of the tokens.
        """
        if len(hidden_states) == 1 and together_on(hidden_states.device):
            return self.together(hidden_states, top_k_index, top_k_weights)
        count, chosen = self.shape(self.stacks[0])[0], top_k_index.shape[1]
        experts, order = top_k_index.reshape(-1).sort(stable=True)
        tokens, weights = order // chosen, top_k_weights.reshape(-1)[order]
        numbers = torch.arange(count + 1, device=experts.device)
        bounds: list[int] = torch.searchsorted(experts, numbers).tolist()
        total = torch.zeros_like(hidden_states, dtype=torch.float32)
        for expert, (begin, end) in enumerate(pairwise(bounds)):
            if begin < end:
                own = tokens[begin:end]
                each = self._expert(hidden_states[own], expert).float() * weights[begin:end, None]
                total.index_add_(0, own, each)
        return total.to(hidden_states.dtype)

    def together(self, hidden_states: Tensor, top_k_index: Tensor, top_k_weights: Tensor) -> Tensor:
        """The same for one token, whose experts are unpacked all at once."""
        each = self._expert(hidden_states.expand(top_k_index.shape[1], 1, -1), top_k_index[0])  # [K, 1, H]
        return (each[:, 0].float() * top_k_weights[0, :, None]).sum(0, keepdim=True).to(hidden_states.dtype)

    def _expert(self, x: Tensor, which: int | Tensor) -> Tensor:
        """[..., H] of x [T, H] through one expert, or of x [K, 1, H] through an expert each."""
        up, down = self.stacks
        return self._through(self.inner(self._through(x, up, which)), down, which)

    def _through(self, x: Tensor, name: str, which: int | Tensor) -> Tensor:
        """[..., R] of x [..., C]."""
        product: Tensor = _Product.apply(x, self, name, which)  # type: ignore[no-untyped-call]
        if not self.has_bias:
            return product
        bias = self.get_parameter(name + BIAS)
        return product + (bias[which] if isinstance(which, int) else bias.index_select(0, which)[:, None])


def together_on(device: torch.device) -> bool:
    """Whether the experts of one token are unpacked all at once. On a CPU that takes four times as long as one by one,
    for which the same few megabytes are used again.
    """
    return device.type != "cpu"


class _Product(torch.autograd.Function):
    """x times unpacked weights, which are unpacked again on the way back: kept, they would be all of the model's."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, experts: PackedExperts, name: str, which: int | Tensor) -> Tensor:
        dtype = x.dtype
        ctx.unpacked = lambda: experts.unpacked(name, which, dtype)
        return experts.packings[name].product(x, experts.stack(name), which)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        return gradients[0] @ ctx.unpacked(), None, None, None


def pack_experts(network: nn.Module, packing: type[Packing]) -> None:
    """Put `PackedExperts` in place of all experts of a network on the meta device, to be filled as weights arrive."""
    for name, module in list(network.named_modules()):
        if has_experts(module):
            network.set_submodule(name, PackedExperts(module, packing))


def has_experts(module: nn.Module) -> bool:
    """Whether it is transformers' module of the experts of a layer."""
    return bool(stacks_of(module))


def stacks_of(module: nn.Module) -> tuple[str, ...]:
    """The names of the stacks that transformers' module of the experts of a layer has; none of any other."""
    own = dict(module.named_parameters(recurse=False))
    return next((names for names in STACKS if all(name in own and own[name].dim() == 3 for name in names)), ())


def shapes_of(experts: nn.Module) -> list[tuple[int, int, int]]:
    """(E, R, C) of both stacks of a layer's experts, packed or not."""
    if isinstance(experts, PackedExperts):
        return [experts.shape(name) for name in experts.stacks]
    stacks = [experts.get_parameter(name) for name in stacks_of(experts)]
    return [tuple((each.transpose(1, 2) if experts.is_transposed else each).shape) for each in stacks]  # type: ignore[misc]
