"""Say in words how long a reading will take and whether it fits, before it begins."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from app.errors import AppError
from app.formatting import byte_size, plural, roughly, time_in_words
from app.language import t
from app.machine.fitting import refusal, require_disk
from app.machine.local_models import local_folder
from app.machine.model_names import split_model
from app.machine.planning import PlanRequest, planner_for
from app.reading.previews import PAGE_CHARACTERS

if TYPE_CHECKING:
    import engine

TOKEN_CHARACTERS = 4
"""Characters of a token of ordinary prose, for texts that are not known yet."""
IDLE = 0.75
"""Load average per core up to which a machine counts as idle; our own reading before this one counts too."""
BOOK_PAGES = 300
BOOK_TOKENS = BOOK_PAGES * PAGE_CHARACTERS // TOKEN_CHARACTERS


@dataclass(frozen=True)
class Measured:
    """An earlier reading on this machine: the time that so many tokens took."""

    method: "engine.Method"
    tokens: int
    seconds: float


def reading_plan(
    name: str,
    method: "engine.Method",
    tokens: int,
    home: Path,
    device: str,
    *,
    loaded: bool,
    measured: Measured | None = None,
) -> tuple["engine.Plan", float | None]:
    """Return the plan of a reading, and its seconds, corrected by the last reading of this model if there is one.

    Args:
        name: name of a model that is on this machine.
        method: the method.
        tokens: tokens of the text.
        home: the home folder.
        device: auto, cpu or cuda.
        loaded: whether the model is loaded, so that its weights do not count against the free memory.
        measured: an earlier reading with this model.

    Raises:
        AppError: the text does not fit, or the method lacks its trained weights.
        engine.EngineError: the model cannot be used.
    """
    weights = not loaded
    planner = planner_for(str(local_folder(name)), PlanRequest(tokens), home, device)
    quantize = split_model(name)[1]
    plan = planner.plan(method, tokens, quantize, weights=weights)
    if plan.lacks:
        raise AppError(plan.lacks)
    if not plan.fits:
        require_disk(plan, home)
        raise refusal(planner, plan, weights=weights)
    seconds = plan.reading_sec
    if measured is not None:
        before = planner.plan(measured.method, measured.tokens, quantize, weights=weights).reading_sec
        pace = measured.seconds / before if before else None
        seconds = seconds * pace if seconds is not None and pace else tokens * measured.seconds / measured.tokens
    return plan, seconds


def slowdown(load: float, cores: int) -> float:
    """Return how many times longer a computation on all cores takes beside other work: 1 on an idle machine.

    Args:
        load: programs that compute or wait to (the load average of the last minute).
        cores: cores of the machine.
    """
    return (load + cores) / cores if load > IDLE * cores else 1.0


def time_told(seconds: float | None, busy: float, *, loaded: bool) -> str:
    """Return the time of a reading in words, as a range while the machine is busy; "" if it is not known.

    Args:
        seconds: time that it takes on an idle machine.
        busy: see `slowdown`.
        loaded: whether the model is loaded.
    """
    if seconds is None:
        return ""
    time, longer = time_in_words(seconds), time_in_words(seconds * busy)
    if longer != time:
        time = t("{time}, or {longer} while this computer is as busy as now", time=time, longer=longer)
    return time if loaded else t("{time}, after the model is loaded", time=time)


def forecast_text(
    documents: str, plan: "engine.Plan", seconds: float | None, window: int, *, loaded: bool = True
) -> tuple[str, str]:
    """Return a line on a reading: its documents, time and memory; and a sentence of warning, or "".

    Args:
        documents: their titles and length, in words.
        plan: the plan of the reading.
        seconds: time that it takes, if known.
        window: tokens that the model was trained for.
        loaded: whether the model is loaded.
    """
    memory = byte_size(sum(plan.footprint.usage.bytes.values()))
    fits = t("it fits on the GPU") if plan.footprint.resident else t("it fits")
    busy = slowdown(os.getloadavg()[0], os.cpu_count() or 1)
    facts = [documents, time_told(seconds, busy, loaded=loaded), memory, fits]
    doubt = plan.beyond
    if plan.method.budget is None and plan.tokens > window:
        doubt = t(
            "The model was trained for shorter texts ({n_window} tokens; this has about {n}).",
            n_window=window,
            n=roughly(plan.tokens),
        )
    return " · ".join(filter(None, facts)), doubt


def room_here(
    name: str, method: "engine.Method", home: Path, device: str, *, loaded: bool, measured: Measured | None = None
) -> str:
    """Return a sentence for when there is no text yet: the longest text that fits, and the time that a book takes.

    See `reading_plan` for the arguments and errors.
    """
    if local_folder(name) is None:  # nothing is downloaded to say this
        return t(
            "{model} is not on this computer yet: it is fetched before the reading begins.", model=split_model(name)[0]
        )
    try:
        plan, seconds = reading_plan(name, method, BOOK_TOKENS, home, device, loaded=loaded, measured=measured)
    except AppError:
        planner = planner_for(str(local_folder(name)), PlanRequest(BOOK_TOKENS), home, device)
        longest = planner.plan(method, BOOK_TOKENS, split_model(name)[1], weights=not loaded).longest
        if not longest:
            raise
        plan, seconds = reading_plan(name, method, longest, home, device, loaded=loaded, measured=measured)
    if plan.longest is None:
        room = t("There is room for a text of any length.")
    else:
        pages = max(1, plan.longest * TOKEN_CHARACTERS // PAGE_CHARACTERS)
        length = plural(1, "page") if pages == 1 else t("about {n} pages", n=roughly(pages))
        room = t("There is room for {length}.", length=length)
    if seconds is None or plan.tokens != BOOK_TOKENS:
        return room
    takes = t("A book of {n} pages takes {time} to read.", n=BOOK_PAGES, time=time_in_words(seconds))
    return f"{room} {takes}"
