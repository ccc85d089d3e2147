"""Mixtures of experts in codes, unpacked as a pass needs them.

transformers holds the experts of a layer in two parameters of three dimensions, which bitsandbytes' layers do not
reach. `PackedExperts` takes their module's place. A stack that is packed here is one tensor [E, bytes]; a row holds the
codes of an expert and then their constants, so a pass that chooses a few experts reads a few rows. A stack that was
published in codes stays as the tensors of the checkpoint.

On a GPU the experts of a single token are unpacked together. All shapes are the same whichever they are, and no number
is read back, so the pass can be recorded as a CUDA graph. The experts of a longer pass, and all on a CPU, are unpacked
one after another.
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
    """Return the rows of some experts [K, ...] of a stack [E, ...], or of one [1, ...]."""
    return stack[which : which + 1] if isinstance(which, int) else stack.index_select(0, which)


class Packing(ABC):
    """How the weights [R, C] of an expert are held."""

    direct = False  # a single token is multiplied with the codes themselves, on a GPU

    def __init__(self, rows: int, columns: int) -> None:
        """Hold weights of so many rows and columns."""
        self.rows, self.columns = rows, columns

    @property
    @abstractmethod
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of the uint8 tensors that hold an expert, by the suffixes of their stacks' names."""

    @property
    def nbytes(self) -> int:
        """Bytes of one expert."""
        return sum(math.prod(shape) for shape in self.shapes.values())

    @abstractmethod
    def unpacking_bytes(self, size: int) -> int:
        """Return the bytes that unpacking an expert allocates: its weights of `size` bytes, and temporary tensors."""

    @abstractmethod
    def unpack(self, stack: Sequence[Tensor], which: int | Tensor, dtype: torch.dtype) -> Tensor:
        """Return weights in dtype: [R, C] for one expert, [K, R, C] for experts int64 [K].

        Only the bytes of those experts are read, each once.

        Args:
            stack: uint8 [E, *shape] for each of `shapes`.
        """

    def product(self, x: Tensor, stack: Sequence[Tensor], which: int | Tensor) -> Tensor:
        """Return x [T, C] times one expert's weights [T, R], or x [K, 1, C] times those of K experts [K, 1, R]."""
        return x @ self.unpack(stack, which, x.dtype).transpose(-1, -2)


class InRows(Packing):
    """A packing made here: one row of bytes for each expert."""

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """One row: codes, then constants, each padded to 16 bytes."""
        return {"": (_aligned(self.code_bytes) + _aligned(self.constant_bytes),)}

    @property
    @abstractmethod
    def code_bytes(self) -> int:
        """Bytes of an expert's codes."""

    @property
    @abstractmethod
    def constant_bytes(self) -> int:
        """Bytes of the constants that follow the codes."""

    @property
    @abstractmethod
    def constants(self) -> int:
        """Number of constants that weights share."""

    def unpacking_bytes(self, size: int) -> int:
        """Return the bytes of the weights, and of copies of the row and its constants."""
        return self.rows * self.columns * size + self.nbytes + 8 * self.constants

    def pack(self, weight: Tensor) -> Tensor:
        """Pack weights [R, C] of any float dtype into uint8 [bytes], on their device."""
        codes, *constants = (part.contiguous().view(torch.uint8).reshape(-1) for part in self._packed(weight))
        behind = torch.cat(constants)
        return torch.cat([F.pad(part, (0, _aligned(len(part)) - len(part))) for part in (codes, behind)])

    def unpack(self, stack: Sequence[Tensor], which: int | Tensor, dtype: torch.dtype) -> Tensor:
        """Unpack rows [E, bytes]."""
        (rows,) = stack
        begin = _aligned(self.code_bytes)
        codes = _chosen(rows[:, : self.code_bytes], which)
        weight = self._unpacked(codes, _chosen(rows[:, begin : begin + _aligned(self.constant_bytes)], which), dtype)
        return weight[0] if isinstance(which, int) else weight

    @abstractmethod
    def _packed(self, weight: Tensor) -> tuple[Tensor, ...]:
        """Return the codes, and the constants in order."""

    @abstractmethod
    def _unpacked(self, codes: Tensor, constants: Tensor, dtype: torch.dtype) -> Tensor:
        """Return weights [K, R, C] for codes and constants uint8 [K, bytes]; constants are padded to 16 bytes."""


