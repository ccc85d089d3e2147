"""`stockpot train pocket`: trains the small model that ships."""

import argparse
from dataclasses import fields
from pathlib import Path

from app.commands.common import Arguments, Commands, ProgressLine
from app.errors import UsageError


def register(commands: Commands, shared: argparse.ArgumentParser) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "train",
        parents=[shared],
        help="train the pocket model",
        description="Train the small model that ships, from its data, with a fixed seed.",
    )
    parser.add_argument("what", choices=("pocket",), help="what to train")
    parser.add_argument(
        "settings",
        nargs=argparse.REMAINDER,
        metavar="--SETTING VALUE",
        help="settings of the training, such as --minutes 90 or --out-dir DIR; --help lists them",
    )
    parser.set_defaults(run=run)


def run(arguments: Arguments) -> int:
    """Train, with one option for every setting."""
    from training.pocket import PocketSettings, Progress, train

    parser = argparse.ArgumentParser(
        prog="stockpot train pocket",
        description=PocketSettings.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    for field in fields(PocketSettings):
        flag = "--" + field.name.replace("_", "-")
        default = field.default
        if isinstance(default, bool):
            parser.add_argument(
                flag, action=argparse.BooleanOptionalAction, default=default, help=f"default: {default}"
            )
        else:
            kind = Path if isinstance(default, Path) else type(default)
            parser.add_argument(flag, type=kind, default=default, help=f"default: {default}")
    line = ProgressLine()

    def show(now: Progress) -> None:
        line.show(
            f"{now.fraction:6.1%} {now.stage} step {now.step}, {now.tokens / 1e6:.2f} M tokens, "
            f"{now.tokens / max(now.seconds, 1e-9):,.0f} tokens/s, loss {now.loss:.3f}, right {now.accuracy:.1%}"
        )

    try:
        settings = PocketSettings(**vars(parser.parse_args(arguments.settings)))
    except ValueError as error:
        raise UsageError(f"{error}.") from error
    print(train(settings, show))
    return 0
