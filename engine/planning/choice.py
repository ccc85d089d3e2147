"""Choose among plans that fit: the method that keeps the most of a text and answers fast enough."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from engine.methods import HOST_STORES
from engine.planning.plan import Plan

SLOWEST = 5.0  # tokens per second of an answer, about as fast as people read; below it a method is not recommended
FIRST = 15.0  # seconds to the first token; a slower method is not recommended either
ENOUGH = 4096  # entries, as in InfiniPot's paper: up to here a larger budget is worth lossier weights
MUCH = 3.0  # speed-up of answers that makes sketches better than a search of everything
PATIENCE = 10  # factor of the quickest reading that fits; a slower method is not recommended


@dataclass(frozen=True)
class Choice:
    """The plan that suits a person's machine best, and why."""

    plan: Plan
    reason: str


def dense(fitting: list[Plan]) -> Choice | None:
    """Choose a method that attends to everything."""
    plans = [plan for plan in fitting if _keeps_all(plan) and not plan.footprint.lookup.searched]
    if not plans:
        return None
    plainest = next((plan for plan in plans if plan.method.budget is None), _fastest(plans))
    return Choice(plainest, "the text fits the model's own window, so nothing need be left out")


def exactly(fitting: list[Plan]) -> Choice | None:
    """Choose as `looked_up` does, if that is exact and known to be quick enough."""
    found = looked_up(fitting)
    exact = found is not None and found.plan.method.family == "yardstick" and found.plan.reading_sec is not None
    return found if exact else None


def looked_up(fitting: list[Plan]) -> Choice | None:
    """Choose a method that keeps everything, looks it up and is quick enough beside the others."""
    searched = [plan for plan in fitting if _keeps_all(plan) and plan.footprint.lookup.searched and not plan.beyond]
    quick = [plan for plan in searched if _bearable(plan, fitting)]
    if not quick:
        return None
    # In the order of the methods exact search comes before approximations, if it is known to be fast enough.
    known = quick[0].answer_tokens_per_sec is not None
    chosen = _quicker(quick) if known else min(quick, key=lambda plan: plan.footprint.lookup.searched)
    store = chosen.method.settings()["store"]
    kept = "" if store == HOST_STORES[0] else f" as {store}"
    where = "on the GPU" if chosen.footprint.resident else "in host memory"
    how = ""
    if known and chosen.method.family == "yardstick":
        sketched = chosen.footprint.lookup.sketched
        how = ", by sketches of all of it" if sketched else ", exactly since that is fast enough"
    return Choice(chosen, f"everything is kept {where}{kept} and looked up for each question{how}")


def _quicker(plans: list[Plan]) -> Plan:
    """Return the first plan, unless the same method is much faster by sketches."""
    first, *others = plans
    sketched = (plan for plan in others if plan.footprint.lookup.sketched)
    same = (plan for plan in sketched if plan.method.name == first.method.name)
    least = MUCH * (first.answer_tokens_per_sec or 0.0)
    return next((plan for plan in same if (plan.answer_tokens_per_sec or 0.0) >= least), first)


def condensed(tried: list[list[Plan]]) -> Choice | None:
    """Choose a condensing method. tried: the plans that fit, by quantisation, the least lossy first."""
    condensing = ([plan for plan in plans if plan.method.family == "condensing"] for plans in tried)
    best = [max(plans, key=lambda plan: (plan.method.chosen_first, _budget(plan))) for plans in condensing if plans]
    if not best:
        return None
    enough = min(ENOUGH, max(map(_budget, best)))
    chosen = next(plan for plan in best if _budget(plan) >= enough)
    trained = "it was trained for this model, and " if chosen.method.weights_setting else ""
    most = f"{_budget(chosen):,} entries are the most that fit the memory and the model's window"
    return Choice(chosen, trained + most)


def _budget(plan: Plan) -> int:
    return plan.method.budget or 0


def _keeps_all(plan: Plan) -> bool:
    return sum(plan.footprint.usage.entries.values()) >= plan.footprint.work.passed


def _bearable(plan: Plan, others: list[Plan]) -> bool:
    """Return whether answers are fast enough, and reading is not far slower than others; True if times are unknown."""
    if plan.answer_tokens_per_sec is None or plan.reading_sec is None:
        return True
    quickest = min(other.reading_sec or 0.0 for other in others)
    answers = plan.answer_tokens_per_sec >= SLOWEST and (plan.first_token_sec or 0.0) <= FIRST
    return answers and plan.reading_sec <= PATIENCE * quickest


def _fastest(plans: Iterable[Plan]) -> Plan:
    return max(plans, key=lambda plan: plan.answer_tokens_per_sec or 0.0)
