"""Open contexts: one copy for all sessions, and one limit for all of them."""

import time
import weakref
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from app.asking.turns import answer, keep_question
from app.deletion import delete
from app.jobs.worker import Worker
from app.reading.context_cache import OffloadedContext, OpenContext
from app.reading.open_context import open_context, open_conversation
from app.reading.readings import read
from app.service import Service
from engine import OutOfMemory
from engine.trained.retaining import FILE as HEADS
from engine.trained.retaining import RetainingHeads, find_heads
from engine.trained.sidecar_weights import save_weights
from sessions import ContextRow, Store
from tests.app.helpers import BUDGET, SHORT, add, begin, book_text, read_through, wait_for
from tests.app.tiny import make_tiny_model


def three(service: Service, tmp_path: Path) -> list[ContextRow]:
    """Return three contexts of about the same size."""
    rows = []
    for number in range(3):
        path = tmp_path / f"book {number}.txt"
        path.write_text(f"{number} {book_text(12)}", encoding="utf-8")
        rows.append(read_through(service, add(service, path)))
    return rows


def ask(service: Service, context: ContextRow, session: str | None = None) -> str:
    session = session or service.store.sessions.add(context.id).id
    turn = answer(service, keep_question(service, session, "Who?").id, SHORT)
    assert turn.status == "done"
    return session


def test_sessions_over_a_context_share_its_tensors(service: Service, book: Path) -> None:
    context = read_through(service, add(service, book))
    sessions = [ask(service, context) for _ in range(3)]
    opened = open_context(service, context.id)
    conversations = [open_conversation(service, each).conversation for each in sessions]
    assert all(each.context is opened.context for each in conversations)
    slabs = opened.context.memory.archive.host.slabs  # type: ignore[union-attr]
    for each in conversations:
        for ours, theirs in zip(each.memory.archive.host.slabs, slabs, strict=False):  # type: ignore[union-attr]
            assert ours.keys[0].data_ptr() == theirs.keys[0].data_ptr()
    taken = service.contexts.bytes()["host"]
    base = opened.context.usage().bytes
    assert taken >= base["device"] + base["host"]
    tails = sum(sum(each.usage().bytes.values()) - sum(base.values()) for each in conversations)
    assert base["disk"] > 0, "what was saved is used from its file, and takes no memory"
    assert taken == base["device"] + base["host"] + tails


def test_the_limit_puts_away_what_was_not_used_for_longest(tmp_path: Path, tiny: Path) -> None:
    service = Service(tmp_path / "home", str(tiny), "cpu")
    first, second, third = three(service, tmp_path)
    session = ask(service, first)
    one = service.contexts.bytes()["host"]
    service.contexts.limit = int(2.5 * one)
    ask(service, second)
    ask(service, first, session)
    ask(service, third)
    assert [each.id in service.contexts for each in (first, second, third)] == [True, False, True]
    assert service.contexts.bytes()["host"] <= service.contexts.limit
    before = open_conversation(service, session)
    assert before.opened is open_context(service, first.id)
    # A context that is offloaded drops its conversations, so that it is never in memory twice.
    service.contexts.limit = 1
    ask(service, second)
    assert [each.id in service.contexts for each in (first, second, third)] == [False, True, False]
    assert all(each.opened.row.id == second.id for each in service.conversations.values())
    turns = len(service.store.turns.all(session))
    ask(service, first, session)
    assert open_conversation(service, session).conversation.turns == turns + 1
    service.close()


def test_trained_weights_go_with_the_model_that_they_are_for(service: Service, book: Path, tmp_path: Path) -> None:
    """The weights of the last method stayed on the device beside the next model."""
    folder = make_tiny_model(tmp_path / "first")
    model = service.models.get(str(folder))
    save_weights(RetainingHeads(model.spec, [8] * len(model.spec.layers)), folder / HEADS, model.spec, {})
    heads = find_heads(model.spec, "")
    started = begin(service, add(service, book), "locret", {"budget": 64, "local": 8}, str(folder))
    context = read(service, started.id, lambda report: None)
    ask(service, context)
    assert open_context(service, context.id).context.memory.evictor.judge.__self__ is heads  # type: ignore[attr-defined]
    left = weakref.ref(heads)
    del model, heads
    service.models.get()
    assert left() is None


