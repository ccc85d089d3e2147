"""`stockpot backup` and `stockpot restore`: all that is kept, in one file."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from app.commands.common import Arguments, Commands, add_json_flag, print_json
from app.commands.parser import examples
from app.formatting import byte_size, plural, printable

if TYPE_CHECKING:
    from sessions import Backup


def register(commands: Commands, shared: argparse.ArgumentParser) -> None:
    """Add the commands of backups."""
    parser = commands.add_parser(
        "backup",
        parents=[shared],
        help="write documents, readings and chats to one file",
        description="Write documents, contexts and sessions to a new tar file with checksums. The server may run "
        "meanwhile. Models are not in it.",
        epilog=examples("backup stockpot.tar"),
    )
    parser.add_argument("file", metavar="FILE", type=Path, help="file to write, which must not exist yet")
    add_json_flag(parser)
    parser.set_defaults(run=run_backup)
    parser = commands.add_parser(
        "restore",
        parents=[shared],
        help="make a new home from a backup",
        description="Check every byte of a backup, and make a new home of it. Nothing is made of a damaged one.",
        epilog=examples("--home ~/restored restore stockpot.tar"),
    )
    parser.add_argument("file", metavar="FILE", type=Path, help="file that `backup` wrote")
    add_json_flag(parser)
    parser.set_defaults(run=run_restore)


def run_backup(arguments: Arguments) -> int:
    """Write a backup of the home."""
    from app.home import home_folder
    from sessions import DATABASE, Store, StoreError, back_up, check_whole

    home, file = home_folder(arguments.home), arguments.file.expanduser().resolve()
    check_whole(home)
    if not (home / DATABASE).exists():
        raise StoreError(f"There is nothing in {home} to back up: name another folder with --home.")
    with Store(home) as store:
        return _tell(arguments, back_up(store, file), file, "Wrote")


def run_restore(arguments: Arguments) -> int:
    """Make a home from a backup."""
    from app.home import home_folder
    from sessions import restore

    home = home_folder(arguments.home)
    return _tell(arguments, restore(arguments.file.expanduser().resolve(), home), home, "Restored")


def _tell(arguments: Arguments, backup: "Backup", path: Path, done: str) -> int:
    if arguments.json:
        print_json({"path": str(path), **vars(backup)})
        return 0
    counts = [(backup.documents, "document"), (backup.contexts, "context"), (backup.sessions, "session")]
    held = ", ".join(plural(count, noun) for count, noun in counts)
    print(printable(f"{done} {path}: {held}; {byte_size(backup.bytes)}."))
    return 0
