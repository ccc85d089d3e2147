"""Answers from the text itself: places are found, read again alone, and asked.

The memory knows the whole text. What it says of one place gets mixed up with its neighbours, the more the longer the
text is. A short context of the right passages is answered better than a long one. So a first answer is only begun: by
the memory if it shows the whole text, otherwise by a memory of many passages that share words with the question. If the
text has the words of this beginning beside those of the question, the answer goes on. Otherwise passages are ranked by
where it looked, and by the words of the question if the memory began it. The best are read into a memory of their own,
in the order of the text, and that memory answers. The conversation then remembers the turn.

Questions about the whole text have no such places, and words that it does not have lead to none. Both are left to the
memory.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import accumulate, chain, groupby

import torch
from torch import Tensor

from engine.finding.finder import Finder, Signs
from engine.finding.support import sureness
from engine.loops.ask_options import AskOptions
from engine.loops.context import Context, new_memory
from engine.loops.conversation import Conversation
from engine.loops.passes import feed
from engine.loops.reader import default_chunk
from engine.methods import make_method
from engine.parts.mass import no_source
from engine.parts.sources import passages
from engine.records import Answer, AnswerPiece
from engine.sampling import Sampling

BEGINNING = 32  # pieces of a first answer, about a token each
TRUSTED = 0.2  # least sureness at which it goes on; fitted on the questions of `benchmarks/suite`
PASSAGES = 3  # read again for a question; a small model answers better from three than from six
WIDE = 16  # passages that begin an answer where the memory does not show the whole text
LOOKED = 1.0  # weight of where the memory looked, beside that of words
READ_AGAIN = 800  # tokens of the passages of a question with its turn, in plans
READ_WIDE = 3000  # the same where a memory does not show the whole text, and tokens of these passages at most
SHORT = 1024  # tokens of a text, or of named pages, that are not searched
LONGEST_READ_AGAIN = 16_384  # tokens that are read again for one question, at most
GAP = "\n\n"  # between passages


@dataclass(frozen=True)
class ReadText:
    """The text of a conversation, as far as it has been read.

    Attributes:
        ids: int64 [T].
        finder: made for these tokens, or for a text that begins with them.
        named: int64 [N], ascending tokens of the text that a person named, to answer from these alone. None for all.
        pinned: int64 [N], ascending tokens that are read beside what is found or named. None for none.
        by_words: whether words alone lead to places, because the model is so small that what it looks at does not.
    """

    ids: Tensor
    finder: Finder
    named: Tensor | None = None
    pinned: Tensor | None = None
    by_words: bool = False

    def find(self, question: str, most: int, attention: Sequence[tuple[Tensor, float]] = ()) -> list[range]:
        """Return the passages among what has been read that the words of a question and attention lead to, best first.

        Args:
            question: its words; "" to leave them out.
            most: passages at most.
            attention: see `Signs`.
        """
        within = torch.arange(len(self.ids)) if len(self.ids) < self.finder.tokens else None
        return self.finder.find(Signs(question, attention, within), most)


def answer_from_text(
    conversation: Conversation, question: str, text: ReadText, sampling: Sampling, options: AskOptions
) -> Generator[AnswerPiece | Answer]:
    """Answer a question from the passages of the text that it is about: yield as `Conversation.ask` does.

    Args:
        conversation: goes on with the question and its answer.
        question: the text of the turn.
        text: what is searched.
        sampling: of the answer.
        options: callbacks.

    Raises:
        OutOfMemory: the passages do not fit beside the memory.
    """
    started, begun = time.perf_counter(), ""
    options = replace(options, text_ids=text.ids)
    places: list[range] = []
    if text.named is not None:
        places = named_places(text, text.named, question)
    elif text.pinned is not None and text.finder.words.leads(question):
        places = _searched(conversation, question, text, PASSAGES)
    elif len(text.ids) > SHORT and text.finder.words.leads(question):
        if text.by_words:
            places = joined(text.find(question, PASSAGES))
        elif (first := (yield from _begin(conversation, question, text, sampling, options))) is None:
            return
        else:
            places, begun = first
    if text.pinned is not None and (text.named is not None or text.finder.words.leads(question)):
        places = joined([*places, *runs(text.pinned[: LONGEST_READ_AGAIN - sum(map(len, places))])])
    if not places:
        yield from conversation.ask(question, sampling, options)
        return
    alone = _Alone(conversation, question, text, places, options)
    yield from alone.remembered(alone.ask(sampling), time.perf_counter() - started, begun)


def _begin(
    conversation: Conversation, question: str, text: ReadText, sampling: Sampling, options: AskOptions
) -> Generator[AnswerPiece | Answer, None, tuple[list[range], str] | None]:
    """Begin an answer, and give it if the text says the same.

    Returns:
        None if it was given; otherwise the places that it leads to, and what the memory said.
    """
    started = time.perf_counter()
    wide = [] if conversation.memory.shows(len(text.ids)) else _searched(conversation, question, text, WIDE)
    alone = _Alone(conversation, question, text, joined(wide), options) if wide else None
    reasons = conversation.model.chat.marks and sampling.max_reasoning and sampling.json_schema is None
    quick = replace(sampling, max_reasoning=0)
    events = alone.ask(quick) if alone else conversation.ask(question, quick, options)
    with closing(_Begun(events)) as first:
        if not reasons and _says(text.finder, question, first.text) >= TRUSTED:
            told = first.rest(started)
            yield from alone.remembered(told) if alone else told
            return None
        looked = [((alone.answering if alone else conversation).looked(), LOOKED)]
    found = text.find("" if alone else question, PASSAGES, looked) or wide[:PASSAGES]
    return joined(found), "" if alone else first.text


def _searched(conversation: Conversation, question: str, text: ReadText, most: int) -> list[range]:
    """Return the passages that words lead to, best first.

    A question with a single telling word ("How old is she?") goes on from the answer before it, whose words count too.
    """
    if conversation.said and len(text.finder.words.known(question)) < 2:
        question = f"{question} {conversation.model.decode(conversation.said[-1])}"
    found = text.find(question, most)
    return [each for each, tokens in zip(found, accumulate(map(len, found)), strict=True) if tokens <= READ_WIDE]


class _Alone:
    """Passages that answer a question of a conversation, which then remembers the turn."""

    def __init__(
        self, conversation: Conversation, question: str, text: ReadText, places: list[range], options: AskOptions
    ) -> None:
        """Read the passages."""
        self._conversation, self._question, self._places = conversation, question, places
        self._options = replace(options, text_ids=torch.cat([text.ids[each.start : each.stop] for each in places]))

        def on_pass(done: int, total: int) -> None:
            options.on_passages(done, total)
            options.on_pass()

        self.answering = Conversation(read_alone(conversation.context, text.ids, places, on_pass))

    def ask(self, sampling: Sampling) -> Generator[AnswerPiece | Answer]:
        """Ask them; yield as `Conversation.ask` does."""
        return self.answering.ask(self._options.ruled(self._question), sampling, replace(self._options, rules=""))

    def remembered(
        self, events: Generator[AnswerPiece | Answer], waited: float = 0.0, begun: str = ""
    ) -> Generator[AnswerPiece | Answer]:
        """Yield the events of an answer, and let the conversation remember it.

        Args:
            events: of `ask`.
            waited: seconds before it.
            begun: what the memory said before.
        """
        for event in events:
            if isinstance(event, Answer):
                looked = event.passages or passages(self.answering.mass.total.cpu())  # nothing else was in view
                self._conversation.replay(self._question, event.text, self._options.on_pass)
                event = replace(
                    event,
                    passages=looked,
                    time_to_first_token_sec=waited + event.time_to_first_token_sec,
                    usage=self._conversation.usage(),
                    read_again=tuple(self._places),
                    from_memory=begun,
                )
            yield event


def answer_without_model(
    conversation: Conversation, question: str, text: str, options: AskOptions
) -> Generator[AnswerPiece | Answer]:
    """Give an answer that is known without the model: yield as `Conversation.ask` does. The conversation remembers it.

    Args:
        conversation: goes on with the question and its answer.
        question: the text of the turn.
        text: the answer.
        options: callbacks.
    """
    started = time.perf_counter()
    conversation.replay(question, text, options.on_pass)
    yield AnswerPiece(text)
    yield Answer(text, "stop", [], [], 0, 0, time.perf_counter() - started, 0.0, 0.0, conversation.usage())


class _Begun:
    """The beginning of a first answer, not yet shown. Closing it before its end forgets the question too.

    Attributes:
        text: of the beginning.
    """

    def __init__(self, events: Generator[AnswerPiece | Answer]) -> None:
        """Generate the first pieces. events: of the answer; it does not reason."""
        self._events = events
        self._told: list[AnswerPiece | Answer] = []
        for event in self._events:
            self._told.append(event)
            if isinstance(event, Answer) or len(self._told) == BEGINNING:
                break
        self.text = "".join(each.text for each in self._told if isinstance(each, AnswerPiece))

    def rest(self, started: float) -> Generator[AnswerPiece | Answer]:
        """Yield the whole answer. started: when the question came; times are counted from there."""
        waited = time.perf_counter() - started
        for event in chain(self._told, self._events):
            if isinstance(event, Answer):
                told = event.time_to_first_token_sec + event.decode_sec
                event = replace(event, time_to_first_token_sec=waited, decode_sec=max(0.0, told - waited))
            yield event

    def close(self) -> None:
        """Forget the question and the answer, unless the answer came to its end."""
        self._events.close()


def _says(finder: Finder, question: str, answer: str) -> float:
    """Return how far the text supports an answer, from 0 to 1; see `sureness`."""
    return sureness(finder.words, question, answer, finder.texts(finder.beside(question, answer)))


def named_places(text: ReadText, named: Tensor, question: str) -> list[range]:
    """Return the places of named tokens, int64 [N], that answer a question: all, or the best passages of many."""
    searched = len(named) > SHORT and text.finder.words.leads(question)
    found = text.finder.find(Signs(question, within=named), PASSAGES) if searched else []
    inside = named[torch.isin(named, torch.tensor([token for each in found for token in each]))]
    return runs(inside if len(inside) else named[:LONGEST_READ_AGAIN])


def runs(tokens: Tensor) -> list[range]:
    """Return ascending tokens, int64 [N], as stretches without gaps."""
    stretches = (
        [token for _, token in group]
        for _, group in groupby(enumerate(tokens.tolist()), lambda pair: pair[1] - pair[0])
    )
    return [range(each[0], each[-1] + 1) for each in stretches]


def joined(places: list[range]) -> list[range]:
    """Return places in the order of the text, those that touch or overlap as one."""
    found: list[range] = []
    for each in sorted(places, key=lambda place: place.start):
        if found and each.start <= found[-1].stop:
            each = range(found[-1].start, max(found.pop().stop, each.stop))
        found.append(each)
    return found


def read_alone(context: Context, ids: Tensor, places: list[range], on_pass: Callable[[int, int], None]) -> Context:
    """Return a context that has read nothing but these places of a text, all of them with full attention.

    Its tokens keep their positions in the text as their source, so answers from it name places of the text.

    Args:
        context: of the whole text; gives the model.
        ids: int64 [T], the text.
        places: its tokens to read.
        on_pass: called before the first pass and after each, with the tokens that are read and all of them. An
            exception of it ends the reading.
    """
    model, method = context.model, make_method("full")
    gap = model.encode(GAP).ids
    tokens, source = [torch.tensor(model.chat.prefix, dtype=torch.long)], [no_source(len(model.chat.prefix))]
    for each in places:
        tokens += [ids[each.start : each.stop], gap]
        source += [torch.arange(each.start, each.stop, dtype=torch.int32), no_source(len(gap))]
    memory = new_memory(model, method)
    total = sum(map(len, tokens))
    memory.reserve(total)
    on_pass(0, total)
    chunk = default_chunk(model.device.type == "cpu")
    for _ in feed(model, method, memory, torch.cat(tokens), torch.cat(source), chunk):
        on_pass(memory.seen, total)
    return Context(model, method, memory, context.source_tokens)
