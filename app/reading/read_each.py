"""Read many documents, each by itself: what is known is skipped, and a file that cannot be read stops no other.

What was read lies in the store by the SHA-256 of its file, so the same call goes on after any stop.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from app.errors import AppError, log_error, phrase
from app.formatting import name_as_text
from app.jobs.work import Stopped
from app.reading import readings
from app.reading.documents import IngestOptions, add_documents
from app.reading.methods import method_for
from app.reading.preparing import prepare
from app.reading.progress import Report
from app.service import Service
from sessions import DiskFull, DocumentRow, ReadOnlyHome, StoreError

AHEAD = 3
"""Files whose text is extracted while another one is read."""
READ, KNOWN, REFUSED, LEFT = "read", "known", "refused", "left"
STATES = (READ, KNOWN, REFUSED, LEFT)
STOPPED = "Stopped before it was read."

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Outcome:
    """Says what became of one source.

    source: path of the file, or id of the document.
    state: READ now, KNOWN before, REFUSED, or LEFT for the next time.
    document, context: their ids; "" for none.
    sha256: hash of the file; "" if it became no document.
    tokens: tokens read now.
    seconds: time that reading them took.
    reason: sentence that says why it is refused, or why it is left; "" for none.
    """

    source: str
    state: str = LEFT
    document: str = ""
    context: str = ""
    sha256: str = ""
    tokens: int = 0
    seconds: float = 0.0
    reason: str = ""


def read_each(
    service: Service,
    sources: Sequence[Path | DocumentRow],
    method: str,
    settings: dict[str, Any],
    options: IngestOptions,
    on_report: Callable[[str, Report], None],
    should_stop: Callable[[], bool],
) -> Iterator[Outcome]:
    """Read documents, each as a context of its own, and yield what became of each in their order.

    After a stop, or if nothing more can be kept, the rest is yielded as LEFT.

    Args:
        service: the home in use.
        sources: files and kept documents.
        method: name of the method.
        settings: its settings.
        options: how to turn the files into documents; a title is given to none.
        on_report: told a source and its progress.
        should_stop: asked often, from several threads.

    Raises:
        engine.EngineError: the settings or the model are impossible.
    """
    import engine

    chosen = method_for(service.models.default, method, settings)
    ended, ending = "", threading.Event()

    def look_for_stop() -> None:
        if ending.is_set() or should_stop():
            raise Stopped

    def opened(source: Path | DocumentRow) -> DocumentRow:
        return add_documents(service, [source], options, lambda name, done, total: look_for_stop()).documents[0]

    def read(name: str, document: DocumentRow, outcome: Outcome) -> Outcome:
        def on_stage(report: Report) -> None:
            look_for_stop()
            on_report(name, report)

        if known := readings.find_read_alone(service, document.id, chosen, settings):
            return replace(outcome, state=KNOWN, context=known)
        prepared = prepare(service, [document.id], method, settings, report=on_stage)
        row = readings.begin(service, prepared, document.warnings, on_stage)
        if row.status == "ready":
            return replace(outcome, state=KNOWN, context=row.id)
        began, before = time.monotonic(), row.tokens_read
        row = readings.read(service, row.id, lambda report: on_report(name, report), should_stop)
        seconds = time.monotonic() - began
        return replace(outcome, state=READ, context=row.id, tokens=row.tokens_read - before, seconds=seconds)

    rest = iter(sources)
    with ThreadPoolExecutor(AHEAD, "extract") as pool:
        ahead = deque(pool.submit(opened, each) for each in islice(rest, AHEAD))
        try:
            for source in sources:
                name = source.id if isinstance(source, DocumentRow) else name_as_text(source)
                outcome = Outcome(name, reason=ended)
                if not ended:
                    extracted = ahead.popleft()
                    ahead.extend(pool.submit(opened, each) for each in islice(rest, 1))
                    try:
                        on_report(name, Report("extracting text"))
                        document = extracted.result()
                        outcome = replace(outcome, document=document.id, sha256=document.sha256)
                        outcome = read(name, document, outcome)
                    except Stopped:
                        ended = STOPPED
                        outcome = replace(outcome, reason=ended)
                    except Exception as error:
                        log_error(log, f"{name} was not read", error)
                        outcome = replace(outcome, state=REFUSED, reason=phrase(error))
                        if isinstance(error, DiskFull | ReadOnlyHome) or (
                            isinstance(error, engine.EngineError) and service.models.held is None
                        ):  # the others would fail like it
                            ended = phrase(error)
                            outcome = replace(outcome, state=LEFT)
                        elif not isinstance(error, AppError | StoreError):
                            service.forget_open()  # after an out-of-memory above all
                yield outcome
        finally:
            ending.set()
            pool.shutdown(cancel_futures=True)
