"""An introduction to a text that was read: a summary, and questions that it can answer, by the model itself.

It is made in the background, in conversations that are thrown away, so that no chat remembers any of it. A question is
made from a passage by the model. It is kept only if it names something that the text says few times, and the model's
answer to it rests on that passage and says something of it. There may be none. Each step is kept at once, so that work
that was interrupted by a real question goes on from there.
"""

import re
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from app.asking.not_found import says_not_found
from app.asking.quotes import words_of
from app.asking.repetition import repetition_start
from app.asking.sources import find_sources
from app.jobs.work import Stopped
from app.machine.model_names import is_demo
from app.reading.context_cache import OpenContext
from app.reading.open_context import open_context
from app.service import Service
from sessions import ContextRow, Store

if TYPE_CHECKING:
    import engine

KIND = "introduction"  # kind of the measurement that holds it
QUESTIONS = 3
MOST_TRIED = 9
"""Passages that are tried to find these questions."""
SUMMARY_TOKENS, QUESTION_TOKENS, ANSWER_TOKENS = 100, 30, 30
LOOK_SEC = 0.1
"""Least time between two looks whether something else is to be done."""
SUM_UP = "What is this text about? Answer in three short sentences."
SUM_UP_ONE = "What is “{}” about? Answer in one short sentence."
MOST_SUMMED_UP = 6
"""Most documents of a context that are summed up."""
ASK = "Here is a passage of the text:\n\n“{}”\n\nWrite one short question that this passage answers."
PATIENCE = 4
"""Questions of no use after which the model is not asked for more."""
FEW = 8
"""Most times that a document has the rarest word of a question: "Who is the Customer?" has no one answer."""
PASS_TOKENS = 8
"""Tokens of a pass: a question with a passage in one pass would keep a real question waiting for seconds."""
LEAST_PASSAGE, PASSAGE = 150, 300
"""Characters of a passage that a question is made of."""
WORDS = 4, 25
"""Fewest and most words of a question."""
SHARED = 2
"""Words with capitals or digits, or long ones, that a question and its passage share at least."""

SENTENCES = 3
GROUNDED = 0.6
"""Least share of a sentence's telling words that are in the text; its names and numbers all are."""

_QUESTION = re.compile(r"[A-ZÀ-Þ][^.?!\n“”\"]*\?")
_NO_SUBJECT = re.compile(r"(?:And|But|Or|Which|Including|Such|Because|To|With|Of)\b")
_NAMED = re.compile(r"\b(?:[A-Z]\w+|\w*\d\w*)\b")
_SENTENCE = re.compile(r"(?<=[.!?])[”’\"]*\s+(?=[A-Z“‘\"])")
TELLING = re.compile(r"\b(?:[A-Z]\w+|\w*\d\w*|\w{7,})\b")
_ASKS_BACK = re.compile(
    r"\b(?:this|the|that) (?:passage|text|excerpt|paragraph|sentence|author)\b|\byou\b", re.IGNORECASE
)


@dataclass(frozen=True)
class Introduction:
    """A summary and questions.

    summary: a few sentences, or "" while there is none.
    questions: questions that the text can answer.
    tried: passages that were tried to make questions.
    unasked: passages of which the model could make no question of use.
    done: whether it is complete.
    """

    summary: str = ""
    questions: tuple[str, ...] = ()
    tried: int = 0
    unasked: int = 0
    done: bool = False


def can_introduce(model: str) -> bool:
    """Return whether a model can sum up a text at all; the demo model cannot."""
    return not is_demo(model)


def load_introduction(store: Store, context_id: str) -> Introduction | None:
    """Return the introduction to a context as far as it is made; None if nothing is."""
    rows = store.measurements.newest(KIND, context_id, limit=1)
    return Introduction(**{**rows[0].values, "questions": tuple(rows[0].values["questions"])}) if rows else None


