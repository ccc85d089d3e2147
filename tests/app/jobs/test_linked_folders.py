"""Linked folders: files that are new, half-written, rewritten, moved, gone, refused, or not to be looked at."""

import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pymupdf
import pytest

from app.deletion import delete
from app.errors import UsageError
from app.jobs.linked_folders import AT_ONCE, QUIET_SEC, link, linked, look, unlink
from app.jobs.worker import Worker
from app.service import Service
from sessions import DocumentRow, LinkedFolderRow
from tests.app.helpers import in_process, work_once

TEXT = "The keeper of the lamp was Maren Hollis. "


class Folder:
    """A linked folder, looked at whenever a test wants, as often as it takes."""

    def __init__(self, service: Service, worker: Worker, path: Path) -> None:
        self.service, self.store, self.worker, self.path = service, service.store, worker, path
        self.now = 1000.0

    def write(self, name: str, text: str) -> Path:
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    @property
    def row(self) -> LinkedFolderRow:
        [row] = self.store.linked_folders.all()
        return row

    def look(self) -> bool:
        """Look once, when a file that was quiet before is quiet enough."""
        self.now += QUIET_SEC + 1
        return look(self.service, self.worker._read_as_usual, self.row, lambda: False, self.now)

    def queued(self) -> int:
        return len(self.store.jobs.all(status="queued"))

    def follow(self) -> None:
        """Look and read until nothing is under way."""
        while self.look() or self.queued():
            while self.queued():
                work_once(self.worker)

    def states(self) -> dict[str, str]:
        [folder] = linked(self.service)
        return {each["name"]: each["state"] for each in folder["files"]}

    def document(self, name: str) -> DocumentRow:
        return self.store.documents.get(self.row.files[name]["document"])

    def text(self, name: str) -> str:
        return self.service.document_cache.document(self.document(name).id).text


@pytest.fixture
def folder(service: Service, tmp_path: Path) -> Folder:
    (tmp_path / "papers").mkdir()
    link(service, str(tmp_path / "papers"))
    return Folder(service, Worker(service), tmp_path / "papers")


def test_a_half_written_file_is_read_once_it_is_whole(folder: Folder) -> None:
    """Its time says nothing: a download may have that of the original."""
    path = folder.write("sub/lamp.txt", TEXT)
    for more in ("It was lit. ", "And it burned.", ""):
        os.utime(path, (1, len(more)))
        assert folder.look()
        assert folder.queued() == 0
        with path.open("a") as file:
            file.write(more)
        os.utime(path, (1, len(more)))
    folder.follow()
    assert folder.text("sub/lamp.txt").strip() == f"{TEXT}It was lit. And it burned."
    assert folder.states() == {"sub/lamp.txt": "read"}
    [context] = folder.store.contexts.all()
    assert context.status == "ready"


def test_a_file_that_an_editor_deletes_and_writes_anew_is_a_newer_version(folder: Folder) -> None:
    path = folder.write("lamp.txt", TEXT)
    folder.write("other.txt", "On Monday it rained.")
    folder.follow()
    before = folder.document("lamp.txt")
    [context] = folder.store.contexts.all(before.id)
    path.unlink()
    assert folder.look()  # for a moment it is not there
    assert folder.store.documents.get(before.id).gone_at is None
    folder.write("lamp.txt", f"{TEXT}It was lit.")
    folder.follow()
    after = folder.document("lamp.txt")
    assert after.id != before.id
    assert (folder.store.documents.get(before.id).newer, after.newer) == (after.id, None)
    assert folder.store.documents.get(before.id).gone_at is None
    assert folder.store.contexts.get(context.id).status == "ready"  # the older reading stays
    assert "It was lit." in folder.text("lamp.txt")
    folder.write("lamp.txt", TEXT)  # and back again
    folder.follow()
    assert folder.document("lamp.txt").id == before.id
    assert (folder.document("lamp.txt").newer, folder.store.documents.get(after.id).newer) == (None, before.id)
    assert len(folder.store.contexts.all()) == 3


def test_the_same_content_is_read_once(folder: Folder) -> None:
    path = folder.write("lamp.txt", TEXT)
    folder.follow()
    document = folder.document("lamp.txt")
    path.unlink()
    folder.write("lamp.txt", TEXT)  # an editor saves what has not changed
    folder.look()
    folder.look()
    path.rename(folder.path / "keeper.txt")
    folder.follow()
    assert folder.states() == {"keeper.txt": "read"}
    assert folder.document("keeper.txt").id == document.id
    assert folder.store.documents.get(document.id).gone_at is None
    folder.write("copy.txt", TEXT)
    folder.follow()
    folder.write("copy.txt", f"{TEXT}It was lit.")  # the other is no older version of it
    folder.follow()
    assert folder.store.documents.get(document.id).newer is None
    assert len(folder.store.contexts.all()) == 2


