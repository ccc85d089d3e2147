"""Readings and answers done in this process, with one model and the contexts that are open in memory."""

import time
from contextlib import closing, suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

from app.asking.answers import Checked, asked, checked, question_to
from app.asking.demo_answer import DemoAnswer
from app.errors import AppError
from app.formatting import plural, replay_progress
from app.jobs.work import AnswerHooks, AnswerWork, ReadingDone, ReadingHooks, ReadingWork, Stopped
from app.lru_cache import LruCache
from app.machine.fitting import plan_reading
from app.machine.loaded_model import Models
from app.machine.planning import remaining_time
from app.reading.checkpoints import Checkpoints, save
from app.reading.context_cache import ContextCache, OpenContext, OpenConversation
from app.reading.document_cache import DocumentCache
from app.reading.memory_map import memory_map
from app.reading.open_context import model_of, opened_context, opened_conversation, save_conversation, to_host
from app.reading.progress import Report, usage_json
from app.reading.saved_state import check_context
from app.reading.token_stream import PART, Stream
from sessions import TensorFolder

if TYPE_CHECKING:
    import engine

OPEN_CONVERSATIONS = 8
LONG_QUESTION = 256
"""Tokens of a question above which its progress is shown."""


class Here:
    """Does work in this process, one piece at a time. It opens no database."""

    def __init__(self, model: str | None, device: str, home: Path, memory: int, documents: DocumentCache) -> None:
        """Start with nothing loaded.

        Args:
            model: the model for new readings; None for `default_model`.
            device: auto, cpu or cuda.
            home: the home folder, where models are looked for and packed weights lie.
            memory: bytes for open contexts, on the device and in host memory each.
            documents: holds the documents that work brings along.
        """
        self.models = Models(model, device, self.forget_open, home)
        self.documents = documents
        self.conversations: LruCache[str, OpenConversation] = LruCache(OPEN_CONVERSATIONS)
        self.contexts = ContextCache(memory, self.conversations)
        self.under_way: OpenContext | None = None  # the context that is being read, between two steps

    def read_here(self, context_id: str) -> OpenContext | None:
        """Return the text read so far of a context that is being read here, else None. It may end at any time."""
        reading = self.under_way
        return reading if reading is not None and reading.row.id == context_id else None

    def forget_open(self) -> None:
        """Drop everything that is open in memory; it is on disk, and is opened again when needed."""
        self.conversations.clear()
        self.contexts.clear()

    def planned(
        self, model: "engine.Model", name: str, method: "engine.Method", tokens: int, read_before: int
    ) -> "engine.Plan":
        """Return `plan_reading`; if memory is short, drop the open contexts, which are on disk, and plan again."""
        try:
            return plan_reading(model, name, method, tokens, read_before)
        except AppError:
            if not self.contexts.ids():
                raise
        self.forget_open()
        return plan_reading(model, name, method, tokens, read_before)

    def read(self, work: ReadingWork, hooks: ReadingHooks) -> ReadingDone:
        """Read a context, see `Runner.read`.

        `hooks.report` may answer questions, in the same thread, also about the text read so far (`under_way`).
        """
        try:
            return self._read(work, hooks)
        finally:
            self.under_way = None

    def _read(self, work: ReadingWork, hooks: ReadingHooks) -> ReadingDone:
        import engine

        row, folder = work.context.row, TensorFolder(work.context.folder, hooks.may_save)
        hooks.report(Report("loading the model", row.tokens_read, row.tokens))
        found = self.models.get(row.model)
        method = engine.make_method(row.method, **row.settings)
        parts, meta = folder.load(row.fingerprint)
        check_context(row, parts, meta)
        stream = Stream.load(parts.pop(PART), meta["stretches"])
        model = model_of(row, found, method, stream, meta)
        if meta["context"]:  # the process that finished it may have died before it updated the row
            reader = engine.Reader.resume(model, method, stream.ids, parts, meta["context"])
        else:
            plan = self.planned(model, row.model, method, len(stream.ids), row.tokens_read)
            reader = (
                engine.Reader.resume(model, plan.method, stream.ids, parts, meta["reader"], plan.chunk)
                if meta["reader"]
                else engine.Reader(model, plan.method, stream.ids, plan.chunk)
            )
        if reader.memory.archive:
            reader.memory.archive.use_mapped_files(parts)
        now = Report("reading", row.tokens_read, row.tokens, row.seconds)
        before = len(model.chat.prefix)  # tokens of the chat template are not text
        total = reader.total - before
        seconds_left = remaining_time(model, method, total, row.read_before)
        with Checkpoints(folder, row, stream, reader, work.checkpoint_sec, hooks.saved) as checkpoints:
            for progress in reader.run():
                done = max(0, progress.tokens_done - before)
                now = Report(
                    progress.stage,
                    done,
                    total,
                    progress.seconds,
                    seconds_left(done, progress.seconds),
                    progress.tokens_per_second,
                    usage_json(progress.usage),
                )
                share = now.tokens_done / now.tokens_total
                self.under_way = OpenContext(row, model, reader.so_far(), stream, {}, share)
                hooks.report(now)
                if reader.finished:
                    break  # only saving is left, so do not stop
                if hooks.should_stop():
                    checkpoints.save_now(now)
                    raise Stopped
                checkpoints.after_step(now)
        now = replace(now, usage=usage_json(reader.memory.usage()))  # the last checkpoint may have dropped memory
        hooks.report(replace(now, stage="saving", seconds_left=0.0))
        context = reader.context()
        stretches = memory_map(context.remembered(), stream)
        state, facts = context.state()
        save(folder, row, stream, model, to_host(state), context=facts)
        hooks.saved(now)
        return ReadingDone(now.tokens_total, now.seconds, now.usage, tuple(stretches))

    def answer(self, work: AnswerWork, hooks: AnswerHooks) -> Checked | None:
        """Answer a question, see `Runner.answer`."""
        try:
            return self._answer(work, hooks)
        except BaseException:
            self.conversations.drop(work.session.id)
            raise

    def _answer(self, work: AnswerWork, hooks: AnswerHooks) -> Checked | None:
        import engine

        def on_turn(done: int, total: int) -> None:
            hooks.stage(replay_progress(done, total) if done < total else "")

        def on_pass() -> None:
            if hooks.should_stop():
                raise Stopped

        started = time.perf_counter()
        try:
            open_one = opened_conversation(self, work.context, work.session, on_pass, on_turn)
        except Stopped:
            return None
        opening_sec = time.perf_counter() - started
        opened = open_one.opened
        length, before = opened.model.turn_length(work.question), open_one.conversation.memory.seen

        def on_question() -> None:
            on_pass()
            done = open_one.conversation.memory.seen - before
            if length > LONG_QUESTION and 0 < done < length:
                hooks.stage(f"Reading the question: {done:,} of {plural(length, 'token')}")

        def on_passages(done: int, total: int) -> None:
            share = 100 * done // total
            hooks.stage(f"Reading the passages that the question is about: {share} %" if done < total else "")

        documents = self.documents.over(work.texts)
        titles = [(each.id, each.title) for each in work.texts]
        question = question_to(opened, work.question, work.pages, work.options, documents, titles)
        done, said = None, DemoAnswer(opened.row.model)
        with suppress(Stopped), closing(asked(open_one.conversation, question, on_question, on_passages)) as events:
            for event in events:
                hooks.stage("")
                if isinstance(event, engine.Answer):
                    rest, text = said.whole(event.text)
                    first_sec = opening_sec + event.time_to_first_token_sec
                    done = replace(event, text=text, time_to_first_token_sec=first_sec)
                    if rest:
                        hooks.piece(rest)
                    continue
                if event.reasoning:
                    hooks.reasoning(event.text)
                elif shown := said.piece(event.text):
                    hooks.piece(shown)
                if hooks.should_stop():
                    break
        if done is None:
            return None
        told = checked(question, done)
        if opened.share is None:
            opened_context(self, work.context)  # raises if its files were damaged meanwhile
            folder = TensorFolder(work.session.folder, hooks.may_save)
            save_conversation(folder, open_one, {"id": work.turn, **asdict(told)})
        return told
