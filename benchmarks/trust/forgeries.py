"""Alterations of saved tensors that fit their checksums, as somebody would make who can write in the home."""

from __future__ import annotations

import hashlib
import json
import random
import struct
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from benchmarks.trust.accidents import Alteration

ODD: tuple[Any, ...] = (
    *(None, True, -1, 0, 1, 2**31, 2**63, -(2**63), 10**30, 1.5, float("nan"), "", "x", "../../../etc/passwd"),
    *("/etc/passwd", [], [0], {}, {"a": 1}, "\x00", "💥" * 10),
)
Keys = tuple[str | int, ...]


def _state(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(json.loads((folder / "manifest.json").read_bytes())["state"])
    return found


def _put(folder: Path, text: str) -> None:
    """Write a manifest that fits its own hash."""
    whole = {"sha256": hashlib.sha256(text.encode()).hexdigest(), "state": text}
    (folder / "manifest.json").write_text(json.dumps(whole))


def _fit(folder: Path, entry: dict[str, Any]) -> None:
    """Make the entry of a file that was changed fit it."""
    raw = (folder / entry["file"]).read_bytes()
    size = struct.unpack("<Q", raw[:8])[0] if len(raw) >= 8 else 0
    entry |= {"bytes": len(raw), "crc32": zlib.crc32(raw), "header_crc32": zlib.crc32(raw[: min(8 + size, len(raw))])}


def _places(value: Any, at: Keys = ()) -> Iterator[Keys]:
    """Yield the keys that lead to each value within a value."""
    if at:
        yield at
    inner = value.items() if isinstance(value, dict) else enumerate(value[:5]) if isinstance(value, list) else ()
    for key, each in inner:
        yield from _places(each, (*at, key))


def _fact(folder: Path, others: Sequence[Path], chance: random.Random) -> str:
    state = _state(folder)
    *above, last = chance.choice(list(_places(state)))
    holder: Any = state
    for key in above:
        holder = holder[key]
    value = chance.choice(ODD)
    if chance.random() < 0.25:
        del holder[last]
        value = "nothing"
    else:
        holder[last] = value
    _put(folder, json.dumps(state))
    return f"{'.'.join(map(str, (*above, last)))} made {value!r:.30}"


def _text(folder: Path, others: Sequence[Path], chance: random.Random) -> str:
    empty = json.dumps({"version": 2, "parts": {}, "fingerprint": _state(folder)["fingerprint"], "generation": 1})
    texts = ("[" * 100_000, '{"parts":' * 50_000, "null", "[]", "1", '"x"', "{}", "{", "1" * 5000, empty)
    text = chance.choice(texts)
    _put(folder, text)
    return f"facts made {text[:30]!r}"


def _header(folder: Path, others: Sequence[Path], chance: random.Random) -> str:
    """Change the header of a file of tensors: sizes, types, places, names, or its own length."""
    state = _state(folder)
    name = chance.choice(list(state["parts"]))
    entry = state["parts"][name]
    raw = (folder / entry["file"]).read_bytes()
    size = struct.unpack("<Q", raw[:8])[0]
    header, body = json.loads(raw[8 : 8 + size]), raw[8 + size :]
    key = chance.choice([key for key in header if key != "__metadata__"])
    shape, length = header[key]["shape"], None
    what = chance.choice(("length", "shape", "no rows", "type", "places", "depth", "twice", "gone", "long", "name"))
    if what == "length":
        length = chance.choice([2**63, 2**64 - 1, 2**40, 100_000_001, len(raw), 0, size + 8, size - 1])
    elif what == "shape":
        header[key]["shape"] = chance.choice(
            [[2**40], [2**62, 2**62], [-1], [1 << 31, 1 << 31], shape[::-1], [*shape, 1]]
        )
    elif what == "no rows":
        header[key]["shape"] = [0, *shape[1:]]
    elif what == "type":
        header[key]["dtype"] = chance.choice(["F64", "I64", "U8", "BOOL", "XX", "F8_E4M3", "I32", "F32", "F16"])
    elif what == "places":
        ends = ([0, 2**62], [-1, 4], [10, 5], [0, 0], [1, len(body)], [len(body), len(body)])
        header[key]["data_offsets"] = chance.choice(ends)
    elif what == "depth":
        header[key] = json.loads("[" * 500 + "]" * 500)
    elif what == "gone":
        del header[key]
    elif what == "long":
        header["__metadata__"] = {"x": "y" * 10**6}
    elif what == "name":
        header[chance.choice(["../x", "", "a" * 10**5, "99.keys"])] = header.pop(key)
    text = json.dumps(header)
    if what == "twice":
        text = f"{text[:-1]},{json.dumps({key: header[key]})[1:]}"
    coded = text.encode()
    coded += b" " * (-len(coded) % 8)
    length = len(coded) if length is None else length
    (folder / entry["file"]).write_bytes(struct.pack("<Q", length) + coded + body)
    _fit(folder, entry)
    _put(folder, json.dumps(state))
    return f"header of {name}: {what} of {key:.30}"


def _tensor(folder: Path, others: Sequence[Path], chance: random.Random) -> str:
    """Replace a tensor by one of another size, type or content, with everything else made to fit."""
    state = _state(folder)
    name = chance.choice(list(state["parts"]))
    entry = state["parts"][name]
    file = folder / entry["file"]
    tensors = {key: tensor.clone() for key, tensor in load_file(file).items()}
    key = chance.choice(list(tensors))
    old = tensors[key]
    real = old.is_floating_point()
    ways: dict[str, Callable[[], torch.Tensor]] = {
        "empty": lambda: old[:0],
        "half": lambda: old[: max(1, old.shape[0] // 2)].clone() if old.dim() else old,
        "double": lambda: torch.cat([old, old]) if old.dim() else old,
        "type": lambda: old.to(chance.choice([torch.float64, torch.int64, torch.uint8, torch.bool, torch.float16])),
        "not a number": lambda: torch.full_like(old, float("nan") if real else 1),
        "infinite": lambda: torch.full_like(old, float("inf") if real else 1),
        "negative": lambda: ~old if old.dtype == torch.bool else -old - 1,
        "large": lambda: old * 1e30 if real else torch.full_like(old, 127),
        "random": lambda: torch.randint(-(2**31), 2**31 - 1, old.shape).to(old.dtype),
        "single": lambda: torch.zeros((), dtype=old.dtype),
        "deeper": lambda: old[None].contiguous(),
    }
    what = chance.choice(list(ways))
    tensors[key] = ways[what]()
    save_file(tensors, file)
    _fit(folder, entry)
    entry["tensors"] = {key: [str(tensor.dtype), list(tensor.shape)] for key, tensor in tensors.items()}
    _put(folder, json.dumps(state))
    return f"tensor {name}.{key} made {what}"


def _path(folder: Path, others: Sequence[Path], chance: random.Random) -> str:
    state = _state(folder)
    entry = state["parts"][chance.choice(list(state["parts"]))]
    outside = (f"../{folder.name}/{entry['file']}", "/etc/passwd", "..", ".", "", "manifest.json", "a\x00b", "x" * 300)
    entry["file"] = chance.choice((*outside, f"sub/{entry['file']}", "..\\x"))
    _put(folder, json.dumps(state))
    return f"file named {entry['file']!r:.40}"


FORGERIES: tuple[Alteration, ...] = (*(_fact, _fact, _fact, _text, _header, _header, _tensor, _tensor, _tensor, _path),)
