"""Notebooks and JSON: their words without their storage format."""

import json
from pathlib import Path

import pytest

from ingest import Document
from tests.ingest import makers


def test_a_notebook_is_its_cells_and_what_they_printed(tmp_path: Path) -> None:
    png = {"image/png": "AAECAwQF" * 99, "text/plain": ["<Figure size 640x480 with 1 Axes>"]}
    outputs = [
        {"output_type": "stream", "name": "stdout", "text": ["40\n", "41\n"]},
        {"output_type": "display_data", "data": png},
        {"output_type": "execute_result", "data": {"text/html": "<b>7</b>", "text/plain": ["Säcke: 7"]}},
        {"output_type": "error", "ename": "KeyError", "evalue": "'mill'", "traceback": ["\x1b[0;31m..."]},
    ]
    cells = [
        {
            "cell_type": "markdown",
            "source": ["# Mühle\n", "The *mill* — a study.\n", "\n", "```\n", "# no heading\n", "```"],
        },
        {"cell_type": "code", "source": ["x = 40\n", "print(x)"], "outputs": outputs},
    ]
    document = makers.read(tmp_path / "a.ipynb", json.dumps({"cells": cells, "nbformat": 4}))
    assert document.title == "Mühle"
    assert document.text == (
        "Mühle\n\nThe *mill* — a study.\n\n```\n# no heading\n```\n\nx = 40\nprint(x)\n\n"
        "40\n41\n\nSäcke: 7\n\nKeyError: 'mill'"
    )
    assert document.warnings == ("Not read: a picture that an output of the notebook shows.",)


def test_json_has_its_letters(tmp_path: Path) -> None:
    said = {"name": "Müller 😀", "quoted": 'a "b" \\u00e9', "line": "x\u0001y"}
    text = makers.read(tmp_path / "a.json", json.dumps(said)).text
    assert json.loads(text) == said
    assert "Müller 😀" in text


def test_what_is_no_notebook_is_read_as_it_stands(tmp_path: Path) -> None:
    assert makers.read(tmp_path / "a.ipynb", '["M\\u00fcller"]').text == '["Müller"]'
    assert makers.read(tmp_path / "b.ipynb", '{"cells": [').text == '{"cells": ['


def notebook(path: Path, *outputs: dict[str, object]) -> Document:
    cells = [{"cell_type": "code", "source": "run()", "outputs": list(outputs)}]
    return makers.read(path, json.dumps({"cells": cells, "nbformat": 4}))


@pytest.mark.parametrize("plain", [{"text/plain": "<pandas.io.formats.style.Styler at 0x7f3a>"}, {}])
def test_an_output_in_html_alone_is_read(tmp_path: Path, plain: dict[str, str]) -> None:
    rows = (
        "<style>td {color: red}</style><table><tr><th></th><th>Year</th></tr><tr><th>0</th><td>1901</td></tr></table>"
    )
    document = notebook(tmp_path / "a.ipynb", {"output_type": "execute_result", "data": {"text/html": [rows], **plain}})
    assert document.text == "run()\n\n| Year\n0 | 1901"
    document = notebook(
        tmp_path / "b.ipynb", {"output_type": "display_data", "data": {"text/html": "<script>x</script>"}}
    )
    assert document.text == "run()"


def test_outputs_are_as_a_terminal_shows_them(tmp_path: Path) -> None:
    stream = {
        "output_type": "stream",
        "text": ["\x1b[1;32mPASSED\x1b[0m in 3 s\n", "10%|# |\r 50%|## |\r100%|###| 40/40\n"],
    }
    error = {"output_type": "error", "ename": "KeyError", "evalue": "\x1b[0;31m'boat'\x1b[0m"}
    document = notebook(tmp_path / "a.ipynb", stream, error)
    assert document.text == "run()\n\nPASSED in 3 s\n100%|###| 40/40\n\nKeyError: 'boat'"
