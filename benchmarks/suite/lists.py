"""Complete lists and counts: a search of the whole text, the same model shown each place, and one question over all.

    python -m benchmarks.suite.lists --model FILE.gguf --out lines.jsonl --rows benchmarks/results/lists-NAME.json

Things of several kinds are planted in prose, and those of one kind are asked for. The search is that of the app: its
places, its rules, its checks. The other two get the question alone, and all that they say counts as found. Every
question is a line of the file, and the same command goes on behind them.
"""

from __future__ import annotations

import random
from bisect import bisect_left
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from statistics import fmean

from app.asking.answer_options import AnswerOptions
from app.asking.answers import Checked, Place
from app.asking.repetition import repetition_start
from app.asking.sources import source_at
from app.asking.sweep import Finding
from app.asking.whole_list import LIST, LONGEST, MOST, cut, entries, list_question, merged
from app.reading.document_cache import DocumentCache
from app.reading.token_stream import Stretch
from benchmarks import options as shared
from benchmarks.asking import read
from benchmarks.haystack import Haystack
from benchmarks.report import publish, write
from benchmarks.scoring import contains, precision
from benchmarks.suite.answers import Span
from benchmarks.suite.command import note
from benchmarks.suite.store import Cell, Cells, digest
from engine import AskOptions, Context, Conversation, Encoding, Model, Sampling, make_method
from engine.finding.numbers import numbers
from engine.finding.words import ENGLISH
from engine.loops.answering import read_alone
from ingest.document import Document, Page, PageQuality

TOKENS, TEXTS = 6000, 8
PLANTED = 4, 7  # fewest and most things of a kind in a text
WAYS = ("sweep", "places", "whole")
KINDS = {
    "birds": "heron curlew magpie falcon wren pelican stork kingfisher nightingale cormorant",
    "musical instruments": "fiddle bassoon harp trombone mandolin clarinet bagpipe cello tambourine accordion",
    "tools": "chisel mallet crowbar sickle trowel handsaw screwdriver pickaxe plane spanner",
    "fruits": "quince pear fig melon plum pomegranate banana lemon peach mango",
    "garments": "waistcoat bonnet shawl petticoat scarf cloak mitten apron cardigan kilt",
}
SAID = ("The register has a {}.", "In the register there is a {}.", "A {} stands in the register.")
PLAIN = AnswerOptions(max_tokens=LONGEST)
LISTED, COUNTED = "List all the {} that the register has.", "How many {} does the register have?"


@dataclass(frozen=True)
class Asked:
    """A question for the planted things of a kind. counts: whether it asks how many there are."""

    text: str
    things: tuple[str, ...]
    counts: bool