def test_what_is_deleted_while_an_answer_is_written_is_all_that_is_closed(service: Service, tmp_path: Path) -> None:
    """Everything was closed, and the end of the answer loaded its context again beside the first one."""
    first, second, third = three(service, tmp_path)
    session, idle = ask(service, first), ask(service, first)
    ask(service, second)
    ask(service, third)
    opened, held = open_context(service, first.id), open_conversation(service, session)
    doomed = [
        ("session", service.store.sessions.get(idle)),
        ("context", second),
        ("document", service.store.documents.get(third.document_ids[0])),
    ]

    def delete_all(piece: str) -> None:
        while doomed:
            delete(service, *doomed.pop())

    assert answer(service, keep_question(service, session, "Who?").id, SHORT, delete_all).status == "done"
    assert open_context(service, first.id) is opened
    assert service.conversations.values() == [held]
    assert [each.id in service.contexts for each in (first, second, third)] == [True, False, False]


def test_what_another_program_deletes_is_closed_here(service: Service, tmp_path: Path) -> None:
    """The server kept the files of a context open that the command line had deleted, and the disk stayed full."""
    kept, gone, _ = three(service, tmp_path)
    session, closed = ask(service, kept), ask(service, kept)
    ask(service, gone)
    with Store(service.home) as other:
        other.sessions.delete(closed)
        other.documents.delete(*gone.document_ids)
    service.forget_deleted()
    assert service.contexts.ids() == [kept.id]
    assert [each.opened.row.id for each in service.conversations.values()] == [kept.id]
    assert gone.document_ids[0] not in service.document_cache.ids()
    assert kept.document_ids[0] in service.document_cache.ids()
    ask(service, kept, session)


