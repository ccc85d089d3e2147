"""The card that is written beside trained weights: what they are, how they were trained, and what was measured."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from training import loop
from training.curves import draw_curves


def write_card(run: loop.Run[Any], out: Path, card: str, curves: Mapping[str, str], **more: object) -> None:
    """Write the card of a finished run, and the curves that it shows, beside the weights.

    Args:
        out: the file of the weights.
        card: Markdown with gaps, by name, for what is said of every training and for `more`.
        curves: columns of the log with their titles, as `draw_curves` takes them.
    """
    settings, drawn = run.settings, out.with_suffix(".svg")
    draw_curves(loop.log_of(settings), drawn, curves)
    data = settings.data.name if settings.data else "documents with facts and questions, made by `training/pocket`"
    quantised = "" if settings.quantize == "none" else f" --quantize {settings.quantize}"
    text = card.format(
        source=f"{settings.model}{quantised}",
        path=out,
        curves=drawn.name,
        model=run.model.name,
        parameters=f"{sum(weight.numel() for weight in run.trained.named_weights().values()) / 1e6:.2f}",
        data=data,
        steps=run.steps,
        batch=settings.batch,
        tokens=f"{run.tokens / 1e6:.2f}",
        examples=settings.held_out,
        **more,
    )
    out.with_suffix(".md").write_text(text, encoding="utf-8")
