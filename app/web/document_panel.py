"""The components of the right side: the document with its map, search and pages, and the gauge of this computer."""

from dataclasses import dataclass

import gradio as gr

from app.web.search_box import search_box

BESIDE = (
    '<section class="beside" hidden aria-label="Page"><div class="beside-bar">'
    '<button type="button" data-action="page-back">← Back to the document</button><span class="zoom">'
    '<button type="button" data-action="zoom-out" aria-label="Smaller">−</button>'
    '<button type="button" data-action="zoom-in" aria-label="Larger">+</button></span>'
    '<a class="own-tab" target="_blank" rel="noopener">Own tab</a></div><div class="page-body"></div></section>'
)

TELL_PLACE = """element.addEventListener("change", ({ target }) => {
  if (target.dataset.place) trigger("submit", { place: [target.dataset.place, target.value] });
});
const events = { recap: "apply", whole: "retry", rest: "stop" };
element.addEventListener("click", ({ target }) => {
  const event = events[target.dataset.action];
  if (event) trigger(event);
});"""


@dataclass(frozen=True)
class DocumentPanel:
    """The components of the right side.

    find_area: the search in the text; hidden while no document is open.
    found: what it found.
    book: map and contents. Fires "submit" with a document and the page that its reader is at, "apply" for a recap,
        "retry" for a self-test, and "stop" to stop that.
    gauge: the fold around the numbers of this computer.
    kept_memory, panel: its content, in parts that change at different times.
    """

    find_area: gr.Column
    find: gr.Textbox
    found: gr.HTML
    book: gr.HTML
    gauge: gr.Accordion
    kept_memory: gr.HTML
    panel: gr.HTML


def build_document_panel() -> DocumentPanel:
    """Build the right side in the current column."""
    gr.HTML(BESIDE, apply_default_css=False, elem_id="beside")
    with gr.Column(visible=False, elem_id="find-area") as find_area:
        find = search_box("Search in the text of what was read", "Search in the text", "find")
        found = gr.HTML(apply_default_css=False, elem_id="found")
    book = gr.HTML(apply_default_css=False, elem_id="book", js_on_load=TELL_PLACE)
    with gr.Accordion("This computer", open=False, elem_id="gauge") as gauge:
        kept = gr.HTML(apply_default_css=False, elem_id="kept-memory")
        panel = gr.HTML(apply_default_css=False, elem_id="panel")
    return DocumentPanel(find_area, find, found, book, gauge, kept, panel)
