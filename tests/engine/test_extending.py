"""Extended readings: more text is read behind a finished one, and nothing is read twice."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from engine import Context, Method, Model, Part, Reader, SettingsError, extended, make_method
from engine.records import DEVICE
from tests.engine.matrix import CLOSE, QUESTION, TIGHT, close, every_method
from tests.engine.reading import finish, loaded, next_logits, read, read_once, resumed, with_budget

PASS = 208  # a pass of any method ends after so many tokens: the prefix of the tiny model is 77 of them
growing = pytest.mark.parametrize("name", [name for name, method in TIGHT.items() if method.name != "truncate"])
"""Every method but that which reads no more than it has read."""
KEEPING = {"full", "streaming", "exact", "infllm", "infinitehip"}
"""Methods that read the end of a text as they read its middle."""


def longer(base: Context, ids: Tensor, chunk: int = 64) -> Reader:
    """Return a reader of the whole text that starts from a context of its first part."""
    parts, meta = base.state()
    facts = extended(base.model, base.method, ids, meta)
    return Reader.resume(base.model, base.method, ids, loaded(parts), facts, chunk)


def copied(parts: dict[str, Part]) -> dict[tuple[str, str], Tensor]:
    """Return copies of tensors by part and name."""
    return {(name, key): x.clone() for name, part in parts.items() for key, x in part.tensors.items()}


@every_method
@pytest.mark.parametrize("before", [PASS - 77, 201])
def test_without_a_budget_it_equals_full_attention(model: Model, ids: Tensor, method: Method, before: int) -> None:
    unlimited = with_budget(method, None)
    together = read_once(model, unlimited, ids)
    context = finish(longer(read_once(model, unlimited, ids[:before]), ids))
    for layer in range(len(model.spec.layers)):
        assert torch.equal(context.memory.positions(layer), together.memory.positions(layer))
    expected = next_logits(model, unlimited, together.memory, QUESTION)
    torch.testing.assert_close(next_logits(model, unlimited, context.memory, QUESTION), expected, **close(unlimited))


@pytest.mark.parametrize("name", [name for name, method in TIGHT.items() if method.name in KEEPING])
def test_it_is_as_if_it_had_been_read_together(model: Model, ids: Tensor, name: str) -> None:
    """Compare with a reading of the whole text that has a pass ending at the same place."""
    method = TIGHT[name]
    together = read_once(model, method, ids)
    context = finish(longer(read_once(model, method, ids[: PASS - 77]), ids))
    assert context.usage().entries == together.usage().entries
    expected = next_logits(model, method, together.memory, QUESTION)
    torch.testing.assert_close(next_logits(model, method, context.memory, QUESTION), expected, **close(method))


@growing
def test_it_keeps_to_the_budget_and_can_be_interrupted(model: Model, ids: Tensor, name: str) -> None:
    method = TIGHT[name]
    base = read_once(model, method, ids[:201])
    before = copied(base.state()[0])
    straight = longer(base, ids)
    seen = [progress.usage.entries[DEVICE] for progress in straight.run()]
    if method.budget is not None:
        assert max(seen) <= method.budget + method.passing(model.spec)
    expected = straight.context()
    assert expected.memory.seen == 77 + len(ids)
    assert expected.remembered()[201:].sum() > 0
    taken_up = resumed(longer(base, ids), 2, chunk=48)
    context = finish(taken_up)
    for reader in (straight, taken_up):  # tokens read before do not count for the speed
        own = reader.total - 77 - 201
        assert reader.progress("ready").tokens_per_second == pytest.approx(own / reader.seconds)
    torch.testing.assert_close(
        next_logits(model, method, context.memory, QUESTION, 48),
        next_logits(model, method, expected.memory, QUESTION),
        **close(method),
    )
    after = copied(base.state()[0])
    for name, tensor in before.items():
        assert torch.equal(after[name].float().nan_to_num(), tensor.float().nan_to_num()), name


@growing
def test_the_beginning_of_it_can_be_asked_at_once(model: Model, ids: Tensor, name: str) -> None:
    method = TIGHT[name]
    base = read_once(model, method, ids[:201])
    parts, meta = base.state()
    facts = extended(model, method, ids, meta)
    begun = Context.load(model, method, loaded(parts), facts, unfinished=True)
    expected = next_logits(model, method, base.memory, QUESTION)
    torch.testing.assert_close(next_logits(model, method, begun.memory, QUESTION), expected, **CLOSE)
    assert begun.remembered().shape == ids.shape
    assert not begun.remembered()[201:].any()


def test_what_depends_on_the_length_of_the_whole_is_refused(model: Model, ids: Tensor) -> None:
    """Use a budget that holds 51 tokens of a text."""
    whole = read(model, TIGHT["truncate"], ids[:30])
    assert finish(longer(whole, ids[:51])).remembered().eq(1).all()
    cut = read(model, TIGHT["truncate"], ids[:60])
    with pytest.raises(SettingsError, match="truncate chooses what it reads by the length of the whole"):
        longer(cut, ids)
    with pytest.raises(SettingsError, match="read all of it together"):
        longer(whole, ids[:52])


def test_beacons_of_another_ratio_are_refused(model: Model, ids: Tensor) -> None:
    method = make_method("beacon", budget=256, window=32)
    raw = read(model, method, ids[:60])
    with pytest.raises(SettingsError, match="beacon has read this at a ratio of 1, and would read it at 2"):
        longer(raw, ids)
    assert finish(longer(raw, ids[:90])).remembered().eq(1).all()


def test_there_must_be_something_to_add(model: Model, ids: Tensor) -> None:
    with pytest.raises(SettingsError, match="nothing to add to a text of 201 tokens"):
        longer(read(model, TIGHT["exact"], ids[:201]), ids[:201])
