"""The table of contexts."""

import pytest
import torch

from sessions import AlreadyRead, NotFound, Part, StoreError
from tests.sessions.helpers import Filled


def test_contexts_know_their_documents_in_order(filled: Filled) -> None:
    store = filled.store
    one, two = filled.document("1" * 64), filled.document("2" * 64)
    both = filled.context(one, two)
    assert both.document_ids == [one.id, two.id]
    assert store.contexts.documents(both.id) == [one, two]
    paused = filled.context(one, status="paused")
    assert store.contexts.all(two.id) == [both]
    assert store.contexts.all() == [paused, both]


def test_of_many_contexts_those_used_last_are_read_and_the_rest_is_counted(filled: Filled) -> None:
    store, rows = filled.store, [filled.context(filled.document(str(number) * 64)) for number in range(4)]
    session = store.sessions.add(rows[1].id)
    assert [row.id for row in store.contexts.latest(1)[0]] == [session.context_id]
    assert store.contexts.latest(2, rows[0].id) == ([rows[1], rows[3], rows[0]], 1)
    assert store.contexts.latest(9, "c-222222") == ([rows[1], rows[3], rows[2], rows[0]], 0)
    assert store.contexts.latest(9, whole=True) == ([], 0)
    whole = store.contexts.update(rows[2].id, tokens_read=1000)
    assert store.contexts.latest(1, rows[0].id, whole=True) == ([whole], 0)
    assert [(row.id, row.title) for row in store.contexts.names()] == [(row.id, "Emma") for row in reversed(rows)]


def test_a_context_is_named_after_its_documents_until_it_gets_a_title(filled: Filled) -> None:
    store = filled.store
    first, second = filled.document(sha256="1" * 64, title="Emma"), filled.document(sha256="2" * 64, title="Ada")
    both = filled.context(second, first)
    assert (both.title, store.contexts.all()[0].title) == ("Ada and Emma", "Ada and Emma")
    store.documents.rename(first.id, "Emma, vol. 1")
    assert store.contexts.get(both.id).title == "Ada and Emma, vol. 1"
    assert store.contexts.rename(both.id, " Two\nnovels ").title == "Two novels"
    assert store.contexts.update(both.id, warnings=["Odd."]).title == "Two novels"
    assert store.contexts.rename(both.id, " ").title == "Ada and Emma, vol. 1"
    with pytest.raises(NotFound):
        store.contexts.rename("c-222222", "Lost")
    many = [filled.document(sha256=str(number) * 64, title=f"Note {number}").id for number in range(3, 6)]
    assert filled.context(filled.document(sha256="6" * 64, title="Kim"), *map(store.documents.get, many)).title == (
        "Kim and 3 more"
    )


def test_only_some_columns_of_a_context_change(filled: Filled) -> None:
    context = filled.context(status="reading")
    changed = filled.store.contexts.update(
        context.id,
        status="ready",
        tokens_read=1000,
        seconds=2.5,
        usage={"device": torch.tensor(7), "rate": float("nan")},
    )
    assert (changed.status, changed.tokens_read, changed.seconds) == ("ready", 1000, 2.5)
    assert changed.usage == {"device": 7, "rate": None}
    with pytest.raises(TypeError, match="fingerprint"):
        filled.store.contexts.update(context.id, fingerprint="x")
    with pytest.raises(ValueError, match="finished"):
        filled.store.contexts.update(context.id, status="finished")
    with pytest.raises(StoreError, match="different documents"):
        filled.store.contexts.add(
            model="m", method="m", settings={}, budget=None, fingerprint="f", document_ids=[], tokens=0
        )
    for status in ("reading", "paused", "failed"):
        with pytest.raises(AlreadyRead):
            filled.store.contexts.update(context.id, status=status)
    assert filled.store.contexts.get(context.id).status == "ready"


def test_saving_for_a_deleted_context_makes_no_folder(filled: Filled) -> None:
    context = filled.context()
    state = filled.store.contexts.state(context.id)
    filled.store.contexts.delete(context.id)
    with pytest.raises(NotFound):
        state.save({"kv": Part({"k": torch.ones(3)})}, {}, "f")
    assert not state.path.exists()


def test_a_finished_context_is_not_overwritten(filled: Filled) -> None:
    """A second reader that had begun earlier replaced the finished state with a checkpoint."""
    context = filled.context(status="reading")
    state = filled.store.contexts.state(context.id)
    state.save({"kv": Part({"k": torch.ones(3)})}, {}, "f")
    filled.store.contexts.update(context.id, status="ready")
    with pytest.raises(AlreadyRead):
        state.save({"kv": Part({"k": torch.zeros(3)})}, {}, "f")
    assert torch.equal(state.load()[0]["kv"]["k"], torch.ones(3))
