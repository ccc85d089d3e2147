"""`recall` against attention over gist and selection written out, entry by entry."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence, Set
from contextlib import nullcontext

import pytest
import torch
from torch import Tensor

from engine import Model, OutOfMemory, SettingsError, make_method
from engine.memory import Memory
from engine.methods.recall import Recall
from engine.parts.archive.focus import FocusedEntries, SecondLook
from engine.parts.footprint import ReadingTask
from engine.parts.mass import AttentionMass
from engine.records import DISK, HOST
from tests.engine.plain import GROUP, SCALE, stream, tail, through
from tests.engine.reading import loaded

TEXT, GIST, LAYER = 300, 136, 2
EVERYTHING = "8:4:320:1"
EMPTY: Set[int] = frozenset()
QKV = tuple[Tensor, Tensor, Tensor]


def read(model: Model, qkv: QKV, **settings: object) -> Memory:
    """Read 300 tokens; Locret keeps those that fit its budget of 136 and its last 100."""
    memory = make_method("recall", **{"store": "float32", **settings}).new_memory(model.spec, lambda text: 0)
    memory.reserve(TEXT)
    while memory.seen < TEXT:
        if memory.evictor.room() == 0:
            memory.evict()
        through(memory, tail(qkv, memory.seen, min(TEXT, memory.seen + min(16, memory.evictor.room()))), 16)
    assert memory.num_evicted > GIST
    return memory


def selected(model: Model, qkv: QKV, head: int, now: int, among: Sequence[int], top: int | None) -> list[int]:
    """Return all far entries, or the best for a query as seen from one constant distance."""
    if top is None:
        return list(among)
    turned = model.spec.layers[LAYER].rope.to_constant(qkv[0][head, now], GIST)
    return [among[each] for each in (qkv[1][head // GROUP, list(among)] @ turned).topk(top).indices]


def attention(
    model: Model,
    memory: Memory,
    qkv: QKV,
    head: int,
    now: int,
    far: list[int],
    streaming: bool,
    hidden: Set[int] = EMPTY,
) -> Tensor:
    """Return probabilities [tokens] of a query in a conversation's first pass, over gist, selection and the pass."""
    rope, kv_head = model.spec.layers[LAYER].rope, head // GROUP
    gist = memory.positions(LAYER)[kv_head].tolist()
    slots = enumerate([*gist, *range(TEXT, now + 1)])
    places = {token: (len(gist) + now - TEXT, slot) for slot, token in slots if token not in hidden}
    for rank, token in enumerate(far):
        beside = (len(gist) + now - TEXT + len(far), rank) if streaming else (GIST, 0)
        places.setdefault(token, beside)
    logits = torch.full((now + 1,), float("-inf"))
    for token, (query, key) in places.items():
        turned = rope.to_constant(qkv[0][head, now], query), rope.to_constant(qkv[1][kv_head, token], key)
        logits[token] = turned[0] @ turned[1] * SCALE
    return logits.softmax(0)


