"""The fields of the form for experts: the method of the memory, its budget and its other settings."""

from dataclasses import dataclass
from typing import Any

import gradio as gr

from app.errors import expected
from app.reading.methods import methods_table
from app.web.number_field import number_field


@dataclass(frozen=True)
class ExpertFields:
    """The fields for methods.

    settings: (method, setting) -> its field; each method has a budget field of its own, which keeps its text.
    own: method -> the components that are shown for it alone.
    presets: method -> its field for presets.
    """

    method: gr.Radio
    settings: dict[tuple[str, str], Any]
    own: dict[str, list[Any]]
    presets: dict[str, gr.Dropdown]


def build_expert_fields(default_model: str) -> ExpertFields:
    """Build the fields in the current column. default_model: model whose suiting settings they begin with."""
    methods = suiting(default_model)
    selection = next(row for row in methods if row["default"])
    method = gr.Radio(
        choices=[(f"{row['name']}\n{row['summary']}", row["name"]) for row in methods],
        value=selection["name"],
        label="Method: how the memory keeps what it reads",
        elem_id="method",
        elem_classes="cards",
    )
    with gr.Column(elem_id="budget"):
        budgets = {row["name"]: _budget(row, shown=row is selection) for row in methods}
    settings, groups, presets = _method_settings(methods, selection["name"])
    return ExpertFields(
        method,
        {**{(name, "budget"): field for name, field in budgets.items()}, **settings},
        {name: [budget, *([groups[name]] if name in groups else [])] for name, budget in budgets.items()},
        presets,
    )


def suiting(model: str) -> list[dict[str, Any]]:
    """Return the methods table for a model, or the general one if the model cannot be used."""
    try:
        return methods_table(model)
    except Exception as error:
        if not expected(error):
            raise
        return methods_table()


def _budget(row: dict[str, Any], shown: bool) -> gr.Textbox:
    return number_field(
        row["budget"],
        "Budget",
        f"budget-{row['name']}",
        info="Entries per KV head and layer that the model can look at at once. Empty for no limit.",
        interactive=row["budget"] is not None,
        visible=shown,
    )


def _method_settings(
    methods: list[dict[str, Any]], selection: str
) -> tuple[dict[tuple[str, str], Any], dict[str, gr.Group], dict[str, gr.Dropdown]]:
    """Build a field for every setting of every method, and one for its presets. Only the chosen method's are
    visible.
    """
    settings: dict[tuple[str, str], Any] = {}
    groups: dict[str, gr.Group] = {}
    presets: dict[str, gr.Dropdown] = {}
    for row in methods:
        if not row["settings"]:
            continue
        with gr.Group(visible=row["name"] == selection, elem_classes="settings") as group:
            if row["presets"]:
                presets[row["name"]] = gr.Dropdown(
                    choices=list(row["presets"]),
                    value=None,
                    label="Preset",
                    elem_id=f"preset-{row['name']}",
                    info="Fills in a whole set of settings. As they are, they suit the model.",
                )
            with gr.Row():
                for key, value in row["settings"].items():
                    settings[row["name"], key] = _field(
                        row["name"], key, value, row["types"][key], row["choices"].get(key)
                    )
        groups[row["name"]] = group
    return settings, groups, presets


def _field(method: str, key: str, value: Any, kind: str, choices: list[Any] | None) -> Any:
    label, name = key.replace("_", " ").capitalize(), f"set-{method}-{key}"
    if kind.startswith("bool"):  # no checkbox, because Gradio leaves no room for its label in a full row
        choices = [("yes", True), ("no", False)]
    if choices:
        return gr.Dropdown(choices, value=value, label=label, elem_id=name, min_width=130)
    if kind.startswith(("int", "float")):
        return number_field(value, label, name, min_width=130)
    return gr.Textbox(value=value, label=label, elem_id=name, min_width=130)


def settings_from(method: str, keys: list[tuple[str, str]], values: tuple[Any, ...]) -> dict[str, Any]:
    """Return the chosen method's settings from the fields of all methods."""
    return {key: value for (owner, key), value in zip(keys, values, strict=True) if owner == method}
