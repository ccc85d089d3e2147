"""Unpacking weights of 4 bits in plain PyTorch: the reference for the other implementations.

The layout is that of PyTorch's `_convert_weight_to_int4pack` for NVIDIA's GPUs (aten/src/ATen/native/cuda/int4mm.cu).
It follows the tensor cores' tiles of 8 rows and 16 columns: each of 32 lanes holds, of one row, four columns of a tile,
and an int32 holds those of two neighbouring tiles.
Sizes: R rows (outputs), C columns (inputs), W int32 of a lane side by side (1, 2 or 4), G columns that share a scale.
"""

from __future__ import annotations

import torch
from torch import Tensor


def unpack(codes: Tensor, scales: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the dequantised weights [R, C] in `dtype`.

    A code c from 0 to 15 stands for (c - 8) * scale + offset.

    Args:
        codes: int32 [R / 8, C / (32 W), 32, W].
        scales: bfloat16 [C / G, R, 2], a scale and an offset for each G columns of a row.
        dtype: of the weights returned.
    """
    rows, columns, words = 8 * codes.shape[0], 32 * codes.shape[1] * codes.shape[3], codes.shape[3]
    row = torch.arange(rows, device=codes.device)[:, None]
    column = torch.arange(columns, device=codes.device)[None]
    lane = row % 8 * 4 + column % 8 // 2
    word = codes[row // 8, column // (32 * words), lane, column // 32 % words]
    place = column % 32 // 8 + column % 2 * 4  # of the code among eight in an int32, the lowest bits first
    code = (word >> (4 * place)) & 15
    scale, offset = scales[column // (columns // len(scales)), row].float().unbind(-1)
    return ((code - 8) * scale + offset).to(dtype)
