"""InfLLM against a plain implementation of the paper's section 2, token by token."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import Tensor

from engine import Model, SettingsError, make_method
from engine.memory import Memory
from engine.methods.infllm import InfLLM
from engine.models.rope import NoRope, Rope
from engine.models.spec import ModelSpec
from engine.parts.mass import AttentionMass
from engine.parts.selectors.unit_keys import Units
from engine.parts.selectors.units import PROBABILITIES, PRODUCTS
from tests.engine.plain import GROUP, Turned, attended, full_attention, mixed, stream, tail, through

WINDOW, BLOCK = 24, 8
SETTINGS = InfLLM(
    budget=4 + WINDOW + 4 * 6 - 1 + BLOCK - 1,
    sinks=4,
    block=6,
    representatives=2,
    units=3,
    query_block=BLOCK,
    store="float32",
)
CLOSE = {"atol": 1e-5, "rtol": 1e-4}


def new_memory(spec: ModelSpec, settings: InfLLM = SETTINGS) -> Memory:
    memory = settings.new_memory(spec, lambda text: 0)
    assert memory.store.window == WINDOW
    return memory


def representative_scores(rope: Rope, q: Tensor, k: Tensor) -> list[float]:
    """Return r_m of every token: the mean of q_{m+j} . k_m over the local window, heads together."""
    scores = []
    for token in range(q.shape[1]):
        following = rope.rotate(q[:, token + 1 : token + 1 + WINDOW], 1)
        scores.append(float((following * rope.to_constant(k[:, token : token + 1], 0)).sum()) / WINDOW)
    return scores


def infllm(rope: Rope, q: Tensor, k: Tensor, blocks: list[range], settings: InfLLM = SETTINGS) -> Tensor:
    """Return probabilities [HQ, T, T] for queries that come in these blocks."""
    sinks, size = settings.sinks, settings.block
    k = k.repeat_interleave(GROUP, 0)
    queries, keys = Turned(rope, q), Turned(rope, k)
    rows = torch.zeros(q.shape[0], q.shape[1], k.shape[1])
    scores = torch.tensor(representative_scores(rope, q, k)).expand(q.shape[0], -1)
    if settings.scores == PROBABILITIES:
        scores = torch.zeros(q.shape[0], k.shape[1])
    for block in blocks:
        evicted = list(range(sinks, block[0] - WINDOW + 1))
        units = [evicted[i : i + size] for i in range(0, len(evicted) // size * size, size)]
        relevance = []
        for unit in units:
            fit = 0.0  # summed over queries, representatives and heads
            for head, own in enumerate(scores):
                best = sorted(unit, key=lambda token: -float(own[token]))[: settings.representatives]
                fit += float((queries[WINDOW][head, list(block)] @ keys[0][head, best].T).sum())
            relevance.append(fit)
        chosen = sorted(range(len(units)), key=lambda unit: -relevance[unit])[: settings.units]
        far = [token for unit in chosen for token in units[unit]] + evicted[len(units) * size :]
        for now in block:
            places = {token: (now, token) for token in range(max(0, block[0] - WINDOW + 1), now + 1)}
            if evicted:
                places |= dict.fromkeys([*range(sinks), *far], (WINDOW, 0))
            else:
                places |= {token: (now, token) for token in range(sinks) if token <= now}
            rows[:, now] = attended(queries, keys, now, places)
            if settings.scores == PROBABILITIES:
                near = range(max(0, block[0] - WINDOW + 1), now + 1)
                scores[:, near] += rows[:, now, near]
    return rows


def in_blocks(first: int, last: int, size: int) -> list[range]:
    return [range(begin, min(begin + size, last)) for begin in range(first, last, size)]


@pytest.mark.parametrize(
    ("chunk", "scores", "rope"),
    [
        (8, PRODUCTS, None),
        (24, PRODUCTS, None),
        (16, PRODUCTS, Rope(torch.tensor([1.0, 0.1]), attention_scaling=1.6)),
        (8, PROBABILITIES, None),
    ],
    ids=["8", "24", "partly-rotated-and-scaled", "as-the-authors-choose"],
)
def test_reading_and_answering_equal_the_paper(model: Model, chunk: int, scores: str, rope: Rope | None) -> None:
    settings = dataclasses.replace(SETTINGS, scores=scores)
    qkv = stream(110)
    q, k, v = qkv
    rope = rope or model.spec.layers[0].rope
    layers = tuple(dataclasses.replace(layer, rope=rope) for layer in model.spec.layers)
    context = new_memory(dataclasses.replace(model.spec, layers=layers), settings)
    read = through(context, tail(qkv, 0, 92), chunk)  # the last block is not full
    fork = context.fork()
    asked = through(fork, tail(qkv, 92, 106), chunk)
    decoded = through(fork, tail(qkv, 106), 1)
    blocks = [*in_blocks(0, 92, BLOCK)]
    asked_blocks = [
        part for begin in range(92, 106, chunk) for part in in_blocks(begin, min(begin + chunk, 106), BLOCK)
    ]
    rows = infllm(rope, q, k, [*blocks, *asked_blocks, *in_blocks(106, 110, 1)], settings)
    torch.testing.assert_close(torch.cat([read, asked, decoded], dim=1), mixed(rows, v), **CLOSE)


def test_sources_are_what_was_attended_to(model: Model) -> None:
    qkv = stream(104)
    memory = new_memory(model.spec)
    through(memory, tail(qkv, 0, 96), 16)
    memory.mass = AttentionMass(104, torch.device("cpu"))
    through(memory, tail(qkv, 96), 8)
    rows = infllm(model.spec.layers[0].rope, qkv[0], qkv[1], [range(96, 104)])
    expected = 3 * rows[:, 96:].sum(dim=(0, 1))  # three layers with the same input
    expected[96:] = memory.mass.total[96:]  # tokens of the pass count, each for itself
    torch.testing.assert_close(memory.mass.total, expected, **CLOSE)
    assert float(memory.mass.total.sum()) == pytest.approx(3 * 6 * 8, rel=1e-4)


def test_all_units_without_positions_equal_full_attention(model: Model) -> None:
    """Check that with every unit looked up and without RoPE nothing differs."""
    qkv = stream(150)
    layers = tuple(dataclasses.replace(layer, rope=NoRope()) for layer in model.spec.layers)
    spec = dataclasses.replace(model.spec, layers=layers)
    units = 100
    settings = dataclasses.replace(SETTINGS, units=units, budget=SETTINGS.budget + (units - 3) * 6)  # type: ignore[operator]
    output = through(new_memory(spec, settings), qkv, 16)
    torch.testing.assert_close(output, mixed(full_attention(NoRope(), qkv[0], qkv[1]), qkv[2]), **CLOSE)


def test_what_fits_best_is_told_in_half_precision_too() -> None:
    """Check products of blocks and heads that exceed float16 and differ by less than bfloat16 can hold."""
    rows = torch.full((3, 1024), 10.0)
    rows[1, 0] = 12.0
    for dtype in (torch.float16, torch.bfloat16):
        units = Units(rows[:0].to(dtype))
        units.append(rows.to(dtype))
        assert units.fit(torch.full((1, 1024), 100.0, dtype=dtype), rows[:0].to(dtype)).argmax() == 1


def test_a_unit_is_represented_once_and_for_all(model: Model) -> None:
    qkv = stream(200)
    memory = new_memory(model.spec)
    through(memory, tail(qkv, 0, 120), 24)
    before = [units.own[: units.count].clone() for units in memory.selector.units]
    assert memory.selector.units[0].total == (112 - WINDOW - 3) // 6  # as seen from the last block, which begins at 112
    fork = memory.fork()
    through(fork, tail(qkv, 120), 24)
    assert fork.selector.units[0].total > memory.selector.units[0].total
    for units, old in zip(memory.selector.units, before, strict=True):
        assert torch.equal(units.own[: units.count], old)
    for units, old in zip(fork.selector.units, before, strict=True):
        assert torch.equal(units.shared, old)


def test_a_query_sees_no_more_than_the_budget(model: Model) -> None:
    qkv = stream(120)
    memory = new_memory(model.spec)
    through(memory, tail(qkv, 0, 104), BLOCK)
    memory.mass, most = AttentionMass(120, torch.device("cpu")), 0
    for token in range(104, 120):
        memory.mass.clear()
        through(memory, tail(qkv, token, token + 1), 1)
        most = max(most, int((memory.mass.total > 0).sum()))
    assert SETTINGS.budget is not None
    assert 4 + WINDOW + 3 * 6 < most <= SETTINGS.budget


PUBLISHED = {  # local window, units, queries of a block, representatives
    "mistral": (4096, 16, 512, 4),
    "mistral-12k": (4096, 64, 512, 4),
    "llama-3": (4096, 16, 512, 4),
    "qwen-1.5": (4096, 16, 512, 4),
    "vicuna": (2048, 16, 512, 4),
    "minicpm": (2048, 16, 512, 4),
    "million": (4096, 16, 2048, 1),
}


def test_presets_are_the_published_settings(model: Model) -> None:
    assert set(InfLLM.presets) == {"pocket", *PUBLISHED}
    for name, (window, units, query_block, representatives) in PUBLISHED.items():
        method = make_method("infllm", preset=name)
        assert isinstance(method, InfLLM)
        memory = method.new_memory(model.spec, lambda text: 0)
        assert (memory.store.window, method.units, method.query_block, method.representatives) == (
            window,
            units,
            query_block,
            representatives,
        )
        assert (method.sinks, method.block, method.looks) == (128, 128, 1)
    assert make_method("infllm", preset="mistral", units=8).settings()["units"] == 8


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"preset": "llama-9"}, "Presets: pocket"),
        ({"representatives": 33}, "1 to 8 representatives"),
        ({"budget": 500}, "give at least 586"),
        ({"units": 0}, "units is at least 1"),
        ({"store": "int3"}, "store is one of"),
    ],
)
def test_settings_that_cannot_be_are_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        make_method("infllm", **settings)
