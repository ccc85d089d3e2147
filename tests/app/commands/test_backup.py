"""`stockpot backup` beside a running server, and `stockpot restore`."""

import json
import threading
from pathlib import Path

import pytest

from app.jobs.worker import Worker
from app.service import Service
from tests.app.helpers import in_process, read_book, wait_for


def test_a_backup_beside_a_running_server_is_restored(
    held: threading.Event, service: Service, worker: Worker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, restored = tmp_path / "stockpot.tar", tmp_path / "restored"
    ready = read_book(service, worker, tmp_path, 20)
    held.set()
    begun = read_book(service, worker, tmp_path, 30, wait=False)
    wait_for(lambda: any(job.done > 0 for job in service.store.jobs.all(subject_id=begun)), "the first tokens")
    status, out, err = in_process(service.home, capsys, "backup", str(file), "--json")
    assert (status, err) == (0, "")
    counts = {"documents": 2, "contexts": 2, "sessions": 0}
    assert json.loads(out).items() >= {"path": str(file), **counts}.items()
    status, out, _ = in_process(restored, capsys, "restore", str(file))
    assert (status, out.partition("; ")[0]) == (0, f"Restored {restored}: 2 documents, 2 contexts, 0 sessions")
    held.clear()
    question = ("Who was the keeper?", "--max-tokens", "12")
    wait_for(lambda: service.store.contexts.get(begun).status == "ready", "the reading")
    for context in (ready, begun):
        assert in_process(restored, capsys, "resume", context)[0] == 0
        answers = [in_process(home, capsys, "ask", context, *question)[1] for home in (service.home, restored)]
        assert answers[0] == answers[1] != ""
    status, out, _ = in_process(restored, capsys, "doctor", "--read-data", "--json")
    (data,) = (each for each in json.loads(out)["checks"] if each["name"] == "data")
    assert data["ok"]


def test_mistakes_are_told_with_what_to_do(
    service: Service, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, nowhere = tmp_path / "stockpot.tar", tmp_path / "nowhere"
    assert in_process(service.home, capsys, "backup", str(file))[0] == 0
    for home, arguments, told in (
        (service.home, ("backup", str(file)), "is there already: name another file"),
        (service.home, ("backup", str(nowhere / "a.tar")), f"There is no folder {nowhere}: make it first"),
        (service.home, ("backup", str(file / "a.tar")), f"There is no folder {file}: make it first"),
        (service.home, ("restore", str(file)), "is not empty: restore into a new folder"),
        (nowhere, ("backup", str(tmp_path / "other.tar")), "There is nothing in"),
        (nowhere, ("restore", str(tmp_path / "other.tar")), "There is no file"),
    ):
        status, out, err = in_process(home, capsys, *arguments)
        assert (status, out) == (1, "")
        assert told in err
    assert not nowhere.exists()
