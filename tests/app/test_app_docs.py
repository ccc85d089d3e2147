"""What the documents say of the methods is what there is."""

import re
from pathlib import Path

import pytest

import engine

PAGES = Path(__file__).resolve().parents[2] / "docs" / "methods"


@pytest.mark.parametrize("name", [name for name in engine.METHODS if (PAGES / f"{name}.md").exists()])
def test_the_page_of_a_method_has_a_row_for_every_setting(name: str) -> None:
    page = (PAGES / f"{name}.md").read_text(encoding="utf-8")
    table = re.search(r"^\| setting \|.*\n\|[-|]+\n((?:\|.*\n)+)", page, re.MULTILINE)
    assert table is not None
    rows = [line.split("|")[1].strip() for line in table[1].splitlines()]
    assert {key for row in rows for key in row.split(", ")} == set(engine.make_method(name).settings())
