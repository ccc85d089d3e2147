"""A field for a number that may be left empty: a text field, whose text the action reads.

Gradio's own number field turns empty into 0 when it is drawn anew, and refuses values before any action runs.
"""

import math
from typing import Any

import gradio as gr

from app.errors import UsageError


def number_field(value: float | None, label: str, element: str, **how: Any) -> gr.Textbox:
    """Build a field in the current column. value: None leaves it empty; element: its id; how: as of a text field."""
    text = "" if value is None else str(value)
    return gr.Textbox(text, label=label, elem_id=element, max_lines=1, **how)


def typed_number(text: str | float | None, name: str) -> float | None:
    """Return the number in a field, None if it is empty. Both 0.5 and 0,5 are taken.

    Raises:
        UsageError: it is not a number. name: what the sentence calls it.
    """
    typed = str(text if text is not None else "").strip()
    if not typed:
        return None
    try:
        number = float(typed.replace(",", "."))
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise UsageError(f"{name} is a number, not “{typed}”.")
    return number
