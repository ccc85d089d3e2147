"""Documents are added to what has been read: it goes on behind its end, and stays as it was."""

import json
from pathlib import Path

import pytest

from app import readings
from app.answer_options import AnswerOptions
from app.errors import AppError
from app.preparing import prepare_more
from app.progress import Report
from app.readings import Stopped, read
from app.service import Service
from app.turns import answer, keep_question
from app.web.actions import Actions
from app.web.screen import Chosen, Screen
from app.worker import Worker
from engine import ContextMismatch, SettingsError
from sessions import ContextRow, NotFound, StoreError
from tests.app.helpers import BUDGET, SHORT, add, begin, book_text, ended, in_process, read_through, upload, wait_for

POST = [f"On day {n} the post came late, and the cat sat on chair number {n}." for n in range(20)]
LETTER = "\n\n".join([*POST[:12], "The pass key of the boathouse is 70315.", *POST[12:]])


@pytest.fixture
def letter(tmp_path: Path) -> Path:
    path = tmp_path / "A letter.txt"
    path.write_text(LETTER, encoding="utf-8")
    return path


def begin_more(service: Service, base: ContextRow, *files: Path, title: str | None = None) -> ContextRow:
    """Prepare files to be read behind what a context has read, and begin with it."""
    return readings.begin(service, prepare_more(service, base.id, add(service, *files)), title=title)


def said(service: Service, context: str, question: str) -> str:
    """The answer to a question in a session of its own."""
    turn = keep_question(service, service.store.add_session(context).id, question)
    return answer(service, turn.id, AnswerOptions(max_tokens=24)).answer


@pytest.mark.parametrize("method", ["exact", "locret"])
def test_both_the_book_and_what_was_added_are_known(
    tmp_path: Path, model: str, book: Path, letter: Path, method: str
) -> None:
    service = Service(tmp_path / "home", model, "cpu")
    base = read_through(service, add(service, book), method)
    before = service.store.context_state(base.id).stamps()
    begun = begin_more(service, base, letter)
    assert (begun.status, begun.tokens_read, begun.seconds) == ("reading", base.tokens, base.seconds)
    steps: list[Report] = []
    both = read(service, begun.id, steps.append)
    assert min(step.tokens_done for step in steps) == base.tokens
    assert (both.status, both.title, both.method) == ("ready", "The Keeper, A letter", method)
    assert both.document_ids == [*base.document_ids, service.store.documents()[0].id]
    assert both.tokens_read == both.tokens > base.tokens
    assert both.seconds > base.seconds
    if model == "pocket":
        assert said(service, both.id, "What is the pass key of the boathouse?") == "70315"
        assert said(service, both.id, "What is the pass key of the vault?") == "48213"
    assert service.store.context(base.id) == base
    assert service.store.context_state(base.id).stamps() == before
    assert begin_more(service, base, letter) == service.store.context(both.id)
    service.close()


def test_each_of_the_two_outlives_the_other(service: Service, book: Path, letter: Path) -> None:
    store = service.store
    base = read_through(service, add(service, book))
    first = read(service, begin_more(service, base, letter).id, lambda report: None)
    size = store.size_on_disk(base.id)
    alone = store.bytes_to_free([base.id])
    assert alone < size / 2, "most of it is in files that both have"
    assert store.bytes_to_free([base.id, first.id]) > size
    service.contexts.drop(first.id)
    store.delete_context(base.id)
    assert said(service, first.id, "Who kept the lamp?")
    base = read_through(service, add(service, book))
    store.delete_document(first.document_ids[1])
    assert [row.id for row in store.contexts()] == [base.id]
    assert said(service, base.id, "Who kept the lamp?")


