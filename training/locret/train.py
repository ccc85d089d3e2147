"""Trains retaining heads for a frozen model: `train(LocretSettings(...))`, or `python -m training.locret --help`.

Locret (https://arxiv.org/abs/2410.01805), section 3.3 and appendix A.1. The loss is Smooth-L1 between scores and labels
plus alpha times the squared difference of neighbouring scores, both averaged over layers, KV heads and tokens (equation
3; the authors' run summed the second term over layers). As in the authors' code: AdamW with betas 0.9 and 0.95, linear
warm-up and decay, gradients clipped at 0.5.

Gradients are accumulated layer by layer and chunk by chunk. Memory holds the cache and queries of the examples of a
step, the heads with their optimiser, and one chunk of one head. Chunks overlap by a token, so that the sum equals that
of the whole.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F

from engine import Model, load_model
from engine.trained.retaining import FILE, RetainingHeads, head_numbers, usual_width
from engine.trained.sidecar_weights import save_weights
from training import checkpoint, loop
from training.card import write_card
from training.locret.card import CARD
from training.locret.examples import Example, Examples, open_examples
from training.locret.labels import Watched, overlap, watch
from training.locret.settings import RECONSTRUCTION, LocretSettings
from training.room import check_room

CLIP = 0.5
CURVES = {
    "loss": "loss",
    "overlap": "share of the top 10 % of labels that was found",
}  # columns of the log to draw beside the card


@dataclass(frozen=True)
class Loss:
    """Mean of both terms of the loss over examples, and the share of the top 10 % of labels that was found."""

    regression: float
    smoothing: float
    overlap: float


@dataclass(frozen=True)
class Progress:
    """One line of the log.

    Attributes:
        seconds: training time without interruptions.
        tokens: prompt tokens scored since the start.
        held_out_loss, held_out_overlap: of the held-out examples, in steps that measure them.
    """

    step: int
    fraction: float
    seconds: float
    tokens: int
    loss: float
    regression: float
    smoothing: float
    overlap: float
    rate: float
    held_out_loss: float | None = None
    held_out_overlap: float | None = None

    def in_words(self) -> str:
        """Return a line for people."""
        held_out = "" if self.held_out_loss is None else f"; held out {self.held_out_loss:.3f}"
        return (
            f"{self.fraction:6.1%} step {self.step}, {self.tokens / 1e6:.2f} M tokens, "
            f"{self.tokens / max(self.seconds, 1e-9):,.0f} tokens/s, loss {self.loss:.3f}, "
            f"top 10 % {self.overlap:.0%}{held_out}"
        )


class Run(loop.Run[Progress]):
    """A training run of retaining heads."""

    settings: LocretSettings

    def __init__(self, settings: LocretSettings, model: Model, examples: Examples) -> None:
        self.examples = examples
        torch.manual_seed(settings.seed)
        widths = [settings.width or usual_width(layer) for layer in model.spec.layers]
        shapes = zip(model.spec.layers, widths, strict=True)
        weights = sum(head_numbers(layer, width) for layer, width in shapes)
        check_room(weights, model.device, f"A set of heads of width {max(widths):,}")
        self.heads = RetainingHeads(model.spec, widths).to(model.device)
        self.optimiser = torch.optim.AdamW(self.heads.parameters(), settings.rate, betas=(0.9, 0.95), weight_decay=0.01)
        basis = loop.basis_of(settings, model, "locret") | {"widths": widths, "labels": settings.labels}
        if settings.labels == RECONSTRUCTION:
            basis["window"] = settings.window
        super().__init__(settings, model, self.heads, self.optimiser, basis)

    def step(self) -> Progress:
        """Read the examples of a step, make an optimiser step for each part of them, and return the log line.

        Losses are those of the first pass over the examples.
        """
        started, first = time.monotonic(), self.steps * self.settings.batch
        rate = self.rate()
        for group in self.optimiser.param_groups:
            group["lr"] = rate
        seen = [self.watch(self.examples.draw(first + index)) for index in range(self.settings.batch)]
        parts = min([self.settings.parts, *(each.prompt for each in seen)])
        first_pass, *_ = [self._update(seen, parts) for _ in range(self.settings.passes)]
        self.tokens += sum(each.prompt for each in seen)
        self.steps += 1
        self.seconds += time.monotonic() - started
        every = self.settings.measure_every
        held_out = self.measure() if every and self.steps % every == 0 else None
        return Progress(
            step=self.steps,
            fraction=self.steps / self.settings.steps,
            seconds=self.seconds,
            tokens=self.tokens,
            loss=self.total(first_pass),
            regression=first_pass.regression,
            smoothing=first_pass.smoothing,
            overlap=first_pass.overlap,
            rate=rate,
            held_out_loss=self.total(held_out) if held_out else None,
            held_out_overlap=held_out.overlap if held_out else None,
        )

    def _update(self, seen: list[Watched], parts: int) -> Loss:
        """Make an optimiser step for each of `parts` equal parts of the examples; return the mean loss before it."""
        losses = []
        for part in range(parts):
            self.optimiser.zero_grad()
            for each in seen:
                span = range(each.prompt * part // parts, each.prompt * (part + 1) // parts)
                losses.append(self.pass_over(each, span, 1 / len(seen)))
            torch.nn.utils.clip_grad_value_(self.heads.parameters(), CLIP)
            self.optimiser.step()
        return _mean(losses)

    def total(self, loss: Loss) -> float:
        """Return the loss of equation 3."""
        return loss.regression + self.settings.alpha * loss.smoothing

    def watch(self, example: Example) -> Watched:
        """Return the frozen model's reading of an example, with its labels."""
        return watch(self.model, example, self.settings.chunk, self.settings.window)

    def rate(self) -> float:
        """Return the learning rate of the coming step: linear warm-up, then linear decay."""
        up = (self.steps + 1) / max(1, self.settings.warmup)
        down = (self.settings.steps - self.steps) / (self.settings.steps - self.settings.warmup)
        return self.settings.rate * min(up, down, 1.0)

    def pass_over(self, seen: Watched, span: range, weight: float) -> Loss:
        """Score these tokens of an example chunk by chunk, and add their gradient times `weight`; 0 for no gradient."""
        count = len(self.heads.layers)
        scored = len(span) * sum(labels.shape[0] for labels in seen.labels)
        pairs = max(1, len(span) - 1) * sum(labels.shape[0] for labels in seen.labels)
        regression = smoothing = found = 0.0
        with torch.set_grad_enabled(weight > 0):
            for layer, labels in enumerate(seen.labels):
                scores = []
                for begin in span[:: self.settings.chunk]:
                    end = min(begin + self.settings.chunk, span.stop)
                    score = self.heads.score(layer, *seen.inputs(layer, begin, min(end + 1, span.stop)))
                    own = score[:, : end - begin]
                    near = F.smooth_l1_loss(own, labels[:, begin:end], reduction="sum") / scored
                    even = (score[:, 1:] - score[:, :-1]).square().sum() / pairs
                    if weight:
                        torch.autograd.backward([(near + self.settings.alpha * even) * weight])
                    scores.append(own.detach())
                    regression += float(near.detach())
                    smoothing += float(even.detach())
                found += overlap(torch.cat(scores, dim=1), labels[:, span.start : span.stop]) / count
        return Loss(regression, smoothing, found)

    def measure(self) -> Loss:
        """Return the mean loss of the held-out examples."""
        read = map(self.watch, map(self.examples.held_out, range(self.settings.held_out)))
        return _mean([self.pass_over(seen, range(seen.prompt), 0.0) for seen in read])


