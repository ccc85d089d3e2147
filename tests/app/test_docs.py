"""The documents describe the methods as they are, and their links lead somewhere."""

import importlib.metadata
import re
from contextlib import suppress
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
    for page in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "assets").rglob("*.md")):
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


def test_every_package_is_pinned_by_hash_and_its_licence_told() -> None:
    names = ["requirements", "requirements-cpu", "requirements-cuda", "model"]
    run, cpu, cuda, model = ((ROOT / f"{name}.lock").read_text(encoding="utf-8") for name in names)
    assert all("--hash=sha256:" in pin for pin in re.split(r"\n(?=[^\s#])", f"{run}{cuda}{model}".strip()))
    pinned = re.compile(r"^([\w.-]+)==([\w.]+)", re.MULTILINE)
    [torch] = pinned.findall(cpu)
    assert torch in pinned.findall(cuda)
    page = (ROOT / "docs" / "licences.md").read_text(encoding="utf-8")
    told = re.findall(r"^\| (\S+) \| (\d\S*) \| \S", page, re.MULTILINE)
    assert told == [*pinned.findall(run), torch]
    for name, version in told:
        with suppress(importlib.metadata.PackageNotFoundError):
            assert importlib.metadata.version(name).partition("+")[0] == version


FOLDERS = "app|engine|kernels|ingest|sessions|training|benchmarks|tests"


@pytest.mark.parametrize("page", [ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")], ids=lambda page: page.name)
def test_files_that_are_named_are_there(page: Path) -> None:
    """Paths in code marks, as in `engine/reader.py`; NAME and DEVICE stand for any."""
    for path in re.findall(rf"`((?:{FOLDERS})/[\w./-]*)`", page.read_text(encoding="utf-8")):
        assert "NAME" in path or "DEVICE" in path or (ROOT / path).exists(), path


def test_the_glossary_has_each_word_once_in_order() -> None:
    page = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    _, *words = re.findall(r"^\| ([^|-]+?)(?: \(p\))? \|", page, re.MULTILINE)
    assert len(words) > 50
    assert words == sorted(set(words), key=str.lower)


def settings_told(name: str) -> dict[str, str]:
    """Return the defaults in a method's table of settings: on its own page, or on a page that it shares."""
    own = PAGES / f"{name}.md"
    pages = [own] if own.exists() else sorted(PAGES.glob("*.md"))
    text = "\n".join(page.read_text(encoding="utf-8") for page in pages)
    column = "" if own.exists() else r"method \| "
    tables = re.findall(rf"^\| {column}setting \|.*\n\|[-|]+\n((?:\|.*\n)+)", text, re.MULTILINE)
    rows = [[cell.strip(" `") for cell in line.split("|")[1:]] for table in tables for line in table.splitlines()]
    rows = rows if own.exists() else [row[1:] for row in rows if row[0] == name]
    return {row[0]: row[1] for row in rows}


@pytest.mark.parametrize("name", engine.METHODS)
def test_the_page_of_a_method_has_every_setting_with_its_default(name: str) -> None:
    told, settings = settings_told(name), engine.make_method(name).settings()
    assert sorted(told) == sorted(settings)
    for setting, default in settings.items():
        if default is not None:  # of those that follow from others the page says how
            expected = str(default).lower() if isinstance(default, bool) else str(default)
            assert told[setting] == expected, setting


@pytest.mark.parametrize("name", ["knorm", "truncate"])
def test_the_methods_that_are_shown_are_those_of_the_engine(name: str) -> None:
    """Code in `docs/architecture.md` leaves lines out, but changes none."""
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", page.partition("## A method in ten lines")[2], re.DOTALL)
    shown = [line for line in blocks[("knorm", "truncate").index(name)].splitlines() if line.strip()]
    source = iter((ROOT / "engine" / "methods" / f"{name}.py").read_text(encoding="utf-8").splitlines())
    for line in shown:
        assert line in source, line  # `in` goes on where the line before was found
