"""The components of the conversation: head, turns, question field, options, and the management of sessions."""

from dataclasses import dataclass

import gradio as gr

from app.asking.answer_options import AnswerOptions
from app.web.confirm import Confirm, build_confirm
from app.web.number_field import number_field

TELL_PRESSED = """const events = { edit: "edit", again: "retry", whole: "submit", rest: "stop" };
element.addEventListener("click", (event) => {
  const pressed = event.target.closest("[data-action]"), turn = pressed?.closest(".turn")?.id;
  if (!turn) return;
  const { action, numbers } = pressed.dataset;
  if (action === "keep") trigger("like", { kept: [turn, JSON.parse(numbers), pressed.ariaPressed === "true"] });
  else if (events[action]) trigger(events[action], { turn });
});"""

KEYS = '<button type="button" data-action="keys" aria-haspopup="dialog">Keys <kbd>?</kbd></button>'

GEAR = (
    '<button type="button" data-action="gear" aria-expanded="false" aria-label="More for the question">'
    '<svg viewBox="0 0 24 24" width="20" height="20" aria-hidden="true"><path d="M4 7h9m4 0h3M4 17h3m4 0h9M13 4v6M7 '
    '14v6" stroke="currentColor" stroke-width="1.8" stroke-linecap="round"/></svg></button>'
)
"""On a phone, shows the row of pages and settings."""


@dataclass(frozen=True)
class ChatPanel:
    """The components of the conversation.

    unroll: shows earlier turns.
    earlier, past: older and newer finished turns. Both fire "edit" or "retry" with the id of a turn whose question is
        to be edited, or asked again; "submit" or "stop" if the whole text is to be searched for it, or no longer; and
        "like" with a turn, its parts, and whether they are to be dropped from notes.
    """

    area: gr.Column
    head: gr.HTML
    unroll: gr.Button
    earlier: gr.HTML
    past: gr.HTML
    live: gr.HTML
    edit_area: gr.Row
    edit_line: gr.HTML
    never_mind: gr.Button
    question: gr.Textbox
    pages: gr.Textbox
    ask: gr.Button
    stop: gr.Button
    temperature: gr.Textbox
    top_p: gr.Textbox
    max_tokens: gr.Textbox
    read_again: gr.Checkbox
    reason: gr.Checkbox
    manage: "Manage"


@dataclass(frozen=True)
class Manage:
    """The components that rename, export and delete."""

    rename_what: gr.Dropdown
    rename_to: gr.Textbox
    rename: gr.Button
    export: gr.HTML
    delete_session: gr.Button
    delete_context: gr.Button
    delete_documents: gr.Button
    confirm: Confirm


def build_chat_panel() -> ChatPanel:
    """Build the conversation in the current column."""
    with gr.Column(visible=False, elem_id="talk-view") as area:
        head = gr.HTML(apply_default_css=False, elem_id="context-head")
        with gr.Column(elem_id="conversation"):
            unroll = gr.Button("", size="sm", elem_id="unroll", visible=False)
            earlier = gr.HTML(apply_default_css=False, elem_id="earlier", js_on_load=TELL_PRESSED)
            past = gr.HTML(apply_default_css=False, elem_id="past", js_on_load=TELL_PRESSED)
            live = gr.HTML(apply_default_css=False, elem_id="live-turn")
        with gr.Column(elem_id="composer"):
            with gr.Row(visible=False, elem_id="edit-area") as edit_area:
                edit_line = gr.HTML(apply_default_css=False, elem_id="edit-line")
                never_mind = gr.Button("Never mind", size="sm", elem_id="never-mind", scale=0, min_width=100)
            with gr.Row(elem_id="ask-row"):
                question = gr.Textbox(
                    placeholder="Ask about what was read",
                    label="Question",
                    show_label=False,
                    elem_id="question",
                    lines=1,
                    max_lines=6,
                    container=False,
                    scale=8,
                )
                pages = gr.Textbox(
                    placeholder="All pages",
                    label="Answer from these pages only, such as 12-14 or iii. Empty: from all. +12: from page 12 too",
                    show_label=False,
                    elem_id="pages",
                    max_lines=1,
                    container=False,
                    scale=0,
                    min_width=92,
                )
                gr.HTML(GEAR, apply_default_css=False, elem_id="gear")
                ask = gr.Button("Ask", variant="primary", elem_id="ask", scale=0, min_width=84)
                stop = gr.Button("Stop", variant="stop", elem_id="stop", scale=0, min_width=84, visible=False)
            with gr.Row(elem_id="folds"):
                options = _build_options()
                manage = _build_manage()
                gr.HTML(KEYS, apply_default_css=False, elem_id="keys-button")
    edit = (edit_area, edit_line, never_mind)
    return ChatPanel(area, head, unroll, earlier, past, live, *edit, question, pages, ask, stop, *options, manage)


def _build_options() -> tuple[gr.Textbox, gr.Textbox, gr.Textbox, gr.Checkbox, gr.Checkbox]:
    """Build the fields for the options of an answer."""
    with gr.Accordion("How to answer", open=False, elem_id="sampling"):
        with gr.Row():
            temperature = _own("temperature", "Temperature", "0 takes the likeliest word.")
            top_p = _own("top-p", "Top-p", "Share of probability to choose from.")
            most = number_field(AnswerOptions.max_tokens, "Longest answer", "max-tokens", info="Tokens.", min_width=120)
        with gr.Row():
            read_again = gr.Checkbox(
                AnswerOptions.read_again,
                label="Read passages again",
                info="Answers from the passages that the question is about. Slower, but more often right.",
                elem_id="read-again",
            )
            reason = gr.Checkbox(
                None,
                label="Reason first",
                info="Where the model can. If you leave this alone, only a model of more than 4B weights does.",
                elem_id="reason",
            )
    return temperature, top_p, most, read_again, reason


def _own(name: str, label: str, info: str) -> gr.Textbox:
    """Build a number field that stands for the model's own value when empty."""
    own = "the model's own"
    return number_field(None, label, name, info=f"{info} Empty: the model's own.", placeholder=own, min_width=120)


def _build_manage() -> Manage:
    with gr.Accordion("Rename, export, delete", open=False, elem_id="manage"):
        with gr.Row(elem_id="rename-row"):
            rename_what = gr.Dropdown(choices=[], label="Title of", elem_id="rename-what", scale=3)
            rename_to = gr.Textbox(label="Title", elem_id="rename-to", max_length=200, scale=6)
            rename = gr.Button("Rename", size="sm", elem_id="rename", scale=0, min_width=100)
        export = gr.HTML(apply_default_css=False, elem_id="export")
        with gr.Row(elem_id="delete-row"):
            delete_session = gr.Button("Delete chat", size="sm", elem_id="delete-session", min_width=120)
            delete_context = gr.Button("Delete what was read", size="sm", elem_id="delete-context", min_width=120)
            delete_documents = gr.Button("Delete documents", size="sm", elem_id="delete-documents", min_width=120)
        confirm = build_confirm()
    return Manage(rename_what, rename_to, rename, export, delete_session, delete_context, delete_documents, confirm)
