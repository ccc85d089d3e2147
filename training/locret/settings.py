"""Settings of the training of retaining heads; the defaults are the paper's."""

from dataclasses import dataclass
from pathlib import Path

from training.checks import check_least, check_positive
from training.pocket.settings import ROOT
from training.settings import TrainingSettings


@dataclass(frozen=True)
class LocretSettings(TrainingSettings):
    """Settings of the training of retaining heads. No example is longer than the model's own window.

    Attributes:
        rate: highest learning rate; from the end of the warm-up on it falls to nothing.
        alpha: weight of the difference between neighbours' scores in the loss.
        queries: whose look at a token makes its label: those of the "answer", as in the paper, or of the "turn", the
            question included. A question here comes when its text has long been condensed, so what it looks for counts.
        width: of the heads' hidden layer; 0 for 1024, or a quarter of the input width if that is less.
        chunk: tokens that pass through model or heads at a time, which bounds memory and changes nothing else.
    """

    work_dir: Path = ROOT / "runs" / "locret"
    steps: int = 3000
    warmup: int = 2000
    max_tokens: int = 10240
    rate: float = 5e-4
    alpha: float = 0.0025
    queries: str = "answer"
    width: int = 0
    chunk: int = 1024

    def __post_init__(self) -> None:
        super().__post_init__()
        check_least(self, 1, "chunk")
        check_positive(self, "rate")
        check_least(self, 0, "alpha", "width")
        if self.queries not in ("answer", "turn"):
            raise ValueError(f"queries must be answer or turn, not {self.queries}")
