"""`stockpot bench`: the benchmarks. They take their own options; see `stockpot bench needle --help`."""

import argparse

from app.commands.common import Arguments, Commands


def register(commands: Commands, shared: argparse.ArgumentParser) -> None:
    """Add the command."""
    parser = commands.add_parser("bench", parents=[shared], help="measure accuracy, speed and attention mass")
    parser.add_argument(
        "benchmark", choices=("needle", "latency", "mass", "ablation", "growth"), help="what to measure"
    )
    parser.add_argument(
        "options", nargs=argparse.REMAINDER, help="options of the benchmark, --help and --json included"
    )
    parser.set_defaults(run=run)


def run(arguments: Arguments) -> int:
    """Hand over to the benchmark, with the global options that it shares."""
    import importlib

    benchmark = importlib.import_module(f"benchmarks.{arguments.benchmark}")
    argv = list(arguments.options)
    if arguments.model:
        argv += ["--model", arguments.model]
    if arguments.device != "auto":
        argv += ["--device", arguments.device]
    if arguments.seed:
        argv += ["--seed", str(arguments.seed)]
    return int(benchmark.main(argv) or 0)
