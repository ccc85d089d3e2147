"""`stockpot backup` and `stockpot restore`: all that is kept, or a part, in one file."""

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
        epilog=examples("backup stockpot.tar", "backup emma.tar c-7k3m9q"),
    )
    parser.add_argument("file", metavar="FILE", type=Path, help="file to write, which must not exist yet")
    parser.add_argument(
        "ids",
        metavar="ID",
        nargs="*",
        help="a context with all its sessions, or one session (default: everything)",
    )
    add_json_flag(parser)
    parser.set_defaults(run=run_backup)
    parser = commands.add_parser(
        "restore",
        parents=[shared],
        help="make a new home from a backup, or add it to one",
        description="Check every byte of a backup, and make a new home of it. Nothing is made of a damaged one. With "
        "--add what is in it joins the home that there is.",
        epilog=examples("--home ~/restored restore stockpot.tar", "restore emma.tar --add"),
    )
    parser.add_argument("file", metavar="FILE", type=Path, help="file that `backup` wrote")
    parser.add_argument("--add", action="store_true", help="add to the home what it does not have yet")
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
        return _tell(arguments, back_up(store, file, arguments.ids), file, "Wrote")


def run_restore(arguments: Arguments) -> int:
    """Make a home from a backup, or add it to one."""
    from app.home import home_folder
    from sessions import Store, add_backup, restore

    home, file = home_folder(arguments.home), arguments.file.expanduser().resolve()
    if arguments.add:
        with Store(home) as store:
            return _tell(arguments, add_backup(store, file), home, "Added to")
    return _tell(arguments, restore(file, home), home, "Restored")


def _tell(arguments: Arguments, backup: "Backup", path: Path, done: str) -> int:
    if arguments.json:
        print_json({"path": str(path), **vars(backup)})
        return 0
    counts = [(backup.documents, "document"), (backup.contexts, "context"), (backup.sessions, "session")]
    held = ", ".join(plural(count, noun) for count, noun in counts)
    print(printable(f"{done} {path}: {held}; {byte_size(backup.bytes)}."))
    for title in backup.branches:
        print(printable(f"A chat went on here and in the backup: that of the backup is here too, as “{title}”."))
    return 0
