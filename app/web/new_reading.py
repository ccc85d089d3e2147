"""The form of a new reading: files, documents, model, method, budget, and further settings, folded away."""

import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gradio as gr

from app.errors import expected
from app.formatting import byte_size, plural
from app.home import sample_book
from app.machine.local_models import LocalModel
from app.machine.model_names import named_model
from app.reading.methods import methods_table
from app.web.confirm import Confirm, build_confirm
from app.web.views.markup import esc

OCR = {"Where it is needed and installed": None, "Always": True, "Never": False}

OF_ITS_OWN = "Nothing: a reading of its own"

IN_WORDS = {"none": "", "8bit": " in 8 bits", "nf4": " in NF4", "int8": " in int8", "int4": " in int4"}


@dataclass(frozen=True)
class NewReading:
    """The components of the form.

    how, more_how: fields that are hidden when documents are added to a context.
    settings: (method, setting) -> its field; each method has a budget field of its own, which keeps its text.
    own: method -> the components that are shown for it alone.
    presets: method -> its field for presets.
    """

    area: gr.Column
    files: gr.File
    kept_area: gr.Row
    kept: gr.Dropdown
    delete_kept: gr.Button
    more_kept: gr.Button
    confirm: Confirm
    sample: gr.Button
    add_to: gr.Dropdown
    more_add_to: gr.Button
    how: gr.Column
    method: gr.Radio
    title: gr.Textbox
    password: gr.Textbox
    ocr: gr.Radio
    model: gr.Dropdown
    unusable: gr.HTML
    settings: dict[tuple[str, str], Any]
    own: dict[str, list[Any]]
    presets: dict[str, gr.Dropdown]
    more_how: gr.Column
    estimate: gr.HTML
    start: gr.Button


def build_new_reading(default_model: str) -> NewReading:
    """Build the form in the current column. default_model: model if none is chosen."""
    methods = suiting(default_model)
    selection = next(row for row in methods if row["default"])
    with gr.Column(elem_id="new-view", elem_classes="view") as area:
        gr.HTML(
            '<header class="hello"><h1>Read something long</h1><p>Drop in books or papers. They are read once, '
            "from the first word to the last; after that every question, in any session, reuses the reading. "
            "PDF, EPUB, MOBI, FictionBook, Word, PowerPoint, Excel, OpenDocument text, RTF, HTML, e-mail and "
            "mailboxes, Markdown and plain text of any kind.</p></header>",
            apply_default_css=False,
            elem_id="hello",
        )
        files = gr.File(file_count="multiple", label="Files", show_label=False, elem_id="files", height=190)
        sample = gr.Button("Read the sample book", size="sm", elem_id="sample", visible=sample_book() is not None)
        with gr.Row(visible=False, elem_id="kept-row") as kept_area:
            kept = gr.Dropdown(
                choices=[],
                multiselect=True,
                label="Documents that are kept",
                elem_id="kept",
                info="They are read again without their files: in another way, or several together.",
                scale=6,
            )
            delete_kept = gr.Button("Delete", size="sm", elem_id="delete-kept", scale=0, min_width=100)
        more_kept = gr.Button("", size="sm", elem_id="more-kept", visible=False)
        confirm = build_confirm("kept-")
        add_to = gr.Dropdown(
            choices=[(OF_ITS_OWN, "")],
            value="",
            label="Add to",
            elem_id="add-to",
            visible=False,
        )
        more_add_to = gr.Button("", size="sm", elem_id="more-add-to", visible=False)
        with gr.Column(elem_id="how") as how:
            method = gr.Radio(
                choices=[(f"{row['name']}\n{row['summary']}", row["name"]) for row in methods],
                value=selection["name"],
                label="Method: how the memory keeps what it reads",
                elem_id="method",
                elem_classes="cards",
            )
            with gr.Column(elem_id="budget"):
                budgets = {row["name"]: _budget(row, shown=row is selection) for row in methods}
        with gr.Accordion("More settings", open=False, elem_id="more"):
            with gr.Column(elem_id="more-how") as more_how:
                settings, groups, presets = _method_settings(methods, selection["name"])
                model = gr.Dropdown(
                    choices=[default_model],
                    value=default_model,
                    allow_custom_value=True,
                    label="Model",
                    elem_id="model",
                    info="One on this machine, a folder, .gguf file or hub id. Add :8bit or :nf4 for 8 or 4 bits, on a "
                    "CPU :int8 or :int4.",
                )
                unusable = gr.HTML(apply_default_css=False, elem_id="unusable")
            with gr.Row():
                title = gr.Textbox(
                    label="Title",
                    info="Of a single document, or of what is read of several; empty for their own.",
                    elem_id="title",
                )
                password = gr.Textbox(
                    label="Password", type="password", info="Of an encrypted file.", elem_id="password"
                )
            ocr = gr.Radio(
                choices=list(OCR), value=next(iter(OCR)), label="Recognise pages that are pictures", elem_id="ocr"
            )
        with gr.Row(elem_id="start-row"):
            start = gr.Button("Read", variant="primary", elem_id="start", size="lg")
            estimate = gr.HTML(apply_default_css=False, elem_id="estimate")
    return NewReading(
        area=area,
        files=files,
        kept_area=kept_area,
        kept=kept,
        delete_kept=delete_kept,
        more_kept=more_kept,
        confirm=confirm,
        sample=sample,
        add_to=add_to,
        more_add_to=more_add_to,
        how=how,
        method=method,
        title=title,
        password=password,
        ocr=ocr,
        model=model,
        unusable=unusable,
        settings={**{(name, "budget"): field for name, field in budgets.items()}, **settings},
        own={name: [budget, *([groups[name]] if name in groups else [])] for name, budget in budgets.items()},
        presets=presets,
        more_how=more_how,
        estimate=estimate,
        start=start,
    )


