"""The matrix: every method against every promise that all methods make."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM

from engine import (
    METHODS,
    Answer,
    Context,
    Conversation,
    Method,
    Model,
    Reader,
    Sampling,
    SettingsError,
    make_method,
    suited_method,
)
from engine.records import DEVICE
from kernels import choice
from tests.engine.architectures import small_config
from tests.engine.conftest import byte_tokenizer
from tests.engine.matrix import CLOSE, COVERING, QUESTION, ROUNDED, TIGHT, close, covering_methods, every_method
from tests.engine.reading import answer, finish, loaded, logits_of, next_logits, read, read_once, resumed, with_budget

# One pass of it overflows the tail of most budgets, two or three that of all.
LONG = "a long question, to overflow the tail, is it not? " * 4


@pytest.mark.parametrize("name", METHODS)
def test_settings_suit_the_window_of_a_model_unless_others_are_given(name: str) -> None:
    wide, short = suited_method(1 << 17, name), suited_method(2048, name)
    assert short == make_method(name)
    preset = METHODS[name].long_window
    assert wide == (short if preset is None else make_method(name, preset=preset))
    assert preset is None or (wide.budget or 0) > 2048
    assert suited_method(1 << 17, name, **short.settings()) == short
    if preset is not None:
        assert suited_method(1 << 17, name, preset="pocket") == short
        assert suited_method((wide.budget or 0) - 1, name) == short
        assert suited_method(1 << 17, name, budget=20_000).settings() == {**wide.settings(), "budget": 20_000}
        assert suited_method(1 << 17, name, budget=1024).settings() == {**short.settings(), "budget": 1024}


def test_every_registered_method_is_in_the_matrix() -> None:
    assert {method.name for method in TIGHT.values()} == {TIGHT[name].name for name in COVERING} == set(METHODS)


@every_method
def test_unlimited_budget_equals_full_attention(model: Model, ids: Tensor, method: Method) -> None:
    equal_full_attention(model, ids, with_budget(method, None))


@pytest.mark.parametrize("kind", ["cohere2", "exaone4", "gemma4_text", "glm4", "gpt_oss", "ministral3", "olmo3"])
@pytest.mark.parametrize("name", ["streaming", "truncate", "exact", "infllm", "infinitehip", "infinipot-cap"])
def test_so_it_does_where_layers_differ_in_rope_and_window(kind: str, name: str, ids: Tensor) -> None:
    """Check models whose layers differ.

    Command R7B and EXAONE 4 have RoPE in layers with a sliding window only, OLMo 3 has two kinds of it, and gpt-oss has
    a sink for each head.
    """
    torch.manual_seed(0)
    network = AutoModelForCausalLM.from_config(small_config(kind))
    model, unlimited = Model(network, byte_tokenizer(), kind, "-"), with_budget(TIGHT[name], None)
    expected = next_logits(model, TIGHT["full"], read(model, TIGHT["full"], ids).memory, QUESTION)
    logits = next_logits(model, unlimited, read(model, unlimited, ids).memory, QUESTION)
    torch.testing.assert_close(logits, expected, **CLOSE)


@pytest.mark.parametrize("name", ["locret-int4-all", "exact-int8", "infllm-int4", "recall"])
def test_kernels_answer_as_the_references_do(
    model: Model, ids: Tensor, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    pytest.importorskip("triton")
    method = TIGHT[name]
    memory = read(model, method, ids[:120]).memory
    found, forks = [], [memory.fork(), memory.fork()]  # which rotates a window: a third of the interpreter's time
    for implementation, fork in zip(("torch", "triton"), forks, strict=True):
        monkeypatch.setattr(choice, "implementation", lambda implementation=implementation: implementation)
        found.append(logits_of(model, method, fork, QUESTION[:1]))
    torch.testing.assert_close(found[1], found[0], atol=1e-4, rtol=1e-3)


def equal_full_attention(model: Model, ids: Tensor, method: Method) -> None:
    expected = next_logits(model, TIGHT["full"], read_once(model, TIGHT["full"], ids).memory, QUESTION)
    logits = next_logits(model, method, read_once(model, method, ids).memory, QUESTION)
    if method.quantization(model.turn_length) is None:
        torch.testing.assert_close(logits, expected, **CLOSE)
    else:
        assert 0 < (logits - expected).norm() <= ROUNDED[method.settings()["store"]] * expected.norm()


@pytest.mark.parametrize(
    "name", [name for name, method in TIGHT.items() if method.budget and not method.settings().get("ratio")]
)
def test_a_budget_that_suffices_equals_full_attention(model: Model, ids: Tensor, name: str) -> None:
    """Check all but beacons of a fixed ratio, which condense every text."""
    equal_full_attention(model, ids, with_budget(TIGHT[name], 560))  # the window is 512


@every_method
def test_chunk_size_does_not_change_the_answer(model: Model, ids: Tensor, method: Method) -> None:
    """Check one pass of the whole text, and passes of one token each for the last of its tokens."""
    expected = next_logits(model, method, read_once(model, method, ids).memory, QUESTION)
    whole = read(model, method, ids, chunk=1000)
    torch.testing.assert_close(next_logits(model, method, whole.memory, QUESTION, 1000), expected, **close(method))
    reader = Reader(model, method, ids, chunk=80)
    next(step for step in reader.run() if step.tokens_done >= reader.total - 78)
    one_by_one = finish(resumed(reader, 0, chunk=1))
    torch.testing.assert_close(next_logits(model, method, one_by_one.memory, QUESTION, 1), expected, **close(method))


@covering_methods
def test_a_text_read_token_by_token_gives_the_same_answer(model: Model, ids: Tensor, method: Method) -> None:
    ids = ids[:150]  # enough for all budgets of these methods but one, and half as long
    expected = next_logits(model, method, read_once(model, method, ids).memory, QUESTION)
    logits = next_logits(model, method, read(model, method, ids, chunk=1).memory, QUESTION, 1)
    torch.testing.assert_close(logits, expected, **close(method))


@every_method
@pytest.mark.parametrize("steps", [1, 6])
def test_save_load_and_continue_equals_uninterrupted(model: Model, ids: Tensor, method: Method, steps: int) -> None:
    expected = read_once(model, method, ids)
    context = finish(resumed(Reader(model, method, ids, chunk=48), steps, chunk=64))
    for layer in range(len(model.spec.layers)):
        assert torch.equal(context.memory.positions(layer), expected.memory.positions(layer))
    torch.testing.assert_close(
        next_logits(model, method, context.memory, QUESTION),
        next_logits(model, method, expected.memory, QUESTION),
        **close(method),
    )


@every_method
def test_a_saved_context_answers_as_the_live_one(model: Model, ids: Tensor, method: Method) -> None:
    context = read_once(model, method, ids)
    parts, meta = context.state()
    again = type(context).load(model, method, loaded(parts), meta)
    expected = next_logits(model, method, context.memory, QUESTION)
    torch.testing.assert_close(next_logits(model, method, again.memory, QUESTION), expected, **CLOSE)
    assert again.usage().entries == context.usage().entries


@pytest.mark.parametrize("name", [name for name, method in TIGHT.items() if method.budget is not None])
def test_the_budget_is_never_exceeded(model: Model, ids: Tensor, name: str) -> None:
    method = TIGHT[name]
    assert method.budget is not None
    budget = method.budget + method.passing(model.spec)
    seen = [progress.usage.entries[DEVICE] for progress in Reader(model, method, ids, chunk=50).run()]
    assert max(seen) <= budget
    conversation = Conversation(read_once(model, method, ids))
    for tokens in (1, 8, 1):
        answer(conversation, LONG, tokens)
        assert conversation.usage().entries[DEVICE] <= budget


@covering_methods
def test_a_fork_never_changes_its_base(model: Model, ids: Tensor, method: Method) -> None:
    context = read_once(model, method, ids)
    before = {
        (part, name): tensor.clone()
        for part, held in context.state()[0].items()
        for name, tensor in held.tensors.items()
    }
    expected = next_logits(model, method, context.memory, QUESTION)
    first, second = Conversation(context), Conversation(context)
    alone = answer(Conversation(context), "Who?", 4)
    for tokens in (1, 8, 1):
        answer(first, LONG, tokens)
    assert answer(second, "Who?", 4) == alone
    after = context.state()[0]
    for (part, name), tensor in before.items():
        assert torch.equal(after[part].tensors[name].float().nan_to_num(), tensor.float().nan_to_num()), (part, name)
    torch.testing.assert_close(next_logits(model, method, context.memory, QUESTION), expected, atol=0, rtol=0)


@covering_methods
def test_asking_while_it_is_read_changes_nothing_of_a_reading(model: Model, ids: Tensor, method: Method) -> None:
    """Check also that the state saved at that moment gives the same answers."""
    expected = read(model, method, ids, chunk=32)
    reader = Reader(model, method, ids, 32)
    for number, _ in enumerate(reader.run()):
        if number in (1, 8):
            parts, meta = reader.state()
            saved = Context.load(model, method, loaded(parts), meta, unfinished=True)
            now = answer(Conversation(reader.so_far()), "Who?", 4)
            assert answer(Conversation(saved), "Who?", 4) == now
    parts, meta = reader.context().state()
    wanted, facts = expected.state()
    assert meta == facts
    for name, part in wanted.items():
        for key, tensor in part.tensors.items():
            found = parts[name].tensors[key]
            assert torch.equal(found.float().nan_to_num(), tensor.float().nan_to_num()), (name, key)


@covering_methods
def test_a_checkpoint_stays_as_it_was_while_the_reading_goes_on(model: Model, ids: Tensor, method: Method) -> None:
    """Check this since it is written to disk meanwhile."""
    reader, taken = Reader(model, method, ids, 32), []
    for number, _ in enumerate(reader.run()):
        if number % 3 == 0:
            parts = reader.state()[0].items()
            taken += [(number, name, key, x, x.clone()) for name, part in parts for key, x in part.tensors.items()]
    for number, name, key, now, then in taken:
        assert torch.equal(now.float().nan_to_num(), then.float().nan_to_num()), (number, name, key)


@covering_methods
def test_a_saved_conversation_continues_where_it_was(model: Model, ids: Tensor, method: Method) -> None:
    context = read_once(model, method, ids)
    conversation = Conversation(context)
    for _ in range(2):  # long enough that the tail of tight budgets is condensed
        answer(conversation, LONG, 4)
    parts, meta = conversation.state()
    again = Conversation.load(context, loaded(parts), meta)
    assert answer(again, "And then?") == answer(conversation, "And then?")
    assert again.usage().entries == conversation.usage().entries


@covering_methods
def test_a_cancelled_question_leaves_no_trace(model: Model, ids: Tensor, method: Method) -> None:
    context = read_once(model, method, ids)
    asked, untouched = Conversation(context), Conversation(context)
    for conversation in (asked, untouched):
        answer(conversation, LONG, 4)
    pieces = asked.ask(LONG)
    next(pieces)
    pieces.close()
    assert answer(asked, "What?") == answer(untouched, "What?")
    assert asked.usage().entries == untouched.usage().entries


@covering_methods
def test_sources_lie_inside_the_source(model: Model, ids: Tensor, method: Method) -> None:
    context = read_once(model, method, ids)
    for layer in range(len(model.spec.layers)):
        positions = context.memory.positions(layer)
        assert int(positions.max()) < len(ids)
        for head in positions:
            named = head[head >= 0]
            assert len(named.unique()) == len(named), "no source position twice in one head"
    *_, last = Conversation(context).ask("Where?", Sampling(max_tokens=4))
    assert isinstance(last, Answer)
    for passage in last.passages:
        assert 0 <= passage.start < passage.end <= len(ids)
        assert 0.0 < passage.weight <= 1.0


@every_method
def test_what_is_remembered_of_a_text_is_what_its_entries_stand_for(model: Model, ids: Tensor, method: Method) -> None:
    context = read_once(model, method, ids)
    remembered = context.remembered()
    assert remembered.shape == ids.shape
    held = [head[head >= 0] for layer in range(len(model.spec.layers)) for head in context.memory.positions(layer)]
    if method.family in ("retrieving", "yardstick"):
        assert remembered.eq(1).all()
        assert method.name == "recall" or all(len(head) == len(ids) for head in held)
        return
    assert int(remembered.sum() * len(held) + 0.5) == sum(map(len, held)) < len(held) * len(ids)
    everywhere = set.intersection(*(set(head.tolist()) for head in held))
    assert set(remembered.eq(1).nonzero()[:, 0].tolist()) == everywhere


@covering_methods
def test_replayed_turns_are_remembered_as_if_they_had_been_said(
    model: Model, ids: Tensor, method: Method, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Answer in letters alone, so that the text of an answer has the ids that were generated."""
    letters = model.encode("abcdefghijklmnop").ids
    monkeypatch.setattr("engine.loops.conversation.choose", lambda logits, *_: int(letters[logits[letters].argmax()]))
    context = read_once(model, method, ids)
    straight, replayed = Conversation(context), Conversation(context)
    for number in range(3):  # long enough that the tail of tight budgets is condensed
        question = f"question number {number}? {LONG}"
        said = answer(straight, question, 4)
        assert len(said) == 4
        replayed.replay(question, said)
    assert (replayed.turns, replayed.memory.seen) == (straight.turns, straight.memory.seen)
    assert replayed.usage().entries == straight.usage().entries
    parts, meta = replayed.state()
    saved = Conversation.load(context, loaded(parts), meta)
    expected, got, again = (model.logits(each.feed(QUESTION.tolist())) for each in (straight, replayed, saved))
    torch.testing.assert_close(again, got, **CLOSE)
    if method.pass_multiple() == 1:  # otherwise blocks of queries select together
        torch.testing.assert_close(got, expected, **close(method))


