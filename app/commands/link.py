"""`stockpot link` and `unlink`: keep the documents in step with folders of this computer."""

import argparse
from typing import Any

from app.commands.common import Arguments, Commands, add_json_flag, note, open_service, print_json
from app.commands.parser import examples
from app.errors import UsageError
from app.formatting import printable


def register(commands: Commands, shared: argparse.ArgumentParser) -> None:
    """Add `link` and `unlink` to the parser."""
    parser = commands.add_parser(
        "link",
        parents=[shared],
        help="keep a folder in step: read what is new in it",
        description="Link a folder. While `stockpot serve` runs, files that are new in it are read, and changed ones "
        "become a newer version beside the older. When a file is gone, its document says so and stays. Linked again, "
        "files that were refused get another try. The folder `storage` of Zotero works, and gives titles.",
        epilog=examples("link ~/papers", "link ~/Zotero/storage --at-once 50", "link --list"),
    )
    parser.add_argument("folder", metavar="FOLDER", nargs="?", help="the folder, with all folders in it")
    parser.add_argument("--list", action="store_true", help="show the linked folders, and what was refused and why")
    parser.add_argument("--at-once", metavar="N", type=int, help="most files of it that are read at once (default: 20)")
    add_json_flag(parser)
    parser.set_defaults(run=run_link)
    parser = commands.add_parser(
        "unlink",
        parents=[shared],
        help="no longer follow a folder",
        description="No longer follow a folder. What was read of it stays.",
    )
    parser.add_argument("folder", metavar="FOLDER", help="the folder, as `stockpot link --list` shows it")
    add_json_flag(parser)
    parser.set_defaults(run=run_unlink)


def run_link(arguments: Arguments) -> int:
    """Link a folder, or list those that are."""
    if (arguments.folder is None) != arguments.list or (arguments.list and arguments.at_once is not None):
        raise UsageError("Name a folder to link, or --list alone.")
    from app.jobs.linked_folders import AT_ONCE, link, linked

    with open_service(arguments) as service:
        if arguments.folder:
            row = link(service, arguments.folder, AT_ONCE if arguments.at_once is None else arguments.at_once)
            found = [each for each in linked(service) if each["folder"] == row.folder]
            runs = any(each.alive for each in service.store.workers.all())
        else:
            found = linked(service)
    if arguments.json:
        print_json(found if arguments.list else found[0])
    elif arguments.list:
        for each in found:
            print(printable(_in_words(each)))
        if not found:
            note("No folder is linked yet: `stockpot link FOLDER` links one.")
    else:
        print(printable(row.folder))
        note("Linked: the server that runs reads it." if runs else "Linked: it is read while `stockpot serve` runs.")
    return 0


def run_unlink(arguments: Arguments) -> int:
    """Unlink a folder."""
    from app.jobs.linked_folders import unlink

    with open_service(arguments) as service:
        folder = unlink(service, arguments.folder)
    if arguments.json:
        print_json({"unlinked": folder})
    else:
        print(printable(folder))
    return 0


def _in_words(folder: dict[str, Any]) -> str:
    from app.jobs.linked_folders import counted

    counts = ", ".join(f"{count:,} {state}" for state, count in counted(folder["files"]).items())
    lines = [f"{folder['folder']}: {counts or 'nothing yet'} ({folder['at_once']} at once)"]
    lines += [f"  {folder['problem']}"] if folder["problem"] else []
    for file in folder["files"]:
        if file["state"] in ("refused", "gone"):
            lines.append(f"  {file['state']}: {file['name']}{': ' if file['reason'] else ''}{file['reason']}")
    return "\n".join(lines)