@pytest.mark.parametrize(
    ("settings", "top", "streaming"),
    [
        ({"budget": GIST + 320, "stages": EVERYTHING}, None, True),
        ({"budget": GIST + 320, "stages": EVERYTHING, "store": "int8"}, None, True),
        ({"budget": GIST + 320, "stages": EVERYTHING, "attention": "infllm"}, None, False),
        ({"budget": GIST + 24, "select": "exact", "top_k": 24}, 24, False),
    ],
    ids=["streaming", "int8", "one-distance", "exact"],
)
def test_gist_and_selection_share_one_softmax_and_nothing_counts_twice(
    model: Model, settings: dict[str, object], top: int | None, streaming: bool
) -> None:
    qkv, close = stream(TEXT + 9), 2e-2 if "store" in settings else 1e-5
    context = read(model, qkv, **settings)
    fork = context.fork()
    fork.mass = AttentionMass(TEXT + 9, torch.device("cpu"))
    output = through(fork, tail(qkv, TEXT), 16)
    total = torch.zeros(TEXT)
    for head in range(6):
        for now in (TEXT, TEXT + 8):
            far = selected(model, qkv, head, now, range(context.num_evicted), top)
            rows = attention(model, context, qkv, head, now, far, streaming)
            expected = rows @ qkv[2][head // GROUP, : now + 1]
            torch.testing.assert_close(output[head, now - TEXT], expected, atol=close, rtol=close)
            total = torch.maximum(total, rows[:TEXT])
    assert bool((fork.mass.total[:TEXT][total > 1e-3] > 0).all())


def test_the_second_look_sees_of_gist_and_text_what_stood_out(model: Model) -> None:
    qkv = stream(TEXT + 9)
    context = read(model, qkv, budget=GIST + 24, select="exact", top_k=24)
    fork = context.fork()
    among = [*range(20, 80), *range(150, 155)]
    focused = FocusedEntries(torch.tensor([*among, *range(context.num_evicted, TEXT)]), TEXT)
    fork.archive.second_look = SecondLook(0, focused)
    fork.mass = AttentionMass(TEXT + 9, torch.device("cpu"))
    output = through(fork, tail(qkv, TEXT), 16)
    hidden = set(range(context.num_evicted)) - set(among)
    for head in range(6):
        held = set(context.positions(LAYER)[head // GROUP].tolist())
        assert held & hidden
        assert held & set(among)
        for now in (TEXT, TEXT + 8):
            far = selected(model, qkv, head, now, among, 24)
            rows = attention(model, context, qkv, head, now, far, False, hidden)
            expected = rows @ qkv[2][head // GROUP, : now + 1]
            torch.testing.assert_close(output[head, now - TEXT], expected, atol=1e-5, rtol=1e-4)
    assert not bool(fork.mass.total[sorted(hidden)].any())
    assert bool(fork.mass.total[among].any())


def test_a_catalyst_in_the_second_look_sees_all_of_the_gist(model: Model) -> None:
    memory = read(model, stream(TEXT), budget=GIST + 24, select="exact", top_k=24)
    memory.archive.second_look = SecondLook(0, FocusedEntries(torch.arange(20, 80), TEXT))
    memory.begin_pass(torch.zeros(1, dtype=torch.int32))
    q = torch.zeros(6, 1, 8)
    masked, whole = (memory.selector.segments(LAYER, q, catalyst)[0].table for catalyst in (False, True))
    assert masked is not None
    assert whole is None


@pytest.mark.parametrize("gist", ["locret", "infinipot"])
def test_dynamic_positions_lie_inside_the_models_window(model: Model, gist: str) -> None:
    """Check queries behind the whole gist, which exceeds its budget during a pass."""
    qkv = stream(TEXT + 40)
    for window in range(GIST + 16, 2 * GIST, 17):
        spec = dataclasses.replace(model.spec, window=window)
        tight = make_method("recall", budget=GIST + 24, gist=gist, stages="8:8:48:1 4:4:24:1", pruning="dynamic")
        memory = tight.new_memory(spec, lambda text: 8)
        memory.reserve(TEXT)
        for seen in range(0, TEXT, 4):
            if memory.evictor.room() == 0:
                memory.evict()
            through(memory, tail(qkv, seen, seen + 4), 4)
        fork = memory.fork()
        while room := min(fork.evictor.room(), TEXT + 40 - fork.seen):
            through(fork, tail(qkv, fork.seen, fork.seen + min(8, room)), 8)
        assert int(fork.selector.query_blocks(4).dynamic()[0]) < window
        assert fork.selector.pruning.runs[0] > 0


def test_selection_runs_in_questions_and_answers(model: Model) -> None:
    qkv = stream(TEXT + 9)
    context = read(model, qkv, budget=GIST + 24, stages="8:8:48:4 8:2:24:2")
    fork = context.fork()
    through(fork, tail(qkv, TEXT, TEXT + 5), 16)
    through(fork, tail(qkv, TEXT + 5), 1)
    assert fork.selector.pruning.runs == [3 * (1 + 1), 3 * (1 + 2)]  # three layers; one question, four steps
    assert context.selector.pruning.runs == [0, 0]
    assert fork.archive.host.length == TEXT  # a conversation stays out of it


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"gist": "full"}, "gist is one of locret, infinipot"),
        ({"select": "all"}, "select is one of infinitehip, exact"),
        ({"attention": "dynamic"}, "attention is one of streaming, infllm"),
        ({"budget": 300}, "leaves no gist beside 256 selected entries: give at least 384"),
        ({"top_k": 0}, "top_k is at least 1"),
        ({"store": "int2"}, "store is one of .*int4.*, not .int2."),
        ({"tier": "tape"}, "tier is one of auto, host, device, disk"),
    ],
)
def test_settings_that_cannot_be_are_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        make_method("recall", **settings)


