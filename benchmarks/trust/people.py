"""Eight people at once for some minutes: every answer that was given is kept as it was, and memory does not grow.

They ask with and without streaming, leave in the middle of an answer, stop answers, and add documents.
"""

from __future__ import annotations

import json
import random
import statistics
import threading
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx

from app.service import Service
from benchmarks.trust.common import MODEL, Tally, begin, read_whole, text_of
from benchmarks.trust.server import served

PEOPLE = 8
WATCH_SEC, FIRST_SEC = 5, 60
GROWTH = 1.1
"""Most that memory may grow from the end of the first minute to the last minute, as a factor."""
QUESTIONS = ("Who was there?", "What was written on it?", "When was it?", "Where did it stand?", "Which number was it?")
KINDS = (("stream", 40), ("plain", 25), ("leave", 15), ("stop", 10), ("not kept", 10))
UPLOAD_SEC = 6.0


class _Load:
    """The work of the people, and the answers that they got."""

    def __init__(self, address: str, contexts: list[str], seconds: int, seed: int) -> None:
        self.address, self.contexts, self.seed = address, contexts, seed
        self.end = time.monotonic() + seconds
        self.told: dict[str, tuple[str, str]] = {}
        self.tally, self.lock = Tally(), threading.Lock()
        self.jobs: list[str] = []

    def count(self, kind: str, outcome: str, words: str = "") -> None:
        with self.lock:
            self.tally.add(kind, outcome, words)

    def ask(self, number: int) -> None:
        """Ask one question after another, as one person."""
        chance = random.Random(self.seed * 100 + number)
        with httpx.Client(base_url=self.address, timeout=300) as client:
            while time.monotonic() < self.end:
                kind = chance.choices([name for name, _ in KINDS], [often for _, often in KINDS])[0]
                question = f"{chance.choice(QUESTIONS)} ({number}-{chance.randrange(10**6)})"
                body: dict[str, Any] = {
                    "model": chance.choice(self.contexts),
                    "messages": [{"role": "user", "content": question}],
                    "max_tokens": chance.choice([8, 24, 60]),
                    "temperature": chance.choice([0, 0.7]),
                    "stream": kind not in ("plain", "not kept"),
                }
                if kind == "not kept":
                    body["store"] = False
                try:
                    self._one(client, kind, question, body, chance)
                    self.count(kind, "same")
                except (httpx.HTTPError, KeyError, ValueError) as error:
                    self.count(kind, f"failed {type(error).__name__}", str(error)[:200])

    def _one(self, client: httpx.Client, kind: str, question: str, body: dict[str, Any], chance: random.Random) -> None:
        if not body["stream"]:
            given = client.post("/v1/chat/completions", json=body).raise_for_status().json()
            if kind == "plain":
                with self.lock:
                    self.told[given["id"]] = (question, given["choices"][0]["message"]["content"])
            return
        text, turn = "", ""
        with client.stream("POST", "/v1/chat/completions", json=body) as answer:
            answer.raise_for_status()
            for line in answer.iter_lines():
                if not line.startswith("data: "):
                    continue
                if line == "data: [DONE]":
                    break
                piece = json.loads(line[6:])
                turn = turn or piece["id"]
                text += "".join(each["delta"].get("content") or "" for each in piece["choices"])
                if kind == "leave" and chance.random() < 0.5:
                    return
                if kind == "stop":
                    httpx.post(f"{self.address}/api/turns/{turn}/cancel", timeout=300)
            else:
                raise ValueError("an answer ended without its end")
        if kind == "stream":
            with self.lock:
                self.told[turn] = (question, text)

    def add(self) -> None:
        """Add small documents, and cancel every third reading."""
        with httpx.Client(base_url=self.address, timeout=300) as client:
            for number in range(10**6):
                if time.monotonic() > self.end - 10:
                    return
                files = {"files": (f"added {number}.txt", text_of(self.seed * 10**6 + number, 6).encode())}
                try:
                    sent = client.post("/api/contexts", files=files, data={"method": "streaming"}).raise_for_status()
                    self.jobs.append(sent.json()["id"])
                    if number % 3 == 2:
                        client.post(f"/api/jobs/{self.jobs[-1]}/cancel").raise_for_status()
                    self.count("document added", "same")
                except (httpx.HTTPError, KeyError, ValueError) as error:
                    self.count("document added", f"failed {type(error).__name__}", str(error)[:200])
                time.sleep(UPLOAD_SEC)


def run(folder: Path, trials: int, seed: int) -> Tally:
    """Let people work for so many seconds, and compare all that they were told with what is kept."""
    home = folder / "home"
    with closing(Service(home, MODEL, "cpu")) as service:
        rows = []
        for number, method in enumerate(("exact", "infinipot")):
            file = folder / f"{number}.txt"
            file.write_text(text_of(seed * 10 + number, 60))
            rows.append(begin(service, file, method))
            read_whole(service, rows[-1].id)
    memory: list[tuple[float, int]] = []
    with served(home) as (address, process):
        load = _Load(address, [row.id for row in rows], trials, seed)
        started = time.monotonic()
        threads = [threading.Thread(target=load.ask, args=[number]) for number in range(PEOPLE)]
        threads.append(threading.Thread(target=load.add))
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            memory.append((time.monotonic() - started, _resident(process)))
            time.sleep(WATCH_SEC)
        time.sleep(WATCH_SEC)
    _compare(home, load)
    _judge_memory(memory, load.tally, trials)
    return load.tally


def _compare(home: Path, load: _Load) -> None:
    """Count the answers that are kept as they were told, and those that are not."""
    with closing(Service(home, MODEL, "cpu")) as service:
        kept = {turn.id: turn for row in service.store.sessions.all() for turn in service.store.turns.all(row.id)}
        for turn_id, (question, text) in load.told.items():
            turn = kept.get(turn_id)
            same = turn is not None and turn.status == "done" and turn.answer.strip() == text.strip()
            if turn is None:
                load.count("answer kept", "lost", question)
            else:
                load.count("answer kept", "held" if same and turn.question == question else "differs", repr(turn))
        waiting = sum(turn.status == "answering" for turn in kept.values())
        load.count("left answering at the end", "lost" if waiting else "same", str(waiting))
        for sentence in service.store.damage():
            load.count("damage", "lost", sentence)


def _judge_memory(memory: list[tuple[float, int]], tally: Tally, seconds: int) -> None:
    first = statistics.median(size for at, size in memory if FIRST_SEC <= at <= 2 * FIRST_SEC or seconds <= FIRST_SEC)
    last = statistics.median(size for at, size in memory if at >= min(seconds - FIRST_SEC, memory[-1][0]))
    outcome = "same" if last <= first * GROWTH else "grew"
    tally.add(f"memory, {first / 1e6:,.0f} MB in the second minute, {last / 1e6:,.0f} MB in the last", outcome)


def _resident(process: int) -> int:
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return 1024 * int(next(line for line in lines if line.startswith("VmRSS")).split()[1])