class NF4(InRows):
    """QLoRA's NormalFloat with double quantisation, equal to bitsandbytes' for a linear layer.

    Constants: the mean of the blocks' constants in float32, a float32 for each 256 blocks, a byte for each block of 64
    weights. The last block is padded with zeros. Source: https://arxiv.org/abs/2305.14314, section 3.
    """

    @property
    def constants(self) -> int:
        """Number of blocks: each has one constant."""
        return math.ceil(self.rows * self.columns / BLOCK)

    @property
    def code_bytes(self) -> int:
        """Bytes of the codes, two weights a byte."""
        return self.constants * BLOCK // 2

    @property
    def constant_bytes(self) -> int:
        """Bytes of the constants of both levels."""
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
    """Return the numbers float32 [256] for which bitsandbytes' 8-bit codes of constants stand."""
    from bitsandbytes.functional import create_dynamic_map

    levels: Tensor = create_dynamic_map()  # type: ignore[no-untyped-call]
    return levels.to(device)


class EightBit(InRows):
    """A byte a weight, and the largest absolute weight of each row in float32.

    Inputs are not quantised, unlike those of LLM.int8().
    """

    @property
    def constants(self) -> int:
        """Number of rows: each has one constant."""
        return self.rows

    @property
    def code_bytes(self) -> int:
        """Bytes of the codes, one weight a byte."""
        return self.rows * self.columns

    @property
    def constant_bytes(self) -> int:
        """Bytes of the constants, four a row."""
        return 4 * self.rows

    def _packed(self, weight: Tensor) -> tuple[Tensor, ...]:
        reached = weight.abs().amax(1, keepdim=True).float()
        codes = weight / reached.clamp_min(torch.finfo(torch.float32).tiny) * 127
        return codes.round().to(torch.int8), reached

    def _unpacked(self, codes: Tensor, constants: Tensor, dtype: torch.dtype) -> Tensor:
        weight = codes.view(torch.int8).to(dtype).view(-1, self.rows, self.columns)
        reached = constants[:, : self.constant_bytes].view(torch.float32).to(dtype)
        return weight.div_(127).mul_(reached[..., None])  # the maximum over 127 may underflow in float16


