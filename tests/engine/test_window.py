"""Windows, sinks and far entries against plain implementations that go token by token."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch
from torch import Tensor

from engine import Model
from engine.memory import Memory
from engine.methods.exact import Exact
from engine.models.rope import Rope
from engine.models.spec import ModelSpec, Scoring
from engine.parts.archive.focus import AROUND
from engine.parts.mass import no_source
from engine.parts.selectors.top_k import TopKSelector
from engine.parts.window import WindowStore
from engine.parts.window_plan import window_bytes
from kernels import choice
from tests.engine.plain import SCALE, stream, tail, through

SINKS, WINDOW = 4, 24


def windowed(spec: ModelSpec, window: int) -> Memory:
    """Return a memory of sinks and a window."""
    return Memory(spec, WindowStore(spec, SINKS, window))


def softmax_over(logits: Tensor, values: Tensor) -> Tensor:
    return logits.softmax(-1) @ values


def streaming_llm(rope: Rope, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Follow the paper: at each token evict, number the cache from 0, and rotate all of it."""
    outputs = []
    for now in range(q.shape[1]):
        cache = [*range(min(SINKS, now + 1)), *range(max(SINKS, now + 1 - WINDOW), now + 1)]
        keys = rope.rotate(k[:, cache], 0).repeat_interleave(3, 0)
        query = rope.to_constant(q[:, now : now + 1], len(cache) - 1)
        outputs.append(softmax_over(query @ keys.transpose(1, 2) * SCALE, v[:, cache].repeat_interleave(3, 0)))
    return torch.cat(outputs, dim=1)


@pytest.mark.parametrize("chunk", [1, 3, 5, 64, 700])
def test_chunks_equal_streaming_llm_token_by_token(model: Model, chunk: int) -> None:
    q, k, v = stream(700)
    memory = windowed(model.spec, WINDOW)
    expected = streaming_llm(model.spec.layers[0].rope, q, k, v)
    torch.testing.assert_close(through(memory, (q, k, v), chunk), expected, atol=1e-5, rtol=1e-4)


def exact_memory(spec: ModelSpec) -> Memory:
    """Return a memory that selects 16 far entries for each query."""
    settings = Exact(budget=SINKS + 128 + 16, sinks=SINKS, top_k=16, store="float32")
    store, archive = WindowStore(spec, SINKS, WINDOW, keeps_wider=True), settings.new_archive(spec)
    return Memory(spec, store, selector=TopKSelector(spec, store, archive, 16, False))


