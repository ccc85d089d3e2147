"""Imports point one way: app -> engine, ingest, sessions, training, benchmarks; engine -> kernels."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
MAY_IMPORT = {
    "app": {"benchmarks", "engine", "ingest", "sessions", "training"},
    "benchmarks": {"engine", "kernels", "training"},
    "engine": {"kernels"},
    "ingest": set(),
    "kernels": set(),
    "sessions": set(),
    "training": {"engine", "kernels"},
}


def imported(file: Path) -> set[str]:
    """First words of all absolute imports of a file, wherever in it they stand."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: relative imports hide where they point"
            names.add((node.module or "").split(".")[0])
    return names


@pytest.mark.parametrize("room", sorted(room for room in MAY_IMPORT if (ROOT / room).is_dir()))
def test_a_room_imports_only_what_it_may(room: str) -> None:
    files = list((ROOT / room).rglob("*.py"))
    assert files
    for file in files:
        reached = imported(file) & set(MAY_IMPORT) - {room}
        assert reached <= MAY_IMPORT[room], f"{file.relative_to(ROOT)} imports {sorted(reached - MAY_IMPORT[room])}"


def test_every_room_says_what_lives_there() -> None:
    for room in MAY_IMPORT:
        if (ROOT / room).is_dir():
            text = ast.get_docstring(ast.parse((ROOT / room / "__init__.py").read_text())) or ""
            assert len(text.splitlines()) >= 2, f"{room}/__init__.py does not say what lives there and what must not"
