"""Check of the rows of a database that somebody handed over, and their copy into a database of our own making.

Nothing of the given file is used but the values of known columns, each after a check. So it brings no triggers, views,
jobs, notes of folders to remove, or columns of another kind. Files of a home are only ever named by an id, or by one
component that Stockpot itself chooses.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sqlite_utils

from sessions.database import as_text
from sessions.documents import ORIGINAL
from sessions.errors import StoreCorrupt, StoreError, sqlite_errors
from sessions.files import flush_file
from sessions.functions import know_functions
from sessions.ids import ID, NOUNS
from sessions.migrations import migrate, migrations
from sessions.rows import READING_STATUSES

MOST_LETTERS = 16 << 20
"""Most characters of a question, an answer or a JSON value; requests are no longer than that."""
MOST_BYTES = 4 * MOST_LETTERS
"""Most bytes of one row."""
DEEPEST = 32
"""Most levels of lists and objects in a JSON value."""
LARGEST = 1 << 53
"""Largest number, of bytes, tokens or anything else; larger ones are not exact in JSON."""
LAST_SECOND = 253_370_764_800.0
"""Last time that is shown: the year 9999."""
SHOWN = 80
"""Characters of a value that a message shows."""

Numbers = (int, float)
_SPAN = {"start": int, "end": int}
_PLACE = {"document": (str, type(None)), "page": (int, type(None)), "place": (str, type(None))}
_SOURCES = [{**_PLACE, **_SPAN, "quote": (str, type(None)), "weight": (*Numbers, type(None))}]
_MEASURED = {
    "warnings": [str],
    "citations": [{**_SPAN, "source": int}],
    "quotations": [{**_SPAN, **_PLACE}],
    "found": bool,
    **dict.fromkeys(("prompt_tokens", "answer_tokens", "reasoning_tokens", "read_again_tokens"), int),
    **dict.fromkeys(("reasoning_seconds", "time_to_first_token_seconds", "tokens_per_second"), (*Numbers, type(None))),
}
_TIERS = {"device": Numbers, "host": Numbers, "disk": Numbers}
_USAGE = {"entries": _TIERS, "bytes": _TIERS, "traffic": dict, "stages": list}


@dataclass(frozen=True)
class Column:
    """A check of one column. wanted: the values that it takes, in words."""

    wanted: str
    takes: Callable[[Any], bool]


def _optional(column: Column) -> Column:
    return Column(f"{column.wanted}, or nothing", lambda value: value is None or column.takes(value))


def _text(most: int = MOST_LETTERS, pattern: str = r"[^\0]*") -> Column:
    form = re.compile(pattern, re.DOTALL)
    return Column(
        f"a text of up to {most:,} characters in its form",
        lambda value: isinstance(value, str) and len(value) <= most and bool(form.fullmatch(value)),
    )


def _id(noun: str = "") -> Column:
    letters = [letter for letter, each in NOUNS.items() if noun in ("", each)]
    return Column(
        f"the id of a {noun or 'known kind'}",
        lambda value: isinstance(value, str) and bool(ID.fullmatch(value)) and value[0] in letters,
    )


def _one_of(*values: str) -> Column:
    return Column(f"one of {', '.join(values)}", lambda value: isinstance(value, str) and value in values)


def _number(kind: type, wanted: str, last: float) -> Column:
    kinds = (int,) if kind is int else Numbers
    return Column(wanted, lambda value: isinstance(value, kinds) and 0 <= value <= last)  # NaN is neither


def _json(shape: Any) -> Column:
    kind = "a list" if isinstance(shape, list) else "an object"
    return Column(f"{kind} as Stockpot writes it in JSON", lambda value: _is_json(value, shape))


def _is_json(value: Any, shape: Any) -> bool:
    """Return whether a text is JSON of this shape, with finite numbers and not nested too deep."""
    if not isinstance(value, str) or len(value) > MOST_LETTERS:
        return False
    try:
        found = json.loads(value)
    except (ValueError, RecursionError):
        return False
    level, depth = [found], 0
    while level:
        if depth > DEEPEST or any(isinstance(each, Numbers) and not abs(each) <= LARGEST for each in level):
            return False
        inner = (each.values() if isinstance(each, dict) else each for each in level if isinstance(each, dict | list))
        level, depth = [each for group in inner for each in group], depth + 1
    return _fits(found, shape)


def _fits(value: Any, shape: Any) -> bool:
    """Return whether a value has a shape: a type, several, [shape of each], or {key: shape} of the keys it has."""
    if isinstance(shape, list):
        return isinstance(value, list) and all(_fits(each, shape[0]) for each in value)
    if isinstance(shape, dict):
        return isinstance(value, dict) and all(_fits(value[key], shape[key]) for key in shape.keys() & value.keys())
    return isinstance(value, shape) and (shape is bool or not isinstance(value, bool))


_COUNT = _number(int, "a whole number of at least 0", LARGEST)
_SECONDS = _number(float, "a number of seconds", LARGEST)
_TIME = _number(float, "a time before the year 10000", LAST_SECOND)
_HASH = _text(64, "[0-9a-f]{64}")
_TITLE = _text(1000)
_LINE = _text(4096, r"[^\0\n\r]*")

_TABLES: dict[str, dict[str, Column]] = {
    "documents": {
        "id": _id("document"),
        "sha256": _HASH,
        "title": _TITLE,
        "format": _text(32),
        "pages": _COUNT,
        "characters": _COUNT,
        "warnings": _json([str]),
        "file_name": _optional(_text(1024, r"[^\0/]+")),
        "file_path": _optional(_text(32, ORIGINAL.pattern)),
        "file_bytes": _COUNT,
        "content_sha256": _HASH,
        "created_at": _TIME,
        "newer": _optional(_id("document")),
        "gone_at": _optional(_TIME),
    },
    "contexts": {
        "id": _id("context"),
        "model": _LINE,
        "method": _LINE,
        "settings": _json({}),
        "budget": _optional(_COUNT),
        "fingerprint": _text(),
        "tokens": _COUNT,
        "status": _one_of(*READING_STATUSES),
        "tokens_read": _COUNT,
        "read_before": _COUNT,
        "seconds": _SECONDS,
        "usage": _json(_USAGE),
        "warnings": _json([str]),
        "error": _optional(_text()),
        "own_title": _TITLE,
        "created_at": _TIME,
        "updated_at": _TIME,
    },
    "context_documents": {"context_id": _id("context"), "document_id": _id("document"), "position": _COUNT},
    "sessions": {
        "id": _id("session"),
        "context_id": _id("context"),
        "title": _TITLE,
        "created_at": _TIME,
        "updated_at": _TIME,
    },
    "turns": {
        "key": _COUNT,
        "id": _id("turn"),
        "session_id": _id("session"),
        "position": _COUNT,
        "question": _text(),
        "answer": _text(),
        "reasoning": _text(),
        "pages": _text(),
        "kept": _json([int]),
        "status": _one_of("answering", "done", "cancelled", "failed"),
        "sources": _json(_SOURCES),
        "measurements": _json(_MEASURED),
        "error": _optional(_text()),
        "asked_of": _COUNT,
        "created_at": _TIME,
        "finished_at": _optional(_TIME),
    },
    "drafts": {"turn_key": _COUNT, "text": _text(), "reasoning": _text(), "updated_at": _TIME},
    "measurements": {"key": _COUNT, "at": _TIME, "kind": _text(64), "subject_id": _id(), "values": _json({})},
}
"""The tables of a backup, what others refer to first. Triggers, indexes and whatever can be made again are left out."""
_CHECKSUMS = {"id": _id(), "value": _COUNT}


def copy_rows(received: Path, database: Path) -> None:
    """Make a database, of the newest schema, of all rows of a database that was handed over.

    The checksums of the rows come along, so that a row that was damaged before stays known as damaged.

    Raises:
        StoreCorrupt: a row is not one that Stockpot writes, or the file is no database of it.
        StoreError: a newer version made it.
    """
    database.touch(mode=0o600)
    with closing(sqlite3.connect(f"file:{received}?mode=ro&immutable=1", uri=True)) as source:
        source.text_factory = as_text
        source.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MOST_BYTES)
        source.execute("PRAGMA trusted_schema = OFF")
        source.execute("PRAGMA cell_size_check = ON")
        with closing(sqlite3.connect(database)) as connection:
            know_functions(connection)
            connection.execute("PRAGMA synchronous = OFF")  # flushed at the end
            connection.execute("PRAGMA foreign_keys = ON")
            target = sqlite_utils.Database(connection)
            with sqlite_errors(database):
                migrate(target, stop_before=_step_after(source))
                with target.atomic():
                    for table, columns in _TABLES.items():
                        _copy(source, target, table, columns)
                    _copy_checksums(source, target)
                _bring_up_to_date(target)
                _check_together(target)
    flush_file(database)


def _step_after(source: sqlite3.Connection) -> str | None:
    """Return the name of the first step of the schema that a database lacks; None if it has all."""
    given = _select(source, "_sqlite_migrations", ["migration_set", "name"])
    applied = [name for of, name in given if of == migrations.name]
    known = [step.name for step in migrations._migrations]
    if applied != known[: len(applied)] or not applied:
        if applied[: len(known)] == known:
            raise StoreError(
                f"A newer version of Stockpot made it: its database has step {applied[len(known)]!s:.{SHOWN}}. "
                "Install the newer version, then restore it."
            )
        raise StoreCorrupt("its database is not one that Stockpot made")
    return known[len(applied)] if len(applied) < len(known) else None


def _select(source: sqlite3.Connection, table: str, columns: list[str]) -> Iterator[tuple[Any, ...]]:
    """Yield the values of columns of a plain table.

    Raises:
        StoreCorrupt: it is none, or is damaged.
    """
    try:
        plain = "SELECT count(*) FROM sqlite_master WHERE name = ? AND type = 'table' AND rootpage > 0"
        if source.execute(plain, [table]).fetchone() != (1,):
            raise StoreCorrupt(f"its database has no table {table}")
        stored = {row[1] for row in source.execute(f"PRAGMA table_xinfo({table})") if row[6] == 0}
        if missing := set(columns) - stored:
            raise StoreCorrupt(f"its table {table} has no column {min(missing)}")
        names = ", ".join(f'"{name}"' for name in columns)
        yield from source.execute(f"SELECT {names} FROM {table} NOT INDEXED")
    except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
        raise StoreCorrupt(f"its table {table} cannot be read: {error!s:.{SHOWN}}") from error


def _copy(source: sqlite3.Connection, target: sqlite_utils.Database, table: str, columns: dict[str, Column]) -> None:
    there = {each.name for each in target.table(table).columns}  # an older schema has fewer
    names = [name for name in columns if name in there]
    quoted, places = ", ".join(f'"{name}"' for name in names), ", ".join("?" * len(names))
    into = f"INSERT INTO {table} ({quoted}) VALUES ({places})"
    for values in _select(source, table, names):
        row = dict(zip(names, values, strict=True))
        _check(table, row, columns)
        try:
            target.execute(into, values)
        except sqlite3.IntegrityError as error:
            raise StoreCorrupt(f"{_named(table, row)} contradicts another row: {error}") from error


def _copy_checksums(source: sqlite3.Connection, target: sqlite_utils.Database) -> None:
    if not target.table("checksums").exists():
        return
    seen: set[str] = set()
    for id, value in _select(source, "checksums", [*_CHECKSUMS]):
        _check("checksums", {"id": id, "value": value}, _CHECKSUMS)
        if id in seen:
            raise StoreCorrupt(f"its table checksums has {id} twice")
        seen.add(id)
        target.execute("UPDATE checksums SET value = ? WHERE id = ?", [value, id])


def _check(table: str, row: dict[str, Any], columns: dict[str, Column]) -> None:
    for name, value in row.items():
        if not columns[name].takes(value):
            raise StoreCorrupt(f"{_named(table, row)} has the {name} {value!r:.{SHOWN}}, not {columns[name].wanted}")
    if table == "turns":
        sources, measured = json.loads(row["sources"]), json.loads(row["measurements"])
        cited = [each.get("source", -1) + 1 for each in measured.get("citations", [])]
        noted = [number for number in json.loads(row.get("kept", "[]")) if number]  # 0 is the answer
        if not all(1 <= number <= len(sources) for number in (*cited, *noted)):
            raise StoreCorrupt(f"{_named(table, row)} cites a source that it does not have")


def _named(table: str, row: dict[str, Any]) -> str:
    return f"a row of {table} ({next(iter(row.values()))!r:.{SHOWN}})"


def _bring_up_to_date(target: sqlite_utils.Database) -> None:
    try:
        migrate(target)
    except Exception as error:  # a step expects rows that agree with each other
        raise StoreCorrupt(f"its rows cannot be brought up to date: {error!s:.{SHOWN}}") from error


def _check_together(target: sqlite_utils.Database) -> None:
    unread = """
        SELECT id FROM contexts WHERE (SELECT count(*) FROM context_documents WHERE context_id = id)
            IS NOT (SELECT max(position) + 1 FROM context_documents WHERE context_id = id)"""
    for row in target.query(unread):
        raise StoreCorrupt(f"context {row['id']} does not say which documents it read")