def test_the_worker_looks_for_what_others_deleted(
    service: Service, worker: Worker, book: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.jobs.job_runner.LOOK_SEC", 0.2)
    context = read_through(service, add(service, book))
    ask(service, context)
    with Store(service.home) as other:
        other.documents.delete(*context.document_ids)
    wait_for(lambda: context.id not in service.contexts, "the context to be closed")


@pytest.mark.parametrize("method", ["exact", "infinipot", "full"])
def test_an_offloaded_context_is_reloaded_as_it_was(service: Service, book: Path, method: str) -> None:
    settings = {} if method == "full" else BUDGET
    row = read(service, begin(service, add(service, book), method, settings).id, lambda report: None)
    opened = open_context(service, row.id)
    expected = {name: part.tensors for name, part in opened.context.state()[0].items()}
    offloaded = OffloadedContext.offload(opened)
    mapped = opened.context.usage().bytes.get("disk", 0)
    assert (mapped > 0) == (method == "exact")
    assert offloaded.bytes == sum(tensor.nbytes for part in expected.values() for tensor in part.values()) - mapped
    reloaded_context = offloaded.reload().context
    assert reloaded_context.usage() == opened.context.usage()
    reloaded = reloaded_context.state()[0]
    got = {
        f"{part.rstrip('0123456789')}.{key}": tensor
        for part, held in reloaded.items()
        for key, tensor in held.tensors.items()
    }
    for part, tensors in expected.items():
        for key, tensor in tensors.items():
            assert torch.equal(got[f"{part.rstrip('0123456789')}.{key}"].nan_to_num(), tensor.nan_to_num())


def test_two_programs_that_answer_in_one_session_do_it_one_after_another(
    tmp_path: Path, tiny: Path, book: Path
) -> None:
    """Both read the saved conversation, and the last to finish overwrote the other's turn."""
    one, other = (Service(tmp_path / "home", str(tiny), "cpu") for _ in range(2))
    session = one.store.sessions.add(read_through(one, add(one, book)).id)
    first, second, third = (keep_question(each, session.id, f"{n}?") for n, each in enumerate((one, one, other)))
    with ThreadPoolExecutor() as threads:
        waiting = threads.submit(answer, other, third.id, SHORT)
        assert answer(one, first.id, SHORT).status == "done"
        time.sleep(0.5)
        assert not waiting.done()
        assert answer(one, second.id, SHORT).status == "done"
        assert waiting.result().status == "done"
    assert open_conversation(one, session.id).conversation.turns == 3
    fourth, fifth = (keep_question(one, session.id, "And?") for _ in range(2))
    assert answer(one, fifth.id, SHORT, should_stop=lambda: True).status == "cancelled"
    assert answer(one, fourth.id, SHORT).status == "done"
    one.close()
    other.close()


def test_on_a_gpu_what_is_put_away_sleeps_in_host_memory_first(tmp_path: Path, tiny: Path) -> None:
    """This needs no GPU, only a model that claims to be on one."""
    service = Service(tmp_path / "home", str(tiny), "cpu")
    first, second, third = three(service, tmp_path)
    for each in (first, second, third):
        open_context(service, each.id)
    contexts = service.contexts
    one = contexts.bytes()["host"] // 3

    class Elsewhere:
        device = torch.device("cuda")

    for key, opened in list(contexts._open.items()):
        contexts._open[key] = replace(opened, model=Elsewhere())  # type: ignore[arg-type]
    contexts.limit = int(2.9 * max(contexts.bytes().values()) / 3)
    contexts.get(third.id, 0, lambda: pytest.fail("it is open"))
    assert first.id not in contexts
    assert second.id in contexts
    assert list(contexts._offloaded) == [first.id]
    contexts.limit = one // 100
    contexts.get(third.id, 0, lambda: pytest.fail("it is open"))
    assert (list(contexts._open), list(contexts._offloaded)) == ([third.id], [])
    service.close()


def test_where_memory_runs_out_other_contexts_make_room(tmp_path: Path, tiny: Path) -> None:
    """The limit of open contexts does not know how much is free beside a model."""
    service = Service(tmp_path / "home", str(tiny), "cpu")
    first, second, third = three(service, tmp_path)
    open_context(service, first.id)
    opened = open_context(service, second.id)
    tried: list[int] = []

    def load() -> OpenContext:
        tried.append(len(service.contexts.ids()))
        if service.contexts.ids():
            raise OutOfMemory("Memory ran out.")
        return opened

    assert service.contexts.get(third.id, 0, load) is opened
    assert (tried, service.contexts.ids()) == ([2, 0], [third.id])

    def never() -> OpenContext:
        raise OutOfMemory("Memory ran out.")

    with pytest.raises(OutOfMemory):
        service.contexts.get(first.id, 0, never)
    service.close()


def test_what_is_open_makes_room_for_a_reading(
    service: Service, book: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Open contexts counted as used memory, so that a second book could not be read."""
    ask(service, read_through(service, add(service, book)))
    other = tmp_path / "other.txt"
    other.write_text(book_text(3), encoding="utf-8")
    document = add(service, other)
    free: list[int] = []

    def crowded(device: torch.device) -> int:
        free.append(len(service.contexts.ids()))
        return 1000 if free[-1] else 1 << 40

    monkeypatch.setattr("engine.planning.plan.free_bytes", crowded)
    assert read_through(service, document).status == "ready"
    assert free[0] == 1
    assert service.contexts.ids() == []


def test_what_is_open_is_counted_while_it_changes(tmp_path: Path, tiny: Path) -> None:
    """A tab counted bytes while the worker offloaded a context: `dictionary changed size during iteration`."""
    service = Service(tmp_path / "home", str(tiny), "cpu")
    asleep = service.contexts._offloaded

    class Changing:
        @property
        def bytes(self) -> int:
            asleep[f"c-{len(asleep)}"] = self  # type: ignore[assignment]
            return 1

    asleep.update({"c-0": Changing(), "c-1": Changing()})  # type: ignore[dict-item]
    assert service.contexts.bytes()["host"] == 2
    service.close()


def test_another_model_lets_go_of_what_leans_on_the_first(service: Service, book: Path, tmp_path: Path) -> None:
    context = read_through(service, add(service, book))
    ask(service, context)
    service.models.get(str(make_tiny_model(tmp_path / "other", seed=1)))
    assert context.id not in service.contexts
    assert service.conversations.values() == []
    ask(service, context)
