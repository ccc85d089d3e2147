"""Rows of `gpu_kernels` about a layer's weights and its small steps, with Llama-3.1-8B's widths."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.gpu_compare import Compared, compared
from benchmarks.gpu_inputs import Source
from engine.models import four_bits
from kernels import int4, layers

WIDTH = 4096  # of a hidden state
MLP = 14336

Row = dict[str, Any]
MakeRow = Callable[[str, str, Callable[[], Compared], Callable[[], object], int | None], Row]


def rows(source: Source, length: int, row: MakeRow) -> Iterator[Row]:
    """Yield the rows of layers outside attention.

    Args:
        source: of noise, on the device.
        length: most rows of a weight.
        row: makes one, see `_Bench._row`.
    """
    from kernels.layers import kernel, torch_impl

    weight = source.noise(WIDTH)
    for count in (1, 16):
        x, halves = source.noise(count, WIDTH), source.noise(count, 2 * MLP if source.device.type == "cuda" else 64)

        def normed(module: Any, x: Tensor = x) -> list[Tensor]:
            return [module.rms_norm(x, weight.to(x.dtype), 1e-5, 0.0, True)]

        def gated(module: Any, halves: Tensor = halves) -> list[Tensor]:
            return [module.gated(halves, "silu")]

        for name, make, given in (("norm", normed, x), ("gate", gated, halves)):

            def compare(make: Any = make, given: Tensor = given) -> Compared:
                return compared(make(kernel), make(torch_impl), make(torch_impl, given.double()))

            yield row("layers", f"{name}, {count}", compare, partial(make, layers), None)
    yield from _around_attention(source, row)
    yield from _four_bits(source, length, row)


def _around_attention(source: Source, row: MakeRow) -> Iterator[Row]:
    """Yield rows of a token's rotation, of its writes and of the merge of two attentions."""
    from kernels.layers import kernel, torch_impl

    heads, (cos, sin) = source.heads, (x[:1] for x in (source.cos, source.sin))
    q, k, v = (source.noise(count, 1, heads.size) for count in (heads.query, heads.kv, heads.kv))
    totals = source.noise(heads.query, 2).float()

    def turned(module: Any, kind: torch.dtype = source.dtype) -> list[Tensor]:
        return [module.turn(q.to(kind), cos.to(kind), sin.to(kind))]

    def appended(module: Any, kind: torch.dtype = source.dtype) -> list[Tensor]:
        buffers = [torch.zeros(heads.kv, 8, heads.size, dtype=kind, device=q.device) for _ in range(3)]
        given = (x.to(kind) for x in (q, k, v, cos, sin))
        return [module.append(*given, 5, *buffers), *buffers]

    def merged(module: Any, kind: torch.dtype = source.dtype) -> list[Tensor]:
        one, other = totals[:, :1], totals[:, 1:]
        wide = torch.promote_types(kind, torch.float32)
        return list(module.merge(q.to(kind), one.to(wide), q.flip(0).to(kind), other.to(wide)))

    for name, make in (("turn", turned), ("append", appended), ("merge", merged)):

        def compare(make: Any = make) -> Compared:
            return compared(make(kernel), make(torch_impl), make(torch_impl, torch.float64))

        yield row("layers", name, compare, partial(make, layers), None)


def _four_bits(source: Source, length: int, row: MakeRow) -> Iterator[Row]:
    """Yield rows of weights of 4 bits. On a GPU PyTorch packs and multiplies them: both must agree on the layout."""
    from kernels.int4 import kernel, torch_impl

    count, on_gpu = max(16, min(length, WIDTH) // 16 * 16), source.device.type == "cuda"
    codes, scales = four_bits.in_four_bits(source.noise(count, WIDTH), fit=False)
    laid = (source.uniform(count // 8, WIDTH // 128, 32, 4) * 2**31).int()
    numbers = torch_impl.unpack(laid, scales, torch.float64)
    if on_gpu:
        laid, (scale, offset) = four_bits.packed(codes), scales.double().permute(2, 1, 0)[..., None]
        numbers = ((codes.double().view(count, len(scales), -1) - 8) * scale + offset).flatten(1)
    given = laid, scales, source.dtype

    def unpack() -> Compared:
        return compared([kernel.unpack(*given)], [torch_impl.unpack(*given)], [numbers])

    yield row("int4", "unpack", unpack, lambda: int4.unpack(*given), None)
    for tokens in (1, four_bits.TILE) if on_gpu else ():
        x = source.noise(tokens, WIDTH).bfloat16()
        multiply = partial(four_bits.product, x, laid, scales)

        def compare(x: Tensor = x, multiply: Callable[[], Tensor] = multiply) -> Compared:
            return compared([multiply()], [F.linear(x, numbers.bfloat16())], [x.double() @ numbers.T])

        yield row("int4", f"product, {tokens}", compare, multiply, None)