def suiting(model: str) -> list[dict[str, Any]]:
    """Return the methods table for a model, or the general one if the model cannot be used."""
    try:
        return methods_table(model)
    except Exception as error:
        if not expected(error):
            raise
        return methods_table()


def model_choices(found: list[LocalModel]) -> list[tuple[str, str]]:
    """Return the usable models with each quantisation possible here, and the bytes of their weights."""
    able = importlib.util.find_spec("bitsandbytes") is not None
    return [
        (f"{Path(each.name).name}{IN_WORDS[way]} · {byte_size(size)}", named_model(each.name, way) or each.name)
        for each in found
        if not each.reason
        for way, size in each.weight_bytes.items()
        if able or way == "none"
    ]


def hub_choices(recommended: list[dict[str, Any]], found: list[LocalModel]) -> list[tuple[str, str]]:
    """Return the recommended models that fit as published and are not here yet."""
    here = {each.name for each in found}
    selection = [each for each in recommended if each["fits"] == "none" and each["name"] not in here]
    sizes = [f"{byte_size(each['memory'])} · {byte_size(each['download'])} to fetch" for each in selection]
    return [(f"{Path(each['name']).name} · {size}", each["name"]) for each, size in zip(selection, sizes, strict=True)]


def unusable_models(found: list[LocalModel]) -> str:
    """Return the models here that cannot be used, each with the reason, as HTML; empty if there are none."""
    reasons = [f"<li><b>{esc(Path(each.name).name)}</b>: {esc(each.reason)}</li>" for each in found if each.reason]
    if not reasons:
        return ""
    said = f"{plural(len(reasons), 'model')} on this machine cannot be used"
    return f'<details class="quiet"><summary>{said}</summary><ul>{"".join(reasons)}</ul></details>'


def _budget(row: dict[str, Any], shown: bool) -> gr.Number:
    return gr.Number(
        value=row["budget"],
        precision=0,
        label="Budget",
        elem_id=f"budget-{row['name']}",
        info="Entries per KV head and layer that may stay on the device. Empty for no limit.",
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
        return gr.Number(
            value=value, label=label, elem_id=name, precision=0 if kind.startswith("int") else None, min_width=130
        )
    return gr.Textbox(value=value, label=label, elem_id=name, min_width=130)


def settings_from(method: str, keys: list[tuple[str, str]], values: tuple[Any, ...]) -> dict[str, Any]:
    """Return the chosen method's settings from the fields of all methods."""
    return {key: value for (owner, key), value in zip(keys, values, strict=True) if owner == method}
