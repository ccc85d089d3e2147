"""`stockpot list`, `show`, `rename`, `delete`, `search` and `export`: what is kept."""

import argparse
import os
import sys
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from app.commands.common import (
    Arguments,
    Commands,
    add_json_flag,
    columns_of,
    note,
    open_service,
    print_json,
    table,
)
from app.errors import AppError, UsageError
from app.formatting import byte_size, clock, percent, printable, speed

if TYPE_CHECKING:
    from app.service import Service
    from sessions import TurnRow

COLUMNS = {
    "documents": {
        "id": "ID",
        "title": "TITLE",
        "format": "FORMAT",
        "pages": "PAGES",
        "characters": "CHARACTERS",
        "when": "ADDED",
    },
    "contexts": {
        "id": "ID",
        "title": "TITLE",
        "method": "METHOD",
        "budget": "BUDGET",
        "tokens": "TOKENS",
        "size": "SIZE",
        "status": "STATUS",
        "when": "BEGUN",
        "model": "MODEL",
    },
    "sessions": {"id": "ID", "title": "TITLE", "context_id": "CONTEXT", "turns": "TURNS", "when": "LAST USED"},
}


def register(commands: Commands, shared: argparse.ArgumentParser) -> None:
    """Add the commands."""
    parser = commands.add_parser(
        "list",
        parents=[shared],
        help="list documents, contexts or sessions",
        description="List documents, contexts or sessions, the latest first.",
    )
    nouns = tuple(COLUMNS)
    parser.add_argument("noun", metavar="|".join(nouns), choices=nouns, help="what to list")
    add_json_flag(parser)
    parser.set_defaults(run=run_list)

    parser = commands.add_parser(
        "show",
        parents=[shared],
        help="show one document, context, session or turn",
        description="Show one document, context, session or turn, or a page of a document. Turns are named by the ids "
        "that `show SESSION` prints.",
    )
    parser.add_argument("id", metavar="ID", help="its id, a prefix of it, or its title; of a turn, the id")
    parser.add_argument(
        "--page",
        metavar="PAGE",
        help="print this page of a document, named as for `ask --pages`: 12, iii, or '12 of the file'",
    )
    parser.add_argument(
        "--picture",
        metavar="FILE",
        help="write it to this file as it is printed instead, a PNG; only of a PDF ($STOCKPOT_PASSWORD opens an "
        "encrypted one)",
    )
    parser.add_argument(
        "--mark",
        nargs=2,
        type=int,
        metavar=("START", "END"),
        help="mark in the picture what a source says, by its start and end in `ask --json`",
    )
    add_json_flag(parser)
    parser.set_defaults(run=run_show)

    parser = commands.add_parser(
        "rename",
        parents=[shared],
        help="give a document, context or session another title",
        description="Give a document, context or session another title. A context is called after its documents until "
        'it gets one of its own, and again when that is empty ("").',
    )
    parser.add_argument("id", metavar="ID", help="its id, a prefix of it, or its title")
    parser.add_argument("title", metavar="TITLE", help="the new title")
    add_json_flag(parser)
    parser.set_defaults(run=run_rename)

    parser = commands.add_parser(
        "delete",
        parents=[shared],
        help="delete things and everything derived from them",
        description="Delete documents, contexts or sessions and everything derived from them: with a document its "
        "contexts, with a context its sessions. Standard output gets their ids, with --json one object, or a list of "
        "them where several are named; standard error gets what was deleted.",
    )
    parser.add_argument(
        "ids",
        metavar="ID",
        nargs="+",
        help="id of a document, context or session, a prefix of it, or its title",
    )
    parser.add_argument(
        "--yes",
        action="store_true",
        help="do not ask for confirmation; the beginning of a title is not enough then",
    )
    add_json_flag(parser)
    parser.set_defaults(run=run_delete)

    parser = commands.add_parser(
        "search",
        parents=[shared],
        help="search titles of contexts, and titles, questions and answers of all sessions",
        description="Search the titles of contexts, and the titles, questions and answers of all sessions; documents "
        "are not searched.",
    )
    parser.add_argument("query", metavar="WORDS", help='words to find; "several words" in quotes are a phrase')
    parser.add_argument("--limit", metavar="N", type=int, default=20, help="most hits (default: %(default)s)")
    add_json_flag(parser)
    parser.set_defaults(run=run_search)

    parser = commands.add_parser(
        "export",
        parents=[shared],
        help="print a session as a text to keep",
        description="Print the questions and answers of a session, with the places where the model looked.",
    )
    parser.add_argument("session", metavar="SESSION", help="id of a session, a prefix of it, or its title")
    parser.add_argument(
        "--format", choices=("md", "json"), default="md", help="Markdown or JSON (default: %(default)s)"
    )
    parser.set_defaults(run=run_export)


def _when(seconds: float) -> str:
    return datetime.fromtimestamp(seconds).strftime("%Y-%m-%d %H:%M")


