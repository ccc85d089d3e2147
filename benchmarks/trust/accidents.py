"""Damage to a folder of saved tensors that nobody meant: each function does one and says what it did."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

PAGE = 4096
Alteration = Callable[[Path, Sequence[Path], random.Random], str]
"""Takes the folder, whole folders of other contexts, and the source of chance."""


def files_of(folder: Path) -> list[Path]:
    """Return the files of a folder in order."""
    return sorted(folder.iterdir())


def _flip(folder: Path, others: Sequence[Path], chance: random.Random) -> str:
    file = chance.choice(files_of(folder))
    data = bytearray(file.read_bytes())
    within = min(len(data), chance.choice([len(data), PAGE, 64]))
    for _ in range(chance.choice([1, 1, 2, 8, 64])):
        data[chance.randrange(within)] ^= chance.randrange(1, 256)
    file.write_bytes(data)
    return f"bytes of {file.name} flipped"


def _bit(folder: Path, others: Sequence[Path], chance: random.Random) -> str:
    file = chance.choice(files_of(folder))
    data = bytearray(file.read_bytes())
    data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    file.write_bytes(data)
    return f"a bit of {file.name} flipped"


def _cut(folder: Path, others: Sequence[Path], chance: random.Random) -> str:
    file = chance.choice(files_of(folder))
    size = file.stat().st_size
    os.truncate(file, chance.choice([0, 1, 7, 8, 9, chance.randrange(size), size - 1]))
    return f"{file.name} cut"


def _longer(folder: Path, others: Sequence[Path], chance: random.Random) -> str:
    file = chance.choice(files_of(folder))
    with file.open("ab") as end:
        end.write(chance.randbytes(chance.choice([1, 8, PAGE])))
    return f"{file.name} made longer"


def _zeros(folder: Path, others: Sequence[Path], chance: random.Random) -> str:
    file = chance.choice(files_of(folder))
    data = bytearray(file.read_bytes())
    start = chance.randrange(len(data)) // PAGE * PAGE
    data[start : start + PAGE] = bytes(len(data[start : start + PAGE]))
    file.write_bytes(data)
    return f"a page of {file.name} zeroed"


def _swapped(folder: Path, others: Sequence[Path], chance: random.Random) -> str:
    first, second = chance.sample(files_of(folder), 2)
    data = first.read_bytes()
    first.write_bytes(second.read_bytes())
    second.write_bytes(data)
    return f"{first.name} and {second.name} swapped"


def _foreign(folder: Path, others: Sequence[Path], chance: random.Random) -> str:
    taken, put = chance.choice(files_of(chance.choice(others))), chance.choice(files_of(folder))
    put.write_bytes(taken.read_bytes())
    return f"{put.name} of another context"


def _gone(folder: Path, others: Sequence[Path], chance: random.Random) -> str:
    file = chance.choice(files_of(folder))
    file.unlink()
    return f"{file.name} removed"


def _link(folder: Path, others: Sequence[Path], chance: random.Random) -> str:
    file = chance.choice(files_of(folder))
    file.unlink()
    target = chance.choice(["/etc/passwd", "/dev/null", file.name, "/nowhere", str(folder)])
    file.symlink_to(target)
    return f"{file.name} made a link to {target}"


def _folder(folder: Path, others: Sequence[Path], chance: random.Random) -> str:
    file = chance.choice(files_of(folder))
    file.unlink()
    file.mkdir()
    return f"{file.name} made a folder"


def _all_foreign(folder: Path, others: Sequence[Path], chance: random.Random) -> str:
    shutil.rmtree(folder)
    shutil.copytree(chance.choice(others), folder)
    return "all files of another context"


ACCIDENTS: tuple[Alteration, ...] = (
    *(_flip, _flip, _bit, _bit, _cut, _longer, _zeros, _swapped, _foreign, _gone, _link, _folder, _all_foreign),
)
