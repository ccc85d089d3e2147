"""A box to search in: without a frame, and named for screen readers alone."""

import gradio as gr


def search_box(name: str, words: str, element: str) -> gr.Textbox:
    """Build a box in the current column. name: its full name; words: shown in it while it is empty; element: its id."""
    return gr.Textbox(placeholder=words, label=name, show_label=False, elem_id=element, container=False, max_lines=1)
