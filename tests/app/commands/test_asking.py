"""`stockpot ask` and `branch`: their output, and the sessions that they keep."""

import io
import json
import re
from pathlib import Path
from typing import Any

import pytest

from app.commands.asking import result_of
from app.formatting import printable
from sessions import Store
from tests.app.helpers import TIERS, Cli, book_text, emma, in_process


def test_ask_prints_one_object_and_goes_on_with_the_session(
    read: tuple[Cli, dict[str, Any], str], capsys: pytest.CaptureFixture[str]
) -> None:
    cli, result, _ = read
    given = ("ask", result["context"], "Who was the keeper?", "--max-tokens", "12", "--json")
    first = json.loads(in_process(cli.home, capsys, *given)[1])
    assert set(first) == {
        "session",
        "turn",
        "answer",
        "found",
        "sure",
        "unsupported",
        "quotations",
        "citations",
        "sources",
        "time_to_first_token_seconds",
        "tokens_per_second",
        "prompt_tokens",
        "answer_tokens",
        "read_again_tokens",
        "kv_entries",
        "kv_bytes",
        "sampling",
        "warnings",
    }
    assert first["sampling"]["temperature"] == 0.0  # the pocket model's own settings
    assert first["sources"]
    assert all(
        set(source) == {"document", "page", "place", "quote", "weight", "start", "end"} for source in first["sources"]
    )
    source = first["sources"][0]
    assert source["document"] == result["documents"][0]["id"]
    # The named page can be read, and has the place.
    page = json.loads(in_process(cli.home, capsys, "show", source["document"], "--page", "1", "--json")[1])
    assert (page["document"], page["page"]) == (source["document"], source["page"])
    assert source["place"].startswith(page["place"])
    assert source["quote"] in page["text"]
    assert set(first["kv_bytes"]) == TIERS
    assert first["time_to_first_token_seconds"] > 0
    # By the document's title, and without --json, standard output has the answer alone.
    again = ("ask", "The Keeper", "And who built it?", "--session", first["session"], "--max-tokens", "12")
    status, out, _ = in_process(cli.home, capsys, *again)
    assert status == 0
    shown = json.loads(in_process(cli.home, capsys, "show", first["session"], "--json")[1])
    assert [turn["question"] for turn in shown["turns"]] == ["Who was the keeper?", "And who built it?"]
    assert out.rstrip("\n") == printable(shown["turns"][1]["answer"]).rstrip("\n")


def test_ask_turns_to_pages_that_are_named(
    read: tuple[Cli, dict[str, Any], str], capsys: pytest.CaptureFixture[str]
) -> None:
    cli, result, _ = read
    asked = ("ask", result["context"], "Who was the keeper?", "--max-tokens", "4", "--pages", "1/21 - 22", "--json")
    again = json.loads(in_process(cli.home, capsys, *asked)[1])
    assert again["pages"] == "1/21-22"
    assert again["read_again_tokens"] > 0
    assert {source["page"] for source in again["sources"]} == {1}
    status, _, err = in_process(cli.home, capsys, "ask", result["context"], "Who?", "--max-tokens", "4", "--pages", "1")
    assert status == 0
    assert "were read for the answer" not in err
    known = (*asked[:-3], "--up-to", "1/3", "--json")
    assert json.loads(in_process(cli.home, capsys, *known)[1])["pages"] == "1/1-3"
    assert "not both" in in_process(cli.home, capsys, *known, "--pages", "1/2")[2]


def test_recap_prints_the_chapters(read: tuple[Cli, dict[str, Any], str], capsys: pytest.CaptureFixture[str]) -> None:
    cli, result, _ = read
    told = json.loads(in_process(cli.home, capsys, "recap", result["context"], "--up-to", "1/30", "--json")[1])
    assert [(each["title"], each["pages"]) for each in told] == [("part 1", "1/1-30")]
    assert told[0]["sentences"] is not None
    assert "There is no section 9" in in_process(cli.home, capsys, "recap", result["context"], "--up-to", "9")[2]


def test_ask_says_which_quotations_are_on_a_page(tmp_path: Path) -> None:
    quotation = {"start": 9, "end": 17, "document": "d-222222", "page": 3, "place": "page 3"}
    with Store(tmp_path) as store:
        session = store.sessions.add(emma(store).id)
        turn = store.turns.add(session.id, "What is it?")
        said: dict[str, Any] = {"answer": "They say “a lamp”.", "measurements": {"quotations": [quotation]}}
        assert result_of(store.turns.finish(turn.id, **said))["quotations"] == [quotation]


