"""The confinement of the process that parses files."""

import subprocess
import sys
from pathlib import Path

import pytest

from ingest.sandbox import landlock_version
from ingest.subprocess import ingest_in_subprocess
from tests.ingest import makers

ROOT = Path(__file__).resolve().parents[2]
TRIALS = """
import pathlib, socket, sys
from ingest.sandbox import confine

own, other, folder = map(pathlib.Path, sys.argv[1:])
opened = other.open()
confine([own])

def tell(name, act):
    try:
        act()
        print(name, "works")
    except PermissionError:
        print(name, "refused")

tell("read own", own.read_text)
tell("read on", opened.read)
tell("read other", other.read_text)
tell("list", lambda: list(folder.iterdir()))
tell("write", lambda: (folder / "new").write_text("x"))
tell("write own", lambda: own.write_text("x"))
tell("remove", own.unlink)
tell("passwords", pathlib.Path("/etc/passwd").read_text)
tell("parent", lambda: pathlib.Path(f"/proc/{__import__('os').getppid()}/environ").read_bytes())
for family in ("AF_INET", "AF_INET6"):
    for kind in ("SOCK_STREAM", "SOCK_DGRAM"):
        tell(f"{family} {kind}", lambda: socket.socket(getattr(socket, family), getattr(socket, kind)))
tell("local", lambda: socket.socket(socket.AF_UNIX))
tell("import", lambda: __import__("pymupdf"))
"""


@pytest.mark.skipif(landlock_version() < 1, reason="the kernel has no Landlock")
def test_a_parser_reads_its_file_and_nothing_else(tmp_path: Path) -> None:
    own, other = tmp_path / "own.txt", tmp_path / "other.txt"
    own.write_text("mine")
    other.write_text("secret")
    command = [sys.executable, "-c", TRIALS, str(own), str(other), str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    said = dict(line.rsplit(maxsplit=1) for line in done.stdout.splitlines())
    allowed = {"read own", "read on", "local", "import"}
    assert len(said) == 15
    assert {name for name, came in said.items() if came == "works"} == allowed, done.stdout
    assert own.read_text() == "mine"
    assert sorted(tmp_path.iterdir()) == [other, own]


@pytest.mark.skipif(sys.platform != "linux", reason="seccomp is Linux's")
def test_files_are_parsed_in_confinement(tmp_path: Path) -> None:
    seen: list[str] = []

    def look(done: int, total: int) -> None:
        for child in "".join(each.read_text() for each in Path("/proc/self/task").glob("*/children")).split():
            if b"ingest.subprocess" in Path(f"/proc/{child}/cmdline").read_bytes():
                seen.append(Path(f"/proc/{child}/status").read_text())

    ingest_in_subprocess(makers.pdf(tmp_path / "a.pdf", [[(50, 300, "The keeper of the lamp.")]] * 3), on_page=look)
    assert any("NoNewPrivs:\t1" in each and "Seccomp:\t2" in each for each in seen)
