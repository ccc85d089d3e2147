"""Documents are added to a context: the new one continues at its end, and the old one stays as it was."""

import json
from pathlib import Path
from urllib.parse import parse_qsl

import pytest

from app.asking.answer_options import AnswerOptions
from app.asking.turns import answer, branch, keep_question
from app.errors import AppError
from app.jobs.uploads import cache
from app.jobs.work import Stopped
from app.jobs.worker import Worker
from app.reading import readings
from app.reading.documents import IngestOptions
from app.reading.methods import spec_of
from app.reading.preparing import prepare, prepare_more
from app.reading.progress import Report
from app.reading.readings import read
from app.service import Service
from app.web.actions import Actions
from app.web.metrics import MetricsReader
from app.web.tab_state import Selection, TabState
from engine import ContextMismatch, SettingsError
from engine.trained.beacons import FILE, Beacons
from engine.trained.sidecar_weights import save_weights
from sessions import ContextRow, NotFound, StoreCorrupt, StoreError
from tests.app.helpers import (
    BUDGET,
    SHORT,
    add,
    begin,
    book_text,
    ended,
    in_process,
    other_words,
    read_through,
    upload,
    wait_for,
)
from tests.app.tiny import make_tiny_model

POST = [f"On day {n} the post came late, and the cat sat on chair number {n}." for n in range(20)]
LETTER = "\n\n".join([*POST[:12], "The pass key of the boathouse is 70315.", *POST[12:]])


@pytest.fixture
def letter(tmp_path: Path) -> Path:
    path = tmp_path / "A letter.txt"
    path.write_text(LETTER, encoding="utf-8")
    return path


def begin_more(service: Service, base: ContextRow, *files: Path, title: str | None = None) -> ContextRow:
    """Prepare files to be read after the end of a context, and begin the reading."""
    return readings.begin(service, prepare_more(service, base.id, add(service, *files)), title=title)


def said(service: Service, context: str, question: str) -> str:
    """Return the answer to a question in a session of its own."""
    turn = keep_question(service, service.store.sessions.add(context).id, question)
    return answer(service, turn.id, AnswerOptions(max_tokens=24)).answer


@pytest.mark.parametrize("method", ["exact", "locret"])
def test_both_the_book_and_what_was_added_are_known(
    tmp_path: Path, model: str, book: Path, letter: Path, method: str
) -> None:
    service = Service(tmp_path / "home", model, "cpu")
    base = read_through(service, add(service, book), method)
    before = service.store.contexts.state(base.id).stamps()
    begun = begin_more(service, base, letter)
    assert (begun.status, begun.tokens_read, begun.seconds) == ("reading", base.tokens, 0)
    steps: list[Report] = []
    both = read(service, begun.id, steps.append)
    assert min(step.tokens_done for step in steps) == base.tokens
    assert (both.status, both.title, both.method) == ("ready", "The Keeper and A letter", method)
    assert both.document_ids == [*base.document_ids, service.store.documents.all()[0].id]
    assert both.tokens_read == both.tokens > base.tokens
    assert both.seconds > 0
    if model == "pocket":
        assert said(service, both.id, "What is the pass key of the boathouse?") == "70315"
        assert said(service, both.id, "What is the pass key of the vault?") == "48213"
    assert service.store.contexts.get(base.id) == base
    assert service.store.contexts.state(base.id).stamps() == before
    assert begin_more(service, base, letter) == service.store.contexts.get(both.id)
    service.close()


@pytest.mark.parametrize("stop", [False, True])
def test_its_seconds_and_its_speed_are_of_what_it_has_read_itself(
    service: Service, tmp_path: Path, book: Path, stop: bool
) -> None:
    """The time of the earlier reading, perhaps on a slower machine, was counted too."""
    base = read_through(service, add(service, book), "streaming")
    service.store.contexts.update(base.id, seconds=1000.0)
    more = tmp_path / "More.txt"
    more.write_text(book_text(200), encoding="utf-8")
    steps: list[Report] = []
    id = begin_more(service, service.store.contexts.get(base.id), more).id
    if stop:
        with pytest.raises(Stopped):
            read(service, id, steps.append, lambda: steps[-1].tokens_done > base.tokens + 500)
    both = read(service, id, steps.append)
    added = both.tokens - base.tokens
    assert (both.read_before, both.tokens_read, both.seconds < 1000) == (base.tokens, both.tokens, True)
    assert both.tokens_per_second == pytest.approx(added / both.seconds)
    ready = next(step for step in steps if step.stage == "ready")
    assert ready.tokens_per_second == pytest.approx(both.tokens_per_second, rel=1e-3)
    half = next(step for step in steps if step.tokens_done > base.tokens + added / 2 and step.seconds)
    even = half.seconds * (half.tokens_total - half.tokens_done) / (half.tokens_done - base.tokens)
    assert half.seconds_left == pytest.approx(even, rel=0.1), "where each token takes as long as any other"
    assert MetricsReader(service).read(both, None).reading_speed == pytest.approx(both.tokens_per_second)


