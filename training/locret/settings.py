"""Settings of the training of retaining heads; the defaults are the paper's."""

from dataclasses import dataclass
from pathlib import Path

from training.checks import check_least, check_positive
from training.pocket.settings import ROOT
from training.settings import TrainingSettings

RECONSTRUCTION = "reconstruction"
LABELS = ("answer", "turn", RECONSTRUCTION)


@dataclass(frozen=True)
class LocretSettings(TrainingSettings):
    """Settings of the training of retaining heads. No example is longer than the model's own window.

    Attributes:
        rate: highest learning rate; from the end of the warm-up on it falls to nothing.
        alpha: weight of the difference between neighbours' scores in the loss.
        labels: source of a token's label: attention of the "answer", as in the paper; of the whole "turn", because a
            question here comes when its text has long been condensed; or of a "reconstruction", where the text is
            repeated behind itself. That one needs no questions.
        window: tokens of the text that a reconstruction repeats at a time.
        parts: optimiser steps a reading, each for one part of the example. A reading costs more than a step, so several
            learn faster; the paper makes one.
        passes: times that all parts are gone through.
        measure_every: steps between two measurements of the held-out examples; 0 for one at the end.
        width: of the heads' hidden layer; 0 for 1024, or a quarter of the input width if that is less.
        chunk: tokens that pass through model or heads at a time, which bounds memory and changes nothing else.
    """

    work_dir: Path = ROOT / "runs" / "locret"
    steps: int = 3000
    warmup: int = 2000
    max_tokens: int = 10240
    rate: float = 5e-4
    alpha: float = 0.0025
    labels: str = "answer"
    window: int = 512
    parts: int = 1
    passes: int = 1
    measure_every: int = 0
    width: int = 0
    chunk: int = 1024

    def __post_init__(self) -> None:
        super().__post_init__()
        check_least(self, 1, "chunk", "window", "parts", "passes")
        check_positive(self, "rate")
        check_least(self, 0, "alpha", "width", "measure_every")
        if self.labels not in LABELS:
            raise ValueError(f"labels must be one of {', '.join(LABELS)}, not {self.labels}")
