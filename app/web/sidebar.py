"""The components of the left side: what was read ("Documents"), the sessions over it ("Chats"), and the search."""

from dataclasses import dataclass

import gradio as gr

from app.web.search_box import search_box

LOGO = """
<svg viewBox="0 0 32 32" width="28" height="28" aria-hidden="true"><path d="M5 12h22v9a6 6 0 0 1-6 6H11a6 6 0 0 1-6-6z"
fill="currentColor"/><path d="M2.5 12h27" stroke="currentColor" stroke-width="2.6" stroke-linecap="round"/>
<path d="M11 8c0-1.6 1.6-1.6 1.6-3.2M16 8c0-1.6 1.6-1.6 1.6-3.2M21 8c0-1.6 1.6-1.6 1.6-3.2" stroke="currentColor"
stroke-width="1.7" fill="none" stroke-linecap="round" opacity=".65"/></svg>"""

BRAND = (
    f'<div class="brand">{LOGO}<span>Stockpot</span>'
    '<button type="button" class="icon menu" data-action="menu" aria-expanded="false" '
    'aria-label="Documents and chats"><svg viewBox="0 0 24 24" width="20" height="20" aria-hidden="true">'
    '<path d="M4 7h16M4 12h16M4 17h16" stroke="currentColor" stroke-width="2" stroke-linecap="round"/></svg></button>'
    '<button type="button" class="icon" data-action="theme" aria-label="Switch between light and dark">'
    '<svg viewBox="0 0 24 24" width="18" height="18" aria-hidden="true"><circle cx="12" cy="12" r="8.2" fill="none" '
    'stroke="currentColor" stroke-width="1.8"/><path d="M12 3.8a8.2 8.2 0 0 1 0 16.4z" fill="currentColor"/></svg>'
    "</button></div>"
)


@dataclass(frozen=True)
class Sidebar:
    """The components of the left side."""

    new: gr.Button
    search: gr.Textbox
    hits: gr.Radio
    contexts: gr.Radio
    more_contexts: gr.Button
    remove_failed: gr.Button
    session_area: gr.Column
    sessions: gr.Radio
    more_sessions: gr.Button
    new_session: gr.Button
    add_documents: gr.Button


def build_sidebar() -> Sidebar:
    """Build the left side in the current column."""
    gr.HTML(BRAND, apply_default_css=False, elem_id="brand")
    new = gr.Button("New document", variant="primary", elem_id="new-reading")
    search = search_box("Search documents and chats", "Search", "search")
    hits = gr.Radio(choices=[], label="Found", elem_id="hits", elem_classes="list", visible=False)
    contexts = gr.Radio(choices=[], label="Documents", elem_id="contexts", elem_classes="list")
    more_contexts = gr.Button("", size="sm", elem_id="more-contexts", visible=False)
    remove_failed = gr.Button("", size="sm", elem_id="remove-failed", visible=False)
    with gr.Column(visible=False, elem_id="session-area") as session_area:
        with gr.Row(elem_id="session-actions"):
            new_session = gr.Button("New chat", size="sm", elem_id="new-session", min_width=90)
            add_documents = gr.Button("Add documents", size="sm", elem_id="add-documents", min_width=90)
        sessions = gr.Radio(choices=[], label="Chats", elem_id="sessions", elem_classes="list")
        more_sessions = gr.Button("", size="sm", elem_id="more-sessions", visible=False)
    lists = contexts, more_contexts, remove_failed, session_area, sessions, more_sessions
    return Sidebar(new, search, hits, *lists, new_session, add_documents)
