"""Parts 2 and 3: reading and answering with each method at each length, beside the planner's figures."""

from __future__ import annotations

import dataclasses
import time
from typing import Any

from benchmarks.asking import answer_to
from benchmarks.gpu_check.check import Check, Row
from benchmarks.gpu_check.gauge import FILLED, READ, Gauge, free_all, full_speed, wait
from benchmarks.gpu_check.growing import Growing
from benchmarks.gpu_check.token_kinds import LEAST, watched
from engine import (
    Answer,
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
from engine.models.spec import ModelSpec
from engine.records import DEVICE, HOST

QUESTION = 50  # tokens of the question
DECODED = 32  # timed tokens of an answer, or as many as time allows
WARMING = 6  # the warm-up reads the first length divided by this: longer than any window and a pass
READING_SHARE = 0.12  # share of a method's time for reading; the rest of a length is filled in
READING_ONCE_SHARE = 0.6  # the same if a memory is used for one length only
# Variants of a method, by their names in the tables: with quantised entries on the device, a sketch, a bank, copies of
# keys beside it, heads that prune together, the stages of InfiniteHiP's Table 11, whose third row is `infinitehip`
# itself, or all of the archive on the device. The others have it in host memory.
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    **{f"locret-{store}": ("locret", {"store": store}) for store in ("int8", "fp8")},
    "exact-sketched": ("exact", {"sketch": "int2"}),
    "infinitehip-cached": ("infinitehip", {"cache": 1024}),
    "infinitehip-probes": ("infinitehip", {"cache": 1024, "probes": 8}),
    "infinitehip-groups": ("infinitehip", {"compares": "groups"}),
    "infllm-cached": ("infllm", {"cache": 80}),
    **{
        f"infinitehip-{preset}": ("infinitehip", {"preset": preset}) for preset in ("3k", "3k-fast")
    },  # paper's Table 11
    "exact-device": ("exact", {"tier": DEVICE, "store": "int4"}),
    "infinitehip-device": ("infinitehip", {"tier": DEVICE, "store": "int4"}),
    "infinitehip-device-bfloat16": ("infinitehip", {"tier": DEVICE, "store": "bfloat16"}),
}
SAME, ALIASED = "as at {:,}", "aliased"  # how a memory reached a length, beside READ and FILLED
BARE, BARE_CHUNK, TINY_BARE_CHUNK, BARE_PASSES = "bare", 4096, 128, 3  # passes of the model with next to no memory


def check_method(check: Check, model: Model, planner: Planner, name: str, over: float) -> None:
    """Bring a memory to each length that fits, reading as far as time allows, and answer there."""
    method, fitting = fitting_method(check, planner, name)
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
    """Return the method and its own settings for a name in the tables."""
    return VARIANTS.get(name, (name, {}))


def is_settled(method: Method, spec: ModelSpec, plan: Plan) -> bool:
    """Return whether a memory grows no more beyond the planned length."""
    full = method.budget is not None and plan.tokens > method.budget + method.passing(spec)
    return full and not grows(plan)


def grows(plan: Plan) -> bool:
    """Return whether a memory can be extended to a longer text; otherwise it is made anew."""
    return HOST in plan.footprint.usage.bytes


def _repeat(check: Check, facts: Row, settled: int, length: int) -> None:
    """Copy the results of the first length beyond which nothing changes."""
    for part in ("reading", "answering"):
        found, row = check.row(part, **facts, tokens=settled), check.row(part, **facts, tokens=length)
        row |= {key: value for key, value in found.items() if key not in row}
        row |= {"held": SAME.format(settled), "status": found["status"]}


def _measure(check: Check, model: Model, name: str, method: Method, plans: dict[int, Plan], over: float) -> None:
    """Bring one memory to one planned length after another; `name` is the method's name in the tables."""
    growing, gauge = Growing(model, method), Gauge(check.place)
    pace = 0.0  # seconds that a token took to be filled in
    share = READING_SHARE if len(plans) > 1 else READING_ONCE_SHARE
    reading_over = time.monotonic() + share * (over - time.monotonic())
    for length, plan in plans.items():
        facts: Row = {"model": model.name, "method": name, "tokens": length}
        growing.extend(length, plan.chunk)
        before = len(gauge.passes())
        if not growing.done or time.monotonic() < reading_over:
            for tokens in growing.reads(growing.behind):
                gauge.look(tokens)
                if time.monotonic() > reading_over:
                    break
        with gauge.halted():
            missing, began = growing.to_fill(growing.behind), time.monotonic()
            left = over - began
            if pace and missing * pace > left:
                why = f"to fill it in takes about {missing * pace:.0f} s, {left:.0f} s left"
                check.missed(facts, status=f"not reached: {why}")
                continue
            for tokens in growing.fills(growing.behind):
                gauge.look(tokens, FILLED)
                if time.monotonic() > over:
                    check.missed(facts, status=f"not reached: {growing.done:,} tokens in its time")
                    return
            if missing > 0:
                pace = (wait(check.place) - began) / missing
        held: Row = {"held": _held(growing)}
        row = check.row("reading", **facts)
        row |= {**_end(growing, gauge, before), **held}
        row["filled"] = held["filled"] = growing.read < growing.total
        with gauge.halted():
            answering = check.row("answering", **facts)
            answering |= held
            with gauge.peak() as peak:
                _answer(answering, growing.context(), plan, over, compare=length == next(iter(plans)))
            answering |= peak


def _held(growing: Growing) -> str:
    """Return how the memory reached its length."""
    if growing.aliased:
        return f"{FILLED}, {ALIASED}"
    return READ if growing.read == growing.done else FILLED


