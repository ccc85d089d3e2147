"""Backups that no Stockpot wrote: each is refused before anything is written."""

import contextlib
import hashlib
import io
import sqlite3
import tarfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sqlite_utils

from sessions import Store, StoreCorrupt, StoreError, add_backup, back_up, restore
from sessions.functions import know_functions
from sessions.migrations import migrate
from sessions.received_rows import _TABLES, copy_rows
from tests.sessions.helpers import Filled, contents

Change = Callable[[sqlite3.Connection], object]


def member(name: str, data: bytes = b"x", kind: bytes = tarfile.REGTYPE, **more: Any) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.type, info.size = kind, len(data)
    for key, value in more.items():
        setattr(info, key, value)
    return info, data


def forge(honest: Path, change: Change | None = None, *members: tuple[tarfile.TarInfo, bytes]) -> Path:
    """Write a backup like an honest one with other rows and more members. All checksums fit."""
    parts = []
    with tarfile.open(honest) as tar:
        for each in tar:
            data = tar.extractfile(each).read() if each.isreg() else b""
            parts += [] if each.name == "SHA256SUMS" else [(each, data)]
    if change is not None:
        database = honest.with_name("forged.db")
        database.write_bytes(parts[0][1])
        with contextlib.closing(sqlite3.connect(database, isolation_level=None)) as db:
            know_functions(db)
            change(db)
        parts[0] = member("stockpot.db", database.read_bytes())
    digests: dict[str, str] = {}
    out = honest.with_name("forged.tar")
    with tarfile.open(out, "w", format=tarfile.PAX_FORMAT) as tar:
        for info, data in [*parts, *members]:
            tar.addfile(info, io.BytesIO(data) if info.size == len(data) else None)
            real = info.pax_headers.get("GNU.sparse.name", info.name)
            digests[real] = digests.get(info.linkname) or hashlib.sha256(data).hexdigest()
        tar.addfile(*(lambda info, data: (info, io.BytesIO(data)))(*member("SHA256SUMS", listing(digests))))
    return out


def listing(digests: dict[str, str]) -> bytes:
    return "".join(f"{digest}  {name}\n" for name, digest in digests.items()).encode()


@pytest.fixture
def honest(kept: Store, tmp_path: Path) -> Path:
    back_up(kept, tmp_path / "honest.tar")
    return tmp_path / "honest.tar"


def check_refused(file: Path, match: str = "no whole backup") -> None:
    """Check that neither command takes a backup, and that the home to add it to stays as it is."""
    home = file.with_name("restored")
    with pytest.raises(StoreCorrupt, match=match) as refused:
        restore(file, home)
    assert len(str(refused.value)) < 500
    assert not home.exists()
    with Store(file.with_name("mine")) as store:
        mine = Filled(store)
        mine.document("f" * 64, "My own paper")
        before = contents(store)
        with pytest.raises(StoreCorrupt, match=match):
            add_backup(store, file)
        assert contents(store) == before
        assert store.database.rows("SELECT * FROM leftovers") == []
        assert not [*store.home.glob("contexts/*"), *store.home.glob("sessions/*"), *store.home.glob("incoming/*")]


def test_what_the_forger_leaves_as_it_is_can_be_restored(honest: Path, kept: Store, tmp_path: Path) -> None:
    """The other tests here would be true of a forger that only makes broken files."""
    restore(forge(honest), tmp_path / "restored")
    with Store(tmp_path / "restored") as again:
        assert contents(again) == contents(kept)


FILES = {
    "absolute": "/etc/hostname",
    "above": "../../../secret.pdf",
    "above its folder": "../content.json",
    "below": "original/../../x",
    "itself": ".",
    "another file of the folder": "content.json",
    "a line break": "original.pdf\n",
}


