"""The components for a reading that is under way, stopped or failed: its card and its buttons."""

from dataclasses import dataclass

import gradio as gr

from app.web.confirm import Confirm, build_confirm


@dataclass(frozen=True)
class ReadingPanel:
    """The components of the reading panel."""

    area: gr.Column
    card: gr.HTML
    unlock_area: gr.Row
    password: gr.Textbox
    unlock: gr.Button
    leave_out: gr.Button
    cancel: gr.Button
    resume: gr.Button
    ask_early: gr.Button
    discard: gr.Button
    discard_documents: gr.Button
    confirm: Confirm


def build_reading_panel() -> ReadingPanel:
    """Build the panel in the current column."""
    with gr.Column(visible=False, elem_id="reading-view", elem_classes="view") as area:
        card = gr.HTML(apply_default_css=False, elem_id="reading-card")
        with gr.Row(visible=False, elem_id="unlock-row") as unlock_area:
            password = gr.Textbox(label="Its password", type="password", elem_id="unlock-password", scale=6)
            unlock = gr.Button("Try again", variant="primary", size="sm", elem_id="unlock", scale=0, min_width=110)
        with gr.Row(elem_id="reading-actions"):
            leave_out = gr.Button("Read the others without it", elem_id="leave-out", size="sm", visible=False)
            cancel = gr.Button("Stop reading", elem_id="cancel", size="sm")
            resume = gr.Button("Go on reading", variant="primary", elem_id="resume", size="sm", visible=False)
            ask_early = gr.Button("Ask what it has read so far", elem_id="ask-early", size="sm", visible=False)
            discard = gr.Button("Remove", variant="stop", elem_id="discard", size="sm", visible=False)
            discard_documents = gr.Button(
                "Remove with documents", variant="stop", elem_id="discard-documents", size="sm", visible=False
            )
        confirm = build_confirm("reading-")
    unlocking = (unlock_area, password, unlock, leave_out)
    return ReadingPanel(area, card, *unlocking, cancel, resume, ask_early, discard, discard_documents, confirm)
