"""The promise about choice: a method keeps or finds the entry that its rule ranks first, and not the last.

A planted entry has a score, attention or a key that queries match. So no trained weights are needed, and no wrong
choice can hide in two ways to the same state.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from engine import Context, Method, Model
from engine.memory import Memory
from engine.methods.scored import ScoredMethod
from engine.models.spec import Scoring
from engine.parts.evictors.catalyst import CatalystEvictor
from engine.parts.evictors.last_attention import LastAttentionEvictor
from engine.parts.evictors.scored import ArrivalScoreEvictor, ScoredEvictor
from tests.engine.matrix import TIGHT
from tests.engine.plain import SCALE, stream
from tests.engine.reading import read

SCORED = [name for name, method in TIGHT.items() if isinstance(method, ScoredMethod)]
RETRIEVING = [name for name, method in TIGHT.items() if method.family == "retrieving"]
HIGH = 1e4
POTS = [name for name, method in TIGHT.items() if method.name == "infinipot"]
# Source positions of the best entry of each KV head, and of the worst. Chunks of 40 end behind 3, 43, 83 and so on, as
# 77 tokens come before the text. The last are in the text's last chunk.
PLACES = [((0, 2), 60), ((42, 43), 61), ((83, 122), 20), ((283, 262), 250)]
# Of 301. Beacons stand at the end of as many tokens as one is for, counted with the 77 before the text.
BY_PLACE = {
    "streaming": [*range(209, 301)],
    "truncate": [*range(26), *range(276, 301)],
    "beacon": [*range(2, 275, 16), *range(275, 301)],
    "beacon-adaptive": [*range(2, 275, 4), *range(275, 301)],
    "beacon-unbounded": [*range(2, 275, 8), *range(275, 301)],
    "beacon-thinned": [*range(18, 259, 32), *range(259, 301)],
}
SLOW = 3  # the number of a key that RoPE turns least, by half a radian in 500 tokens


def near(source: Tensor, position: int) -> Tensor:
    """Tell which entries are this one or neighbours, whose score it may take over: the most that settings pool."""
    return (source - position).abs() <= 4


def sources(evictor: ScoredEvictor, number: int, attention: Tensor) -> Tensor:
    """Return the source positions of all that queries attend to, int32 [H, N]: entries, then the pass."""
    held, arriving = evictor.store.column(number, "source"), evictor.store.incoming
    return torch.cat([held, arriving.expand(len(held), -1)], dim=1)[:, : attention.shape[1]]


def check_held(context: Context, best: tuple[int, int], worst: int) -> None:
    """Check that in each layer each KV head holds its best entry, and not the worst."""
    for layer in range(len(context.model.spec.layers)):
        for head, place in zip(context.memory.positions(layer).tolist(), best, strict=True):
            assert place in head
            assert worst not in head


@pytest.mark.parametrize(("best", "worst"), PLACES, ids=str)
@pytest.mark.parametrize("name", SCORED)
def test_the_highest_score_of_each_head_is_kept_and_the_lowest_is_not(
    name: str, best: tuple[int, int], worst: int, model: Model, ids: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Check TOVA by attention, whose mean over all heads counts: the last head alone attends to the best."""
    importance, observe = ArrivalScoreEvictor.importance, LastAttentionEvictor.observe

    def scored(evictor: ArrivalScoreEvictor, *given: Any) -> Tensor:
        scores, source = importance(evictor, *given), evictor.store.incoming
        for row, place in zip(scores, best, strict=True):
            row[near(source, worst)] = -HIGH
            row[source == place] = HIGH
        return scores

    def observed(evictor: LastAttentionEvictor, number: int, attention: Tensor) -> None:
        source = sources(evictor, number, attention)[0]
        chosen = torch.isin(source, torch.tensor(best))
        attention = attention.masked_fill(near(source, worst) | chosen, 0.0)
        attention[-1, chosen] = 0.9
        observe(evictor, number, attention)

    monkeypatch.setattr(ArrivalScoreEvictor, "importance", scored)
    monkeypatch.setattr(LastAttentionEvictor, "observe", observed)
    check_held(read(model, TIGHT[name], ids), best, worst)


