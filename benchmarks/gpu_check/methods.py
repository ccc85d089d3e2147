"""Parts 2 and 3: reading with Stockpot's methods and answering at each length, beside what the planner said of both."""

from __future__ import annotations

import time
from typing import Any

from benchmarks.asking import answer_to
from benchmarks.gpu_check.check import Check, Row
from benchmarks.gpu_check.gauge import Gauge, free_all, wait
from benchmarks.gpu_check.growing import Growing
from engine import (
    Context,
    Conversation,
    Method,
    Model,
    Plan,
    Planner,
    make_method,
    quicker_stores,
    suited_stores,
)
from engine.records import DEVICE, HOST
from engine.seam import ModelSpec

QUESTION = 50  # tokens
DECODED = 32  # tokens of an answer whose speed is taken, or as many as there is time for
WARMING = 6  # times as short as the first length is what is read to warm up: longer than any window and a pass
READING_SHARE = 0.12  # of a method's time, in which it reads; what is missing of a length then is filled in
READING_ONCE_SHARE = 0.6  # the same, where a memory is not brought to one length after another
# Ways to measure a method, by the names that they have in the tables: what it keeps on the device in codes, or sketched
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    **{f"locret-{store}": ("locret", {"store": store}) for store in ("int8", "fp8")},
    "exact-sketched": ("exact", {"sketch": "int2"}),
}
READ, FILLED, SAME = "read", "filled in", "as at {:,}"  # how a memory came to hold a text of some length


def check_method(check: Check, model: Model, planner: Planner, name: str, over: float) -> None:
    """Bring a memory to each length that fits, by reading as far as time allows, and answer there."""
    method, fitting = _fitting(planner, name, check.lengths, 0 if check.tiny else planner.model.spec.window)
    facts = {"model": model.name, "method": name}
    plans = {length: planner.plan(method, length, "nf4") for length in check.lengths}
    for length, plan in plans.items():
        check.row("reading", **facts, tokens=length).update(settings=method.settings(), **_planned(plan))
        check.row("answering", **facts, tokens=length).update(settings=method.settings(), **_planned_answer(plan))
        if length not in fitting:
            longest = f"the longest text is {plan.longest:,} tokens" if plan.longest else "no text fits"
            check.missed({**facts, "tokens": length}, status=f"does not fit: {longest}")
    if not fitting:
        return
    _warm_up(check, model, method, plans[fitting[0]].chunk)
    settled = next((length for length in fitting if is_settled(method, model.spec, plans[length])), fitting[-1])
    waiting = [length for length in fitting if length <= settled]
    for lengths in [waiting] if grows(plans[settled]) else [[length] for length in waiting]:
        _measure(check, model, name, method, {length: plans[length] for length in lengths}, over)
    for length in fitting:
        if length > settled:
            _repeat(check, facts, settled, length)


def measured_as(name: str) -> tuple[str, dict[str, Any]]:
    """The method that has this name in the tables, and settings of its own there."""
    return VARIANTS.get(name, (name, {}))


def is_settled(method: Method, spec: ModelSpec, plan: Plan) -> bool:
    """Whether a memory holds no more of any text that is longer than the planned one."""
    full = method.budget is not None and plan.tokens > method.budget + method.passing(spec)
    return full and not grows(plan)


def grows(plan: Plan) -> bool:
    """Whether the memory of a text goes on to be that of a longer one; else that is made anew."""
    return HOST in plan.footprint.usage.bytes


def _repeat(check: Check, facts: Row, settled: int, length: int) -> None:
    """Say again of a length what was found at the one from which on nothing changes."""
    for part in ("reading", "answering"):
        found, row = check.row(part, **facts, tokens=settled), check.row(part, **facts, tokens=length)
        row |= {key: value for key, value in found.items() if key not in row}
        row |= {"held": SAME.format(settled), "status": found["status"]}


def _measure(check: Check, model: Model, name: str, method: Method, plans: dict[int, Plan], over: float) -> None:
    """One memory, brought to one of the planned lengths after another; name: the method's in the tables."""
    growing, gauge = Growing(model, method), Gauge(check.place)
    pace = 0.0  # seconds that a token took to be filled in
    share = READING_SHARE if len(plans) > 1 else READING_ONCE_SHARE
    reading_over = time.monotonic() + share * (over - time.monotonic())
    for length, plan in plans.items():
        facts: Row = {"model": model.name, "method": name, "tokens": length}
        growing.extend(length, plan.chunk)
        if not growing.done or time.monotonic() < reading_over:
            for _ in growing.reads(growing.behind):
                gauge.look()
                if time.monotonic() > reading_over:
                    break
        with gauge.halted():
            missing, began = growing.behind - growing.done, time.monotonic()
            left = over - began
            if pace and missing * pace > left:
                why = f"to fill it in takes about {missing * pace:.0f} s, {left:.0f} s left"
                check.missed(facts, status=f"not reached: {why}")
                continue
            for _ in growing.fills(growing.behind):
                if time.monotonic() > over:
                    check.missed(facts, status=f"not reached: {growing.done:,} tokens in its time")
                    return
            if missing > 0:
                pace = (wait(check.place) - began) / missing
        held = {"held": READ if growing.read == growing.done else FILLED}
        row = check.row("reading", **facts)
        row |= {**_end(check, growing, gauge), **held, "filled": growing.read < growing.total}
        with gauge.halted():
            answering = check.row("answering", **facts)
            answering |= {**held, "filled": growing.read < growing.total}
            _answer(answering, growing.context(), plan, over, compare=length == next(iter(plans)))


