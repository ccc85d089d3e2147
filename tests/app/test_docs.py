"""What the documents say of the methods is what there is, and their links lead somewhere."""

import re
from pathlib import Path

import pytest

import engine

ROOT = Path(__file__).resolve().parents[2]
PAGES = ROOT / "docs" / "methods"


def test_the_readme_has_a_row_for_every_method() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    table = readme.partition("## Methods")[2].partition("\n## ")[0]
    assert set(re.findall(r"^\| \[`(\w+)`\]", table, re.MULTILINE)) == set(engine.METHODS)


def test_links_lead_somewhere() -> None:
    pages = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")]
    for page in (*pages, *(ROOT / "docs").rglob("*.md")):
        for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
            path, _, anchor = link.partition("#")
            if path.startswith("http"):
                continue
            target = page.parent / path if path else page
            assert target.exists(), (page.name, link)
            if anchor:
                headings = re.findall(r"^#+ (.*)", target.read_text(encoding="utf-8"), re.MULTILINE)
                named = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
                assert anchor in named, (page.name, link)


@pytest.mark.parametrize("name", [name for name in engine.METHODS if (PAGES / f"{name}.md").exists()])
def test_the_page_of_a_method_has_a_row_for_every_setting(name: str) -> None:
    page = (PAGES / f"{name}.md").read_text(encoding="utf-8")
    table = re.search(r"^\| setting \|.*\n\|[-|]+\n((?:\|.*\n)+)", page, re.MULTILINE)
    assert table is not None
    rows = [line.split("|")[1].strip() for line in table[1].splitlines()]
    assert {key for row in rows for key in row.split(", ")} == set(engine.make_method(name).settings())
