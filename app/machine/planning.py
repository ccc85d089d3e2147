"""Plans for this machine or a stated one, with or without the weights."""

import importlib.metadata
import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from app.machine.model_names import local_path, model_source, split_model
from app.reading.methods import suited_method
from sessions import disk_free, write_whole

if TYPE_CHECKING:
    import torch

    import engine

PLACES = {"device": " (on the GPU)", "disk": " (on the disk)"}
"""Words for the tiers that are not host memory."""
RATES_FILE = "rates.json"


@dataclass(frozen=True)
class PlanRequest:
    """The request for a plan.

    tokens: tokens of the text.
    method: name of the method; None for all.
    settings: settings of the method.
    quantize: quantisation of the weights; None for the model's.
    gpu, host: bytes of a stated machine; None for this one.
    rates: stated rates, from `quantities.rates_of`; None for this machine's.
    """

    tokens: int
    method: str | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    quantize: str | None = None
    gpu: int | None = None
    host: int | None = None
    rates: tuple[float, float, float] | None = None


def measured_rates(home: Path, device: "torch.device", dtype: "torch.dtype") -> "engine.Rates":
    """Return the rates of this machine, measured once and kept in the home by device, dtype and version of PyTorch."""
    import torch

    from engine import Rates, measure_rates

    name = torch.cuda.get_device_name(device) if device.type == "cuda" else f"cpu x{torch.get_num_threads()}"
    key = f"{name}, {str(dtype).removeprefix('torch.')}, torch {importlib.metadata.version('torch')}"
    path = home / RATES_FILE
    known: dict[str, Any] = {}
    with suppress(OSError, ValueError, TypeError):  # a broken file is replaced
        known = dict(json.loads(path.read_text(encoding="utf-8")))
    with suppress(KeyError, TypeError):
        if known[key].keys() == {each.name for each in fields(Rates)}:  # else an earlier version measured fewer
            return Rates(**known[key])
    rates = measure_rates(device, dtype)
    with suppress(OSError):
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_whole(path, json.dumps({**known, key: asdict(rates)}, indent=2).encode())
    return rates


def rates_here(home: Path, device: str) -> "engine.Rates":
    """Return the measured rates of this machine for models whose configuration is not here. See `measured_rates`.

    Raises:
        engine.SettingsError: this machine does not have the device.
    """
    import torch

    import engine
    from engine.models.placement import fast_in_bfloat16

    place = engine.device_named(device)
    fast = place.type == "cuda" or fast_in_bfloat16(place)
    return measured_rates(home, place, torch.bfloat16 if fast else torch.float32)


def _stated(rates: tuple[float, float, float] | None) -> "engine.Rates | None":
    """Return stated rates of a GPU with those of an ordinary host, or None."""
    from engine import Rates

    return None if rates is None else Rates(*rates, host_flops=5e11, host_memory=4e10)


def planner_for(name: str, request: PlanRequest, home: Path, device: str) -> "engine.Planner":
    """Return a planner for a model by name, from its configuration. No weights are read.

    Args:
        name: name of the model.
        request: the machine to plan for.
        home: the home folder, which keeps measured rates.
        device: auto, cpu or cuda.

    Raises:
        engine.ModelNotFound, engine.UnsupportedModel, engine.SettingsError: it cannot be used.
    """
    import torch

    import engine

    source, here = model_source(name), request.gpu is None
    config = engine.read_config(source)
    place = engine.device_named(device) if here else torch.device("cuda")
    dtype, shared = engine.dtype_on(place, config), place.type == "cpu"
    host = engine.free_bytes(torch.device("cpu")) if request.host is None else request.host
    machine = engine.Machine(
        device=request.gpu if request.gpu is not None else host if shared else engine.free_bytes(place),
        host=host,
        shared=shared,
        rates=_stated(request.rates) or (measured_rates(home, place, dtype) if here else None),
        base=0 if here else engine.GPU_BASE,
        disk=disk_free(home) if here else None,
    )
    sizes = engine.model_sizes(config, dtype, place, local_path(source))
    try:
        chat = engine.load_chat(source, config)
    except engine.ModelError:  # there is only a configuration: prompt lengths are estimated
        return engine.Planner(sizes, machine)
    return engine.Planner(sizes, machine, chat.turn_length, len(chat.prefix))


