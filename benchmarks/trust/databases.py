"""Databases altered: each must be refused in a sentence, or show the same rows as before."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from benchmarks.trust.common import Endless, Tally, judged, measured
from sessions import Store

PAGE = 4096
Altered = tuple[str, bytes, bytes | None]
"""Name of the alteration, the database, and the log beside it if there is one."""


def run(folder: Path, trials: int, seed: int) -> Tally:
    """Alter a database with 300 turns so many times, and open each."""
    home, chance, tally = folder / "home", random.Random(seed), Tally()
    _fill(home)
    with closing(Store(home)) as store:
        whole = _everything(store)
    raw = (home / "stockpot.db").read_bytes()
    for _ in range(trials):
        name, data, log = chance.choice(ALTERATIONS)(raw, chance)
        _put(home, data, log)
        try:
            with measured(tally), closing(Store(home)) as store:
                found = _everything(store)
            outcome, words = ("same", "") if found == whole else _noticed(home, whole, found)
        except (Exception, Endless) as error:
            outcome, words = judged(error)
        tally.add(name, outcome, words)
    return tally


def _fill(home: Path) -> None:
    with closing(Store(home)) as store:
        for book in range(12):
            document = store.documents.add(
                sha256=f"{book:064x}",
                title=f"Book {book}",
                format="txt",
                pages=3,
                characters=100,
                content={"pages": [book] * 50},
                file=None,
            )
            context = store.contexts.add(
                model="pocket",
                method="exact",
                settings={},
                budget=512,
                fingerprint="f",
                document_ids=[document.id],
                tokens=10,
            )
            store.contexts.update(context.id, status="ready", tokens_read=10)
            for number in range(4):
                session = store.sessions.add(context.id, f"Chat {book} {number}")
                for each in range(6):
                    turn = store.turns.add(session.id, f"Question {book} {number} {each} " + "words " * 20)
                    sources = [{"document": document.id, "page": each}]
                    store.turns.finish(turn.id, answer="An answer with many words. " * 10, sources=sources)


def _everything(store: Store) -> dict[str, str]:
    """Return every row as the store shows it, by its id, and the hits of a search."""
    shown = {row.id: repr(row) for row in store.documents.all()}
    shown |= {row.id: repr(row) for row in store.contexts.all()}
    shown |= {row.id: repr(row) for row in store.sessions.all()}
    shown |= {f"{row.id} text": repr(store.documents.content(row.id)) for row in store.documents.all()}
    for session in store.sessions.all():
        shown |= {turn.id: repr(turn) for turn in store.turns.all(session.id)}
    hits = store.search.turns("answer words", 1000)
    return shown | {"search": repr(sorted(hit.turn.id for hit in hits))}


def _noticed(home: Path, whole: dict[str, str], found: dict[str, str]) -> tuple[str, str]:
    """Return whether what differs is marked where it is shown, or found by the check of the whole home, or neither."""
    differing = [id for id in whole | found if whole.get(id) != found.get(id) and id != "search"]
    if differing and all("intact=False" in found.get(id, "") for id in differing):
        return "marked", ""
    with closing(Store(home)) as store:
        said = next(store.damage(), "")
    return ("found by doctor" if said else "other rows, unnoticed"), said or str(differing[:5])


def _put(home: Path, data: bytes, log: bytes | None) -> None:
    for name in ("stockpot.db", "stockpot.db-wal", "stockpot.db-shm"):
        (home / name).unlink(missing_ok=True)
    (home / "stockpot.db").write_bytes(data)
    if log is not None:
        (home / "stockpot.db-wal").write_bytes(log)


def _flip(raw: bytes, chance: random.Random) -> Altered:
    data = bytearray(raw)
    for _ in range(chance.choice([1, 1, 4, 32])):
        data[chance.randrange(len(data))] ^= chance.randrange(1, 256)
    return "bytes flipped", bytes(data), None


def _header(raw: bytes, chance: random.Random) -> Altered:
    data = bytearray(raw)
    for _ in range(chance.choice([1, 2])):
        data[chance.randrange(100)] ^= chance.randrange(1, 256)
    return "header flipped", bytes(data), None


def _cut(raw: bytes, chance: random.Random) -> Altered:
    ends = (0, 1, 15, 16, 99, 100, PAGE, 2 * PAGE, chance.randrange(len(raw)), len(raw) - 1, len(raw) - PAGE)
    return "cut off", raw[: chance.choice(ends)], None


def _page(raw: bytes, chance: random.Random) -> Altered:
    start = chance.randrange(len(raw) // PAGE) * PAGE
    return "page lost", raw[:start] + chance.choice([bytes(PAGE), chance.randbytes(PAGE)]) + raw[start + PAGE :], None


def _swap(raw: bytes, chance: random.Random) -> Altered:
    first, second = (chance.randrange(1, len(raw) // PAGE) * PAGE for _ in range(2))
    data = bytearray(raw)
    data[first : first + PAGE], data[second : second + PAGE] = raw[second : second + PAGE], raw[first : first + PAGE]
    return "pages swapped", bytes(data), None


def _log(raw: bytes, chance: random.Random) -> Altered:
    return "log of nonsense", raw, chance.choice([chance.randbytes(40_000), b"", bytes(32), raw[:20_000]])


def _nonsense(raw: bytes, chance: random.Random) -> Altered:
    data = chance.choice([b"hello", chance.randbytes(8192), b"SQLite format 3\0" + chance.randbytes(5000)])
    return "no database", data, None


ALTERATIONS: tuple[Callable[[bytes, random.Random], Altered], ...] = (
    *(_flip, _flip, _flip, _header, _header, _cut, _page, _page, _swap, _log, _nonsense),
)
