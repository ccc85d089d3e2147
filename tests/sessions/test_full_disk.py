"""Full disks and quotas: SQLite's errors in plain words, and a home that can still be read and emptied."""

import sqlite3
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sessions import DiskFull, Store, StoreError, StoreFailing
from sessions.database import Database
from sessions.errors import sqlite_errors
from tests.sessions.helpers import PATIENCE_SEC, Filled, dead_stamp


def test_a_quota_is_named(other_process: Callable[..., Any]) -> None:
    """SQLite says "disk I/O error" for a quota or a size limit, not that the disk is full."""
    code = """
import resource
store = Store(home)
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))
try:
    store.jobs.add("reading", "c-222222", {"long": "x" * 50_000})
except Exception as error:
    print(type(error).__name__, error)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
print(len(store.jobs.all()), store.jobs.add("reading", "c-222222").status)
"""
    process = other_process(code)
    said, complaint = process.communicate(timeout=PATIENCE_SEC)
    assert said.startswith("StoreFailing"), complaint
    assert "quota" in said
    assert said.endswith("0 queued\n")


def test_a_home_on_a_full_disk_can_be_read_and_emptied(filled: Filled, other_process: Callable[..., Any]) -> None:
    """SQLite had no room for its shared-memory file, so not even a deletion was possible."""
    context = filled.context()
    filled.store.close()
    code = f"""
import resource
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, resource.RLIM_INFINITY))
store = Store(home)
print(store.database.alone, [row.id for row in store.contexts.all()])
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
store.contexts.delete({context.id!r})
print(store.contexts.all())
"""
    said, complaint = other_process(code).communicate(timeout=PATIENCE_SEC)
    assert said == f"True ['{context.id}']\n[]\n", complaint
    with Store(filled.store.home) as again:
        assert (again.database.alone, again.contexts.all()) == (False, [])


def test_a_home_on_a_full_disk_opens_without_recovery(filled: Filled, monkeypatch: pytest.MonkeyPatch) -> None:
    """Opening failed because the interrupted reading could not be set to paused."""
    context = filled.context(status="reading")
    dead = dead_stamp()
    with filled.store.database.transaction() as db:
        db.execute("UPDATE contexts SET owner = ?", [dead])

    def full(self: Database, kind: str, *given: Any) -> None:
        raise DiskFull(self.home, None, 0)

    with monkeypatch.context() as patch:
        patch.setattr(Database, "update", full)
        with Store(filled.store.home) as again:
            assert again.contexts.get(context.id).status == "reading"
    with Store(filled.store.home) as again:
        assert again.contexts.get(context.id).status == "paused"


@pytest.mark.parametrize(("free", "kind"), [(0, DiskFull), (1 << 30, StoreFailing)])
def test_an_io_error_means_a_full_disk_only_without_free_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: int, kind: type
) -> None:
    monkeypatch.setattr("sessions.files.shutil.disk_usage", lambda path: SimpleNamespace(free=free))
    with pytest.raises(StoreError) as caught, sqlite_errors(tmp_path):
        raise sqlite3.OperationalError("disk I/O error")
    assert type(caught.value) is kind
