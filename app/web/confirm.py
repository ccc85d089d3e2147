"""The question whether something is really to be deleted, wherever that can be asked for."""

from dataclasses import dataclass

import gradio as gr


@dataclass(frozen=True)
class Confirm:
    """Its components. named: (kind, id) of what was asked about."""

    area: gr.Column
    text: gr.HTML
    yes: gr.Button
    keep: gr.Button
    named: gr.State

    @property
    def parts(self) -> list[gr.Component]:
        """What changes when it is asked, and when it has been answered."""
        return [self.area, self.text, self.named]


def build_confirm(place: str = "") -> Confirm:
    """Build it in the column at hand, unseen. place: what the names of its elements begin with."""
    with gr.Column(visible=False, elem_id=f"{place}confirm-area", elem_classes="confirm") as area:
        text = gr.HTML(apply_default_css=False, elem_id=f"{place}confirm-text")
        with gr.Row():
            yes = gr.Button("Delete for good", variant="stop", size="sm", elem_id=f"{place}confirm")
            keep = gr.Button("Keep", size="sm", elem_id=f"{place}keep", elem_classes="keep")
    return Confirm(area, text, yes, keep, gr.State([]))
