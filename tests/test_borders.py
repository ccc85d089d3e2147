"""Imports point one way, between the folders of the repository and between the layers of the engine."""

from __future__ import annotations

import ast
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
MAY_IMPORT = {
    "app": {"engine", "ingest", "sessions", "training"},
    "benchmarks": {"app", "engine", "ingest", "kernels", "sessions", "training"},
    "engine": {"kernels"},
    "ingest": set(),
    "kernels": set(),
    "sessions": set(),
    "training": {"engine", "kernels"},
}

# Folders and modules of the engine, which import only those before them (and top-level modules not named here)
ENGINE_LAYERS = ("models", "trained", "parts", "memory", "decode", "model", "methods", "finding", "loops", "planning")
PARTS_LAYERS = ("archive", "selectors")


def imported(file: Path) -> set[str]:
    """Return the names of everything that a file imports, inside functions too."""
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


def upward(package: str, layers: tuple[str, ...]) -> list[str]:
    """Return the imports of a package that do not point from a layer to one before it."""
    found = []
    for rank, layer in enumerate(layers):
        folder = ROOT / package / layer
        for file in folder.rglob("*.py") if folder.is_dir() else [folder.with_suffix(".py")]:
            prefix = package.replace("/", ".") + "."
            reached = {name.removeprefix(prefix).split(".")[0] for name in imported(file) if name.startswith(prefix)}
            found += [f"{file.relative_to(ROOT)} imports {each}" for each in sorted(reached & set(layers[rank + 1 :]))]
    return found


@pytest.mark.parametrize(("package", "layers"), [("engine", ENGINE_LAYERS), ("engine/parts", PARTS_LAYERS)])
def test_the_engines_layers_import_only_those_before_them(package: str, layers: tuple[str, ...]) -> None:
    assert all((ROOT / package / layer).exists() or (ROOT / package / f"{layer}.py").exists() for layer in layers)
    assert upward(package, layers) == []


@pytest.mark.parametrize("room", ["benchmarks", "engine", "kernels", "training"])
def test_modules_do_not_import_each_other_in_a_circle(room: str) -> None:
    """A package is its `__init__.py`: who imports from it imports that."""
    files = {
        ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): file
        for file in (ROOT / room).rglob("*.py")
    }
    graph: dict[str, set[str]] = {}
    for module, file in files.items():
        names = [name.split(".") for name in imported(file)]
        beginnings = ([".".join(name[:end]) for end in range(len(name), 0, -1)] for name in names)
        graph[module] = {next((each for each in found if each in files), module) for found in beginnings} - {module}
    TopologicalSorter(graph).prepare()  # raises CycleError, naming the modules


@pytest.mark.parametrize(("package", "has_base"), [("engine", False), ("engine/parts", True), ("kernels", False)])
def test_folders_do_not_import_each_other_in_a_circle(package: str, has_base: bool) -> None:
    """has_base: the folders import the package's own modules, which then import none of the folders."""
    folders = {path.parent.name for path in (ROOT / package).glob("*/__init__.py")}
    assert len(folders) >= 2
    graph = {}
    for name in {*folders, ""} if has_base else folders:
        files = (ROOT / package / name).rglob("*.py") if name else (ROOT / package).glob("*.py")
        names = {each.removeprefix(package.replace("/", ".") + ".") for file in files for each in imported(file)}
        graph[name] = {each.split(".")[0] for each in names} & folders - {name}
        if has_base and name:
            graph[name].add("")
    TopologicalSorter(graph).prepare()  # raises CycleError, naming the folders


def test_no_folder_of_the_engine_is_outside_the_layers() -> None:
    folders = {path.name for path in (ROOT / "engine").iterdir() if (path / "__init__.py").exists()}
    assert folders <= set(ENGINE_LAYERS)


def test_every_room_says_what_lives_there() -> None:
    for room in MAY_IMPORT:
        if (ROOT / room).is_dir():
            text = ast.get_docstring(ast.parse((ROOT / room / "__init__.py").read_text())) or ""
            assert len(text.splitlines()) >= 2, f"{room}/__init__.py does not say what lives there and what must not"
