"""The manifest of a saved state, and the schema it is checked against before use.

It lists the parts. Each has its file, its size, its checksums, and the name, dtype and shape of its tensors.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Callable
from typing import Any

LAYOUT = 2
MOST_BYTES = 256 << 20  # largest manifest; a million tokens take some hundred thousand bytes
MOST_DEPTH = 32
PART = re.compile(r"[a-z0-9_-][a-z0-9._-]{0,99}")
_FILE = re.compile(rf"{PART.pattern}\.\d{{6,12}}\.safetensors")
_ITEM_BYTES = {
    **dict.fromkeys(("float64", "int64"), 8),
    **dict.fromkeys(("float32", "int32"), 4),
    **dict.fromkeys(("float16", "bfloat16", "int16"), 2),
    **dict.fromkeys(("uint8", "int8", "bool", "float8_e4m3fn", "float8_e5m2"), 1),
}
_MOST_ELEMENTS = 1 << 48


def parsed(data: bytes) -> dict[str, Any]:
    """Return the state described by the bytes of a manifest. Only the current layout is checked in full.

    Raises:
        ValueError: the bytes are damaged or do not fit the schema.
    """
    if len(data) > MOST_BYTES:
        raise ValueError(f"it has {len(data):,} bytes")
    whole = _object(_json(data), {"sha256": _is_text, "state": _is_text}, "it")
    if hashlib.sha256(whole["state"].encode(errors="surrogatepass")).hexdigest() != whole["sha256"]:
        raise ValueError("its checksum differs")
    state = _json(whole["state"])
    _require(isinstance(state, dict) and _is_number(state.get("version")), "it names no layout")
    if state["version"] != LAYOUT:
        return dict(state)
    _object(state, {"generation": _is_number, "fingerprint": _is_text, "meta": _is_object, "parts": _is_object}, "it")
    _require(_depth(state["meta"]) <= MOST_DEPTH, f"its facts are nested deeper than {MOST_DEPTH} levels")
    for name, entry in state["parts"].items():
        _require(bool(PART.fullmatch(name)), f"{name[:100]!r} names no part")
        _check_part(name, entry)
    return dict(state)


def _check_part(name: str, entry: Any) -> None:
    facts: dict[str, Callable[[Any], bool]] = {
        "file": lambda value: _is_text(value) and bool(_FILE.fullmatch(value)),
        "bytes": lambda value: _is_number(value) and value >= 8,
        "header_crc32": _is_crc32,
        "crc32": _is_crc32,
        "sealed": lambda value: isinstance(value, bool),
        "tensors": _is_object,
    }
    _object(entry, facts, f"part {name}")
    held = 0
    for tensor, kind in entry["tensors"].items():
        good = isinstance(kind, list) and len(kind) == 2 and _is_text(kind[0]) and isinstance(kind[1], list)
        _require(
            good and len(kind[1]) <= 8 and all(map(_is_number, kind[1])), f"part {name}: {tensor[:100]!r} has no shape"
        )
        size = _ITEM_BYTES.get(kind[0].removeprefix("torch."))
        _require(size is not None, f"part {name}: {tensor[:100]!r} is of type {kind[0][:40]!r}")
        _require(math.prod(kind[1]) <= _MOST_ELEMENTS, f"part {name}: {tensor[:100]!r} is too large")
        held += math.prod(kind[1]) * (size or 0)
    _require(held <= entry["bytes"], f"part {name}: its tensors have {held:,} bytes, its file {entry['bytes']:,}")


def _json(text: str | bytes) -> Any:
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deep") from None


def _object(value: Any, facts: dict[str, Callable[[Any], bool]], name: str) -> dict[str, Any]:
    _require(isinstance(value, dict), f"{name} is no object")
    for key, is_good in facts.items():
        _require(key in value and is_good(value[key]), f"{name} has no {key} that can be")
    found: dict[str, Any] = value
    return found


def _depth(value: Any) -> int:
    """Return the nesting depth of parsed JSON."""
    deepest, waiting = 0, [(value, 1)]
    while waiting:
        each, depth = waiting.pop()
        deepest = max(deepest, depth)
        inner = each.values() if isinstance(each, dict) else each if isinstance(each, list) else ()
        waiting += [(one, depth + 1) for one in inner if isinstance(one, dict | list)]
    return deepest


def _require(good: bool, message: str) -> None:
    if not good:
        raise ValueError(message)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_object(value: Any) -> bool:
    return isinstance(value, dict)


def _is_number(value: Any) -> bool:
    """Return whether a value is a count: an integer from 0 to 2**62 - 1."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 62


def _is_crc32(value: Any) -> bool:
    return _is_number(value) and value < 1 << 32