@pytest.mark.parametrize("name", FILES.values(), ids=FILES)
@pytest.mark.parametrize(("table", "column"), [("documents", "file_path"), ("documents", "id"), ("sessions", "id")])
def test_a_row_names_no_file_but_its_own(honest: Path, table: str, column: str, name: str) -> None:
    def change(db: sqlite3.Connection) -> None:
        db.execute(f"UPDATE {table} SET {column} = ? WHERE rowid = (SELECT max(rowid) FROM {table})", [name])

    check_refused(forge(honest, change))


@pytest.mark.parametrize("name", ["/etc/hostname", "../x.pdf", "a/b.pdf", "x\0y"])
def test_the_name_of_a_file_is_one_component(honest: Path, name: str) -> None:
    check_refused(forge(honest, lambda db: db.execute("UPDATE documents SET file_name = ?", [name])))


def test_a_home_with_a_row_that_names_another_file_gives_it_to_nobody(filled: Filled, tmp_path: Path) -> None:
    """A home may have been restored by a version that took every row."""
    (tmp_path / "secret.pdf").write_text("secret")
    document = filled.document(file=Path(__file__))
    folder = filled.store.folders.path(document.id)
    assert filled.store.documents.file(document.id).parent == folder
    (folder / "original.lnk").symlink_to(tmp_path / "secret.pdf")
    names = [
        str(tmp_path / "secret.pdf"),
        "../../../secret.pdf",
        "../content.json",
        "content.json",
        "original.lnk",
        ".",
    ]
    for name in names:
        filled.store.database.update("document", document.id, {"file_path": name})
        assert filled.store.documents.file(document.id) is None, name


def test_jobs_and_notes_do_not_come_along(honest: Path, tmp_path: Path) -> None:
    """A queued job read any file, or removed the home; a note removed the folder of a document."""

    def change(db: sqlite3.Connection) -> None:
        now = time.time()
        db.execute("INSERT INTO leftovers SELECT id, 0 FROM documents")
        db.execute(
            "INSERT INTO jobs (id, kind, subject_id, payload, status, stage, done, total, progress, cancel_requested, "
            "attempts, created_at, updated_at) VALUES ('j-222222', 'ingest', 'upload', ?, 'queued', '', 0, 0, '{}', 0, "
            "0, ?, ?)",
            ['{"files": ["uploads/../x.txt", "/etc/hostname"]}', now, now],
        )

    file = forge(honest, change)
    restore(file, tmp_path / "restored")
    with Store(tmp_path / "mine") as mine:
        add_backup(mine, file)
    for home in ("restored", "mine"):
        with Store(tmp_path / home) as store:
            assert store.jobs.all() == store.database.rows("SELECT * FROM leftovers") == []
            assert all(store.documents.has_content(row.id) for row in store.documents.all())


def test_a_note_of_a_document_that_is_there_removes_nothing(filled: Filled) -> None:
    document = filled.document()
    filled.store.folders.note([document.id, "t-222222"])
    with filled.store.database.transaction() as db:
        db.execute("INSERT INTO leftovers VALUES ('../../x', 0)")
    with Store(filled.store.home) as again:
        assert again.documents.content(document.id)
        assert again.database.rows("SELECT * FROM leftovers") == []


COLUMNS = [(table, column) for table, columns in _TABLES.items() for column in columns]


@pytest.fixture
def database(honest: Path, tmp_path: Path) -> Path:
    """The database of a backup with a row in every table."""
    with tarfile.open(honest) as tar:
        (tmp_path / "honest.db").write_bytes(tar.extractfile("stockpot.db").read())
    with contextlib.closing(sqlite3.connect(tmp_path / "honest.db", isolation_level=None)) as db:
        db.execute("INSERT INTO drafts (turn_key, text, updated_at) SELECT key, 'x', 1.0 FROM turns")
        db.execute("INSERT INTO measurements (at, kind, subject_id, \"values\") SELECT 1.0, 'x', id, '{}' FROM turns")
    return tmp_path / "honest.db"


