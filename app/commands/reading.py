"""`stockpot ingest` and `resume`: read files and kept documents once, into a context."""

import argparse
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from app.commands.common import (
    Arguments,
    Commands,
    ProgressLine,
    add_context,
    add_json_flag,
    note,
    note_other_model,
    note_warnings,
    open_service,
    print_json,
)
from app.commands.ingest_each import run_library
from app.commands.inputs import check_file, check_method, files_of, is_document_id
from app.commands.parser import examples
from app.commands.reading_output import describe, reading_in_words, summary
from app.errors import AppError, UsageError, phrase
from app.formatting import plural
from ingest.formats import format_titles

if TYPE_CHECKING:
    from app.reading.documents import Added
    from app.reading.preparing import OnReport, Prepared
    from app.reading.progress import Report
    from app.service import Service
    from sessions import ContextRow

UNLOCK = "Give the password of an encrypted file in STOCKPOT_PASSWORD, or with --password, which others may see."
KEPT = "A document that is kept is named by its id: `stockpot list documents`."


def register(commands: Commands, shared: argparse.ArgumentParser) -> None:
    """Add `ingest` and `resume` to the parser."""
    parser = commands.add_parser(
        "ingest",
        parents=[shared],
        help="read files, or documents that are kept, and keep what was read",
        description="Read one or several files, one after another, and keep the reading as a context to talk with. "
        "A file that cannot be used is left out with a warning, and the exit status is 1. "
        "Files that are known are not extracted again, and a document that is kept is named by its id and read without "
        "its file: with another method, budget or model, or together with others. What was read just so "
        "before is named at once. "
        "A reading that was interrupted goes on from its checkpoint. With --add-to the text goes on behind what a "
        "context has read, in a context of its own, and nothing of that is read again.",
        epilog=examples(
            "ingest book.pdf notes.docx",
            "ingest ~/papers --each",
            "ingest ~/notes --method infllm",
            "ingest more.pdf --add-to 'My book'",
        ),
    )
    parser.add_argument(
        "sources",
        metavar="FILE|FOLDER|DOCUMENT",
        nargs="+",
        help=f"a file: {format_titles()}, also notebooks, tables and programs; "
        "a folder of such files; or the id (or a prefix of it) of a document that is kept, as shown by "
        "`stockpot list documents`",
    )
    parser.add_argument(
        "--title",
        metavar="T",
        help="title of the document, or of what is read of several together, also of what is added to others",
    )
    parser.add_argument(
        "--each",
        action="store_true",
        help="read each document by itself, as a whole library needs it: what is known is skipped, a file that cannot "
        "be read stops no other, the same command goes on after a stop, and a report ends it",
    )
    parser.add_argument(
        "--add-to",
        metavar="CONTEXT",
        help="read behind what this context has read, with its model, method and settings; it stays as it is",
    )
    parser.add_argument(
        "--method",
        metavar="METHOD",
        help="how the memory keeps what it reads (default: the one `stockpot methods` marks)",
    )
    parser.add_argument(
        "--budget", metavar="N", help="entries per KV head and layer on the device (default: the method's)"
    )
    parser.add_argument(
        "--set",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        dest="settings",
        help="another setting of the method; may be given several times",
    )
    add_weights(parser)
    parser.add_argument(
        "--password",
        metavar="P",
        help="password of an encrypted file ($STOCKPOT_PASSWORD keeps it out of the list of processes)",
    )
    parser.add_argument(
        "--ocr",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="recognise pages that are pictures (default: where Tesseract is installed)",
    )
    add_json_flag(parser)
    parser.set_defaults(run=run)
    parser = commands.add_parser(
        "resume",
        parents=[shared],
        help="go on with a reading that was stopped or failed",
        description="Go on with a reading that was stopped or failed, from its last checkpoint, with the model, the "
        "method and the settings that it was begun with.",
    )
    add_context(parser)
    add_json_flag(parser)
    parser.set_defaults(run=run_resume)


def add_weights(parser: argparse.ArgumentParser) -> None:
    """Add the flag --weights, for methods with trained weights of their own."""
    parser.add_argument(
        "--weights",
        metavar="PATH",
        help="file of the retaining heads (locret) or beacons (beacon) to use (default: those beside the model)",
    )


def settings_of(arguments: Arguments) -> dict[str, Any]:
    """Return the method's settings from the arguments.

    Raises:
        UsageError: the method is unknown, a setting is not KEY=VALUE, the budget is no number, or the method has no
            weights.
    """
    check_method(arguments.method)
    settings: dict[str, Any] = {}
    for each in arguments.settings:
        key, equals, value = each.partition("=")
        if not equals or not key.strip():
            raise UsageError(f"--set takes KEY=VALUE, not {each!r}.")
        settings[key.strip()] = value
    if arguments.budget is not None:
        if arguments.budget.lower() != "none" and not arguments.budget.replace("_", "").replace(",", "").isdigit():
            raise UsageError(f"--budget takes a whole number (or none), not {arguments.budget!r}.")
        settings["budget"] = arguments.budget.replace(",", "")
    if arguments.weights is not None:
        from app.reading.methods import weights_setting

        key = weights_setting(arguments.method)
        if key in settings:
            raise UsageError(f"--weights and --set {key}= name the same file: give one of them.")
        settings[key] = arguments.weights
    return settings


