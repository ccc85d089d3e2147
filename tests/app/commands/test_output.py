"""The command line as programs use it: what is on standard output, what on standard error, and how it ends."""

import io
import json
import os
import re
import shutil
import subprocess
import sys
from ast import literal_eval
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pymupdf
import pytest

from app.cli import main
from app.commands.asking import result_of
from app.formatting import byte_size, printable
from app.machine.doctor import examine
from sessions import ContextRow, Store
from tests.app.helpers import PATIENCE_SEC, ROOT, Cli, book_text, in_process

TIERS = {"device", "host", "disk"}


def test_ingest_prints_one_object(read: tuple[Cli, dict[str, Any], str]) -> None:
    _, result, stderr = read
    assert set(result) == {
        "context",
        "documents",
        "tokens",
        "method",
        "budget",
        "seconds",
        "tokens_per_second",
        "kv_entries",
        "kv_bytes",
        "peak_memory_bytes",
        "warnings",
    }
    assert set(result["documents"][0]) == {"id", "title", "pages", "characters", "sha256"}
    assert result["documents"][0]["title"] == "The Keeper"
    assert re.fullmatch(r"[0-9a-f]{64}", result["documents"][0]["sha256"])
    assert (result["method"], result["budget"]) == ("exact", 320)
    assert set(result["kv_bytes"]) == TIERS
    assert result["kv_bytes"]["host"] > 0
    assert 0 < result["kv_entries"] <= 320
    assert result["tokens"] > 500
    assert result["tokens_per_second"] > 0
    assert result["peak_memory_bytes"] > 1e8
    assert "Traceback" not in stderr


