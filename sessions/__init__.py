"""Storage of documents, contexts, sessions, turns, sources, measurements and jobs.

Rows are in SQLite (`Store`, with an object for each table), tensors in safetensors files beside it (`TensorFolder`).
This package imports neither engine, ingest nor app. Fingerprints, settings, sources and measurements are opaque to it.
"""

from sessions.adding import add_backup
from sessions.backup import Backup, back_up
from sessions.database import DATABASE, check_whole
from sessions.documents import TextFile
from sessions.errors import (
    AlreadyRead,
    DiskFull,
    FingerprintMismatch,
    InUse,
    NotFound,
    ReadOnlyHome,
    StoreCorrupt,
    StoreError,
    StoreFailing,
    is_disk_full,
)
from sessions.files import disk_free, nearest, write_whole
from sessions.parts import Part
from sessions.processes import stamp
from sessions.recovery import INTERRUPTED
from sessions.restoring import restore
from sessions.rows import (
    INTRODUCE,
    RECAP,
    UNDER_WAY,
    ContextName,
    ContextRow,
    DocumentRow,
    JobRow,
    LinkedFolderRow,
    MeasurementRow,
    PageHit,
    SearchHit,
    SessionRow,
    TurnRow,
    WorkerRow,
)
from sessions.search import MOST_HITS
from sessions.store import Store
from sessions.tensors import TensorFolder
from sessions.titles import MOST_LISTED, SHOWN_TITLE, listed, number_of, shown_title

__all__ = [
    "DATABASE",
    "INTERRUPTED",
    "INTRODUCE",
    "MOST_HITS",
    "MOST_LISTED",
    "RECAP",
    "SHOWN_TITLE",
    "UNDER_WAY",
    "AlreadyRead",
    "Backup",
    "ContextName",
    "ContextRow",
    "DiskFull",
    "DocumentRow",
    "FingerprintMismatch",
    "InUse",
    "JobRow",
    "LinkedFolderRow",
    "MeasurementRow",
    "NotFound",
    "PageHit",
    "Part",
    "ReadOnlyHome",
    "SearchHit",
    "SessionRow",
    "Store",
    "StoreCorrupt",
    "StoreError",
    "StoreFailing",
    "TensorFolder",
    "TextFile",
    "TurnRow",
    "WorkerRow",
    "add_backup",
    "back_up",
    "check_whole",
    "disk_free",
    "is_disk_full",
    "listed",
    "nearest",
    "number_of",
    "restore",
    "shown_title",
    "stamp",
    "write_whole",
]
