"""`stockpot models get`: fetches a model of the hub."""

import argparse
from dataclasses import asdict

from app.commands.common import Arguments, Commands, ProgressLine, print_json
from app.commands.parser import examples
from app.formatting import byte_size


def register(actions: Commands, shared: argparse.ArgumentParser) -> None:
    """Add the command to those of `stockpot models`."""
    parser = actions.add_parser(
        "get",
        parents=[shared],
        help="fetch a model of the hub, or go on fetching it",
        description="Fetch a model of the hub into its cache, where --model finds it: configuration, tokenizer, chat "
        "template and weights in safetensors, never code. Each file is compared with its checksum. After Ctrl-C or a "
        "broken connection the same command goes on from what has come.",
        epilog=examples("models get Qwen3-0.6B", "models get meta-llama/Llama-3.1-8B-Instruct"),
    )
    parser.add_argument("name", metavar="NAME", help="hub id, or the last part of a recommended one's")
    parser.add_argument(
        "--json", action="store_true", default=argparse.SUPPRESS, help="print one JSON value instead of text"
    )
    parser.set_defaults(run=run)


def run(arguments: Arguments) -> int:
    """Fetch the model."""
    from app.machine.hub import hub_id
    from app.machine.hub_download import fetch_model

    with ProgressLine() as line:
        fetched = fetch_model(hub_id(arguments.name), line.show)
    if arguments.json:
        print_json(asdict(fetched))
    else:
        print(f"{fetched.name} is here, {byte_size(fetched.bytes)}: --model {fetched.name} uses it.")
    return 0