def run_list(arguments: Arguments) -> int:
    """List what there is."""
    from app.listing import list_rows
    from sessions import shown_title

    with open_service(arguments) as service:
        rows = list_rows(service, arguments.noun)
    if arguments.json:
        print_json(rows)
        return 0
    key = "updated_at" if arguments.noun == "sessions" else "created_at"
    shown = [
        {
            **row,
            "title": shown_title(row["title"]),
            "size": byte_size(row.get("bytes_on_disk", 0)),
            "when": _when(row[key]),
        }
        for row in rows
    ]
    text = table(shown, COLUMNS[arguments.noun], columns_of(sys.stdout))
    if text:
        print(printable(text))
    else:
        note(f"There are no {arguments.noun} yet.")
    return 0


def run_show(arguments: Arguments) -> int:
    """Show one thing."""
    from app.listing import KINDS, details, find, titles_before_places
    from sessions import SessionRow, TurnRow

    if arguments.mark and not arguments.picture:
        raise UsageError("--mark goes with --picture, in which it marks what a source says.")
    if arguments.picture and arguments.page is None:
        raise UsageError("--picture goes with --page, which says what to show.")
    with open_service(arguments) as service:
        if arguments.page is not None:
            return _show_page(service, arguments)
        kind, row = find(service, arguments.id, (*KINDS, "turn"))
        facts = details(service, kind, row)
        if arguments.json:
            print_json(facts)
        elif isinstance(row, TurnRow):
            context = service.store.session(row.session_id).context_id
            lines = _describe_turn(row, _titles(service, context), titles_before_places(service, context))
            print(printable("\n".join(lines)))
        else:
            titles = _titles(service, row.context_id) if isinstance(row, SessionRow) else []
            print(printable("\n".join(_describe(facts, titles))))
    return 0


def _titles(service: "Service", context_id: str) -> list[str]:
    """Of a context's documents, in their order."""
    return [row.title for row in service.store.context_documents(context_id)]


def _show_page(service: "Service", arguments: Arguments) -> int:
    from app.asking.named_pages import page_number
    from app.listing import find_document
    from app.reading.pages import page_of, picture_of_page

    row = find_document(service, arguments.id)
    found = page_of(service, row.id, page_number(arguments.page, service.document_cache.document(row.id)))
    page, facts = found.page, {"document": row.id, "page": found.page.number, "place": found.page.label}
    if arguments.picture:
        start, end = arguments.mark or (0, 0)
        picture = picture_of_page(found, start, end, os.environ.get("STOCKPOT_PASSWORD") or None)
        try:
            Path(arguments.picture).write_bytes(picture)
        except OSError as error:
            raise AppError(f"{arguments.picture} cannot be written ({error.strerror}).") from error
        text, facts = arguments.picture, {**facts, "picture": arguments.picture}
    else:
        text, facts = f"{page.label}\n\n{page.text}", {**facts, "text": page.text}
    if arguments.json:
        print_json(facts)
    else:
        print(printable(text))
    return 0


def _describe_turn(turn: "TurnRow", titles: Sequence[str], before: dict[str, str]) -> list[str]:
    """titles: of the context's documents; before: what is said before a place, by document."""
    sources = [
        f"  {before.get(each['document'], '')}{each['place']} ({each['weight']:.0%}): {' '.join(each['quote'].split())}"
        for each in turn.sources
    ]
    if sources and not turn.measurements.get("found", True):
        sources.insert(0, "  Closest passages:")
    return [f"turn {turn.id} of session {turn.session_id}", *_said(turn, titles), *sources]


def _describe(facts: dict[str, Any], titles: Sequence[str]) -> list[str]:
    """titles: of the documents that a session is about."""
    from app.reading.memory_map import Remembered, tenths
    from ingest.document import noun_of_pages
    from sessions import TurnRow

    lines = [f"{facts['kind']} {facts['id']}: {facts['title']}"]
    for key, value in facts.items():
        if key in ("kind", "id", "title", "fingerprint", "document_ids") or value in (None, [], {}):
            continue
        if key == "read_before" and not value:
            continue
        if key == "seconds":
            rate = f" ({speed((facts['tokens_read'] - facts['read_before']) / value)} tokens/s)" if value else ""
            lines.append(f"  time: {clock(value)}{rate}")
        elif key == "usage":
            lines += _holdings(value)
        elif key.endswith("_at"):
            lines.append(f"  {key.removesuffix('_at')}: {_when(value)}")
        elif key.startswith("bytes") or key.endswith("_bytes"):
            lines.append(f"  {key.replace('_', ' ')}: {byte_size(value)}")
        elif key == "turns" and isinstance(value, list):
            for turn in value:
                lines += _said(TurnRow(**turn), titles, f"[{turn['id']}] ")
        elif key == "memory_map":
            shares = tenths([Remembered(**each) for each in value])
            lines.append(f"  kept of each tenth of the text: {', '.join(map(percent, shares))}")
        elif key == "job":
            lines.append(f"  job: {value['id']} ({value['status']})")
        elif key == "documents":
            several = len(value) > 1  # which are named by their numbers, for `--pages`
            for number, each in enumerate(value, 1):
                lines.append(f"  document{f' {number}' if several else ''}: {each['id']} {each['title']}")
        elif key == "pages":
            lines.append(f"  {noun_of_pages(facts['format'])}s: {value:,}")
        elif key == "contents":
            noun = noun_of_pages(facts["format"])
            lines += [f"  {'  ' * entry['level']}{entry['title']} ({noun} {entry['name']})" for entry in value]
        elif isinstance(value, dict):
            lines.append(f"  {key}: " + ", ".join(f"{name} {_plain(each)}" for name, each in value.items()))
        elif key == "warnings":
            lines += [f"  warning: {each}" for each in value]
        elif isinstance(value, list):
            lines.append(f"  {key}: " + ", ".join(str(each) for each in value))
        else:
            lines.append(f"  {key.replace('_', ' ')}: {_plain(value)}")
    return lines


