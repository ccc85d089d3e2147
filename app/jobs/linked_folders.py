"""Linked folders: their new files are read, changed ones become new versions, and gone ones are marked.

Files are compared with their last sight, by size, time and content. A file is read once it has been quiet for a while,
as editors delete and write anew when they save. No document is ever deleted here.
"""

import os
import sqlite3
import stat
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from app.errors import AppError, UsageError, phrase
from app.formatting import name_as_text, plural
from app.jobs.job_runner import READ
from app.jobs.uploads import copy_in, discard, remove_uploads
from app.service import Service
from ingest import IngestError, check_file, fingerprint
from ingest.folder import readable_files
from ingest.titles import choose_title
from sessions import UNDER_WAY, DocumentRow, JobRow, LinkedFolderRow, NotFound, StoreError

AT_ONCE = 20
"""Files of a folder that are read at once, unless a person says more."""
QUIET_SEC = 5.0
"""Time that a file stays as it is before it is read, and stays away before it counts as gone."""
LOOK_AGAIN_SEC = 60.0
"""Time between two looks at a folder while nothing of it is under way."""
NOT_KEPT = "It was stopped, or deleted here: it is read when it changes, or when the folder is linked again."
NO_TEXT = "its name is no text: rename it"
STATES = ("read", "reading", "waiting", "refused", "gone")

Read = Callable[[list[Path]], JobRow]
"""Queues copies of files to be read."""


@dataclass
class LinkedFile:
    """A file of a linked folder, as it was last seen.

    Attributes:
        size: its bytes.
        changed: the time of its last change, in nanoseconds.
        seen_at: time when it was first seen with these two.
        settled: whether its content was looked at since.
        sha256: hash of the content that is read or refused; "" for none yet.
        document: id of the document of its newest content that was read; "" for none.
        job: id of the job that reads it; "" for none.
        refused: sentence that says why it is not read; "" if it is.
        missing_at: time when it was first not there; 0 while it is there.
        gone: whether it counts as gone.
    """

    size: int = -1
    changed: int = 0
    seen_at: float = 0.0
    settled: bool = False
    sha256: str = ""
    document: str = ""
    job: str = ""
    refused: str = ""
    missing_at: float = 0.0
    gone: bool = False

    @property
    def state(self) -> str:
        """One of STATES."""
        if self.gone:
            return "gone"
        if self.job:
            return "reading"
        if self.refused:
            return "refused"
        return "read" if self.document and self.settled else "waiting"


def link(service: Service, folder: str, at_once: int = AT_ONCE) -> LinkedFolderRow:
    """Link a folder; a running server reads it. Linked again, it gets another bound, and refused files another try.

    Args:
        service: the home in use.
        folder: its path.
        at_once: most files of it that are read at once.

    Raises:
        UsageError: it cannot be linked.
    """
    path = Path(os.path.abspath(Path(folder).expanduser()))
    if at_once < 1:
        raise UsageError(f"At least one file is read at once, not {at_once}.")
    if not path.is_dir():
        raise UsageError(f"{path} is no folder that is there: check the name, and whether its disk is mounted.")
    real = path.resolve()
    if real.is_relative_to(service.home) or (
        service.home.is_relative_to(real)
        and not any(part.startswith(".") for part in service.home.relative_to(real).parts)
    ):
        raise UsageError(f"{path} holds what Stockpot keeps: link a folder apart from {service.home}.")
    if problem := _unlistable(path):
        raise UsageError(problem)
    with service.store.transaction():
        known = next(
            (_files(service, row) for row in service.store.linked_folders.all() if row.folder == str(path)), {}
        )
        files = {name: asdict(file) for name, file in known.items() if not file.refused}
        return service.store.linked_folders.add(str(path), at_once, files)


def _files(service: Service, row: LinkedFolderRow) -> dict[str, LinkedFile]:
    """Return the last sight of each file of a folder; one whose document was deleted since is refused."""
    files = {name: LinkedFile(**each) for name, each in row.files.items()}
    there = {each.id for each in service.store.documents.existing([file.document for file in files.values()])}
    for file in files.values():
        if file.document and file.document not in there:
            file.document, file.gone, file.refused = "", False, "" if file.job else NOT_KEPT
    return files


def linked(service: Service) -> list[dict[str, Any]]:
    """Return the linked folders with their files as plain data: name, state, document, and reason if it is refused."""
    return [
        {
            "folder": row.folder,
            "at_once": row.at_once,
            "problem": row.problem,
            "files": _described(_files(service, row), row.left_out),
        }
        for row in service.store.linked_folders.all()
    ]


