"""A conversation: a fork of a context with a tail of its own, questions in and answers out."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Generator
from typing import Any

import torch
from torch import Tensor

from engine.loops.context import Context, new_memory, restore
from engine.loops.passes import condense, feed
from engine.loops.reader import default_chunk
from engine.loops.rereading import ANSWER, Reread, to_read_again
from engine.memory import Memory
from engine.models.thinking import Speech
from engine.parts.archive.archive import Archive
from engine.parts.mass import AttentionMass, no_source
from engine.parts.sources import Sentences, WholeSentences, passages
from engine.records import Answer, AnswerPiece, LoadedParts, Parts, Usage
from engine.sampling import Sampling, choose, penalize


class Conversation:
    """Turns over one context. The context is never written; a turn that is cancelled leaves no trace."""

    def __init__(self, context: Context) -> None:
        """A conversation without any turn yet."""
        self.context = context
        self.model, self.method = context.model, context.method
        self.memory = context.memory.fork()
        self.mass = AttentionMass(context.source_tokens, context.model.device)  # of the answer being given
        self.turns = 0
        self.said: list[list[int]] = []  # tokens of each turn, to be told of them again behind what is read again

    def ask(
        self,
        question: str,
        sampling: Sampling | None = None,
        on_pass: Callable[[], None] = lambda: None,
        whole: WholeSentences | None = None,
        text: Tensor | None = None,
        named: Tensor | None = None,
        repetition_start: Callable[[str], int | None] = lambda said: None,
    ) -> Generator[AnswerPiece | Answer]:
        """Answer a question: pieces of text as they come, then one Answer.

        Closing the iterator before its end cancels: the conversation is as it was before the question.

        Args:
            on_pass: called after every pass over the question, before the first piece; what it raises ends it as well.
            whole: where sentences end, of each of which the answer then says what it rested on.
            text: int64 [source tokens], of which passages may be read again (`rereading.py`), as far as it has been
                read; None: the answer is to come from what is remembered alone.
            named: int64 [N], tokens of the text, ascending, that are to be read again whatever is remembered of them,
                also if they have not been read yet, or, where the method keeps everything, looked at alone; None: those
                that the question looks at, if the method forgets.
            repetition_start: asked at every token how many characters of the answer, or of the reasoning before it,
                are worth keeping because the rest only repeats them; None: all, and it goes on. The answer is cut
                there and ends; the reasoning ends with what there is of it.
        """
        before = self.memory.snapshot()
        finished = False
        try:
            told = yield from self._answer(
                question, sampling or Sampling(), on_pass, whole, text, named, repetition_start
            )
            self._note(told)
            finished = True
        finally:
            self.memory.mass = None
            self._focus(None)
            if not finished:
                self.roll_back(before)

    def replay(self, question: str, answer: str, on_pass: Callable[[], None] = lambda: None) -> None:
        """Remember a turn that was said before, as text: the next question goes on from its answer.

        Nothing is generated, and there is no reasoning in it. After an error the conversation is as it was before.

        Args:
            on_pass: called after every pass; what it raises ends it.

        Raises:
            OutOfMemory: there is no room for it.
        """
        before = self.memory.snapshot()
        chat, first = self.model.chat, self.turns == 0
        told = chat.told(question, answer, first)
        try:
            self._hear([*chat.question(question, first), *chat.opening(first)], told, on_pass)
        except BaseException:
            self.roll_back(before)
            raise
        self._note(told)

    def _note(self, told: list[int]) -> None:
        """A turn of these tokens is over."""
        self.said.append(told)
        self.turns += 1

    def _answer(
        self,
        question: str,
        sampling: Sampling,
        on_pass: Callable[[], None],
        whole: WholeSentences | None,
        text: Tensor | None,
        named: Tensor | None,
        repetition_start: Callable[[str], int | None],
    ) -> Generator[AnswerPiece | Answer, None, list[int]]:
        """What `ask` gives, and in the end the tokens of the turn as it would be told."""
        started = time.perf_counter()
        chat, first = self.model.chat, self.turns == 0
        put, reasoning = chat.question(question, first), sampling.max_reasoning > 0
        prompt = [*put, *chat.opening(first, reasoning)]
        cut = min(len(put), len(prompt) - 1) if chat.marks else len(prompt) - 1
        generator = torch.Generator().manual_seed(sampling.seed)
        before, again = self.memory.snapshot(), Reread(0)
        if text is not None and named is not None:
            again = self._read_named(named, text, len(prompt) + ANSWER, on_pass)
        elif text is not None and self.method.reads_again:
            again = self._read_again(prompt, text, on_pass)
        self._look(prompt, on_pass)
        self.feed(prompt[:cut], on_pass=on_pass)
        asked = self.memory.snapshot()
        self.feed(prompt[cut:-1])
        self.mass.clear()
        self.memory.mass = self.mass
        sentences = None if whole is None else Sentences(self.mass, whole)
        token = choose(self._predicted(self.feed(prompt[-1:])), sampling, generator)
        first_token_sec = time.perf_counter() - started
        speech = Speech(self.model.tokenizer, chat.marks, reasoning and chat.opens_reasoning(first))
        thought = shown = 0
        reason, stopped, cut_short, reasoning_sec = "length", False, False, 0.0
        kept: int | None = None
        generated: list[int] = []
        while True:
            if token in self.model.stop_ids or (token == chat.end and speech.decided):
                reason = "stop"
                break
            speech.add(token)
            if speech.reasoned and not speech.said:
                reasoning_sec = time.perf_counter() - started - first_token_sec
            if len(speech.reasoning) > thought:
                yield AnswerPiece(speech.reasoning[thought:], reasoning=True)
                thought = len(speech.reasoning)
            said, stopped = _cut(self.model.decode(speech.said).lstrip(), sampling.stop)
            if sentences:
                sentences.grown(said)
            if stopped:
                reason = "stop"
                break
            ready = _steady(said, sampling.stop)
            if ready > shown:
                yield AnswerPiece(said[shown:ready])
                shown = ready
            # The last token is remembered too, so that the next turn continues the whole answer.
            fed = [token]
            long = len(speech.reasoned) >= sampling.max_reasoning
            if speech.thinking and (long or repetition_start(speech.reasoning) is not None):
                cut_short = long and reasoning
                for each in chat.closing():
                    speech.add(each)
                    fed.append(each)
            logits = self._predicted(self.feed(fed, repeated=True))
            if (kept := repetition_start(said)) is not None:
                reason = "repetition"
                break
            if speech.is_over(sampling.max_tokens, sampling.max_reasoning):
                break
            generated.append(token)
            token = choose(penalize(logits, generated, sampling.repetition_penalty), sampling, generator)
        speech.end()
        said, _ = _cut(self.model.decode(speech.said).lstrip(), sampling.stop)
        said = said[:kept]
        if len(said) > shown:
            yield AnswerPiece(said[shown:])
        decode_sec = time.perf_counter() - started - first_token_sec
        looked = passages(self.mass.total.cpu())
        rested = sentences.ended(said) if sentences else []
        told = chat.told(question, said, first)
        if again.tokens:
            self.roll_back(before)
            self._hear(prompt, told)
        elif stopped or kept is not None:
            self._say_anew(asked, told[cut:])
        elif chat.marks and (speech.reasoned or prompt[len(put) :] != chat.answered()):
            self._say_anew(asked, [*prompt[cut : len(put)], *chat.answered(), *speech.said])
        tokens = len(speech.reasoned) + len(speech.said)
        yield Answer(
            text=said,
            finish_reason=reason,
            passages=looked,
            sentences=rested,
            prompt_tokens=len(prompt),
            answer_tokens=len(speech.said),
            time_to_first_token_sec=first_token_sec,
            decode_sec=decode_sec,
            tokens_per_second=tokens / decode_sec if tokens and decode_sec else 0.0,
            usage=self.memory.usage(),
            reasoning=speech.reasoning,
            reasoning_tokens=len(speech.reasoned),
            reasoning_sec=reasoning_sec,
            reasoning_cut=cut_short,
            read_again=again.tokens,
            held_again=again.held,
            alone=again.alone,
        )
        return told

    def _hear(self, prompt: list[int], told: list[int], on_pass: Callable[[], None] = lambda: None) -> None:
        """Remember a turn of these tokens without generating any; its question may look again."""
        self._look(prompt, on_pass)
        self.feed(told, on_pass=on_pass)
        self._focus(None)

    def _look(self, prompt: list[int], on_pass: Callable[[], None]) -> None:
        """Where a method looks again: ask once, and see what was looked at; the memory then looks only there."""
        while self.memory.archive and self.memory.archive.looks_again():
            self._focus(self._looked_at(prompt, on_pass))

    def _focus(self, mass: Tensor | None) -> None:
        """Look up only what got this attention, float32 [source tokens]; None for everything."""
        if self.memory.archive:
            self.memory.archive.focus(mass)

    def _looked_at(self, prompt: list[int], on_pass: Callable[[], None]) -> Tensor:
        """Ask, and go back to before that: the attention that was given, float32 [source tokens], until it is counted
        anew.
        """
        before = self.memory.snapshot()
        self.mass.clear()
        self.memory.mass = self.mass
        self.feed(prompt, on_pass=on_pass)
        self.roll_back(before)
        return self.mass.total

    def _read_named(self, named: Tensor, text: Tensor, beside: int, on_pass: Callable[[], None]) -> Reread:
        """Read these tokens of the text again, where there is no room beside what is remembered of it instead of that.
        What has no room even so is condensed, as it was in the reading.

        Args:
            beside: tokens that are to have room behind them.
        """
        if self.memory.archive:
            return self._look_at_named(self.memory.archive, named, text, on_pass)
        said = self._before_what_was_said()
        fits = self._make_room(len(named) + len(said or []) + beside)
        alone = said is not None and not fits
        if alone:
            self._forget_the_text(len(named))
        self.feed(text[named].tolist(), on_pass=on_pass, source=named.int())
        self.feed(said or [], on_pass=on_pass)
        return Reread(len(named), float(self._held(named).mean()), alone)

    def _look_at_named(self, archive: Archive, named: Tensor, text: Tensor, on_pass: Callable[[], None]) -> Reread:
        """Look only at these tokens of the text, and before that read those of them that have not been read yet."""
        coming = named[self._held(named) == 0]
        with archive.reading():
            self.feed(text[coming].tolist(), on_pass=on_pass, source=coming.int())
        archive.restrict_to(named)
        return Reread(len(coming), float(self._held(named).mean())) if len(coming) else Reread(0)

    def _held(self, named: Tensor) -> Tensor:
        """Of the KV heads that are to hold each of these tokens of the text, the share that does [N]."""
        return self.memory.remembered(self.context.source_tokens)[named].clamp(max=1)

    def _forget_the_text(self, coming: int) -> None:
        """Begin as if nothing had been read; so many tokens of text are to come."""
        prefix = self.model.chat.prefix
        self.memory = new_memory(self.model, self.method)
        self.memory.reserve(len(prefix) + coming)
        self.feed(prefix)

    def _read_again(self, prompt: list[int], text: Tensor, on_pass: Callable[[], None]) -> Reread:
        """Ask once, and read again what was looked at and is no longer remembered whole, where there is room for it."""
        read = slice(max(0, self.context.memory.seen - len(self.model.chat.prefix)))  # of the text, until now
        mass = self._looked_at(prompt, on_pass)[read].cpu()
        before = self.memory
        remembered = before.remembered(self.context.source_tokens)[read]
        wanted, beside = to_read_again(mass, remembered), len(prompt) + ANSWER
        if said := self._before_what_was_said():
            if again := self._read_passages(wanted, text, beside + len(said), on_pass):
                self.feed(said, on_pass=on_pass)
                return Reread(again)
            self.memory = before.snapshot()
        again = self._read_passages(wanted, text, beside, on_pass)
        if not again:
            self.roll_back(before)
        return Reread(again)

    def _before_what_was_said(self) -> list[int] | None:
        """Go back to the end of the text, where all that has been said since is known.

        What is read again is a part of the text then. Behind questions and answers, where it comes otherwise (in
        conversations that were saved before this was kept), the model finds less in it.

        Returns:
            What was said, to be put behind it again; None where that is not known, and the memory stays behind it.
        """
        if len(self.said) == self.turns:
            self.memory = self.context.memory.fork()
            return list(itertools.chain.from_iterable(self.said))
        self.memory = self.memory.snapshot()
        return None

    def _read_passages(self, wanted: list[Tensor], text: Tensor, beside: int, on_pass: Callable[[], None]) -> int:
        """Read passages of the text, given best first, where there is room for them and so many tokens beside.

        Returns:
            How many tokens; 0 where there was no room for the best passage, which comes last, and so is there whole.
        """
        read = fitting = 0
        if wanted and not self._make_room(len(wanted[0]) + beside):
            return 0
        for passage in reversed(wanted):
            fitting = len(passage) if self._make_room(len(passage) + beside) else 0
            if fitting:
                self.feed(text[passage].tolist(), on_pass=on_pass, source=passage.int())
                read += fitting
        return read if fitting else 0

    def _make_room(self, tokens: int) -> bool:
        """Whether there is room for so many tokens, if need be after condensing, where a memory need not be full."""
        if self.memory.evictor.room() < tokens and self.method.reads_again:
            condense(self.model, self.method, self.memory)
        return self.memory.evictor.room() >= tokens

    def _say_anew(self, asked: Memory, ids: list[int]) -> None:
        """Go back to where the question had been asked, and remember the answer as if nothing else had been said."""
        self.roll_back(asked)
        self.feed(ids)

    def roll_back(self, before: Memory) -> None:
        """The memory is what it was; what has been recorded since is kept, unless it lies elsewhere by now."""
        recordings = self.memory.recordings
        if recordings and before.same_place(self.memory):
            before.recordings = recordings
        self.memory = before

    def feed(
        self,
        ids: list[int],
        repeated: bool = False,
        on_pass: Callable[[], None] = lambda: None,
        source: Tensor | None = None,
    ) -> Tensor:
        """Commit tokens of the conversation; the hidden state [hidden] of the last, of none if there are none.

        Args:
            repeated: whether it is one of the tokens of an answer.
            source: int32 [T], which tokens of the text they are; None: none of it.
        """
        hidden = torch.empty(0, 0)
        source = no_source(len(ids)) if source is None else source
        chunk = default_chunk(self.model.device.type == "cpu")
        for step in feed(self.model, self.method, self.memory, torch.tensor(ids), source, chunk, repeated):
            hidden = step.hidden if step.hidden is not None else hidden
            on_pass()
        return hidden[-1] if ids else hidden

    def _predicted(self, hidden: Tensor) -> Tensor:
        """Logits [vocabulary] after what was fed last; a method that asks how novel tokens are need not repeat them."""
        logits = self.model.logits(hidden)
        self.memory.predicted = logits if self.method.needs_novelty() else None
        return logits

    def usage(self) -> Usage:
        """Entries and bytes per tier, the shared context included."""
        return self.memory.usage()

    def state(self) -> tuple[Parts, dict[str, Any]]:
        """The tail, to disk; the context is saved once, elsewhere."""
        parts, meta = self.memory.state()
        return parts, {"memory": meta, "turns": self.turns, "said": self.said}

    @classmethod
    def load(cls, context: Context, parts: LoadedParts, meta: dict[str, Any]) -> Conversation:
        """Continue a saved conversation over the same context.

        Raises:
            ContextMismatch: the tail belongs to another context.
        """
        conversation = cls(context)
        restore(conversation.memory, parts, meta["memory"])
        conversation.turns = int(meta["turns"])
        conversation.said = [list(turn) for turn in meta.get("said", [])]
        return conversation


def _cut(text: str, stops: tuple[str, ...]) -> tuple[str, bool]:
    """The text up to the first stop text, and whether there was one."""
    places = [place for place in (text.find(stop) for stop in stops) if place >= 0]
    return (text[: min(places)], True) if places else (text, False)


def _steady(text: str, stops: tuple[str, ...]) -> int:
    """How much of the text can be shown: not half a character, nor what may yet become a stop text."""
    if text.endswith("\N{REPLACEMENT CHARACTER}"):
        return len(text.rstrip("\N{REPLACEMENT CHARACTER}"))
    longest = max((len(stop) for stop in stops), default=1)
    for size in range(min(longest - 1, len(text)), 0, -1):
        if any(stop.startswith(text[-size:]) for stop in stops):
            return len(text) - size
    return len(text)