def _plain(value: object) -> str:
    """A setting or a number as people write it."""
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "none"}[value]
    return f"{value:,}" if isinstance(value, int) else str(value)


def _holdings(usage: dict[str, Any]) -> list[str]:
    """What is kept, a line for each tier that holds anything."""
    entries, size = usage["entries"], usage["bytes"]
    return [
        f"  on the {tier}: {entries[tier]:,} entries per KV head and layer, {byte_size(size[tier])}"
        for tier in entries
        if entries[tier] or size[tier]
    ]


def _said(turn: "TurnRow", titles: Sequence[str], name: str = "") -> list[str]:
    """Question and answer of a turn, their further lines under the first. name: said before the question."""
    from app.asking.named_pages import pages_in_words

    head = f"  {turn.position + 1}. "
    status = ": ".join(filter(None, [turn.status, turn.error]))
    answer = turn.answer if status == "done" else f"{turn.answer} [{status}]".lstrip()
    before = turn.asked_before(titles)
    notes = [*([before] if before else []), *turn.measurements.get("warnings", [])]
    asked = turn.question + (f"\n[{pages_in_words(turn.pages)}]" if turn.pages else "")
    said = "\n".join([answer, *(f"[{each}]" for each in notes)])
    return [*_indented(name + asked, head), *_indented(said, " " * len(head))]


def _indented(text: str, head: str) -> list[str]:
    first, *more = text.splitlines() or [""]
    return [head + first, *(" " * len(head) + line for line in more)]


def run_rename(arguments: Arguments) -> int:
    """Give something another title."""
    from app.listing import find, rename

    with open_service(arguments) as service:
        kind, row = find(service, arguments.id)
        row = rename(service, kind, row, arguments.title)
    if arguments.json:
        print_json({"renamed": row.id, "kind": kind, "title": row.title})
    else:
        print(row.id)
    return 0


def run_delete(arguments: Arguments) -> int:
    """Delete things, after asking once about all of them."""
    from app.listing import KINDS, delete, find, to_delete

    with open_service(arguments) as service:
        found = [(text, *find(service, text)) for text in arguments.ids]
        things = {
            row.id: (kind, row, to_delete(service, kind, row, text, asked=not arguments.yes))
            for text, kind, row in found
        }
        if not (arguments.yes or _agreed(f"Delete {'; '.join(what for *_, what in things.values())}?")):
            note("Nothing was deleted.")
            return 1
        for each in reversed(KINDS):  # what goes with another before it
            doomed = [(row, what) for kind, row, what in things.values() if kind == each]
            if doomed:
                delete(service, each, *(row for row, _ in doomed))
            for row, what in doomed:
                note(f"Deleted {what}.")
                if not arguments.json:
                    print(row.id)
    if arguments.json:
        done = [{"deleted": id, "kind": kind} for id, (kind, *_) in things.items()]
        print_json(done if len(arguments.ids) > 1 else done[0])
    return 0


def _agreed(question: str) -> bool:
    """Whether the person says yes.

    Raises:
        UsageError: there is nobody to ask.
    """
    if not sys.stdin.isatty():
        raise UsageError(f"{question} There is nobody to ask: add --yes.")
    print(printable(f"{question} [y/N] "), end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().casefold() in ("y", "yes")


def run_search(arguments: Arguments) -> int:
    """Search contexts and sessions."""
    from app.listing import search
    from sessions import MOST_HITS

    if not 1 <= arguments.limit <= MOST_HITS:
        raise UsageError(f"--limit is 1 to {MOST_HITS:,}, not {arguments.limit}.")
    with open_service(arguments) as service:
        found = search(service, arguments.query, arguments.limit)
    if arguments.json:
        print_json([each.to_json() for each in found])
        return 0
    for each in found:
        print(printable("\n    ".join([f"{each.row.id}  {each.row.title}", *each.lines])))
    if not found:
        note("Nothing was found.")
    return 0


def run_export(arguments: Arguments) -> int:
    """Print a session as Markdown or JSON."""
    from app.listing import find_session

    with open_service(arguments) as service:
        session = find_session(service, arguments.session)
        text = service.store.export_session(session.id, arguments.format)
    sys.stdout.write(printable(text) if sys.stdout.isatty() else text)
    return 0
