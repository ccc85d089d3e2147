"""Everything that can be chosen about the training of beacons; the defaults are the pocket model's."""

from dataclasses import dataclass
from pathlib import Path

from engine.beacons import RATIOS
from training.pocket.settings import PocketSettings


@dataclass(frozen=True)
class BeaconSettings:
    """Settings of one training run.

    Attributes:
        model: folder or hub id of the model the beacons are for.
        data: JSONL file with a {"text": ..., "question": ..., "answer": ...} a line; none for documents with facts and
            questions made on the spot, which is for the pocket model.
        out: file for the weights; none for beacon.safetensors beside the model. A card goes beside it.
        work_dir: checkpoint and loss log.
        pocket_dir, data_dir: where the tokenised prose of the pocket model's own training lies, or is to be made from;
            only without `data`.
        device: auto, cpu or cuda.
        resume: continue from the checkpoint in `work_dir`.
        seed: fixes weights, documents, their order and the ratios.
        window: tokens between two condensings, as the method will read; 0 for the method's own default.
        steps: length of the run.
        plain_share: part of the steps in the first phase, on plain text; the rest is on questions and answers.
        warmup: steps until the learning rates are reached; over the last two fifths of the run they fall.
        muon_rate, adam_rate: highest learning rates, of the projections and of all else.
        language: weight of plain next-token loss beside that of answers.
        batch: examples a step.
        max_tokens: longest example; a longer text is cut.
        held_out: examples that are not trained on but measured at the end.
        checkpoint_seconds: time between checkpoints.
    """

    model: str = "assets/pocket"
    data: Path | None = None
    out: Path | None = None
    work_dir: Path = Path("runs/beacon")
    pocket_dir: Path = PocketSettings.work_dir
    data_dir: Path = PocketSettings.data_dir
    device: str = "auto"
    resume: bool = False
    seed: int = 20
    window: int = 0
    steps: int = 1800
    plain_share: float = 0.3
    warmup: int = 30
    muon_rate: float = 2e-2
    adam_rate: float = 3e-3
    language: float = 0.1
    batch: int = 2
    max_tokens: int = 1024
    held_out: int = 16
    checkpoint_seconds: float = 120.0

    def __post_init__(self) -> None:
        for name in ("steps", "batch", "held_out"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be 1 or more, not {getattr(self, name)}")
        for name in ("muon_rate", "adam_rate"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} must be positive, not {getattr(self, name)}")
        if not 0 <= self.warmup < self.steps:
            raise ValueError(f"warmup must lie between 0 and steps ({self.steps}), not {self.warmup}")
        if not 0 <= self.plain_share <= 1:
            raise ValueError(f"plain_share must lie between 0 and 1, not {self.plain_share}")
        if self.language < 0:
            raise ValueError(f"language must not be negative, and is {self.language}")
        if self.window < 0 or self.window % RATIOS[-1]:
            raise ValueError(f"window must be a multiple of the largest ratio, {RATIOS[-1]}, not {self.window}")
        if self.max_tokens < 256:
            raise ValueError(f"max_tokens must be 256 or more, not {self.max_tokens}")
