"""`stockpot train`: trains the small model that ships, or what a method needs beside a model."""

import argparse
from typing import TypeVar

from app.commands.common import Arguments, Commands, ProgressLine
from app.errors import UsageError
from app.home import POCKET, model_source

Settings = TypeVar("Settings")


def register(commands: Commands, shared: argparse.ArgumentParser) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "train",
        parents=[shared],
        help="train the pocket model, or retaining heads for a model",
        description="Train, with a fixed seed: 'pocket' is the small model that ships, 'locret' are the retaining "
        "heads that the method of that name needs for the model it is used with.",
    )
    parser.add_argument("what", choices=("pocket", "locret"), help="what to train")
    parser.add_argument(
        "settings",
        nargs=argparse.REMAINDER,
        metavar="--SETTING VALUE",
        help="settings of the training, such as --minutes 90 or --steps 3000; --help lists them",
    )
    parser.set_defaults(run=run)


def run(arguments: Arguments) -> int:
    """Train, with one option for every setting."""
    return _locret(arguments) if arguments.what == "locret" else _pocket(arguments)


def _pocket(arguments: Arguments) -> int:
    from training.flags import settings_parser
    from training.pocket import PocketSettings, Progress, train

    line = ProgressLine()

    def show(now: Progress) -> None:
        line.show(
            f"{now.fraction:6.1%} {now.stage} step {now.step}, {now.tokens / 1e6:.2f} M tokens, "
            f"{now.tokens / max(now.seconds, 1e-9):,.0f} tokens/s, loss {now.loss:.3f}, right {now.accuracy:.1%}"
        )

    parser = settings_parser(PocketSettings, "stockpot train pocket")
    print(train(_checked(PocketSettings, parser.parse_args(arguments.settings)), show))
    return 0


def _locret(arguments: Arguments) -> int:
    from training.flags import settings_parser
    from training.locret import LocretSettings, train

    parser = settings_parser(LocretSettings, "stockpot train locret")
    parser.set_defaults(model=arguments.model or POCKET, device=arguments.device, seed=arguments.seed)
    chosen = parser.parse_args(arguments.settings)
    chosen.model = model_source(chosen.model)
    line = ProgressLine()
    print(train(_checked(LocretSettings, chosen), lambda now: line.show(now.in_words())))
    return 0


def _checked(settings: type[Settings], chosen: argparse.Namespace) -> Settings:
    """The settings of a training, or wrong usage where they contradict one another."""
    try:
        return settings(**vars(chosen))
    except ValueError as error:
        raise UsageError(f"{error}.") from error
