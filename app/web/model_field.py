"""The choice of a model on the form, and the part that fetches others."""

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import gradio as gr

from app.formatting import byte_size, plural, whole_percent
from app.language import t, told
from app.machine.local_models import LocalModel
from app.machine.model_names import named_model, shown_name
from app.machine.recommended import BESIDE, Recommended
from app.web.views.markup import bar, esc, told_html
from sessions import UNDER_WAY, JobRow

IN_WORDS = {"none": "", "8bit": " in 8 bits", "nf4": " in NF4", "int8": " in int8", "int4": " in int4"}


@dataclass(frozen=True)
class ModelField:
    """The components of the choice of a model.

    about: a sentence on the chosen model.
    offered: the models that can be fetched.
    fetching: the progress of one that is being fetched, or why it was not.
    fetched: names the last one that was fetched, unseen.
    """

    model: gr.Dropdown
    about: gr.HTML
    unusable: gr.HTML
    offered: gr.Radio
    get: gr.Button
    fetching: gr.HTML
    stop_fetching: gr.Button
    fetched: gr.HTML


def build_model_field(default_model: str) -> ModelField:
    """Build the choice in the current column. default_model: model if none is chosen."""
    model = gr.Dropdown(
        choices=[(shown_name(default_model), default_model)],
        value=default_model,
        allow_custom_value=True,
        label="Model",
        elem_id="model",
        info="Choose one on this computer, or paste a name from Hugging Face, such as Qwen/Qwen3-4B.",
    )
    about = gr.HTML(apply_default_css=False, elem_id="model-about")
    with gr.Accordion("Get another model", open=False, elem_id="get-model"):
        offered = gr.Radio(choices=[], label="For this computer", elem_id="offered", elem_classes="rows")
        with gr.Row(elem_id="get-row"):
            get = gr.Button("Get", size="sm", elem_id="get", scale=0, min_width=90)
            stop_fetching = gr.Button("Stop", size="sm", elem_id="stop-fetching", visible=False, scale=0, min_width=90)
        unusable = gr.HTML(apply_default_css=False, elem_id="unusable")
    fetching = gr.HTML(apply_default_css=False, elem_id="fetching")
    fetched = gr.HTML(apply_default_css=False, elem_id="fetched")
    return ModelField(model, about, unusable, offered, get, fetching, stop_fetching, fetched)


def model_choices(found: Sequence[LocalModel], room: int, form: str) -> list[tuple[str, str]]:
    """Return the usable models in each form that is possible here, with their size and whether they fit.

    Args:
        found: the models.
        room: free bytes for models.
        form: see `LocalModel.bytes_in`.
    """
    able = importlib.util.find_spec("bitsandbytes") is not None
    return [
        (
            f"{shown_name(each.name)}{IN_WORDS[way] and t(IN_WORDS[way])} · {byte_size(size)} · "
            f"{t('fits') if size + BESIDE <= room else t('too large for the memory that is free')}",
            named_model(each.name, way) or each.name,
        )
        for each in found
        if not each.reason
        for way, size in {**each.weight_bytes, "none": each.bytes_in(form)}.items()
        if way == "none" or (able and way != "blocks")
    ]


def hub_choices(fitting: Sequence[Recommended], found: Sequence[LocalModel]) -> list[tuple[str, str]]:
    """Return the recommended models that fit here and are not here yet, with their sizes and uses."""
    return [
        (
            f"{each.title} · {t('{size} to fetch', size=byte_size(each.download))} · {each.licence}\n"
            f"{told(f'Good for {each.suits}.')}",
            each.name,
        )
        for each in fitting
        if not any(each.is_named(model.name) for model in found)
    ]


def unusable_models(found: Sequence[LocalModel]) -> str:
    """Return the models here that cannot be used, each with the reason, as HTML; empty if there are none."""
    reasons = [
        f"<li>{t('{name}: {value}', name=f'<b>{esc(Path(each.name).name)}</b>', value=told_html(each.reason))}</li>"
        for each in found
        if each.reason
    ]
    if not reasons:
        return ""
    said = t("{models} on this computer cannot be used", models=plural(len(reasons), "model"))
    return f'<details class="quiet"><summary>{said}</summary><ul>{"".join(reasons)}</ul></details>'


def fetch_line(job: JobRow | None) -> str:
    """Return the progress of a model that is fetched, or how it ended, as HTML. job: the last fetch; None for none."""
    if job is None:
        return ""
    name = esc(shown_name(job.subject_id))
    if job.status in UNDER_WAY:
        share = job.done / job.total if job.total else 0.0
        line = told(job.stage) if job.stage else t("Waiting to fetch {model}", model=job.subject_id)
        come = t("{share} fetched", share=whole_percent(share))
        return f'<p class="quiet" role="status">{esc(line)}</p>{bar(share, come, "wide")}'
    if job.status == "failed":
        return f'<p class="note" role="alert">{told_html(job.error or "")}</p>'
    if job.status == "cancelled":
        said = t("Stopped. Get {model} again to go on from what has come.", model=name)
        return f'<p class="quiet" role="status">{said}</p>'
    return f'<p class="quiet" role="status">{t("{model} is here.", model=name)}</p>'
