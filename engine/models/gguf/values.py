"""Read single values of a GGUF header, with a sentence where one is missing or is no number of its kind."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from engine.errors import ModelNotFound
from engine.models.gguf.header import SHOWN, Header

Facts = dict[str, Any]  # settings of a config.json
MOST_TOKENS = 1 << 31  # of a window, which no weight is as wide as
WINDOWS = ("context_length", "sliding_window")  # ends of the keys of windows


def short(number: float) -> float:
    """Return the shortest decimal for a float32: 1e-05, not 9.999999747378752e-06."""
    return float(str(np.float32(number)))


def size(header: Header, key: str) -> int:
    """Return a size that a header must have; of a list by layers, the one number in it that is not 0.

    Raises:
        ModelNotFound: there is none, or it is no number above 0.
    """
    value = header.get(key)
    if isinstance(value, list):
        numbers = set(value) - {0}
        value = numbers.pop() if len(numbers) == 1 else value
    if not _counts(value) or value < 1:
        raise _wrong(header, key, value, "a number above 0")
    return _in_bounds(header, key, value)


def count(header: Header, key: str, default: int = 0) -> int:
    """Return a number of things that a header may leave out.

    Raises:
        ModelNotFound: it is none.
    """
    value = header.get(key, default)
    if not _counts(value) or value < 0:
        raise _wrong(header, key, value, "a number")
    return _in_bounds(header, key, value)


def number(header: Header, key: str, default: float | None = None) -> float:
    """Return a fraction that a header must have, unless there is a default.

    Raises:
        ModelNotFound: there is none, or it is neither above 0 nor the default.
    """
    value = header.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not (0 < value < math.inf or value == default):
        raise _wrong(header, key, value, "a number above 0")
    return short(value)


def layers(header: Header) -> int:
    """Return the number of layers, without those at the end that only predict several tokens at once (MTP).

    Raises:
        ModelNotFound: there is none, or no other layer.
    """
    ahead = count(header, "nextn_predict_layers")
    if (rest := size(header, "block_count") - ahead) < 1:
        raise ModelNotFound(f"{header.path} says that {ahead} of its {rest + ahead} layers look ahead: fetch it anew.")
    if rest > header.blocks:
        raise ModelNotFound(
            f"{header.path} says that it has {rest:,} layers, and holds weights of {header.blocks:,}: fetch it anew."
        )
    return rest


def by_layer(header: Header, key: str) -> list[int]:
    """Return one number for each layer, where a header says one for all or a list; yes is 1, and no is 0.

    Raises:
        ModelNotFound: there is neither, or the list is too short.
    """
    value, many = header.get(key), layers(header)
    each = value if isinstance(value, list) else [value] * many
    if len(each) < many or not all(isinstance(one, int) and one >= 0 for one in each):
        raise _wrong(header, key, value, "a number for each layer")
    return [_in_bounds(header, key, int(one)) for one in each[:many]]


def experts(header: Header) -> Facts:
    """Return how many experts there are, and how many a token is sent to."""
    return {
        "num_experts": size(header, "expert_count"),
        "num_experts_per_tok": size(header, "expert_used_count"),
    }


def has(header: Header, name: str) -> bool:
    """Return whether any layer has a tensor of this name: "attn_q.bias"."""
    return any(f"blk.{layer}.{name}" in header.tensors for layer in range(layers(header)))


def _in_bounds(header: Header, key: str, value: int) -> int:
    """Return a count, or raise ModelNotFound if no weight in the file is that large."""
    most = MOST_TOKENS if key.endswith(WINDOWS) else max(header.widest, header.blocks)
    if value > most:
        raise _wrong(header, key, value, f"no more than {most:,}")
    return value


def _wrong(header: Header, key: str, value: object, wanted: str) -> ModelNotFound:
    name = f"{header.architecture}.{key}"
    return ModelNotFound(f"{header.path} says {name}: {value!s:.{SHOWN}}, and it must be {wanted}: fetch it anew.")


def _counts(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
