"""The methods as plain data, for the command line, the HTTP API and the page."""

import dataclasses
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from app.errors import UsageError
from app.home import POCKET, SMOLLM2, local_path, model_source, split_model

if TYPE_CHECKING:
    import engine

PRESETS = {SMOLLM2: {"exact": "light"}}
"""Of models that come with Stockpot, the presets that are taken where a window alone would choose larger ones."""


def method_for(model: str, name: str, settings: dict[str, Any]) -> "engine.Method":
    """The method as it suits a model by name, of which only the configuration is read; given settings go before.

    Raises:
        engine.EngineError: the model, the method or the settings cannot be, or weights that the method needs beside
            the model's own.
    """
    spec = spec_of(model)
    method = suited(model, spec.window, name, settings)
    method.weights_digest(spec)
    return method


def suited(model: str, window: int, name: str, settings: dict[str, Any]) -> "engine.Method":
    """Return the method as it suits a model by name, whose window is given; settings that are given go before.

    Raises:
        engine.SettingsError: there is no such method, or the settings cannot be.
    """
    import engine

    preset = PRESETS.get(split_model(model)[0], {}).get(name)
    if preset is not None:
        with suppress(engine.SettingsError):  # given settings may not go with it
            return engine.make_method(name, **{"preset": preset, **settings})
    return engine.suited_method(window, name, **settings)


def spec_of(model: str) -> "engine.ModelSpec":
    """What a method needs to know of a model by name, from its configuration alone.

    Raises:
        engine.EngineError: the model cannot be.
    """
    import torch

    import engine

    source = model_source(model)
    return engine.model_sizes(engine.read_config(source), torch.float32, folder=local_path(source)).spec


def weights_setting(name: str | None) -> str:
    """The setting of a method that names the file of its trained weights.

    Raises:
        UsageError: no method is named, or one that needs no such weights.
    """
    import engine

    known = {each: kind.weights_setting for each, kind in engine.METHODS.items() if kind.weights_setting}
    if name not in known:
        raise UsageError(
            f"--weights is for the methods {' and '.join(known)}, which need trained weights beside the model's own: "
            f"name one of them with --method."
        )
    return known[name]


def methods_table(model: str = POCKET) -> list[dict[str, Any]]:
    """Every method, with what suits a model if nothing else is asked for.

    Keys: name, family, summary, default (whether it is the one taken), budget, settings and their types, choices (of
    the settings that are one of a few), presets (by name, all their settings).

    Raises:
        engine.EngineError: the model cannot be used.
    """
    import engine

    window, rows = _window(model), []
    for name, kind in engine.METHODS.items():
        settings = suited(model, window, name, {}).settings()
        rows.append(
            {
                "name": name,
                "family": kind.family,
                "summary": kind.summary,
                "default": name == engine.DEFAULT_METHOD,
                "budget": settings.pop("budget"),
                "settings": settings,
                "types": {field.name: str(field.type) for field in dataclasses.fields(kind) if field.name != "budget"},
                "choices": {each: list(known) for each, known in kind.choices.items()},
                "presets": {each: engine.make_method(name, preset=each).settings() for each in kind.presets},
            }
        )
    return rows


def _window(model: str) -> int:
    import engine

    return engine.window_of(engine.read_config(model_source(model)))
