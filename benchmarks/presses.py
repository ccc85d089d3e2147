"""kvpress's methods, run by its own package (https://github.com/NVIDIA/kvpress) on stock transformers.

A press shortens the KV cache of a text that was read in one piece with full attention. So the whole text must fit the
model's window and the memory. The package is an optional extra. kvpress 0.5.5 declares transformers < 5.3, because
newer versions no longer pass `cache_position` to attention layers. It is passed here, and the presses below then run
unchanged.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import time
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, DynamicCache
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from engine import Model
from engine.models.attention_interface import IMPLEMENTATION

PRESSES = {
    "snapkv": "SnapKVPress",
    "expected-attention": "ExpectedAttentionPress",
    "keydiff": "KeyDiffPress",
    "kvzip": "KVzipPress",
    "random": "RandomPress",
}
HINT = "pip install --no-deps kvpress==0.5.5, then requests, fire<0.7, cachetools<6 and datasets"


class NoPresses(Exception):
    """kvpress cannot be imported; the message says why."""


def load_kvpress() -> Any:
    """Import and return kvpress.

    On import it wraps all attention functions of transformers, including the engine's, which has another signature; the
    engine's is restored.

    Raises:
        NoPresses: it cannot be imported.
    """
    ours = ALL_ATTENTION_FUNCTIONS[IMPLEMENTATION]
    try:
        kvpress: Any = importlib.import_module("kvpress")
    except ImportError as error:
        raise NoPresses(f"kvpress cannot be imported ({error}). {HINT}.") from error
    ALL_ATTENTION_FUNCTIONS[IMPLEMENTATION] = ours
    for name in ("kvzip_press", "base_press"):
        logging.getLogger(f"kvpress.presses.{name}").setLevel(logging.ERROR)
    return kvpress


@dataclass
class Pressed:
    """A text in the cache of a stock model. `length` is the text's length, where positions of questions continue."""

    network: Any
    cache: Any
    length: int
    stop_ids: frozenset[int]

    def held(self) -> float:
        """Return entries per KV head and layer, on average; entries that a press masks but keeps in memory do not
        count.
        """
        entries = heads = 0
        for layer, block in zip(self.cache.layers, self.network.model.layers, strict=True):
            hidden = getattr(block.self_attn, "masked_key_indices", None)
            heads += layer.keys.shape[1]
            entries += layer.keys.shape[1] * layer.keys.shape[2] - (0 if hidden is None else len(hidden[2]))
        return entries / heads

    def answer(self, turn: list[int], most: int) -> tuple[list[int], float]:
        """Return greedy tokens after a turn's tokens, and seconds; the cache is restored afterwards."""
        started = time.perf_counter()
        before = [layer.keys.shape[2] for layer in self.cache.layers]
        found: list[int] = []
        position, pending = self.length, torch.tensor([turn])
        while len(found) < most:
            places = torch.arange(position, position + pending.shape[1])[None]
            with torch.no_grad():
                output = self.network(
                    input_ids=pending, past_key_values=self.cache, position_ids=places, logits_to_keep=1
                )
            token = int(output.logits[0, -1].argmax())
            if token in self.stop_ids:
                break
            found.append(token)
            position, pending = position + pending.shape[1], torch.tensor([[token]])
        seconds = time.perf_counter() - started
        for layer, length in zip(self.cache.layers, before, strict=True):
            layer.keys, layer.values = layer.keys[:, :, :length], layer.values[:, :, :length]
        return found, seconds


class Neighbours:
    """kvpress with the weights and tokenizer of one of our models, in a stock transformers model on the CPU."""

    def __init__(self, model: Model, folder: str, dtype: torch.dtype = torch.float32) -> None:
        """Load the stock model from `folder`, a folder or hub id, with weights of `dtype`.

        Raises:
            NoPresses: kvpress cannot be imported.
        """
        self.kvpress = load_kvpress()
        self.stop_ids = model.stop_ids
        self.network: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, attn_implementation="sdpa").train(
            False
        )

    def read(self, press: str | None, ids: Tensor, entries: int) -> tuple[Pressed, float]:
        """Read a text, keep `entries` entries, and return it with the seconds. press: name in PRESSES; None for full
        attention.
        """
        started = time.perf_counter()
        for block in self.network.model.layers:
            block.self_attn.masked_key_indices = None
        cache = DynamicCache()
        pressing: Any = contextlib.nullcontext()
        if press is not None and entries < len(ids):
            # kvpress takes the share to remove, and rounds the rest down.
            made = getattr(self.kvpress, PRESSES[press])(compression_ratio=1 - (entries + 0.5) / len(ids))
            pressing = made(self.network)
        with torch.no_grad(), pressing:
            self.network.model(input_ids=ids[None], past_key_values=cache, cache_position=torch.arange(len(ids)))
        return Pressed(self.network, cache, len(ids), self.stop_ids), time.perf_counter() - started
