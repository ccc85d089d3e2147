"""The methods, one file each, and a table of them by name."""

from __future__ import annotations

import dataclasses
from contextlib import suppress
from typing import Any

from engine.errors import SettingsError
from engine.methods.base import Method
from engine.methods.beacon import Beacon
from engine.methods.exact import Exact
from engine.methods.full import Full
from engine.methods.infinipot import InfiniPot
from engine.methods.infinitehip import InfiniteHiP
from engine.methods.infllm import InfLLM
from engine.methods.knorm import KeyNorm
from engine.methods.locret import Locret
from engine.methods.recall import Recall
from engine.methods.streaming import Streaming
from engine.methods.tova import Tova
from engine.methods.truncate import Truncate

METHODS: dict[str, type[Method]] = {
    method.name: method
    for method in (
        Exact,
        InfiniteHiP,
        InfLLM,
        Recall,
        InfiniPot,
        Locret,
        Beacon,
        KeyNorm,
        Tova,
        Streaming,
        Truncate,
        Full,
    )
}
DEFAULT_METHOD = Exact.name
GONE: dict[str, tuple[Any, ...]] = {  # settings of saved readings, with the values that read as is read now
    "logn": (True,),
    "reduction": ("max",),
    "while_reading": (False,),
    "policy": ("lru", "frequency", "fifo", "random"),  # of a cache, which no reading depends on
}
HOST_STORES = ("bfloat16", "int8", "int4")  # of the host tier, the least lossy first


def make_method(name: str, /, **settings: Any) -> Method:
    """Return the method of that name with these settings; text values are read as the field's own type.

    Where a method has presets, `preset` names one; other settings given beside it go before its own.

    Raises:
        SettingsError: unknown method, unknown setting or preset, or a value that cannot be.
    """
    if name not in METHODS:
        raise SettingsError(f"There is no method '{name}'. Methods: {', '.join(METHODS)}.")
    kind = METHODS[name]
    if kind.presets and "preset" in settings:
        preset = str(settings.pop("preset"))
        if preset not in kind.presets:
            raise SettingsError(f"'{name}' has no preset '{preset}'. Presets: {', '.join(kind.presets)}.")
        settings = {**kind.presets[preset], **settings}
    settings = {key: value for key, value in settings.items() if value not in GONE.get(key, ())}
    fields = {field.name: field for field in dataclasses.fields(kind)}
    for key in settings:
        if key in GONE:
            raise SettingsError(f"'{name}' no longer has the setting '{key}': read the text again without it.")
        if key not in fields:
            raise SettingsError(f"'{name}' has no setting '{key}'. Settings: {', '.join(fields)}.")
    values = {key: _read(name, key, value, str(fields[key].type)) for key, value in settings.items()}
    return kind(**values)


def suited_method(window: int, name: str, /, **settings: Any) -> Method:
    """Return the method as it suits a model with that window, in tokens; settings that are given go before.

    The defaults were chosen on the pocket model, whose window is short. A method may name a preset for longer ones:
    it is taken where the window holds its budget, unless another is given, or settings that do not go with it.

    Raises:
        SettingsError: as `make_method`.
    """
    kind = METHODS.get(name)
    if kind is not None and kind.long_window is not None and kind.presets[kind.long_window]["budget"] <= window:
        with suppress(SettingsError):
            return make_method(name, **{"preset": kind.long_window, **settings})
    return make_method(name, **settings)


def suited_stores(window: int, name: str, /, **settings: Any) -> list[Method]:
    """Return the method as it suits a model; its archive, if no store is given for it, in ever fewer bits."""
    if "store" in settings or make_method(name).settings().get("store") not in HOST_STORES:
        return [suited_method(window, name, **settings)]
    return [suited_method(window, name, store=store, **settings) for store in HOST_STORES]


def quicker_stores(window: int, name: str) -> list[Method]:
    """Return the same with settings that answer sooner, if there are any that suit the model."""
    ways = METHODS[name].quicker
    methods = [make_method(name, **way, store=store) for store in HOST_STORES for way in ways]
    return [method for method in methods if method.budget is not None and method.budget <= window]


def _read(method: str, key: str, value: Any, kind: str) -> Any:
    """Turn typed text into the type of the field, empty text into None; other values must have that type already."""
    wanted = kind.removesuffix(" | None")
    kinds = {"int": "a whole number", "float": "a number", "bool": "true or false", "str": "text"}
    if value is None or (isinstance(value, str) and value.lower() in ("none", "" if wanted != "str" else "none")):
        if kind.endswith("None"):
            return None
        if value is None or wanted != "str":
            raise SettingsError(f"'{method}' needs {kinds[wanted]} for '{key}'.")
    try:
        if wanted == "bool":
            return value if isinstance(value, bool) else {"true": True, "false": False}[str(value).lower()]
        if wanted == "int":
            if isinstance(value, float) and not value.is_integer():
                raise ValueError
            return int(value)
        return float(value) if wanted == "float" else str(value)
    except (ValueError, KeyError, TypeError, OverflowError):
        raise SettingsError(f"'{method}' wants {kinds[wanted]} for '{key}', not {value!r}.") from None
