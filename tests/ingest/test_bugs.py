"""Small files of kinds that were once read wrongly, each with what its text must and must not have."""

import json
import re
from typing import Any

import pytest

from ingest import IngestError, ingest
from tests.ingest.conftest import DATA

FOLDER = DATA.parent / "ingest-bugs"
EXPECTED = FOLDER / "expected.json"
CASES = json.loads(EXPECTED.read_text()) if EXPECTED.is_file() else []


def laid_out_anyhow(text: str) -> str:
    """Text without what parts the values of a row."""
    return re.sub(r"[\s|]+", " ", text)


@pytest.mark.skipif(not CASES, reason=f"no files at {FOLDER}")
@pytest.mark.parametrize("case", CASES, ids=lambda case: case["file"])
def test_a_file_once_read_wrongly(case: dict[str, Any]) -> None:
    said = {"W": "", "R": "", "TITLE": "", "TOC": "", "": ""}
    try:
        document = ingest(FOLDER / case["file"], ocr=False)
    except IngestError as error:
        said["R"] = str(error)
    else:
        titles = "\n".join(entry.title for entry in document.toc)
        said |= {"W": "\n".join(document.warnings), "TITLE": document.title, "TOC": titles, "": document.text}

    def has(wanted: str) -> bool:
        where, words = re.fullmatch(r"(?s)(?:(W|R|TITLE|TOC):)?(.*)", wanted).groups()  # type: ignore[union-attr]
        text = said[where or ""]
        return bool(text) and (words in text or laid_out_anyhow(words) in laid_out_anyhow(text))

    assert [wanted for wanted in case["must"] if not has(wanted)] == []
    assert [unwanted for unwanted in case["must_not"] if has(unwanted)] == []
    assert said["R"] == "" or any(wanted.startswith("R:") for wanted in case["must"] + case["must_not"])
