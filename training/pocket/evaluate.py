"""Measures a pocket model by what it says: greedy answers, exact match, books and names that training never saw.

Run: `python -m training.pocket.evaluate --model assets/pocket
[--cells facts:512:full:6,facts:32768:exact:4]`.
A cell is a task, a way of attending and a length. The answer counts if it is the value, word for word.
"""

import argparse
import json
import random
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from training.flags import sentences
from training.pocket import facts
from training.pocket.documents import QUOTE_WEIGHT, Builder, Turn
from training.pocket.facts import Fact, FactMaker
from training.pocket.network import PocketNetwork, load_network
from training.pocket.prepare import Materials, prepare
from training.pocket.reader import Reader
from training.pocket.settings import PocketSettings

SEED = 1  # seed of all documents
QUICK = (  # takes about two minutes
    "facts:256:full:6,facts:512:full:6,facts:1000:full:5,facts:1000:exact:5,facts:4000:exact:5,absent:512:full:5,"
    "quote:512:full:5,turns:512:full:16,passkey:1000:full:12,unseen relations:512:full:6,unseen wordings:512:full:6"
)
TASKS = ("facts", "turns", "absent", "quote", "prose quote", "passkey", "unseen relations", "unseen wordings")


@dataclass(frozen=True)
class Cell:
    """One measurement.

    Attributes:
        task: one of `TASKS`.
        tokens: document length.
        method: "full" or "exact".
        asked, correct: questions, and answers that were word for word right.
        seconds: for the whole cell.
    """

    task: str
    tokens: int
    method: str
    asked: int
    correct: int
    seconds: float


