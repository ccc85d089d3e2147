"""Homes, texts, outcomes and measures that the trials share."""

from __future__ import annotations

import hashlib
import signal
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from app.asking.answer_options import AnswerOptions
from app.errors import expected, phrase
from app.reading import readings
from app.reading.documents import IngestOptions, add_documents
from app.reading.preparing import prepare
from app.reading.readings import read
from app.service import Service
from engine import Part
from sessions import ContextRow

MODEL = "pocket"
SHORT = AnswerOptions(temperature=0.0, max_tokens=12)
SETTINGS = {"budget": 768}
MOST_SEC = 60
"""Seconds after which a case counts as one that does not end."""
WORDS = ("keeper", "lamp", "sail", "river", "mill", "letter", "winter", "rope", "field", "bell", "stone", "harbour")


class Endless(BaseException):
    """The case took longer than `MOST_SEC`."""


@dataclass
class Tally:
    """Counts of outcomes, with a few examples, and the most processor time and memory that a case took."""

    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    examples: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    most_sec: float = 0.0
    most_bytes: int = 0

    def add(self, kind: str, outcome: str, example: str = "") -> None:
        """Count an outcome of a kind of case; keep the example if it is one of the first."""
        self.counts[kind, outcome] += 1
        kept = self.examples.setdefault((kind, outcome), [])
        if example and len(kept) < 3:
            kept.append(example)

    def add_result(self, result: dict[str, Any]) -> None:
        """Add the cases of a result that was published before."""
        for row in result["rows"]:
            case = row["kind"], row["outcome"]
            self.counts[case] += row["n"]
            self.examples[case] = [*row["examples"], *self.examples.get(case, [])][:3]
        self.most_sec = max(self.most_sec, result["most_seconds"])
        self.most_bytes = max(self.most_bytes, round(result["most_mb"] * 1e6))

    def rows(self) -> list[dict[str, Any]]:
        """Return a row for each kind and outcome, the unwelcome ones with their examples."""
        return [
            {
                "kind": kind,
                "outcome": outcome,
                "n": number,
                "examples": [] if outcome in WELCOME else self.examples[kind, outcome],
            }
            for (kind, outcome), number in sorted(self.counts.items())
        ]

    def facts(self) -> dict[str, Any]:
        """Return the number of cases, those that went wrong, and the largest cost of one."""
        wrong = sum(number for (_, outcome), number in self.counts.items() if outcome not in WELCOME)
        cost = {"most_seconds": round(self.most_sec, 2), "most_mb": round(self.most_bytes / 1e6)}
        return {"trials": self.counts.total(), "wrong": wrong, **cost}


WELCOME = ("same", "refused", "warned", "marked", "found by doctor", "forged", "held", "read anew")
"""Right outcomes: unchanged, refused in a sentence, read with a warning, marked where it is shown, found by `stockpot
doctor` alone, answered with the numbers that a forger put there (checksums find damage, not forgery), kept through a
kill, and read anew from its text."""


def text_of(seed: int, paragraphs: int) -> str:
    """Return a text of plain sentences that no two seeds share."""
    digest = hashlib.sha256(str(seed).encode()).hexdigest()[:6]
    lines = (
        f"On day {n} of year {digest} the {WORDS[n % 12]} stood beside the {WORDS[(n * 7 + 5) % 12]}, and number "
        f"{(n * 7919) % 100_000} was written on it."
        for n in range(paragraphs)
    )
    return "\n\n".join(lines)


def begin(service: Service, file: Path, method: str) -> ContextRow:
    """Add a document and begin to read it."""
    ids = [row.id for row in add_documents(service, [file], IngestOptions(), lambda *_: None).documents]
    return readings.begin(service, prepare(service, ids, method, {} if method == "full" else SETTINGS, MODEL), ())


def read_whole(service: Service, context: str) -> None:
    """Read a context to its end."""
    read(service, context, lambda report: None)


@contextmanager
def measured(tally: Tally) -> Iterator[None]:
    """Measure processor time and memory of a case, and stop it with `Endless` after `MOST_SEC`."""
    before, started = _reset_peak(), time.process_time()

    def stop(number: int, frame: FrameType | None) -> None:
        raise Endless

    signal.signal(signal.SIGALRM, stop)
    signal.alarm(MOST_SEC)
    try:
        yield
    finally:
        signal.alarm(0)
        tally.most_sec = max(tally.most_sec, time.process_time() - started)
        tally.most_bytes = max(tally.most_bytes, _memory("VmHWM") - before)


def judged(error: BaseException) -> tuple[str, str]:
    """Return the outcome and the sentence of an error: refused in words, or not."""
    if isinstance(error, Endless):
        return "does not end", ""
    if expected(error):
        return "refused", phrase(error)[:200]
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"unclear {type(error).__name__}", f"{phrase(error)[:200]} {Path(last.filename).name}:{last.lineno}"


def digest_of(parts: dict[str, Part], *more: Any) -> str:
    """Return a hash of tensors and facts."""
    found = hashlib.sha256()
    for name, part in sorted(parts.items()):
        for key, tensor in sorted(part.tensors.items()):
            found.update(f"{name} {key} {tensor.dtype} {tuple(tensor.shape)}".encode())
            found.update(
                tensor.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes() if tensor.numel() else b""
            )
    found.update(repr(more).encode())
    return found.hexdigest()


def _memory(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line for line in lines if line.startswith(name)).split()[1])


def _reset_peak() -> int:
    Path("/proc/self/clear_refs").write_text("5")
    return _memory("VmRSS")