def test_no_column_takes_bytes(database: Path, tmp_path: Path) -> None:
    copy_rows(database, tmp_path / "good.db")
    for number, (table, column) in enumerate(COLUMNS):
        if column in ("key", "turn_key"):  # SQLite itself takes numbers alone
            continue
        forged = tmp_path / "forged.db"
        forged.write_bytes(database.read_bytes())
        with contextlib.closing(sqlite3.connect(forged, isolation_level=None)) as db:
            know_functions(db)
            db.execute("PRAGMA ignore_check_constraints = ON")
            one = f"rowid = (SELECT min(rowid) FROM {table})"
            assert db.execute(f'UPDATE {table} SET "{column}" = ? WHERE {one}', [b"\xff\0"]).rowcount == 1
        with pytest.raises(StoreCorrupt, match=f"the {column} b'"):
            copy_rows(forged, tmp_path / f"{number}.db")


DEEP = "[" * 100_000
VALUES: dict[str, tuple[str, str, Any]] = {
    "a number of pages in words": ("documents", "pages", "many"),
    "fewer pages than none": ("documents", "pages", -1),
    "a size beyond all disks": ("documents", "file_bytes", 1 << 62),
    "warnings without an end": ("documents", "warnings", "{"),
    "warnings of another kind": ("documents", "warnings", "{}"),
    "warnings that are no sentences": ("documents", "warnings", "[1]"),
    "a title of megabytes": ("documents", "title", "A" * 3_000_000),
    "a time after all times": ("documents", "created_at", 1e300),
    "an endless time": ("contexts", "created_at", float("inf")),
    "a hash that is none": ("documents", "content_sha256", "../x"),
    "deep settings": ("contexts", "settings", DEEP),
    "deep settings that end": ("contexts", "settings", '{"a":' * 500 + "1" + "}" * 500),
    "settings with an endless number": ("contexts", "settings", '{"a": 1e999}'),
    "settings that are no number": ("contexts", "settings", '{"a": NaN}'),
    "usage of another kind": ("contexts", "usage", '{"entries": 5}'),
    "a document of another kind": ("documents", "id", "s-234567"),
    "a context with the id of a document": ("contexts", "id", "d-234567"),
    "a session of no context": ("sessions", "context_id", "c-234567"),
    "measurements of another kind": ("turns", "measurements", '{"warnings": 5}'),
    "a source that is not there": ("turns", "measurements", '{"citations": [{"start": 0, "end": 1, "source": 7}]}'),
    "sources of another kind": ("turns", "sources", '["x"]'),
    "a note of a source that is not there": ("turns", "kept", "[0, 7]"),
    "pages of a turn that is not there": ("context_documents", "position", 7),
}


@pytest.mark.parametrize(("table", "column", "value"), VALUES.values(), ids=VALUES)
def test_a_value_that_no_reader_takes_is_refused(honest: Path, table: str, column: str, value: Any) -> None:
    def change(db: sqlite3.Connection) -> None:
        with contextlib.suppress(sqlite3.IntegrityError):  # one row is enough
            db.execute(f"UPDATE {table} SET {column} = ? WHERE rowid = (SELECT min(rowid) FROM {table})", [value])

    check_refused(forge(honest, change))


SCHEMAS = {
    "a view": "ALTER TABLE documents RENAME TO d; CREATE VIEW documents AS SELECT * FROM d",
    "a computed column": "ALTER TABLE documents RENAME TO d; CREATE TABLE documents (id TEXT PRIMARY KEY, sha256 TEXT, "
    "title TEXT AS (printf('%.*c', 1000000000, 'x')), format TEXT, pages INTEGER, characters INTEGER, warnings TEXT, "
    "file_name TEXT, file_path TEXT, file_bytes INTEGER, content_sha256 TEXT, created_at REAL, searchable INTEGER)",
    "no table": "DROP TABLE measurements",
    "no steps": "DROP TABLE _sqlite_migrations",
    "a step left out": "DELETE FROM _sqlite_migrations WHERE name LIKE 'm003%'",
}