def test_a_question_that_is_not_asked_leaves_no_session(
    read: tuple[Cli, dict[str, Any], str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    cli, result, _ = read

    def refused(*given: str, status: int) -> str:
        ended, out, err = in_process(cli.home, capsys, *given)
        assert (ended, out) == (status, "")
        return err

    before = in_process(cli.home, capsys, "list", "sessions", "--json")
    assert "at most 20,000" in refused("ask", result["context"], "why " * 9000, status=2)
    monkeypatch.setattr("sys.stdin", io.StringIO("\n\n"))
    assert in_process(cli.home, capsys, "chat", result["context"])[:2] == (0, "")
    with Store(cli.home) as store:
        with store.database.transaction() as db:
            db.execute("UPDATE contexts SET status = 'paused' WHERE id = ?", [result["context"]])
        store.contexts.update(result["context"], tokens_read=0)
        assert "goes on with it" in refused("ask", result["context"], "Why?", status=1)
        store.contexts.update(result["context"], status="ready", tokens_read=result["tokens"])
    ask = ("ask", result["context"], "Why?", "--pages")
    assert "There is no section 9, only 1 section." in refused(*ask, "9", status=2)
    assert "'one' names no pages" in refused(*ask, "one", status=2)
    assert "--limit is 1 to 1,000" in refused("search", "keeper", "--limit", "9" * 30, status=2)
    assert in_process(cli.home, capsys, "list", "sessions", "--json") == before


def test_a_device_that_is_not_there_is_missed_before_a_session_is_begun(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A session with a failed turn was kept."""
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr("sys.stdin", io.StringIO("Who?\n"))
    with Store(tmp_path) as store:
        context = store.contexts.update(emma(store).id, status="ready").id
        for command in (("ask", context, "Who?"), ("chat", context)):
            status, out, err = in_process(tmp_path, capsys, *command, "--device", "cuda")
            assert (status, out) == (2, "")
            assert "No CUDA device is available" in err
        assert store.sessions.all() == []


@pytest.mark.parametrize(
    ("given", "noted"),
    [
        ((), False),
        (("--model", "pocket"), False),
        (("--quantize", "none"), False),
        (("--quantize", "nf4"), True),
        (("--model", "pocket:8bit"), True),
    ],
)
def test_another_model_or_its_bits_are_not_for_a_context_that_there_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], given: tuple[str, ...], noted: bool
) -> None:
    """--quantize was ignored without a message."""
    with Store(tmp_path) as store:
        context = emma(store).id
    err = in_process(tmp_path, capsys, *given, "ask", context, "Who?")[2]
    assert (f"{context} stays with its model, pocket; --model and --quantize are for new readings." in err) == noted


def test_a_branch_is_a_session_to_ask_in(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Store(tmp_path) as store:
        context = emma(store)
        session = store.sessions.add(context.id, "About Emma").id
        for question in ("Who?", "Where?"):
            store.turns.finish(store.turns.add(session, question).id, answer="So.")
    status, out, err = in_process(tmp_path, capsys, "branch", session)
    assert (status, bool(re.fullmatch(r"s-\w{6}\n", out))) == (0, True)
    assert f'stockpot ask {context.id} "..." --session {out.strip()}' in err
    for options, kept in (((), ["Who?"]), (("--turns", "2"), ["Who?", "Where?"]), (("--turns", "0"), [])):
        status, out, _ = in_process(tmp_path, capsys, "branch", session, *options, "--json")
        shown = json.loads(out)
        assert (status, shown["kind"], [turn["question"] for turn in shown["turns"]]) == (0, "session", kept)
        assert shown["id"] != session
    status, out, err = in_process(tmp_path, capsys, "branch", session, "--turns", "3")
    assert (status, out) == (1, "")
    assert "has 2 turns" in err
    status, out, _ = in_process(tmp_path, capsys, "branch", "--help")
    assert "--turns 2" in " ".join(out.split())


def test_a_source_names_its_document_where_there_are_several(
    tmp_path: Path, tiny: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`ask` and `show` said "part 1, paragraph 3" without the book."""
    books = []
    for title in ("Keeper", "Fox"):
        books.append(tmp_path / f"{title}.txt")
        books[-1].write_text(book_text(9) + title)
    home, given = tmp_path / "home", ("--model", str(tiny))
    read = json.loads(in_process(home, capsys, *given, "ingest", *map(str, books), "--json")[1])
    shown = in_process(home, capsys, *given, "ask", read["context"], "Where?", "--max-tokens", "4")[2]
    assert re.search(r"^  (Keeper|Fox), part 1", shown, re.MULTILINE)
    turn = json.loads(in_process(home, capsys, "search", "where", "--json")[1])[0]["turn"]
    assert re.search(r"^  (Keeper|Fox), part 1", in_process(home, capsys, "show", turn)[1], re.MULTILINE)
