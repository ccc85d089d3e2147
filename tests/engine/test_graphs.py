"""Recorded passes. Without a GPU: the static pass that would be recorded, beside the normal pass."""

from __future__ import annotations

import itertools
import re
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any
from unittest.mock import MagicMock, call

import pytest
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM

from engine import Answer, Conversation, Method, Model, Sampling, SettingsError, load_model, make_method
from engine.decode import recorder
from engine.decode.recorder import Recorder, Recording
from engine.memory import Memory
from engine.parts.footprint import Footprint, ReadingTask
from engine.parts.mass import no_source
from engine.parts.slots import SlotStore
from kernels import choice
from tests.engine.architectures import small_config
from tests.engine.conftest import byte_tokenizer
from tests.engine.matrix import OTHERS, STATIC
from tests.engine.reading import answer, read


def planned(model: Model, method: Method, ids: Tensor) -> Footprint:
    """What the planner is told of such a reading."""
    return method.plan(model.spec, ReadingTask(len(ids), len(model.chat.prefix), 64, model.turn_length))


def talk(conversation: Conversation, most: int) -> list[Answer]:
    """Give two answers, of `most` and 12 tokens. Entries are laid out alike, recorded or not."""
    said = []
    conversation.memory.make_room(600)
    for question, tokens in (("What is it?", most), ("And then?", 12)):
        *_, last = conversation.ask(question, Sampling(temperature=0.7, max_tokens=tokens, seed=3))
        assert isinstance(last, Answer)
        said.append(last)
    return said


@pytest.mark.parametrize(
    "method", [make_method("full"), make_method("streaming", budget=100)], ids=lambda each: each.name
)
def test_queries_that_are_scaled_by_their_place_are_so_in_static_passes(
    method: Method, ids: Tensor, replayed: list[int]
) -> None:
    torch.manual_seed(0)
    network = AutoModelForCausalLM.from_config(small_config("ministral3"))
    model = Model(network, byte_tokenizer(), "ministral3", "-")
    context = read(model, method, ids)
    theirs, ours = Conversation(context), Conversation(context)
    for token in ids[:50].tolist():
        with model.recorder.stopped():
            expected = theirs.feed([token], repeated=True)
        torch.testing.assert_close(ours.feed([token], repeated=True), expected)
    assert len(replayed) == 50


def test_a_search_beside_a_gist_finds_the_same_where_it_is_recorded(model: Model, replayed: list[int]) -> None:
    """Check a text without equal tokens. Those have equal keys in the first layer, and any of them may be found."""
    text = 4 + torch.randperm(250, generator=torch.Generator().manual_seed(2))
    context = read(model, STATIC["recall-searching"], text)
    assert planned(model, STATIC["recall-searching"], text).work.recorded
    theirs, ours = Conversation(context), Conversation(context)
    for token in text[:30].tolist():
        with model.recorder.stopped():
            expected = theirs.feed([token], repeated=True)
        torch.testing.assert_close(ours.feed([token], repeated=True), expected, rtol=1e-3, atol=1e-4)
    assert len(replayed) == 30


RECALL = ("recall", "recall-searching", "recall-chunks")
CONDENSED = (*RECALL, "truncate", "infinipot", "infinipot-heads", "locret", "locret-all")
LONG = (*CONDENSED, "infinitehip-inside")
"""Settings whose answers have to be long: until slots are condensed, or the text outgrows the model's window."""