class Measure:
    """Builds documents from held-out data and counts right answers."""

    def __init__(self, network: PocketNetwork, materials: Materials, window: int, top_k: int) -> None:
        self.network, self.materials, self.window, self.top_k = network, materials, window, top_k

    def builder(self, task: str) -> Builder:
        """Return a builder with held-out prose, reserved names, and the relations of the task."""
        maker = FactMaker(self.materials.nouns, task == "unseen relations", task == "unseen wordings")
        return Builder(self.materials.tokenizer, self.materials.held_out, maker, reserved=True)

    def cell(self, task: str, tokens: int, method: str, documents: int, show: int) -> Cell:
        """Measure one cell over `documents` documents."""
        begun = time.monotonic()
        asked = correct = 0
        for number in range(documents):
            rng = random.Random(f"{SEED}/{task}/{tokens}/{number}")
            builder = self.builder(task)
            ids, conversations = self.document(rng, builder, task, tokens)
            reader = Reader(self.network, len(ids) + 1200, self.window if method == "exact" else 0, self.top_k)
            reader.read(ids)
            length = reader.length
            for turns in conversations:
                reader.length = length
                for index, turn in enumerate(turns):
                    question = [builder.user, *builder.encode([turn.question])[0], builder.assistant]
                    said = str(builder.tokenizer.decode(reader.answer(question, builder.end))).strip()
                    if task == "turns" and index == 0:
                        continue  # only the follow-up counts
                    asked += 1
                    correct += said == turn.answer
                    if asked <= show:
                        print(f"  {turn.question} -> {said!r} (right: {turn.answer!r})")
        return Cell(task, tokens, method, asked, correct, time.monotonic() - begun)

    def document(
        self, rng: random.Random, builder: Builder, task: str, tokens: int
    ) -> tuple[list[int], list[list[Turn]]]:
        """Return token ids of a document of about `tokens` tokens, and conversations about it."""
        present = [facts.passkey(rng)] if task == "passkey" else builder.facts(rng, 8 if tokens >= 700 else 5)
        statements = builder.encode([" " + f.statement for f in present])
        room = tokens - sum(map(len, statements)) - len(builder.system) - 1
        if task == "passkey":
            sentences = [builder.filler[i % len(builder.filler)] for i in range(room // 6)]
            prose = range(0)
        else:
            start = rng.randrange(max(1, len(builder.prose) - tokens // 12))
            stop = start
            while room > 0 and stop - start < len(builder.prose):
                room -= len(builder.prose.sentence(stop % len(builder.prose)))
                stop += 1
            sentences = [builder.prose.sentence(i % len(builder.prose)) for i in range(start, stop)]
            prose = range(start, min(stop, len(builder.prose)))
        slots = sorted(rng.randint(0, len(sentences)) for _ in present)
        ids = [builder.bos, *builder.system]
        for index in range(len(sentences) + 1):
            for slot, statement in zip(slots, statements, strict=True):
                if slot == index:
                    ids += statement
            if index < len(sentences):
                ids += sentences[index]
        return ids, self.conversations(rng, builder, task, present, prose)

    def conversations(
        self, rng: random.Random, builder: Builder, task: str, present: list[Fact], prose: range
    ) -> list[list[Turn]]:
        """Return the questions of one document: single ones, or for "turns" pairs with a follow-up."""
        if task == "absent":
            return [[builder.absent(rng, present)] for _ in range(5)]
        if task == "quote":
            quotes = [builder.quote(rng, present, range(0)) for _ in range(5)]
            return [[turn] for turn in quotes if turn.weight == QUOTE_WEIGHT]
        if task == "prose quote":
            found = [builder.rare_word(rng, prose) for _ in range(4)]
            return [[Turn(f'Quote the sentence that mentions "{word}".', sentence)] for word, sentence in found if word]
        single = [Turn(facts.question(rng, f.relation, f.subject), f.value) for f in present]
        if task != "turns":
            return [[turn] for turn in single]
        pairs = []
        for index, fact in enumerate(present):
            for other in present[index + 1 :]:
                if other.subject == fact.subject:
                    pairs.append([single[index], Turn(facts.followup(rng, other.relation, other.subject), other.value)])
        return pairs


def measure(
    network: PocketNetwork,
    materials: Materials,
    cells: list[tuple[str, int, str, int]],
    window: int,
    top_k: int,
    show: int,
) -> list[Cell]:
    """Measure (task, tokens, method, documents) cells, and print each when it is done."""
    torch.set_num_threads(1)
    maker = Measure(network, materials, window, top_k)
    done = []
    for task, tokens, method, documents in cells:
        cell = maker.cell(task, tokens, method, documents, show)
        share = cell.correct / max(1, cell.asked)
        print(
            f"{method:6} {tokens:8} {task:17} {cell.correct}/{cell.asked} = {share:.0%} ({cell.seconds:.0f} s)",
            flush=True,
        )
        done.append(cell)
    return done


def table(cells: list[Cell]) -> str:
    """Return the cells as a Markdown table, for the model card."""
    lines = ["| task | attends | tokens | right |", "|---|---|---|---|"]
    for cell in cells:
        share = f"{cell.correct / max(1, cell.asked):.0%} ({cell.correct}/{cell.asked})"
        lines.append(f"| {cell.task} | {cell.method} | {cell.tokens:,} | {share} |")
    return "\n".join(lines)


def _cells(text: str) -> list[tuple[str, int, str, int]]:
    """Parse cells from the command line.

    Raises:
        ArgumentTypeError: names the part that is not a cell.
    """
    cells = []
    for part in text.split(","):
        task, tokens, method, documents = (part.split(":") + [""] * 3)[:4]
        if task not in TASKS or method not in ("full", "exact") or not (tokens.isdecimal() and documents.isdecimal()):
            raise argparse.ArgumentTypeError(
                f"{part!r} is no cell: cells are like facts:512:full:6, with full or exact, of {', '.join(TASKS)}"
            )
        cells.append((task, int(tokens), method, int(documents)))
    return cells


def main() -> None:
    """Run the command line: print a table, then one JSON line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, default=PocketSettings.out_dir, help="folder of the model")
    parser.add_argument(
        "--work-dir", type=Path, default=PocketSettings.work_dir, help="folder with the tokenised prose"
    )
    parser.add_argument("--data-dir", type=Path, default=PocketSettings.data_dir, help="folder with books/ and qa/")
    parser.add_argument(
        "--cells",
        type=_cells,
        default=QUICK,
        help="task:tokens:method:documents, separated by commas (default: a quick set)",
    )
    parser.add_argument("--window", type=int, default=256, help="sliding window of exact, in tokens")
    parser.add_argument("--top-k", type=int, default=64, help="far keys a head and token")
    parser.add_argument("--show", type=int, default=0, help="print this many answers a cell")
    arguments = parser.parse_args()
    materials = prepare(PocketSettings(data_dir=arguments.data_dir, work_dir=arguments.work_dir, start=arguments.model))
    network = load_network(arguments.model).eval()
    done = measure(network, materials, arguments.cells, arguments.window, arguments.top_k, arguments.show)
    print(table(done))
    print(json.dumps([asdict(cell) for cell in done]))


if __name__ == "__main__":
    with sentences("python -m training.pocket.evaluate"):
        main()
