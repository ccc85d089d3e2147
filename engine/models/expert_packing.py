"""The formats that hold the weights of experts: NF4, 8 bits a weight, and MXFP4 as published."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cache

import torch
from torch import Tensor
from torch.nn import functional as F

from engine.models.quantised import BLOCK, NESTED
from kernels import mxfp4

ALIGNED = 16  # bytes that kernels read at once
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
    """Return the numbers, float32 [256], that bitsandbytes' 8-bit codes of constants stand for."""
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
