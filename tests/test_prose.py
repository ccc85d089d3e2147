"""Docstrings and comments read plainly: shares of them that would not are counted, folder by folder.

Each failure lists the places. Figures are goals and not laws of language: a single sentence may break any of them.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("app", "benchmarks", "engine", "ingest", "kernels", "sessions", "tests", "training")
LONGEST_FILE = 500  # lines
DEEPEST_CHAIN = 3  # classes, each the base of the next
BACKWARD = {  # a docstring that begins with one of these says something about a thing before it names the thing
    *("about", "above", "after", "as", "at", "before", "behind", "below", "between", "by", "during", "for", "from"),
    *("how", "if", "in", "of", "on", "over", "than", "to", "under", "what", "when", "where", "whether", "which"),
    *("who", "whom", "whose", "why", "with", "without"),
}
RELATIVE = re.compile(r"\b(?:about|by|for|from|in|of|on|to|with) (?:what|which|whom|whose)\b", re.IGNORECASE)
WHAT = re.compile(r"\bwhat\b", re.IGNORECASE)


@cache
def trees(folder: str) -> dict[str, ast.Module]:
    """Return the parsed files of a folder by their path."""
    paths = sorted((ROOT / folder).rglob("*.py"))
    return {str(path.relative_to(ROOT)): ast.parse(path.read_text(encoding="utf-8")) for path in paths}


def docstrings(folder: str) -> Iterator[tuple[str, ast.AST, str]]:
    """Yield the place, node and text of every docstring."""
    for path, tree in trees(folder).items():
        for node in ast.walk(tree):
            kinds = ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef
            if isinstance(node, kinds) and (text := ast.get_docstring(node)):
                yield f"{path}:{getattr(node, 'lineno', 1)}", node, text


@cache
def told(folder: str) -> list[tuple[str, str]]:
    """Return place and text of all docstrings of functions, those of properties left out."""
    found = []
    for place, node, text in docstrings(folder):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            found += [(place, text)] if not any("property" in ast.unparse(each) for each in node.decorator_list) else []
    return found


@cache
def prose(folder: str) -> list[tuple[str, str]]:
    """Return place and text of all docstrings and comments."""
    found = [(place, text) for place, _, text in docstrings(folder)]
    for path in trees(folder):
        for token in tokenize.generate_tokens(io.StringIO((ROOT / path).read_text(encoding="utf-8")).readline):
            if token.type == tokenize.COMMENT:
                found.append((f"{path}:{token.start[0]}", token.string.lstrip("#! ")))
    return found


def listed(places: list[str]) -> str:
    """Return at most 40 places, one a line."""
    return "\n".join(["", *places[:40], *([f"... and {len(places) - 40} more"] if len(places) > 40 else [])])


@pytest.mark.parametrize("folder", FOLDERS)
def test_docstrings_say_first_what_they_are_about(folder: str) -> None:
    backward = [
        f"{place} {text.splitlines()[0]}"
        for place, text in told(folder)
        if (first := re.search(r"[A-Za-z]+", text)) and first[0].lower() in BACKWARD
    ]
    assert len(backward) < 0.03 * len(told(folder)), listed(backward)


@pytest.mark.parametrize("folder", FOLDERS)
def test_docstrings_are_sentences(folder: str) -> None:
    short = [f"{place} {text}" for place, text in told(folder) if len(text.split("\n\n")[0].split()) < 4]
    assert len(short) < 0.01 * len(told(folder)), listed(short)


@pytest.mark.parametrize("folder", FOLDERS)
@pytest.mark.parametrize(("pattern", "most"), [(WHAT, 3.0), (RELATIVE, 0.5)], ids=["what", "of which"])
def test_sentences_name_things(folder: str, pattern: re.Pattern[str], most: float) -> None:
    words = sum(len(re.findall(r"[A-Za-z']+", text)) for _, text in prose(folder))
    found = [f"{place} {text.splitlines()[0]}" for place, text in prose(folder) for _ in pattern.findall(text)]
    assert len(found) < most * words / 1000, f"{1000 * len(found) / words:.2f} per 1,000 words{listed(found)}"


def test_files_can_be_read_in_one_go() -> None:
    lines = {path: len((ROOT / path).read_text().splitlines()) for folder in FOLDERS for path in trees(folder)}
    assert {path: count for path, count in lines.items() if count > LONGEST_FILE} == {}


def test_class_chains_are_short() -> None:
    bases: dict[str, set[str]] = {}
    for folder in FOLDERS:
        for tree in trees(folder).values():
            for node in ast.walk(tree):
                if isinstance(node, ast.ClassDef):
                    names = {ast.unparse(base).split("[")[0].split(".")[-1] for base in node.bases}
                    bases.setdefault(node.name, set()).update(names - {node.name})

    def chain(name: str) -> list[str]:
        return [name, *max((chain(base) for base in bases[name] if base in bases), key=len, default=[])]

    assert [chain(name) for name in bases if len(chain(name)) > DEEPEST_CHAIN] == []
