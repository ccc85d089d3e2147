"""Check that readings fit into the free memory and disk, and say what would fit instead."""

from pathlib import Path
from typing import TYPE_CHECKING

from app.errors import AppError
from app.formatting import byte_size, roughly, short_seconds
from app.machine.local_models import local_folder
from app.machine.model_names import local_path, model_source, split_model
from app.machine.planning import USUAL_TOKENS, PlanRequest, method_in_words, planner_for
from sessions import disk_free

if TYPE_CHECKING:
    import engine


def plan_reading(
    model: "engine.Model", name: str, method: "engine.Method", tokens: int, read: int = 0
) -> "engine.Plan":
    """Return the plan of a reading with a loaded model, in the memory that is free now.

    Args:
        model: the loaded model.
        name: its name.
        method: the method.
        tokens: tokens of the text.
        read: tokens that a checkpoint holds.

    Raises:
        AppError: it does not fit; the sentence says what would.
    """
    import engine

    planner = engine.Planner.of_loaded(model, engine.Machine.now(model.device))
    quantize = split_model(name)[1]
    plan = planner.plan(method, tokens, quantize, weights=False, read=read)
    if not plan.fits:
        raise _refusal(planner, plan, weights=False)
    return plan


def require_memory(
    name: str, method: "engine.Method", tokens: int, chat: "engine.Chat", device: str, read: int = 0
) -> None:
    """Refuse a reading that does not fit beside its model's weights, before they are loaded.

    Args:
        name: name of the model.
        method: the method.
        tokens: tokens of the text.
        chat: the model's tokenizer and chat template.
        device: auto, cpu or cuda.
        read: tokens that a checkpoint holds.

    Raises:
        AppError: it does not fit; the sentence says what would.
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
    """Return a sentence on a method before there is a text: the longest text that fits now, and the reading speed.

    Args:
        name: name of the model.
        method: the method.
        home: the home folder.
        device: auto, cpu or cuda.
        loaded: whether the model is loaded, so that its weights do not count against the free memory.
        measured: tokens per second of an earlier reading like this; it goes before the plan's.

    Raises:
        AppError: nothing fits; the sentence is the same as for a book.
        engine.EngineError: the model cannot be used.
    """
    plain, quantize = split_model(name)
    folder = local_folder(name)
    if folder is None:  # an estimate downloads nothing
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
    window = planner.model.spec.window  # the length of the text is not known yet
    return (
        f"{line}. The model was trained for {window:,} tokens: expect poor answers of longer texts with {method.name}."
    )


def require_disk(plan: "engine.Plan", home: Path, there: int = 0) -> None:
    """Refuse a reading that could not be saved on the disk of the home.

    Args:
        plan: the plan of the reading.
        home: the home folder.
        there: bytes of it that are saved already.

    Raises:
        AppError: it does not fit; the sentence has the numbers.
    """
    from app.reading.token_stream import TOKEN_BYTES

    needed, free = max(0, plan.disk_bytes + TOKEN_BYTES * plan.tokens - there), disk_free(home)
    if needed > free:
        raise AppError(
            f"Saving {plan.tokens:,} tokens read with {plan.method.name} takes up to {byte_size(needed)} of disk, and "
            f"there are {byte_size(free)} at {home}. Free some, choose a condensing method, or another home."
        )


def _refusal(planner: "engine.Planner", plan: "engine.Plan", *, weights: bool) -> AppError:
    """Return the error for a plan that does not fit, with what would fit. weights: whether the model's weights
    count.
    """
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
    )  # never less quantised than was asked for
    if planner.machine.shared and not weights:
        kinds = kinds[:1]  # weights that are mapped from files free no memory
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
