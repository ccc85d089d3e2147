"""`stockpot bench`: run the benchmarks. They have options of their own; see `stockpot bench needle --help`."""

import argparse

from app.commands.common import Arguments, Commands, add_json_flag, chosen_model
from app.machine.model_names import split_model


def register(commands: Commands, shared: argparse.ArgumentParser) -> None:
    """Add `bench` to the parser."""
    parser = commands.add_parser(
        "bench",
        parents=[shared],
        help="measure accuracy and speed",
        description="Measure a model and its methods. needle: accuracy in long documents; suite: many kinds of "
        "questions about one long text, scored with intervals; latency: speed and memory by length; model NAME: "
        "whether a model reads as transformers does, finds what it read, and keeps to its plan. "
        "`stockpot bench needle --help` lists the options of that one.",
    )
    parser.add_argument("benchmark", choices=("needle", "suite", "latency", "model"), help="what to measure")
    parser.add_argument(
        "options", nargs=argparse.REMAINDER, help="such as --methods exact,locret:pooling=1 --tokens 2K,8K"
    )
    add_json_flag(parser)
    parser.set_defaults(run=lambda arguments: run(arguments, shared))


def run(arguments: Arguments, shared: argparse.ArgumentParser) -> int:
    """Run the benchmark with the global options that it shares; its own options go before them.

    Args:
        arguments: the options.
        shared: parser of the global options, which may also stand among the benchmark's.
    """
    import importlib

    from app.machine.model_names import model_source

    given = list(arguments.options)
    if arguments.benchmark == "model" and given and not given[0].startswith("-"):
        arguments.model = given.pop(0)
    _, options = shared.parse_known_args(given, arguments)
    benchmark = importlib.import_module(f"benchmarks.{arguments.benchmark}")
    argv = ["--device", arguments.device, *(["--json"] if arguments.json else [])]
    name = chosen_model(arguments)
    if name:
        _, quantize = split_model(name)
        argv += ["--model", model_source(name), "--quantize", quantize]
    if arguments.seed is not None:
        argv += ["--seed", str(arguments.seed)]
    return int(benchmark.main([*argv, *options]) or 0)
