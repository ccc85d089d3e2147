"""`stockpot ask --each` and `compare`: tables over documents that were read, and two compared."""

import csv
import io
import json
from pathlib import Path

import pytest

from app.asking.document_table import Column, columns_of
from app.machine.model_names import smollm2_file
from tests.app.helpers import book_text, in_process

COLUMNS = "keeper: Who was the keeper?; capital: What is the capital of Mongolia?"


@pytest.mark.skipif(smollm2_file() is None, reason="SmolLM2 is not installed")
def test_a_table_of_all_documents_is_printed_and_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    home, other = tmp_path / "home", tmp_path / "The Fox.txt"
    book = tmp_path / "The Keeper.txt"
    book.write_text(book_text(12), encoding="utf-8")
    other.write_text("The fox slept under the boat, day after day.", encoding="utf-8")
    for path in (book, other):
        assert in_process(home, capsys, "--model", "smollm2", "ingest", str(path))[0] == 0
    asked = ("ask", "--each", "--columns", COLUMNS)
    status, out, err = in_process(home, capsys, *asked, "--json")
    told = json.loads(out)
    assert status == 0
    assert [each["heading"] for each in told["columns"]] == ["keeper", "capital"]
    assert "capital: not found in The Keeper, The Fox." in err
    keepers, fox = told["rows"]
    assert (keepers["title"], fox["title"]) == ("The Keeper", "The Fox")
    keeper, *others = *keepers["cells"], *fox["cells"]
    assert [each["found"] for each in (keeper, *others)] == [True, False, False, False]
    assert "Maren Hollis" in keeper["answer"]
    assert "Its keeper was Maren Hollis" in keeper["quote"]
    status, out, _ = in_process(home, capsys, "ask", "--each", "The Keeper", "--columns", COLUMNS)
    assert out.splitlines()[2:] == [f"| The Keeper | {keeper['answer']} ({keeper['label']}) | not found |"]
    status, out, _ = in_process(home, capsys, *asked, "--format", "csv")
    line, _ = csv.DictReader(io.StringIO(out))
    assert (line["keeper"], line["keeper, place"]) == (keeper["answer"], keeper["label"])
    status, out, err = in_process(home, capsys, "ask", "The Keeper", "Who are all the people?", "--whole", "--json")
    told = json.loads(out)
    assert (status, told["searched"], told["places"]) == (0, 1, 1)
    assert f"{told['count']} found in 1 place of the text." in err
    status, out, err = in_process(home, capsys, "compare", "The Keeper", "The Fox", "--json")
    told = json.loads(out)
    assert (status, [each["title"] for each in told["documents"]]) == (0, ["The Keeper", "The Fox"])
    assert {each["kind"] for each in told["rows"]} == {"alone"}
    assert "0 sentences in another form" in err
    assert in_process(home, capsys, "compare", "The Fox", "The Fox")[0] == 2
    status, out, err = in_process(home, capsys, "ask", "--each", "The Mole", "--columns", COLUMNS)
    assert (status, out) == (1, "")
    assert "no document 'The Mole'" in err


def test_columns_are_words_or_questions_with_headings() -> None:
    assert columns_of(["sample size", " Who wrote it?", "", " n: How many took part?", "ratio 1:2"]) == [
        Column("sample size", "What is the sample size?"),
        Column("Who wrote it?", "Who wrote it?"),
        Column("n", "How many took part?"),
        Column("ratio 1:2", "What is the ratio 1:2?"),
    ]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "Name a context and a question, or documents with --each"),
        (("c-222222",), "Name a context and a question, or documents with --each"),
        (("--each",), "A table needs both"),
        (("--columns", "author"), "A table needs both"),
        (("--columns", "author", "c-222222", "Who?", "--each"), "leave out all else"),
        (("--columns", "author", "--each", "--pages", "3"), "leave out all else"),
        (("--columns", "author", "--each", "--max-tokens", "3"), "leave out all else"),
        (("--columns", "author", "--each", "--stop", "x"), "leave out all else"),
        (("--columns", ";", "--each"), "There are no columns"),
        (("--columns", "a; b; a", "--each"), "called 'a'"),
        (("c-222222", "List all", "--whole", "--pages", "3"), "leave out all else"),
        (("c-222222", "--whole"), "Name a context and a question"),
        (("--columns", "author", "--each", "--whole"), "leave out all else"),
        (("--columns", "author", "--each"), "No document has been read yet"),
    ],
)
def test_wrong_usage_says_the_next_step(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], words: str
) -> None:
    status, out, err = in_process(tmp_path, capsys, "ask", *arguments)
    assert (status, out) == (2, "")
    assert words in err
