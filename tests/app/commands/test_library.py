"""`stockpot list`, `show`, `rename`, `delete`, `search` and `export`."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from app.cli import main
from app.formatting import byte_size
from sessions import Store
from tests.app.helpers import ROOT, Cli, emma, in_process


@pytest.mark.parametrize("terminal", [True, False])
def test_an_export_does_not_steer_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, terminal: bool
) -> None:
    facts: dict[str, Any] = {"settings": {}, "budget": None, "fingerprint": "f", "tokens": 1}
    with Store(tmp_path / "home") as store:
        document = store.documents.add(sha256="1" * 64, title="T", format="txt", pages=1, characters=1, content={})
        context = store.contexts.add(model="m", method="exact", document_ids=[document.id], **facts)
        session = store.sessions.add(context.id)
        store.turns.finish(store.turns.add(session.id, "Who?").id, answer="Ma\x1b[2Jra")
    monkeypatch.setattr("sys.stdout.isatty", lambda: terminal)
    status, out, _ = in_process(tmp_path / "home", capsys, "export", session.id)
    assert status == 0
    assert ("Ma[2Jra" if terminal else "Ma\x1b[2Jra") in out


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
        session = store.sessions.add(emma(store).id, "About Emma").id
        store.turns.finish(store.turns.add(session, "Who?").id, answer="Emma.")
        turn = store.turns.finish(store.turns.add(session, "What?").id, answer="A lamp.", sources=[source]).id
    shown = json.loads(in_process(tmp_path, capsys, "show", turn, "--json")[1])
    assert (shown["kind"], shown["id"], shown["answer"]) == ("turn", turn, "A lamp.")
    status, out, _ = in_process(tmp_path, capsys, "show", turn)
    assert (
        out
        == f"turn {turn} of session {session}\n  2. What?\n     A lamp.\n  page 3 (50% of the attention): The lamp.\n"
    )
    with Store(tmp_path) as store:
        missed = store.turns.add(session, "When?").id
        store.turns.finish(missed, answer="That is not in the text.", sources=[source], measurements={"found": False})
    out = in_process(tmp_path, capsys, "show", missed)[1]
    assert out.endswith("That is not in the text.\n  Closest passages:\n  page 3 (50% of the attention): The lamp.\n")
    status, _, err = in_process(tmp_path, capsys, "show", "t-222222")
    assert (status, "t-222222" in err) == (1, True)


def test_show_names_the_turns_of_a_session_and_says_why_one_failed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Only --json had the ids of turns, and nothing had the reason of a failure."""
    with Store(tmp_path) as store:
        session = store.sessions.add(emma(store).id, "About Emma").id
        done = store.turns.finish(store.turns.add(session, "Who?").id, answer="Emma.").id
        failed = store.turns.finish(
            store.turns.add(session, "What?").id, status="failed", error="No memory was left."
        ).id
        stopped = store.turns.finish(store.turns.add(session, "Why?").id, status="cancelled").id
    out = in_process(tmp_path, capsys, "show", session)[1]
    assert f"  1. [{done}] Who?\n     Emma.\n" in out
    assert f"  2. [{failed}] What?\n     [failed: No memory was left.]\n" in out
    assert f"  3. [{stopped}] Why?\n     [cancelled]\n" in out
    assert "[failed: No memory was left.]" in in_process(tmp_path, capsys, "show", failed)[1]


def test_what_is_deleted_is_said_and_is_no_guess_where_nobody_is_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: two letters of a title and --yes deleted a book with all its sessions, without a message."""
    with Store(tmp_path) as store:
        context = emma(store)
        for _ in range(2):
            store.sessions.add(context.id)
        [document] = context.document_ids
        what = f"document {document} (Emma) with 1 context (“Emma”) and 2 sessions (“New chat” and “New chat”)"
        status, out, err = in_process(tmp_path, capsys, "delete", "em", "--yes")
        assert (status, out) == (1, "")
        assert f"'em' only begins the title of {what}: to delete it unasked, name it by its id." in err
        with monkeypatch.context() as person:
            person.setattr("sys.stdin", SimpleNamespace(isatty=lambda: True, readline=lambda: "n\n"))
            assert f"Delete {what}? [y/N]" in in_process(tmp_path, capsys, "delete", "em")[2]
        session = store.sessions.all()[0].id
        done = in_process(tmp_path, capsys, "delete", session[:-1], "--yes")
        assert done == (0, f"{session}\n", f"Deleted session {session} (New chat) over “Emma”.\n")
        done = in_process(tmp_path, capsys, "delete", context.id, "--yes", "--json")
        assert json.loads(done[1]) == {"deleted": context.id, "kind": "context"}
        assert done[2] == f"Deleted context {context.id} (Emma) with 1 session (“New chat”).\n"
        done = in_process(tmp_path, capsys, "delete", "emma", "--yes")
        assert done == (0, f"{document}\n", f"Deleted document {document} (Emma).\n")


def test_several_things_are_deleted_after_one_question(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with Store(tmp_path) as store:
        context = emma(store)
        [document] = context.document_ids
        first, second, third = (store.sessions.add(context.id).id for _ in range(3))
        for unclear in (("em",), ("s-222222",)):
            status, out, _ = in_process(tmp_path, capsys, "delete", first, *unclear, "--yes")
            assert (status, out, len(store.sessions.all())) == (1, "", 3)
        done = json.loads(in_process(tmp_path, capsys, "delete", first, second, first, "--yes", "--json")[1])
        assert done == [{"deleted": id, "kind": "session"} for id in (first, second)]
        with monkeypatch.context() as person:
            person.setattr("sys.stdin", SimpleNamespace(isatty=lambda: True, readline=lambda: "y\n"))
            status, out, err = in_process(tmp_path, capsys, "delete", document, third, context.id)
        assert (status, out.split()) == (0, [third, context.id, document])  # none was gone with another by then
        talk = "1 session (“New chat”)"
        named = f"document {document} (Emma) with 1 context (“Emma”) and {talk}; session {third} (New chat) over “Emma”"
        assert f"Delete {named}; context {context.id} (Emma) with {talk}? [y/N]" in err
        assert (store.documents.all(), store.contexts.all(), store.sessions.all()) == ([], [], [])


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


def test_long_titles_leave_a_list_readable(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Store(tmp_path) as store:
        row = store.documents.add(
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
    # Contexts of one text by two models looked alike.
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
    """Loading torch took two of three seconds to list a few titles."""
    with Store(tmp_path) as store:
        session = store.sessions.add(emma(store).id, "About Emma").id
        store.turns.finish(store.turns.add(session, "Who?").id, answer="She.")
    asked = [["list", "contexts"], ["show", session], ["search", "who"], ["export", session], ["branch", session]]
    asked += [["rename", session, "Emma again"], ["delete", session, "--yes"]]
    code = f"import sys; sys.modules['torch'] = None; from app.cli import main; print([main(each) for each in {asked}])"
    environment = {**os.environ, "STOCKPOT_HOME": str(tmp_path)}
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, env=environment)
    assert ran.stdout.splitlines()[-1:] == [str([0] * len(asked))], ran.stderr
