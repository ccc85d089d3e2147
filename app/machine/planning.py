"""Plans as the command line and readings need them: for this machine or a stated one, with or without the weights."""

import importlib.metadata
import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from app.errors import AppError
from app.formatting import byte_size, roughly, short_seconds
from app.home import local_path, model_source, split_model
from app.machine.local_models import local_folder
from app.reading.methods import suited_method
from sessions import disk_free, write_whole

if TYPE_CHECKING:
    import torch

    import engine

RATES_FILE = "rates.json"
USUAL_TOKENS = 100_000  # of a text whose length is not known yet: a book


@dataclass(frozen=True)
class PlanRequest:
    """What is asked of a plan. gpu, host: bytes of a stated machine; rates: stated ones, as
    `quantities.rates_of` returns them; None for this machine's.

    settings: of the method, if one is named.
    """

    tokens: int
    method: str | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    quantize: str | None = None
    gpu: int | None = None
    host: int | None = None
    rates: tuple[float, float, float] | None = None


def measured_rates(home: Path, device: "torch.device", dtype: "torch.dtype") -> "engine.Rates":
    """The rates of this machine: measured once, then kept in the home by device, dtype and version of PyTorch."""
    import torch

    from engine import Rates, measure_rates

    name = torch.cuda.get_device_name(device) if device.type == "cuda" else f"cpu x{torch.get_num_threads()}"
    key = f"{name}, {str(dtype).removeprefix('torch.')}, torch {importlib.metadata.version('torch')}"
    path = home / RATES_FILE
    known: dict[str, Any] = {}
    with suppress(OSError, ValueError, TypeError):  # what is broken is replaced
        known = dict(json.loads(path.read_text(encoding="utf-8")))
    with suppress(KeyError, TypeError):
        return Rates(**known[key])
    rates = measure_rates(device, dtype)
    with suppress(OSError):
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_whole(path, json.dumps({**known, key: asdict(rates)}, indent=2).encode())
    return rates


def _stated(rates: tuple[float, float, float] | None) -> "engine.Rates | None":
    """Return stated rates of a GPU with those of an ordinary host, or None."""
    from engine import Rates

    return None if rates is None else Rates(*rates, host_flops=5e11, host_memory=4e10)


def planner_for(name: str, request: PlanRequest, home: Path, device: str) -> "engine.Planner":
    """A planner for a model by name, from its configuration; no weights are read.

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
    except engine.ModelError:  # a config alone: lengths of prompts are estimated
        return engine.Planner(sizes, machine)
    return engine.Planner(sizes, machine, chat.turn_length, len(chat.prefix))


def report(name: str, request: PlanRequest, home: Path, device: str) -> dict[str, Any]:
    """The object of `stockpot plan --json`; see docs/planner.md."""
    import engine

    planner = planner_for(name, request, home, device)
    quantize = request.quantize or split_model(name)[1]
    window = planner.model.spec.window
    chosen = [request.method] if request.method else list(engine.METHODS)
    methods = [suited_method(name, window, each, request.settings) for each in chosen]
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
    """One plan as plain data."""
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
            "spare": plan.footprint.spare_bytes,
            "tail": plan.footprint.tail_bytes,
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


def plan_reading(
    model: "engine.Model", name: str, method: "engine.Method", tokens: int, read: int = 0
) -> "engine.Plan":
    """The plan of a reading with a model that is loaded, in the memory that is free now.

    read: tokens of the text that a checkpoint holds, which is gone on from.

    Raises:
        AppError: it cannot fit; the sentence says what would.
    """
    import engine

    planner = engine.Planner.of_loaded(model, engine.Machine.now(model.device))
    quantize = split_model(name)[1]
    plan = planner.plan(method, tokens, quantize, weights=False, read=read)
    if not plan.fits:
        raise _refusal(planner, plan, weights=False)
    return plan


def remaining_time(
    model: "engine.Model", method: "engine.Method", total: int, before: int = 0
) -> Callable[[int, float], float]:
    """What says how long a reading of so many tokens will still take: of the tokens done, and the seconds they took.

    Where tokens attend to all that was read before them, the last ones take longer than the first.

    Args:
        before: tokens done that another reading has read, in seconds of its own.
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


def require_memory(
    name: str, method: "engine.Method", tokens: int, chat: "engine.Chat", device: str, read: int = 0
) -> None:
    """Refuse a reading that cannot fit beside the weights of its model, of which none is read.

    read: as of `plan_reading`.

    Raises:
        AppError: the sentence says what would fit.
        engine.EngineError: the model cannot be used.
    """
    import engine

    source, quantize = model_source(name), split_model(name)[1]
    config, place = engine.read_config(source), engine.device_named(device)
    sizes = engine.model_sizes(config, engine.dtype_on(place, config), place, local_path(source))
    planner = engine.Planner(sizes, engine.Machine.now(place), chat.turn_length, len(chat.prefix))
    plan = planner.plan(method, tokens, quantize, read=read)
    if not plan.fits:
        raise _refusal(planner, plan, weights=True)


