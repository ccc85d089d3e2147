"""`stockpot notes`: keep answers and passages of a chat, list them, and highlight them in copies of PDFs."""

import argparse
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from app.commands.common import Arguments, Commands, add_json_flag, note, open_service, print_json
from app.commands.parser import examples
from app.errors import AppError, UsageError
from app.formatting import printable

if TYPE_CHECKING:
    from app.service import Service

_PART = re.compile(r"(\d{1,6})(?:\.(\d{1,6}))?")


def register(commands: Commands, shared: argparse.ArgumentParser) -> None:
    """Add `notes` to the parser."""
    parser = commands.add_parser(
        "notes",
        parents=[shared],
        help="keep answers and passages of a chat, and list them",
        description="List the notes of a chat: the answers and passages of it that were kept, here or on the page, "
        "with their documents, pages and quotes. 3 is the answer to its third question, and 3.2 the second source of "
        "that answer, as `stockpot export` numbers them, which also writes the notes as Markdown or for Word.",
        epilog=examples("notes 'Who keeps the lamp?' --keep 1 --keep 2.1", "notes s-k3m9qz --highlight ~/marked"),
    )
    parser.add_argument("session", metavar="SESSION", help="id of a session, a prefix of it, or its title")
    for flag, does in (("--keep", "keep"), ("--drop", "drop")):
        parser.add_argument(
            flag, metavar="N[.M]", action="append", default=[], help=f"{does} the answer to question N, or its source M"
        )
    parser.add_argument(
        "--highlight",
        metavar="FOLDER",
        help="write a copy of each PDF that is quoted into this folder, with the passages highlighted "
        "($STOCKPOT_PASSWORD opens an encrypted one)",
    )
    add_json_flag(parser)
    parser.set_defaults(run=run)


def run(arguments: Arguments) -> int:
    """Keep and drop parts of a chat, list its notes, and write the copies."""
    from dataclasses import asdict

    from app.listing import find_session
    from app.notes import notes_of

    with open_service(arguments) as service:
        session = find_session(service, arguments.session)
        turns = service.store.turns.all(session.id)
        with service.store.transaction():
            for text, drop in [*((each, False) for each in arguments.keep), *((each, True) for each in arguments.drop)]:
                question, part = _part(text)
                if not 1 <= question <= len(turns):
                    raise UsageError(f"This chat has {len(turns)} questions, and no question {question}.")
                service.store.turns.keep(turns[question - 1].id, [] if drop else [part], [part] if drop else [])
        if arguments.highlight:
            _write_copies(service, session.id, Path(arguments.highlight).expanduser())
        notes = notes_of(service, session.id)
    if arguments.json:
        print_json([asdict(each) for each in notes])
    else:
        for each in notes:
            said = each.answer or "".join(_quoted(source) for source in each.sources)
            print(printable(f"{each.name:<5} {' '.join(said.split())}"))
            if each.answer:
                print(printable("".join(f"      {_quoted(source)}\n" for source in each.sources)), end="")
        if not notes:
            note("Nothing of this chat is kept yet: `--keep 1` keeps the answer to its first question.")
    return 0


def _part(text: str) -> tuple[int, int]:
    """Return the number of a question, and 0 for its answer or the number of a source."""
    found = _PART.fullmatch(text)
    if found is None or found[2] == "0":
        raise UsageError(f"A note is named 3, or 3.2 for the second source of answer 3, not {text!r}.")
    return int(found[1]), int(found[2] or 0)


def _quoted(source: dict[str, str]) -> str:
    return f"{source['title']}, {source['place']}: {' '.join(source['quote'].split())}"


def _write_copies(service: "Service", session_id: str, folder: Path) -> None:
    from app.jobs.uploads import safe_name
    from app.notes import highlighted_pdf, quoted_pdfs

    quoted = quoted_pdfs(service, session_id)
    if not quoted:
        note("No PDF is quoted in these notes, so there is nothing to highlight.")
    for id, title in quoted.items():
        copy = highlighted_pdf(service, session_id, id, os.environ.get("STOCKPOT_PASSWORD") or None)
        path = folder / f"{safe_name(title)} ({id}).pdf"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            path.write_bytes(copy)
        except OSError as error:
            raise AppError(f"{path} cannot be written ({error.strerror}): name another folder.") from error
        note(f"Wrote {path}")
