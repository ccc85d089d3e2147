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
LONG = 8192
"""Least window of a model to which `exact` shows a whole text."""
WHOLE = 16_384
"""Largest budget for that: a longer text would take minutes and gigabytes more, and is answered worse by a memory than
by plain text search (docs/results.md, 32K)."""
ROOM = 512
"""Tokens of questions and answers beside such a text."""


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


def suited_method(
    model: str, window: int, name: str, settings: dict[str, Any], tokens: int | None = None
) -> "engine.Method":
    """Return the method with settings that suit a model whose window is known.

    A text that fits the window is shown whole to every question, if no budget was chosen.

    Args:
        model: name of the model.
        window: tokens that the model was trained for.
        name: name of the method.
        settings: settings that go before those that suit the model.
        tokens: length of the text, or None.

    Raises:
        engine.SettingsError: there is no such method, or its settings are impossible.
    """
    import engine

    method, preset = None, PRESETS.get(split_model(model)[0], {}).get(name)
    if preset is not None:
        with suppress(engine.SettingsError):  # the given settings may contradict the preset
            method = engine.make_method(name, **{"preset": preset, **settings})
    method = method or engine.suited_method(window, name, **settings)
    return method if tokens is None else fitted_to_text(method, window, settings, tokens)


def fitted_to_text(method: "engine.Method", window: int, settings: dict[str, Any], tokens: int) -> "engine.Method":
    """Return `exact` with a budget that shows a text whole, if that is possible. Other methods stay as they are.

    Args:
        method: the method with all its settings.
        window: tokens that the model was trained for.
        settings: the settings that a person chose.
        tokens: length of the text.
    """
    from engine.methods.exact import Exact

    most, chosen = min(window, WHOLE), {"budget", "preset"} & settings.keys()
    if window < LONG or chosen or not isinstance(method, Exact) or method.budget is None or method.budget >= most:
        return method
    wider = dataclasses.replace(method, budget=most)
    return wider if tokens + ROOM <= wider.window else method


def chosen_settings(model: str, window: int, method: "engine.Method") -> dict[str, Any]:
    """Return the settings that a person chose in a form with all of them: those that differ from the suited ones."""
    suited = suited_method(model, window, method.name, {}).settings()
    return {key: value for key, value in method.settings().items() if suited[key] != value}


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
