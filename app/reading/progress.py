"""Progress of a reading, as the page, the command line and the job table show it."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import engine


@dataclass(frozen=True)
class Report:
    """Progress of a reading; kept with its job and in measurements.

    stage: the present work, in words.
    tokens_done, tokens_total: tokens of the text.
    seconds_left: None while unknown.
    usage: entries and bytes, from `usage_json`.
    """

    stage: str
    tokens_done: int = 0
    tokens_total: int = 0
    seconds: float = 0.0
    seconds_left: float | None = None
    tokens_per_second: float = 0.0
    usage: dict[str, Any] = field(default_factory=dict)


def usage_json(usage: "engine.Usage") -> dict[str, Any]:
    """Return entries (per KV head and layer) and bytes by tier, traffic of the device cache and counts of stages."""
    tiers = ("device", "host", "disk")
    return {
        "entries": {tier: int(usage.entries.get(tier, 0)) for tier in tiers},
        "bytes": {tier: int(usage.bytes.get(tier, 0)) for tier in tiers},
        "traffic": dict(usage.traffic),
        "stages": list(usage.stages),
    }
