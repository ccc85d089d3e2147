"""Check that readings fit into the free memory and disk, and say what would fit instead."""

from pathlib import Path
from typing import TYPE_CHECKING

from app.errors import AppError
from app.formatting import byte_size
from app.machine.model_names import local_path, model_source, split_model
from app.machine.planning import method_in_words
from sessions import disk_free

if TYPE_CHECKING:
    import engine

SLOWER_TIERS = {"device": ("host", "disk"), "host": ("disk",)}
"""Where an archive may lie instead, the fastest first."""


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
    plan = planner.plan(method, tokens, split_model(name)[1], weights=False, read=read)
    if not plan.fits:
        raise refusal(planner, plan, weights=False)
    return plan


def placed(model: "engine.Model", name: str, method: "engine.Method", tokens: int) -> "engine.Method":
    """Return the method, with a tier that has room now in place of `auto`.

    Args:
        model: the loaded model.
        name: name of the model.
        method: the method.
        tokens: tokens of the text.
    """
    import engine

    planner = engine.Planner.of_loaded(model, engine.Machine.now(model.device))
    return planner.placed(method, tokens, split_model(name)[1])


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

    source = model_source(name)
    config, place = engine.read_config(source), engine.device_named(device)
    sizes = engine.model_sizes(config, engine.dtype_on(place, config), place, local_path(source))
    planner = engine.Planner(sizes, engine.Machine.now(place), chat.turn_length, len(chat.prefix))
    plan = planner.plan(method, tokens, split_model(name)[1], read=read)
    if not plan.fits:
        raise refusal(planner, plan, weights=True)


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


def refusal(planner: "engine.Planner", plan: "engine.Plan", *, weights: bool) -> AppError:
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
    for tier in SLOWER_TIERS.get(str(plan.method.settings().get("tier")), ()):
        slower = engine.make_method(plan.method.name, **{**plan.method.settings(), "tier": tier})
        if planner.plan(slower, plan.tokens, plan.quantize, weights).fits:
            ways.insert(0, f"{plan.method.name} with tier={tier}, which is slower")
            break
    if plan.longest:
        ways.append(f"up to {plan.longest:,} tokens with {plan.method.name}")
    return f"What would fit: {', or '.join(ways)}." if ways else "Close other programs, or choose a smaller model."
