"""The words around a text and a question, compared by the answers to the suite's questions with full attention.

    python -m benchmarks.suite.wordings --model DIR --wordings now,short --readings 3 --out wordings.jsonl

Every wording gets the same texts and questions. Lines go to a file, and a killed run goes on from there.
"""

from __future__ import annotations

from functools import partial

from benchmarks import options as shared
from benchmarks.report import machine
from benchmarks.suite.cells import measure
from benchmarks.suite.command import LENGTH, READINGS, note, publish
from benchmarks.suite.store import Cell, Cells, digest
from benchmarks.suite.texts import Text, Texts
from engine import METHODS, Model
from engine.models.chat import INSTRUCTION, OPENINGS, QUESTION, TEXT, Chat

SHORT = "{}\n\nAnswer in one short sentence, with the words of the text."


def in_system(instruction: str, question: str = "{}") -> list[dict[str, str]]:
    """Return messages with the text in the system message; {} in `question` is the question."""
    return [
        {"role": "system", "content": instruction + TEXT},
        {"role": "user", "content": question.format(QUESTION)},
    ]


def in_question(instruction: str, question: str = "{}") -> list[dict[str, str]]:
    """Return one message, with the text before the question."""
    return [{"role": "user", "content": f"{instruction}{TEXT}\n\n{question.format(QUESTION)}"}]


WORDINGS = {
    "now": OPENINGS[0],
    "bare": in_question(""),
    "first question": in_question(INSTRUCTION),
    "short": in_system(INSTRUCTION, SHORT),
    "first question, short": in_question(INSTRUCTION, SHORT),
    "labels": in_question("Text:\n", "Question: {}\nAnswer the question from the text, in one sentence."),
    "from the text": in_question("", "Answer from the text above: {}"),
}


def main(argv: list[str] | None = None) -> int:
    """Measure the cells that are not in the file yet; print a table of all, and one line of JSON."""
    parser = shared.parser("The words around a text and a question, with full attention.")
    parser.add_argument("--wordings", type=shared.words, default=list(WORDINGS), help=f"of {', '.join(WORDINGS)}")
    parser.add_argument("--tokens", type=shared.lengths, default=[LENGTH], help="lengths (default: 4K)")
    parser.add_argument("--readings", type=shared.count, default=READINGS, help=f"texts (default: {READINGS})")
    chosen = parser.parse_args(argv)
    if unknown := [each for each in chosen.wordings if each not in WORDINGS]:
        parser.error(f"there is no wording {unknown[0]!r}: choose from {', '.join(WORDINGS)}")
    model = shared.open_model(chosen)
    usual, texts, kept, cells = model.chat, Texts(model, chosen.data), Cells(chosen.out), list[Cell]()
    for tokens in chosen.tokens:
        for wording in chosen.wordings:
            for seed in range(chosen.seed, chosen.seed + chosen.readings):
                model.chat = usual  # its length decides how much prose there is
                text = texts.make(tokens, seed)
                model.chat = Chat(model.tokenizer, usual.day, [WORDINGS[wording]])
                mark = digest(["wordings", model.fingerprint, wording, tokens, seed, text.digest()])
                cells.append(kept.get(mark, partial(measured, model, wording, tokens, seed, text)))
    publish(cells, [], chosen.json)
    return 0


def measured(model: Model, wording: str, tokens: int, seed: int, text: Text) -> Cell:
    """Return the cell of a text, for a model whose chat has the wording."""
    made = measure(model, METHODS["full"](), text, lambda: None)
    note(f"{wording} at {tokens:,} tokens, seed {seed}: {made['seconds']}")
    named = {"model": model.name, "weights": model.fingerprint[:12], "method": wording, "looks": None}
    return {**named, "tokens": tokens, "seed": seed, **made, "machine": machine()}


if __name__ == "__main__":
    shared.run(main)
