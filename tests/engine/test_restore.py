"""Restored states give bit for bit the same logits: interrupted readings, and chats that were opened again."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import AutoModelForCausalLM

from engine import Context, Conversation, Method, Model, Part, Reader
from engine.errors import ContextMismatch
from engine.parts.archive import tier_plan
from engine.records import DISK, LoadedParts
from tests.engine.architectures import small_config
from tests.engine.conftest import byte_tokenizer
from tests.engine.matrix import COVERING, TIGHT
from tests.engine.reading import answer, finish, loaded, read

CHUNK = 32
QUESTION = [1, 80, 81, 82, 2]
QUESTIONS = ["Who?", "And a longer question, which fills more of the window, is it not?", "Then?"]
ON_DISK = {
    f"{name}-disk": dataclasses.replace(method, tier=DISK)  # type: ignore[call-arg]
    for name, method in TIGHT.items()
    if "tier" in method.settings()
}
CHATS = {
    **{name: TIGHT[name] for name in COVERING},
    **{name: ON_DISK[name] for name in ("exact-disk", "infllm-int4-disk", "infinitehip-disk")},
}
RECURRENT = ["full", "streaming", "exact", "infllm", "infinitehip", "infinipot-both"]
every_method = pytest.mark.parametrize("method", [*TIGHT.values(), *ON_DISK.values()], ids=[*TIGHT, *ON_DISK])


@pytest.fixture(autouse=True)
def many_slabs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use small slabs, so that stops come before, inside and after full ones."""
    monkeypatch.setattr(tier_plan, "SLAB", 64)
    monkeypatch.setattr(tier_plan, "FIRST_OF_CONVERSATION", 32)


@pytest.fixture(scope="module")
def recurrent() -> Model:
    """Make a model whose layers carry states."""
    torch.manual_seed(0)
    config = small_config("qwen3_5_text")
    config.initializer_range = 0.1
    network = AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    return Model(network, byte_tokenizer(), "recurrent", "-")


def taken(state: tuple[dict[str, Part], dict[str, Any]], folder: Path) -> tuple[LoadedParts, dict[str, Any]]:
    """Return a state as it comes back from files, which are mapped into memory."""
    parts, meta = state
    for name, part in parts.items():
        save_file({key: x.contiguous().clone() for key, x in part.tensors.items()}, folder / name)
    return {name: load_file(folder / name) for name in parts}, json.loads(json.dumps(meta))


def stopped(reader: Reader, folder: Path) -> Reader:
    """Return a reading that is resumed from this one's files, with passes of the same size."""
    parts, meta = taken(reader.state(), folder)
    again = Reader.resume(reader.model, reader.method, reader.ids, parts, meta, 2 * CHUNK)
    if again.memory.archive:
        again.memory.archive.use_mapped_files(parts)
    return again


def reopened(conversation: Conversation, folder: Path) -> Conversation:
    """Return a conversation loaded from files, over its context from files."""
    context = conversation.context
    parts, meta = taken(context.state(), folder)
    again = Context.load(context.model, context.method, parts, meta)
    if again.memory.archive:
        again.memory.archive.use_mapped_files(parts)
    (folder / "tail").mkdir(exist_ok=True)
    return Conversation.load(again, *taken(conversation.state(), folder / "tail"))


def told(conversation: Conversation) -> Tensor:
    """Return logits after some further tokens, which are then rolled back."""
    before = conversation.memory.snapshot()
    logits = conversation.model.logits(conversation.feed(QUESTION))
    conversation.roll_back(before)
    return logits


def check_readings(model: Model, method: Method, ids: Tensor, folder: Path) -> None:
    """Stop after half of the passes; settings that take most branches also after the first, and before the last."""
    reader, whole = Reader(model, method, ids, CHUNK), Reader(model, method, ids, CHUNK)
    steps = sum(1 for _ in whole.run())
    expected = told(Conversation(whole.context()))
    stops = {1, steps // 2, steps - 1} if method in CHATS.values() else {steps // 2}
    for step, _ in zip(range(1, max(stops) + 1), reader.run(), strict=False):
        if step in stops:
            context = finish(stopped(reader, folder))
            assert torch.equal(told(Conversation(context)), expected), step


def check_chat(model: Model, method: Method, ids: Tensor, folder: Path) -> None:
    """Ask three questions in a chat that stays open, and in one that is opened again before each."""
    lasting = Conversation(finish(Reader(model, method, ids, CHUNK)))
    anew = Conversation(lasting.context)
    for question in QUESTIONS:
        anew = reopened(anew, folder)
        assert answer(anew, question, 4) == answer(lasting, question, 4)
        assert torch.equal(told(anew), told(lasting)), question


@every_method
def test_a_reading_that_was_stopped(model: Model, ids: Tensor, method: Method, tmp_path: Path) -> None:
    check_readings(model, method, ids, tmp_path)


@pytest.mark.parametrize("method", CHATS.values(), ids=CHATS)
def test_a_chat_that_was_opened_anew(model: Model, ids: Tensor, method: Method, tmp_path: Path) -> None:
    check_chat(model, method, ids, tmp_path)


@pytest.mark.parametrize("name", RECURRENT)
def test_both_with_layers_that_carry_states(recurrent: Model, ids: Tensor, name: str, tmp_path: Path) -> None:
    check_readings(recurrent, TIGHT[name], ids, tmp_path)
    check_chat(recurrent, TIGHT[name], ids, tmp_path)


@pytest.mark.parametrize("name", ["streaming", "exact"])
def test_a_window_behind_a_pass_that_was_longer_than_its_buffer(
    model: Model, ids: Tensor, name: str, tmp_path: Path
) -> None:
    """Check a buffer that a long pass has enlarged until it is packed again."""
    text = ids.repeat(12)
    reader = Reader(model, TIGHT[name], text, 1500)
    steps = sum(1 for _ in reader.run())
    assert steps > 3
    for step in range(1, steps):
        halfway = Reader(model, TIGHT[name], text, 1500)
        for _ in zip(range(step), halfway.run(), strict=False):
            pass
        parts, meta = taken(halfway.state(), tmp_path)
        context = finish(Reader.resume(model, TIGHT[name], text, parts, meta, 2000))
        assert torch.equal(told(Conversation(context)), told(Conversation(reader.context()))), step


def test_what_an_earlier_version_saved_of_a_window_is_opened(model: Model, ids: Tensor) -> None:
    """Check a state without the window's first position."""
    method = TIGHT["streaming"]
    context = read(model, method, ids)
    parts, meta = context.state()
    for name in ("start", "room"):
        del meta["memory"][name]
    again = Context.load(model, method, loaded(parts), meta)
    torch.testing.assert_close(told(Conversation(again)), told(Conversation(context)), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("facts", [{"start": -1}, {"room": 1 << 40}, {"start": 10**6}, {"room": 1}])
def test_a_window_at_places_that_it_cannot_have_is_refused(model: Model, ids: Tensor, facts: dict[str, int]) -> None:
    """Check that it is refused before a buffer of that size is allocated."""
    context = read(model, TIGHT["streaming"], ids)
    parts, meta = context.state()
    meta["memory"] |= facts
    with pytest.raises(ContextMismatch, match="a window of"):
        Context.load(model, context.method, loaded(parts), meta)
