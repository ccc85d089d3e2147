"""Settings that every training for a frozen model has."""

from dataclasses import dataclass
from pathlib import Path

from engine.models.sizes import QUANTIZATIONS
from training.checks import check_least, check_numbers
from training.pocket.settings import ROOT, PocketSettings


@dataclass(frozen=True)
class TrainingSettings:
    """Settings that every training for a frozen model has.

    Attributes:
        model: folder or hub id of the model the weights are for.
        data: JSONL file with a {"text": ..., "question": ..., "answer": ...} a line; without it, documents with facts
            and questions are made on the spot, which is for the pocket model.
        out: file for the weights, instead of METHOD.safetensors beside the model. A card goes beside it. What is there
            already is kept beside it, with .before in front of its ending.
        work_dir: folder of checkpoint and loss log.
        pocket_dir: folder of the tokenised prose of the pocket model's own training; only without `data`.
        data_dir: folder with the books that this prose is made from, where it is not there.
        device: auto, cpu or cuda.
        quantize: none, 8bit or nf4: what the model's weights are kept in while others are trained for it; beacons take
            only none.
        resume: continue from the checkpoint in `work_dir`.
        seed: fixes weights, documents, their order, and all else that is drawn.
        steps: length of the run.
        warmup: steps until the learning rate is reached.
        batch: examples a step.
        max_tokens: longest example; a longer text is cut.
        held_out: examples that are not trained on but measured at the end.
        checkpoint_seconds: time between checkpoints.
    """

    model: str = str(PocketSettings.out_dir)
    data: Path | None = None
    out: Path | None = None
    work_dir: Path = ROOT / "runs" / "training"
    pocket_dir: Path = PocketSettings.work_dir
    data_dir: Path = PocketSettings.data_dir
    device: str = "auto"
    quantize: str = "none"
    resume: bool = False
    seed: int = 20
    steps: int = 1000
    warmup: int = 30
    batch: int = 1
    max_tokens: int = 1024
    held_out: int = 16
    checkpoint_seconds: float = 120.0

    def __post_init__(self) -> None:
        check_numbers(self)
        check_least(self, 1, "steps", "batch", "held_out")
        check_least(self, 256, "max_tokens")
        if self.quantize not in QUANTIZATIONS:
            raise ValueError(f"quantize must be one of {', '.join(QUANTIZATIONS)}, not {self.quantize}")
        if not 0 <= self.warmup < self.steps:
            raise ValueError(f"warmup must lie between 0 and steps ({self.steps}), not {self.warmup}")
