"""Check that readings fit: the free memory and disk, and the sentences that say what would fit instead."""

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
    sizes = engine.skeleton(config, engine.dtype_on(place, config), place, local_path(source))
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
