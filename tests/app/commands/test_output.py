"""The output of `stockpot ingest` and `resume`: results, messages and the exit status."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pymupdf
import pytest

from app.formatting import printable
from sessions import Store
from tests.app.helpers import PATIENCE_SEC, ROOT, TIERS, Cli, book_text, emma, in_process


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


def test_a_known_reading_is_not_done_again(
    read: tuple[Cli, dict[str, Any], str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cli, result, _ = read
    again = tmp_path / "copy.txt"
    again.write_text(book_text(40), encoding="utf-8")
    given = ("--model", cli.model, "ingest", str(again), "--method", "exact", "--budget", "320", "--json")
    status, out, err = in_process(cli.home, capsys, *given)
    assert (status, json.loads(out)["context"]) == (0, result["context"])
    assert f"has been read already, as context {result['context']}" in err
    more = (str(tmp_path / "lost.pdf"), str(tmp_path / "gone.zip"))
    status, out, err = in_process(cli.home, capsys, *given[:4], *more, *given[4:-1])
    assert (status, re.search(r"^Read before: [\d,]+ tokens in ", out, re.MULTILINE) is not None) == (1, True)
    assert "lost.pdf is not there: check the name.\n" in err
    assert err.endswith("2 files left out: see the warnings above.\n")


def test_a_document_that_is_kept_is_read_again_without_its_file(
    tmp_path: Path, tiny: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another method, or several books together, needed the files again, although the home has copies."""
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
    with Store(tmp_path / "home") as store:  # the other context has its title too
        assert [store.contexts.get(each["context"]).title for each in (first, again)] == ["Keeper", "The Keeper"]
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
        assert len(store.documents.all()) == 3  # nothing is kept if an id is unknown


def test_a_model_cannot_steer_the_terminal() -> None:
    assert printable("a\x1b[2Jb\r\x07\x9b\tc\nd") == "a[2Jb\tc\nd"


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
    assert (status, [each["title"] for each in result["documents"]]) == (1, ["good"])
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
    monkeypatch.setenv("STOCKPOT_PASSWORD", "herring")  # a known file was accepted with any password
    status, out, err = ingest(locked)
    assert (status, out) == (1, "")
    assert "The password given does not open locked.pdf" in err
    monkeypatch.delenv("STOCKPOT_PASSWORD")
    status, out, _ = ingest(locked)  # without a password it is recognised, as by its id
    assert (status, json.loads(out)["context"]) == (0, known)


def test_what_is_printed_for_programs_is_utf_8_whatever_the_terminal_speaks(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        session = store.sessions.add(emma(store).id, "Où est Zoë? 灯台")
        store.turns.finish(store.turns.add(session.id, "Où?").id, answer="là")
    for arguments in (("list", "sessions", "--json"), ("list", "sessions"), ("export", session.id)):
        command = [sys.executable, "-m", "app", "--home", str(tmp_path), *arguments]
        done = subprocess.run(
            command,
            cwd=ROOT,
            capture_output=True,
            timeout=PATIENCE_SEC,
            env={**os.environ, "PYTHONIOENCODING": "ascii"},
        )
        assert done.returncode == 0, done.stderr
        assert "Zoë? 灯台" in done.stdout.decode("utf-8")


def test_truncate_says_how_much_it_has_read(tmp_path: Path, tiny: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It claimed to have read the whole book, although it read only the beginning and the end."""
    (tmp_path / "Keeper.txt").write_text(book_text(60), encoding="utf-8")
    given = ("ingest", str(tmp_path / "Keeper.txt"), "--method", "truncate", "--budget", "300", "--set", "tail=32")
    status, out, _ = in_process(tmp_path / "home", capsys, "--model", str(tiny), *given)
    assert status == 0
    read, tokens = map(int, re.search(r"Read (\d+) of ([\d,]+) tokens", out.replace(",", "")).groups())  # type: ignore[union-attr]
    assert read < 300 < tokens
