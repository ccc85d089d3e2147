"""The page: its areas side by side. This file only builds them; `events.py` connects them."""

import logging
from typing import Any

import gradio as gr
from gradio.processing_utils import client_utils

from app.errors import AppError, log_error, phrase
from app.jobs.uploads import check_dropped
from app.jobs.worker import Worker
from app.language import told
from app.service import Service
from app.web.chat_panel import build_chat_panel
from app.web.document_panel import build_document_panel
from app.web.events import Events, Page, speaking_with
from app.web.new_reading import build_new_reading
from app.web.reading_panel import build_reading_panel
from app.web.sidebar import build_sidebar
from app.web.sweep_panel import build_sweep_panel

log = logging.getLogger(__name__)

STREAM_SEC = 0.25
SWEEP_SEC = 3600
CACHE_SEC = 24 * 3600
"""Age at which dropped files that were not read are removed."""
AGAIN = "Try again; if it fails once more, load the page anew."
TABS = 64
"""Tabs whose state Gradio remembers, also after they are closed; others are sent everything again."""


class OwnFiles(gr.Blocks):  # type: ignore[misc]  # Gradio has no types
    """Gradio's page, restricted to files that were dropped in.

    Gradio itself would read any path, and fetch any address, that a browser sends in a field. It also checks fields,
    and makes updates, outside of the handlers in `events.py`.
    """

    service: Service

    def run_startup_events(self) -> None:
        """Start without Gradio's queue: no event uses it, and it would look for some a thousand times a second."""
        self.is_running = True
        self.create_limiter()

    async def preprocess_data(self, block_fn: Any, inputs: list[Any], *args: Any, **kwargs: Any) -> list[Any]:
        """Check every file among the values of an event before Gradio reads it.

        Raises:
            AppError: see `check_dropped`.
        """
        client_utils.traverse(
            inputs, lambda file: check_dropped(self.service.home, file["path"]), client_utils.is_file_obj
        )
        taken: list[Any] = await super().preprocess_data(block_fn, inputs, *args, **kwargs)
        return taken

    async def process_api(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Run an event; `page.js` shows the sentence of one that fails.

        Raises:
            AppError: the event failed outside of its handler, with a sentence in the language of the browser.
        """
        try:
            done: dict[str, Any] = await super().process_api(*args, **kwargs)
        except Exception as error:
            log_error(log, "an event failed", error)
            if isinstance(error, AppError) and (asked := kwargs.get("request")) is not None:
                asked.request.state.refused = True
            with speaking_with(kwargs.get("request")):
                raise AppError(told(f"{phrase(error)} {AGAIN}")) from error
        return done


def build_page(service: Service, worker: Worker) -> gr.Blocks:
    """Build the whole page over one home and its worker."""
    with OwnFiles(
        title="Stockpot", fill_width=True, analytics_enabled=False, delete_cache=(SWEEP_SEC, CACHE_SEC)
    ) as blocks:
        with gr.Row(elem_id="frame"):
            with gr.Column(elem_id="shelf", min_width=0):
                sidebar = build_sidebar()
            with gr.Column(elem_id="main", min_width=0):
                new = build_new_reading(service.models.default)
                reading = build_reading_panel()
                chat = build_chat_panel()
                sweep = build_sweep_panel()
            with gr.Column(elem_id="side", min_width=0):
                document = build_document_panel()
        where = gr.HTML(apply_default_css=False, elem_id="where")
        notice = gr.HTML(apply_default_css=False, elem_id="notice")
        page = Page(
            sidebar,
            new,
            reading,
            chat,
            sweep,
            document,
            where,
            notice,
            gr.Button("", visible="hidden", elem_id="pulse"),
            gr.Timer(STREAM_SEC, active=False),
        )
        Events(page, service, worker).connect(blocks)
    blocks.service = service
    blocks.has_launched = True  # without it Gradio does not check paths; only `launch` sets it
    blocks.state_session_capacity = TABS
    return blocks