def test_each_of_the_two_outlives_the_other(
    service: Service, book: Path, letter: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.parts.archive.tier_plan.SLAB", 256)
    store = service.store
    base = read_through(service, add(service, book))
    first = read(service, begin_more(service, base, letter).id, lambda report: None)
    size = store.folders.size(base.id)
    alone = store.folders.bytes_to_free([base.id])
    assert alone < size / 2, "most of it is in files that both have"
    assert store.folders.bytes_to_free([base.id, first.id]) > size
    service.contexts.drop(first.id)
    store.contexts.delete(base.id)
    assert said(service, first.id, "Who kept the lamp?")
    base = read_through(service, add(service, book))
    store.documents.delete(first.document_ids[1])
    assert [row.id for row in store.contexts.all()] == [base.id]
    assert said(service, base.id, "Who kept the lamp?")


def test_it_can_be_stopped_and_taken_up_again(service: Service, tmp_path: Path, book: Path) -> None:
    base = read_through(service, add(service, book))
    more = tmp_path / "More.txt"
    more.write_text(book_text(60), encoding="utf-8")
    begun, steps = begin_more(service, base, more), list[Report]()
    with pytest.raises(Stopped):
        read(service, begun.id, steps.append, lambda: steps[-1].tokens_done > base.tokens)
    paused = service.store.contexts.get(begun.id)
    assert (paused.status, base.tokens < paused.tokens_read < paused.tokens) == ("paused", True)
    assert begin_more(service, base, more).id == begun.id
    assert read(service, begun.id, lambda report: None).status == "ready"


def test_what_was_read_can_be_asked_before_more_is(service: Service, book: Path, letter: Path) -> None:
    base = read_through(service, add(service, book))
    begun = begin_more(service, base, letter)
    turn = answer(service, keep_question(service, service.store.sessions.add(begun.id).id, "Who?").id, SHORT)
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
    assert service.store.contexts.all()[0].title == "Both"


def test_what_somebody_called_it_is_what_it_is_called_when_it_has_grown(
    service: Service, book: Path, letter: Path
) -> None:
    base = read_through(service, add(service, book))
    service.store.contexts.rename(base.id, "The case")
    assert begin_more(service, base, letter).title == "The case"


def test_what_cannot_be_added_says_why_and_leaves_nothing(
    service: Service, book: Path, letter: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = add(service, book)
    unread = begin(service, ids, "exact", BUDGET)
    with pytest.raises(AppError, match=rf"{unread.id} .* is reading, and .* `stockpot resume {unread.id}`"):
        begin_more(service, unread, letter)
    base = read(service, unread.id, lambda report: None)
    with pytest.raises(AppError, match=r"'The Keeper' has been read in context .*: there is nothing to add"):
        begin_more(service, base, book)
    cut = read(service, begin(service, ids, "truncate", {"budget": 600}).id, lambda report: None)
    with pytest.raises(AppError, match="truncate has left out the middle"):
        begin_more(service, cut, letter)
    whole = read(service, begin(service, ids, "truncate", {"budget": base.tokens + 400}).id, lambda report: None)
    with pytest.raises(SettingsError, match="truncate chooses what it reads by the length of the whole"):
        begin_more(service, whole, letter)
    prepared = prepare_more(service, base.id, add(service, letter))
    with monkeypatch.context() as other:
        other_words(other)
        with pytest.raises(ContextMismatch, match="read behind other words"):
            readings.begin(service, prepared)
    service.store.contexts.delete(base.id)
    with pytest.raises(NotFound):
        readings.begin(service, prepared)
    left = {whole.id, cut.id}
    assert {row.id for row in service.store.contexts.all()} == left
    assert {folder.name for folder in (service.home / "contexts").iterdir()} == left


@pytest.mark.parametrize(
    ("method", "settings", "why"),
    [
        ("truncate", {}, "truncate chooses what it reads by the length of the whole"),
        ("beacon", {"window": 32}, "beacon has read this at a ratio of 1, and would read it at 2"),
    ],
)
def test_what_would_have_been_read_otherwise_is_refused_before_the_model_is_loaded(
    tmp_path: Path, book: Path, letter: Path, method: str, settings: dict[str, int], why: str
) -> None:
    name = str(make_tiny_model(tmp_path / "model"))
    spec = spec_of(name)
    save_weights(Beacons(spec), tmp_path / "model" / FILE, spec, {})
    service = Service(tmp_path / "home", name, "cpu")
    ids = add(service, book)
    budget = len(prepare(service, ids, "full", {}).stream.ids) + 400
    base = read(service, begin(service, ids, method, {"budget": budget, **settings}).id, lambda report: None)
    service.close()
    again = Service(tmp_path / "home", name, "cpu")
    with pytest.raises(SettingsError, match=why):
        begin_more(again, base, letter)
    assert again.models.held is None
    again.close()


def test_a_context_of_which_less_is_saved_than_noted_is_neither_opened_nor_added_to(
    service: Service, book: Path, letter: Path
) -> None:
    """An older database beside newer files, or the reverse, leads to this."""
    row = begin(service, add(service, book), "exact", BUDGET)
    service.store.contexts.update(row.id, status="ready", tokens_read=row.tokens)
    noted = service.store.contexts.get(row.id)
    with pytest.raises(StoreCorrupt, match=f"Context {row.id} is noted as read, but what is saved of it is less"):
        begin_more(service, noted, letter)
    with pytest.raises(StoreCorrupt, match="is noted as read"):
        said(service, row.id, "Who?")
    assert [each.id for each in service.store.contexts.all()] == [row.id]


def test_of_what_is_there_only_what_is_shared_needs_no_room_on_the_disk(
    service: Service, book: Path, letter: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tensors outside the host tier are written again, but were counted as saved."""
    ids = add(service, book)
    base, condensed = read_through(service, ids), read_through(service, ids, "streaming")
    both = [*ids, *add(service, letter)]
    free = [10**9]
    monkeypatch.setattr("app.machine.fitting.disk_free", lambda path: free[0])
    needed = {row.id: refusal(service, both, row.method, free) for row in (base, condensed)}
    free[0] = needed[base.id] - base.usage["bytes"]["host"]
    assert begin_more(service, base, letter).status == "reading"
    free[0] = needed[condensed.id] - 1000
    with pytest.raises(AppError, match="takes up to"):
        begin_more(service, condensed, letter)


def refusal(service: Service, ids: list[str], method: str, free: list[int]) -> int:
    """Return the bytes of disk that a reading asks for."""
    free[0] = 0
    with pytest.raises(AppError, match=r"takes up to ([\d.]+) (kB|MB) of disk") as error:
        begin(service, ids, method, BUDGET)
    size, unit = str(error.value).split("takes up to ")[1].split(" of disk")[0].split()
    return int(float(size) * {"kB": 1e3, "MB": 1e6}[unit])


def test_a_conversation_goes_on_over_what_began_with_the_same_documents(
    service: Service, book: Path, letter: Path
) -> None:
    base = read_through(service, add(service, book))
    session = service.store.sessions.add(base.id).id
    for question in ("Who kept the lamp?", "Where?"):
        answer(service, keep_question(service, session, question).id, SHORT)
    both = read(service, begin_more(service, base, letter).id, lambda report: None)
    branch = service.store.sessions.branch(session, 2, both.id)
    assert (branch.context_id, branch.turns, branch.title) == (both.id, 2, "Who kept the lamp?")
    assert answer(service, keep_question(service, branch.id, "And then?").id, SHORT).status == "done"
    assert service.store.sessions.get(session).turns == 2
    other = begin(service, add(service, letter), "streaming", BUDGET)
    with pytest.raises(StoreError, match=rf"{other.id} did not begin with the documents"):
        service.store.sessions.branch(session, 2, other.id)


def test_pages_are_called_as_they_are_where_there_are_more_documents(
    service: Service, book: Path, letter: Path
) -> None:
    """Edit filled in pages that could not be asked for."""
    base = read_through(service, add(service, book))
    session = service.store.sessions.add(base.id).id
    answer(service, keep_question(service, session, "Who kept the lamp?", "1/3-4").id, SHORT)
    both = begin_more(service, base, letter)
    alone, beside = branch(service, session, 1), branch(service, session, 1, both.id)
    assert [service.store.turns.all(each.id)[0].pages for each in (alone, beside)] == ["1/3-4", "1:1/3-4"]
    assert keep_question(service, beside.id, "Who?", "1:1/3-4").pages == "1:1/3-4"
    unread = begin(service, [*base.document_ids, *add(service, letter)], "streaming", BUDGET)
    with pytest.raises(AppError, match="it can be asked when some of its text has been read"):
        branch(service, session, 1, unread.id)


def test_what_is_known_among_others_is_left_out(service: Service, book: Path, letter: Path) -> None:
    base = read_through(service, add(service, book))
    both = begin_more(service, base, book, letter)
    assert both.document_ids == [*base.document_ids, *add(service, letter)]
    assert both.warnings == ["Left out: 'The Keeper' has been read already."]


def test_many_small_additions_lie_in_one_slab(service: Service, tmp_path: Path, book: Path) -> None:
    """Each addition had a slab of its own, and every answer searched all of them."""
    row = read_through(service, add(service, book))
    for number in range(4):
        note = tmp_path / f"Note {number}.txt"
        note.write_text(f"The keeper wrote note number {number}.", encoding="utf-8")
        row = read(service, begin_more(service, row, note).id, lambda report: None)
    parts, _ = service.store.contexts.state(row.id).load()
    assert [name for name in parts if name.startswith("host-")] == ["host-00000"]
    together = read_through(service, row.document_ids)
    assert said(service, row.id, "Who kept the lamp?") == said(service, together.id, "Who kept the lamp?")


def test_it_is_done_from_the_command_line(
    tmp_path: Path, tiny: Path, book: Path, letter: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(*arguments: str) -> tuple[int, str, str]:
        return in_process(tmp_path / "home", capsys, *arguments)

    with_tiny = ("--model", str(tiny))
    status, out, _ = run(*with_tiny, "ingest", str(book), "--budget", "320", "--json")
    base = json.loads(out)
    adding = ("--add-to", base["context"], "--title", "The case")
    status, out, err = run("ingest", str(letter), *adding, "--json")
    both = json.loads(out)
    assert status == 0
    shown = json.loads(run("show", both["context"], "--json")[1])
    assert (shown["title"], [each["title"] for each in shown["documents"]]) == ("The case", ["The Keeper", "A letter"])
    assert f"Goes on behind the {base['tokens']:,} tokens that {base['context']} has read." in err
    assert [each["title"] for each in both["documents"]] == ["The Keeper", "A letter"]
    assert (both["budget"], both["tokens"] > base["tokens"]) == (320, True)
    added = both["tokens"] - base["tokens"]
    assert both["tokens_per_second"] == pytest.approx(added / both["seconds"], rel=0.1)
    assert f"  read before: {base['tokens']:,}\n" in run("show", both["context"])[1]
    assert "read before" not in run("show", base["context"])[1]
    known = run("ingest", str(letter), *adding)[1]
    assert f"Read before: {added:,} tokens behind {base['tokens']:,} that were read before, in 0:" in known
    status, out, err = run("ingest", str(letter), "--add-to", "The Keeper", "--json")
    assert (status, json.loads(out)["context"], "read already" in err) == (0, both["context"], True)
    for options in (("--method", "exact"), ("--budget", "320"), ("--set", "top_k=8")):
        status, out, err = run("ingest", str(letter), "--add-to", base["context"], *options)
        assert (status, out, "leave them out" in err) == (2, "", True)
    status, out, err = run("ingest", str(book), "--add-to", base["context"])
    assert (status, out, "'The Keeper' has been read in context" in err) == (1, "", True)
    status, out, err = run("ingest", str(letter), "--add-to", "c-222222")
    assert (status, "There is no context" in err) == (1, True)

    session = json.loads(run("ask", base["context"], "Who?", "--max-tokens", "4", "--json")[1])["session"]
    branch = json.loads(run("branch", session, "--context", both["context"], "--json")[1])
    assert (branch["context_id"], [turn["question"] for turn in branch["turns"]]) == (both["context"], ["Who?"])
    assert [turn["asked_of"] for turn in branch["turns"]] == [1]
    for shown in (branch["id"], branch["turns"][0]["id"]):
        assert "\n     [Asked before “A letter” was added.]" in run("show", shown)[1]
    assert "Asked before" not in run("show", session)[1]


def test_it_is_done_on_the_page_and_the_conversation_goes_along(
    service: Service, worker: Worker, tmp_path: Path, book: Path
) -> None:
    store, tab_state = service.store, TabState(service)
    actions = Actions(service, worker, tab_state, [], [], [])
    base = read_through(service, add(service, book))
    session = store.sessions.add(base.id).id
    silent = actions.read.add_documents(Selection(base.id, session))
    assert silent == Selection(add_to=base.id), "nothing was said in it"
    answer(service, keep_question(service, session, "Who kept the lamp?").id, SHORT)
    selection = tab_state.settle(actions.read.add_documents(Selection(base.id, session)))
    assert selection == Selection(add_to=base.id, along=session)
    props = tab_state.props(selection)
    assert (props["new_view"], props["how"]) == ({"visible": True}, {"visible": False})
    assert props["add_to"]["value"] == base.id
    assert "The chat goes along." in props["add_to"]["info"]
    assert tab_state.props(Selection())["how"] == {"visible": True}

    files = [str(path) for path in upload(service, tmp_path, "A letter.txt", LETTER.encode())]
    cached = cache(service.home) / "hash" / "A letter.txt"
    cached.parent.mkdir(parents=True)
    Path(files[0]).rename(cached)
    started, _ = actions.read.start_reading(selection, [str(cached)], "streaming", None, None, "Automatic", None)
    assert ended(service, started.context) == "done"
    wait_for(lambda: store.contexts.all()[0].status == "ready", "the reading")
    both = store.contexts.all()[0]
    assert (both.title, both.method, both.settings) == ("The Keeper and A letter", base.method, base.settings)
    settled = tab_state.settle(started)
    assert settled.context == both.id
    assert [turn.question for turn in store.turns.all(settled.session)] == ["Who kept the lamp?"]
    assert "Asked before “A letter” was added." in tab_state.props(settled)["past"]["value"]
    assert store.sessions.get(session).context_id == base.id
    assert "Asked before" not in tab_state.props(Selection(base.id, session))["past"]["value"]

    sessions = store.sessions.all(both.id)
    for question in (None, "And who built it?"):  # the same again, after another turn
        if question:
            answer(service, keep_question(service, session, question).id, SHORT)
        files = upload(service, tmp_path, "A letter.txt", LETTER.encode())
        job = worker.add(files, base.id, IngestOptions(), session=session)
        assert ended(service, job.id) == "done"
        assert store.jobs.get(job.id).progress["context"] == both.id
        assert len(store.sessions.all(both.id)) == len(sessions) + bool(question)

    selection = tab_state.settle(actions.read.choose_add_to(Selection(kept=tuple(base.document_ids)), both.id))
    assert (selection.add_to, selection.kept) == (both.id, ()), "what it has read is not offered"
    assert tab_state.props(selection)["kept"]["choices"] == []
    assert actions.navigate.load(dict(parse_qsl(selection.query[1:]))) == selection
    store.contexts.delete(both.id)
    gone = tab_state.settle(selection)
    assert (gone, bool(tab_state.lost(selection, gone))) == (Selection(), True)


def test_what_has_been_read_is_asked_in_the_conversation_that_goes_along(service: Service, book: Path) -> None:
    """An empty session was opened instead."""
    worker = Worker(service)
    actions = Actions(service, worker, TabState(service), [], [], [])
    base = read_through(service, add(service, book))
    assert actions.ask.ask_early(Selection(base.id)).session
    session = service.store.sessions.all(base.id)[0].id
    assert actions.ask.ask_early(Selection(base.id)) == Selection(base.id, session)
