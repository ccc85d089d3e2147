"""`stockpot train`: trains the small model that ships, or what a method needs beside a model."""

import argparse
from typing import TYPE_CHECKING, TypeVar

from app.commands.common import Arguments, Commands, ProgressLine
from app.errors import UsageError
from app.home import POCKET, model_source, named_model, split_model

if TYPE_CHECKING:
    from training.flags import Progress

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
    from training import beacon, locret, pocket

    with ProgressLine() as line:

        def show(now: "Progress") -> None:
            line.show(now.in_words())

        match arguments.what:
            case "pocket":
                done = pocket.train(_chosen(pocket.PocketSettings, arguments), show)
            case "locret":
                done = locret.train(_chosen(locret.LocretSettings, arguments), show)
            case _:
                done = beacon.train(_chosen(beacon.BeaconSettings, arguments), show)
    print(done)
    return 0


def _chosen(settings: type[Settings], arguments: Arguments) -> Settings:
    """The settings of a training that the command line gives.

    Raises:
        UsageError: they contradict one another.
    """
    from training.flags import settings_parser

    parser = settings_parser(settings, f"stockpot train {arguments.what}")
    if arguments.what == "pocket":
        if arguments.seed is not None:
            parser.set_defaults(seed=arguments.seed)
        chosen = parser.parse_args(arguments.settings)
    else:  # for the model that the global options name
        parser.set_defaults(model=arguments.model or POCKET, quantize=arguments.quantize)
        parser.set_defaults(device=arguments.device, seed=arguments.seed or 0)
        chosen = parser.parse_args(arguments.settings)
        name = named_model(chosen.model, chosen.quantize) or POCKET
        chosen.model, chosen.quantize = model_source(name), split_model(name)[1]
    try:
        return settings(**vars(chosen))
    except ValueError as error:
        raise UsageError(f"{error}.") from error
