"""Passes: the one loop that feeds tokens to a model with a memory, for readings and conversations."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from engine.errors import OutOfMemory
from engine.memory import Memory
from engine.memory_usage import oom_as_engine_error, release
from engine.methods.base import Method
from engine.model import Model
from engine.models.placement import fast_in_bfloat16
from engine.parts.mass import no_source

LEAST_PASS = 16  # tokens; smaller passes would hardly need less memory
NOVELTY_ROWS = 128  # rows of logits at a time; with a vocabulary of 150K they take 77 MB

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Pass:
    """Facts of a finished pass.

    The times are the host's, and nothing waits for a GPU to take them. On a GPU, the time of a part is therefore the
    time to launch its work, with waits that happen anyway. Only `seconds`, summed over a reading, is its real duration.

    Attributes:
        tokens: tokens fed; 0 if the memory was only condensed.
        seconds: duration of the whole pass.
        hidden: hidden states [T, hidden] of the tokens, or None.
        catalyst_seconds: part for the catalyst's tokens. If they shared the pass, it is divided by token counts.
        condense_seconds: part for condensing the memory after the pass.
    """

    tokens: int
    seconds: float
    hidden: Tensor | None
    catalyst_seconds: float = 0.0
    condense_seconds: float = 0.0


def feed(
    model: Model, method: Method, memory: Memory, ids: Tensor, source: Tensor, chunk: int, repeated: bool = False
) -> Iterator[Pass]:
    """Feed tokens to a memory in passes of at most `chunk`, and condense it whenever it is full.

    Tokens of a catalyst share the pass that fills the memory if they fit, which is quicker than a pass of their own.

    A chunk is rounded up to whole blocks of the method's queries, so that their selection does not depend on it. If
    memory runs out in a pass, that pass and all later ones have half the tokens. Nothing is committed before
    `end_pass`, so the result stays the same.

    Args:
        model: the model that reads.
        method: the method of the memory.
        memory: the memory to fill.
        ids: int64 [T].
        source: int32 [T], the position of each token in the text.
        chunk: tokens per pass at most.
        repeated: whether these are tokens of an answer, which come one by one.

    Yields:
        One record per pass. Between two records the memory is consistent and may be saved, forked or dropped.

    Raises:
        OutOfMemory: not even a small pass fits.
    """
    at, multiple = 0, method.pass_multiple()
    chunk = -(-chunk // multiple) * multiple
    while at < len(ids):
        room = memory.evictor.room()
        if room == 0:
            yield condense(model, method, memory)
            continue
        started = time.perf_counter()
        end = min(at + min(chunk, room, memory.pass_limit()), len(ids))
        least = max(LEAST_PASS, multiple)
        fills = end - at == room and end < len(ids)
        behind = _passing_behind(model, method, memory, chunk - room) if fills else ids[:0]
        with memory.evictor.catalyst_scoring(len(behind)) if len(behind) else nullcontext():
            worked = _worked_out(model, method, memory, ids[at:end], source[at:end], behind, least, repeated)
            if worked is None:
                chunk = -(-(end - at) // (2 * multiple)) * multiple
                release(model.device)
                log.warning("memory ran out in a pass of %d tokens; going on with %d", end - at, chunk)
                continue
            hidden, novelty = worked
            last = None if novelty is None else hidden[-1].clone()
            with oom_as_engine_error(memory.spec.device, f"after a pass of {end - at} tokens"):
                memory.end_pass(novelty)
            memory.last_hidden, memory.predicted = last, None
            seconds, share = time.perf_counter() - started, len(behind) / (end - at + len(behind))
            condensing = 0.0
            if len(behind):
                with suppress(OutOfMemory):  # the next pass tries again and raises
                    condensing = _condense(memory)
        yield Pass(end - at, seconds + condensing, hidden, share * seconds, condensing)
        at = end


def _passing_behind(model: Model, method: Method, memory: Memory, most: int) -> Tensor:
    """Return the catalyst's tokens, int64 [G], that share the pass that fills a memory; none if they exceed `most`.

    Recurrent layers would carry them into the text, so such models have separate passes.
    """
    prompt = catalyst_of(model, method)
    shares = memory.mass is None and memory.evictor.catalyst_shares_pass()
    goes_along = shares and len(prompt) <= most and not model.spec.recurrent
    return prompt if goes_along else prompt[:0]


def _worked_out(
    model: Model,
    method: Method,
    memory: Memory,
    ids: Tensor,
    source: Tensor,
    behind: Tensor,
    least: int,
    repeated: bool,
) -> tuple[Tensor, Tensor | None] | None:
    """Compute hidden states and novelty of a pass without committing it; None if memory ran out.

    Args:
        model: the model that reads.
        method: the method of the memory.
        memory: the memory, which is left uncommitted.
        ids: int64 [T].
        source: int32 [T], the position of each token in the text.
        behind: int64 [G], tokens of a catalyst that share the pass.
        least: with so few tokens, a lack of memory is raised as OutOfMemory.
        repeated: whether these are tokens of an answer.
    """
    mass = memory.mass.save() if memory.mass and len(ids) > least else None
    try:
        together, places = ids, source
        if len(behind):
            together, places = torch.cat([ids, behind]), torch.cat([source, no_source(len(behind))])
        hidden = model.forward(together, memory, places, repeated)[: len(ids)]
        if not method.needs_novelty():
            return hidden, None
        with oom_as_engine_error(model.device, f"in a pass of {len(ids)} tokens"):
            return hidden, novelties(model, memory.last_hidden, hidden, ids, memory.predicted)
    except OutOfMemory:
        if len(ids) <= least:
            raise
        if memory.mass and mass is not None:  # some layers have added theirs already
            memory.mass.restore(mass)
        return None  # outside the handler, so that the error's frames are freed


def condense(model: Model, method: Method, memory: Memory) -> Pass:
    """Condense a memory, after a pass of the catalyst prompt if its method has one.

    Raises:
        OutOfMemory: the catalyst, or the condensed memory beside the old one, does not fit.
    """
    started = time.perf_counter()
    prompt = catalyst_of(model, method)
    with memory.evictor.catalyst_scoring(len(prompt)) if len(prompt) else nullcontext():
        if len(prompt):
            model.forward(prompt, memory, no_source(len(prompt)))
        seconds = time.perf_counter() - started
        condensing = _condense(memory)
    return Pass(0, seconds + condensing, None, seconds, condensing)


def catalyst_of(model: Model, method: Method) -> Tensor:
    """Return the tokens of a method's catalyst prompt, int64 [G]; empty without one."""
    prompt = method.catalyst()
    return torch.tensor([] if prompt is None else model.chat.turn(prompt), dtype=torch.long)


