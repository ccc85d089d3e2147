"""InfiniteHiP against a plain implementation of the paper's Algorithms 1 to 4, key by key."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from engine import Model, SettingsError, make_method
from engine.memory import Memory
from engine.methods.infinitehip import InfiniteHiP
from engine.models.rope import Rope
from engine.models.spec import ModelSpec
from engine.parts.mass import AttentionMass, no_source
from engine.parts.selectors.stages import Stage, parse_stages
from tests.engine.plain import GROUP, Turned, attended, full_attention, mixed, stream, tail, through

SINKS, STREAM, TRAINED = 4, 24, 64
HEADS = 6
TWO_STAGES = "16:16:48:4 8:4:16:2"
CLOSE = {"atol": 1e-5, "rtol": 1e-4}


def method(stages: str = TWO_STAGES, **settings: object) -> InfiniteHiP:
    last, block = parse_stages(stages)[-1], parse_stages(stages)[0].query_block
    most = max(last.keep, int(str(settings.get("first_recent", 0))))
    known = {"sinks": SINKS, "stages": stages, "first_keep": last.keep, "store": "float32", "extend_always": True}
    made = make_method("infinitehip", budget=SINKS + STREAM + most + block - 1, **{**known, **settings})
    assert isinstance(made, InfiniteHiP)
    return made


@pytest.fixture
def spec(model: Model) -> ModelSpec:
    """Make a model that was trained for 64 positions."""
    return dataclasses.replace(model.spec, window=TRAINED)


def new_memory(spec: ModelSpec, settings: InfiniteHiP) -> Memory:
    memory = settings.new_memory(spec, lambda text: 0)
    assert memory.store.window == STREAM
    return memory


class Plain:
    """Probabilities of queries under one pruning rule and one rule for attention."""

    def __init__(self, rope: Rope, q: Tensor, k: Tensor, pruning: str, attention: str, extend: bool = True) -> None:
        self.q, self.k, self.extend = Turned(rope, q), Turned(rope, k.repeat_interleave(GROUP, 0)), extend
        self.pruning, self.attention = pruning, attention
        self.full = 0  # queries of a whole block of the first stage
        self.begins: dict[int, int] = {}  # query -> the first query of its block

    def last_of(self, now: int) -> int:
        """Return the last query of the first stage's block if the block were full."""
        return self.begins[now] + self.full - 1

    def fits(self, now: int) -> bool:
        return not self.extend and self.last_of(now) < TRAINED

    def group(self, now: int) -> int:
        """Return SelfExtend's group: the smallest that keeps the block's last query inside the trained window."""
        return next(g for g in range(1, 1000) if (self.last_of(now) - STREAM) / g <= TRAINED - 2 - STREAM)

    def score(self, head: int, block: range, entry: int, chunk: int, chunks: int, branch: int) -> float:
        """Return the highest q . k of a head's queries in a block with a key, at the positions of the pruning rule."""
        token, rule = entry + SINKS, "true" if self.fits(block[0]) else self.pruning
        if rule == "true":
            scores = [self.q[now][head, now] @ self.k[token][head, token] for now in block]
        elif rule == "dynamic":
            group = self.group(block[0])
            places = [now // group + STREAM - STREAM // group for now in block]
            key = self.k[token // group][head, token]
            scores = [self.q[place][head, now] @ key for place, now in zip(places, block, strict=True)]
        else:
            query_place, key_place = {
                "relative": (STREAM + 1, branch),
                "chunk": (chunks - 1 + STREAM, chunk),
                "infllm": (STREAM, 0),
            }[rule]
            scores = list(self.q[query_place][head, block[0] : block[-1] + 1] @ self.k[key_place][head, token])
        return float(torch.stack(scores).max())

    def representative(self, score: Callable[[int, int], float], keys: list[int]) -> int:
        """Follow Algorithm 3: the half whose first key scores better is searched on."""
        while len(keys) > 1:
            half = (len(keys) + 1) // 2
            left, right = keys[:half], keys[half:]
            keys = right if score(right[0], 1) > score(left[0], 0) else left
        return keys[0]

    def stage(self, stage: Stage, block: range, starts: list[int], evicted: int) -> list[int]:
        """Follow Algorithm 2 and return the starts of the chunks that are kept."""
        chunks = [list(range(start, min(start + stage.chunk, evicted))) for start in starts if start < evicted]
        scores = []
        for number, keys in enumerate(chunks):
            best = float("-inf")
            for head in range(HEADS):

                def score(entry: int, branch: int, head: int = head, number: int = number) -> float:
                    return self.score(head, block, entry, number, len(chunks), branch)

                best = max(best, score(self.representative(score, keys), 1))
            scores.append(best)
        kept = sorted(range(len(chunks)), key=lambda number: -scores[number])[: stage.keep // stage.chunk]
        return sorted(chunks[number][0] for number in kept)

    def row(self, now: int, far: list[int]) -> Tensor:
        """Return the attention of one query over sinks, selected entries and stream."""
        window = range(max(0, self.begins[now] - STREAM + 1), now + 1)
        chosen = [entry + SINKS for entry in far]
        cache = sorted({*(token for token in range(SINKS) if token <= now), *chosen, *window})
        evicted = self.begins[now] - STREAM - SINKS + 1 > 0
        places = {token: (now, token) for token in window}
        group = self.group(now)
        for rank, token in enumerate(cache):
            if token in places:
                continue
            if not evicted or self.fits(now):
                places[token] = (now, token)
            elif self.attention == "streaming":
                places[token] = (len(cache) - 1, rank)
            elif self.attention == "infllm":
                places[token] = (STREAM, 0)
            else:
                places[token] = (now // group + STREAM - STREAM // group, token // group)
        return attended(self.q, self.k, now, places)

    def read(self, stages: tuple[Stage, ...], first: int, last: int) -> Tensor:
        """Follow Algorithm 1 and return probabilities [HQ, T, T] of the queries `first` to `last`."""
        self.full = stages[0].query_block
        rows = torch.zeros(HEADS, self.q.x.shape[1], self.k.x.shape[1])

        def descend(level: int, block: range, starts: list[int], evicted: int) -> None:
            if level == len(stages):
                far = [e for start in starts for e in range(start, min(start + stages[-1].chunk, evicted))]
                for now in block:
                    rows[:, now] = self.row(now, far)
                return
            if level:
                starts = [s + more for s in starts for more in range(0, stages[level - 1].chunk, stages[level].chunk)]
            for begin in range(block[0], block[-1] + 1, stages[level].query_block):
                part = range(begin, min(begin + stages[level].query_block, block[-1] + 1))
                descend(level + 1, part, self.stage(stages[level], part, starts, evicted), evicted)

        for begin in range(first, last, self.full):
            block = range(begin, min(begin + self.full, last))
            self.begins |= dict.fromkeys(block, begin)
            evicted = max(0, begin - SINKS - STREAM + 1)
            descend(0, block, list(range(0, evicted, stages[0].chunk)), evicted)
        return rows

    def decode(self, stages: tuple[Stage, ...], first: int, last: int) -> Tensor:
        """Follow Algorithm 4: one token at a time, every stage with its own refresh interval."""
        self.full = stages[0].query_block
        rows = torch.zeros(HEADS, self.q.x.shape[1], self.k.x.shape[1])
        chosen: list[list[int]] = [[] for _ in stages]
        for step, now in enumerate(range(first, last)):
            self.begins[now] = now
            evicted = now - SINKS - STREAM + 1
            for level, stage in enumerate(stages):
                if step % stage.refresh == 0:
                    starts = list(range(0, evicted, stage.chunk))
                    if level:
                        wide = stages[level - 1].chunk
                        starts = [s + more for s in chosen[level - 1] for more in range(0, wide, stage.chunk)]
                    chosen[level] = self.stage(stage, range(now, now + 1), starts, evicted)
            last_chunk = stages[-1].chunk
            rows[:, now] = self.row(now, [e for s in chosen[-1] for e in range(s, min(s + last_chunk, evicted))])
        return rows


@pytest.mark.parametrize("attention", ["streaming", "infllm", "dynamic"])
@pytest.mark.parametrize("pruning", ["relative", "chunk", "infllm", "dynamic", "true"])
def test_every_combination_of_rules_equals_the_paper(spec: ModelSpec, pruning: str, attention: str) -> None:
    qkv = stream(112)
    settings = method(pruning=pruning, attention=attention)
    output = through(new_memory(spec, settings), qkv, 16)
    plain = Plain(spec.layers[0].rope, qkv[0], qkv[1], pruning, attention)
    rows = plain.read(parse_stages(TWO_STAGES), 96, 112)
    torch.testing.assert_close(output[:, 96:], mixed(rows, qkv[2])[:, 96:], **CLOSE)


@pytest.mark.parametrize("count", [1, 3, 16])
def test_dynamic_positions_lie_inside_the_models_window(spec: ModelSpec, count: int) -> None:
    """Regression: in shrinking blocks of queries the last one lay beyond it, and read past the tables."""
    memory = new_memory(spec, method("16:16:48:4 8:8:24:2 2:4:16:2", pruning="dynamic", attention="dynamic"))
    for seen in range(SINKS + STREAM, 40 * TRAINED):
        memory.store.seen = seen
        memory.begin_pass(no_source(count))
        for size in memory.selector.pruning.sizes:
            places = memory.selector.query_blocks(size).dynamic()
            assert STREAM < int(places[-1]) < TRAINED


@pytest.mark.parametrize("stages", ["8:5:20:1", "8:12:36:1 8:6:18:1 4:3:9:1", "1:16:32:1", TWO_STAGES])
def test_stages_of_every_shape_equal_the_paper(spec: ModelSpec, stages: str) -> None:
    """Check chunks that are no power of two, three stages, shrinking query blocks, and one query at a time."""
    qkv = stream(101)
    output = through(new_memory(spec, method(stages)), qkv, 16)
    rows = Plain(spec.layers[0].rope, qkv[0], qkv[1], "relative", "streaming").read(parse_stages(stages), 64, 101)
    torch.testing.assert_close(output[:, 64:], mixed(rows, qkv[2])[:, 64:], **CLOSE)


def test_the_first_layers_have_rules_of_their_own(spec: ModelSpec) -> None:
    qkv = stream(90)
    memory = new_memory(spec, method(first_layers=3, first_pruning="chunk", first_keep=8, pruning="infllm"))
    output = through(memory, qkv, 16)
    stages = parse_stages("16:16:48:4 8:4:8:2")
    rows = Plain(spec.layers[0].rope, qkv[0], qkv[1], "chunk", "streaming").read(stages, 80, 90)
    torch.testing.assert_close(output[:, 80:], mixed(rows, qkv[2])[:, 80:], **CLOSE)


def test_the_first_layers_may_see_a_longer_window_instead(spec: ModelSpec) -> None:
    """Check that stream and newest entries are, in StreamingLLM's order, one longer window."""
    qkv = stream(90)
    memory = new_memory(spec, method(first_layers=3, first_recent=32))
    output = through(memory, qkv, 16)
    plain = Plain(spec.layers[0].rope, qkv[0], qkv[1], "relative", "streaming")
    plain.begins = dict.fromkeys(range(80, 90), 80)
    evicted = 80 - SINKS - STREAM + 1
    rows = torch.stack([plain.row(now, list(range(evicted - 32, evicted))) for now in range(80, 90)], dim=1)
    torch.testing.assert_close(output[:, 80:], mixed(rows, qkv[2]), **CLOSE)


@pytest.mark.parametrize("stages", ["16:16:48:1 8:4:16:1", "6:16:48:1 2:4:16:1"])
def test_groups_look_at_the_same_queries_in_passes_of_any_length(spec: ModelSpec, stages: str) -> None:
    """Regression: of a last block that is not full, another query was looked at where others came before it."""
    qkv, block = stream(116), parse_stages(stages)[0].query_block
    for tokens in range(106, 116):
        short, long = (
            through(new_memory(spec, method(stages, compares="groups")), tail(qkv, 0, tokens), step)
            for step in (block, 8 * block)
        )
        torch.testing.assert_close(short, long, **CLOSE)


def test_a_longer_window_lists_no_more_than_is_far(spec: ModelSpec) -> None:
    """Regression: preset 16k-shallow listed 129,729 rows per block of a text of 1,856 tokens, at 47 tokens a second."""
    qkv = stream(90)
    memory = new_memory(spec, method(first_layers=3, first_recent=1 << 17))
    through(memory, tail(qkv, 0, 80), 16)
    memory.begin_pass(no_source(10))
    blocks = memory.selector.query_blocks(8)
    assert memory.selector.newest(blocks).shape == (2, blocks.last)


@pytest.mark.parametrize("refresh", [(1, 1), (4, 2), (6, 3)])
def test_decoding_with_cached_stages_equals_the_paper(spec: ModelSpec, refresh: tuple[int, int]) -> None:
    stages = f"16:16:48:{refresh[0]} 8:4:16:{refresh[1]}"
    qkv = stream(113)
    context = new_memory(spec, method(stages))
    through(context, tail(qkv, 0, 96), 16)
    fork = context.fork()
    through(fork, tail(qkv, 96, 101), 16)
    runs = list(fork.selector.pruning.runs)
    output = through(fork, tail(qkv, 101), 1)
    plain = Plain(spec.layers[0].rope, qkv[0], qkv[1], "relative", "streaming")
    rows = plain.decode(parse_stages(stages), 101, 113)
    torch.testing.assert_close(output, mixed(rows, qkv[2])[:, 101:], **CLOSE)
    ran = [now - before for now, before in zip(fork.selector.pruning.runs, runs, strict=True)]
    assert ran == [3 * 12 // interval for interval in refresh]  # three layers, twelve steps


def test_a_longer_pass_forgets_what_was_chosen(spec: ModelSpec) -> None:
    qkv = stream(110)
    context = new_memory(spec, method("16:16:48:64 8:4:16:64"))
    through(context, tail(qkv, 0, 96), 16)
    reading = context.usage().stages
    assert min(reading) > 0
    fork = context.fork()
    assert fork.usage().stages == (0, 0), "a conversation's are its own"
    through(fork, tail(qkv, 96, 100), 1)
    assert fork.selector.pruning.steps == 4
    through(fork, tail(qkv, 100, 109), 16)
    before = list(fork.selector.pruning.runs)
    through(fork, tail(qkv, 109), 1)
    assert fork.selector.pruning.runs == [count + 3 for count in before]
    assert fork.usage().stages == tuple(fork.selector.pruning.runs)
    assert context.usage().stages == reading


def test_true_positions_where_they_fit(spec: ModelSpec) -> None:
    """Check that only the first blocks, inside the model's window of 64, keep their distances."""
    qkv = stream(112)
    settings = method(pruning="relative", attention="infllm", extend_always=False)
    output = through(new_memory(spec, settings), qkv, 16)
    plain = Plain(spec.layers[0].rope, qkv[0], qkv[1], "relative", "infllm", extend=False)
    rows = plain.read(parse_stages(TWO_STAGES), 0, 112)
    torch.testing.assert_close(output, mixed(rows, qkv[2]), **CLOSE)


def test_keeping_everything_equals_full_attention(spec: ModelSpec) -> None:
    qkv = stream(150)
    output = through(new_memory(spec, method("16:16:256:1 16:4:256:1")), qkv, 16)
    expected = mixed(full_attention(spec.layers[0].rope, qkv[0], qkv[1]), qkv[2])
    torch.testing.assert_close(output, expected, **CLOSE)


def test_sources_are_what_was_attended_to(spec: ModelSpec) -> None:
    qkv = stream(104)
    memory = new_memory(spec, method())
    through(memory, tail(qkv, 0, 96), 16)
    memory.mass = AttentionMass(104, torch.device("cpu"))
    through(memory, tail(qkv, 96), 8)
    rows = {}
    for rule in ("chunk", "relative"):
        plain = Plain(spec.layers[0].rope, qkv[0], qkv[1], rule, "streaming")
        rows[rule] = plain.read(parse_stages(TWO_STAGES), 96, 104).sum(dim=(0, 1))
    expected = rows["chunk"] + 2 * rows["relative"]  # the first layer, the other two
    torch.testing.assert_close(memory.mass.total, expected, **CLOSE)


def test_a_query_sees_no_more_than_the_budget(spec: ModelSpec) -> None:
    qkv, settings = stream(120), method(first_pruning="relative")  # so that all layers select the same
    context = new_memory(spec, settings)
    through(context, tail(qkv, 0, 96), 16)
    fork, most = context.fork(), 0
    fork.mass = AttentionMass(120, torch.device("cpu"))
    for token in range(96, 120):
        fork.mass.clear()
        through(fork, tail(qkv, token, token + 1), 1)
        most = max(most, int((fork.mass.total > 0).sum()))
    keep = parse_stages(TWO_STAGES)[-1].keep
    assert SINKS + STREAM + keep <= most <= settings.budget  # type: ignore[operator]


PUBLISHED = {  # chunk, entries kept and refresh interval of each stage; entries that the first three layers keep
    "3k": ([(256, 32768, 16), (32, 8192, 8), (8, 2048, 4)], 4096),
    "3k-fast": ([(256, 32768, 32), (32, 8192, 16), (8, 2048, 8)], 4096),
    "3k-flash": ([(256, 32768, 96), (32, 8192, 24), (8, 2048, 8)], 4096),
    "5k": ([(64, 32768, 16), (32, 16384, 8), (16, 4096, 4)], 4096),
    "16k-shallow": ([(32, 16384, 16)], 128 * 1024 - 256 - 1024 - 63),
}


def test_presets_are_the_published_settings() -> None:
    assert set(InfiniteHiP.presets) == {"pocket", "pocket-far", *PUBLISHED}
    for name, (stages, first) in PUBLISHED.items():
        preset = make_method("infinitehip", preset=name)
        assert isinstance(preset, InfiniteHiP)
        assert [(s.chunk, s.keep, s.refresh) for s in parse_stages(preset.stages)] == stages
        assert {s.query_block for s in parse_stages(preset.stages)} == {64}
        assert (preset.sinks, preset.first_layers, preset.looks) == (256, 3, 1)
        assert (preset.first_recent or preset.first_keep) == first
        assert preset.budget == 256 + 1024 + first + 63  # the stream, and a block of queries
        assert preset.budget <= 1 << 17  # a window of 128K; 16k-shallow went 319 beyond it


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"preset": "7k"}, "Presets: pocket"),
        ({"stages": "64:32"}, "A stage is written"),
        ({"stages": "64:32:100:8"}, "100 tokens are no multiple of its chunk of 32. Keep 128"),
        ({"stages": "64:32:128:8 64:8:256:4"}, "256 is more than 128"),
        ({"stages": "64:32:1024:8 64:12:120:4"}, "a chunk of 12 does not divide the 32 of the stage before; 8 does"),
        (
            {"stages": "32:32:1024:8 64:8:256:4"},
            "a query_block of 64 does not divide the 32 of the stage before; 32 does",
        ),
        ({"stages": "64:32:1024:8 64:8:256:3"}, "a refresh of 3 does not divide the 8"),
        ({"first_keep": 102}, "multiple of the last stage's chunk of 4"),
        ({"first_keep": 2048}, "at most the 1024"),
        ({"budget": 300}, "give at least 323"),
        ({"budget": 500, "first_keep": 512}, "give at least 579"),
        ({"pruning": "absolute"}, "pruning is one of true, relative"),
        ({"attention": "chunk"}, "attention is one of streaming"),
    ],
)
def test_settings_that_cannot_be_are_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        make_method("infinitehip", **settings)


def test_a_stream_as_long_as_the_models_window_leaves_no_room_for_dynamic_positions(spec: ModelSpec) -> None:
    settings = dataclasses.replace(method(attention="dynamic"), budget=SINKS + 16 + 15 + TRAINED)
    with pytest.raises(SettingsError, match="give a budget of at most 83"):
        settings.new_memory(spec, lambda text: 0)