@pytest.mark.parametrize(("best", "worst"), PLACES[:3], ids=str)
@pytest.mark.parametrize("name", POTS)
def test_a_pot_keeps_the_most_novel_and_what_the_catalyst_attends_to_most(
    name: str, best: tuple[int, int], worst: int, model: Model, ids: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Plant a novel entry, and another for each head that a catalyst attends to, wherever the setting asks for them."""
    share, novel = TIGHT[name].settings()["novelty_share"], worst + 15
    representative, evict = CatalystEvictor._representative, CatalystEvictor.evict

    def attends(evictor: CatalystEvictor, number: int) -> Tensor:
        scores, sources = representative(evictor, number), evictor.store.column(number, "source")
        own = best if len(scores) > 1 else (best[number % 2],)  # heads of different lengths are numbered one by one
        for row, source, place in zip(scores, sources, own, strict=True):
            row[(source - novel).abs() < 3] = 0.0
            row[source == place] = HIGH
            row[source == worst] = -HIGH
        return scores

    def surprised(evictor: CatalystEvictor) -> None:
        for number in evictor.store.evictable:
            scores, source = (evictor.store.column(number, each) for each in ("score", "source"))
            scores[torch.isin(source, torch.tensor(best))] = 0.0
            scores[source == worst] = -HIGH
            scores[source == novel] = HIGH
        evict(evictor)

    monkeypatch.setattr(CatalystEvictor, "_representative", attends)
    monkeypatch.setattr(CatalystEvictor, "evict", surprised)
    context = read(model, TIGHT[name], ids)
    chosen = [(novel, novel)] * (share > 0) + [best] * (share < 1)
    for each in chosen:
        check_held(context, each, worst)


@pytest.mark.parametrize(("name", "places"), BY_PLACE.items(), ids=BY_PLACE)
def test_entries_that_are_chosen_by_place_are_these(name: str, places: list[int], model: Model, ids: Tensor) -> None:
    context = read(model, TIGHT[name], ids)
    for layer in range(len(model.spec.layers)):
        for head in context.memory.positions(layer):
            assert head[head >= 0].tolist() == places


def attended(memory: Memory, qkv: tuple[Tensor, Tensor, Tensor]) -> Tensor:
    """Pass a text of 301 tokens through a memory, then one token; return the last layer's output [6, 8] for that."""
    q, k, v = qkv
    at, output = 0, q
    while at < 302:
        if not (room := memory.evictor.room()):
            memory.evict()
            continue
        if at == 301:
            memory = memory.fork()  # which answers
        end = min(at + min(64, room, memory.pass_limit()), 301 if at < 301 else 302)
        memory.begin_pass(torch.arange(at, end, dtype=torch.int32))
        for layer in range(len(memory.spec.layers)):
            output = memory.attend(layer, q[:, at:end], k[:, at:end], v[:, at:end], Scoring(SCALE))
        memory.end_pass()
        at = end
    return output[:, -1]


@pytest.mark.parametrize("place", ["behind the sinks", "ends a pass", "begins a pass", "has just left"])
@pytest.mark.parametrize("name", RETRIEVING)
def test_the_key_that_a_query_matches_is_found(name: str, place: str, model: Model) -> None:
    """Plant another one for each KV head, and look for their values.

    Where units are judged, a passage as long as one matches; where chunks by some of their keys, one twice as long.
    """
    method: Method = TIGHT[name]
    settings = method.settings()
    sinks, passage = settings.get("sinks", 0), 32 if settings.get("stages") else settings.get("block", 1)
    q, k, v = stream(302)
    q[..., SLOW], v[..., 0] = 7.0, 0.0
    memory = method.new_memory(model.spec, model.turn_length)
    assert attended(memory, (q, k, v))[:, 0].abs().max() < 1e-6, "nothing is planted yet"
    assert memory.archive is not None
    newest = sinks + memory.num_evicted - 2  # before the last token
    first = {"behind the sinks": sinks, "ends a pass": 63, "begins a pass": 64, "has just left": newest}[place]
    for head, planted in enumerate((first, max(sinks, newest - 2 * passage - 11))):
        begin = max(sinks, planted - passage + 1) if planted == newest else planted
        k[head, begin : begin + passage, SLOW] = 7.0
        v[head, begin : begin + passage, 0] = 10.0
    found = attended(method.new_memory(model.spec, model.turn_length), (q, k, v))
    assert found[:, 0].min() > 8.0, found[:, 0]
