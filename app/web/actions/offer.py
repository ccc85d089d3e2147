"""Actions of the offer of a better model: show it, and take it."""

from typing import Any

import gradio as gr

from app.jobs.model_fetcher import last_fetch
from app.jobs.uploads import move_in
from app.machine.model_names import canonical_model
from app.machine.offer import HERE, MIRROR, NOWHERE, ships
from app.reading.documents import IngestOptions
from app.reading.methods import ESSENTIALS, chosen_settings, spec_of
from app.web.actions.form import FormActions
from app.web.expert_fields import settings_from
from app.web.new_reading import OCR
from app.web.tab_state import Selection
from app.web.views.offer_line import button_of, offer_line
from sessions import UNDER_WAY


class OfferActions:
    """The actions on the offer, which all tabs share."""

    def __init__(self, form: FormActions) -> None:
        """Keep the form, with its home and its worker."""
        self.service, self.worker, self.form = form.service, form.worker, form
        self.offers = form.offers

    def show(self, model: str | None, add_to: str | None, files: list[str] | None, kept: list[str] | None) -> list[Any]:
        """Show the offer where a model that ships is chosen, and no other is being fetched.

        Returns:
            Updates of the row, its line and its button.
        """
        job = last_fetch(self.service)
        fetching = job is not None and job.status in UNDER_WAY and not job.cancel_requested
        offer = None if add_to or fetching or not ships(self.form.model(model)) else self.offers.get()
        if offer is None:
            return [gr.update(visible=False), gr.skip(), gr.skip()]
        words = button_of(offer, reads=bool(files or kept))
        line = offer_line(offer, self.service.home)
        return [gr.update(visible=True), gr.update(value=line), gr.update(visible=offer.way != NOWHERE, value=words)]

    def take(
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
        """Choose the offered model, or fetch it first, and read the dropped files and selected documents with it.

        Returns:
            The new selection, and updates of files, title, password, model and the row of the offer.
        """
        offer = self.offers.get()
        if offer is None or offer.way == NOWHERE or selection.context:  # a second click
            return selection, [gr.skip()] * 5
        method, settings = self._suited(method, self.form.model(model), values)
        chosen, facts = gr.skip(), dict[str, Any]()
        if offer.way == HERE:
            name = canonical_model(offer.name, self.service.home)
            self.service.choose_model(name)
            chosen = gr.update(value=offer.name)
        else:
            name = offer.name
            facts["fetch"] = self.worker.fetcher.fetch(name, mirror=offer.way == MIRROR, choose=True).id
        if not (files or selection.kept):
            return selection, [gr.skip(), gr.skip(), gr.skip(), chosen, gr.update(visible=False)]
        moved = move_in(self.service.home, files) if files else []
        options = IngestOptions((title or "").strip() or None, password or None, OCR[ocr])
        kept = [self.service.store.documents.get(id).id for id in selection.kept]
        job = self.worker.ingest(moved, method, settings, options, name, wait=True, documents=kept, facts=facts)
        emptied = [gr.update(value=None), gr.update(value=""), gr.update(value="")]
        return Selection(job.id), [*emptied, chosen, gr.update(visible=False)]

    def _suited(self, method: str, present: str, values: tuple[Any, ...]) -> tuple[str, dict[str, Any]]:
        """Return the method and the settings that a person chose, for another model than the present one."""
        import engine

        settings = settings_from(method, self.form.setting_keys, values)
        settings = chosen_settings(present, spec_of(present).window, engine.make_method(method, **settings))
        if method in ESSENTIALS:  # the other model may lack trained weights
            return ESSENTIALS[-1], settings if method == ESSENTIALS[-1] else {}
        return method, settings