def _end(check: Check, growing: Growing, gauge: Gauge) -> Row:
    """Read the last passes of a length; what it took to get there, and what is held then."""
    at, done, seconds, tokens = wait(check.place), growing.done, 0.0, 0
    for _ in growing.reads(growing.total):
        gauge.look()
        seconds, tokens = wait(check.place) - at, growing.done - done
        at, done = at + seconds, growing.done
    usage = growing.memory.snapshot().usage()  # when all of it has come to the host
    return {
        **gauge.facts(growing.read),
        "read": growing.read,
        "tokens_per_second_there": tokens / seconds,
        "entries": usage.entries,
        "host_bytes": usage.bytes.get(HOST, 0),
        "kv_device_bytes": usage.bytes[DEVICE],
        "status": "done",
    }


def _warm_up(check: Check, model: Model, method: Method, chunk: int) -> None:
    """Read and answer once, untimed: kernels are compiled when they are first needed, which takes seconds each."""
    growing = Growing(model, method)
    growing.extend(check.lengths[0] // WARMING, chunk)
    for _ in growing.reads(growing.total):
        pass
    answer_to(Conversation(growing.context()), _question(model), 2)
    free_all(check.place)


def _fitting(planner: Planner, name: str, lengths: tuple[int, ...], window: int) -> tuple[Method, list[int]]:
    """A method as it suits a window, with the host tier that fits most of the lengths, and which those are.

    Where it can look twice it looks once, so that every token of an answer costs what it costs at most.
    """
    kind, settings = measured_as(name)
    looks = {"looks": 1} if "looks" in make_method(kind).settings() else {}
    quicker = quicker_stores(window, kind) if "sketch" in settings else []
    methods = quicker or suited_stores(window, kind, **settings, **looks)
    found = [(method, [each for each in lengths if planner.plan(method, each, "nf4").fits]) for method in methods]
    return max(found, key=lambda each: len(each[1]))  # of equals the first, which is the least lossy


def _planned(plan: Plan) -> Row:
    held = plan.footprint.usage
    return {
        "planned_tokens_per_second": plan.reading_tokens_per_sec,
        "planned_device_bytes": plan.device_bytes,
        "planned_kv_device_bytes": held.bytes[DEVICE],
        "planned_host_bytes": held.bytes.get(HOST, 0),
        "planned_entries": held.entries,
        "planned_workspace_bytes": plan.workspace_bytes,
        "planned_weight_bytes": plan.weight_bytes,
    }


def _planned_answer(plan: Plan) -> Row:
    return {
        "planned_first_token_seconds": plan.first_token_sec,
        "planned_tokens_per_second": plan.answer_tokens_per_sec,
    }


def _answer(row: Row, context: Context, plan: Plan, over: float, compare: bool) -> None:
    """Fill in seconds to the first token, and tokens per second after it; compare: also without a recorded pass."""
    began = time.monotonic()
    left = max(over - began, 0.0)
    if plan.first_token_sec is not None and plan.first_token_sec > left:
        row["status"] = f"not reached: {plan.first_token_sec:.0f} s are planned, {left:.0f} s left"
        return
    question, recorder = _question(context.model), context.model.recorder
    conversation = Conversation(context)
    first = answer_to(conversation, question, 2)
    if conversation.memory.recordings:  # which took most of its time
        first = answer_to(conversation, question, 2)
    each = max(first.decode_sec, 1e-6)  # of two tokens: the first took part of it, so this is an upper bound
    asked = time.monotonic()
    if asked + (asked - began) > over:  # there is no time to ask again
        second = first
    else:
        tokens = max(2, int(min(DECODED, (over - asked - first.time_to_first_token_sec) / each)))
        known, second = conversation.memory.recordings, answer_to(conversation, question, tokens)
        if conversation.memory.recordings is not known:  # it took part of its time, with three stages thrice
            second = answer_to(conversation, question, tokens)
        if compare and conversation.memory.recordings:
            with recorder.stopped():
                plain = answer_to(Conversation(context), question, tokens)
            row["tokens_per_second_without_graphs"] = plain.tokens_per_second
    row |= {
        "first_token_seconds": second.time_to_first_token_sec,
        "tokens_per_second": second.tokens_per_second,
        "answer_tokens": second.answer_tokens,
        "recorded": bool(conversation.memory.recordings),
        "status": "done",
    }


def _question(model: Model) -> str:
    return "a" * max(1, QUESTION - len(model.chat.turn("")))