def test_a_budget_that_holds_nothing_of_a_text_is_refused(model: Model, ids: Tensor) -> None:
    """Check budgets up to the tiny model's prefix of 77 tokens."""
    with pytest.raises(SettingsError, match=r"the 77 tokens .* give at least 95"):
        Reader(model, make_method("truncate", budget=94, tail=16), ids)
    assert read(model, make_method("truncate", budget=95, tail=16), ids).usage().entries == {DEVICE: 79}


@pytest.mark.parametrize("name", ["streaming", "exact", "infllm", "infinitehip"])
def test_nothing_is_saved_that_was_never_written(model: Model, ids: Tensor, name: str) -> None:
    """Regression: for a text shorter than the sinks, old contents of memory were saved."""
    method = dataclasses.replace(TIGHT[name], sinks=100, budget=(TIGHT[name].budget or 0) + 96)  # type: ignore[call-arg]
    context = read(model, method, ids[:5])
    for parts, _ in (context.state(), Conversation(context).state()):
        for part in parts.values():
            assert not any(bool(tensor.float().isnan().any()) for tensor in part.tensors.values())
    parts, meta = context.state()
    again = type(context).load(model, method, loaded(parts), meta)
    logits = next_logits(model, method, again.memory, QUESTION)
    torch.testing.assert_close(logits, next_logits(model, method, context.memory, QUESTION), **CLOSE)
