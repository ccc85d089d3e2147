"""Settings of the training of beacons; the defaults are the pocket model's."""

from dataclasses import dataclass
from pathlib import Path

from engine.trained.beacons import RATIOS
from training.checks import check_least, check_positive
from training.pocket.settings import ROOT
from training.settings import TrainingSettings


@dataclass(frozen=True)
class BeaconSettings(TrainingSettings):
    """Settings of the training of beacons.

    Attributes:
        start: folder of an earlier version of the model with beacons beside it, whose learning these begin with.
        window: tokens between two condensings, as the method will read; 0 for the method's own default.
        plain_share: part of the steps in the first phase, on plain text; the rest is on questions and answers.
        muon_rate: highest learning rate of the projections; over the last two fifths of the run it falls.
        adam_rate: highest learning rate of all else, which falls with it.
        language: weight of plain next-token loss beside that of answers.
    """

    work_dir: Path = ROOT / "runs" / "beacon"
    steps: int = 1800
    batch: int = 2
    start: Path | None = None
    window: int = 0
    plain_share: float = 0.5
    muon_rate: float = 2e-2
    adam_rate: float = 3e-3
    language: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.quantize != "none":
            raise ValueError(
                f"beacons start from the model's own projections as they are, so quantize must be none, not "
                f"{self.quantize}"
            )
        check_positive(self, "muon_rate", "adam_rate")
        if not 0 <= self.plain_share <= 1:
            raise ValueError(f"plain_share must lie between 0 and 1, not {self.plain_share}")
        check_least(self, 0, "language")
        if self.window < 0 or self.window % RATIOS[-1]:
            raise ValueError(f"window must be a multiple of the largest ratio, {RATIOS[-1]}, not {self.window}")
