"""Processes killed at random moments while they read and answer, over all methods.

A killed reading must go on to the same numbers as one that was not killed, and a killed chat keep every finished turn
and give the same answers.
"""

from __future__ import annotations

import multiprocessing
import random
import shutil
import signal
import time
from contextlib import closing
from multiprocessing.connection import Connection
from pathlib import Path

import torch

from app.asking.turns import answer, keep_question
from app.reading.checkpoints import Checkpoints
from app.reading.open_context import open_context, open_conversation
from app.service import Service
from benchmarks.trust.common import MODEL, SHORT, Tally, begin, digest_of, read_whole, text_of
from engine import METHODS

QUESTIONS = ("Who stood beside the mill?", "Which number was written on it?", "On which day?")
KILLS = 3
"""Times that one home is killed before it is left to finish."""
START_SEC = 0.5
"""Time that a process takes before its work begins."""
_FORKS = multiprocessing.get_context("forkserver")


def run(folder: Path, trials: int, seed: int) -> Tally:
    """Kill readings and answers so many times in all."""
    _FORKS.set_forkserver_preload(["torch", "transformers", "app.cli", "engine", "ingest", __name__])
    chance, tally, homes = random.Random(seed), Tally(), _homes(folder, seed)
    for trial in range(0, trials, KILLS):
        method = list(homes)[trial // KILLS % len(homes)]
        home, whole = homes[method]
        killed = folder / "killed"
        shutil.rmtree(killed, ignore_errors=True)
        shutil.copytree(home, killed)
        for _ in range(KILLS):
            seconds = chance.uniform(0.0, whole.seconds)
            if _child(killed, seconds) != -signal.SIGKILL:  # the work ended before
                break
            words = _lost(killed, whole)
            tally.add(f"{method}, killed", "lost" if words else "held", f"after {seconds:.2f} s: {words}")
        outcome, words = _finished(killed, whole)
        tally.add(f"{method}, at the end", outcome, words)
    return tally


class _Whole:
    """Result of the work on a home that nobody killed, and how long it took."""

    def __init__(self, home: Path) -> None:
        started = time.perf_counter()
        if _child(home) != 0:
            raise SystemExit(f"The work on {home.name} does not even end without a kill.")
        self.seconds = time.perf_counter() - started - START_SEC
        with closing(Service(home, MODEL, "cpu")) as service:
            self.numbers = _numbers(service)
            self.answers = _answers(service)


def _homes(folder: Path, seed: int) -> dict[str, tuple[Path, _Whole]]:
    """Return for each method a home with a reading that has begun, and the result of the work on a copy."""
    found = {}
    for number, method in enumerate(METHODS):
        home, file = folder / method, folder / f"{method}.txt"
        file.write_text(text_of(seed * 100 + number, 60 if method == "full" else 160))
        with closing(Service(home, MODEL, "cpu")) as service:
            begin(service, file, method)
        shutil.copytree(home, folder / f"{method}-whole")
        found[method] = (home, _Whole(folder / f"{method}-whole"))
    return found


def _child(home: Path, seconds: float | None = None) -> int | None:
    """Do the work in a process of its own, killed after some seconds of it if any are given; return its exit code."""
    begun, told = _FORKS.Pipe(duplex=False)
    process = _FORKS.Process(target=_work, args=(home, told))
    process.start()
    told.close()
    if seconds is not None and begun.poll(120):
        process.join(seconds)
        process.kill()
    process.join()
    return process.exitcode


def _work(home: Path, told: Connection) -> None:
    """Read to the end with a checkpoint after every step, then answer the questions that are not answered."""
    torch.set_num_threads(1)
    Checkpoints.after_step = Checkpoints.save_now  # type: ignore[method-assign]
    with closing(Service(home, MODEL, "cpu")) as service:
        told.send("begun")
        context = service.store.contexts.all()[0].id
        read_whole(service, context)
        session = next((row.id for row in service.store.sessions.all()), "") or service.store.sessions.add(context).id
        for question in QUESTIONS[len(_answers(service)) :]:
            answer(service, keep_question(service, session, question).id, SHORT)


def _answers(service: Service) -> list[str]:
    turns = (turn for row in service.store.sessions.all() for turn in service.store.turns.all(row.id))
    return [turn.answer for turn in turns if turn.status == "done"]


def _lost(home: Path, whole: _Whole) -> str:
    """Return sentences about everything that a kill lost or damaged; "" if nothing is."""
    with closing(Service(home, MODEL, "cpu")) as service:
        said = [*service.store.damage(), *map(str, service.store.folders.strays())]
        if not service.store.contexts.all() or not service.store.documents.all():
            said.append("the document or its reading is gone")
        found = _answers(service)
        if found != whole.answers[: len(found)]:
            said.append(f"answers {found} instead of {whole.answers}")
    return "; ".join(said)


def _finished(home: Path, whole: _Whole) -> tuple[str, str]:
    """Finish the work, and return whether it ended in the same numbers and answers."""
    code = _child(home)
    with closing(Service(home, MODEL, "cpu")) as service:
        if code or _answers(service) != whole.answers:
            return "lost", f"ended {code} with {_answers(service)} instead of {whole.answers}"
        same = _numbers(service) == whole.numbers
    return ("same", "") if same else ("differs", "the tensors, or the logits behind the last answer")


def _numbers(service: Service) -> str:
    """Return a hash of a context's tensors, and of the logits after the turns of its chat."""
    parts, _ = open_context(service, service.store.contexts.all()[0].id).context.state()
    conversation = open_conversation(service, service.store.sessions.all()[0].id).conversation
    logits = conversation.model.logits(conversation.feed([5, 6, 7]))
    return digest_of(parts, logits.tolist())