def report(name: str, request: PlanRequest, home: Path, device: str) -> dict[str, Any]:
    """Return the object of `stockpot plan --json`; see docs/planner.md."""
    import engine

    planner = planner_for(name, request, home, device)
    quantize = request.quantize or split_model(name)[1]
    window = planner.model.spec.window
    chosen = [request.method] if request.method else list(engine.METHODS)
    methods = [suited_method(name, window, each, request.settings, request.tokens) for each in chosen]
    best = planner.best(request.tokens, [quantize] if request.quantize or quantize != "none" else None)
    machine, model = planner.machine, planner.model
    return {
        "model": name,
        "parameters": model.parameters,
        "window": model.spec.window,
        "published": asdict(model.published) if model.published else None,
        "dtype": str(model.spec.dtype).removeprefix("torch."),
        "tokens": request.tokens,
        "device": "cpu" if machine.shared else "cuda",
        "limits": {"device": machine.device, "host": 0 if machine.shared else machine.host},
        "rates": asdict(machine.rates) if machine.rates else None,
        "plans": [plan_json(planner.plan(method, request.tokens, quantize)) for method in methods],
        "best": {**plan_json(best.plan), "reason": best.reason} if best else None,
    }


def plan_json(plan: "engine.Plan") -> dict[str, Any]:
    """Return one plan as plain data."""
    kept = plan.footprint.usage
    return {
        "method": plan.method.name,
        "settings": plan.method.settings(),
        "quantize": plan.quantize,
        "fits": plan.fits,
        "possible": plan.possible,
        "lacks": plan.lacks or None,
        "beyond": plan.beyond or None,
        "longest_tokens": plan.longest,
        "chunk": plan.chunk,
        "entries": kept.entries,
        "bytes": {
            "weights": plan.weight_bytes,
            "kv": kept.bytes,
            "spare": plan.footprint.temporary_bytes,
            "tail": plan.footprint.conversation_bytes,
            "workspace": plan.workspace_bytes,
            "device": plan.device_bytes,
            "host": plan.host_bytes,
            "disk": plan.disk_bytes,
        },
        "reading_seconds": plan.reading_sec,
        "reading_tokens_per_second": plan.reading_tokens_per_sec,
        "first_token_seconds": plan.first_token_sec,
        "answer_tokens_per_second": plan.answer_tokens_per_sec,
    }


def remaining_time(
    model: "engine.Model", method: "engine.Method", total: int, before: int = 0
) -> Callable[[int, float], float]:
    """Return a function from tokens done and seconds taken to the seconds that a reading still needs.

    The last tokens take longer than the first if tokens attend to everything before them.

    Args:
        model: the loaded model.
        method: the method.
        total: tokens of the text.
        before: tokens that an earlier reading has read, in seconds of its own.
    """
    import engine

    planner = engine.Planner.of_loaded(model, engine.Machine.now(model.device))

    def so_far(done: int) -> float:
        return planner.operations(method, done, total) if done else 0.0

    begun, whole = so_far(before), so_far(total)

    def seconds_left(done: int, seconds: float) -> float:
        now = so_far(done)
        return seconds * max(0.0, whole - now) / (now - begun) if now > begun else 0.0

    return seconds_left


def method_in_words(method: str, settings: dict[str, Any]) -> str:
    """Return a method with its budget and unusual settings: "exact with a budget of 6,144, store=int4 (on the GPU)"."""
    from engine import HOST_STORES, METHODS

    budget, store, sketch = settings["budget"], settings.get("store"), settings.get("sketch", "none")
    coded = f", store={store}" if store in HOST_STORES[1:] else ""
    of_preset = METHODS[method].presets.get("sketched", {}).get("budget") == budget
    sketched = f"{', preset=sketched' if of_preset else ''}, sketch={sketch}" if sketch != "none" else ""
    there = PLACES.get(settings.get("tier", ""), "")
    return f"{method}{'' if budget is None else f' with a budget of {budget:,}'}{coded}{sketched}{there}"