@pytest.mark.parametrize("name", [name for name in STATIC if name != "recall-searching"])
def test_static_passes_say_what_others_say(
    name: str, model: Model, ids: Tensor, replayed: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    context, condensed, evict = read(model, STATIC[name], ids), list[int](), Memory.evict
    monkeypatch.setattr(Memory, "evict", lambda memory: [condensed.append(len(replayed)), evict(memory)][1])
    assert planned(model, STATIC[name], ids).work.recorded
    expected, conversation = Conversation(context), Conversation(context)
    most = 100 if name in LONG else 24
    with model.recorder.stopped():
        said = talk(expected, most)
    assert not replayed
    assert not expected.memory.recordings
    again = talk(conversation, most)
    assert conversation.memory.recordings
    assert name not in ("infinipot", "infinipot-heads", "locret", "locret-all") or condensed[-1] > 0
    assert len(replayed) > 0.7 * sum(each.answer_tokens for each in again)
    assert len(set(replayed)) > 20, "tokens stand behind one another"
    for ours, theirs in zip(again, said, strict=True):
        assert ours.text == theirs.text
        assert ours.usage.entries == theirs.usage.entries
        # The last bit of a number may decide where one of two neighbouring passages begins.
        own, others = ({token for p in each.passages for token in range(p.start, p.end)} for each in (ours, theirs))
        assert own == others
        for one, other in zip(ours.passages, theirs.passages, strict=True):
            assert one.weight == pytest.approx(other.weight, rel=2e-2)  # a small difference of two large shares
    # The last bit of a number may decide between two codes.
    apart = {"int8": 2e-2, "bfloat16": 5e-3}.get(getattr(STATIC[name], "store", ""), 1e-3)
    ours_parts, theirs_parts = conversation.state()[0], expected.state()[0]
    assert set(ours_parts) == set(theirs_parts)
    for name, part in theirs_parts.items():
        for key, tensor in part.tensors.items():
            most = 1.0 if tensor.dtype == torch.int8 else apart
            torch.testing.assert_close(ours_parts[name].tensors[key], tensor, rtol=apart, atol=most)


@pytest.mark.parametrize("name", ["infinitehip", "recall"])
def test_a_pass_is_recorded_for_each_stage_with_which_choosing_begins_anew(
    name: str, model: Model, ids: Tensor, replayed: list[int]
) -> None:
    """Check that stages select the same entries as without recording, and run equally often."""
    context = read(model, STATIC[name], ids)
    ours, theirs = Conversation(context), Conversation(context)
    for token in range(70, 110):
        ours.feed([token], repeated=True)
        with model.recorder.stopped():
            theirs.feed([token], repeated=True)
        for one, other in zip(ours.memory.selector.pruning.chosen, theirs.memory.selector.pruning.chosen, strict=True):
            assert all(torch.equal(*pair) for pair in zip(one, other, strict=True))
    assert set(ours.memory.recordings) == {0, 1, 2, 3}
    assert len(replayed) == 40 - 1, "but the first, which makes room for what is chosen"
    assert ours.memory.selector.pruning.runs == theirs.memory.selector.pruning.runs
    assert not Conversation(context).memory.recordings


@pytest.mark.parametrize(
    ("name", "length"),
    [
        *((name, 301) for name in STATIC if name != "beacon"),
        *((name, 40) for name in STATIC if name != "beacon" and "-" not in name),  # a window shows it
    ],
)
def test_an_answer_is_recorded_before_it_begins(
    name: str, length: int, model: Model, ids: Tensor, replayed: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Check that only condensed slots are recorded anew, and selecting where it begins; all other tokens are replayed.

    The first answer is longer than the first slots and slabs of a conversation, and than what a window lets pass.
    """
    made, condensed = list[int](), set[int]()
    plain, evict = Recording.__init__, Memory.evict

    def noted(recording: Recording, network: Any, memory: Memory, *given: Any) -> None:
        begins = memory.archive is not None and memory.num_evicted in (1, 2)
        made.extend([] if begins else [len(replayed)])
        plain(recording, network, memory, *given)

    def evicted(memory: Memory) -> None:
        condensed.add(len(replayed))
        evict(memory)

    monkeypatch.setattr(Recording, "__init__", noted)
    monkeypatch.setattr(Memory, "evict", evicted)
    monkeypatch.setattr("engine.parts.slots.FIRST_CAPACITY", 32)
    monkeypatch.setattr("engine.parts.archive.host_tier.FIRST_OF_CONVERSATION", 32)
    monkeypatch.setattr("engine.parts.slot_plan.LEAST_SLACK", 64)
    tokens = itertools.cycle(range(70, 200))
    monkeypatch.setattr("engine.loops.conversation.choose", lambda *given: next(tokens))
    conversation = Conversation(read(model, STATIC[name], ids[:length]))
    for most in (80, 20):
        for noted_down in (replayed, made, condensed):
            noted_down.clear()
        *_, last = conversation.ask("What is it?", Sampling(max_tokens=most))
        assert isinstance(last, Answer)
        assert last.answer_tokens == most
        assert name in CONDENSED or not condensed
        assert set(made) <= {0} | condensed
        assert len(replayed) >= most - (1 if length > 100 else 2) - len(condensed)


@pytest.mark.parametrize("name", OTHERS)
def test_what_is_not_static_passes_as_ever(name: str, model: Model, ids: Tensor, replayed: list[int]) -> None:
    context = read(model, OTHERS[name], ids)
    assert answer(Conversation(context), "What is it?", 12)
    assert not replayed
    assert not planned(model, OTHERS[name], ids).work.recorded


def test_a_fork_and_its_context_are_not_touched(model: Model, ids: Tensor, replayed: list[int]) -> None:
    context = read(model, STATIC["locret"], ids)
    before = {key: tensor.clone() for key, tensor in context.state()[0]["slots"].tensors.items()}
    one = answer(Conversation(context), "What is it?", 20)
    assert answer(Conversation(context), "What is it?", 20) == one
    assert replayed
    after = context.state()[0]["slots"].tensors
    assert all(torch.equal(after[key], tensor) for key, tensor in before.items())


def test_what_has_been_rolled_back_is_no_source_of_what_comes_in_its_place(
    model: Model, ids: Tensor, replayed: list[int]
) -> None:
    """Regression: after passages were read again, the next answer named them as its sources."""
    conversation, given = Conversation(read(model, STATIC["full"], ids)), []
    conversation.memory.mass = conversation.mass
    for token in range(70, 74):  # recorded while no entry follows it
        conversation.feed([token], repeated=True)
    before = conversation.memory.snapshot()
    conversation.feed(ids[40:60].tolist(), source=torch.arange(40, 60, dtype=torch.int32))
    for stopped in (False, True):
        conversation.memory = before.snapshot()
        conversation.mass.clear()
        with model.recorder.stopped() if stopped else nullcontext():
            conversation.feed([99], repeated=True)
        given.append(conversation.mass.total.clone())
    assert replayed
    torch.testing.assert_close(given[1], given[0])


@pytest.mark.parametrize(
    ("name", "end"),
    [
        *(("full", "stopped"), ("full", "cancelled")),
        *(("recall", "stopped"), ("recall", "cancelled")),
        ("infinitehip", "stopped"),  # its window was packed while the question was read
    ],
)
def test_what_has_been_recorded_outlives_an_answer_that_is_told_anew(
    name: str, model: Model, ids: Tensor, replayed: list[int], end: str
) -> None:
    """Regression: it was recorded again in every answer that a stop text or a person ended."""
    context = read(model, STATIC[name], ids)
    said, conversation = answer(Conversation(context), "What is it?", 20), Conversation(context)
    if end == "stopped":
        *_, last = conversation.ask("What is it?", Sampling(max_tokens=20, stop=(said[6:8],)))
        assert isinstance(last, Answer)
        assert last.finish_reason == "stop"
    else:
        pieces = conversation.ask("What is it?", Sampling(max_tokens=20))
        while not conversation.memory.recordings:
            next(pieces)
        pieces.close()
    recordings = dict(conversation.memory.recordings)
    assert recordings
    answer(conversation, "And then?", 20)
    assert conversation.memory.recordings.items() >= recordings.items()


def test_a_recording_that_fails_leaves_the_plain_pass(
    model: Model, ids: Tensor, replayed: list[int], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    context = read(model, STATIC["full"], ids)
    said = answer(Conversation(context), "What is it?", 20)
    replayed.clear()
    # As on a GPU. There is none here, so recording fails at its first step.
    monkeypatch.setattr(recorder, "choice", lambda: "auto")
    with caplog.at_level("WARNING"):
        assert answer(Conversation(context), "What is it?", 20) == said
    assert not replayed
    assert caplog.text.count("recording failed") == 1, "not for each token"
    monkeypatch.setattr(recorder, "choice", lambda: "static")
    answer(Conversation(read(model, STATIC["streaming"], ids)), "What is it?", 20)
    assert replayed, "another memory's is none the worse for it"


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Replace CUDA's part, and return the modes of recordings as they begin."""
    modes: list[str] = []

    def graph(recorded: object, stream: object, capture_error_mode: str = "global") -> AbstractContextManager[None]:
        assert stream is torch.cuda.Stream.return_value  # type: ignore[attr-defined]
        modes.append(capture_error_mode)
        return nullcontext()

    recorder.side_stream.cache_clear()

    monkeypatch.setattr(recorder, "choice", lambda: "auto")
    monkeypatch.setattr(torch.cuda, "graph", graph)
    for name in ("CUDAGraph", "Stream", "current_stream", "get_sync_debug_mode", "set_sync_debug_mode"):
        monkeypatch.setattr(torch.cuda, name, MagicMock())
    monkeypatch.setattr(torch.cuda, "stream", nullcontext)
    yield modes
    recorder.side_stream.cache_clear()


def test_other_threads_may_use_the_gpu_while_a_pass_is_recorded(model: Model, ids: Tensor, recorded: list[str]) -> None:
    memory = Conversation(read(model, STATIC["full"], ids)).memory
    memory.begin_pass(no_source(1))
    assert isinstance(memory.store, SlotStore)
    recording = Recording(model.network, memory, 0, ())
    assert recorded == ["thread_local"]
    assert recording.hidden.shape == (1, 48)


def test_all_passes_are_recorded_on_one_stream(model: Model, ids: Tensor, recorded: list[str]) -> None:
    """Regression: each used one of PyTorch's 32 streams, and cuBLAS kept a workspace for every one."""
    memory = Conversation(read(model, STATIC["full"], ids)).memory
    memory.begin_pass(no_source(1))
    for _ in range(3):
        Recording(model.network, memory, 0, ())
    assert len(recorded) == 3
    made: Any = torch.cuda.Stream
    assert made.call_count == 1


def test_a_recording_that_fails_is_waited_for(
    model: Model, ids: Tensor, recorded: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: its passes were still running when the memory they read was freed."""
    memory = Conversation(read(model, STATIC["full"], ids)).memory
    memory.begin_pass(no_source(1))
    monkeypatch.setattr(Recording, "_pass", MagicMock(side_effect=torch.OutOfMemoryError("CUDA out of memory.")))
    with pytest.raises(torch.OutOfMemoryError):
        Recording(model.network, memory, 0, ())
    here: Any = torch.cuda.current_stream
    here.return_value.wait_stream.assert_called_with(recorder.side_stream())


def test_a_pass_that_waits_is_not_begun_to_be_recorded(
    model: Model, ids: Tensor, recorded: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Check layers in 8 bits: they look for outliers on the host, and a failed recording harms PyTorch's allocator."""
    context = read(model, STATIC["full"], ids)
    monkeypatch.setattr(model, "recorder", Recorder(model.network))
    said = answer(Conversation(context), "What is it?", 5)
    model.recorder.possible = True  # as on a GPU
    plain = Recording._pass

    def waiting(recording: Recording, memory: Memory) -> Tensor:
        if mode.call_args == call("warn"):
            warnings.warn("called a synchronizing CUDA operation (Triggered internally)", stacklevel=1)
        return plain(recording, memory)

    mode: Any = torch.cuda.set_sync_debug_mode
    monkeypatch.setattr(Recording, "_pass", waiting)
    assert answer(Conversation(context), "What is it?", 5) == said
    assert not recorded
    assert answer(Conversation(context), "What is it?", 5) == said
    assert mode.call_args_list.count(call("warn")) == 1, "it is not tried again"


def test_another_thread_that_waits_ends_no_recording(
    model: Model, ids: Tensor, recorded: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: a reading in another thread, which may wait, turned recording off for as long as the model was
    loaded.

    The setting is one of the whole process. Other warnings are still shown.
    """
    memory = Conversation(read(model, STATIC["full"], ids)).memory
    memory.begin_pass(no_source(1))
    plain = Recording._pass

    def beside(recording: Recording, memory: Memory) -> Tensor:
        def wait() -> None:
            warnings.warn("called a synchronizing CUDA operation (Triggered internally)", stacklevel=1)

        thread = threading.Thread(target=wait)
        if mode.call_args == call("warn"):
            thread.start()
            thread.join()
            with pytest.raises(DeprecationWarning):
                warnings.warn("old", DeprecationWarning, stacklevel=1)
        return plain(recording, memory)

    mode: Any = torch.cuda.set_sync_debug_mode
    monkeypatch.setattr(Recording, "_pass", beside)
    before = warnings.showwarning
    Recording(model.network, memory, 0, ())
    assert recorded == ["thread_local"]
    assert mode.call_args_list.count(call("warn")) == 1
    assert warnings.showwarning is before


def test_slots_that_leave_no_memory_to_record_are_not_tried_again(
    model: Model, ids: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: it was tried for each token of an answer, which took several passes each time."""
    context, tried = read(model, STATIC["full"], ids), list[int]()

    def none_left(recording: Recording, network: object, memory: Memory, *key: object) -> None:
        tried.append(memory.store.length)
        raise torch.OutOfMemoryError("CUDA out of memory.")

    monkeypatch.setattr(recorder, "choice", lambda: "static")
    monkeypatch.setattr(model, "recorder", Recorder(model.network))
    monkeypatch.setattr(Recording, "__init__", none_left)
    conversation = Conversation(context)
    assert answer(conversation, "What is it?", 20)
    assert len(tried) == 1
    assert answer(Conversation(context), "What is it?", 20)
    assert len(tried) == 2, "over other slots it is"


@pytest.fixture
def chosen_anew() -> Iterator[None]:
    """Clear cached choices before and after a test."""

    def forget() -> None:
        recorder.choice.cache_clear()
        choice.implementation.cache_clear()

    forget()
    yield
    forget()


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("GRAPHS", "maybe", "STOCKPOT_GRAPHS is one of auto, off, static, not 'maybe'."),
        ("KERNELS", "fortran", "STOCKPOT_KERNELS is one of auto, torch, triton, not 'fortran'."),
        ("KERNELS", "triton", "STOCKPOT_KERNELS=triton needs the package triton"),
    ],
)
def test_a_choice_that_cannot_be_is_refused_before_anything_is_loaded(
    name: str, value: str, said: str, chosen_anew: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "triton", None)
    monkeypatch.setenv(f"STOCKPOT_{name}", value)
    with pytest.raises(SettingsError, match=re.escape(said)):
        load_model("nowhere")


@pytest.mark.parametrize("name", ["infinitehip", "recall"])
def test_a_recording_made_before_its_time_chooses_nothing(
    name: str, model: Model, ids: Tensor, recorded: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model, "recorder", Recorder(model.network))
    model.recorder.possible = True  # as on a GPU
    conversation = Conversation(read(model, STATIC[name], ids))
    for token in range(70, 76):  # every other stage is due later
        conversation.feed([token])
    pruning = conversation.memory.selector.pruning
    before = [starts.clone() for each in pruning.chosen for starts in each]
    listed = [listing.index.clone() for listing in pruning.listings.values()]
    model.record(conversation.memory)
    assert set(conversation.memory.recordings) == {0, 1, 2, 3}
    assert len(recorded) == 4
    assert all(torch.equal(*pair) for pair in zip((x for each in pruning.chosen for x in each), before, strict=True))
    kept = [listing.index for listing in pruning.listings.values()]
    assert all(torch.equal(*pair) for pair in zip(kept, listed, strict=True))
    model.record(conversation.memory)
    assert len(recorded) == 4, "they serve all later tokens"