def estimate(
    name: str, method: "engine.Method", home: Path, device: str, *, loaded: bool, measured: float | None = None
) -> str:
    """What to expect of a method before there is a text: the longest that fits now, and how fast a book is read.

    Args:
        loaded: the model is in memory already, so that its weights no longer count against what is free.
        measured: tokens per second of an earlier reading like this, which say more than a plan.

    Raises:
        AppError: nothing fits; the sentence is that of a book's refusal.
        engine.EngineError: the model cannot be used.
    """
    plain, quantize = split_model(name)
    folder = local_folder(name)
    if folder is None:  # nothing is fetched for an estimate
        return f"{plain} is not on this machine. A hub id is fetched before reading; what fits is said then."
    planner = planner_for(str(folder), PlanRequest(USUAL_TOKENS), home, device)
    plan = planner.plan(method, USUAL_TOKENS, quantize, weights=not loaded)
    if plan.lacks:
        raise AppError(plan.lacks)
    if plan.longest == 0:
        require_disk(plan, home)
        raise _refusal(planner, plan, weights=not loaded)
    if not plan.fits and plan.longest:
        plan = planner.plan(method, plan.longest, quantize, weights=not loaded)
    fits = "a text of any length" if plan.longest is None else f"up to about {roughly(plan.longest)} tokens"
    line, rate, first = f"Fits {fits} here", plan.reading_tokens_per_sec, plan.first_token_sec
    if measured:
        line += f"; the last like this was read at about {roughly(measured)} tokens/s"
    elif rate is not None and first is not None:
        line += f"; by the plan, a book is read at about {roughly(rate)} tokens/s"
        line += f", and answers begin after {short_seconds(first)}"
    if method.budget is not None:
        return f"{line}. {plan.beyond}".rstrip()
    window = planner.model.spec.window  # how long the text will be is not known yet
    return (
        f"{line}. The model was trained for {window:,} tokens: expect poor answers of longer texts with {method.name}."
    )


def require_disk(plan: "engine.Plan", home: Path, there: int = 0) -> None:
    """Refuse a reading that, with the tokens of its text, could not be saved on the disk that its home is on.

    there: bytes of it that are saved already.

    Raises:
        AppError: with the numbers.
    """
    from app.reading.token_stream import TOKEN_BYTES

    needed, free = max(0, plan.disk_bytes + TOKEN_BYTES * plan.tokens - there), disk_free(home)
    if needed > free:
        raise AppError(
            f"Saving {plan.tokens:,} tokens read with {plan.method.name} takes up to {byte_size(needed)} of disk, and "
            f"there are {byte_size(free)} at {home}. Free some, choose a condensing method, or another home."
        )


def _refusal(planner: "engine.Planner", plan: "engine.Plan", *, weights: bool) -> AppError:
    """Of a plan that does not fit, with what would. weights: whether those of the model count, as they did for it."""
    on_device = plan.device_bytes > plan.device_limit
    needed, free = (plan.device_bytes, plan.device_limit) if on_device else (plan.host_bytes, plan.host_limit)
    where = "memory" if planner.machine.shared else "GPU memory" if on_device else "host memory"
    return AppError(
        f"Reading {plan.tokens:,} tokens with {plan.method.name} needs {byte_size(needed)} of {where}, "
        f"and there are {byte_size(free)}. {_instead(planner, plan, weights=weights)}"
    )


def _instead(planner: "engine.Planner", plan: "engine.Plan", *, weights: bool) -> str:
    import engine

    kinds = planner.model.quantizations
    kinds = (
        kinds[kinds.index(plan.quantize) :] if plan.quantize in kinds else (plan.quantize,)
    )  # what somebody has asked for is not to be lossless again
    if planner.machine.shared and not weights:
        kinds = kinds[:1]  # weights that are mapped from their files free nothing when they go
    best = (planner if weights else planner.unloaded(plan.quantize)).best(plan.tokens, kinds)
    ways = []
    if best:
        fewer = best.plan.quantize if best.plan.quantize != plan.quantize else ""
        model = f" and weights in {fewer} (:{fewer} behind the model's name)" if fewer else ""
        ways.append(method_in_words(best.plan.method.name, best.plan.method.settings()) + model)
    if plan.method.settings().get("tier") == "host":
        on_disk = engine.make_method(plan.method.name, **{**plan.method.settings(), "tier": "disk"})
        if planner.plan(on_disk, plan.tokens, plan.quantize, weights).fits:
            ways.insert(0, f"{plan.method.name} with tier=disk, which is slower")
    if plan.longest:
        ways.append(f"up to {plan.longest:,} tokens with {plan.method.name}")
    return f"What would fit: {', or '.join(ways)}." if ways else "Close other programs, or choose a smaller model."


def method_in_words(method: str, settings: dict[str, Any]) -> str:
    """A method with its budget, and what is to be set if it is not the usual: "exact with a budget of 6,144,
    store=int4".
    """
    from engine import HOST_STORES, METHODS

    budget, store, sketch = settings["budget"], settings.get("store"), settings.get("sketch", "none")
    coded = f", store={store}" if store in HOST_STORES[1:] else ""
    of_preset = METHODS[method].presets.get("sketched", {}).get("budget") == budget
    sketched = f"{', preset=sketched' if of_preset else ''}, sketch={sketch}" if sketch != "none" else ""
    return f"{method}{'' if budget is None else f' with a budget of {budget:,}'}{coded}{sketched}"
