"""`stockpot train`: train the pocket model, or the weights that a method needs beside a model."""

import argparse
from typing import TYPE_CHECKING, TypeVar

from app.commands.common import Arguments, Commands, ProgressLine
from app.errors import UsageError
from app.machine.model_names import POCKET, model_source, named_model, split_model

if TYPE_CHECKING:
    from training.flags import Progress

Settings = TypeVar("Settings")

TRAININGS = {
    "pocket": "the small model that ships, from nothing or from itself",
    "locret": "the retaining heads that the method locret needs for --model",
    "beacon": "the weights that the method beacon needs for --model",
}


def register(commands: Commands, shared: argparse.ArgumentParser) -> None:
    """Add `train` to the parser."""
    parser = commands.add_parser(
        "train",
        parents=[shared],
        help="train the pocket model, or retaining heads or beacons for a model",
        description="Train, with a fixed seed. `stockpot train pocket --help` lists the settings of that training, and "
        "so for the others. Ctrl-C stops one, and --resume goes on with it.",
    )
    what = "; ".join(f"{name}: {each}" for name, each in TRAININGS.items())
    parser.add_argument("what", choices=tuple(TRAININGS), help=what)
    parser.add_argument("settings", nargs=argparse.REMAINDER, help="such as --minutes 90 or --steps 3000")
    parser.set_defaults(run=lambda arguments: run(arguments, shared))


def run(arguments: Arguments, shared: argparse.ArgumentParser) -> int:
    """Train, with one option for each setting.

    Args:
        arguments: the options.
        shared: parser of the global options, which may also stand among the settings.
    """
    from training import beacon, locret, pocket

    _, arguments.settings = shared.parse_known_args(arguments.settings, arguments)
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
    """Return the settings that the command line gives.

    Raises:
        UsageError: they contradict each other.
    """
    from training.flags import settings_parser

    parser = settings_parser(settings, f"stockpot train {arguments.what}")
    parser.description = f"Train {TRAININGS[arguments.what]}."
    if arguments.what == "pocket":
        if arguments.model or arguments.quantize:
            raise UsageError("The pocket model is trained as its settings say: leave out --model and --quantize.")
        if arguments.seed is not None:
            parser.set_defaults(seed=arguments.seed)
        chosen = parser.parse_args(arguments.settings)
    else:  # the model of the global options
        plain, quantize = split_model(named_model(arguments.model or POCKET, arguments.quantize) or POCKET)
        parser.set_defaults(model=plain, quantize=quantize, device=arguments.device, seed=arguments.seed or 0)
        chosen = parser.parse_args(arguments.settings)
        chosen.model = model_source(chosen.model)
    try:
        return settings(**vars(chosen))
    except ValueError as error:
        raise UsageError(f"{error}.") from error
