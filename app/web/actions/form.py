"""Actions of the form of a new document: choose its model and memory, say what to expect, fetch models."""

import time
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gradio as gr

from app.errors import AppError, expected, phrase
from app.formatting import together_in_words
from app.jobs.model_fetcher import FETCH, last_fetch
from app.jobs.worker import Worker
from app.language import joined, t, told
from app.machine.forecast import Measured, forecast_text, reading_plan, room_here
from app.machine.good_for import good_for
from app.machine.hub import hub_id
from app.machine.local_models import local_folder, local_models
from app.machine.mirror import ON_MIRROR
from app.machine.model_names import canonical_model, named_model, shown_name, split_model
from app.machine.offer import HUB, MIRROR, Offers
from app.machine.pace import telling
from app.machine.recommended import form_in, memory_for_weights
from app.reading.methods import chosen_settings, essentials_for, fitted_to_text, spec_of
from app.reading.previews import Preview, pages_in_words, preview_of
from app.service import Service
from app.web.expert_fields import settings_from, suiting
from app.web.metrics import MOST_READ
from app.web.model_field import hub_choices, model_choices, unusable_models
from app.web.new_reading import ESSENTIALS, EVERYTHING
from app.web.tab_state import Selection
from app.web.views.markup import esc, told_html
from ingest.formats import SUFFIXES, formats_once, suffix_of

if TYPE_CHECKING:
    import engine

JUST_NOW_SEC = 60.0

NO_NETWORK = "There is no network, so no better model can be fetched."
NONE_FITS = "None of the recommended models fits into the memory that is free."
ALL_HERE = "All recommended models that fit are on this computer."