@pytest.mark.parametrize("sql", SCHEMAS.values(), ids=SCHEMAS)
def test_another_schema_is_refused(honest: Path, sql: str) -> None:
    check_refused(forge(honest, lambda db: db.executescript(f"PRAGMA foreign_keys = OFF; {sql}")))


def test_a_trigger_does_not_come_along(honest: Path, tmp_path: Path) -> None:
    evil = "CREATE TRIGGER evil AFTER UPDATE OF title ON documents BEGIN DELETE FROM turns; END"
    file = forge(honest, lambda db: db.executescript(evil))
    restore(file, tmp_path / "restored")
    with Store(tmp_path / "restored") as store:
        store.documents.rename(store.documents.all()[0].id, "Another")
        assert len(store.turns.all(store.sessions.all()[0].id)) == 1


def test_a_backup_of_a_newer_version_says_so(honest: Path, tmp_path: Path) -> None:
    newer = "INSERT INTO _sqlite_migrations (migration_set, name) VALUES ('stockpot.sessions', 'm999_later')"
    with pytest.raises(StoreError, match=r"newer version.*m999_later"):
        restore(forge(honest, lambda db: db.execute(newer)), tmp_path / "restored")


def test_rows_of_an_older_schema_are_brought_up_to_date(tmp_path: Path) -> None:
    """The database at the step before page names were marked as counted in the file."""
    old = tmp_path / "old.db"
    with contextlib.closing(sqlite3.connect(old)) as connection:
        migrate(sqlite_utils.Database(connection), stop_before="m012_pages_as_the_file_counts_them")
        values = {"id": "d-222222", "sha256": "a" * 64, "title": "Emma", "format": "pdf", "content_sha256": "b" * 64}
        numbers = {"pages": 3, "characters": 9, "warnings": "[]", "file_bytes": 0, "created_at": 1.0}
        db = sqlite_utils.Database(connection)
        db.table("documents").insert({**values, **numbers})
        context = {"id": "c-222222", "model": "pocket", "method": "exact", "settings": "{}", "fingerprint": "print"}
        state = {"tokens": 9, "status": "ready", "tokens_read": 9, "seconds": 1.0, "usage": "{}", "warnings": "[]"}
        db.table("contexts").insert({**context, **state, "created_at": 1.0, "updated_at": 1.0})
        link = {"context_id": "c-222222", "document_id": "d-222222", "position": 0}
        db.table("context_documents").insert(link)
        times = {"created_at": 1.0, "updated_at": 1.0}
        db.table("sessions").insert({"id": "s-222222", "context_id": "c-222222", "title": "Emma", **times})
        turn = {"id": "t-222222", "session_id": "s-222222", "position": 0, "question": "Who?", "answer": "I."}
        more = {"status": "done", "sources": "[]", "measurements": "{}", "pages": "3", "created_at": 1.0}
        db.table("turns").insert({**turn, **more})
        connection.commit()
    (tmp_path / "home").mkdir()
    copy_rows(old, tmp_path / "home" / "stockpot.db")
    with Store(tmp_path / "home") as store:
        assert store.turns.get("t-222222").pages == "3 of the file"
        assert store.turns.get("t-222222").intact
        assert store.turns.get("t-222222").kept == []
        assert store.contexts.all()[0].title == "Emma"


