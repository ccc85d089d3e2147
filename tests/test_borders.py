"""Imports point one way: app -> engine, ingest, sessions, training, benchmarks; engine -> kernels. So in the engine."""

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

WITHIN_ENGINE = {
    "models": set(),
    "memories": {"models"},
    "host": {"memories", "models"},
    "trained": {"models"},
    "methods": {"host", "memories", "models", "trained"},
    "planning": {"methods", "models"},
}


def imported(file: Path) -> set[str]:
    """Names of all that a file imports, wherever in it that stands."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: relative imports hide where they point"
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


@pytest.mark.parametrize("room", sorted(room for room in MAY_IMPORT if (ROOT / room).is_dir()))
def test_a_room_imports_only_what_it_may(room: str) -> None:
    files = list((ROOT / room).rglob("*.py"))
    assert files
    for file in files:
        reached = {name.split(".")[0] for name in imported(file)} & set(MAY_IMPORT) - {room}
        assert reached <= MAY_IMPORT[room], f"{file.relative_to(ROOT)} imports {sorted(reached - MAY_IMPORT[room])}"


@pytest.mark.parametrize("part", sorted(WITHIN_ENGINE))
def test_a_part_of_the_engine_imports_only_what_it_may(part: str) -> None:
    files = list((ROOT / "engine" / part).rglob("*.py"))
    assert files
    for file in files:
        parts = {name.split(".")[1] for name in imported(file) if name.startswith("engine.")}
        reached = parts & set(WITHIN_ENGINE) - {part}
        assert reached <= WITHIN_ENGINE[part], f"{file.relative_to(ROOT)}: {sorted(reached - WITHIN_ENGINE[part])}"


def test_every_room_says_what_lives_there() -> None:
    for room in MAY_IMPORT:
        if (ROOT / room).is_dir():
            text = ast.get_docstring(ast.parse((ROOT / room / "__init__.py").read_text())) or ""
            assert len(text.splitlines()) >= 2, f"{room}/__init__.py does not say what lives there and what must not"
