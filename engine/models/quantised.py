"""Bytes of layers whose weights are quantised: by bitsandbytes as they are loaded, or by whoever published them."""

from __future__ import annotations

import importlib.util
import math
from dataclasses import dataclass
from typing import Any

from transformers import PretrainedConfig

from engine.errors import UnsupportedModel
from engine.models.load_errors import load_errors_as

BLOCK, NESTED = 64, 256  # weights that share a constant, and constants that share one of the second level
CODE, NESTED_TABLES = 4 * 16, 4 * (256 + 1)  # per layer: the code; the code of the constants and their offset; float32
OWN = "stockpot_"  # begins the names of what was a plain checkpoint until it was loaded
BNB, MX = "bitsandbytes", "mxfp4"
FINEGRAINED, COMPRESSED = "fp8", "compressed-tensors"  # plain numbers from when they are loaded (`fp8.py`)
PACKAGES: dict[str, tuple[str, ...]] = {  # what is needed for checkpoints that were published quantised
    "gptq": ("gptqmodel", "optimum", "accelerate"),
    "awq": ("gptqmodel", "accelerate"),
    BNB: (BNB, "accelerate"),
    MX: (),
}
NOT_UNDERSTOOD = "The quantization_config in its config.json cannot be understood"


def four_bit_bytes(weights: int, nested: bool = True) -> int:
    """Two weights a byte and a constant for each 64, itself in 8 bits if nested (QLoRA's double quantisation)."""
    blocks = math.ceil(weights / BLOCK)
    constants = blocks + 4 * math.ceil(blocks / NESTED) + NESTED_TABLES if nested else 4 * blocks
    return math.ceil(weights / 2) + constants + CODE


def eight_bit_bytes(rows: int, columns: int) -> int:
    """A byte a weight, a float32 per row."""
    return rows * columns + 4 * rows


def described(config: PretrainedConfig) -> tuple[str, dict[str, Any]] | None:
    """How a config says that weights are quantised, and all that it says of it; None for a plain checkpoint, and what
    was one until it was loaded.

    Raises:
        UnsupportedModel: it cannot be understood.
    """
    given: Any = getattr(config, "quantization_config", None)
    if given is None:
        return None
    with load_errors_as(UnsupportedModel, NOT_UNDERSTOOD):
        facts: dict[str, Any] = dict(given if isinstance(given, dict) else given.to_dict())
    # Configs of early versions of bitsandbytes do not name it.
    in_bits = facts.get("load_in_4bit") or facts.get("load_in_8bit")
    named = facts.get("quant_method", BNB if in_bits else "unknown")
    method = str(getattr(named, "value", named))
    return None if method.startswith(OWN) else (method, facts)


@dataclass(frozen=True)
class Published:
    """How the weights of a checkpoint were published quantised, and stay.

    method: as config.json's `quant_method` names it; bits: of a weight; group: neighbours in a row that share a scale,
    None for the whole row; nested: whether bitsandbytes' constants are quantised too; kept: modules left as they were.
    """

    method: str
    bits: int
    group: int | None = None
    nested: bool = False
    kept: tuple[str, ...] = ()

    @classmethod
    def of(cls, config: PretrainedConfig) -> Published | None:
        """What a config says; None for a plain checkpoint, and one in FP8.

        Raises:
            UnsupportedModel: another way of quantising, or one that is not described.
        """
        found = described(config)
        if found is None or found[0] in (FINEGRAINED, COMPRESSED):
            return None
        method, facts = found
        if method not in PACKAGES:
            known = ", ".join(sorted((*PACKAGES, FINEGRAINED, f"{COMPRESSED} in FP8")))
            raise UnsupportedModel(
                f"Its weights were published quantised as '{method}'; Stockpot loads {known}, or quantises a plain "
                f"checkpoint itself with --quantize."
            )
        with load_errors_as(UnsupportedModel, NOT_UNDERSTOOD):
            if method == BNB:
                kept = tuple(facts.get("llm_int8_skip_modules") or ())
                nested = bool(facts.get("bnb_4bit_use_double_quant"))
                return cls(method, 4 if facts.get("load_in_4bit") else 8, nested=nested, kept=kept)
            if method == MX:
                return cls(method, 4)
            group = int(facts.get("group_size", 128))
            kept = tuple(facts.get("modules_to_not_convert") or ())
            return cls(method, int(facts["bits"]), group if group > 0 else None, kept=kept)

    @property
    def experts(self) -> bool:
        """Whether it is the experts of a mixture that are quantised (`experts.py`), and nothing else."""
        return self.method == MX

    def reaches(self, name: str) -> bool:
        """Whether a linear layer of that name is quantised."""
        return not self.experts and not any(f".{each}." in f".{name}." for each in self.kept)

    def layer_bytes(self, rows: int, columns: int) -> int:
        """Bytes of a layer of so many outputs and inputs, with the constants beside its codes."""
        if self.method == BNB:
            return four_bit_bytes(rows * columns, self.nested) if self.bits == 4 else eight_bit_bytes(rows, columns)
        groups = math.ceil(columns / (self.group or columns))
        scales = rows * groups * (2 + self.bits / 8)  # a scale in float16 and a zero point in a weight's bits
        order = 4 * columns if self.method == "gptq" else 0  # which group each input belongs to
        return math.ceil(rows * columns * self.bits / 8 + scales) + order

    def require_packages(self) -> None:
        """Refuse what cannot be loaded on this machine.

        Raises:
            UnsupportedModel: naming the packages that are missing.
        """
        missing = [name for name in PACKAGES[self.method] if importlib.util.find_spec(name) is None]
        if missing:
            raise UnsupportedModel(
                f"Its weights were published quantised as '{self.method}', which needs {' and '.join(missing)}: "
                f"pip install {' '.join(missing)}, or choose a plain checkpoint and --quantize."
            )
