"""Where a reading stands, in the words of the page, the command line and the job table."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import engine


@dataclass(frozen=True)
class Report:
    """Where a reading stands. Tokens are those of the text.

    Kept as a job's progress and in measurements; usage: as `usage_json` gives it.
    """

    stage: str
    tokens_done: int = 0
    tokens_total: int = 0
    seconds: float = 0.0
    seconds_left: float | None = None
    tokens_per_second: float = 0.0
    usage: dict[str, Any] = field(default_factory=dict)


def usage_json(usage: "engine.Usage") -> dict[str, Any]:
    """Entries (per KV head and layer) and bytes by tier; what a device cache did, and how often stages ran."""
    tiers = ("device", "host", "disk")
    return {
        "entries": {tier: int(usage.entries.get(tier, 0)) for tier in tiers},
        "bytes": {tier: int(usage.bytes.get(tier, 0)) for tier in tiers},
        "traffic": dict(usage.traffic),
        "stages": list(usage.stages),
    }
