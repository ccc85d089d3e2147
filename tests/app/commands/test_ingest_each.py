"""`stockpot ingest --each`: its report, its exit status and what it refuses."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.app.helpers import in_process


def test_a_folder_is_read_document_by_document_with_a_report(
    tmp_path: Path, tiny: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    library = tmp_path / "library"
    (library / "part").mkdir(parents=True)
    (library / "part" / "fox.txt").write_text("The fox slept under boat number 7.", encoding="utf-8")
    (library / "owl.txt").write_text("The owl slept under boat number 8.", encoding="utf-8")
    (library / "torn.pdf").write_bytes(b"%PDF-1.7 nonsense")
    (library / "link").symlink_to(tmp_path)
    with open(os.path.join(os.fsencode(library), b"\xff.txt"), "wb") as file:
        file.write(b"A name that is no text.")

    def ingest(*given: str) -> tuple[int, dict[str, Any], str]:
        command = ("--model", str(tiny), "ingest", str(library), "--each", "--json")
        status, out, err = in_process(tmp_path / "home", capsys, *command, *given)
        return status, json.loads(out) if out else {}, err

    status, told, err = ingest()
    assert (status, told["read"], told["known"], told["refused"], told["left"]) == (1, 3, 0, 2, 0)
    files = {Path(each["source"]).name: each for each in told["files"]}
    assert files["torn.pdf"]["state"] == files["link"]["state"] == "refused"
    assert f"refused: {library / 'torn.pdf'}: {files['torn.pdf']['reason']}" in err
    assert told["tokens"] == sum(each["tokens"] for each in files.values()) > 0
    assert len({files[name]["context"] for name in ("fox.txt", "owl.txt", "?.txt")}) == 3
    assert told["documents_per_hour"] == pytest.approx(3 * 3600 / told["seconds"], rel=0.01)
    (library / "torn.pdf").unlink()
    (library / "link").unlink()
    status, again, _ = ingest()
    assert (status, again["read"], again["known"], again["tokens"]) == (0, 0, 3, 0)
    assert {each["context"] for each in again["files"]} == {each["context"] for each in told["files"]} - {""}
    status, out, _ = in_process(tmp_path / "home", capsys, "--model", str(tiny), "ingest", str(library), "--each")
    assert status == 0
    assert "Read 0 documents, 0 tokens, in 0:0" in out
    assert out.endswith("; 3 known before, 0 refused, 0 left.\n")
    assert ingest("--title", "All")[0] == ingest("--add-to", "All")[0] == 2
