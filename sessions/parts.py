"""One part of a saved state: tensors in one safetensors file, and its entry in the manifest.

torch is imported only to read or write tensors, so that listing rows is fast.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

from sessions.files import crc32_of, flush_file


@dataclass(frozen=True)
class Part:
    """Tensors of one file. A sealed part never changes once it is written under its name."""

    tensors: dict[str, torch.Tensor]
    sealed: bool = False


def summary(part: Part) -> dict[str, list[Any]]:
    """Return name -> [dtype, shape] of every tensor, as in the manifest."""
    return {name: [str(t.dtype), list(t.shape)] for name, t in part.tensors.items()}


def header_crc32(file: Path) -> int:
    """Return the CRC-32 of the length field and header of a safetensors file."""
    with file.open("rb") as handle:
        length = handle.read(8)
    header_bytes = struct.unpack("<Q", length)[0] if len(length) == 8 else 0
    return crc32_of(file, min(8 + header_bytes, file.stat().st_size))


def write_part(file: Path, part: Part) -> dict[str, Any]:
    """Write one file, wait until it is on the disk, and return its manifest entry."""
    from safetensors.torch import save_file

    save_file(_writable(part.tensors), file)
    flush_file(file)
    return {
        "file": file.name,
        "bytes": file.stat().st_size,
        "header_crc32": header_crc32(file),
        "crc32": crc32_of(file),
        "sealed": part.sealed,
        "tensors": summary(part),
    }


def _writable(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return the tensors on the CPU, contiguous and without shared memory, as safetensors requires."""
    ready: dict[str, torch.Tensor] = {}
    end = -1
    contiguous = {name: t.detach().to("cpu").contiguous() for name, t in tensors.items()}
    for name, tensor in sorted(contiguous.items(), key=lambda item: item[1].data_ptr()):
        ready[name] = tensor.clone() if tensor.data_ptr() < end else tensor
        end = max(end, tensor.data_ptr() + tensor.nbytes)
    return ready
