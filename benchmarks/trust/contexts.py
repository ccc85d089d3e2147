"""Saved contexts altered: each must be refused in a sentence, or open to the same numbers and sources.

Half are altered by accident (checksums as they were), half on purpose (checksums made to fit).
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

from app.asking.turns import answer, keep_question
from app.jobs.work import Stopped
from app.reading.context_cache import OpenContext
from app.reading.open_context import open_context
from app.reading.readings import read
from app.service import Service
from benchmarks.trust import common
from benchmarks.trust.accidents import ACCIDENTS
from benchmarks.trust.common import (
    MODEL,
    SHORT,
    Endless,
    Tally,
    judged,
    measured,
)
from benchmarks.trust.forgeries import FORGERIES
from engine import METHODS
from sessions import ContextRow


def run(folder: Path, trials: int, seed: int) -> Tally:
    """Alter contexts of every method so many times, and open and ask each."""
    chance, tally = random.Random(seed), Tally()
    home, kept = folder / "home", folder / "whole"
    with closing(Service(home, MODEL, "cpu")) as service:
        rows = list(_contexts(service, folder, seed))
        shutil.copytree(home / "contexts", kept)
        whole = {row.id: _digest(open_context(service, row.id)) for row in rows}
        for trial in range(trials):
            row, by = chance.choice(rows), "accident" if trial % 2 == 0 else "purpose"
            target = home / "contexts" / row.id
            others = [kept / each.id for each in rows if each.id != row.id]
            what = chance.choice(ACCIDENTS if by == "accident" else FORGERIES)(target, others, chance)
            service.forget_open()
            try:
                with measured(tally):
                    outcome, words = _opened(service, row, whole[row.id])
            except (Exception, Endless) as error:
                outcome, words = judged(error)
            if outcome == "other numbers" and by == "purpose":
                outcome = "forged"
            tally.add(f"by {by}", outcome, f"{row.method}, {what}: {words}")
            _put_back(target, kept / row.id)
    return tally


def _contexts(service: Service, folder: Path, seed: int) -> Iterator[ContextRow]:
    """Read a text with each method, and leave two readings unfinished behind a checkpoint."""
    for number, method in enumerate((*METHODS, "exact", "infinipot")):
        file = folder / f"{number}.txt"
        file.write_text(common.text_of(seed * 100 + number, 60 if number < len(METHODS) else 120))
        row = common.begin(service, file, method)
        if number < len(METHODS):
            common.read_whole(service, row.id)
        else:
            steps = iter(range(1, 1000))
            with suppress(Stopped):
                read(service, row.id, lambda report: None, lambda: next(steps) > 2)  # noqa: B023 - called in this turn
        yield service.store.contexts.get(row.id)


def _digest(opened: OpenContext) -> str:
    parts, meta = opened.context.state()
    stream = opened.stream
    return common.digest_of(parts, meta, stream.ids.tolist(), stream.starts.tolist(), stream.stretches)


def _opened(service: Service, row: ContextRow, whole: str) -> tuple[str, str]:
    """Open an altered context; ask it a question if it opens to other numbers."""
    found = _digest(open_context(service, row.id))
    if found == whole:
        return "same", ""
    session = service.store.sessions.add(row.id)
    try:
        said = answer(service, keep_question(service, session.id, "Who was there?").id, SHORT)
    finally:
        service.store.sessions.delete(session.id)
    return "other numbers", repr(said.answer)


def _put_back(target: Path, whole: Path) -> None:
    if target.is_symlink() or target.is_file():
        target.unlink()
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(whole, target)
