"""Trains beacons for a frozen model: `train(BeaconSettings(...))`, or `python -m training.beacon --help`.

Activation Beacon (https://arxiv.org/abs/2401.03462), section 3.2: next-token loss of text read window by window. Each
window has a random ratio, and gradients flow through all windows. As in the authors' code there are two phases: plain
text, with larger ratios added over time, then questions and answers with small ratios. The projections start as copies
of the model's own; the embedding starts as that of the end-of-text token.

Unlike the authors' code: ratios are introduced in turn, projections are trained with Muon, and the learning rates suit
a small model and minutes of training.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from engine import Model, SettingsError, load_model
from engine.parts.evictors.beacon_windows import RAW
from engine.trained.beacons import FILE, KIND, RATIOS, Beacons, check_shapes, find_beacons
from engine.trained.sidecar_weights import require_possible, save_weights
from training import checkpoint, loop
from training.beacon.card import CARD
from training.beacon.examples import Example, Examples, check_lengths, open_examples, window_of
from training.beacon.settings import BeaconSettings
from training.beacon.unrolled import read_through
from training.card import write_card
from training.pocket.optimiser import Optimiser
from training.scoring import scored

ASKED_RATIOS = (2, 4, 8)  # ratios of the second phase
CURVES = {
    "loss": "loss of answers, nats a token; 0 where a step has none",
    "language_loss": "loss of plain text, nats a token; 0 where a step has none",
    "accuracy": "share of short answers that are right",
}  # columns of the log to draw beside the card


@dataclass(frozen=True)
class Progress:
    """One line of the log: losses in nats a token, share of right answers, seconds of training (pauses excluded)."""

    step: int
    fraction: float
    seconds: float
    tokens: int
    phase: str
    loss: float
    language_loss: float
    accuracy: float
    rate: float

    def in_words(self) -> str:
        """Return a line for people."""
        return (
            f"{self.fraction:6.1%} {self.phase} step {self.step}, {self.tokens / 1e6:.2f} M tokens, "
            f"{self.tokens / max(self.seconds, 1e-9):,.0f} tokens/s, loss {self.loss:.3f}, language "
            f"{self.language_loss:.3f}, right {self.accuracy:.0%}"
        )


@dataclass(frozen=True)
class Measured:
    """Results on held-out examples at one ratio: loss of answers in nats a token, and share of right answers."""

    ratio: int
    loss: float
    accuracy: float


@torch.no_grad()
def first_beacons(model: Model) -> Beacons:
    """Return initial beacons: copies of the model's projections, and the embedding of its end token.

    Raises:
        SettingsError: the model's weights are quantised.
    """
    beacons = Beacons(model.spec).to(model.device)
    base = model.network.base_model
    for name, own in zip(beacons.names, beacons.projections, strict=True):
        original = base.get_submodule(name)
        for part, weight in own.named_parameters():
            source = getattr(original, part)
            if source.shape != weight.shape or not source.is_floating_point():
                raise SettingsError("Beacons start from the model's own projections: load it without quantising.")
            weight.copy_(source)
    end = model.tokenizer.eos_token_id
    ids = torch.tensor([min(model.stop_ids) if end is None else int(end)], device=model.device)
    beacons.embedding.weight.copy_(model.network.get_input_embeddings()(ids))
    return beacons


@torch.no_grad()
def learn_from(beacons: Beacons, start: Path) -> None:
    """Add the trained difference of an earlier version's beacons from that version's own projections.

    Raises:
        EngineError: that version cannot be loaded, has no beacons, or has other shapes.
    """
    earlier = load_model(str(start), device="cpu")
    before, learned = first_beacons(earlier).named_weights(), find_beacons(earlier.spec, "").named_weights()
    ours = beacons.named_weights()
    shapes, wanted = ({name: tuple(weight.shape) for name, weight in each.items()} for each in (learned, ours))
    check_shapes(shapes, wanted, str(start))
    for name, weight in ours.items():
        weight += (learned[name] - before[name]).to(weight)


class Run(loop.Run[Progress]):
    """A training run of beacons."""

    settings: BeaconSettings

    def __init__(self, settings: BeaconSettings, model: Model, examples: Examples) -> None:
        torch.manual_seed(settings.seed)
        self.examples = examples
        self.window = window_of(settings, model)
        self.beacons = first_beacons(model)
        if settings.start is not None:
            learn_from(self.beacons, settings.start)
        self.optimiser = Optimiser(self.beacons, settings.muon_rate, settings.adam_rate)
        basis = loop.basis_of(settings, model, "beacon") | {"window": self.window}
        super().__init__(settings, model, self.beacons, self.optimiser, basis)

    @property
    def plain(self) -> bool:
        """True if the coming step is in the first phase."""
        return self.steps < self.settings.plain_share * self.settings.steps

    def step(self) -> Progress:
        """Make one optimiser step and return its log line."""
        started, plain, batch = time.monotonic(), self.plain, self.settings.batch
        rng = random.Random(f"{self.settings.seed}/{self.steps}")
        totals = torch.zeros(3)
        for index in range(batch):
            example = self.examples.draw(self.steps * batch + index, plain)
            windows = -(-len(example.ids) // self.window)
            ratios = rng.choices(self.ratios(), k=windows)
            answer, language, accuracy = self.losses(example, self.window, ratios)
            torch.autograd.backward([(answer + self.settings.language * language) / batch])
            totals += torch.tensor([float(answer.detach()), float(language.detach()), accuracy]) / batch
            self.tokens += len(example.ids)
        rate = self.rate()
        self.optimiser.step(rate)
        self.steps += 1
        self.seconds += time.monotonic() - started
        return Progress(
            step=self.steps,
            fraction=self.steps / self.settings.steps,
            seconds=self.seconds,
            tokens=self.tokens,
            phase="plain" if plain else "asked",
            loss=float(totals[0]),
            language_loss=float(totals[1]),
            accuracy=float(totals[2]),
            rate=rate,
        )

    def ratios(self) -> tuple[int, ...]:
        """Return the ratios of the coming step. In the first phase larger ones are added over time."""
        if not self.plain:
            return ASKED_RATIOS
        done = self.steps / (self.settings.plain_share * self.settings.steps)
        return RATIOS[: 1 + int(done * len(RATIOS))]

    def rate(self) -> float:
        """Return the learning-rate factor of the coming step."""
        left = 1 - self.steps / self.settings.steps
        return min(1.0, (self.steps + 1) / max(1, self.settings.warmup), 0.04 + left / 0.4)

    def losses(self, example: Example, window: int, ratios: list[int]) -> tuple[Tensor, Tensor, float]:
        """Return loss of answers, loss of plain text, and share of right answers of one example.

        Args:
            window: tokens of a window.
            ratios: ratio of each window.
        """
        # Beacons are trained in float32. In float16 small gradients would vanish: autocast has bfloat16's range.
        device, plain = self.model.device, self.model.spec.dtype == torch.float32
        with torch.autocast(device.type, torch.bfloat16, enabled=not plain):
            hidden = read_through(self.model, self.beacons, example.ids, window, ratios)
            ids, weights = example.ids.to(device), example.weights.to(device)
            return scored(hidden[None], ids[None], weights[None], self.model.logits)

    @torch.no_grad()
    def measure(self) -> list[Measured]:
        """Measure the held-out examples at each ratio. RAW is the model without beacons, reading everything."""
        found = []
        for ratio in (RAW, *RATIOS):
            window = self.settings.max_tokens if ratio == RAW else self.window
            losses = accuracy = 0.0
            for number in range(self.settings.held_out):
                example = self.examples.held_out(number)
                ratios = [ratio] * -(-len(example.ids) // window)
                answer, _, right = self.losses(example, window, ratios)
                losses, accuracy = losses + float(answer), accuracy + right
            found.append(Measured(ratio, losses / self.settings.held_out, accuracy / self.settings.held_out))
        return found


def train(settings: BeaconSettings, progress: Callable[[Progress], None] | None = None) -> Path:
    """Train, save checkpoints, write the beacons, measure them, and write their card.

    Args:
        settings: see `BeaconSettings`.
        progress: called after every step.

    Returns:
        Path of the finished weights.

    Raises:
        EngineError: the model or the data cannot be used, no example is longer than a window, or `resume` without a
            checkpoint of this run.
    """
    torch.set_flush_denormal(True)  # sharp attention leaves denormal weights, which make a step slower
    checkpoint.place(settings.work_dir, settings.resume)
    out = loop.output_of(settings, FILE)
    model = load_model(settings.model, device=settings.device)
    require_possible(KIND, model.spec)
    if bar := KIND.why_untrainable(model.spec):
        raise SettingsError(f"'{model.name}' has {bar}, for which beacons cannot be trained yet.")
    run = Run(settings, model, open_examples(settings, model))
    check_lengths(settings, run.window, run.examples)
    loop.run_through(run, progress)
    finish(run, out)
    return out


def finish(run: Run, out: Path) -> None:
    """Write the beacons, measure them on held-out examples, and write their card with curves of the run."""
    facts = {"window": str(run.window), "steps": str(run.steps), "tokens": str(run.tokens)}
    loop.keep_before(out, out.with_suffix(".md"), out.with_suffix(".svg"))
    save_weights(run.beacons, out, run.model.spec, facts)
    lines = [
        f"| {'no beacons, all of it' if each.ratio == RAW else each.ratio} | {each.loss:.3f} | {each.accuracy:.0%} |"
        for each in run.measure()
    ]
    settings = run.settings
    write_card(
        run,
        out,
        CARD,
        CURVES,
        window=run.window,
        start=f" on top of what the beacons of `{settings.start.name}` had learned" if settings.start else "",
        plain=f"{settings.plain_share:.0%}",
        muon_rate=settings.muon_rate,
        adam_rate=settings.adam_rate,
        measured="\n".join(lines),
    )