@pytest.mark.parametrize("gist", ["locret", "infinipot"])
def test_what_does_not_fill_a_page_of_codes_stays_in_the_gist(model: Model, gist: str) -> None:
    """Check this since entries of an open group cannot be looked up."""
    qkv = stream(TEXT + 400)
    method = make_method("recall", budget=GIST + 24, gist=gist, stages="8:8:48:1 4:4:24:1", store="int8")
    memory = method.new_memory(model.spec, lambda text: 8)
    memory.reserve(TEXT)
    times = 0

    def condense(memory: Memory) -> None:
        memory.evict()
        assert memory.num_evicted == memory.archive.host.stored
        for held in memory.positions(LAYER).tolist():
            assert set(range(memory.num_evicted, min(TEXT, memory.seen))) <= set(held)

    while memory.seen < TEXT:
        if memory.evictor.room() == 0:
            condense(memory)
            times += 1
        through(memory, tail(qkv, memory.seen, min(TEXT, memory.seen + min(7, memory.evictor.room()))), 7)
    assert memory.archive.host.stored == 256
    fork = memory.fork()
    while fork.seen < TEXT + 400:
        if fork.evictor.room() == 0:
            condense(fork)
            times += 1
        through(fork, tail(qkv, fork.seen, min(TEXT + 400, fork.seen + min(7, fork.evictor.room()))), 7)
    assert times > 3


def test_a_gist_as_long_as_the_models_window_leaves_no_room_for_dynamic_positions(model: Model) -> None:
    settings = Recall(budget=256 + 500, gist="infinipot", pruning="dynamic")
    with pytest.raises(SettingsError, match="give a budget of at most 752"):
        settings.new_memory(model.spec, lambda text: 0)
    dataclasses.replace(settings, budget=752).new_memory(model.spec, lambda text: 0)


def test_a_text_is_refused_that_could_be_kept_but_not_saved(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: the copy of a slab while it is saved was planned, but not counted when a reading began."""
    method = Recall(budget=GIST + 24, gist="infinipot", select="exact", top_k=24)
    planned = method.plan(model.spec, ReadingTask(5000, 0, 64, lambda text: 0))
    free = planned.usage.bytes[HOST] + planned.host_saving_bytes
    for short in (0, 1):
        monkeypatch.setattr("engine.memory_usage.free_bytes", lambda device, short=short: free - short)
        with pytest.raises(OutOfMemory, match="5,000 tokens") if short else nullcontext():
            memory = method.new_memory(model.spec, lambda text: 0)
            memory.reserve(5000)
            memory.archive.check_room()


def test_slabs_that_were_saved_are_counted_on_disk(model: Model) -> None:
    context = read(model, stream(TEXT), budget=GIST + 24, select="exact", top_k=24)
    held = context.usage()
    parts, meta = context.state()
    again = make_method("recall", store="float32", budget=GIST + 24, select="exact", top_k=24).new_memory(
        model.spec, lambda text: 0
    )
    again.load(loaded(parts), meta)
    for memory in (context, again):
        memory.archive.use_mapped_files(loaded(parts))
        usage = memory.usage()
        assert (usage.entries[HOST], usage.bytes[HOST]) == (0, 0)
        assert (usage.entries[DISK], usage.bytes[DISK]) == (TEXT, held.bytes[HOST])
