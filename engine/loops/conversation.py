"""A conversation: a fork of a context with turns of its own, questions in and answers out."""

from __future__ import annotations

import functools
import itertools
import time
from collections.abc import Callable, Generator
from typing import Any

import torch
from torch import Tensor

from engine.json_grammar import JsonAnswer
from engine.loops.ask_options import AskOptions
from engine.loops.context import Context, restore
from engine.loops.drafts import DraftedPasses, Drafts
from engine.loops.passes import feed
from engine.loops.reader import default_chunk
from engine.loops.stop_texts import displayable, until_stop, whole_characters
from engine.memory import Memory
from engine.models.thinking import Speech
from engine.parts.mass import AttentionMass, no_source
from engine.parts.slot_plan import ROOM_TO_ANSWER
from engine.parts.sources import Sentences, passages, unusual
from engine.records import Answer, AnswerPiece, LoadedParts, Parts, Usage
from engine.sampling import Sampling, choose, log_probability, penalize


class Conversation:
    """Turns over one context. The context is never written, and a cancelled turn leaves no trace.

    Attributes:
        memory: the fork that holds the turns.
        mass: attention of the answer that is being given, over the tokens of the text.
        turns: number of turns.
        said: tokens of each turn.
    """

    def __init__(self, context: Context) -> None:
        """Start a conversation without turns."""
        self.context = context
        self.model, self.method = context.model, context.method
        self.memory = context.memory.fork()
        self.mass = AttentionMass(context.source_tokens, context.model.device)
        self.turns = 0
        self.said: list[list[int]] = []
        self._pass_tokens = default_chunk(self.model.device.type == "cpu")

    def ask(
        self,
        question: str,
        sampling: Sampling | None = None,
        options: AskOptions | None = None,
    ) -> Generator[AnswerPiece | Answer]:
        """Answer a question: yield pieces of text as they come, then one Answer.

        Closing the iterator before its end cancels: the conversation is as it was before the question.

        Args:
            question: the text of the turn.
            sampling: greedy by default.
            options: callbacks.
        """
        sampling, options = sampling or Sampling(), options or AskOptions()
        self._pass_tokens = options.pass_tokens or default_chunk(self.model.device.type == "cpu")
        put = self.model.chat.question(options.ruled(question), self.turns == 0)
        self._make_room_to_answer(len(put), sampling)
        before = self.memory.snapshot()
        finished = False
        try:
            told = yield from self._answer(question, put, sampling, options)
            self._note(told)
            finished = True
        finally:
            self.memory.mass = None
            self._focus(None)
            if not finished:
                self.roll_back(before)

    def replay(self, question: str, answer: str, on_pass: Callable[[], None] = lambda: None) -> None:
        """Add a turn that was said before: the next question goes on from its answer.

        Nothing is generated, and the turn has no reasoning. After an error the conversation is as it was before.

        Args:
            question: the text of the question.
            answer: the text of its answer.
            on_pass: called after each pass. An exception of it cancels the turn.

        Raises:
            OutOfMemory: the turn does not fit.
        """
        before = self.memory.snapshot()
        chat, first = self.model.chat, self.turns == 0
        told = chat.told(question, answer, first)
        try:
            self._remember_turn([*chat.question(question, first), *chat.opening(first)], told, on_pass)
        except BaseException:
            self.roll_back(before)
            raise
        self._note(told)

    def _note(self, told: list[int]) -> None:
        """Record a finished turn of these tokens."""
        self.said.append(told)
        self.turns += 1

    def looked(self) -> Tensor:
        """Return the attention beyond the usual that the last answer gives to the text, float32 [source tokens].

        The answer may still be going on.
        """
        return unusual(self.mass.total.cpu(), self._usual_attention(lambda: None))

    def _answer(
        self, question: str, put: list[int], sampling: Sampling, options: AskOptions
    ) -> Generator[AnswerPiece | Answer, None, list[int]]:
        started, on_pass = time.perf_counter(), options.on_pass
        chat, first, schema = self.model.chat, self.turns == 0, sampling.json_schema
        reasoning = sampling.max_reasoning > 0 and schema is None
        grammar = None if schema is None else JsonAnswer(self.model.grammar_tokenizer, schema)
        prompt = [*put, *chat.opening(first, reasoning)]
        last = len(prompt) - 1  # the first token whose attention counts
        together = self.memory.counts_parts  # with those before it in one pass
        cut = min(len(put), last) if chat.marks else 0 if together else last
        generator = torch.Generator().manual_seed(sampling.seed)
        usual = self._usual_attention(on_pass)
        begun = self.memory.snapshot() if options.rules else None
        self._focus_on_question(prompt, on_pass)
        self.feed(prompt[:cut], on_pass=on_pass)
        self._make_room_to_answer(len(prompt) - cut, sampling)
        asked = self.memory.snapshot()
        begin = cut if together else last
        self.feed(prompt[cut:begin])
        self.mass.clear()
        self.memory.mass, self.memory.uncounted = self.mass, last - begin
        sentences = None if options.sentence_end is None else Sentences(self.mass, options.sentence_end, usual)
        hidden = self.feed(prompt[begin:], on_pass=on_pass)
        self.model.record(self.memory)
        logits = self._predicted(self.model.logits(hidden), grammar)
        passes = self._drafted_passes(prompt, options)
        token = choose(logits, sampling, generator)
        first_token_sec = time.perf_counter() - started
        speech = Speech(self.model.tokenizer, chat.marks, reasoning and chat.opens_reasoning(first))
        shown_reasoning = shown = 0
        reason, stopped, cut_short, reasoning_sec = "length", False, False, 0.0
        kept: int | None = None
        generated: list[int] = []
        chances: list[float] = []
        while True:
            if speech.decided:
                chances.append(log_probability(logits, token))
            if token in self.model.stop_ids or (token == chat.end and speech.decided):
                reason = "stop"
                break
            speech.add(token)
            if grammar:
                grammar.add(token)
            if speech.reasoned and not speech.said:
                reasoning_sec = time.perf_counter() - started - first_token_sec
            if len(speech.reasoning) > shown_reasoning:
                yield AnswerPiece(speech.reasoning[shown_reasoning:], reasoning=True)
                shown_reasoning = len(speech.reasoning)
            said, stopped = until_stop(self.model.decode(speech.said).lstrip(), sampling.stop)
            if sentences:
                sentences.grown(said)
            if stopped:
                reason = "stop"
                break
            ready = displayable(said, sampling.stop)
            if ready > shown:
                yield AnswerPiece(said[shown:ready])
                shown = ready
            # The last token is added too, so that the next turn continues the whole answer.
            coming = [token]
            long = len(speech.reasoned) >= sampling.max_reasoning
            if speech.thinking and (long or options.repetition_start(speech.reasoning) is not None):
                cut_short = long and reasoning
                for each in chat.closing():
                    speech.add(each)
                    coming.append(each)
            logits = self._predicted(passes.logits(coming), grammar)
            if (kept := options.repetition_start(said)) is not None:
                reason = "repetition"
                break
            if speech.is_over(sampling.max_tokens, sampling.max_reasoning):
                break
            generated.append(token)
            token = choose(penalize(logits, generated, sampling.repetition_penalty), sampling, generator)
        passes.end()
        speech.end()
        completed = grammar.closing() if grammar and reason != "stop" else []
        speech.said += completed
        said, _ = until_stop(self.model.decode(speech.said).lstrip(), sampling.stop)
        said = whole_characters(said if grammar else said[:kept])
        if len(said) > shown:
            yield AnswerPiece(said[shown:])
        decode_sec = time.perf_counter() - started - first_token_sec
        attended = passages(unusual(self.mass.total.cpu(), usual))
        own_sources = sentences.ended(said) if sentences else []
        told = chat.told(question, said, first)
        if begun is not None:
            self.roll_back(begun)
            self._remember_turn([*chat.question(question, first), *chat.opening(first)], told, on_pass)
        elif stopped or completed or kept is not None:
            self._replace_answer(asked, told[cut:])
        elif chat.marks and (speech.reasoned or prompt[len(put) :] != chat.answered()):
            self._replace_answer(asked, [*prompt[cut : len(put)], *chat.answered(), *speech.said])
        tokens = len(speech.reasoned) + len(speech.said)
        yield Answer(
            text=said,
            finish_reason=reason,
            passages=attended,
            sentences=own_sources,
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
            logprob=sum(chances) / max(1, len(chances)),
            least_logprob=min(chances, default=0.0),
        )
        return told

    def _make_room_to_answer(self, coming: int, sampling: Sampling) -> None:
        """Let the memory have room for `coming` tokens and an answer, as long as that is not very long."""
        longest = sampling.max_tokens + (sampling.max_reasoning if self.model.chat.marks else 0)
        self.model.make_room(self.memory, coming + min(longest, ROOM_TO_ANSWER))

    def _remember_turn(self, prompt: list[int], told: list[int], on_pass: Callable[[], None] = lambda: None) -> None:
        """Add a turn of these tokens without generating any. Its question may be asked twice to find its focus."""
        self._focus_on_question(prompt, on_pass)
        self.feed(told, on_pass=on_pass)
        self._focus(None)

    def _focus_on_question(self, prompt: list[int], on_pass: Callable[[], None]) -> None:
        """Ask a question once or twice before it is answered, if the archive wants that, and focus on its passages."""
        while self.memory.archive and self.memory.archive.looks_again(self.memory.num_evicted):
            usual = self._usual_attention(on_pass)
            self._focus(unusual(self.attention_of(prompt, on_pass), usual))

    def _focus(self, mass: Tensor | None) -> None:
        """Restrict the archive to the passages with most of this attention, float32 [source tokens]; None lifts it."""
        if self.memory.archive:
            self.memory.archive.focus(mass, self.memory.num_evicted)

    def attention_of(self, prompt: list[int], on_pass: Callable[[], None]) -> Tensor:
        """Return the attention that a prompt gives to the text, float32 [source tokens], and forget the prompt.

        The tensor is valid until attention is counted again.
        """
        before = self.memory.snapshot()
        self.mass.clear()
        self.memory.mass = self.mass
        self.feed(prompt, on_pass=on_pass)
        self.roll_back(before)
        return self.mass.total

    def _usual_attention(self, on_pass: Callable[[], None]) -> Tensor:
        """Return the attention that an empty question gives to the text, float32 [source tokens]; see `unusual`.

        It is counted once for a context, behind the text alone.
        """
        known = self.context.usual
        if not known:
            asking = self if self.turns == 0 else Conversation(self.context)
            known.append(asking.attention_of(self.model.chat.turn(""), on_pass).cpu().clone())
            asking.memory.mass = None
        return known[0]

    def _replace_answer(self, asked: Memory, ids: list[int]) -> None:
        """Go back to the end of the question and add this answer instead of the generated one."""
        self.roll_back(asked)
        self.feed(ids)

    def roll_back(self, before: Memory) -> None:
        """Return to an earlier snapshot of the memory. Recordings since then are kept if they are still valid."""
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
        """Add tokens to the conversation.

        Args:
            ids: the tokens.
            repeated: whether they are tokens of an answer, which come one by one.
            on_pass: called after each pass.
            source: int32 [T], positions of the tokens in the text. None if they are not from the text.

        Returns:
            The hidden state [hidden] of the last token; empty without tokens.
        """
        hidden = torch.empty(0, 0)
        source = no_source(len(ids)) if source is None else source
        tokens = torch.tensor(ids)
        for step in feed(self.model, self.method, self.memory, tokens, source, self._pass_tokens, repeated):
            hidden = step.hidden if step.hidden is not None else hidden
            on_pass()
        return hidden[-1] if ids else hidden

    def _drafted_passes(self, prompt: list[int], options: AskOptions) -> DraftedPasses:
        """Return the passes of an answer to this prompt; drafts are copied from the text, or later from the chat."""
        chat = torch.tensor([*itertools.chain(*self.said), *prompt])
        text = chat[:0] if options.text_ids is None else options.text_ids
        feed = functools.partial(self.feed, repeated=True)
        return DraftedPasses(self.model, self.memory, self.mass, feed, Drafts([text, chat]))

    def _predicted(self, logits: Tensor, grammar: JsonAnswer | None = None) -> Tensor:
        """Return logits [vocabulary] for the next token, and keep them for a method that measures novelty.

        grammar: sets the logits of tokens that cannot come next to -inf.
        """
        self.memory.predicted = logits if self.method.needs_novelty() else None
        return grammar.masked(logits) if grammar else logits

    def usage(self) -> Usage:
        """Return entries and bytes per tier, the shared context included."""
        return self.memory.usage()

    def state(self) -> tuple[Parts, dict[str, Any]]:
        """Return the conversation's own tensors and facts for disk. The context is saved elsewhere, once."""
        parts, meta = self.memory.state()
        return parts, {"memory": meta, "turns": self.turns, "said": self.said}

    @classmethod
    def load(cls, context: Context, parts: LoadedParts, meta: dict[str, Any]) -> Conversation:
        """Continue a saved conversation over the same context.

        Raises:
            ContextMismatch: the saved state belongs to another context.
        """
        conversation = cls(context)
        restore(conversation.memory, parts, meta["memory"])
        conversation.turns = int(meta["turns"])
        conversation.said = [list(turn) for turn in meta.get("said", [])]
        return conversation