def _described(files: dict[str, LinkedFile], left_out: dict[str, str]) -> list[dict[str, str]]:
    described = []
    for name in sorted({*files, *left_out}):
        file, reason = files.get(name, LinkedFile()), left_out.get(name, "")
        state = "refused" if reason and not file.gone else file.state
        described.append({"name": name, "state": state, "document": file.document, "reason": reason or file.refused})
    return described


def counted(files: list[dict[str, Any]]) -> dict[str, int]:
    """Return how many files are in each state that one is in. files: as `linked` returns them."""
    counts = Counter(each["state"] for each in files)
    return {state: counts[state] for state in STATES if counts[state]}


def unlink(service: Service, folder: str) -> str:
    """Unlink a folder, and return its path. All that was read of it stays.

    Raises:
        NotFound: it is not linked.
    """
    path = os.path.abspath(Path(folder).expanduser())
    if not service.store.linked_folders.remove(path):
        raise NotFound(f"{path} is not linked: `stockpot link --list` shows the folders that are.")
    return path


def look(
    service: Service, read: Read, row: LinkedFolderRow, should_stop: Callable[[], bool], now: float | None = None
) -> bool:
    """Bring the documents in step with a linked folder.

    Args:
        service: the home in use.
        read: queues copies of files to be read.
        row: the folder.
        should_stop: asked before each file.
        now: time of the look; None for the present.

    Returns:
        Whether to look again soon, as something is under way.
    """
    return _Look(service, read, row, time.time() if now is None else now).run(should_stop)


def _unlistable(path: Path) -> str:
    """Return why a folder cannot be looked at, or ""."""
    try:
        os.scandir(path).close()
    except OSError as error:
        return (
            f"{path} cannot be looked at ({error.strerror}), so all stays as it is. "
            "Check its permissions, and whether its disk is mounted."
        )
    return ""