def _condense(memory: Memory) -> float:
    """Condense a memory and return the seconds that it took."""
    started = time.perf_counter()
    with oom_as_engine_error(memory.spec.device, "while a memory was condensed"):
        memory.evict()
    return time.perf_counter() - started


def novelties(
    model: Model, before: Tensor | None, hidden: Tensor, ids: Tensor, predicted: Tensor | None = None
) -> Tensor:
    """Return -log p of each token given the memory before it, float32 [T]; infinite for a text's first token.

    The full logits matrix of a pass never exists. The values only rank tokens, so a CPU with bfloat16 matrix products
    uses those, which takes a third of the time.

    Args:
        model: the model that computes logits.
        before: [hidden], the hidden state of the previous token, or None at the beginning of a text.
        hidden: [T, hidden] of the tokens themselves.
        ids: int64 [T].
        predicted: [vocabulary], the logits of `before`, if they are known.

    Source: InfiniPot, equation 4.
    """
    ids = ids.to(hidden.device, non_blocking=True)
    predicting = hidden[:-1] if before is None or predicted is not None else torch.cat([before[None], hidden[:-1]])
    targets = ids[len(ids) - len(predicting) :]
    if predicted is None:
        pieces = [torch.full((len(ids) - len(predicting),), float("inf"), device=hidden.device)]
    else:
        pieces = [predicted.logsumexp(dim=0) - predicted.gather(0, ids[:1])]
    in_bfloat16 = fast_in_bfloat16(model.device)
    for at in range(0, len(predicting), NOVELTY_ROWS):
        with torch.autocast("cpu", torch.bfloat16, enabled=in_bfloat16):
            logits = model.logits(predicting[at : at + NOVELTY_ROWS])
        pieces.append(F.cross_entropy(logits, targets[at : at + NOVELTY_ROWS], reduction="none"))
    return torch.cat(pieces)