def introduce(service: Service, context_id: str, should_stop: Callable[[], bool]) -> Introduction:
    """Make the introduction to a finished context, or go on with it.

    Args:
        service: the home in use.
        context_id: the context.
        should_stop: asked at every pass and piece.

    Raises:
        Stopped: `should_stop` returned True; what was made is kept.
        sessions.StoreError: the context was deleted, or is damaged.
    """
    made = load_introduction(service.store, context_id) or Introduction()
    if made.done:
        return made
    maker = _Maker(service, open_context(service, context_id), should_stop)
    if not made.summary and not made.tried:
        made = maker.keep(replace(made, summary=maker.summary()))
    for number, passage in enumerate(maker.passages()):
        if number < made.tried:
            continue
        if made.unasked >= PATIENCE or len(made.questions) == QUESTIONS:
            break
        question = maker.question(passage)
        made = replace(made, unasked=made.unasked + (not question), tried=number + 1)
        new = question and words_of(question) not in map(words_of, made.questions)
        kept = (question,) if new and maker.rests(question, passage) else ()
        made = maker.keep(replace(made, questions=made.questions + kept))
    return maker.keep(replace(made, done=True))


@dataclass(frozen=True)
class Passage:
    """Characters `start` to `end` of a document, and their text."""

    document: str
    start: int
    end: int
    text: str


