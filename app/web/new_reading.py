"""The form of a new document: files, model, memory, and everything else folded away for experts."""

from dataclasses import dataclass

import gradio as gr

from app.home import sample_book
from app.web.confirm import Confirm, build_confirm
from app.web.expert_fields import ExpertFields, build_expert_fields
from app.web.model_field import ModelField, build_model_field
from ingest.formats import format_titles

OCR = {"Automatic": None, "Always": True, "Never": False}

OF_ITS_OWN = "No, start a new one"

EVERYTHING, ESSENTIALS = "everything", "essentials"
MEMORIES = [
    ("Everything (recommended)\nKeeps every word, and looks up the best passages for each question.", EVERYTHING),
    ("The essentials\nNeeds little memory, however long the text, and forgets details.", ESSENTIALS),
]


@dataclass(frozen=True)
class NewReading:
    """The components of the form.

    linked: the line about linked folders.
    each_area: the questions for a table over the chosen documents.
    how, more_how: fields that are hidden when documents are added to others that were read.
    offer_area, offer, take: a better model than the one that ships, in one line, and the button that takes it.
    looking: a timer that runs while files are being opened for the estimate.
    filled: not shown; it changes when the fields were filled in for a model.
    """

    area: gr.Column
    files: gr.File
    folder: gr.UploadButton
    sample: gr.Button
    linked: gr.HTML
    kept_area: gr.Row
    kept: gr.Dropdown
    delete_kept: gr.Button
    more_kept: gr.Button
    each_area: gr.Row
    columns: gr.Textbox
    ask_each: gr.Button
    compare: gr.Button
    confirm: Confirm
    add_to: gr.Dropdown
    more_add_to: gr.Button
    how: gr.Column
    model: ModelField
    memory: gr.Radio
    more_how: gr.Column
    expert: ExpertFields
    title: gr.Textbox
    password: gr.Textbox
    ocr: gr.Radio
    offer_area: gr.Row
    offer: gr.HTML
    take: gr.Button
    estimate: gr.HTML
    start: gr.Button
    looking: gr.Timer
    filled: gr.HTML


def build_new_reading(default_model: str) -> NewReading:
    """Build the form in the current column. default_model: model if none is chosen."""
    with gr.Column(visible=False, elem_id="new-view", elem_classes="view") as area:  # an address may open a chat
        gr.HTML(
            '<header class="hello"><h1>Read something long</h1><p>Drop in a book or a stack of papers. Stockpot reads '
            "all of it once, on this computer. Then ask as many questions as you like.</p>"
            '<details class="quiet"><summary>PDF, EPUB, Word, web pages, text and more</summary>'
            f"<p>It opens {format_titles()}.</p></details></header>",
            apply_default_css=False,
            elem_id="hello",
        )
        files = gr.File(file_count="multiple", label="Files", show_label=False, elem_id="files", height=150)
        with gr.Row(elem_id="files-row"):
            folder = gr.UploadButton("Choose a folder", file_count="directory", size="sm", elem_id="folder", scale=0)
            sample = gr.Button(
                "Read the sample book", size="sm", elem_id="sample", visible=sample_book() is not None, scale=0
            )
        linked = gr.HTML(apply_default_css=False, elem_id="linked")
        with gr.Column(elem_id="how") as how:
            model = build_model_field(default_model)
            memory = gr.Radio(
                choices=MEMORIES,
                value=EVERYTHING,
                label="How much should it remember?",
                elem_id="memory",
                elem_classes="cards",
            )
        add_to = gr.Dropdown(
            choices=[(OF_ITS_OWN, "")],
            value="",
            label="Add to what was read before?",
            elem_id="add-to",
            visible=False,
        )
        more_add_to = gr.Button("", size="sm", elem_id="more-add-to", visible=False)
        with gr.Row(visible=False, elem_id="kept-row") as kept_area:
            kept = gr.Dropdown(
                choices=[],
                multiselect=True,
                label="Documents you have added",
                elem_id="kept",
                info="Choose some to read them again with another model or memory, or several together.",
                scale=6,
            )
            delete_kept = gr.Button("Delete", size="sm", elem_id="delete-kept", scale=0, min_width=100)
        more_kept = gr.Button("", size="sm", elem_id="more-kept", visible=False)
        with gr.Row(visible=False, elem_id="each-row") as each_area:
            columns = gr.Textbox(
                label="Or ask each of them",
                info="Words or questions, with semicolons between. The answers make a table.",
                placeholder="author; sample size; How many took part?",
                elem_id="columns",
                max_lines=1,
                scale=6,
            )
            ask_each = gr.Button("Ask each", size="sm", elem_id="ask-each", scale=0, min_width=100)
            compare = gr.Button("Compare", size="sm", elem_id="compare", scale=0, min_width=100)
        confirm = build_confirm("kept-")
        with gr.Accordion("For experts", open=False, elem_id="more"):
            with gr.Row():
                title = gr.Textbox(
                    label="Title", info="Optional. Left empty, it is the document's own.", elem_id="title"
                )
                password = gr.Textbox(
                    label="Password", type="password", info="Only if the file is locked.", elem_id="password"
                )
            ocr = gr.Radio(choices=list(OCR), value=next(iter(OCR)), label="Scanned pages (OCR)", elem_id="ocr")
            with gr.Column(elem_id="more-how") as more_how:
                gr.HTML(
                    '<p class="quiet">On a GPU a model needs about a quarter of the memory with :int4 behind its name, '
                    "and half with :8bit. Without one it needs a quarter with :nf4, and half with :int8.</p>",
                    apply_default_css=False,
                )
                expert = build_expert_fields(default_model)
        with gr.Row(visible=False, elem_id="offer") as offer_area:
            offer = gr.HTML(apply_default_css=False, elem_id="offer-line")
            take = gr.Button("Use it", size="sm", elem_id="take-offer", scale=0, min_width=120)
        with gr.Row(elem_id="start-row"):
            start = gr.Button("Read", variant="primary", elem_id="start", size="lg")
            estimate = gr.HTML(apply_default_css=False, elem_id="estimate")
        filled = gr.HTML(apply_default_css=False, elem_id="filled")
    return NewReading(
        area=area,
        files=files,
        folder=folder,
        sample=sample,
        linked=linked,
        kept_area=kept_area,
        kept=kept,
        delete_kept=delete_kept,
        more_kept=more_kept,
        each_area=each_area,
        columns=columns,
        ask_each=ask_each,
        compare=compare,
        confirm=confirm,
        add_to=add_to,
        more_add_to=more_add_to,
        how=how,
        model=model,
        memory=memory,
        more_how=more_how,
        expert=expert,
        title=title,
        password=password,
        ocr=ocr,
        offer_area=offer_area,
        offer=offer,
        take=take,
        estimate=estimate,
        start=start,
        looking=gr.Timer(0.7, active=False),
        filled=filled,
    )