def run(arguments: Arguments) -> int:
    """Read the files, and print the result; return 1 if a file was left out."""
    settings = settings_of(arguments)
    if arguments.add_to is not None and (settings or arguments.method):
        raise UsageError("--add-to goes on with the method and the settings of the context: leave them out.")
    if arguments.each:
        return run_library(arguments, settings, password_of(arguments))
    sources = files_of(arguments.sources)
    if len(sources) == 1 and not is_document_id(sources[0]):
        _check_only_file(arguments, sources[0])
    arguments.sources = sources
    from app.jobs.uploads import discard_locked
    from app.reading.readings import begin

    progress = ProgressLine()

    def on_stage(report: "Report") -> None:
        progress.show(report.stage)

    with open_service(arguments) as service:
        prepare = _to_prepare(service, arguments, settings)  # refuses impossible settings before any work
        added = _add_files(service, arguments, progress)
        with progress:
            prepared = prepare([row.id for row in added.documents], on_stage)
            row = begin(service, prepared, added.warnings, on_stage, added.title)
        discard_locked(service, [each.sha256 for each in added.documents])
        note_warnings([each for each in row.warnings if each not in added.warnings])
        if prepared.base is not None and row.status != "ready":
            note(f"Goes on behind the {prepared.base.tokens:,} tokens that {prepared.base.id} has read.")
        status = _read(service, row, progress, as_json=arguments.json)
        if added.failures:
            note(f"{plural(len(added.failures), 'file')} left out: see the warnings above.")
        return status or int(bool(added.failures))


def _check_only_file(arguments: Arguments, word: str) -> None:
    """Refuse the only named file if it cannot be used, before a model is loaded.

    Raises:
        AppError: with the next step.
    """
    from ingest import IngestError, PasswordNeeded, WrongPassword, fingerprint

    try:
        check_file(word, password_of(arguments))
    except PasswordNeeded as error:
        with open_service(arguments) as service:
            known = service.store.documents.find(fingerprint(Path(word)))
        if known is None:
            raise AppError(f"{phrase(error)} {UNLOCK}") from error
        note(f"{Path(word).name} was opened with its password before, which is not asked for again.")
    except WrongPassword as error:
        raise AppError(f"{phrase(error)} {UNLOCK}") from error
    except IngestError as error:
        if Path(word).exists():
            raise
        with open_service(arguments) as service:
            titled = word.strip().casefold() in {row.title.casefold() for row in service.store.documents.all()}
        if titled:
            raise AppError(f"{phrase(error)} {KEPT}") from error
        raise


def password_of(arguments: Arguments) -> str | None:
    """Return the password of encrypted files: the given one, else the one in the environment."""
    return arguments.password or os.environ.get("STOCKPOT_PASSWORD") or None


def _to_prepare(
    service: "Service", arguments: Arguments, settings: dict[str, Any]
) -> "Callable[[list[str], OnReport], Prepared]":
    """Return a function that prepares documents as the arguments say."""
    from app.listing import find_context
    from app.reading.preparing import base_for, prepare, prepare_more

    if arguments.add_to is not None:
        base = base_for(service, find_context(service, arguments.add_to).id)
        note_other_model(arguments, base)
        return lambda ids, report: prepare_more(service, base.id, ids, report)
    import engine
    from app.reading.methods import method_for

    method = arguments.method or engine.DEFAULT_METHOD
    method_for(service.models.default, method, settings)
    return lambda ids, report: prepare(service, ids, method, settings, report=report)


def run_resume(arguments: Arguments) -> int:
    """Resume a reading, and print the result."""
    from app.listing import find_context

    with open_service(arguments) as service:
        context = find_context(service, arguments.context)
        note_other_model(arguments, context)
        row = service.store.readings.take(context.id)
        return _read(service, row, ProgressLine(), as_json=arguments.json)


def _read(service: "Service", row: "ContextRow", progress: ProgressLine, as_json: bool) -> int:
    """Read the rest of a context, and print the result; return 1 if it was stopped."""
    from app.jobs.work import Stopped
    from app.reading.readings import read
    from engine.signals import asked_to_stop

    known = row.status == "ready"
    if known:
        note(f"{row.title!r} has been read already, as context {row.id}. Nothing had to be read.")
    else:
        budget = row.budget
        try:
            with progress, asked_to_stop() as asked:
                row = read(service, row.id, lambda report: progress.show(describe(report, budget)), asked)
        except Stopped:
            note(f"Stopped; what was read so far is kept, and `stockpot resume {row.id}` goes on from there.")
            return 1
    result = summary(service, row)
    if as_json:
        print_json(result)
    else:
        documents = service.store.contexts.documents(row.id)
        print(reading_in_words(result, documents, row.tokens_read, row.read_before, known=known))
    return 0


def _add_files(service: "Service", arguments: Arguments, progress: ProgressLine) -> "Added":
    """Turn the named files into documents, and print warnings on standard error."""
    from app.listing import find_document
    from app.reading.documents import Added, IngestOptions, add_documents
    from ingest import IngestError, PasswordNeeded, WrongPassword

    def on_page(name: str, done: int, total: int) -> None:
        progress.show(f"{name}: {done:,} of {total:,}" if total else name)

    def locked() -> bool:
        return any(isinstance(each, PasswordNeeded | WrongPassword) for each in added.failures)

    def hints() -> list[str]:
        titles = {row.title.casefold() for row in service.store.documents.all()}
        missing = [str(each) for each in sources if isinstance(each, Path) and not each.exists()]
        titled = any(each.strip().casefold() in titles for each in missing)
        return [*([UNLOCK] if locked() else []), *([KEPT] if titled else [])]

    ids = [each for each in arguments.sources if is_document_id(each)]
    sources = [find_document(service, each) if each in ids else Path(each) for each in arguments.sources]
    added = Added()
    options = IngestOptions(arguments.title, password_of(arguments), arguments.ocr, beside=arguments.add_to is not None)
    try:
        with progress:
            add_documents(service, sources, options, on_page, added)
    except (AppError, IngestError) as error:
        if more := hints():
            raise AppError(" ".join([phrase(error), *more])) from error
        raise
    note_warnings(added.warnings)
    for each in hints():
        note(each)
    return added