def exact_attention(
    rope: Rope,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    now: int,
    top: int,
    trained: int,
    hidden: frozenset[int] = frozenset(),
) -> Tensor:
    """Return the attention of token `now` over sinks, window and the best other entries, in one softmax.

    trained: the model's window, inside which the best are at their true distances; beyond it scores grow with the
    logarithm of the length. hidden: tokens that a second look does not search once they have left the window.
    """
    sharper = 1.0 if hidden else max(1.0, math.log(now + 1) / math.log(trained))
    window = list(range(max(SINKS, now + 1 - WINDOW), now + 1))
    far = [each for each in range(SINKS, max(SINKS, now + 1 - WINDOW)) if each not in hidden]
    place = min(now, SINKS + WINDOW - 1)
    outputs = []
    for head in range(q.shape[0]):
        keys, values = k[head // 3], v[head // 3]
        query = q[head, now : now + 1]
        clamped = rope.to_constant(query, place)
        pieces = [(clamped @ rope.rotate(keys[:SINKS], 0).T, values[:SINKS])]
        turned = rope.rotate(query, WINDOW - 1) @ rope.rotate(keys[window], WINDOW - len(window)).T
        pieces.append((turned, values[window]))
        scores = clamped @ keys[far].T
        best = scores[0].topk(min(top, len(far))).indices
        seen = scores[:, best]
        if now < trained:
            places = torch.tensor(far)[best]
            seen = rope.rotate(query, now) @ rope.rotate(keys[places][None], places)[0].T
        pieces.append((seen, values[far][best]))
        logits = torch.cat([piece for piece, _ in pieces], dim=1) * SCALE * sharper
        outputs.append(softmax_over(logits, torch.cat([value for _, value in pieces])))
    return torch.stack(outputs)


@pytest.mark.parametrize("trained", [64, 320, 512])
@pytest.mark.parametrize("chunk", [1, 5, 24])
def test_questions_attend_to_the_exact_best_of_everything(model: Model, chunk: int, trained: int) -> None:
    q, k, v = stream(340)
    spec = dataclasses.replace(model.spec, window=trained)
    context = exact_memory(spec)
    through(context, tail((q, k, v), 0, 300), 64)
    fork = context.fork()
    output = through(fork, tail((q, k, v), 300), chunk)
    rope = model.spec.layers[0].rope
    expected = torch.cat([exact_attention(rope, q, k, v, now, 16, trained) for now in range(300, 340)], dim=1)
    torch.testing.assert_close(output, expected, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("chunk", [1, 5, 24])
def test_a_second_look_is_at_the_best_of_what_stood_out_and_of_the_conversation(model: Model, chunk: int) -> None:
    q, k, v = stream(361)
    context = exact_memory(model.spec)
    through(context, tail((q, k, v), 0, 300), 64)
    fork = context.fork()
    mass = torch.zeros(300)
    mass[[100, 103]] = 1.0
    fork.archive.focus(mass, fork.num_evicted)
    output = through(fork, tail((q, k, v), 300, 360), chunk)
    rope = model.spec.layers[0].rope
    hidden = frozenset(range(301 - WINDOW)) - frozenset(range(100 - AROUND, 104 + AROUND))
    window = model.spec.window
    expected = [exact_attention(rope, q, k, v, now, 16, window, hidden=hidden) for now in range(300, 360)]
    torch.testing.assert_close(output, torch.cat(expected, dim=1), atol=1e-5, rtol=1e-4)
    fork.archive.focus(None, fork.num_evicted)
    output = through(fork, tail((q, k, v), 360), 1)
    torch.testing.assert_close(output, exact_attention(rope, q, k, v, 360, 16, window), atol=1e-5, rtol=1e-4)


def test_reading_does_not_search(model: Model) -> None:
    q, k, v = stream(200)
    read = through(exact_memory(model.spec), (q, k, v), 64)
    plain = through(windowed(model.spec, WINDOW), (q, k, v), 64)
    assert torch.equal(read, plain)


def test_the_buffer_does_not_grow_with_the_text(model: Model) -> None:
    memory = windowed(model.spec, WINDOW)
    q, k, v = stream(64)
    sizes = set()
    for _ in range(100):
        memory.begin_pass(torch.zeros(64, dtype=torch.int32))
        for layer in range(3):
            memory.attend(layer, q, k, v, Scoring(SCALE))
        memory.end_pass()
        sizes.add(memory.usage().bytes["device"])
    assert memory.seen == 6400
    assert len(sizes) == 1


def test_where_a_window_lies_is_not_sent_for_each_token(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: each layer copied it to the device, and the host waited for that."""
    pytest.importorskip("triton")
    from kernels.slab_rows import kernel

    ids, source, hidden, sent = torch.arange(3, 103), torch.arange(100, dtype=torch.int32), [], 0
    for implementation in ("torch", "triton"):
        monkeypatch.setattr(choice, "implementation", lambda implementation=implementation: implementation)
        memory, sent = windowed(model.spec, WINDOW), kernel.table_on_device.cache_info().misses
        for ends in range(70, 101):  # the buffer is packed once on the way
            new = slice(memory.seen, ends)
            hidden.append(model.forward(ids[new], memory, source[new]))
            memory.end_pass()
    torch.testing.assert_close(torch.cat(hidden[31:]), torch.cat(hidden[:31]), atol=1e-4, rtol=1e-3)
    assert kernel.table_on_device.cache_info().misses - sent < 50


@pytest.mark.parametrize(("window", "slack"), [(24, 512), (1024, 1024), (16384, 2048)])
def test_a_large_window_does_not_take_its_memory_twice(model: Model, window: int, slack: int) -> None:
    memory = windowed(model.spec, window)
    memory.reserve(1 << 20)
    memory.begin_pass(no_source(100))
    assert memory.store.layers[0].keys.shape[1] == window + slack


def test_a_short_text_takes_no_more_of_a_window_than_it_needs(model: Model) -> None:
    """Regression: a paper of two pages took as much memory as a book."""
    ids, hidden, held = torch.arange(700) % 90 + 3, [], []
    for expected in (700, 0, 1 << 20):  # announced, not announced, or a text that fills the window
        memory = windowed(model.spec, 2048)
        memory.reserve(expected)
        for at in range(0, 700, 100):
            last = model.forward(ids[at : at + 100], memory, no_source(100))
            memory.end_pass()
        hidden.append(last)
        held.append(memory.usage().bytes["device"])
    assert held[0] == window_bytes(model.spec, SINKS, 2048, 100, 700) < held[1] < held[2] / 2
    assert held[2] == window_bytes(model.spec, SINKS, 2048, 100, 1 << 20)
    assert torch.equal(hidden[0], hidden[2])
    assert torch.equal(hidden[1], hidden[2])
    forked = memory.fork()
    assert forked.usage().bytes["device"] < held[2] / 2