def _mean(losses: list[Loss]) -> Loss:
    count = len(losses)
    return Loss(
        sum(loss.regression for loss in losses) / count,
        sum(loss.smoothing for loss in losses) / count,
        sum(loss.overlap for loss in losses) / count,
    )


def train(settings: LocretSettings, progress: Callable[[Progress], None] | None = None) -> Path:
    """Train, save checkpoints, write the heads, measure them, and write their card.

    Args:
        settings: see `LocretSettings`.
        progress: called after every step.

    Returns:
        Path of the finished heads.

    Raises:
        EngineError: the model or the data cannot be used, or `resume` without a checkpoint of this run.
    """
    checkpoint.place(settings.work_dir, settings.resume)
    out = loop.output_of(settings, FILE)
    model = load_model(settings.model, device=settings.device, quantize=settings.quantize)
    run = Run(settings, model, open_examples(settings, model))
    loop.run_through(run, progress)
    finish(run, out)
    return out


def finish(run: Run, out: Path) -> None:
    """Write the heads, measure them on held-out examples, and write their card with curves of the run."""
    facts = {"steps": str(run.steps), "tokens": str(run.tokens)}
    loop.keep_before(out, out.with_suffix(".md"), out.with_suffix(".svg"))
    save_weights(run.heads, out, run.model.spec, facts)
    settings, measured = run.settings, run.measure()
    write_card(
        run,
        out,
        CARD,
        CURVES,
        kept="not quantised" if settings.quantize == "none" else f"in {settings.quantize}",
        labels={
            "answer": "attention of answers",
            "turn": "attention of questions and answers",
            RECONSTRUCTION: f"attention of a repetition of the text, {settings.window} tokens at a time",
        }[settings.labels],
        width=", ".join(str(width) for width in sorted(set(run.heads.widths))),
        rate=settings.rate,
        warmup=settings.warmup,
        alpha=settings.alpha,
        regression=f"{measured.regression:.3f}",
        overlap=f"{measured.overlap:.0%}",
    )
