"""Reader's questions of whole books, answered from three passages of plain text search and as the app does.

    python -m benchmarks.suite.whole_books --model FILE.gguf --out lines.jsonl --rows benchmarks/results/whole.json

A memory that shows no whole text leaves such questions to passages. So no book is read here, and its memory is empty.
Every question is a line of the file, and the same command goes on behind them.
"""

from __future__ import annotations

import time
from functools import partial
from statistics import fmean

from app.asking.answer_options import LOOKS
from benchmarks import options as shared
from benchmarks.asking import answer_to, having_read_nothing
from benchmarks.report import publish, write
from benchmarks.suite.answers import Material, Task, holds, plain
from benchmarks.suite.command import note
from benchmarks.suite.readers import whole_books
from benchmarks.suite.store import Cell, Cells, digest
from engine import Answer, Conversation, Finder, Model, ReadText, model_sizes
from engine.loops.answering import PASSAGES, joined, read_alone

WAYS = ("plain", "ours")


class Book:
    """One book, and the answers to its questions."""

    def __init__(self, model: Model, material: Material) -> None:
        """Index the book."""
        self.material = material
        sizes = model_sizes(model.network.config, model.spec.dtype, model.spec.device)
        self.text = ReadText(material.ids, Finder(material.ids, model.decode), by_words=sizes.parameters < LOOKS)
        self.context = having_read_nothing(model, len(material.ids))

    def line(self, task: Task) -> Cell:
        """Answer a question both ways."""
        line: Cell = {"title": self.material.title, "tokens": len(self.material.ids), "ask": task.ask}
        for way, answer in zip(WAYS, (self._plain, self._ours), strict=True):
            told, places, waited = answer(task.ask)
            spans = self.material.letters(places)
            line[way] = {
                "answer": told.text,
                "right": task.score(told.text),
                "holds": any(holds(spans, place) for place in task.places),
                "first_token": round(waited, 1),
            }
        return line

    def _plain(self, question: str) -> tuple[Answer, list[range], float]:
        started, every, material = time.perf_counter(), self.text.finder.passages, self.material
        found = plain(question, material.letters(every), material.text)[:PASSAGES]
        places = joined(material.tokens(found))
        alone = read_alone(self.context, material.ids, places, lambda *_: None)
        answer = answer_to(Conversation(alone), question)
        return answer, places, time.perf_counter() - started - answer.decode_sec

    def _ours(self, question: str) -> tuple[Answer, list[range], float]:
        answer = answer_to(Conversation(self.context), question, text=self.text)
        return answer, list(answer.read_again), answer.time_to_first_token_sec


def row_of(lines: list[Cell]) -> Cell:
    """Return the numbers of all lines: right answers, passages that hold the place, and seconds, by way."""
    better, worse = (sum(a["ours"]["right"] - a["plain"]["right"] == sign for a in lines) for sign in (1, -1))
    row: Cell = {"n": len(lines), "tokens": round(fmean(line["tokens"] for line in lines)), "beside": [better, worse]}
    for way in WAYS:
        row[way] = {name: round(sum(line[way][name] for line in lines), 1) for name in ("right", "holds")}
        row[way]["first_token"] = round(fmean(line[way]["first_token"] for line in lines), 1)
    return row


def main() -> int:
    """Measure what is missing, print the numbers and write them."""
    parser = shared.parser(__doc__.split("\n")[0])
    parser.add_argument("--rows", type=shared.file, help="write the numbers there, as JSON")
    chosen = parser.parse_args()
    if chosen.out is None:
        parser.error("name the file of lines with --out FILE")
    model, cells, lines = shared.open_model(chosen), Cells(chosen.out), list[Cell]()
    for read in whole_books(chosen.data):
        encoding = model.encode(read.text)
        asked = [q for q in read.questions if q.accepted]
        tasks = [Task("reader", q.ask, q.accepted, True, [[place] for place in q.places]) for q in asked]
        book = Book(model, Material(read.title, read.kind, read.text, encoding.ids, encoding.starts, tasks))
        note(f"{read.title}: {len(encoding.ids):,} tokens")
        lines += [
            cells.get(digest([model.fingerprint, read.text, each.ask]), partial(book.line, each)) for each in tasks
        ]
    row = row_of(lines)
    publish("whole-books", [{way: row[way]["right"] for way in WAYS} | {"n": row["n"]}], None, False)
    if chosen.rows:
        write("whole-books", [row], chosen.rows, model=model.name)
    return 0


if __name__ == "__main__":
    shared.run(main)
