"""The version of a store tells of writes, so that nobody needs to look whether there were any."""

import threading
from pathlib import Path

from sessions import Store


def test_the_version_changes_with_others_writes_and_not_with_signs_of_life(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        before = store.version()
        store.workers.heartbeat("worker-1")  # by the thread that looks
        assert store.version() == before
        other = threading.Thread(target=lambda: store.jobs.add("read", "c-1"))
        other.start()
        other.join()
        assert store.version() != before