class FormActions:
    """The actions on the form, before anything is read."""

    def __init__(
        self, service: Service, worker: Worker, setting_keys: list[tuple[str, str]], own: list[str], presets: list[str]
    ) -> None:
        """Keep the home and the fields of the form.

        Args:
            service: the home in use.
            worker: runs the jobs.
            setting_keys: (method, setting) of the fields whose values `estimate` gets last.
            own: method of each component that is shown for one method alone, in the order of `choose_method`'s updates.
            presets: the methods with a field for presets, in the order of those of `choose_model`.
        """
        self.service, self.worker = service, worker
        self.setting_keys, self.own, self.presets = setting_keys, own, presets
        self.offers = Offers(service.home, service.models.device, service.store.contexts.all)
        self._chat = lru_cache(1)(service.models.chat)  # its tokenizer estimates lengths

    def find_models(self, chosen: str = "") -> list[Any]:
        """Return the choice of models, and the unusable ones as HTML.

        chosen: path of a model to choose now; "" for the default one.
        """
        found = local_models(self.service.home)
        room, _ = memory_for_weights(self.service.models.device)
        plain, way = split_model(chosen or self.service.models.default)
        value = next((each.name for each in found if plain in (each.path, each.name)), "")
        choice = {"value": named_model(value, way)} if value else {}
        return [
            gr.update(choices=model_choices(found, room, form_in(self.service.models.device)), **choice),
            unusable_models(found),
        ]

    def find_others(self) -> list[Any]:
        """Return the models that can be fetched, or why there are none, and the button that fetches one."""
        way, fitting = self.offers.to_fetch()
        others = hub_choices(fitting, local_models(self.service.home))
        why = "" if others else NO_NETWORK if way != HUB else ALL_HERE if fitting else NONE_FITS
        offered = gr.update(choices=others, value=others[0][1] if others else None, info=told(why))
        return [offered, gr.update(interactive=bool(others))]

    def find_fetched(self) -> list[Any]:
        """Return the same as `find_models` after a model was fetched; that is chosen, if it has just come."""
        job = last_fetch(self.service)
        fresh = job is not None and job.status == "done" and time.time() - (job.finished_at or 0.0) < JUST_NOW_SEC
        return self.find_models(job.progress.get("path", "") if job is not None and fresh else "")

    def take_folder(self, files: Sequence[str] | None, folder: Sequence[str] | None) -> list[Any]:
        """Put the files of a chosen folder that can be read beside those that were chosen before."""
        paths = [Path(each) for each in folder or ()]
        readable = [str(each) for each in paths if suffix_of(each) in SUFFIXES and not each.name.startswith(".")]
        if not readable:
            raise AppError("There is no file in this folder that can be read.")
        return [gr.update(value=[*(files or ()), *sorted(readable)]), gr.update(value=None)]

    def choose_memory(self, memory: str | None, model: str | None) -> list[Any]:
        """Choose the method that a memory in plain words means, and show its settings."""
        import engine

        method = essentials_for(self.model(model)) if memory == ESSENTIALS else engine.DEFAULT_METHOD
        return [gr.update(value=method), *self._shown(method)]

    def choose_method(self, method: str, model: str | None) -> list[Any]:
        """Show the settings of a method alone, and mark the memory that it means in plain words."""
        import engine

        meant = EVERYTHING if method == engine.DEFAULT_METHOD else None
        if meant is None:
            try:
                meant = ESSENTIALS if method == essentials_for(self.model(model)) else None
            except Exception as error:
                if not expected(error):
                    raise
        return [gr.update(value=meant), *self._shown(method)]

    def choose_model(self, model: str | None, memory: str | None) -> list[Any]:
        """Fill in the settings that suit a model, for all methods, without presets."""
        suited = {row["name"]: {"budget": row["budget"], **row["settings"]} for row in suiting(self.model(model))}
        filled = [*self._filled(suited), *(gr.update(value=None) for _ in self.presets)]
        if memory != ESSENTIALS:
            return [*filled, gr.skip(), *[gr.skip()] * len(self.own)]
        return [*filled, *self.choose_memory(memory, model)]  # another method may be the best for this model

    def choose_preset(self, name: str, *chosen: str | None) -> list[Any]:
        """Fill in the settings of a preset. chosen: the preset chosen for each method that has presets."""
        import engine

        preset = dict(zip(self.presets, chosen, strict=True))[name]
        return self._filled({name: engine.make_method(name, preset=preset).settings()} if preset else {})

    def _shown(self, method: str) -> list[Any]:
        return [gr.update(visible=owner == method) for owner in self.own]

    def _filled(self, settings: Mapping[str, Mapping[str, Any]]) -> list[Any]:
        """Return updates of all setting fields from the given settings, by method."""
        return [
            gr.update(value=settings[owner][key]) if key in settings.get(owner, {}) else gr.skip()
            for owner, key in self.setting_keys
        ]

    def estimate(
        self,
        files: Sequence[str] | None,
        kept: Sequence[str] | None,
        add_to: str | None,
        method: str,
        model: str | None,
        *values: Any,
    ) -> list[Any]:
        """Say what to expect of the chosen files and documents, or why they cannot be read so.

        Args:
            files: paths of the files.
            kept: ids of documents.
            add_to: id of the context that they are added to, with its model and memory; "" or None for none.
            method: the method, if they are not added.
            model: the model as typed.
            values: the settings of all methods.

        Returns:
            The line as HTML; the timer that asks again while a file is being opened; a sentence on the model; and the
            button that reads, disabled if nothing chosen can be read.
        """
        name, waiting, readable = self.model(model), False, True
        if not files:
            self.service.previews.forget_refusals()
        try:
            settings = {} if add_to else settings_from(method, self.setting_keys, values)
            found = [self._kept(id) for id in kept or ()]
            opened = [self.service.previews.get(Path(each)) for each in files or ()]
            waiting = None in opened
            if waiting:
                at = opened.index(None)
                line, doubt = t("Opening {file} …", file=Path((files or ())[at]).name), ""
            else:
                found += [each for each in opened if each is not None]
                readable = not found or any(each.readable for each in found)
                usable = [each for each in found if not each.reason]
                reasons = joined(map(told, formats_once([each.reason for each in found if each.reason])))
                if not usable and (add_to or reasons):
                    line, doubt = reasons, ""
                elif add_to:
                    line, doubt = _titles_and_length(usable), reasons
                else:
                    line, doubt = self._expected(usable, name, method, settings)
                    doubt = joined([reasons, doubt])
        except Exception as error:
            if not expected(error):
                raise
            reason = f'<p class="note" role="status">{told_html(phrase(error))}</p>'
            return [reason, gr.update(active=False), _about(name), gr.update(interactive=readable)]
        more = f'<p class="quiet">{esc(doubt)}</p>' if doubt else ""
        facts = " · ".join(f"<span>{esc(each)}</span>" for each in line.split(" · "))  # wrapped between them
        said = f'<p class="expected" role="status">{facts}</p>{more}'
        return [said, gr.update(active=waiting), _about(name), gr.update(interactive=readable)]

    def _kept(self, document_id: str) -> Preview:
        title = self.service.store.documents.get(document_id).title
        return preview_of(self.service.document_cache.document(document_id), title)

    def _expected(self, found: list[Preview], name: str, method_name: str, settings: dict[str, Any]) -> tuple[str, str]:
        """Return the line and the warning for documents that can be read; without any, for a book."""
        import engine

        method = engine.make_method(method_name, **settings)
        home, device = self.service.home, self.service.models.device
        loaded = self.service.models.held == name
        measured = self._measured(name, method)
        if not found:
            return room_here(name, method, home, device, loaded=loaded, measured=measured), ""
        if local_folder(name) is None:
            fetched = t("{model} is fetched before they are read.", model=shown_name(name))
            return f"{_titles_and_length(found)} · {fetched}", ""
        chat = self._chat(name)
        tokens = sum(each.tokens(lambda text: len(chat.encode(text).ids)) for each in found)
        window = spec_of(name).window
        method = fitted_to_text(method, window, chosen_settings(name, window, method), tokens)
        plan, seconds = reading_plan(name, method, tokens, home, device, loaded=loaded, measured=measured)
        return forecast_text(_titles_and_length(found), plan, seconds, window, loaded=loaded)

    def _measured(self, name: str, method: "engine.Method") -> Measured | None:
        """Return the last telling reading with this model, one with these settings before others; None without any."""
        import engine

        rows = telling(self.service.store.contexts.all(model=name, most=MOST_READ))
        same = [row for row in rows if (row.method, row.settings) == (method.name, method.settings())]
        for row in [*same, *rows]:
            try:
                then = engine.make_method(row.method, **row.settings)
            except engine.SettingsError:  # an older version's
                continue
            return Measured(then, row.tokens_read - row.read_before, row.seconds)
        return None

    def model(self, typed: str | None) -> str:
        """Return the typed model, or the server's."""
        if not typed or not typed.strip():
            return self.service.models.default
        return canonical_model(typed.strip(), self.service.home)

    def fetch(self, selection: Selection, name: str | None) -> Selection:
        """Fetch a model, or go on with it."""
        if not name:
            raise AppError("Choose the model to get first.")
        way, _ = self.offers.to_fetch()
        self.worker.fetcher.fetch(hub_id(name), mirror=way == MIRROR and hub_id(name) == ON_MIRROR.name)
        return selection

    def stop_fetching(self, selection: Selection) -> Selection:
        """Stop fetching models. What has come stays."""
        for job in self.service.store.jobs.all(kind=FETCH):
            self.worker.cancel(job.id)
        return selection


def _titles_and_length(found: Sequence[Preview]) -> str:
    """Return the titles and the length of documents, in words: "Kim and Emma · about 900 pages"."""
    return f"{together_in_words([each.title for each in found])} · {pages_in_words([each.length for each in found])}"


def _about(name: str) -> str:
    about = good_for(name)
    return f'<p class="quiet">{told_html(about)}</p>' if about else ""
