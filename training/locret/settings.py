"""Everything that can be chosen about the training of retaining heads; the defaults are the paper's."""

from dataclasses import dataclass
from pathlib import Path

from training.pocket.settings import PocketSettings


@dataclass(frozen=True)
class LocretSettings:
    """Settings of one training run.

    Attributes:
        model: folder or hub id of the model the heads are for.
        data: JSONL file with a {"text": ..., "question": ..., "answer": ...} a line; none for documents with facts and
            questions made on the spot, which is for the pocket model.
        out: file for the heads; none for locret.safetensors beside the model. A card goes beside it.
        work_dir: checkpoint and loss log.
        pocket_dir, data_dir: where the tokenised prose of the pocket model's own training lies, or is to be made from;
            only without `data`.
        device: auto, cpu or cuda.
        resume: continue from the checkpoint in `work_dir`.
        seed: fixes weights, documents and their order.
        steps: length of the run.
        warmup: steps until the learning rate is reached; it falls to nothing from there on.
        rate: highest learning rate.
        alpha: weight of the difference between neighbours' scores in the loss.
        batch: examples a step.
        queries: whose look at a token makes its label: those of the "answer", as in the paper, or of the "turn", the
            question included. A question here comes when its text has long been condensed, so what it looks for counts.
        width: of the heads' hidden layer; 0 for 1024, or a quarter of what goes in where that is less.
        max_tokens: longest example; a longer text is cut.
        chunk: tokens that pass through model or heads at a time, which bounds memory and changes nothing else.
        held_out: examples that are not trained on but measured at the end.
        checkpoint_seconds: time between checkpoints.
    """

    model: str = "assets/pocket"
    data: Path | None = None
    out: Path | None = None
    work_dir: Path = Path("runs/locret")
    pocket_dir: Path = PocketSettings.work_dir
    data_dir: Path = PocketSettings.data_dir
    device: str = "auto"
    resume: bool = False
    seed: int = 20
    steps: int = 3000
    warmup: int = 2000
    rate: float = 5e-4
    alpha: float = 0.0025
    batch: int = 1
    queries: str = "answer"
    width: int = 0
    max_tokens: int = 10240
    chunk: int = 1024
    held_out: int = 16
    checkpoint_seconds: float = 120.0

    def __post_init__(self) -> None:
        for name in ("steps", "batch", "chunk", "held_out"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be 1 or more, not {getattr(self, name)}")
        if not 0 <= self.warmup < self.steps:
            raise ValueError(f"warmup must lie between 0 and steps ({self.steps}), not {self.warmup}")
        if self.rate <= 0:
            raise ValueError(f"rate must be positive, not {self.rate}")
        if self.alpha < 0:
            raise ValueError(f"alpha must not be negative, and is {self.alpha}")
        if self.max_tokens < 256:
            raise ValueError(f"max_tokens must be 256 or more, not {self.max_tokens}")
        if self.queries not in ("answer", "turn"):
            raise ValueError(f"queries must be answer or turn, not {self.queries}")
        if self.width < 0:
            raise ValueError(f"width must be positive, or 0 to choose by itself, not {self.width}")
