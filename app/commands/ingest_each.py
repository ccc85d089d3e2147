"""`stockpot ingest --each`: read a library, document by document, and report what became of each."""

import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from app.commands.common import Arguments, ProgressLine, note, open_service, print_json
from app.commands.inputs import files_of, is_document_id
from app.errors import UsageError
from app.formatting import clock, name_as_text, plural, printable

if TYPE_CHECKING:
    from app.reading.progress import Report
    from app.reading.read_each import Outcome


def run_library(arguments: Arguments, settings: dict[str, Any], password: str | None) -> int:
    """Read each document by itself and print the report; return 1 if one was refused or left."""
    if arguments.add_to is not None or arguments.title is not None:
        raise UsageError("--each reads each document by itself: leave out --title and --add-to.")
    unseen: dict[Path, str] = {}
    words = files_of(arguments.sources, lambda path, reason: unseen.update({path: reason}))
    import engine
    from app.jobs.uploads import discard_locked
    from app.listing import find_document
    from app.reading.documents import IngestOptions
    from app.reading.read_each import REFUSED, Outcome, read_each
    from engine.signals import asked_to_stop

    outcomes = [Outcome(name_as_text(path), REFUSED, reason=why) for path, why in unseen.items()]
    with open_service(arguments) as service, asked_to_stop() as asked, ProgressLine() as progress:
        sources = [find_document(service, each) if is_document_id(each) else Path(each) for each in words]
        began = time.monotonic()

        def on_report(name: str, report: "Report") -> None:
            so_far = f"{len(outcomes) - len(unseen):,} of {plural(len(sources), 'document')}; {Path(name).name}"
            tokens = f", {report.tokens_done:,} of {report.tokens_total:,} tokens" if report.usage else ""
            progress.show(f"{so_far}: {report.stage}{tokens}")

        method, options = arguments.method or engine.DEFAULT_METHOD, IngestOptions(None, password, arguments.ocr)
        for outcome in read_each(service, sources, method, settings, options, on_report, asked):
            outcomes.append(outcome)
            if outcome.state == REFUSED:
                progress.end()
                note(f"refused: {outcome.source}: {outcome.reason}")
        told = report_of(outcomes, time.monotonic() - began)
        discard_locked(service, [each.sha256 for each in outcomes if each.context])
    if arguments.json:
        print_json(told)
    else:
        print(printable(_in_words(told)))
    if told["left"]:
        reason = next(each.reason for each in outcomes if each.state == "left")
        note(f"{reason} The same command goes on from there.")
    return int(bool(told["refused"] or told["left"]))


def report_of(outcomes: "list[Outcome]", seconds: float) -> dict[str, Any]:
    """Return the object of `ingest --each --json`. seconds: time that all took."""
    from app.reading.read_each import STATES

    read = [each for each in outcomes if each.state == "read"]
    tokens = sum(each.tokens for each in read)
    return {
        **{state: sum(each.state == state for each in outcomes) for state in STATES},
        "tokens": tokens,
        "seconds": round(seconds, 3),
        "tokens_per_second": round(tokens / seconds, 1) if seconds else 0.0,
        "documents_per_hour": round(3600 * len(read) / seconds, 1) if seconds else 0.0,
        "files": [{**asdict(each), "seconds": round(each.seconds, 3)} for each in outcomes],
    }


def _in_words(told: dict[str, Any]) -> str:
    pace = f" ({told['tokens_per_second']:,.0f} tokens/s, {told['documents_per_hour']:,.0f} documents an hour)"
    counts = [f"{told['known']:,} known before", f"{told['refused']:,} refused", f"{told['left']:,} left"]
    return (
        f"Read {plural(told['read'], 'document')}, {plural(told['tokens'], 'token')}, in {clock(told['seconds'])}"
        f"{pace if told['read'] else ''}; {', '.join(counts)}."
    )