class _Look:
    """One look at a linked folder."""

    def __init__(self, service: Service, read: Read, row: LinkedFolderRow, now: float) -> None:
        self.service, self.store, self.read, self.now = service, service.store, read, now
        self.row, self.root = row, Path(row.folder)
        self.files = _files(service, row)
        self.left_out: dict[str, str] = {}
        self.failed: list[JobRow] = []  # jobs to discard once their reasons are saved
        self.busy, self.soon = 0, False

    def run(self, should_stop: Callable[[], bool]) -> bool:
        """Compare the folder with its last sight; return whether to look again soon."""
        there = self._walk()
        problem = _unlistable(self.root)
        present = [name for name, file in self.files.items() if not file.gone]
        if not problem and present and not there and not self.left_out:
            problem = (
                f"{self.root} is empty, and held {plural(len(present), 'file')}, so all stays as it is. "
                "Check whether its disk is mounted."
            )
        if problem:
            self._save(replace(self.row, problem=problem))
            return False
        for name, found in there.items():
            self._see(name, found)
        for name, file in self.files.items():
            if file.job:
                self._follow(name, file)
        self.busy = sum(bool(file.job) for file in self.files.values())
        try:
            for name in sorted(there):
                if should_stop():
                    break
                self._take(name)
        except _Overtaken:
            return True
        documents = {file.document for name, file in self.files.items() if name in there}
        for name in [*self.files]:  # after others that may have the same content
            if name not in there and not any(Path(name).is_relative_to(each) for each in self.left_out):
                self._miss(name, documents)
        if not self._save():
            return True
        for job in self.failed:
            discard(self.service, job)
        return self.soon

    def _save(self, row: LinkedFolderRow | None = None) -> bool:
        """Store this sight if it differs from the last; return False if the row has changed meanwhile."""
        files = {name: asdict(file) for name, file in self.files.items()}
        row = row or replace(self.row, files=files, left_out=self.left_out, problem="")
        if row == self.row:
            return True
        if not self.store.linked_folders.save(row):
            return False
        self.row = replace(row, revision=row.revision + 1)
        return True

    def _walk(self) -> dict[str, os.stat_result]:
        """Return the readable files that are there, by name; note those that cannot be looked at."""

        def name_of(path: Path) -> str:
            return path.relative_to(self.root).as_posix()

        there = {}
        for path in readable_files(self.root, lambda path, why: self.left_out.update({name_of(path): why})):
            name = name_of(path)
            try:
                name.encode()
                found = path.stat()
            except UnicodeEncodeError:
                self.left_out[name_as_text(name)] = NO_TEXT
            except OSError as error:
                self.left_out[name] = str(error.strerror)
            else:
                if stat.S_ISREG(found.st_mode):
                    there[name] = found
        return there

    def _see(self, name: str, found: os.stat_result) -> None:
        file = self.files.setdefault(name, LinkedFile())
        if file.gone:
            self._mark(file.document, gone_at=None)
        file.missing_at, file.gone = 0.0, False
        if (file.size, file.changed) != (found.st_size, found.st_mtime_ns):
            file.size, file.changed, file.seen_at, file.settled = found.st_size, found.st_mtime_ns, self.now, False

    def _miss(self, name: str, documents: set[str]) -> None:
        """Note that a file is not there; mark its document if it stays away. documents: those of files that are."""
        file = self.files[name]
        if file.job:
            return
        if not file.missing_at or self.now - file.missing_at < QUIET_SEC:
            file.missing_at, self.soon = file.missing_at or self.now, True
        elif not file.document or file.document in documents:
            del self.files[name]
        elif not file.gone:
            file.gone = True
            self._mark(file.document, gone_at=file.missing_at)

    def _mark(self, document: str, **marks: Any) -> None:
        with suppress(NotFound):  # deleted here
            self.store.documents.mark(document, **marks)

    def _take(self, name: str) -> None:
        """Look at the content of a file that is quiet, and queue it if it is new."""
        file, path = self.files[name], self.root / name
        if file.settled or file.job:
            return
        if self.now - file.seen_at < QUIET_SEC or self.busy >= self.row.at_once:
            self.soon = True
            return
        copies: list[Path] = []
        try:
            check_file(path)
            sha256 = fingerprint(path)
            if sha256 != file.sha256:
                known = self.store.documents.find(sha256)
                if known is None or not self.store.contexts.all(known.id):
                    with path.open("rb") as stream:
                        copies = copy_in(self.service.home, [(path.name, stream)])
            now = path.stat()
        except (AppError, IngestError, StoreError, OSError) as error:
            self.left_out[name] = phrase(error)
            return
        if (now.st_size, now.st_mtime_ns) != (file.size, file.changed):  # it was written to meanwhile
            remove_uploads(copies, self.service.home)
            self.soon = True
            return
        file.settled = True
        if sha256 == file.sha256:
            return
        file.sha256, file.refused = sha256, ""
        if copies:
            self._queue(file, copies)
        elif known is not None:
            self._becomes(file, known)

    def _queue(self, file: LinkedFile, copies: list[Path]) -> None:
        """Queue a file, and store that in the same step, so that no other program queues it too."""
        try:
            with self.store.transaction():
                file.job, self.busy, self.soon = self.read(copies).id, self.busy + 1, True
                if not self._save():
                    raise _Overtaken
        except BaseException:
            remove_uploads(copies, self.service.home)
            raise

    def _follow(self, name: str, file: LinkedFile) -> None:
        """Note how the reading of a file has ended, if it has."""
        document, job = self.store.documents.find(file.sha256), self._job(file.job)
        if document is not None:
            self._entitle(self.root / name, document)
        contexts = self.store.contexts.all(document.id) if document is not None else []
        if (job and job.status in UNDER_WAY) or any(self.store.jobs.work_on(each.id, READ) for each in contexts):
            self.soon = True
            return
        file.job = ""
        if job and job.status == "failed":
            file.refused = job.error or ""
            self.failed.append(job)
        elif document is None or not contexts:
            file.refused = NOT_KEPT
        else:
            self._becomes(file, document)

    def _job(self, id: str) -> JobRow | None:
        with suppress(NotFound):
            return self.store.jobs.get(id)
        return None

    def _becomes(self, file: LinkedFile, document: DocumentRow) -> None:
        """Note that a document is the newest content of a file, and so a newer version of the one before."""
        before = file.document
        others = (other.document for other in self.files.values() if other is not file and not other.missing_at)
        if before not in ("", document.id) and before not in others:
            self._mark(before, newer=document.id)
        file.document = document.id
        self._mark(document.id, newer=None, gone_at=None)

    def _entitle(self, path: Path, document: DocumentRow) -> None:
        """Give a document that is called after its file the title that Zotero has for it."""
        if document.title == choose_title(path) and (title := zotero_title(path)):
            self.store.documents.rename(document.id, title)


class _Overtaken(Exception):
    """The row of a folder has changed since it was read."""


def zotero_title(path: Path) -> str:
    """Return the title that Zotero has for a file in its folder `storage/KEY`; "" for any other file."""
    if len(path.parents) < 3 or path.parents[1].name != "storage":
        return ""
    library = path.parents[2] / "zotero.sqlite"
    title = """
        SELECT value FROM items JOIN itemAttachments USING (itemID)
        JOIN itemData ON itemData.itemID = coalesce(parentItemID, items.itemID)
        JOIN fields USING (fieldID) JOIN itemDataValues USING (valueID) WHERE key = ? AND fieldName = 'title'"""
    try:
        with closing(sqlite3.connect(f"{library.absolute().as_uri()}?mode=ro&immutable=1", uri=True)) as db:
            found = db.execute(title, [path.parent.name]).fetchone()
    except sqlite3.Error:  # another version of Zotero, or it writes just now
        return ""
    return str(found[0]) if found else ""
