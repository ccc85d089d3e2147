"""Recorded passes. Without a GPU: the static pass that would be recorded, beside the pass as it is."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import AbstractContextManager, nullcontext
from unittest.mock import MagicMock

import pytest
import torch
from torch import Tensor

from engine import Answer, Conversation, Method, Model, Sampling, graphs, make_method
from engine.graphs import Recorder, Recording
from engine.slots import SlotMemory
from tests.engine.reading import answer, read

SLOTS: dict[str, Method] = {
    "full": make_method("full"),
    "truncate": make_method("truncate", budget=160, tail=32),
    "infinipot": make_method("infinipot", budget=160, prompt="Sum up."),
    "infinipot-heads": make_method("infinipot", budget=160, prompt="Sum up.", share="heads"),
    "locret": make_method("locret", budget=96, chunk=40, stabilizers=16, local=12),
    "beacon": make_method("beacon", budget=64, window=32, ratio=4),  # every fourth token goes with a beacon, as ever
    "locret-all": make_method("locret", budget=96, chunk=40, stabilizers=16, local=12, pooling=5, share="all"),
}
OTHERS: dict[str, Method] = {
    "streaming": make_method("streaming", budget=96),
    "locret-int8": make_method("locret", budget=96, chunk=40, stabilizers=16, local=12, store="int8"),
    "recall": make_method("recall", budget=160, stages="16:16:64:4 8:4:24:2", store="float32"),
}


@pytest.fixture
def replayed(monkeypatch: pytest.MonkeyPatch, model: Model) -> list[int]:
    """Static passes for this model; the lengths at which they happened."""
    monkeypatch.setattr(graphs, "choice", lambda: "static")
    monkeypatch.setattr(model, "recorder", Recorder(model.network))
    lengths: list[int] = []
    replay = Recording.replay

    def noted(self: Recording, ids: Tensor, memory: SlotMemory) -> Tensor:
        lengths.append(memory.length)
        return replay(self, ids, memory)

    monkeypatch.setattr(Recording, "replay", noted)
    return lengths


def talk(model: Model, conversation: Conversation) -> list[Answer]:
    """Two answers, long enough for slots to grow and pots to be distilled."""
    said = []
    for question, tokens in (("What is it?", 280), ("And then?", 60)):
        *_, last = conversation.ask(question, Sampling(temperature=0.7, max_tokens=tokens, seed=3))
        assert isinstance(last, Answer)
        said.append(last)
    return said


@pytest.mark.parametrize("name", SLOTS)
def test_static_passes_say_what_others_say(name: str, model: Model, ids: Tensor, replayed: list[int]) -> None:
    context = read(model, SLOTS[name], ids)
    expected, conversation = Conversation(context), Conversation(context)
    with model.recorder.stopped():
        said = talk(model, expected)
    assert not replayed
    assert not model.recorder.recorded(expected.memory)
    again = talk(model, conversation)
    assert model.recorder.recorded(conversation.memory)
    assert len(replayed) > 100
    assert len(set(replayed)) > 30, "tokens stand behind one another"
    for ours, theirs in zip(again, said, strict=True):
        assert ours.text == theirs.text
        assert ours.usage.entries == theirs.usage.entries
        assert [(p.start, p.end) for p in ours.passages] == [(p.start, p.end) for p in theirs.passages]
        for one, other in zip(ours.passages, theirs.passages, strict=True):
            assert one.weight == pytest.approx(other.weight, rel=1e-3)
    ours_parts, theirs_parts = conversation.state()[0], expected.state()[0]
    for key, tensor in theirs_parts["slots"].tensors.items():
        torch.testing.assert_close(ours_parts["slots"].tensors[key], tensor, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("name", OTHERS)
def test_what_is_not_static_passes_as_ever(name: str, model: Model, ids: Tensor, replayed: list[int]) -> None:
    context = read(model, OTHERS[name], ids)
    assert answer(Conversation(context), "What is it?", 12)
    assert not replayed


def test_a_fork_and_its_context_are_not_touched(model: Model, ids: Tensor, replayed: list[int]) -> None:
    context = read(model, SLOTS["locret"], ids)
    before = {key: tensor.clone() for key, tensor in context.state()[0]["slots"].tensors.items()}
    one = answer(Conversation(context), "What is it?", 20)
    assert answer(Conversation(context), "What is it?", 20) == one
    assert replayed
    after = context.state()[0]["slots"].tensors
    assert all(torch.equal(after[key], tensor) for key, tensor in before.items())


def test_a_recording_that_fails_leaves_the_plain_pass(
    model: Model, ids: Tensor, replayed: list[int], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    context = read(model, SLOTS["full"], ids)
    said = answer(Conversation(context), "What is it?", 20)
    replayed.clear()
    # As on a GPU; here there is none, so the first thing that recording does fails.
    monkeypatch.setattr(graphs, "choice", lambda: "auto")
    with caplog.at_level("WARNING"):
        assert answer(Conversation(context), "What is it?", 20) == said
    assert not replayed
    assert not model.recorder.possible
    assert "recording failed" in caplog.text


def test_other_threads_may_use_the_gpu_while_a_pass_is_recorded(
    model: Model, ids: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CUDA's part is left out here; what is asked of it is not."""
    modes: list[str] = []

    def graph(recorded: object, capture_error_mode: str = "global") -> AbstractContextManager[None]:
        modes.append(capture_error_mode)
        return nullcontext()

    monkeypatch.setattr(graphs, "choice", lambda: "auto")
    monkeypatch.setattr(torch.cuda, "graph", graph)
    for name in ("CUDAGraph", "Stream", "current_stream"):
        monkeypatch.setattr(torch.cuda, name, MagicMock)
    monkeypatch.setattr(torch.cuda, "stream", nullcontext)
    memory = Conversation(read(model, SLOTS["full"], ids)).memory
    assert isinstance(memory, SlotMemory)
    recording = Recording(model.network, memory, ())
    assert modes == ["thread_local"]
    assert recording.hidden.shape == (1, 48)


def test_an_unknown_choice_is_refused() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "from engine import graphs; graphs.choice()"],
        env={**os.environ, "STOCKPOT_GRAPHS": "maybe"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "STOCKPOT_GRAPHS is one of auto, off, static, not 'maybe'." in done.stderr
