"""Actions of tables over documents, comparisons and self-tests: begin one, stop it, go on with it, remove it."""

from typing import Any

import gradio as gr

from app.asking.self_test import CARDS
from app.jobs.sweeps import comparison_request, quiz_of, quiz_request, remove, table_request
from app.jobs.worker import Worker
from app.service import Service
from app.web.tab_state import Selection


class SweepActions:
    """Actions of tables over documents, comparisons and self-tests."""

    def __init__(self, service: Service, worker: Worker) -> None:
        """Keep the home and its worker."""
        self.service, self.worker = service, worker

    def ask_each(self, selection: Selection, columns: str | None) -> tuple[Selection, list[Any]]:
        """Ask each of the chosen documents, and show the table."""
        if selection.context:  # a second press
            return selection, [gr.skip()]
        job = self.worker.sweep(*table_request(self.service, selection.kept, (columns or "").split(";")))
        return Selection(job.id), [gr.update(value="")]

    def compare(self, selection: Selection) -> Selection:
        """Compare the two chosen documents."""
        return Selection(self.worker.sweep(*comparison_request(self.service, selection.kept)).id)

    def test(self, selection: Selection) -> Selection:
        """Test what is known of the shown context, or go on with that."""
        stopped = quiz_of(self.service, selection.context)
        cards = stopped.payload["cards"] if stopped else CARDS
        self.worker.sweep(*quiz_request(self.service, selection.context, cards))
        return selection

    def stop_test(self, selection: Selection) -> Selection:
        """Stop that test; its cards are kept."""
        if job := quiz_of(self.service, selection.context):
            self.worker.cancel(job.id)
        return selection

    def go_on(self, selection: Selection) -> Selection:
        """Go on with one that was stopped."""
        job = self.service.store.jobs.get(selection.context)
        return Selection(self.worker.sweep(job.subject_id, job.payload).id)

    def stop(self, selection: Selection) -> Selection:
        """Stop one; its findings are kept."""
        self.worker.cancel(selection.context)
        return selection

    def remove(self, selection: Selection) -> Selection:
        """Remove one; its findings are kept with the documents."""
        remove(self.service, self.service.store.jobs.get(selection.context))
        return Selection()
