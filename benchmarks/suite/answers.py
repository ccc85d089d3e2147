"""Answers from the memory and from passages of the text, side by side, and the places that finders find.

    python -m benchmarks.suite.answers --model FILE.gguf --out answers.jsonl
    python -m benchmarks.suite.answers --model FILE.gguf --out answers.jsonl --planted 8K --texts 5

Each text is read once, and the memory answers a question. Passages are ranked by where it looked and by the question's
words, as in the app; "words" ranks by words alone, as the app does for small models. Then passages are read alone, and
answer: `--ways` says which; "searched" answers as the app does where the memory does not show the whole text. Every
answer is a line of the file, and the same command goes on behind them. `answers_tables` reads it.
"""

from __future__ import annotations

import itertools
import re
import sqlite3
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor

from benchmarks import options as shared
from benchmarks.asking import answer_to, having_read_nothing, read
from benchmarks.suite.command import note
from benchmarks.suite.readers import texts
from benchmarks.suite.store import Cell, Cells, digest
from benchmarks.suite.tasks import Asked
from benchmarks.suite.texts import Texts
from engine import Answer, Context, Conversation, Finder, Model, ReadText
from engine.finding.finder import Signs
from engine.finding.support import sureness, unsupported
from engine.loops.answering import BEGINNING, LOOKED, joined, read_alone

Span = tuple[int, int]
MEMORY = "memory"
SEARCHED = "searched"
WAYS = ("passages 3 of 600", "plain 3 of 600", "passages 6 of 300", "plain 6 of 300", "place")
SIZES = (300, 600)  # letters of a passage
MOST = 12  # passages that a finder may find
COVERED = 0.8  # share of a place that passages must hold


@dataclass(frozen=True)
class Task:
    """A question about a text.

    Attributes:
        accepted: wordings of the answer; none if the text does not tell.
        any_of: any one of them will do.
        places: alternatives, each a list of spans in letters that are needed together; none if nothing answers it.
    """

    family: str
    ask: str
    accepted: tuple[str, ...]
    any_of: bool
    places: list[list[Span]]

    def score(self, answer: str) -> float:
        """Return the share of the accepted values that an answer has, or 1 for any of alternatives."""
        return Asked(self.family, self.ask, self.accepted, (), self.any_of).scores(answer)["contained"]


@dataclass(frozen=True)
class Material:
    """A text with its questions. starts: int64 [T], the first letter of each token of `ids`."""

    title: str
    kind: str
    text: str
    ids: Tensor
    starts: Tensor
    tasks: list[Task]

    def letters(self, places: Sequence[range]) -> list[Span]:
        """Return stretches of tokens as (start, end) in letters."""
        ends = [*self.starts.tolist(), len(self.text)]
        return [(ends[each.start], ends[each.stop]) for each in places]

    def tokens(self, spans: Sequence[Span]) -> list[range]:
        """Return the tokens of spans in letters, in the text's order."""
        starts, ends = torch.tensor(spans, dtype=torch.long).view(-1, 2).T.contiguous()
        first = torch.searchsorted(self.starts, starts, right=True) - 1
        behind = torch.searchsorted(self.starts, ends)
        return [range(*each) for each in sorted(zip(first.tolist(), behind.tolist(), strict=True))]


def readers_texts(model: Model, chosen: Any) -> Iterator[Material]:
    """Yield the texts with reader's questions."""
    for each in texts(chosen.data):
        encoding = model.encode(each.text)
        tasks = [
            Task("reader" if q.accepted else "absent", q.ask, q.accepted, True, [[place] for place in q.places])
            for q in each.questions
        ]
        yield Material(each.title, each.kind, each.text, encoding.ids, encoding.starts, tasks)


def planted_texts(model: Model, chosen: Any) -> Iterator[Material]:
    """Yield texts of the suite, with planted statements."""
    made = Texts(model, chosen.data)
    for seed in range(chosen.seed, chosen.seed + chosen.texts):
        text = made.make(chosen.planted, seed)
        pieces = [model.decode([each]) for each in text.ids.tolist()]
        ends = torch.tensor([len(piece) for piece in pieces]).cumsum(0)
        starts = torch.cat([torch.zeros(1, dtype=torch.long), ends[:-1]])
        tasks = []
        for asked, spans in zip(text.asked, text.spans, strict=True):
            place = [(int(starts[start]), int(ends[end - 1])) for start, end in spans]
            tasks.append(Task(asked.family, asked.text, asked.references, asked.any_of, [place] if place else []))
        yield Material(f"planted {chosen.planted} {seed}", "planted", "".join(pieces), text.ids, starts, tasks)