class MXFP4(Packing):
    """The format of gpt-oss: half a byte a weight, and a power of two for each 32 weights of a row."""

    direct = True

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes in checkpoints: codes of 32 weights, the first of two in the low half of a byte, and scales."""
        groups = self.columns // mxfp4.GROUP
        return {"_blocks": (self.rows, groups, mxfp4.GROUP // 2), "_scales": (self.rows, groups)}

    def unpacking_bytes(self, size: int) -> int:
        """Return the bytes of the weights, of codes as bytes and as int32 for a table of pairs, and of scales."""
        return self.rows * self.columns * size + 5 * self.nbytes + self.rows * self.columns // mxfp4.GROUP * size

    def unpack(self, stack: Sequence[Tensor], which: int | Tensor, dtype: torch.dtype) -> Tensor:
        """Unpack blocks [E, R, C / 32, 16] and scales [E, R, C / 32]."""
        blocks, scales = stack
        if isinstance(which, int):
            return mxfp4.unpack(blocks[which : which + 1], scales[which : which + 1], None, dtype)[0]
        return mxfp4.unpack(blocks, scales, which, dtype)

    def product(self, x: Tensor, stack: Sequence[Tensor], which: int | Tensor) -> Tensor:
        """Multiply as `Packing.product` does; for a single token on a GPU with the codes themselves.

        On a CPU an expert is unpacked a few rows at a time. The same few megabytes are used again, which takes a fifth
        of the time.
        """
        if not isinstance(which, int):
            blocks, scales = stack
            return mxfp4.product(x[:, 0], blocks, scales, which)[:, None]
        step = AT_A_TIME if x.device.type == "cpu" else self.rows
        rows = [[each[:, begin : begin + step] for each in stack] for begin in range(0, self.rows, step)]
        return torch.cat([x @ self.unpack(each, which, x.dtype).T for each in rows], dim=-1)


PACKINGS: dict[str, type[InRows]] = {"8bit": EightBit, "nf4": NF4}


class PackedExperts(nn.Module):
    """Takes the place of the experts of a layer."""

    def __init__(self, own: nn.Module, packing: type[Packing]) -> None:
        """Make empty stacks on the meta device. own: transformers' module of experts, also on the meta device."""
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
        """Names of the two stacks."""
        return tuple(self.packings)

    def stack(self, name: str) -> list[Tensor]:
        """Return the tensors that hold a stack, in the order of `Packing.shapes`."""
        return [self.get_buffer(name + end) for end in self.packings[name].shapes]

    def shape(self, name: str) -> tuple[int, int, int]:
        """Return (E, R, C) of the weights in a stack."""
        packing = self.packings[name]
        return len(self.stack(name)[0]), packing.rows, packing.columns

    def turned(self, weights: Tensor) -> Tensor:
        """Return weights of transformers' layout in the layout [E, R, C] of this module, or the other way round."""
        return weights.transpose(-2, -1) if self.transposed else weights

    def takes(self, name: str, weights: Tensor) -> bool:
        """Return whether weights in transformers' layout have the shape of a stack."""
        return weights.dim() == 3 and self.turned(weights).shape == self.shape(name)

    def pack(self, name: str, weights: Tensor) -> Tensor:
        """Pack a stack of weights in transformers' layout into uint8 [E, bytes], one expert at a time.

        Only for a packing that is made here.
        """
        packing = self.packings[name]
        assert isinstance(packing, InRows)
        packed = torch.empty(self.get_buffer(name).shape, dtype=torch.uint8, device=weights.device)
        for row, weight in zip(packed, self.turned(weights), strict=True):
            row.copy_(packing.pack(weight))
        return packed

    def unpacked(self, name: str, which: int | Tensor, dtype: torch.dtype) -> Tensor:
        """Return the weights [R, C] of one expert, or [K, R, C] of experts int64 [K]."""
        return self.packings[name].unpack(self.stack(name), which, dtype)

    def forward(self, hidden_states: Tensor, top_k_index: Tensor, top_k_weights: Tensor) -> Tensor:
        """Return the outputs of the chosen experts, weighted and summed in float32.

        Args:
            hidden_states: [T, H].
            top_k_index: int64 [T, K], the experts of each token.
            top_k_weights: [T, K].

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
        """Return the same for one token, whose experts are unpacked together."""
        each = self._expert(hidden_states.expand(top_k_index.shape[1], 1, -1), top_k_index[0])  # [K, 1, H]
        return (each[:, 0].float() * top_k_weights[0, :, None]).sum(0, keepdim=True).to(hidden_states.dtype)

    def _expert(self, x: Tensor, which: int | Tensor) -> Tensor:
        """Pass x [T, H] through one expert, or x [K, 1, H] through one expert each; the output has the same shape."""
        up, down = self.stacks
        return self._through(self.inner(self._through(x, up, which)), down, which)

    def _through(self, x: Tensor, name: str, which: int | Tensor) -> Tensor:
        """Multiply x [..., C] with the weights of a stack: [..., R]."""
        product: Tensor = _Product.apply(x, self, name, which)  # type: ignore[no-untyped-call]
        if not self.has_bias:
            return product
        bias = self.get_parameter(name + BIAS)
        return product + (bias[which] if isinstance(which, int) else bias.index_select(0, which)[:, None])


def together_on(device: torch.device) -> bool:
    """Return whether the experts of one token are unpacked together.

    On a CPU that takes four times as long as one by one, where the same few megabytes are used again.
    """
    return device.type != "cpu"


class _Product(torch.autograd.Function):
    """Multiplies with unpacked weights, and unpacks them again for the gradient instead of keeping them."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, experts: PackedExperts, name: str, which: int | Tensor) -> Tensor:
        dtype = x.dtype
        ctx.unpacked = lambda: experts.unpacked(name, which, dtype)
        return experts.packings[name].product(x, experts.stack(name), which)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        return gradients[0] @ ctx.unpacked(), None, None, None


def pack_experts(network: nn.Module, packing: type[Packing]) -> None:
    """Replace all experts of a network on the meta device by `PackedExperts`, to be filled as weights arrive."""
    for name, module in list(network.named_modules()):
        if has_experts(module):
            network.set_submodule(name, PackedExperts(module, packing))


def has_experts(module: nn.Module) -> bool:
    """Return whether a module is transformers' module of the experts of a layer."""
    return bool(stacks_of(module))


def stacks_of(module: nn.Module) -> tuple[str, ...]:
    """Return the names of the stacks of transformers' module of experts; none for any other module."""
    own = dict(module.named_parameters(recurse=False))
    return next((names for names in STACKS if all(name in own and own[name].dim() == 3 for name in names)), ())


def shapes_of(experts: nn.Module) -> list[tuple[int, int, int]]:
    """Return (E, R, C) of both stacks of a layer's experts, packed or not."""
    if isinstance(experts, PackedExperts):
        return [experts.shape(name) for name in experts.stacks]
    stacks = [experts.get_parameter(name) for name in stacks_of(experts)]
    return [tuple((each.transpose(1, 2) if experts.is_transposed else each).shape) for each in stacks]  # type: ignore[misc]
