"""The component that shows a table over documents, as far as it is filled."""

from dataclasses import dataclass

import gradio as gr

TELL_PRESSED = """const events = { whole: "submit", rest: "stop", remove: "clear" };
element.addEventListener("click", ({ target }) => {
  const event = events[target.closest("[data-action]")?.dataset.action];
  if (event) trigger(event);
});"""


@dataclass(frozen=True)
class SweepPanel:
    """The component. shown: fires "submit" to go on, "stop" to stop, and "clear" to remove it."""

    area: gr.Column
    shown: gr.HTML


def build_sweep_panel() -> SweepPanel:
    """Build it in the current column."""
    with gr.Column(visible=False, elem_id="sweep-view", elem_classes="view") as area:
        shown = gr.HTML(apply_default_css=False, elem_id="sweep", js_on_load=TELL_PRESSED)
    return SweepPanel(area, shown)
