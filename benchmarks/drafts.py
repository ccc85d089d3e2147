"""Time of answers with drafts beside that without, and whether both say the same.

    python -m benchmarks.drafts --model FILE.gguf --threads 1 --out FILE

A text of some 2,000 tokens is read whole, and questions are put to it: some ask for a quotation, others do not. Each is
answered with and without drafts in turn, greedily and with sources; the processor's time for a token behind the first
counts. `quoting.json` has the texts and questions. Passes of several tokens are timed too, beside those of one.
"""

from __future__ import annotations

import json
import statistics
import time
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch

from app.asking.quotes import whole_sentences
from benchmarks import options as shared
from benchmarks.asking import read
from benchmarks.report import named, publish
from engine import Answer, AskOptions, Context, Conversation, Sampling, load_model, make_method
from engine.loops import drafts
from engine.model import weights_form
from engine.parts.mass import no_source
from training.pocket.prose import read_books

QUESTIONS = Path(__file__).parent / "quoting.json"
MOST = 120  # tokens of an answer
WIDTHS = (1, 2, 4, 8, 9)  # tokens of passes that are timed
REPEATS = 12


def answered(context: Context, question: str, ids: torch.Tensor, longest: int) -> tuple[Answer, float]:
    """Return the answer with drafts of up to `longest` tokens, and the processor's seconds behind its first token."""
    conversation = Conversation(context)
    options = AskOptions(sentence_end=whole_sentences, text_ids=ids)
    with patch.object(drafts, "LONGEST", longest):
        events = conversation.ask(question, Sampling(max_tokens=MOST), options)
        next(events)
        began = time.process_time()
        *_, answer = events
    assert isinstance(answer, Answer)
    return answer, time.process_time() - began


def quoted(answer: str, text: str) -> int:
    """Return the words of the longest stretch that an answer has in common with a text."""
    words, whole = answer.split(), f" {' '.join(text.split())} "
    longest = 0
    for at in range(len(words)):
        while at + longest < len(words) and f" {' '.join(words[at : at + longest + 1])} " in whole:
            longest += 1
    return longest


def passes(context: Context, ids: torch.Tensor) -> dict[str, float]:
    """Return the processor's time for passes behind a question, in passes of one token: medians, by tokens."""
    conversation = Conversation(context)
    model, memory = context.model, conversation.memory
    conversation.feed(model.chat.turn("Who was it?"))
    memory.mass = conversation.mass
    seconds: dict[int, list[float]] = {width: [] for width in WIDTHS}
    for turn in range(REPEATS):
        for width in WIDTHS if turn % 2 else reversed(WIDTHS):
            began = time.process_time()
            if width > 1:
                memory.mass.hold()
            model.logits(model.forward(ids[:width], memory, no_source(width)))
            memory.end_pass(kept=0)
            memory.mass.clear()
            seconds[width].append(time.process_time() - began)
    medians = {width: statistics.median(each[1:]) for width, each in seconds.items()}
    return {str(width): medians[width] / medians[1] for width in WIDTHS}


def main(argv: list[str] | None = None) -> int:
    """Run the command line; see the module's docstring."""
    chosen = shared.parser("Time of answers with drafts beside that without.").parse_args(argv)
    torch.set_num_threads(chosen.threads or torch.get_num_threads())
    model = load_model(chosen.model, chosen.device, quantize=weights_form(chosen.model, chosen.device))
    books, rows = dict(read_books(chosen.data)), []
    for each in json.loads(QUESTIONS.read_text(encoding="utf-8")):
        begin = books[each["book"]].index(each["start"])
        text = books[each["book"]][begin : begin + each["letters"]]
        ids = model.encode(text).ids
        context = read(model, make_method("full"), ids).context()
        widths = passes(context, ids)
        for kind in ("quoting", "ordinary"):
            for number, question in enumerate(each[kind]):
                turns = [drafts.LONGEST, 0][:: 1 if number % 2 else -1]
                told = {longest: answered(context, question, ids, longest) for longest in turns}
                (answer, seconds), (plain, slower) = told[drafts.LONGEST], told[0]
                ratio = slower / plain.answer_tokens / (seconds / answer.answer_tokens)
                row: dict[str, Any] = {"kind": kind, "question": question, "text": len(ids), "passes": widths}
                row |= {"tokens": answer.answer_tokens, "quoted": quoted(answer.text, text), "ratio": ratio}
                rows.append({**row, "same": answer.text == plain.text})
                print(rows[-1], flush=True)
    publish("drafts", rows, chosen.out, chosen.json, **named(model))
    return 0


if __name__ == "__main__":
    shared.run(main)
