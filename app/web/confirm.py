"""The components that ask for confirmation before something is deleted."""

from dataclasses import dataclass

import gradio as gr


@dataclass(frozen=True)
class Confirm:
    """The components of the question. named: (kind, id) of the things to be deleted."""

    area: gr.Column
    text: gr.HTML
    yes: gr.Button
    keep: gr.Button
    named: gr.State

    @property
    def parts(self) -> list[gr.Component]:
        """Components that change when it is asked and answered."""
        return [self.area, self.text, self.named]


def build_confirm(place: str = "") -> Confirm:
    """Build the question in the current column, hidden. place: prefix of the ids of its elements."""
    with gr.Column(visible=False, elem_id=f"{place}confirm-area", elem_classes="confirm") as area:
        text = gr.HTML(apply_default_css=False, elem_id=f"{place}confirm-text")
        with gr.Row():
            yes = gr.Button("Delete for good", variant="stop", size="sm", elem_id=f"{place}confirm")
            keep = gr.Button("Keep", size="sm", elem_id=f"{place}keep", elem_classes="keep")
    return Confirm(area, text, yes, keep, gr.State([]))
