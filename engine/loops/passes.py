"""Feeding tokens to a model with a memory: the one loop that reading and conversation share."""

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

LEAST_PASS = 16  # tokens; where not even they fit, smaller passes would not help
NOVELTY_ROWS = 128  # hidden states whose logits exist at a time; a vocabulary of 150K makes 77 MB of them

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Pass:
    """A pass that is over: tokens fed (0 if a memory was only condensed) and the hidden states [T, hidden] after them.

    seconds: of all of it; of these, catalyst_seconds of the catalyst's tokens on their way through the model (of those
    that passed together with others their share), condense_seconds of condensing the memory after them.

    All three are the host's time, and nothing waits for a GPU so that they can be taken. There a part's seconds are
    those in which its work was handed over, with whatever had to be waited for; only `seconds`, summed over a reading,
    is how long it took.
    """

    tokens: int
    seconds: float
    hidden: Tensor | None
    catalyst_seconds: float = 0.0
    condense_seconds: float = 0.0


def feed(
    model: Model, method: Method, memory: Memory, ids: Tensor, source: Tensor, chunk: int, repeated: bool = False
) -> Iterator[Pass]:
    """Commit tokens to a memory in passes of at most `chunk`, condensing it whenever it is full.

    The tokens of a catalyst go through the model behind those that fill the memory, where that pass has room for them:
    it takes less time than a pass of their own.

    A chunk is rounded up to whole blocks of the method's queries, so that what they choose does not depend on it. Where
    memory runs out in a pass, it is tried again with half the tokens, and so are those after it: until `end_pass`
    nothing has been remembered, so the result is the same.

    Args:
        ids: int64 [T]; source: int32 [T], the source position each token stands for.
        repeated: whether these are tokens of an answer, which come one by one.

    Yields:
        One record per pass; between two of them the memory is consistent and may be saved, forked or left.

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
                with suppress(OutOfMemory):  # the next pass tries once more, and says so
                    condensing = _condense(memory)
        yield Pass(end - at, seconds + condensing, hidden, share * seconds, condensing)
        at = end


def _passing_behind(model: Model, method: Method, memory: Memory, most: int) -> Tensor:
    """The tokens of a catalyst, int64 [G], that pass behind those which fill a memory: at most so many, else none.

    Recurrent layers would carry them on into the text.
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
    """Hidden states and novelty of a pass that is not committed yet; None if memory ran out for more than `least`.

    behind: int64 [G], tokens of a catalyst that go along.
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
        if memory.mass and mass is not None:  # layers before the one that it ran out in have added theirs
            memory.mass.restore(mass)
        return None  # the error is let go of, and with it all that its frames hold


def condense(model: Model, method: Method, memory: Memory) -> Pass:
    """Make room in a memory, showing it first what the catalyst prompt attends to, if its method has one.

    Raises:
        OutOfMemory: there is no room for the catalyst, or for what is kept beside what there was.
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
    """The tokens of a method's catalyst prompt, int64 [G]; none if it has none."""
    prompt = method.catalyst()
    return torch.tensor([] if prompt is None else model.chat.turn(prompt), dtype=torch.long)


def _condense(memory: Memory) -> float:
    """Condense; how many seconds that took."""
    started = time.perf_counter()
    with oom_as_engine_error(memory.spec.device, "while a memory was condensed"):
        memory.evict()
    return time.perf_counter() - started


def novelties(
    model: Model, before: Tensor | None, hidden: Tensor, ids: Tensor, predicted: Tensor | None = None
) -> Tensor:
    """-log p of each token given what was remembered, float32 [T]; infinite for a text's first token.

    Args:
        before: [hidden], the hidden state of the token before the first, or None if there is none.
        hidden: [T, hidden] of the tokens themselves; ids: int64 [T].
        predicted: [vocabulary], the logits of `before`, where they are known.
    Source: InfiniPot, equation 4. The logits matrix of a pass never exists as a whole. They rank tokens and nothing
    else, so a CPU with matrix products in bfloat16 works them out in these, which takes a third of the time.
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
