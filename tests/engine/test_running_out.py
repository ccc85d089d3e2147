"""Memory that runs out in a pass: it is tried again with half the tokens, and the first try leaves no trace."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from engine import Context, Conversation, Method, Model, OutOfMemory, Reader, make_method
from engine.memory import Memory
from engine.parts.archive.archive import Archive
from engine.parts.archive.host_tier import HostTier
from engine.parts.selectors import base
from engine.parts.slots import SlotStore
from tests.engine.matrix import CLOSE, QUESTION, TIGHT, close, every_method
from tests.engine.reading import answer, loaded, next_logits, read, read_once, resumed


def starve(monkeypatch: pytest.MonkeyPatch, memory: Memory, most: int, error: Exception) -> list[int]:
    """Let memory run out in the second layer of every pass with more than `most` tokens, and return the passes tried.

    Passes of a catalyst are left alone, since they are not tried again.
    """
    tried: list[int] = []
    attend = type(memory).attend

    def starved(self: Memory, layer: int, q: Tensor, *rest: object) -> Tensor:
        output = attend(self, layer, q, *rest)  # type: ignore[arg-type]
        if layer == 1 and not self.evictor.catalyst_tokens:
            tried.append(q.shape[1])
            if q.shape[1] > most:
                raise error
        return output

    monkeypatch.setattr(type(memory), "attend", starved)
    return tried


@every_method
def test_a_reading_that_ran_out_ends_in_the_same_state(
    model: Model, ids: Tensor, method: Method, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = read_once(model, method, ids)
    reader = Reader(model, method, ids, chunk=96)
    with monkeypatch.context() as patch:
        tried = starve(patch, reader.memory, 20, torch.OutOfMemoryError("CUDA out of memory."))
        for _ in reader.run():
            pass
    assert max(tried) > 20 or (method.pass_limit() or 96) <= 20
    assert sum(size for size in tried if size <= 20) >= reader.total
    context = reader.context()
    assert context.usage().entries == expected.usage().entries
    for layer in range(len(model.spec.layers)):
        assert torch.equal(context.memory.positions(layer), expected.memory.positions(layer))
    torch.testing.assert_close(
        next_logits(model, method, context.memory, QUESTION),
        next_logits(model, method, expected.memory, QUESTION),
        **close(method),  # passes of other sizes may quantise differently
    )


@pytest.mark.parametrize("method", [make_method("full"), make_method("exact", budget=None)], ids=["full", "exact"])
def test_a_resumed_reading_takes_no_more_than_one_that_was_not_stopped(
    model: Model, ids: Tensor, method: Method
) -> None:
    whole = Reader(model, method, ids, 64)
    continued = resumed(Reader(model, method, ids, 64), 4)
    for reader in (whole, continued):
        for _ in reader.run():
            pass
    assert continued.memory.usage() == whole.memory.usage()


def test_what_is_picked_for_a_question_has_a_limit(model: Model, ids: Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    context = read(model, TIGHT["exact"], ids)
    expected = answer(Conversation(context), "What is it?")
    passes: list[int] = []
    search = HostTier.search

    def searching(self: HostTier, layer: int, q: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
        passes.append(q.shape[1])
        return search(self, layer, q, *rest)

    monkeypatch.setattr(HostTier, "search", searching)
    monkeypatch.setattr(base, "SELECTED_BYTES", 3 * base.selected_bytes(model.spec, 24))
    assert answer(Conversation(context), "What is it?") == expected
    assert max(passes) == 3


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        RuntimeError("DefaultCPUAllocator: not enough memory: you tried to allocate 9 bytes."),
        RuntimeError("[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory: you tried ..."),
        RuntimeError("CUDA error: out of memory"),
        RuntimeError("Triton Error [CUDA]: out of memory"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
    ],
    ids=["python", "windows", "linux", "pinned", "triton", "cublas"],
)
def test_what_never_fits_fails_with_a_sentence_and_the_reading_can_go_on(
    model: Model, ids: Tensor, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    method = TIGHT["exact"]
    expected = read_once(model, method, ids)
    reader = Reader(model, method, ids, chunk=64)
    steps = reader.run()
    next(steps)
    with monkeypatch.context() as patch:
        tried = starve(patch, reader.memory, 0, error)
        with pytest.raises(OutOfMemory, match="nothing read so far is lost"):
            next(steps)
        assert tried == [64, 32, 16]
    for _ in reader.run():
        pass
    logits = next_logits(model, method, reader.context().memory, QUESTION)
    torch.testing.assert_close(logits, next_logits(model, method, expected.memory, QUESTION), **CLOSE)


def test_other_errors_are_not_tried_again(model: Model, ids: Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = Reader(model, TIGHT["full"], ids, chunk=64)
    tried = starve(monkeypatch, reader.memory, 0, RuntimeError("shapes do not fit"))
    with pytest.raises(RuntimeError, match="shapes"):
        next(reader.run())
    assert tried == [64]


def test_a_question_that_ran_out_is_answered_as_any(model: Model, ids: Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    context = read(model, TIGHT["exact"], ids)
    question = "Who was it, and when, and why, and what did the others say of it?"
    looked: list[Tensor] = []
    focus = Archive.focus

    def noted(self: Any, mass: Tensor | None, far: int) -> None:
        if mass is not None:
            looked.append(mass.clone())
        focus(self, mass, far)

    monkeypatch.setattr("engine.parts.archive.archive.WIDEST", 8)
    monkeypatch.setattr(Archive, "focus", noted)
    expected = answer(Conversation(context), question)
    conversation = Conversation(context)
    tried = starve(monkeypatch, conversation.memory, 20, torch.OutOfMemoryError("CUDA out of memory."))
    assert answer(conversation, question) == expected
    assert max(tried) > 20
    torch.testing.assert_close(looked[0], looked[1])  # attention counts once, also in repeated passes


def test_a_replay_that_is_broken_off_leaves_no_trace(
    model: Model, ids: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = read(model, TIGHT["full"], ids)
    monkeypatch.setattr("engine.loops.conversation.default_chunk", lambda cpu: 16)
    broken, untouched = Conversation(context), Conversation(context)
    for conversation in (broken, untouched):
        conversation.replay("Who?", "Renn.")
    passes: list[int] = []
    forward = Model.forward

    def interrupted(self: Model, some: Tensor, *rest: object) -> Tensor:
        passes.append(len(some))
        if len(passes) == 2:
            raise KeyboardInterrupt
        return forward(self, some, *rest)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(Model, "forward", interrupted)
        with pytest.raises(KeyboardInterrupt):
            broken.replay("A question that takes several passes?", "So does its answer.")
    assert (broken.turns, broken.memory.seen) == (untouched.turns, untouched.memory.seen)
    assert answer(broken, "When?") == answer(untouched, "When?")


def test_memory_that_runs_out_after_a_pass_is_told_in_a_sentence(
    model: Model, ids: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none_left(*_: object) -> None:
        raise RuntimeError("CUDA error: out of memory")

    with monkeypatch.context() as patch:
        patch.setattr(HostTier, "_new_slab", none_left)
        with pytest.raises(OutOfMemory, match="Memory ran out on cpu after a pass of 64 tokens; nothing"):
            read(model, TIGHT["exact"], ids)
    monkeypatch.setattr(SlotStore, "keep", none_left)
    with pytest.raises(OutOfMemory, match="Memory ran out on cpu while a memory was condensed; nothing"):
        read(model, TIGHT["locret"], ids)


@pytest.mark.parametrize(
    "name", ["exact", "exact-int8", "infllm-cached", "infinitehip", "recall", "recall-pot", "beacon"]
)
def test_a_reading_goes_on_after_memory_ran_out_behind_a_pass(
    model: Model, ids: Tensor, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: the tokens of that pass were counted or in the host tier already, and were added twice."""
    method = TIGHT[name]
    expected = read_once(model, method, ids)
    reader = Reader(model, method, ids, chunk=64)
    steps = reader.run()
    next(steps)
    next(steps)

    def none_left(*_: object) -> None:
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(HostTier, "_fill", none_left)
        patch.setattr(SlotStore, "keep", none_left)
        with pytest.raises(OutOfMemory, match="nothing read so far is lost"):
            list(steps)
    for _ in reader.run():
        pass
    memory = reader.context().memory
    assert memory.seen == expected.memory.seen
    for layer in range(len(model.spec.layers)):
        assert torch.equal(memory.positions(layer), expected.memory.positions(layer))
    expected_logits = next_logits(model, method, expected.memory, QUESTION)
    torch.testing.assert_close(next_logits(model, method, memory, QUESTION), expected_logits, **close(method))


def test_what_was_saved_and_finds_no_memory_need_not_be_read_again(
    model: Model, ids: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: the message said that it does not fit the model and the method."""
    parts, meta = read(model, TIGHT["full"], ids[:10]).state()

    def none_left(*_: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory.")

    monkeypatch.setattr(SlotStore, "load", none_left)
    with pytest.raises(OutOfMemory, match="Memory ran out on cpu while what was saved was opened"):
        Context.load(model, TIGHT["full"], loaded(parts), meta)


def test_what_runs_out_where_novelty_is_worked_out_is_told_in_a_sentence(
    model: Model, ids: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: PyTorch's own error came out if the pass fitted and the logits of its tokens did not."""

    def starved(hidden: Tensor) -> Tensor:
        raise torch.OutOfMemoryError("CUDA out of memory.")

    reader = Reader(model, TIGHT["infinipot-nuc"], ids, chunk=64)
    monkeypatch.setattr(model, "logits", starved)
    with pytest.raises(OutOfMemory, match="in a pass of 16 tokens; nothing read so far is lost"):
        next(reader.run())