class Run:
    """Measures what is not in the file yet, for one text."""

    def __init__(self, model: Model, material: Material, chosen: Any, cells: Cells) -> None:
        """Index the text. It is read when the first answer is missing."""
        self.model, self.material, self.chosen, self.cells = model, material, chosen, cells
        self.finders = {size: Finder(material.ids, model.decode, size) for size in SIZES}

    @cached_property
    def context(self) -> Context:
        """The text, read."""
        started = time.perf_counter()
        method = shared.variant(self.chosen.method, self.chosen.budget)
        context = read(self.model, method, self.material.ids).context()
        note(f"{self.material.title}: {len(self.material.ids)} tokens read in {time.perf_counter() - started:.0f} s")
        return context

    def run(self) -> None:
        """Answer every question in every way."""
        facts = [self.model.fingerprint, self.chosen.method, self.chosen.budget, self.material.text]
        for task in self.material.tasks:
            mark = digest([*facts, task.ask])
            first = self.cells.get(mark, partial(self._from_memory, task))
            for way in self.chosen.ways:
                if way == SEARCHED:
                    self.cells.get(digest([mark, way]), partial(self._searched, task, mark))
                elif way != "place" or task.places:
                    self.cells.get(digest([mark, way]), partial(self._alone, task, mark, first, way))

    def _from_memory(self, task: Task) -> Cell:
        started = time.perf_counter()
        conversation = Conversation(self.context)
        answer = answer_to(conversation, task.ask, BEGINNING)
        looked = conversation.looked()
        found: dict[str, dict[str, list[Span]]] = {}
        for size, finder in self.finders.items():
            own = {
                "plain": plain(task.ask, self.material.letters(finder.passages), self.material.text),
                "words": self.material.letters(finder.find(Signs(task.ask), MOST)),
                "looked": self.material.letters(finder.find(Signs("", [(looked, LOOKED)]), MOST)),
                "passages": self.material.letters(finder.find(Signs(task.ask, [(looked, LOOKED)]), MOST)),
            }
            found[str(size)] = own
        finder = self.finders[600]
        about = finder.words.leads(task.ask)
        checked = self.material.letters(finder.beside(task.ask, answer.text))
        line = self._line(task, MEMORY, answer, checked, started)
        return {**line, "found": found, "about_places": about, "tokens": 0}

    def _alone(self, task: Task, mark: str, first: Cell, way: str) -> Cell:
        if way == "place":
            every, needed = self.material.letters(self.finders[600].passages), task.places[0]
            spans = [own for own in every if any(own[0] < end and start < own[1] for start, end in needed)]
        else:
            how, count, _, size = way.split()
            spans = [tuple(each) for each in first["found"][size][how][: int(count)]]
        if not spans:  # the app asks the memory
            return {name: value for name, value in first.items() if name not in ("signature", "found")} | {
                "way": way,
                "of": mark,
            }
        started = time.perf_counter()
        places = joined(self.material.tokens(spans))
        alone = read_alone(self.context, self.material.ids, places, lambda *_: None)
        answer = answer_to(Conversation(alone), task.ask, BEGINNING)
        return {**self._line(task, way, answer, self.material.letters(places), started), "of": mark}

    def _searched(self, task: Task, mark: str) -> Cell:
        """Answer with a memory of nothing: passages begin the answer."""
        started, ids = time.perf_counter(), self.material.ids
        nothing = having_read_nothing(self.model, len(ids))
        text = ReadText(ids, self.finders[600])
        answer = answer_to(Conversation(nothing), task.ask, BEGINNING, text)
        spans = self.material.letters(answer.read_again)
        return {**self._line(task, SEARCHED, answer, spans, started), "of": mark}

    def _line(self, task: Task, way: str, answer: Answer, spans: Sequence[Span], started: float) -> Cell:
        """Return the facts of an answer. spans: what it is checked against."""
        passages = [self.material.text[start:end] for start, end in spans]
        text = answer.text
        return {
            "model": self.model.name,
            "title": self.material.title,
            "text_kind": self.material.kind,
            "text_tokens": len(self.material.ids),
            **asdict(task),
            "way": way,
            "answer": text,
            "right": task.score(text) if task.accepted else None,
            "holds": any(holds(spans, place) for place in task.places),
            "passages": spans,
            "tokens": sum(map(len, self.material.tokens(spans))),
            "chances": [answer.logprob, answer.least_logprob],
            "sure": sureness(self.finders[600].words, task.ask, text, passages),
            "unsupported": len(unsupported(task.ask, text, passages)),
            "seconds": round(time.perf_counter() - started, 1),
        }


def plain(question: str, cuts: Sequence[Span], text: str) -> list[Span]:
    """Return the passages that a plain text search (SQLite's BM25) finds, best first."""
    words = dict.fromkeys(re.findall(r"\w+", question.lower()))
    index = sqlite3.connect(":memory:")
    index.execute("create virtual table t using fts5(x)")
    index.executemany("insert into t(rowid, x) values (?, ?)", [(at, text[a:b]) for at, (a, b) in enumerate(cuts)])
    asked = " OR ".join(f'"{word}"' for word in words) or '""'
    found = index.execute("select rowid from t where t match ? order by bm25(t) limit ?", [asked, MOST]).fetchall()
    index.close()
    return [cuts[at] for (at,) in found]


def holds(spans: Sequence[Span], place: Sequence[Span]) -> bool:
    """Return whether passages hold all spans of a place, each to four fifths at least."""
    return all(
        sum(max(0, min(end, last) - max(start, first)) for start, end in spans) >= COVERED * (last - first)
        for first, last in place
    )


def main() -> int:
    """Measure what is missing."""
    parser = shared.parser(__doc__.split("\n")[0])
    parser.add_argument("--method", default="full", help="which reads the text (default: full)")
    parser.add_argument("--budget", type=shared.count, help="its entries (default: its own)")
    parser.add_argument("--planted", type=shared.length, help="planted statements in texts of so many tokens")
    parser.add_argument("--texts", type=shared.count, default=99, help="texts at most (default: all)")
    parser.add_argument(
        "--ways", type=shared.words, default=WAYS, help=f"of {', '.join([*WAYS, SEARCHED])} (default: all but the last)"
    )
    chosen = parser.parse_args()
    if chosen.out is None:
        parser.error("name the file of answers with --out FILE")
    model, cells = shared.open_model(chosen), Cells(chosen.out)
    wanted = (planted_texts if chosen.planted else readers_texts)(model, chosen)
    for material in itertools.islice(wanted, chosen.texts):
        Run(model, material, chosen, cells).run()
    return 0


if __name__ == "__main__":
    shared.run(main)
