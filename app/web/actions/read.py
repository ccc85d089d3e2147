"""Actions of a reading: start it, stop it, resume it."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import gradio as gr

from app.errors import AppError
from app.home import sample_book
from app.jobs.uploads import copy_in, move_in
from app.reading.documents import IngestOptions
from app.reading.methods import chosen_settings, method_for, spec_of
from app.reading.preparing import base_for
from app.web.actions.form import FormActions
from app.web.expert_fields import settings_from
from app.web.new_reading import OCR
from app.web.tab_state import Selection
from sessions import JobRow


class ReadingActions:
    """The actions on readings and uploads."""

    def __init__(self, form: FormActions) -> None:
        """Keep the form, with its home and its worker."""
        self.service, self.worker, self.form = form.service, form.worker, form

    def choose_kept(self, selection: Selection, documents: list[str] | None) -> Selection:
        """Select kept documents, to be read again or deleted."""
        return replace(selection, kept=tuple(documents or ()))

    def add_documents(self, selection: Selection) -> Selection:
        """Open the form to add documents to the selected context; its conversation goes along."""
        turns = self.service.store.turns.all(selection.session) if selection.session else []
        said = any(turn.status == "done" for turn in turns)
        return Selection(add_to=selection.context, along=selection.session if said else "")

    def choose_add_to(self, selection: Selection, context: str | None) -> Selection:
        """Select the context that documents are added to, or none. No conversation goes along."""
        return replace(selection, add_to=context or "", along="")

    def start_reading(
        self,
        selection: Selection,
        files: list[str] | None,
        method: str,
        title: str | None,
        password: str | None,
        ocr: str,
        model: str | None,
        *values: Any,
    ) -> tuple[Selection, list[Any]]:
        """Read the dropped files and the selected documents."""
        if selection.context:  # a second click: the first began it
            return selection, [gr.skip()] * 3
        if not files and not selection.kept:
            raise AppError("Drop in one or more files first, and let the upload finish; or choose documents.")
        queue = self._queue(selection, method, model, values)
        kept = [self.service.store.documents.get(id).id for id in selection.kept]
        moved = move_in(self.service.home, files) if files else []
        options = IngestOptions((title or "").strip() or None, password or None, OCR[ocr])
        job = queue(moved, options=options, wait=True, documents=kept)
        return Selection(job.id), [gr.update(value=None), gr.update(value=""), gr.update(value="")]

    def read_sample(self, selection: Selection, method: str, model: str | None, *values: Any) -> Selection:
        """Read the sample book."""
        if selection.context:  # a second click
            return selection
        book = sample_book()
        if book is None:
            raise AppError("This installation has no sample book.")
        queue = self._queue(selection, method, model, values)
        with Path(book).open("rb") as handle:
            copied = copy_in(self.service.home, [(book.name, handle)])
        return Selection(queue(copied, options=IngestOptions()).id)

    def _queue(
        self, selection: Selection, method: str, model: str | None, values: tuple[Any, ...]
    ) -> Callable[..., JobRow]:
        """Return a function that queues files to be read as the form says, or to be added to a context.

        It refuses impossible settings while the files are still in the form.
        """
        if selection.add_to:
            base = base_for(self.service, selection.add_to)
            return partial(self.worker.add, context_id=base.id, session=selection.along or None)
        import engine

        settings = settings_from(method, self.form.setting_keys, values)
        name = self.form.model(model)
        settings = chosen_settings(name, spec_of(name).window, engine.make_method(method, **settings))
        method_for(name, method, settings)
        return partial(self.worker.ingest, method=method, settings=settings, model=name)

    def stop_reading(self, selection: Selection) -> Selection:
        """Stop a reading; the text read so far is kept."""
        jobs = (
            [self.service.store.jobs.get(selection.context)]
            if selection.context.startswith("j-")
            else self.service.store.jobs.all(subject_id=selection.context)
        )
        for job in jobs:
            self.worker.cancel(job.id)
        return selection

    def resume_reading(self, selection: Selection) -> Selection:
        """Resume a reading from its checkpoint."""
        self.worker.read(selection.context)
        return selection

    def unlock(self, selection: Selection, password: str | None) -> tuple[Selection, list[Any]]:
        """Try an encrypted upload again with this password."""
        if not password:
            raise AppError("Type the password of the file first.")
        return Selection(self.worker.unlock(selection.context, password).id), [gr.update(value="")]

    def leave_out(self, selection: Selection) -> Selection:
        """Read the other files of an upload without those that need a password."""
        return Selection(self.worker.unlock(selection.context, None).id)