def test_a_file_that_is_gone_is_marked_and_comes_back(folder: Folder) -> None:
    path = folder.write("lamp.txt", TEXT)
    folder.write("other.txt", "On Monday it rained.")
    folder.follow()
    document = folder.document("lamp.txt").id
    path.unlink()
    folder.follow()
    assert folder.states() == {"lamp.txt": "gone", "other.txt": "read"}
    assert folder.store.documents.get(document).gone_at is not None
    assert {each.status for each in folder.store.contexts.all(document)} == {"ready"}
    folder.write("lamp.txt", TEXT)
    folder.follow()
    assert folder.states() == {"lamp.txt": "read", "other.txt": "read"}
    assert folder.store.documents.get(document).gone_at is None
    assert len(folder.store.contexts.all()) == 2


@pytest.mark.parametrize("mounted", ["away", "empty"])
def test_a_folder_that_vanishes_changes_nothing(folder: Folder, mounted: str) -> None:
    folder.write("lamp.txt", TEXT)
    folder.follow()
    folder.path.rename(folder.path.with_name("elsewhere"))
    if mounted == "empty":  # the place where a disk was mounted stays
        folder.path.mkdir()
    for _ in range(3):
        assert not folder.look()
    assert "mounted" in folder.row.problem
    assert str(folder.path) in folder.row.problem
    assert folder.states() == {"lamp.txt": "read"}
    assert folder.document("lamp.txt").gone_at is None
    if mounted == "empty":
        folder.path.rmdir()
    folder.path.with_name("elsewhere").rename(folder.path)
    folder.follow()
    assert folder.row.problem == ""
    assert len(folder.store.contexts.all()) == 1


