"""`stockpot recap`: two sentences on each chapter, up to a page."""

import argparse

from app.commands.common import (
    Arguments,
    Commands,
    ProgressLine,
    add_context,
    add_json_flag,
    note,
    open_service,
    print_json,
)
from app.commands.parser import examples
from app.formatting import plural, printable


def register(commands: Commands, shared: argparse.ArgumentParser) -> None:
    """Add `recap` to the parser."""
    recap = commands.add_parser(
        "recap",
        parents=[shared],
        help="sum up the chapters, up to a page",
        description="Print two sentences on each chapter, as its beginning and its end say it. Instead of a sentence "
        "whose names or numbers do not stand there, the chapter is quoted. Ctrl-C stops it; the same command goes on "
        "from there.",
        epilog=examples("recap 'Kim' --up-to 118"),
    )
    add_context(recap)
    recap.add_argument("--up-to", metavar="PAGE", default="", help="the last page that is known, as for `ask`")
    add_json_flag(recap)
    recap.set_defaults(run=run_recap)


def run_recap(arguments: Arguments) -> int:
    """Print a recap; return 1 if it was stopped."""
    from dataclasses import asdict

    from app.asking.recap import Part, parts_of, recap
    from app.listing import find_context
    from app.reading.readings import Stopped
    from engine.signals import asked_to_stop

    with open_service(arguments) as service, asked_to_stop() as asked, ProgressLine() as progress:
        context = find_context(service, arguments.context)
        parts, found = parts_of(context, arguments.up_to, service.document_cache), list[Part]()

        def on_pass() -> None:
            progress.show(f"{len(found):,} of {plural(len(parts), 'chapter')}")
            if asked():
                raise Stopped

        try:
            for part in recap(service, context.id, parts, on_pass):
                found.append(part)
                if not arguments.json and part.sentences:
                    progress.end()
                    print(printable(f"{part.title}\n{' '.join(part.sentences)}\n"), flush=True)
        except Stopped:
            progress.end()
            note("Stopped. The chapters above are kept: the same command goes on from there.")
            return 1
    if arguments.json:
        print_json([asdict(each) for each in found])
    return 0
