"""Parts 2 and 3: reading with Stockpot's methods and answering on the way, beside what the planner said of both."""

from __future__ import annotations

import time

import torch
from torch import Tensor

from benchmarks.gpu_check.check import Check, Row
from benchmarks.gpu_check.gauge import Gauge, free_all
from engine import (
    Answer,
    Context,
    Conversation,
    Method,
    Model,
    Plan,
    Planner,
    Reader,
    Sampling,
    make_method,
    suited_stores,
)
from engine.records import DEVICE, HOST

QUESTION = 50  # tokens
DECODED = 32  # tokens of an answer whose speed is taken, or as many as there is time for
WARMING = 6  # times as short as the first length is what is read to warm up: longer than any window and a pass


def check_method(check: Check, model: Model, planner: Planner, name: str, over: float) -> None:
    """Read as far as time and memory allow, and answer at each length on the way."""
    method, fitting = _fitting(planner, name, check.lengths, 0 if check.tiny else planner.model.spec.window)
    facts = {"model": model.name, "method": name}
    plans = {length: planner.plan(method, length, "nf4") for length in check.lengths}
    for length, plan in plans.items():
        check.row("reading", **facts, tokens=length).update(settings=method.settings(), **_planned(plan))
        if length not in fitting:
            longest = f"the longest text is {plan.longest:,} tokens" if plan.longest else "no text fits"
            check.missed({**facts, "tokens": length}, status=f"does not fit: {longest}")
    if not fitting:
        return
    _warm_up(check, model, method, plans[fitting[0]].chunk)
    whole = method.spans(fitting[-1], 0) == [(0, fitting[-1])]  # else a shorter text is no part of a longer one
    for lengths in [fitting] if whole else [[length] for length in fitting]:
        _read(check, model, method, {length: plans[length] for length in lengths}, over)


def _read(check: Check, model: Model, method: Method, plans: dict[int, Plan], over: float) -> None:
    """Read one text to the last of the planned lengths."""
    facts, waiting = {"model": model.name, "method": method.name}, list(plans)
    ids = noise(model, waiting[-1])
    reader = Reader(model, method, ids, plans[waiting[-1]].chunk)
    gauge = Gauge(check.place)
    for progress in reader.run():
        gauge.look()
        read = len(ids) if reader.done == reader.total else progress.tokens_done  # `truncate` leaves the middle out
        while waiting and read >= waiting[0]:
            length = waiting.pop(0)
            row = check.row("reading", **facts, tokens=length)
            row |= {
                **gauge.facts(read),
                "host_bytes": progress.usage.bytes.get(HOST, 0),
                "kv_device_bytes": progress.usage.bytes[DEVICE],
                "status": "done",
            }
            with gauge.halted():
                context = Context(model, method, reader.memory, len(ids))
                _answer(check.row("answering", **facts, tokens=length), context, plans[length], over)
        if waiting and time.monotonic() > over:
            for length in waiting:
                check.row("reading", **facts, tokens=length).update(gauge.facts(read))
                check.missed({**facts, "tokens": length}, status=f"not reached: {read:,} tokens in its time")
            return


def _warm_up(check: Check, model: Model, method: Method, chunk: int) -> None:
    """Read and answer once, untimed: kernels are compiled when they are first needed, which takes seconds each."""
    ids = noise(model, check.lengths[0] // WARMING)
    reader = Reader(model, method, ids, chunk)
    for _ in reader.run():
        pass
    _last(Conversation(reader.context()), _question(model), 2)
    free_all(check.place)


def noise(model: Model, tokens: int) -> Tensor:
    """A text; the same for whoever reads it."""
    return torch.randint(model.network.config.vocab_size, (tokens,), generator=torch.Generator().manual_seed(2))


def _fitting(planner: Planner, name: str, lengths: tuple[int, ...], window: int) -> tuple[Method, list[int]]:
    """A method as it suits a window, with the host tier that fits most of the lengths, and which those are.

    Where it can look twice it looks once, so that every token of an answer costs what it costs at most.
    """
    looks = {"looks": 1} if "looks" in make_method(name).settings() else {}
    methods = suited_stores(window, name, **looks)
    found = [(method, [each for each in lengths if planner.plan(method, each, "nf4").fits]) for method in methods]
    return max(found, key=lambda each: len(each[1]))  # of equals the first, which is the least lossy


def _planned(plan: Plan) -> Row:
    return {
        "planned_tokens_per_second": plan.reading_tokens_per_sec,
        "planned_device_bytes": plan.device_bytes,
        "planned_host_bytes": plan.host_bytes,
        "planned_workspace_bytes": plan.workspace_bytes,
        "planned_weight_bytes": plan.weight_bytes,
    }


def _answer(row: Row, context: Context, plan: Plan, over: float) -> None:
    """Fill in seconds to the first token, and tokens per second after it, with and without a recorded pass."""
    row |= {
        "settings": context.method.settings(),
        "planned_first_token_seconds": plan.first_token_sec,
        "planned_tokens_per_second": plan.answer_tokens_per_sec,
    }
    left = max(over - time.monotonic(), 0.0)
    if plan.first_token_sec is not None and plan.first_token_sec > left:
        row["status"] = f"not reached: {plan.first_token_sec:.0f} s are planned, {left:.0f} s left"
        return
    question, recorder = _question(context.model), context.model.recorder
    conversation = Conversation(context)
    first = _last(conversation, question, 2)
    if recorder.recorded(conversation.memory):  # which took most of its time
        first = _last(conversation, question, 2)
    each = max(first.decode_sec, 1e-6)  # of two tokens: the first took part of it, so this is an upper bound
    tokens = max(2, int(min(DECODED, (over - time.monotonic()) / each)))
    known, second = conversation.memory.recordings, _last(conversation, question, tokens)
    if conversation.memory.recordings is not known:  # recording took part of its time: with three stages, three times
        second = _last(conversation, question, tokens)
    if recorder.recorded(conversation.memory):
        with recorder.stopped():
            row["tokens_per_second_without_graphs"] = _last(Conversation(context), question, tokens).tokens_per_second
    row |= {
        "first_token_seconds": second.time_to_first_token_sec,
        "tokens_per_second": second.tokens_per_second,
        "answer_tokens": second.answer_tokens,
        "status": "done",
    }


def _question(model: Model) -> str:
    return "a" * max(1, QUESTION - len(model.chat.turn("")))


def _last(conversation: Conversation, question: str, tokens: int) -> Answer:
    *_, last = conversation.ask(question, Sampling(max_tokens=tokens))
    assert isinstance(last, Answer)
    return last