def test_a_folder_below_that_cannot_be_listed_loses_nothing(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.write("sub/lamp.txt", TEXT)
    folder.write("other.txt", "On Monday it rained.")
    folder.follow()
    scandir = os.scandir

    def refusing(path: Any) -> Any:
        if str(path).endswith("sub"):
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    with monkeypatch.context() as patch:
        patch.setattr(os, "scandir", refusing)
        folder.follow()
        folder.follow()
    assert folder.row.left_out == {"sub": "Permission denied"}
    assert folder.states() == {"other.txt": "read", "sub": "refused", "sub/lamp.txt": "read"}
    folder.follow()
    assert folder.states() == {"other.txt": "read", "sub/lamp.txt": "read"}


def test_no_more_files_are_read_at_once_than_a_person_said(folder: Folder) -> None:
    assert folder.row.at_once == AT_ONCE == 20
    link(folder.service, str(folder.path), 2)
    for number in range(3):
        folder.write(f"{number}.txt", f"{TEXT}Day {number}.")
    folder.look()
    folder.look()
    folder.look()
    assert folder.queued() == 2
    assert folder.states() == {"0.txt": "reading", "1.txt": "reading", "2.txt": "waiting"}
    folder.follow()
    assert set(folder.states().values()) == {"read"}


def test_a_refused_file_is_listed_with_its_reason_and_tried_again_if_asked(folder: Folder) -> None:
    path = folder.path / "torn.pdf"
    path.write_bytes(b"%PDF-1.4 nonsense")
    folder.write("lamp.txt", TEXT)
    folder.follow()
    [listed] = linked(folder.service)
    [torn] = [each for each in listed["files"] if each["name"] == "torn.pdf"]
    assert torn["state"] == "refused"
    assert "torn.pdf cannot be opened as PDF" in torn["reason"]
    assert folder.store.jobs.all(status="failed") == []  # listed here, and nowhere else
    folder.look()
    folder.look()
    assert folder.queued() == 0
    link(folder.service, str(folder.path))
    folder.look()
    folder.look()
    assert folder.states() == {"lamp.txt": "read", "torn.pdf": "reading"}


def test_links_are_followed_to_files_and_not_to_folders(folder: Folder, tmp_path: Path) -> None:
    (tmp_path / "apart").mkdir()
    (tmp_path / "apart" / "far.txt").write_text("On Monday it rained.")
    (tmp_path / "real.txt").write_text(TEXT)
    (folder.path / "file.txt").symlink_to(tmp_path / "real.txt")
    (folder.path / "nowhere.txt").symlink_to(tmp_path / "missing.txt")
    (folder.path / "apart").symlink_to(tmp_path / "apart")
    (folder.path / "again").symlink_to(folder.path)
    os.mkfifo(folder.path / "pipe.txt")
    folder.follow()
    assert folder.states() == {
        "again": "refused",
        "apart": "refused",
        "file.txt": "read",
        "nowhere.txt": "refused",
    }
    assert folder.text("file.txt").strip() == TEXT.strip()
    assert "not followed" in folder.row.left_out["apart"]


def test_what_is_deleted_here_is_not_read_again(folder: Folder) -> None:
    folder.write("lamp.txt", TEXT)
    folder.follow()
    delete(folder.service, "document", folder.document("lamp.txt"))
    folder.follow()
    assert folder.store.documents.all() == []
    assert folder.states() == {"lamp.txt": "refused"}
    link(folder.service, str(folder.path))
    folder.follow()
    assert folder.states() == {"lamp.txt": "read"}
    delete(folder.service, "document", folder.document("lamp.txt"))
    folder.write("lamp.txt", f"{TEXT}It was lit.")
    folder.follow()
    assert "It was lit." in folder.text("lamp.txt")


def test_two_programs_queue_a_file_once(folder: Folder) -> None:
    folder.write("lamp.txt", TEXT)
    folder.look()
    seen = folder.row
    folder.look()
    assert folder.queued() == 1
    again = look(folder.service, folder.worker._read_as_usual, seen, lambda: False, folder.now)
    assert (again, folder.queued()) == (True, 1)
    assert len(list((folder.service.home / "uploads").glob("*/lamp.txt"))) == 1
    assert unlink(folder.service, str(folder.path)) == str(folder.path)
    assert linked(folder.service) == []


def test_zotero_gives_titles_to_files_that_have_none(folder: Folder, tmp_path: Path) -> None:
    library = tmp_path / "Zotero"
    for key, title in (("AAAA1111", ""), ("BBBB2222", "On Lamps Themselves")):
        (library / "storage" / key).mkdir(parents=True)
        with pymupdf.open() as pdf:
            pdf.new_page().insert_text((72, 72), f"{TEXT}{key}")
            pdf.set_metadata({"title": title})
            pdf.save(library / "storage" / key / "1-s2.0-main.pdf")
    with closing(sqlite3.connect(library / "zotero.sqlite")) as db:
        db.executescript("""
            CREATE TABLE items (itemID INTEGER PRIMARY KEY, key TEXT);
            CREATE TABLE itemAttachments (itemID INTEGER, parentItemID INTEGER);
            CREATE TABLE fields (fieldID INTEGER, fieldName TEXT);
            CREATE TABLE itemDataValues (valueID INTEGER, value TEXT);
            CREATE TABLE itemData (itemID INTEGER, fieldID INTEGER, valueID INTEGER);
            INSERT INTO items VALUES (1, 'PAPER001'), (2, 'AAAA1111'), (3, 'BBBB2222');
            INSERT INTO itemAttachments VALUES (2, 1), (3, 1);
            INSERT INTO fields VALUES (1, 'title'), (2, 'date');
            INSERT INTO itemDataValues VALUES (1, 'Lamps: a Review'), (2, '1872');
            INSERT INTO itemData VALUES (1, 2, 2), (1, 1, 1);""")
        before = (library / "zotero.sqlite").read_bytes()
        unlink(folder.service, str(folder.path))
        link(folder.service, str(library / "storage"))
        folder.follow()
        assert (library / "zotero.sqlite").read_bytes() == before
    titles = {name[:8]: folder.document(name).title for name in folder.row.files}
    assert titles == {"AAAA1111": "Lamps: a Review", "BBBB2222": "On Lamps Themselves"}


def test_a_folder_that_cannot_be_linked_is_refused(service: Service, tmp_path: Path) -> None:
    (tmp_path / "lamp.txt").write_text(TEXT)
    for wrong, reason in (
        (tmp_path / "missing", "no folder that is there"),
        (tmp_path / "lamp.txt", "no folder that is there"),
        (tmp_path, "holds what Stockpot keeps"),
        (service.home / "documents", "holds what Stockpot keeps"),
    ):
        with pytest.raises(UsageError, match=reason):
            link(service, str(wrong))
    assert linked(service) == []


def test_folders_are_linked_listed_and_unlinked_by_commands(folder: Folder, capsys: pytest.CaptureFixture[str]) -> None:
    (folder.path / "torn.pdf").write_bytes(b"%PDF-1.4 nonsense")
    folder.follow()
    home = folder.service.home
    status, out, err = in_process(home, capsys, "link", str(folder.path), "--at-once", "7")
    assert (status, out) == (0, f"{folder.path}\n")
    assert err.startswith("Linked:")
    folder.follow()
    out = in_process(home, capsys, "link", "--list")[1]
    assert out.startswith(f"{folder.path}: 1 refused (7 at once)\n  refused: torn.pdf: torn.pdf cannot be opened")
    assert in_process(home, capsys, "link")[0] == 2
    assert in_process(home, capsys, "unlink", str(folder.path / "x"))[0] == 1
    assert in_process(home, capsys, "unlink", str(folder.path))[:2] == (0, f"{folder.path}\n")
    assert in_process(home, capsys, "link", "--list", "--json")[:2] == (0, "[]\n")
