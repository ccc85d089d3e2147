"""The store over one home folder, combining the classes of this package.

`Base` (database.py) is the root. Documents, contexts, conversations, measurements, jobs, deletion, export and checking
derive from each other in this order, as each needs the ones before.
"""

from contextlib import suppress
from pathlib import Path
from typing import Any

from sessions.checking import Checking
from sessions.errors import DiskFull


class Store(Checking):
    """Documents, contexts, sessions, turns, measurements and jobs in a home folder.

    Opening a store creates the folder (readable by its owner only), migrates the database, and recovers from crashes.
    Many stores, threads and processes may share a home; a store may be used from any thread.
    """

    def __init__(self, home: Path) -> None:
        super().__init__(home)
        self.sweep()
        with suppress(DiskFull):  # reading and deleting work without it
            self.requeue_interrupted()

    def __enter__(self) -> "Store":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()