class _Maker:
    """Asks a context in conversations that are thrown away."""

    def __init__(self, service: Service, opened: OpenContext, should_stop: Callable[[], bool]) -> None:
        self.service, self.opened, self.should_stop = service, opened, should_stop
        self._looked = 0.0

    @property
    def row(self) -> ContextRow:
        return self.opened.row

    def keep(self, made: Introduction) -> Introduction:
        """Save what is made so far, unless the context was deleted."""
        with self.service.store.transaction():
            self.service.store.contexts.get(self.row.id)
            self.service.store.measurements.add(KIND, self.row.id, asdict(made))
        return made

    def summary(self) -> str:
        """Return a summary: the sentences of the model's answer whose names and numbers are in the text.

        Of several documents it has a sentence each, behind the title.
        """
        cache, ids = self.service.document_cache, self.row.document_ids
        if len(ids) == 1:
            return " ".join(self._said(SUM_UP, telling(cache.document(ids[0]).text))[:SENTENCES])
        found = []
        for row in self.service.store.contexts.documents(self.row.id)[:MOST_SUMMED_UP]:
            said = self._said(SUM_UP_ONE.format(row.title), telling(cache.document(row.id).text))
            found += [f"{row.title}: {each}" for each in said[:1]]
        return "\n".join(found)

    def _said(self, question: str, known: set[str]) -> list[str]:
        """Return the sentences of an answer that are well said. known: telling words of the text."""
        return well_said(self._ask(question, SUMMARY_TOKENS).text, known)

    def question(self, passage: Passage) -> str:
        """Return the model's question about a passage, or "" if it is of no use."""
        asked = question_in(self._ask(ASK.format(passage.text), QUESTION_TOKENS).text)
        text = self.service.document_cache.document(passage.document).text
        return asked if sensible(asked, passage.text) and singles_out(asked, passage.text, text) else ""

    def rests(self, question: str, passage: Passage) -> bool:
        """Return whether the model answers a question from its passage, with something that is said there."""
        told = self._ask(question, ANSWER_TOKENS)
        if says_not_found(told.text) or not (telling(told.text) - telling(question)) & telling(passage.text):
            return False
        sources = find_sources(told.passages, self.opened.stream, self.service.document_cache)
        return any(
            each.document == passage.document and each.start < passage.end and passage.start < each.end
            for each in sources
        )

    def passages(self) -> Iterator[Passage]:
        """Yield passages to make questions of, spread over the text: its thirds first, then what lies between."""
        shares = [(number + 0.5) / MOST_TRIED for number in range(MOST_TRIED)]
        for share in (shares[at] for first in (1, 0, 2) for at in range(first, MOST_TRIED, MOST_TRIED // QUESTIONS)):
            ids = self.opened.stream.ids
            [span, *_] = self.opened.stream.spans(round(share * (len(ids) - 1)), len(ids))
            text = self.service.document_cache.document(span.document_id).text[: span.end]
            passage = passage_at(text, span.start)
            if passage is not None:
                yield Passage(span.document_id, *passage, text[slice(*passage)])

    def _ask(self, question: str, tokens: int) -> "engine.Answer":
        import engine

        sampling = replace(self.opened.model.sampling, temperature=0.0, max_tokens=tokens, max_reasoning=0, seed=1)
        options = engine.AskOptions(self._look, repetition_start=repetition_start, pass_tokens=PASS_TOKENS)
        with closing(engine.Conversation(self.opened.context).ask(question, sampling, options)) as events:
            for event in events:
                self._look()
                if isinstance(event, engine.Answer):
                    return event
        raise RuntimeError("the model gave no answer")

    def _look(self) -> None:
        if time.monotonic() - self._looked >= LOOK_SEC:
            self._looked = time.monotonic()
            if self.should_stop():
                raise Stopped


def question_in(answer: str) -> str:
    """Return the first question in an answer, or ""."""
    found = _QUESTION.search(answer)
    return " ".join(found[0].split()) if found else ""


def passage_at(text: str, start: int) -> tuple[int, int] | None:
    """Return the range of some whole sentences of one paragraph at or behind a place; None if there are none."""
    for paragraph in re.finditer(r"\S(?:.|\n(?!\s*\n))*", text[start:]):
        first = start + paragraph.start()
        ends = [first + found.start() for found in _SENTENCE.finditer(paragraph[0])]
        ends.append(first + len(paragraph[0].rstrip()))
        begin = first if first > start or not start or text[start - 1] == "\n" else ends[0]
        end = next((each for each in ends if each - begin >= PASSAGE), ends[-1])
        while begin < end and text[begin] in ' \n”’"':
            begin += 1
        if LEAST_PASSAGE <= end - begin <= 3 * PASSAGE and TELLING.search(text[begin:end]):
            return begin, end
        if first - start > 20 * PASSAGE:
            return None
    return None


def whole_sentences(text: str) -> list[str]:
    """Return the sentences of an answer, without one that was cut off at its end."""
    return [each for each in _SENTENCE.split(" ".join(text.split())) if each.endswith((".", "!", "?", "”", '"'))]


def well_said(answer: str, known: set[str]) -> list[str]:
    """Return the sentences of an answer that have a subject, rest on a text, and say something new.

    known: telling words of the text.
    """
    said, seen = list[str](), set[str]()
    for each in [] if says_not_found(answer) else whole_sentences(answer):
        if grounded(each, known) and not _NO_SUBJECT.match(each) and len(telling(each) - seen) >= SHARED:
            said.append(each)
            seen |= telling(each)
    return said


def telling(text: str) -> set[str]:
    """Return the words of a text that tell it from others: names, numbers and long words, in small letters."""
    return {word.casefold() for word in TELLING.findall(text)}


def grounded(sentence: str, known: set[str]) -> bool:
    """Return whether a sentence says something, with the names, the numbers and most long words of the text.

    known: telling words of the text.
    """
    rest = " ".join(sentence.split()[1:])  # the first word has a capital anyway
    words, names = telling(rest), {word.casefold() for word in _NAMED.findall(rest)}
    return names <= known and len(words) >= SHARED and len(words & known) >= GROUNDED * len(words)


def sensible(question: str, passage: str) -> bool:
    """Return whether a question stands by itself and is about its passage."""
    words = question.split()
    if not WORDS[0] <= len(words) <= WORDS[1] or _ASKS_BACK.search(question):
        return False
    return len(telling(" ".join(words[1:])) & telling(passage)) >= SHARED


def singles_out(question: str, passage: str, text: str) -> bool:
    """Return whether a question has a telling word of its passage that the whole text has few times."""
    shared, counted = telling(" ".join(question.split()[1:])) & telling(passage), text.casefold()
    return any(counted.count(word) <= FEW for word in shared)


def introduction_json(made: Introduction | None) -> dict[str, Any] | None:
    """Return an introduction as plain data; None for none."""
    return None if made is None else {"summary": made.summary, "questions": list(made.questions), "done": made.done}