D = "documents/d-222222"
SPARSE = {
    "GNU.sparse.major": "1",
    "GNU.sparse.minor": "0",
    "GNU.sparse.name": f"{D}/z",
    "GNU.sparse.realsize": "209715200",
}
MEMBERS: dict[str, tuple[tarfile.TarInfo, bytes]] = {
    "sparse": member(f"{D}/z", b"0\n".ljust(512, b"\0"), pax_headers=SPARSE),
    "sparse of the older kind": member(f"{D}/z", b"", tarfile.GNUTYPE_SPARSE),
    "a size beyond the file": member(f"{D}/z", size=1 << 40),
    "a size below nothing": member(f"{D}/z", pax_headers={"size": "-1024"}),
    "a name above": member("documents/../../evil"),
    "a name above, below an id": member(f"{D}/../../../evil"),
    "an absolute name": member("/tmp/evil"),
    "a line break": member(f"{D}/a\nb"),
    "a symbolic link": member(f"{D}/l", b"", tarfile.SYMTYPE, linkname="/etc/passwd"),
    "a hard link to another file": member(f"{D}/l", b"", tarfile.LNKTYPE, linkname="/etc/passwd"),
    "a hard link above": member(f"{D}/l", b"", tarfile.LNKTYPE, linkname="../secret"),
    "a hard link to the database": member(f"{D}/l", b"", tarfile.LNKTYPE, linkname="stockpot.db"),
    "a device": member(f"{D}/d", b"", tarfile.CHRTYPE),
    "a pipe": member(f"{D}/p", b"", tarfile.FIFOTYPE),
    "a folder": member(f"{D}/f", b"", tarfile.DIRTYPE),
    "a name twice": member("stockpot.db"),
    "a log of the database": member("stockpot.db-wal"),
    "a file of the home": member("config.toml"),
    "a folder of another kind": member("documents/s-222222/x"),
    "a folder without a row": member("documents/d-333333/x"),
}


@pytest.mark.parametrize("given", MEMBERS.values(), ids=MEMBERS)
def test_a_member_that_no_backup_has_is_refused(honest: Path, given: tuple[tarfile.TarInfo, bytes]) -> None:
    def change(db: sqlite3.Connection) -> None:  # so that its folder has a row
        db.execute("PRAGMA foreign_keys = OFF")
        db.execute(
            "INSERT INTO documents SELECT 'd-222222', ?, title, format, pages, characters, warnings, file_name, "
            "file_path, file_bytes, content_sha256, created_at, 0, NULL, NULL FROM documents LIMIT 1",
            ["9" * 64],
        )

    restore(forge(honest, change), honest.with_name("without it"))
    check_refused(forge(honest, change, given))


def test_nothing_is_written_of_a_backup_larger_than_the_disk(
    honest: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[Path] = []
    monkeypatch.setattr("sessions.restoring._write", lambda content, path: written.append(path))
    monkeypatch.setattr("sessions.restoring.disk_free", lambda path: 1000)
    with pytest.raises(StoreError, match="bytes are needed and 1,000 are free"):
        restore(honest, tmp_path / "restored")
    assert written == []


@pytest.mark.parametrize("name", ["../stockpot.db", "/tmp/stockpot.db", "contexts/c-222222/../../../x", "models/x"])
@pytest.mark.parametrize("kind", [tarfile.REGTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE])
def test_a_backup_writes_nowhere_else(tmp_path: Path, name: str, kind: bytes) -> None:
    with tarfile.open(tmp_path / "forged.tar", "w") as tar:
        member = tarfile.TarInfo(name)
        member.type, member.linkname, member.size = kind, "/etc/passwd", 3 if kind == tarfile.REGTYPE else 0
        tar.addfile(member, io.BytesIO(b"abc"))
    with pytest.raises(StoreCorrupt, match="it has a file"):
        restore(tmp_path / "forged.tar", tmp_path / "restored")
    assert [path.name for path in tmp_path.iterdir()] == ["forged.tar"]


def test_a_link_in_a_backup_leads_to_a_file_in_it(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "forged.tar", "w") as tar:
        member = tarfile.TarInfo("contexts/c-222222/a.000001.safetensors")
        member.type, member.linkname = tarfile.LNKTYPE, "/etc/passwd"
        tar.addfile(member)
    with pytest.raises(StoreCorrupt, match="is no plain file"):
        restore(tmp_path / "forged.tar", tmp_path / "restored")
