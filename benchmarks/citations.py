"""Share of sentences in answers whose sources hold the fact that they state.

    python -m benchmarks.citations --methods full,exact --tokens 512,1K

Documents are eight facts in real prose, and the model is asked for the important points. A sentence states a fact if it
contains the fact's value. For comparison, the share whose fact is in the sources of the whole answer. Answers of a
single sentence are not counted, as both shares are the same there.
"""

from __future__ import annotations

from typing import Any

from benchmarks import options as shared
from benchmarks.asking import read
from benchmarks.haystack import Haystack, Question
from benchmarks.report import named, publish
from engine import Answer, AskOptions, Conversation, Passage, Sampling

PROMPT = "List the important points."
ANSWER = 120  # tokens at most


def whole(text: str, since: int) -> int:
    """Return the end of the last whole sentence, at least `since`; the pocket model ends each with a full stop."""
    return max(since, text.rfind(". ") + 1)


def cited(answer: Answer, questions: list[Question]) -> list[tuple[bool, bool]]:
    """Return, for each sentence that states a fact, whether its own sources hold it, and whether the answer's do."""
    found = []
    for sentence in answer.sentences if len(answer.sentences) > 1 else []:
        said = answer.text[sentence.start : sentence.end].casefold()
        fact = next((each for each in questions if each.answer.casefold() in said), None)
        if fact is not None:
            found.append((_holds(sentence.passages, fact), _holds(answer.passages, fact)))
    return found


def _holds(passages: list[Passage], fact: Question) -> bool:
    return bool(passages) and passages[0].start < fact.end and fact.start < passages[0].end


def main(argv: list[str] | None = None) -> int:
    """Run the command line; see the module's docstring."""
    parser = shared.parser("Of the sentences that say a fact, the share that rest on the passage which states it.")
    parser.add_argument("--methods", type=shared.words, default=["full", "exact"], help="default: full,exact")
    parser.add_argument("--budget", type=shared.size, default=512, help="entries (default: 512)")
    parser.add_argument("--tokens", type=shared.lengths, default=[512, 1024], help="lengths (default: 512,1K)")
    parser.add_argument("--trials", type=shared.count, default=60, help="documents per cell (default: 60)")
    chosen = parser.parse_args(argv)
    shared.check_methods(parser, chosen.methods, [chosen.budget])
    model = shared.open_model(chosen)
    haystack = Haystack(model, chosen.data)
    rows: list[dict[str, Any]] = []
    for name in chosen.methods:
        method = shared.variant(name, chosen.budget)
        for tokens in chosen.tokens:
            found = []
            for number in range(chosen.trials):
                trial = haystack.trial("facts", tokens, 0.0, chosen.seed + number)
                conversation = Conversation(read(model, method, trial.ids).context())
                *_, answer = conversation.ask(PROMPT, Sampling(max_tokens=ANSWER), AskOptions(sentence_end=whole))
                assert isinstance(answer, Answer)
                found += cited(answer, trial.questions)
            row = {"method": name, "budget": method.budget, "tokens": tokens, "settings": method.settings()}
            sentence, answered = (sum(each[at] for each in found) for at in (0, 1))
            rows.append(row | {"sentences": len(found), "own": sentence, "answer": answered})
    publish("citations", rows, chosen.out, chosen.json, **named(model), documents=chosen.trials)
    return 0


if __name__ == "__main__":
    shared.run(main)
