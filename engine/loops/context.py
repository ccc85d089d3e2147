"""A context: a finished reading, immutable and shared by all conversations over it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
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
    """A hash of all that a saved state depends on: model, tokenizer, method, settings, weights, tokens.

    Args:
        model: its own fingerprint.
        settings: of the method, as they were kept when the state was made: it may have others besides by now. None for
            those of today.

    Raises:
        SettingsError: the method needs trained weights, and there are none that fit this model.
    """
    digest = hashlib.sha256()
    settings = method.settings() if settings is None else dict(settings)
    facts = [STATE_VERSION, model, method.name, settings, method.weights_digest(spec)]
    digest.update(json.dumps(facts, sort_keys=True).encode())
    digest.update(ids.cpu().int().numpy().tobytes())
    return digest.hexdigest()


@dataclass(frozen=True)
class Context:
    """What a model remembers of a text. source_tokens: length of the text in tokens."""

    model: Model
    method: Method
    memory: Memory
    source_tokens: int

    def usage(self) -> Usage:
        """Entries and bytes per tier."""
        return self.memory.usage()

    def remembered(self) -> Tensor:
        """Of each token of the text, the share of KV heads that hold an entry of it: `Memory.remembered`."""
        return self.memory.remembered(self.source_tokens)

    def state(self) -> tuple[Parts, dict[str, Any]]:
        """To disk: tensors and JSON-able facts."""
        parts, meta = self.memory.state()
        return parts, {"memory": meta, "source_tokens": self.source_tokens, "done": self.source_tokens}

    @classmethod
    def load(
        cls, model: Model, method: Method, parts: LoadedParts, meta: dict[str, Any], *, unfinished: bool = False
    ) -> Context:
        """From disk. The caller compares fingerprints first.

        Args:
            unfinished: what had been read at a reading's checkpoint will do, to be asked and not to be read on.

        Raises:
            ContextMismatch: a reading that is not finished, or tensors that do not fit the model.
        """
        if "reader" in meta and not unfinished:
            raise ContextMismatch("This reading is not finished: resume it first.")
        memory = new_memory(model, method)
        restore(memory, parts, meta["memory"])
        return cls(model, method, memory, int(meta["source_tokens"]))


def new_memory(model: Model, method: Method) -> Memory:
    """An empty memory of a method for a model."""
    return method.new_memory(model.spec, model.turn_length)


def restore(memory: Memory, parts: LoadedParts, meta: dict[str, Any]) -> None:
    """Fill a memory from saved tensors.

    Raises:
        ContextMismatch: names or shapes that this method and model do not have.
        OutOfMemory: there is no room for it.
    """
    try:
        with oom_as_engine_error(memory.spec.device, "while what was saved was opened"):
            memory.load(parts, meta)
    except (KeyError, IndexError, RuntimeError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise ContextMismatch(f"The saved state does not fit this model and method ({error}): read again.") from error