def test_it_can_be_stopped_and_taken_up_again(service: Service, tmp_path: Path, book: Path) -> None:
    base = read_through(service, add(service, book))
    more = tmp_path / "More.txt"
    more.write_text(book_text(60), encoding="utf-8")
    begun, steps = begin_more(service, base, more), list[Report]()
    with pytest.raises(Stopped):
        read(service, begun.id, steps.append, lambda: steps[-1].tokens_done > base.tokens)
    paused = service.store.context(begun.id)
    assert (paused.status, base.tokens < paused.tokens_read < paused.tokens) == ("paused", True)
    assert begin_more(service, base, more).id == begun.id
    assert read(service, begun.id, lambda report: None).status == "ready"


def test_what_was_read_can_be_asked_before_more_is(service: Service, book: Path, letter: Path) -> None:
    base = read_through(service, add(service, book))
    begun = begin_more(service, base, letter)
    turn = answer(service, keep_question(service, service.store.add_session(begun.id).id, "Who?").id, SHORT)
    assert turn.status == "done"
    assert (
        f"Asked when {100 * base.tokens // begun.tokens}% of the text had been read" in turn.measurements["warnings"][0]
    )


def test_warnings_about_what_was_read_stay_but_not_those_about_what_was_not(
    service: Service, book: Path, letter: Path
) -> None:
    base = begin(service, add(service, book), "exact", BUDGET, warnings=["The Keeper: no ink.", "Left out: torn.pdf"])
    base = read(service, base.id, lambda report: None)
    assert begin_more(service, base, letter, title="Both").warnings == ["The Keeper: no ink."]
    assert service.store.contexts()[0].title == "Both"


