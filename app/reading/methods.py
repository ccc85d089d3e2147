"""The methods as plain data, for the command line, the HTTP API and the page."""

import dataclasses
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from app.errors import UsageError
from app.machine.model_names import POCKET, SMOLLM2, local_path, model_source, split_model

if TYPE_CHECKING:
    import engine

ESSENTIALS = ("locret", "infinipot")
"""Methods with a fixed memory, the most exact first. The last one needs no training."""
PRESETS = {SMOLLM2: {"exact": "light"}}
"""Presets for models that come with Stockpot, where their window alone would choose larger settings."""


def method_for(model: str, name: str, settings: dict[str, Any]) -> "engine.Method":
    """Return the method with settings that suit a model. Only the model's configuration is read.

    Args:
        model: name of the model.
        name: name of the method.
        settings: settings that go before those that suit the model.

    Raises:
        engine.EngineError: the model, the method, its settings or its trained weights cannot be used.
    """
    spec = spec_of(model)
    method = suited_method(model, spec.window, name, settings)
    method.weights_digest(spec)
    return method


def essentials_for(model: str) -> str:
    """Return the name of the method that keeps the essentials of a text in a fixed memory, for this model.

    It is the most exact of those that the model can use (docs/results.md).

    Raises:
        engine.EngineError: the model cannot be used.
    """
    import engine

    *trained, last = ESSENTIALS
    for name in trained:
        with suppress(engine.WeightsError, engine.SettingsError):
            return method_for(model, name, {}).name
    return last


def suited_method(model: str, window: int, name: str, settings: dict[str, Any]) -> "engine.Method":
    """Return the method with settings that suit a model whose window is known.

    Args:
        model: name of the model.
        window: tokens that the model was trained for.
        name: name of the method.
        settings: settings that go before those that suit the model.

    Raises:
        engine.SettingsError: there is no such method, or its settings are impossible.
    """
    import engine

    preset = PRESETS.get(split_model(model)[0], {}).get(name)
    if preset is not None:
        with suppress(engine.SettingsError):  # the given settings may contradict the preset
            return engine.make_method(name, **{"preset": preset, **settings})
    return engine.suited_method(window, name, **settings)


def spec_of(model: str) -> "engine.ModelSpec":
    """Return the spec of a model by name, from its configuration alone.

    Raises:
        engine.EngineError: the model cannot be used.
    """
    import torch

    import engine

    source = model_source(model)
    return engine.model_sizes(engine.read_config(source), torch.float32, folder=local_path(source)).spec


def weights_setting(name: str | None) -> str:
    """Return the name of the setting that holds the file of a method's trained weights.

    Raises:
        UsageError: no method is named, or it needs no such weights.
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
    """Return every method with the settings that suit a model, as plain data.

    Keys: name, family, summary, default (whether it is the default method), budget, settings and their types, choices
        (of
    settings with a few values), presets (settings by preset name).

    Raises:
        engine.EngineError: the model cannot be used.
    """
    import engine

    window, rows = _window(model), []
    for name, kind in engine.METHODS.items():
        settings = suited_method(model, window, name, {}).settings()
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
