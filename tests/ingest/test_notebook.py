"""Notebooks and JSON: their words, not how they are stored."""

import json
from pathlib import Path

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
