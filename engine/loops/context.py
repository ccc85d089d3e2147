"""A context: a finished reading, immutable and shared by all conversations over it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from engine.errors import ContextMismatch
from engine.memory import Memory
from engine.memory_usage import oom_as_engine_error
from engine.methods.base import Method
from engine.model import Model
from engine.models.spec import ModelSpec
from engine.records import LoadedParts, Parts, Usage

STATE_VERSION = 3


def fingerprint(
    model: str, spec: ModelSpec, method: Method, ids: Tensor, settings: Mapping[str, Any] | None = None
) -> str:
    """Hash everything that a saved state depends on: model, tokenizer, method, settings, weights and tokens.

    Args:
        model: the model's own fingerprint.
        spec: the sizes of the model.
        method: the method that reads.
        ids: int64 [T], the text.
        settings: the method's settings at the time of the saved state, which may be fewer than today. None for today's.

    Raises:
        SettingsError: the method needs trained weights, and none fit this model.
    """
    digest = hashlib.sha256()
    settings = method.settings() if settings is None else dict(settings)
    facts = [STATE_VERSION, model, method.name, settings, method.weights_digest(spec)]
    digest.update(json.dumps(facts, sort_keys=True).encode())
    digest.update(ids.cpu().int().numpy().tobytes())
    return digest.hexdigest()


@dataclass(frozen=True)
class Context:
    """The memory of a text after its reading.

    Attributes:
        source_tokens: length of the text in tokens.
        usual: the attention that an empty question gives to the text, float32 [source tokens]; empty until the first
            question, which counts it for all conversations.
    """

    model: Model
    method: Method
    memory: Memory
    source_tokens: int
    usual: list[Tensor] = field(default_factory=list, compare=False, repr=False)

    def usage(self) -> Usage:
        """Return entries and bytes per tier."""
        return self.memory.usage()

    def remembered(self) -> Tensor:
        """Return the share of KV heads that hold each token of the text; see `Memory.remembered`."""
        return self.memory.remembered(self.source_tokens)

    def state(self) -> tuple[Parts, dict[str, Any]]:
        """Return tensors and JSON-able facts for disk."""
        parts, meta = self.memory.state()
        return parts, {"memory": meta, "source_tokens": self.source_tokens, "done": self.source_tokens}

    @classmethod
    def load(
        cls, model: Model, method: Method, parts: LoadedParts, meta: dict[str, Any], *, unfinished: bool = False
    ) -> Context:
        """Load a saved context. The caller compares fingerprints first.

        Args:
            model: the model of the context.
            method: the method that read it.
            parts: tensors by part.
            meta: the facts that `state` returned.
            unfinished: accept a checkpoint of a reading, to ask about the part that was read.

        Raises:
            ContextMismatch: the reading is not finished, or tensors do not fit the model.
        """
        if "reader" in meta and not unfinished:
            raise ContextMismatch("This reading is not finished: resume it first.")
        memory = new_memory(model, method)
        restore(memory, parts, meta["memory"])
        return cls(model, method, memory, int(meta["source_tokens"]))


def new_memory(model: Model, method: Method) -> Memory:
    """Return an empty memory of a method for a model."""
    return method.new_memory(model.spec, model.turn_length)


def restore(memory: Memory, parts: LoadedParts, meta: dict[str, Any]) -> None:
    """Fill a memory from saved tensors.

    Raises:
        ContextMismatch: names or shapes do not fit this method and model.
        OutOfMemory: the tensors do not fit.
    """
    try:
        _check_shapes(memory.spec, parts)
        with oom_as_engine_error(memory.spec.device, "while what was saved was opened"):
            memory.load(parts, meta)
    except (KeyError, IndexError, RuntimeError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise ContextMismatch(f"The saved state does not fit this model and method ({error}): read again.") from error


def _check_shapes(spec: ModelSpec, parts: LoadedParts) -> None:
    """Raise ValueError if tensors that are used as they are, and not copied into others, do not fit the model."""
    hidden = parts.get("slots", {}).get("last_hidden")
    if hidden is not None and spec.projections and hidden.shape != (spec.projections[0].inputs,):
        raise ValueError(f"a hidden state of {tuple(hidden.shape)}")
    for name in (name for name in parts if name.startswith("host-")):
        entries = parts[name]["source"].shape
        for layer, own in enumerate(spec.looking_far.layers):
            for bank, heads in (("keys", own.kv_heads), ("values", own.value_heads)):
                rows = parts[name].get(f"{layer}.{bank}")
                if rows is None:
                    continue
                fits = rows.dim() == 3 and rows.shape[0] >= heads and rows.shape[1:2] == entries
                if not fits or not rows.is_floating_point():
                    raise ValueError(f"{bank} of {tuple(rows.shape)} in layer {layer}, {rows.dtype}")
    far = [number for number, layer in enumerate(spec.layers) if layer.sliding_window is None]
    for part in parts.values():
        units = [part[f"{layer}.units"] for layer in far if f"{layer}.units" in part]
        if len({len(tensor) for tensor in units if tensor.dim()}) > 1:
            raise ValueError("units of several numbers")
