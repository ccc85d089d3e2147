"""Workers end with the process that launched them."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

SCRIPT = """
import os, signal, sys, time
from functools import partial
from pathlib import Path
from training.pocket import workers

def work(folder, report):
    Path(folder, f"{workers.rank()}.pid").write_text(str(os.getpid()))
    time.sleep(600)

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # as in the background of a shell
    workers.launch(2, partial(work, sys.argv[1]), print)
"""


def _alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return False
    return state != "Z"


def test_workers_end_when_their_parent_is_killed(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    root = Path(__file__).resolve().parents[2]
    parent = subprocess.Popen(
        [sys.executable, str(tmp_path / "script.py"), str(tmp_path)], env=os.environ | {"PYTHONPATH": str(root)}
    )
    files = [tmp_path / "0.pid", tmp_path / "1.pid"]
    workers: list[int] = []
    deadline = time.monotonic() + 240
    try:
        while len(workers) < 2:
            assert parent.poll() is None
            assert time.monotonic() < deadline
            workers = [int(file.read_text()) for file in files if file.exists() and file.read_text()]
            time.sleep(0.1)
        parent.kill()
        parent.wait()
        while any(map(_alive, workers)):
            assert time.monotonic() < deadline
            time.sleep(0.1)
    finally:
        parent.kill()
        parent.wait()
        for pid in filter(_alive, workers):
            os.kill(pid, signal.SIGKILL)
