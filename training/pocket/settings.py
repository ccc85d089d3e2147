"""Settings of a training run; the defaults are those of the shipped model."""

from dataclasses import dataclass
from pathlib import Path

from training.checks import check_least, check_numbers, check_positive

ROOT = Path(__file__).resolve().parents[2]
"""Of the repository: the folders that are named nowhere else lie there, wherever the command is given."""


@dataclass(frozen=True)
class PocketSettings:
    """Settings of one training run.

    Attributes:
        data_dir: folder with books/ and qa/.
        out_dir: where the finished model goes; a pocket model that is there is kept beside it, as NAME.old.
        work_dir: folder of tokenised prose, checkpoint and loss log.
        minutes: length of the run; ignored when `tokens` is set.
        tokens: length of the run in tokens, for runs that must be repeatable to the last bit; 0 to go by minutes.
        start: folder of a finished model to go on from, in the ladder's last stages; its shape and tokenizer stay.
        blend: with `start`, how far from it toward the trained weights the finished ones lie, 0 to 1: the two together
            know what either knows better (WiSE-FT, arXiv 2109.01903).
        resume: continue from the checkpoint in `work_dir`.
        seed: fixes weights, documents and their order.
        vocabulary: entries of the tokenizer.
        width: of the hidden states.
        layers: of the network.
        heads: query heads of a layer.
        kv_heads: key-value heads of a layer.
        head_size: width of a query, key or value.
        inner: width of the MLPs.
        window: tokens that the model learns to read at a time.
        muon_rate: learning rate of the matrices.
        adam_rate: learning rate of all else.
        checkpoint_seconds: time between checkpoints.
        workers: training processes of one thread each; the result depends on their number.
        autocast: matrix products in bfloat16: a fifth to a third less time where the processor has them; the
            weights differ.
        scale: multiplies rows a step (small values make tests quick).
    """

    data_dir: Path = ROOT.parent / "shared" / "data"
    out_dir: Path = ROOT / "assets" / "pocket"
    work_dir: Path = ROOT / "runs" / "pocket"
    minutes: float = 90.0
    tokens: int = 0
    start: Path | None = None
    blend: float = 0.85
    resume: bool = False
    seed: int = 20
    vocabulary: int = 4096
    width: int = 192
    layers: int = 4
    heads: int = 6
    kv_heads: int = 3
    head_size: int = 48
    inner: int = 576
    window: int = 2048
    muon_rate: float = 2e-2
    adam_rate: float = 3e-3
    checkpoint_seconds: float = 120.0
    workers: int = 2
    autocast: bool = False
    scale: float = 1.0

    def __post_init__(self) -> None:
        check_numbers(self)
        check_least(self, 1, "width", "layers", "heads", "kv_heads", "inner", "workers")
        check_positive(self, "head_size", "muon_rate", "adam_rate", "scale")
        check_least(self, 0, "tokens")
        if self.heads % self.kv_heads:
            raise ValueError(f"heads ({self.heads}) must be a multiple of kv_heads ({self.kv_heads})")
        if self.width % self.heads:
            raise ValueError(f"width ({self.width}) must be a multiple of heads ({self.heads})")
        if self.head_size % 2:
            raise ValueError(f"head_size must be even for RoPE, not {self.head_size}")
        if not 300 <= self.vocabulary <= 65535:
            raise ValueError(f"vocabulary must lie between 300 and 65535, not {self.vocabulary}")
        if self.tokens <= 0 and self.minutes <= 0:
            raise ValueError(f"one of tokens and minutes must be positive, not {self.tokens} and {self.minutes}")
        if not 0 <= self.blend <= 1:
            raise ValueError(f"blend must lie between 0 and 1, not {self.blend}")
        if self.window < 64:
            raise ValueError(f"window must be at least 64 tokens, not {self.window}")

    @property
    def weights(self) -> int:
        """Weights of a network of this shape."""
        attention = 2 * self.width * self.head_size * (self.heads + self.kv_heads)
        return self.vocabulary * self.width + self.layers * (attention + 3 * self.width * self.inner)
