"""`stockpot list`, `rename`, `delete`, `search` and `export`: work with documents, contexts and sessions."""

import argparse
import sys

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
from app.commands.parser import examples
from app.commands.show import run_show, when
from app.errors import UsageError
from app.formatting import byte_size, printable

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
    """Add the commands of this file, and `show`, to the parser."""
    parser = commands.add_parser(
        "list",
        parents=[shared],
        help="list documents, contexts or sessions",
        description="List documents, contexts or sessions, the latest first; documents if none is named.",
    )
    nouns = tuple(COLUMNS)
    parser.add_argument(
        "noun",
        metavar="|".join(nouns),
        nargs="?",
        choices=nouns,
        default="documents",
        help="what to list (default: documents)",
    )
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
        help="search the text of documents, and titles, questions and answers of chats",
        description="Search titles, the questions and answers of all chats, and the text of all documents. Of a "
        "passage of a document, the name of its place and the words are printed, and how to ask about it.",
        epilog=examples("search '\"snakish temper\"'", "search lighthouse --document Kim --json"),
    )
    parser.add_argument("query", metavar="WORDS", help='words to find; "several words" in quotes are a phrase')
    parser.add_argument(
        "--document", metavar="DOC", help="search the text of this document only: its id, a prefix of it, or its title"
    )
    parser.add_argument("--limit", metavar="N", type=int, default=20, help="most hits (default: %(default)s)")
    add_json_flag(parser)
    parser.set_defaults(run=run_search)

    parser = commands.add_parser(
        "export",
        parents=[shared],
        help="print a session as a text to keep",
        description="Print the questions and answers of a session, with the places where the model looked.",
        epilog=examples("export 'Who keeps the lamp?'", "export s-k3m9qz --notes --format docx > notes.docx"),
    )
    parser.add_argument("session", metavar="SESSION", help="id of a session, a prefix of it, or its title")
    parser.add_argument(
        "--format",
        choices=("md", "docx", "json"),
        default="md",
        help="Markdown, a document for Word, or JSON (default: %(default)s)",
    )
    parser.add_argument("--notes", action="store_true", help="only the answers and passages that are kept as notes")
    parser.set_defaults(run=run_export)


def run_list(arguments: Arguments) -> int:
    """List all documents, contexts or sessions."""
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
            "when": when(row[key]),
        }
        for row in rows
    ]
    text = table(shown, COLUMNS[arguments.noun], columns_of(sys.stdout))
    if text:
        print(printable(text))
    else:
        note(f"There are no {arguments.noun} yet.")
    return 0


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
    """Delete things, after one question about all of them."""
    from app.deletion import delete, describe_deletion
    from app.listing import KINDS, find

    with open_service(arguments) as service:
        found = [(text, *find(service, text)) for text in arguments.ids]
        things = {
            row.id: (kind, row, describe_deletion(service, kind, row, text, asked=not arguments.yes))
            for text, kind, row in found
        }
        if not (arguments.yes or _agreed(f"Delete {'; '.join(what for *_, what in things.values())}?")):
            note("Nothing was deleted.")
            return 1
        for each in reversed(KINDS):  # sessions before their contexts, contexts before their documents
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
    """Return whether the person says yes.

    Raises:
        UsageError: there is nobody to ask.
    """
    if not sys.stdin.isatty():
        raise UsageError(f"{question} There is nobody to ask: add --yes.")
    print(printable(f"{question} [y/N] "), end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().casefold() in ("y", "yes")


def run_search(arguments: Arguments) -> int:
    """Search titles, chats and documents."""
    from app.listing import find_document
    from app.search import Passage, search_everything
    from sessions import MOST_HITS

    if not 1 <= arguments.limit <= MOST_HITS:
        raise UsageError(f"--limit is 1 to {MOST_HITS:,}, not {arguments.limit}.")
    with open_service(arguments) as service:
        only = find_document(service, arguments.document).id if arguments.document else None
        found = search_everything(service, arguments.query, arguments.limit, only)
    if arguments.json:
        print_json([each.to_json() for each in found])
        return 0
    for each in found:
        name = each.document if isinstance(each, Passage) else f"{each.row.id}  {each.row.title}"
        lines = [name, *each.lines]
        if isinstance(each, Passage) and each.context:
            lines.append(f"stockpot ask {each.context.id} \"...\" --pages '{each.pages}'")
        print(printable("\n    ".join(lines)))
    if not found:
        note("Nothing was found.")
    return 0


def run_export(arguments: Arguments) -> int:
    """Print a session, or its notes."""
    from app.listing import find_session
    from app.notes import exported

    if arguments.format == "docx" and sys.stdout.isatty():
        raise UsageError("A document for Word is no text: send it to a file, with > notes.docx at the end.")
    with open_service(arguments) as service:
        file = exported(service, find_session(service, arguments.session).id, arguments.format, arguments.notes)
    if arguments.format == "docx":
        sys.stdout.buffer.write(file)
    else:
        sys.stdout.write(printable(file.decode()) if sys.stdout.isatty() else file.decode())
    return 0
