"""A long reading killed again and again: the next-token logits after it equal those of one that was not, to the bit.

Then the logits after a restart equal those before it.
"""

from __future__ import annotations

import multiprocessing
import random
import shutil
import signal
import sqlite3
from contextlib import closing
from multiprocessing.connection import Connection
from pathlib import Path

import torch

from app.asking.turns import answer, keep_question
from app.reading.open_context import open_conversation
from app.service import Service
from benchmarks.trust.common import MODEL, SHORT, Tally, begin, read_whole, text_of

METHODS = ("infinipot", "exact")
"""The first alone reads texts of more than `LONG` tokens, as it takes least time and disk."""
LONG = 1 << 18
TOKENS_A_PARAGRAPH = 38
KILLS = 3
MOST_SEC = 8.0
"""A reading is killed within these seconds after it has saved a checkpoint."""
_FORKS = multiprocessing.get_context("forkserver")


def run(folder: Path, trials: int, seed: int) -> Tally:
    """Read a text of so many tokens (128K for 1) with each method, once whole and once killed."""
    tokens, chance, tally = trials if trials > 1 else 1 << 17, random.Random(seed), Tally()
    file = folder / "long.txt"
    file.write_text(text_of(seed, tokens // TOKENS_A_PARAGRAPH))
    for method in METHODS if tokens <= LONG else METHODS[:1]:
        home, killed = folder / method, folder / f"{method}-killed"
        with closing(Service(home, MODEL, "cpu")) as service:
            row = begin(service, file, method)
        shutil.copytree(home, killed)
        whole, kills, kept = _child(home, row.id), 0, 0
        while kills < KILLS and (found := _child(killed, row.id, chance.uniform(0.0, MOST_SEC))) is None:
            kills, before, kept = kills + 1, kept, _kept(killed, row.id)
            outcome = "held" if kept > before else "lost"
            tally.add(f"{method}, {row.tokens:,} tokens, killed", outcome, f"{kept:,} tokens kept")
        if kills == KILLS:
            found = _child(killed, row.id)
        assert whole is not None
        assert found is not None
        names = ("after the reading", "after an answer", "after a restart")
        for name, one, other in zip(names, whole, found, strict=True):
            outcome = "same" if torch.equal(one, other) else "differs"
            tally.add(f"{method}, {row.tokens:,} tokens, logits {name}", outcome, str(float((one - other).abs().max())))
        outcome = "same" if torch.equal(found[1], found[2]) else "differs"
        tally.add(f"{method}, {row.tokens:,} tokens, before and after the restart", outcome)
        shutil.rmtree(home)
        shutil.rmtree(killed)
    return tally


def _child(home: Path, context: str, seconds: float | None = None) -> list[torch.Tensor] | None:
    """Read in a process of its own and return its logits; None if it was killed so many seconds after a checkpoint."""
    given, told = _FORKS.Pipe(duplex=False)
    process = _FORKS.Process(target=_work, args=(home, context, told))
    before = _kept(home, context)
    process.start()
    told.close()
    found = None
    while seconds is not None and _kept(home, context) <= before and not given.poll(0.5):
        pass
    if given.poll(seconds):
        found = [torch.tensor(each) for each in given.recv()]
    else:
        process.kill()
    process.join()
    if found is None and process.exitcode != -signal.SIGKILL:
        raise SystemExit(f"The reading in {home} ended with {process.exitcode}.")
    return found


def _kept(home: Path, context: str) -> int:
    """Return how many tokens are read according to the last checkpoint."""
    with closing(sqlite3.connect(f"file:{home}/stockpot.db?mode=ro", uri=True)) as rows:
        found: tuple[int] = rows.execute("SELECT tokens_read FROM contexts WHERE id = ?", [context]).fetchone()
    return found[0]


def _work(home: Path, context: str, told: Connection) -> None:
    torch.set_num_threads(1)
    with closing(Service(home, MODEL, "cpu")) as service:
        read_whole(service, context)
        session = service.store.sessions.add(context).id
        found = [_logits(service, session)]
        answer(service, keep_question(service, session, "Who stood beside the mill?").id, SHORT)
        found.append(_logits(service, session))
        service.forget_open()
        found.append(_logits(service, session))
    told.send([each.tolist() for each in found])


def _logits(service: Service, session: str) -> torch.Tensor:
    """Return the logits behind three tokens after the last turn, which are forgotten again."""
    conversation = open_conversation(service, session).conversation
    before = conversation.memory.snapshot()
    logits = conversation.model.logits(conversation.feed([5, 6, 7]))
    conversation.roll_back(before)
    return logits.detach().cpu()