class Planted:
    """A text with planted things, read whole and place by place."""

    def __init__(self, model: Model, haystack: Haystack, seed: int, tokens: int = TOKENS) -> None:
        """Make the text and its questions."""
        rng = random.Random(f"lists {tokens} {seed}")
        kinds = rng.sample([*KINDS], len(KINDS))
        drawn = {kind: rng.sample(KINDS[kind].split(), rng.randint(*PLANTED)) for kind in kinds}
        said = [" " + rng.choice(SAID).format(thing) for things in drawn.values() for thing in things]
        rng.shuffle(said)
        ids, _ = haystack.scattered(rng, haystack.stretch(tokens, rng.randrange(1 << 30)), said)
        self.model, self.text = model, model.decode(ids.tolist()).strip()
        self.most = min(MOST, tokens * 3 // 5)  # tokens of a place: a short text has two
        self.asked = [
            Asked((COUNTED if at % 2 else LISTED).format(kind), tuple(drawn[kind]), bool(at % 2))
            for at, kind in enumerate(kinds)
        ]
        pages = (Page(1, "text", self.text, PageQuality(len(self.text), "text")),)
        self.document = Document("text", "txt", "0" * 64, pages)
        self.cache = DocumentCache(lambda id: self.document)

    @cached_property
    def encoding(self) -> Encoding:
        """The tokens of the text."""
        return self.model.encode(self.text)

    @cached_property
    def whole(self) -> Context:
        """The text, read whole with full attention."""
        return read(self.model, make_method("full"), self.encoding.ids).context()

    @cached_property
    def places(self) -> list[tuple[Span, Context]]:
        """The characters of each place, and the place read alone."""
        starts, found = self.encoding.starts.tolist(), []
        for start, end in cut(self.document, Stretch("d", 0, len(starts), len(self.text)), starts, self.most):
            tokens = range(bisect_left(starts, start), bisect_left(starts, end))
            found.append(((start, end), read_alone(self.whole, self.encoding.ids, [tokens], lambda *_: None)))
        return found

    def line(self, asked: Asked) -> Cell:
        """Ask for a kind in each way."""
        question = list_question(asked.text) or asked.text
        findings = [self._found(question, *each) for each in self.places]
        rows = merged(findings)
        shown = [_told(alone, question) for _, alone in self.places]
        over = _told(self.whole, question)
        texts = ("\n".join(row.answer for row in rows), "\n".join(shown), over)
        line: Cell = {"ask": asked.text, "things": len(asked.things), "places": len(self.places)}
        for way, said in zip(WAYS, texts, strict=True):
            found = sum(contains(said, thing) for thing in asked.things)
            line[way] = {"found": found, "precision": round(precision(said, asked.things), 3), "said": said}
        line["sweep"]["dropped"] = sum(len(entries(each.said)) - len(each.items) for each in findings)
        if asked.counts:
            told = _told(self.whole, asked.text)
            line["sweep"]["count"] = len(rows) == len(asked.things)
            line["whole"]["count"] = f"{len(asked.things)}" in {each.value for each in numbers(told, ENGLISH)}
        return line

    def _found(self, question: str, place: Span, alone: Context) -> Finding:
        """Return what a place has, as the app finds it."""
        told = _told(alone, question, LIST.options)
        where = asdict(source_at(self.cache, "d", *place, 1.0))
        items = tuple(LIST.items(Checked(told, "", [where], {}), self.cache))
        return Finding(Place("c", "", "d", *place), question, items, told)


def _told(context: Context, question: str, options: AnswerOptions = PLAIN) -> str:
    """Return the answer of a context alone."""
    sampling = Sampling(max_tokens=options.max_tokens, json_schema=options.json_schema)
    told_as = AskOptions(repetition_start=repetition_start, rules=options.rules)
    *_, told = Conversation(context).ask(question, sampling, told_as)
    return told.text


def row_of(lines: list[Cell]) -> Cell:
    """Return the numbers of all lines by way: things found of those asked for, mean precision, and exact counts."""
    counted = [line for line in lines if "count" in line["sweep"]]
    row: Cell = {"n": len(lines), "things": sum(line["things"] for line in lines), "counted": len(counted)}
    for way in WAYS:
        row[way] = {
            "found": sum(line[way]["found"] for line in lines),
            "precision": round(fmean(line[way]["precision"] for line in lines), 3),
            "counts": sum(line[way].get("count", 0) for line in counted),
        }
    row["sweep"]["dropped"] = sum(line["sweep"]["dropped"] for line in lines)
    return row


def main() -> int:
    """Measure what is missing, print the numbers and write them."""
    parser = shared.parser(__doc__.split("\n")[0])
    parser.add_argument("--texts", type=shared.count, default=TEXTS, help=f"texts (default: {TEXTS})")
    parser.add_argument("--tokens", type=shared.size, default=TOKENS, help=f"tokens of a text (default: {TOKENS})")
    parser.add_argument("--rows", type=shared.file, help="write the numbers there, as JSON")
    chosen = parser.parse_args()
    if chosen.out is None:
        parser.error("name the file of lines with --out FILE")
    model, cells, lines = shared.open_model(chosen), Cells(chosen.out), list[Cell]()
    haystack = Haystack(model, chosen.data)
    for seed in range(chosen.texts):
        planted = Planted(model, haystack, seed, chosen.tokens)
        for asked in planted.asked:
            mark = digest([model.fingerprint, planted.text, asked.text, LIST.options.rules])
            lines.append(cells.get(mark, partial(planted.line, asked)))
            note(f"{asked.text} {[lines[-1][way]['found'] for way in WAYS]} of {len(asked.things)}")
    row = {"tokens": chosen.tokens, **row_of(lines)}
    publish("lists", [{"way": way, **row[way]} for way in WAYS], None, chosen.json)
    if chosen.rows:
        write("lists", [row], chosen.rows, model=model.name)
    return 0


if __name__ == "__main__":
    shared.run(main)
