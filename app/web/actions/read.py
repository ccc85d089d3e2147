"""Actions of a reading: fill in the form, start it, stop it, resume it."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import gradio as gr

from app.errors import AppError, expected, phrase
from app.home import sample_book
from app.jobs.uploads import copy_in, move_in
from app.jobs.worker import Worker
from app.machine.fitting import estimate
from app.machine.local_models import local_models
from app.machine.model_names import canonical_model
from app.machine.recommended import good_for, recommended_json
from app.reading.documents import IngestOptions
from app.reading.methods import method_for
from app.reading.preparing import base_for
from app.service import Service
from app.web.new_reading import OCR, hub_choices, model_choices, settings_from, suiting, unusable_models
from app.web.tab_state import Selection
from app.web.views.markup import esc
from sessions import JobRow

TELLING = 10_000
"""Least tokens of an earlier reading whose speed is shown for the next one."""


class ReadingActions:
    """The actions on readings and uploads."""

    def __init__(
        self, service: Service, worker: Worker, setting_keys: list[tuple[str, str]], own: list[str], presets: list[str]
    ) -> None:
        """Keep the home and the fields of the form.

        Args:
            service: the home in use.
            worker: runs the jobs.
            setting_keys: (method, setting) of the fields whose values `start_reading` gets last.
            own: method of each component that is shown for one method alone, in the order of `choose_method`'s updates.
            presets: the methods with a field for presets, in the order of those of `choose_model`.
        """
        self.service, self.worker = service, worker
        self.setting_keys, self.own, self.presets = setting_keys, own, presets

    def find_models(self) -> list[Any]:
        """Return the choice of models, and the unusable ones as HTML, for a tab that opens."""
        found = local_models(self.service.home)
        others = hub_choices(recommended_json(self.service.models.device), found)
        return [gr.update(choices=[*model_choices(found), *others]), unusable_models(found)]

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

    def choose_method(self, name: str) -> list[Any]:
        """Show the settings of a method alone."""
        return [gr.update(visible=owner == name) for owner in self.own]

    def choose_model(self, model: str | None) -> list[Any]:
        """Fill in the settings that suit a model, for all methods, without presets."""
        suited = {row["name"]: {"budget": row["budget"], **row["settings"]} for row in suiting(self._model(model))}
        return [*self._filled(suited), *(gr.update(value=None) for _ in self.presets)]

    def choose_preset(self, name: str, *chosen: str | None) -> list[Any]:
        """Fill in the settings of a preset. chosen: the preset chosen for each method that has presets."""
        import engine

        preset = dict(zip(self.presets, chosen, strict=True))[name]
        return self._filled({name: engine.make_method(name, preset=preset).settings()} if preset else {})

    def _filled(self, settings: Mapping[str, Mapping[str, Any]]) -> list[Any]:
        """Return updates of all setting fields from the given settings, by method."""
        return [
            gr.update(value=settings[owner][key]) if key in settings.get(owner, {}) else gr.skip()
            for owner, key in self.setting_keys
        ]

    def estimate(self, method: str, model: str | None, *values: Any) -> list[str]:
        """Return as HTML what the form would need, or why it is impossible."""
        import engine

        models = self.service.models
        name = self._model(model)
        try:
            method_now = engine.make_method(method, **settings_from(method, self.setting_keys, values))
            like = (row for row in self.service.store.contexts.all() if (row.model, row.method) == (name, method))
            same = (row for row in like if row.settings == method_now.settings())
            told = (row.tokens_per_second for row in same if row.tokens_read - row.read_before >= TELLING)
            measured = next(filter(None, told), None)
            loaded = models.held == name
            line = estimate(name, method_now, self.service.home, models.device, loaded=loaded, measured=measured)
        except Exception as error:
            if not expected(error):
                raise
            return [f'<p class="note" role="status">{esc(phrase(error))}</p>']
        about = good_for(name)
        more = f'<p class="quiet">{esc(about)}</p>' if about else ""
        return [f'<p class="quiet" role="status">{esc(line)}</p>{more}']

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
        settings = settings_from(method, self.setting_keys, values)
        method_for(self._model(model), method, settings)
        return partial(self.worker.ingest, method=method, settings=settings, model=self._model(model))

    def _model(self, typed: str | None) -> str:
        """Return the typed model, or the server's."""
        return canonical_model(typed.strip()) if typed and typed.strip() else self.service.models.default

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
