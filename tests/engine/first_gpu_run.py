"""Measured figures of the first GPU run, to compare plans with: an H200 held to 24 GiB, Llama-3.1-8B's shape in NF4.

PyTorch 2.11, Triton 3.6, bitsandbytes 0.50; noise for weights and text. Later code takes fewer kernels.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from engine.planning.rates import Rates

PASS_THEN = {"infinitehip": 960}  # tokens of a pass, where it may be longer today


def rates(operation_sec: float) -> Rates:
    """Return the rates of the machine. Its host had two speeds, in two runs of the check."""
    return Rates(6.5e14, 4.0e12, 5.38e10, 2e12, 2e11, operation_sec)


FIRST, SECOND = rates(9.39e-6), rates(11.7e-6)


class Measured(NamedTuple):
    """One row of the check.

    Attributes:
        method: its name in the tables.
        tokens: of the text.
        rates: of the run.
        read: tokens that were read to measure the speed, most of them at the beginning of the text.
        reading: tokens/s over them.
        answering: tokens/s of an answer of 32 tokens; None if passes were recorded within it.
        peak: bytes on the device while the text was read.
        first: seconds to the first token of an answer to a question of 50 tokens.
    """

    method: str
    tokens: int
    rates: Rates
    read: int
    reading: float
    answering: float | None
    peak: int
    first: float | None


ROWS = [
    Measured("truncate", 65536, FIRST, 1792, 26960.0, 109.7, 6502383104, 0.194),
    Measured("full", 65536, FIRST, 65613, 11302.4, 57.7, 19167717888, 0.175),
    Measured("locret", 65536, FIRST, 59392, 14524.6, 98.8, 8073074176, 0.197),
    Measured("streaming", 65536, FIRST, 65613, 13634.0, 90.1, 7443089920, 0.291),
    Measured("infinitehip", 65536, SECOND, 18496, 2703.8, 8.07, 6657067520, 0.504),
    Measured("infinitehip", 262144, SECOND, 22592, 2328.7, None, 6706907648, 0.361),
    Measured("infllm", 65536, SECOND, 32768, 5706.0, 6.91, 8348438016, 0.308),
    Measured("infllm", 262144, SECOND, 36864, 5508.3, None, 8449068544, 0.332),
    Measured("locret", 65536, SECOND, 65613, 17695.1, 100.0, 8169046016, 0.133),
    Measured("recall", 65536, SECOND, 32768, 9345.1, None, 8793056768, 0.353),
    Measured("exact", 65536, SECOND, 34816, 8150.1, 5.85, 8339293696, 1.101),
    Measured("exact", 262144, SECOND, 38912, 8027.5, None, 8339293696, None),
    Measured("exact-sketched", 65536, SECOND, 32768, 8243.8, 29.3, 8307889664, 0.661),
]
SETTINGS: dict[str, dict[str, Any]] = {
    **{name: {"looks": 1, "store": "int4", "tier": "host"} for name in ("infinitehip", "infllm", "recall", "exact")},
    "exact-sketched": {"preset": "sketched", "looks": 1, "store": "int4", "tier": "host"},
}
