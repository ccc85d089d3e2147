"""Sizes of quantised layers, and the forms of quantised checkpoints that are loaded."""

from __future__ import annotations

import importlib.util
import math
from dataclasses import dataclass
from typing import Any

from transformers import PretrainedConfig

from engine.errors import UnsupportedModel
from engine.models.load_errors import load_errors_as

BLOCK, NESTED = 64, 256  # weights that share a constant, and constants that share a constant of the second level
CODE, NESTED_TABLES = (
    4 * 16,
    4 * (256 + 1),
)  # bytes per layer: table of codes; table of the constants' codes, and their offset
OWN = "stockpot_"  # prefix of our names for quantisation of a plain checkpoint
BNB, MX = "bitsandbytes", "mxfp4"
FINEGRAINED, COMPRESSED = "fp8", "compressed-tensors"  # read as plain numbers (`fp8.py`)
PACKAGES: dict[str, tuple[str, ...]] = {  # needed to load checkpoints of each form
    "gptq": ("gptqmodel", "optimum", "accelerate"),
    "awq": ("gptqmodel", "accelerate"),
    BNB: (BNB, "accelerate"),
    MX: (),
}
NOT_UNDERSTOOD = "The quantization_config in its config.json cannot be understood"


def four_bit_bytes(weights: int, nested: bool = True) -> int:
    """Return the bytes of weights in 4 bits, with a constant for each 64.

    nested: constants are in 8 bits (QLoRA's double quantisation).
    """
    blocks = math.ceil(weights / BLOCK)
    constants = blocks + 4 * math.ceil(blocks / NESTED) + NESTED_TABLES if nested else 4 * blocks
    return math.ceil(weights / 2) + constants + CODE


def eight_bit_bytes(rows: int, columns: int) -> int:
    """Return the bytes of weights in 8 bits, with a float32 per row."""
    return rows * columns + 4 * rows


def described(config: PretrainedConfig) -> tuple[str, dict[str, Any]] | None:
    """Return the method and the details of a configuration's quantisation.

    None for a plain checkpoint, also after Stockpot has quantised it.

    Raises:
        UnsupportedModel: the quantization_config cannot be understood.
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
    """The quantised form of published weights. They stay in it."""

    method: str  # `quant_method` of config.json
    bits: int  # of a weight
    group: int | None = None  # neighbours in a row that share a scale; None: the whole row
    nested: bool = False  # bitsandbytes' constants are quantised too
    kept: tuple[str, ...] = ()  # modules that are not quantised

    @classmethod
    def of(cls, config: PretrainedConfig) -> Published | None:
        """Read a configuration; return None for a plain checkpoint, and for one in FP8.

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
        """True if only the experts of a mixture are quantised (`experts.py`)."""
        return self.method == MX

    def reaches(self, name: str) -> bool:
        """Return whether a linear layer of that name is quantised."""
        return not self.experts and not any(f".{each}." in f".{name}." for each in self.kept)

    def layer_bytes(self, rows: int, columns: int) -> int:
        """Return the bytes of a layer of `rows` outputs and `columns` inputs, codes and constants."""
        if self.method == BNB:
            return four_bit_bytes(rows * columns, self.nested) if self.bits == 4 else eight_bit_bytes(rows, columns)
        groups = math.ceil(columns / (self.group or columns))
        scales = rows * groups * (2 + self.bits / 8)  # a float16 scale, and a zero point of as many bits as a weight
        order = 4 * columns if self.method == "gptq" else 0  # which group each input belongs to
        return math.ceil(rows * columns * self.bits / 8 + scales) + order

    def require_packages(self) -> None:
        """Refuse a form that this machine lacks the packages for.

        Raises:
            UnsupportedModel: naming the packages that are missing.
        """
        missing = [name for name in PACKAGES[self.method] if importlib.util.find_spec(name) is None]
        if missing:
            raise UnsupportedModel(
                f"Its weights were published quantised as '{self.method}', which needs {' and '.join(missing)}: "
                f"pip install {' '.join(missing)}, or choose a plain checkpoint and --quantize."
            )