def test_ask_prints_one_object_and_goes_on_with_the_session(
    read: tuple[Cli, dict[str, Any], str], capsys: pytest.CaptureFixture[str]
) -> None:
    cli, result, _ = read
    first: Any = cli.json("ask", result["context"], "Who was the keeper?", "--max-tokens", "12")
    assert set(first) == {
        "session",
        "turn",
        "answer",
        "found",
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
    # The page that it names can be read, and the place there is the place on that page.
    page = json.loads(in_process(cli.home, capsys, "show", source["document"], "--page", "1", "--json")[1])
    assert (page["document"], page["page"]) == (source["document"], source["page"])
    assert source["place"].startswith(page["place"])
    assert source["quote"] in page["text"]
    assert set(first["kv_bytes"]) == TIERS
    assert first["time_to_first_token_seconds"] > 0
    # By the document's title, and without --json: the answer alone is on standard output.
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
    assert again["read_again_tokens"] == 0
    assert {source["page"] for source in again["sources"]} == {1}
    status, _, err = in_process(cli.home, capsys, "ask", result["context"], "Who?", "--max-tokens", "4", "--pages", "1")
    assert status == 0
    assert "still held" not in err, "exact holds everything"


def emma(store: Store) -> ContextRow:
    """A context over a document of that title; nothing of it is in files."""
    facts: dict[str, Any] = {"format": "txt", "pages": 1, "characters": 3, "content": {}, "file": None}
    document = store.add_document(sha256="0" * 64, title="Emma", **facts)
    reading: dict[str, Any] = {"model": "pocket", "method": "exact", "settings": {}, "budget": 320, "tokens": 9}
    return store.add_context(**reading, fingerprint="print", document_ids=[document.id])


def test_ask_says_which_quotations_are_on_a_page(tmp_path: Path) -> None:
    quotation = {"start": 9, "end": 17, "document": "d-222222", "page": 3, "place": "page 3"}
    with Store(tmp_path) as store:
        session = store.add_session(emma(store).id)
        turn = store.add_turn(session.id, "What is it?")
        said: dict[str, Any] = {"answer": "They say “a lamp”.", "measurements": {"quotations": [quotation]}}
        assert result_of(store.finish_turn(turn.id, **said))["quotations"] == [quotation]


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
        store._db.execute("UPDATE contexts SET status = 'paused' WHERE id = ?", [result["context"]])
        store._db.conn.commit()
        store.update_context(result["context"], tokens_read=0)
        assert "goes on with it" in refused("ask", result["context"], "Why?", status=1)
        store.update_context(result["context"], status="ready", tokens_read=result["tokens"])
    ask = ("ask", result["context"], "Why?", "--pages")
    assert "There is no section 9, only 1 section." in refused(*ask, "9", status=2)
    assert "'one' names no pages" in refused(*ask, "one", status=2)
    assert "--limit is 1 to 1,000" in refused("search", "keeper", "--limit", "9" * 30, status=2)
    assert in_process(cli.home, capsys, "list", "sessions", "--json") == before


def test_a_known_reading_is_not_done_again(
    read: tuple[Cli, dict[str, Any], str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cli, result, _ = read
    again = tmp_path / "copy.txt"
    again.write_text(book_text(40), encoding="utf-8")
    given = ("--model", cli.model, "ingest", str(again), "--method", "exact", "--budget", "320", "--json")
    status, out, err = in_process(cli.home, capsys, *given)
    assert (status, json.loads(out)["context"]) == (0, result["context"])
    assert "Known already" in err


def test_a_document_that_is_kept_is_read_again_without_its_file(
    tmp_path: Path, tiny: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another method, or several books together, needed the files again, of which the home has copies."""
    monkeypatch.chdir(tmp_path)
    keeper, fox = Path("Keeper.txt"), Path("Fox.txt")
    keeper.write_text(book_text(9), encoding="utf-8")
    fox.write_text("The fox slept under boat number 7.", encoding="utf-8")

    def ingest(*given: str) -> tuple[int, str, str]:
        return in_process(tmp_path / "home", capsys, "--model", str(tiny), "ingest", *given, "--json")

    first = json.loads(ingest("Keeper.txt", "--method", "exact", "--budget", "320")[1])
    [document] = first["documents"]
    keeper.unlink()
    again = json.loads(ingest(document["id"], "--method", "streaming", "--budget", "256", "--title", "The Keeper")[1])
    assert [each["id"] for each in again["documents"]] == [document["id"]]
    assert (again["method"], again["documents"][0]["title"]) == ("streaming", "Keeper")
    with Store(tmp_path / "home") as store:  # the other reading was called after it too
        assert [store.context(each["context"]).title for each in (first, again)] == ["Keeper", "The Keeper"]
    both = json.loads(ingest("Fox.txt", document["id"][:5], document["id"], "--method", "streaming")[1])
    assert [each["title"] for each in both["documents"]] == ["Fox", "Keeper"]
    fox.write_text("The fox slept under boat number 8.", encoding="utf-8")
    status, out, err = ingest("Fox.txt", "d-222222")
    assert (status, out) == (1, "")
    assert "There is no document 'd-222222'" in err
    Path(document["id"]).write_text("The fox slept under boat number 9.", encoding="utf-8")
    named = json.loads(ingest(document["id"], "--method", "streaming")[1])
    assert named["documents"][0]["title"] == document["id"]
    with Store(tmp_path / "home") as store:
        assert len(store.documents()) == 3  # and nothing of what was named beside an id that is not there


def test_a_model_cannot_steer_the_terminal() -> None:
    assert printable("a\x1b[2Jb\r\x07\x9b\tc\nd") == "a[2Jb\tc\nd"


@pytest.mark.parametrize("terminal", [True, False])
def test_an_export_does_not_steer_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, terminal: bool
) -> None:
    facts: dict[str, Any] = {"settings": {}, "budget": None, "fingerprint": "f", "tokens": 1}
    with Store(tmp_path / "home") as store:
        document = store.add_document(sha256="1" * 64, title="T", format="txt", pages=1, characters=1, content={})
        context = store.add_context(model="m", method="exact", document_ids=[document.id], **facts)
        session = store.add_session(context.id)
        store.finish_turn(store.add_turn(session.id, "Who?").id, answer="Ma\x1b[2Jra")
    monkeypatch.setattr("sys.stdout.isatty", lambda: terminal)
    status, out, _ = in_process(tmp_path / "home", capsys, "export", session.id)
    assert status == 0
    assert ("Ma[2Jra" if terminal else "Ma\x1b[2Jra") in out


def test_a_bad_file_among_good_ones_is_left_out_and_named(
    tmp_path: Path, tiny: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    good, torn, locked = (tmp_path / name for name in ("good.txt", "torn.pdf", "locked.pdf"))
    good.write_text("A text about a harbour.", encoding="utf-8")
    torn.write_bytes(b"%PDF-1.7 nonsense")
    with pymupdf.open() as pdf:
        pdf.new_page().insert_text((72, 72), "The keeper of the lamp was Orla Quent.")
        pdf.save(locked, encryption=pymupdf.PDF_ENCRYPT_AES_256, user_pw="swordfish")

    def ingest(*files: Path) -> tuple[int, str, str]:
        names = [str(each) for each in files]
        return in_process(tmp_path / "home", capsys, "--model", str(tiny), "ingest", *names, "--json")

    status, out, err = ingest(torn, good, locked)
    result = json.loads(out)
    assert (status, [each["title"] for each in result["documents"]]) == (0, ["good"])
    assert len(result["warnings"]) == 2
    assert all(f"warning: {each}\n" in err for each in result["warnings"])
    assert "--password" in err
    assert "Loading weights" not in err
    status, out, err = ingest(torn, locked)
    assert (status, out) == (1, "")
    assert all(words in err for words in ("torn.pdf", "locked.pdf", "--password"))
    status, out, err = ingest(locked)
    assert (status, out) == (1, "")
    assert "locked.pdf is encrypted" in err
    assert "--password" in err.splitlines()[-1]
    status, _, err = ingest(tmp_path / "\x1b[2Jmissing.pdf")
    assert (status, "[2Jmissing.pdf is not there" in err, "\x1b" in err) == (1, True, False)
    monkeypatch.setenv("STOCKPOT_PASSWORD", "swordfish")
    status, out, _ = ingest(locked)
    assert (status, [each["title"] for each in json.loads(out)["documents"]]) == (0, ["locked"])
    known = json.loads(out)["context"]
    monkeypatch.setenv("STOCKPOT_PASSWORD", "herring")  # of a file that is known, it was taken without a look
    status, out, err = ingest(locked)
    assert (status, out) == (1, "")
    assert "The password given does not open locked.pdf" in err
    monkeypatch.delenv("STOCKPOT_PASSWORD")
    status, out, _ = ingest(locked)  # without any it is recognised, as a document by its id
    assert (status, json.loads(out)["context"]) == (0, known)


def test_show_is_for_people_without_json(
    read: tuple[Cli, dict[str, Any], str], capsys: pytest.CaptureFixture[str]
) -> None:
    cli, result, _ = read
    status, out, _ = in_process(cli.home, capsys, "show", result["context"])
    assert status == 0
    assert f"  tokens: {result['tokens']:,}\n" in out
    assert f"  tokens read: {result['tokens']:,}\n" in out
    assert re.search(r"^  time: \d+:\d\d \([\d.,]+ tokens/s\)$", out, re.MULTILINE)
    assert re.search(r"^  on the host: [\d,]+ entries per KV head and layer, [\d.]+ [kM]B$", out, re.MULTILINE)
    assert f"  document: {result['documents'][0]['id']} The Keeper\n" in out
    assert "{" not in out
    assert "None" not in out


def test_show_takes_the_turn_that_ask_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = {"document": "d-222222", "page": 3, "place": "page 3", "quote": "The  lamp.", "weight": 0.5}
    with Store(tmp_path) as store:
        session = store.add_session(emma(store).id, "About Emma").id
        store.finish_turn(store.add_turn(session, "Who?").id, answer="Emma.")
        turn = store.finish_turn(store.add_turn(session, "What?").id, answer="A lamp.", sources=[source]).id
    shown = json.loads(in_process(tmp_path, capsys, "show", turn, "--json")[1])
    assert (shown["kind"], shown["id"], shown["answer"]) == ("turn", turn, "A lamp.")
    status, out, _ = in_process(tmp_path, capsys, "show", turn)
    assert out == f"turn {turn} of session {session}\n  2. What?\n     A lamp.\n  page 3 (50%): The lamp.\n"
    with Store(tmp_path) as store:
        missed = store.add_turn(session, "When?").id
        store.finish_turn(missed, answer="That is not in the text.", sources=[source], measurements={"found": False})
    out = in_process(tmp_path, capsys, "show", missed)[1]
    assert out.endswith("That is not in the text.\n  Closest passages:\n  page 3 (50%): The lamp.\n")
    status, _, err = in_process(tmp_path, capsys, "show", "t-222222")
    assert (status, "t-222222" in err) == (1, True)


def test_show_names_the_turns_of_a_session_and_says_why_one_failed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing but --json had the ids that it takes, and nothing at all the reason."""
    with Store(tmp_path) as store:
        session = store.add_session(emma(store).id, "About Emma").id
        done = store.finish_turn(store.add_turn(session, "Who?").id, answer="Emma.").id
        failed = store.finish_turn(store.add_turn(session, "What?").id, status="failed", error="No memory was left.").id
        stopped = store.finish_turn(store.add_turn(session, "Why?").id, status="cancelled").id
    out = in_process(tmp_path, capsys, "show", session)[1]
    assert f"  1. [{done}] Who?\n     Emma.\n" in out
    assert f"  2. [{failed}] What?\n     [failed: No memory was left.]\n" in out
    assert f"  3. [{stopped}] Why?\n     [cancelled]\n" in out
    assert "[failed: No memory was left.]" in in_process(tmp_path, capsys, "show", failed)[1]


def test_a_device_that_is_not_there_is_missed_before_a_session_is_begun(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A session with a failed turn was kept."""
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr("sys.stdin", io.StringIO("Who?\n"))
    with Store(tmp_path) as store:
        context = store.update_context(emma(store).id, status="ready").id
        for command in (("ask", context, "Who?"), ("chat", context)):
            status, out, err = in_process(tmp_path, capsys, *command, "--device", "cuda")
            assert (status, out) == (2, "")
            assert "No CUDA device is available" in err
        assert store.sessions() == []


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
    """--quantize was ignored, and nobody was told."""
    with Store(tmp_path) as store:
        context = emma(store).id
    err = in_process(tmp_path, capsys, *given, "ask", context, "Who?")[2]
    assert (f"{context} stays with its model, pocket; --model and --quantize are for new readings." in err) == noted


def test_what_is_deleted_is_said_and_is_no_guess_where_nobody_is_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With --yes the two first letters of a title deleted a book with all that was said of it, without a word."""
    with Store(tmp_path) as store:
        context = emma(store)
        for _ in range(2):
            store.add_session(context.id)
        [document] = context.document_ids
        what = f"document {document} (Emma) with 1 context (“Emma”) and 2 sessions (“New session” and “New session”)"
        status, out, err = in_process(tmp_path, capsys, "delete", "em", "--yes")
        assert (status, out) == (1, "")
        assert f"'em' only begins the title of {what}: to delete it unasked, name it by its id." in err
        with monkeypatch.context() as person:
            person.setattr("sys.stdin", SimpleNamespace(isatty=lambda: True, readline=lambda: "n\n"))
            assert f"Delete {what}? [y/N]" in in_process(tmp_path, capsys, "delete", "em")[2]
        session = store.sessions()[0].id
        done = in_process(tmp_path, capsys, "delete", session[:-1], "--yes")
        assert done == (0, f"{session}\n", f"Deleted session {session} (New session) over “Emma”.\n")
        done = in_process(tmp_path, capsys, "delete", context.id, "--yes", "--json")
        assert json.loads(done[1]) == {"deleted": context.id, "kind": "context"}
        assert done[2] == f"Deleted context {context.id} (Emma) with 1 session (“New session”).\n"
        done = in_process(tmp_path, capsys, "delete", "emma", "--yes")
        assert done == (0, f"{document}\n", f"Deleted document {document} (Emma).\n")


def test_several_things_are_deleted_after_one_question(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with Store(tmp_path) as store:
        context = emma(store)
        [document] = context.document_ids
        first, second, third = (store.add_session(context.id).id for _ in range(3))
        for unclear in (("em",), ("s-222222",)):
            status, out, _ = in_process(tmp_path, capsys, "delete", first, *unclear, "--yes")
            assert (status, out, len(store.sessions())) == (1, "", 3)
        done = json.loads(in_process(tmp_path, capsys, "delete", first, second, first, "--yes", "--json")[1])
        assert done == [{"deleted": id, "kind": "session"} for id in (first, second)]
        with monkeypatch.context() as person:
            person.setattr("sys.stdin", SimpleNamespace(isatty=lambda: True, readline=lambda: "y\n"))
            status, out, err = in_process(tmp_path, capsys, "delete", document, third, context.id)
        assert (status, out.split()) == (0, [third, context.id, document])  # none was gone with another by then
        talk = "1 session (“New session”)"
        named = (
            f"document {document} (Emma) with 1 context (“Emma”) and {talk}; session {third} (New session) over “Emma”"
        )
        assert f"Delete {named}; context {context.id} (Emma) with {talk}? [y/N]" in err
        assert (store.documents(), store.contexts(), store.sessions()) == ([], [], [])


def test_the_title_of_a_document_is_no_file_and_leads_to_its_id(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with Store(tmp_path / "home") as store:
        emma(store)
    hint = "A document that is kept is named by its id: `stockpot list documents`."
    status, out, err = in_process(tmp_path / "home", capsys, "ingest", "emma")
    assert (status, out, hint in err) == (1, "", True)
    assert hint not in in_process(tmp_path / "home", capsys, "ingest", "emma.txt")[2]


def test_a_branch_is_a_session_to_ask_in(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Store(tmp_path) as store:
        context = emma(store)
        session = store.add_session(context.id, "About Emma").id
        for question in ("Who?", "Where?"):
            store.finish_turn(store.add_turn(session, question).id, answer="So.")
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


def test_what_is_printed_for_programs_is_utf_8_whatever_the_terminal_speaks(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        session = store.add_session(emma(store).id, "Où est Zoë? 灯台")
        store.finish_turn(store.add_turn(session.id, "Où?").id, answer="là")
    for arguments in (("list", "sessions", "--json"), ("list", "sessions"), ("export", session.id)):
        command = [sys.executable, "-m", "app.cli", "--home", str(tmp_path), *arguments]
        done = subprocess.run(
            command,
            cwd=ROOT,
            capture_output=True,
            timeout=PATIENCE_SEC,
            env={**os.environ, "PYTHONIOENCODING": "ascii"},
        )
        assert done.returncode == 0, done.stderr
        assert "Zoë? 灯台" in done.stdout.decode("utf-8")


def test_long_titles_leave_a_list_readable(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Store(tmp_path) as store:
        row = store.add_document(
            sha256="0" * 64, title="On and on " * 30, format="txt", pages=1, characters=3, content={}, file=None
        )
    status, out, _ = in_process(tmp_path, capsys, "list", "documents")
    assert (status, max(map(len, out.splitlines())) < 140) == (0, True)
    assert f"{row.title[:59]}…" in out


def test_listing_renaming_searching_and_deleting(
    read: tuple[Cli, dict[str, Any], str], capsys: pytest.CaptureFixture[str]
) -> None:
    cli, result, _ = read
    home, document = cli.home, result["documents"][0]["id"]
    status, out, _ = in_process(home, capsys, "list", "documents", "--json")
    assert [row["id"] for row in json.loads(out)] == [document]
    # Global options are accepted after the command as well.
    assert main(["list", "contexts", "--json", "--home", str(home)]) == 0
    context = json.loads(capsys.readouterr().out)[0]
    assert context["title"] == "The Keeper"
    # What two models read of one text with one method looked alike.
    heads, row = in_process(home, capsys, "list", "contexts")[1].splitlines()
    assert row.endswith(context["model"])
    assert context["bytes_on_disk"] > 1000
    assert row[heads.index("SIZE") :].startswith(f"{byte_size(context['bytes_on_disk'])}  ")
    # The document and its context have one title: the document is meant.
    shown = json.loads(in_process(home, capsys, "show", "the keep", "--json")[1])
    assert (shown["kind"], shown["id"]) == ("document", document)
    status, out, _ = in_process(home, capsys, "rename", "The Keeper", "The Lamp")
    assert (status, out.strip()) == (0, document)
    done = json.loads(in_process(home, capsys, "rename", "The Lamp", " The Light ", "--json")[1])
    assert done == {"renamed": document, "kind": "document", "title": "The Light"}
    for title, called in (("The Book", "The Book"), ("", "The Light")):
        done = json.loads(in_process(home, capsys, "rename", result["context"], title, "--json")[1])
        assert done == {"renamed": result["context"], "kind": "context", "title": called}
    asked = json.loads(
        in_process(home, capsys, "ask", result["context"], "Which cape is it?", "--max-tokens", "4", "--json")[1]
    )
    sessions = json.loads(in_process(home, capsys, "list", "sessions", "--json")[1])
    assert asked["session"] in {row["id"] for row in sessions}
    hits = json.loads(in_process(home, capsys, "search", "cape", "--json")[1])
    assert hits[0]["question"] == "Which cape is it?"
    found = in_process(home, capsys, "search", "cape")[1]
    assert re.search(r"^s-\w+  Which cape is it\?\n    .*cape.*\n    .+ · exact · 320$", found, re.MULTILINE)
    status, out, _ = in_process(home, capsys, "show", "the light", "--page", "1")
    assert (status, "Tobias Renn" in out) == (0, True)
    status, out, err = in_process(home, capsys, "show", document, "--page", "99")
    assert (status, out) == (2, ""), "as of `ask --pages`"
    assert "There is no section 99, only 1 section." in err
    status, _, err = in_process(home, capsys, "delete", document)
    assert status == 2
    assert "--yes" in err
    done = json.loads(in_process(home, capsys, "delete", "The Light", "--yes", "--json")[1])
    assert done == {"deleted": document, "kind": "document"}
    for noun in ("documents", "contexts", "sessions"):
        assert json.loads(in_process(home, capsys, "list", noun, "--json")[1]) == []


def test_what_is_kept_is_looked_at_without_torch(tmp_path: Path) -> None:
    """Which took two seconds of three to load, to list a few titles."""
    with Store(tmp_path) as store:
        session = store.add_session(emma(store).id, "About Emma").id
        store.finish_turn(store.add_turn(session, "Who?").id, answer="She.")
    asked = [["list", "contexts"], ["show", session], ["search", "who"], ["export", session], ["branch", session]]
    asked += [["rename", session, "Emma again"], ["delete", session, "--yes"]]
    code = f"import sys; sys.modules['torch'] = None; from app.cli import main; print([main(each) for each in {asked}])"
    environment = {**os.environ, "STOCKPOT_HOME": str(tmp_path)}
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, env=environment)
    assert ran.stdout.splitlines()[-1:] == [str([0] * len(asked))], ran.stderr


def test_methods_and_doctor_are_objects_for_programs(
    tmp_path: Path, tiny: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = json.loads(in_process(tmp_path, capsys, "methods", "--json")[1])
    assert {"exact", "infinipot", "full", "streaming", "truncate"} <= {row["name"] for row in rows}
    assert [row["default"] for row in rows].count(True) == 1
    in_words = in_process(tmp_path, capsys, "methods")[1].splitlines()
    budgets = [line.split(",")[0].strip() for line in in_words if line.startswith("    budget=")]
    assert budgets == [f"budget={'none' if row['budget'] is None else row['budget']}" for row in rows]
    assert not any(word in line for line in in_words for word in ("=None", "=True", "=False"))  # which --set refuses
    status, out, _ = in_process(tmp_path / "home", capsys, "doctor", "--json", "--model", str(tiny))
    found = json.loads(out)
    assert (status, found["ok"]) == (0, True)
    status, out, _ = in_process(tmp_path / "home", capsys, "doctor", "--json", "--model", str(tmp_path / "none"))
    assert (status, json.loads(out)["ok"]) == (1, False)
    (tmp_path / "file").write_text("no folder")
    for home in (tmp_path / "file", tmp_path / "file" / "home"):  # of which it said that they would be made
        status, out, _ = in_process(home, capsys, "doctor", "--json", "--model", str(tiny))
        assert (status, [each["name"] for each in json.loads(out)["checks"] if each["needed"] and not each["ok"]]) == (
            1,
            ["home"],
        )


EXAMINED_WITHOUT = """
import importlib, os, sys

for missing, others_have in [each.split(":") for each in sys.argv[2:]]:
    if not os.fork():
        sys.modules[missing] = None
        from app.machine.doctor import examine
        print([missing, [(each.name, each.ok) for each in examine(sys.argv[1], sys.argv[1])]], flush=True)
        os._exit(0)
    assert os.wait()[1] == 0, missing
    if others_have:  # it takes longest to load
        importlib.import_module(others_have)
"""
MISSING = {"torch": "torch", "safetensors": "", "psutil": "engine", "sqlite_utils": "", "ingest": ""}
"""And what is loaded once that has been looked at, which those behind it do not miss."""


@pytest.fixture(scope="module")
def examined(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[tuple[str, bool]]]:
    """What the doctor finds where a package is missing, in a process that never had it: names, and whether it is ok."""
    missing = [":".join(each) for each in MISSING.items()]
    command = [sys.executable, "-c", EXAMINED_WITHOUT, str(tmp_path_factory.mktemp("examined")), *missing]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    return dict(map(literal_eval, ran.stdout.splitlines()))


@pytest.mark.parametrize("missing", MISSING)
def test_doctor_names_what_is_broken_and_looks_at_the_rest(
    examined: dict[str, list[tuple[str, bool]]], missing: str
) -> None:
    names = {"python", "torch", "memory", "disk", "home", "model", "attention", "kernels", "ocr", "sample book"}
    assert names <= {name for name, _ in examined[missing]}
    assert not all(ok for _, ok in examined[missing])


def test_doctor_advises_to_train_the_pocket_model_only_where_it_is_what_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It did so too where there was no GPU."""
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    [model] = [each for each in examine(str(tmp_path), device="cuda") if each.name == "model"]
    assert (model.ok, "No CUDA device" in model.detail, model.advice) == (False, True, "")
    monkeypatch.setattr("app.machine.doctor.model_source", lambda name: str(tmp_path / "none"))
    [model] = [each for each in examine(str(tmp_path)) if each.name == "model"]
    assert (model.ok, "stockpot train pocket" in model.advice) == (False, True)


def test_a_model_of_a_long_window_is_read_with_settings_that_suit_it(
    tmp_path: Path, tiny: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    long = tmp_path / "long"
    shutil.copytree(tiny, long)
    config = json.loads((long / "config.json").read_text())
    (long / "config.json").write_text(json.dumps({**config, "max_position_embeddings": 1 << 17}))
    by_model = [
        {row["name"]: row for row in json.loads(in_process(tmp_path, capsys, "methods", "--json", *given)[1])}
        for given in ((), ("--model", str(long)))
    ]
    assert [rows["infllm"]["settings"]["block"] for rows in by_model] == [8, 128]
    assert by_model[0]["infllm"]["presets"] == by_model[1]["infllm"]["presets"]

    text = tmp_path / "notes.txt"
    text.write_text("The fox sleeps under the boat. " * 40)
    for given, block, units in (((), 128, 16), (("--set", "units=4"), 128, 4), (("--set", "preset=pocket"), 8, 64)):
        status, out, _ = in_process(
            tmp_path / "home", capsys, "ingest", str(text), "--model", str(long), "--method", "infllm", "--json", *given
        )
        assert status == 0
        shown = json.loads(in_process(tmp_path / "home", capsys, "show", json.loads(out)["context"], "--json")[1])
        assert (shown["settings"]["block"], shown["settings"]["units"]) == (block, units)


NOWHERE = "http://127.0.0.1:9"  # nobody listens there


def cached(hub: Path, name: str, tiny: Path) -> None:
    """A model in the hub's cache, as a download leaves it."""
    folder, revision = hub / f"models--{name.replace('/', '--')}", "0" * 40
    (folder / "refs").mkdir(parents=True)
    (folder / "refs" / "main").write_text(revision)
    shutil.copytree(tiny, folder / "snapshots" / revision)


def test_a_source_names_its_document_where_there_are_several(
    tmp_path: Path, tiny: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It said "part 1, paragraph 3" of whichever of the books; and so did `show` of the turn."""
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


def test_without_a_network_a_hub_id_is_refused_at_once_and_one_in_the_cache_is_read_with(
    tmp_path: Path, tiny: Path, book: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """huggingface_hub tries each file six times: 23 s for a model that is not there, two minutes for one that is."""
    monkeypatch.setenv("HF_ENDPOINT", NOWHERE)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    cached(tmp_path / "hub", "somebody/tiny", tiny)
    given = ["--home", str(tmp_path / "home"), "--model"]
    refused, read = [*given, "somebody/large", "plan", "--tokens", "1K"], [*given, "somebody/tiny", "ingest", str(book)]
    # In a process of their own, as where the hub is, and its cache, is looked up when its package is loaded.
    code = f"from app.cli import main; assert main({refused}) == 1; assert main({[*read, '--json']}) == 0"
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_SEC)
    assert ran.returncode == 0, ran.stderr
    assert "'somebody/large' is not on this machine" in ran.stderr
    assert "connect" in ran.stderr
    assert json.loads(ran.stdout)["tokens"] > 100
    assert "etry" not in ran.stderr


def test_truncate_says_how_much_it_has_read(tmp_path: Path, tiny: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It claimed to have read all of a book of which it read the beginning and the end."""
    (tmp_path / "Keeper.txt").write_text(book_text(60), encoding="utf-8")
    given = ("ingest", str(tmp_path / "Keeper.txt"), "--method", "truncate", "--budget", "300", "--set", "tail=32")
    status, out, _ = in_process(tmp_path / "home", capsys, "--model", str(tiny), *given)
    assert status == 0
    read, tokens = map(int, re.search(r"Read (\d+) of ([\d,]+) tokens", out.replace(",", "")).groups())  # type: ignore[union-attr]
    assert read < 300 < tokens
