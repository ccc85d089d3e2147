"""The model card written beside trained weights: description, training and measurements."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from training import loop
from training.curves import draw_curves


def write_card(run: loop.Run[Any], out: Path, card: str, curves: Mapping[str, str], **more: object) -> None:
    """Write the card of a finished run, and its curves, beside the weights.

    Args:
        run: the finished run.
        out: file of the weights.
        card: Markdown with named placeholders, filled from the run and from `more`.
        curves: columns of the log with their titles, as for `draw_curves`.
        **more: values for other placeholders of the card.
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