def test_what_cannot_be_added_says_why_and_leaves_nothing(
    service: Service, book: Path, letter: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = add(service, book)
    unread = begin(service, ids, "exact", BUDGET)
    with pytest.raises(AppError, match=rf"{unread.id} is reading, and .* `stockpot resume {unread.id}`"):
        begin_more(service, unread, letter)
    base = read(service, unread.id, lambda report: None)
    with pytest.raises(AppError, match="has read 'The Keeper' already"):
        begin_more(service, base, book, letter)
    cut = read(service, begin(service, ids, "truncate", {"budget": 600}).id, lambda report: None)
    with pytest.raises(SettingsError, match="truncate chooses what it reads by the length of the whole"):
        begin_more(service, cut, letter)
    prepared = prepare_more(service, base.id, add(service, letter))
    with monkeypatch.context() as other:
        other.setattr(service.models.get().chat, "prefix", [1, 2, 3])
        with pytest.raises(ContextMismatch, match="read behind other words"):
            readings.begin(service, prepared)
    service.store.delete_context(base.id)
    with pytest.raises(NotFound):
        readings.begin(service, prepared)
    assert [row.id for row in service.store.contexts()] == [cut.id]
    assert [folder.name for folder in (service.home / "contexts").iterdir()] == [cut.id]


def test_only_what_is_new_must_fit_the_disk(
    service: Service, book: Path, letter: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = read_through(service, add(service, book))
    size = service.store.size_on_disk(base.id)
    monkeypatch.setattr("app.planning.disk_free", lambda path: size)
    with pytest.raises(AppError, match="takes up to"):
        begin(service, [*base.document_ids, *add(service, letter)], "exact", BUDGET)
    assert begin_more(service, base, letter).status == "reading"


def test_a_conversation_goes_on_over_what_began_with_the_same_documents(
    service: Service, book: Path, letter: Path
) -> None:
    base = read_through(service, add(service, book))
    session = service.store.add_session(base.id).id
    for question in ("Who kept the lamp?", "Where?"):
        answer(service, keep_question(service, session, question).id, SHORT)
    both = read(service, begin_more(service, base, letter).id, lambda report: None)
    branch = service.store.branch_session(session, 2, both.id)
    assert (branch.context_id, branch.turns, branch.title) == (both.id, 2, "Who kept the lamp?")
    assert answer(service, keep_question(service, branch.id, "And then?").id, SHORT).status == "done"
    assert service.store.session(session).turns == 2
    other = begin(service, add(service, letter), "streaming", BUDGET)
    with pytest.raises(StoreError, match=rf"{other.id} did not begin with the documents"):
        service.store.branch_session(session, 2, other.id)


def test_it_is_done_from_the_command_line(
    tmp_path: Path, tiny: Path, book: Path, letter: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(*arguments: str) -> tuple[int, str, str]:
        return in_process(tmp_path / "home", capsys, *arguments)

    with_tiny = ("--model", str(tiny))
    status, out, _ = run(*with_tiny, "ingest", str(book), "--budget", "320", "--json")
    base = json.loads(out)
    status, out, err = run("ingest", str(letter), "--add-to", base["context"], "--json")
    both = json.loads(out)
    assert status == 0
    assert f"Goes on behind the {base['tokens']:,} tokens that {base['context']} has read." in err
    assert [each["title"] for each in both["documents"]] == ["The Keeper", "A letter"]
    assert (both["budget"], both["tokens"] > base["tokens"]) == (320, True)
    status, out, err = run("ingest", str(letter), "--add-to", "The Keeper", "--json")
    assert (status, json.loads(out)["context"], "Known already" in err) == (0, both["context"], True)
    for options in (("--method", "exact"), ("--budget", "320"), ("--set", "top_k=8")):
        status, out, err = run("ingest", str(letter), "--add-to", base["context"], *options)
        assert (status, out, "leave them out" in err) == (2, "", True)
    status, out, err = run("ingest", str(book), "--add-to", base["context"])
    assert (status, out, "has read 'The Keeper' already" in err) == (1, "", True)
    status, out, err = run("ingest", str(letter), "--add-to", "c-222222")
    assert (status, "There is no context" in err) == (1, True)

    session = json.loads(run("ask", base["context"], "Who?", "--max-tokens", "4", "--json")[1])["session"]
    branch = json.loads(run("branch", session, "--context", both["context"], "--json")[1])
    assert (branch["context_id"], [turn["question"] for turn in branch["turns"]]) == (both["context"], ["Who?"])


def test_it_is_done_on_the_page_and_the_conversation_goes_along(
    service: Service, worker: Worker, tmp_path: Path, book: Path
) -> None:
    store, screen = service.store, Screen(service)
    actions = Actions(service, worker, screen, [], [], [])
    base = read_through(service, add(service, book))
    session = store.add_session(base.id).id
    silent = actions.add_documents(Chosen(base.id, session))
    assert silent == Chosen(add_to=base.id), "nothing was said in it"
    answer(service, keep_question(service, session, "Who kept the lamp?").id, SHORT)
    chosen = screen.settle(actions.add_documents(Chosen(base.id, session)))
    assert chosen == Chosen(add_to=base.id, along=session)
    props = screen.props(chosen)
    assert (props["new_view"], props["how"], props["estimate"]) == ({"visible": True}, *[{"visible": False}] * 2)
    assert props["add_to"]["value"] == base.id
    assert "conversation goes on there" in props["add_to"]["info"]
    assert screen.props(Chosen())["how"] == {"visible": True}

    files = [str(path) for path in upload(service, tmp_path, "A letter.txt", LETTER.encode())]
    cache = service.home / "uploads" / "cached"
    cache.mkdir()
    cached = cache / "A letter.txt"
    Path(files[0]).rename(cached)
    started, _ = actions.start_reading(
        chosen, [str(cached)], "streaming", None, None, "Where it is needed and installed", None
    )
    assert ended(service, started.context) == "done"
    wait_for(lambda: store.contexts()[0].status == "ready", "the reading")
    both = store.contexts()[0]
    assert (both.title, both.method, both.settings) == ("The Keeper, A letter", base.method, base.settings)
    settled = screen.settle(started)
    assert settled.context == both.id
    assert [turn.question for turn in store.turns(settled.session)] == ["Who kept the lamp?"]
    assert store.session(session).context_id == base.id

    gone = actions.choose_add_to(Chosen(), both.id)
    assert screen.settle(gone).add_to == both.id
    store.delete_context(both.id)
    assert screen.settle(gone) == Chosen()
