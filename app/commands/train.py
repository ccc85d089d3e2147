"""`stockpot train`: trains the small model that ships, or what a method needs beside a model."""

import argparse
from typing import TypeVar

from app.commands.common import Arguments, Commands, ProgressLine
from app.errors import UsageError
from app.home import POCKET, model_source, named_model, split_model

Settings = TypeVar("Settings")


def register(commands: Commands, shared: argparse.ArgumentParser) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "train",
        parents=[shared],
        help="train the pocket model, or retaining heads or beacons for a model",
        description="Train, with a fixed seed: 'pocket' is the small model that ships; 'locret' are the retaining "
        "heads and 'beacon' the beacon weights that the method of that name needs for the model it is used with.",
    )
    parser.add_argument("what", choices=("pocket", "locret", "beacon"), help="what to train")
    parser.add_argument(
        "settings",
        nargs=argparse.REMAINDER,
        metavar="--SETTING VALUE",
        help="settings of the training, such as --minutes 90 or --steps 3000; --help lists them",
    )
    parser.set_defaults(run=run)


def run(arguments: Arguments) -> int:
    """Train, with one option for every setting."""
    return {"pocket": _pocket, "locret": _locret, "beacon": _beacon}[arguments.what](arguments)


def _pocket(arguments: Arguments) -> int:
    from training.flags import settings_parser
    from training.pocket import PocketSettings, train

    parser = settings_parser(PocketSettings, "stockpot train pocket")
    if arguments.seed is not None:
        parser.set_defaults(seed=arguments.seed)
    chosen = _checked(PocketSettings, parser.parse_args(arguments.settings))
    with ProgressLine() as line:
        done = train(chosen, lambda now: line.show(now.in_words()))
    print(done)
    return 0


def _locret(arguments: Arguments) -> int:
    from training.locret import LocretSettings, train

    chosen = _for_a_model(LocretSettings, "locret", arguments)
    with ProgressLine() as line:
        done = train(chosen, lambda now: line.show(now.in_words()))
    print(done)
    return 0


def _beacon(arguments: Arguments) -> int:
    from training.beacon import BeaconSettings, train

    chosen = _for_a_model(BeaconSettings, "beacon", arguments)
    with ProgressLine() as line:
        done = train(chosen, lambda now: line.show(now.in_words()))
    print(done)
    return 0


def _for_a_model(settings: type[Settings], what: str, arguments: Arguments) -> Settings:
    """The settings of a training for the model that the command line names."""
    from training.flags import settings_parser

    parser = settings_parser(settings, f"stockpot train {what}")
    parser.set_defaults(model=arguments.model or POCKET, quantize=arguments.quantize)
    parser.set_defaults(device=arguments.device, seed=arguments.seed or 0)
    chosen = parser.parse_args(arguments.settings)
    name = named_model(chosen.model, chosen.quantize) or POCKET
    chosen.model, chosen.quantize = model_source(name), split_model(name)[1]
    return _checked(settings, chosen)


def _checked(settings: type[Settings], chosen: argparse.Namespace) -> Settings:
    """The settings of a training, or wrong usage where they contradict one another."""
    try:
        return settings(**vars(chosen))
    except ValueError as error:
        raise UsageError(f"{error}.") from error