def _end(growing: Growing, gauge: Gauge, before: int) -> Row:
    """Read the last passes of a length, and return the cost of the way there and the memory held.

    before: how many passes belong to shorter lengths.
    """
    for tokens in growing.reads(growing.total):
        gauge.look(tokens)
    usage = growing.memory.snapshot().usage()  # after all copies to the host
    return {
        **gauge.facts(before),
        "read": growing.read,
        "entries": usage.entries,
        "host_bytes": usage.bytes.get(HOST, 0),
        "kv_device_bytes": usage.bytes[DEVICE],
        "status": "done",
    }


def bare_chunk(check: Check) -> int:
    """Return the tokens of a pass of `check_bare`."""
    return TINY_BARE_CHUNK if check.tiny else BARE_CHUNK


def check_bare(check: Check, model: Model) -> None:
    """Read a text that is kept whole, in passes as long as keep the device busy: what other readings are compared to.

    The first pass sees nothing before it, and is left out.
    """
    chunk = bare_chunk(check)
    tokens = chunk * (1 + BARE_PASSES)
    growing = Growing(model, make_method("truncate", budget=2 * tokens))
    growing.extend(tokens, chunk)
    gauge = Gauge(check.place)
    for read in growing.reads(growing.total):
        gauge.look(read)
    passes = gauge.passes()
    row = check.row(BARE, model=model.name, chunk=chunk)
    row |= {"tokens_per_second": full_speed(passes[1:]), "passes": [list(each) for each in passes], "status": "done"}


def _warm_up(check: Check, model: Model, method: Method, chunk: int) -> None:
    """Read and answer once, untimed: kernels are compiled at first use, which takes seconds each."""
    growing = Growing(model, method)
    growing.extend(check.lengths[0] // WARMING, chunk)
    for _ in growing.reads(growing.total):
        pass
    answer_to(Conversation(growing.context()), _question(model), 2)
    free_all(check.place)


def fitting_method(check: Check, planner: Planner, name: str) -> tuple[Method, list[int]]:
    """Return the method that is measured under a name, and the lengths that fit."""
    return _fitting(planner, name, check.lengths, 0 if check.tiny else planner.model.spec.window)


def _fitting(planner: Planner, name: str, lengths: tuple[int, ...], window: int) -> tuple[Method, list[int]]:
    """Return a method suited to a window, with the host tier that fits most of the lengths, and these lengths.

    It looks once even if it could look twice, so that every token of an answer has its highest cost.
    """
    kind, settings = measured_as(name)
    given = {"looks": 1, "tier": HOST} if "tier" in make_method(kind).settings() else {}
    quicker = quicker_stores(window, kind) if "sketch" in settings else []
    methods = [dataclasses.replace(each, **given) for each in quicker]  # type: ignore[arg-type]
    methods = methods or suited_stores(window, kind, **{**given, **settings})
    found = [(method, [each for each in lengths if planner.plan(method, each, "nf4").fits]) for method in methods]
    return max(found, key=lambda each: len(each[1]))  # among equals the first, which is the most precise


def _planned(plan: Plan) -> Row:
    held = plan.footprint.usage
    return {
        "planned_tokens_per_second": plan.reading_tokens_per_sec,
        "planned_device_bytes": plan.reading_device_bytes,
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
        "planned_device_bytes": plan.asking_device_bytes,
    }


def _answer(row: Row, context: Context, plan: Plan, over: float, compare: bool) -> None:
    """Fill in seconds to the first token, and tokens/s after it; `compare`: also without CUDA graphs."""
    began = time.monotonic()
    left = max(over - began, 0.0)
    if plan.first_token_sec is not None and plan.first_token_sec > left:
        row["status"] = f"not reached: {plan.first_token_sec:.0f} s are planned, {left:.0f} s left"
        return
    question, recorder, kinds = _question(context.model), context.model.recorder, dict[str, Any]()
    conversation = Conversation(context)
    first = answer_to(conversation, question, 2)
    if conversation.memory.recordings:  # recording took most of the time
        first = answer_to(conversation, question, 2)
    each = max(first.decode_sec, 1e-6)  # time of two tokens, so an upper bound
    asked = time.monotonic()
    if asked + (asked - began) > over:  # no time to ask again
        second = first
    else:
        tokens = max(2, int(min(DECODED, (over - asked - first.time_to_first_token_sec) / each)))
        known = conversation.memory.recordings
        second, kinds = _timed_answer(conversation, question, tokens)
        if conversation.memory.recordings is not known:  # recording took part of the time
            second, kinds = _timed_answer(conversation, question, tokens)
        if compare and conversation.memory.recordings:
            with recorder.stopped():
                plain = answer_to(Conversation(context), question, tokens)
            row["tokens_per_second_without_graphs"] = _shown(plain)
    row |= {
        "first_token_seconds": second.time_to_first_token_sec,
        "tokens_per_second": _shown(second),
        "answer_tokens": second.answer_tokens,
        "recorded": bool(conversation.memory.recordings),
        **kinds,
        "status": "done",
    }


def _timed_answer(conversation: Conversation, question: str, tokens: int) -> tuple[Answer, Row]:
    """Return an answer, and how each of its tokens was computed."""
    model = conversation.context.model
    with watched(model) as kinds:
        answer = answer_to(conversation, question, tokens)
        return answer, kinds.facts(wait(model.device))


def _shown(answer: Answer) -> float | None:
    """Return the speed of an answer; None for one that is too short to have any."""
    return answer.tokens_per_second if answer.answer_tokens >= LEAST else None


def _question(model: Model) -> str:
    return "a" * max(1, QUESTION - len(model.chat.turn("")))
