"""The store: every noun of this room over one home folder.

`Base` (database.py) is the ground; documents, contexts, conversations, measurements, jobs, deletion, export and
checking each add their methods on top of the one before, in the order in which they need each other.
"""

from contextlib import suppress
from pathlib import Path
from typing import Any

from sessions.checking import Checking
from sessions.errors import DiskFull


class Store(Checking):
    """Documents, contexts, sessions, turns, measurements and jobs in a home folder.

    Opening one makes the folder (readable by its owner only), brings the database up to date, and puts right what a
    crash left behind. Many stores, threads and processes may share a home; a store may be used from any thread.
    """

    def __init__(self, home: Path) -> None:
        super().__init__(home)
        self.sweep()
        with suppress(DiskFull):  # to look, and to delete something, does not need it
            self.requeue_interrupted()

    def __enter__(self) -> "Store":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()
