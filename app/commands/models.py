"""`stockpot models` and `models get`: list the models on this machine, and fetch others from the hub."""

import argparse
from dataclasses import asdict
from typing import Any

from app.commands.common import Arguments, Commands, ProgressLine, add_json_flag, note, print_json, table
from app.commands.parser import examples
from app.formatting import byte_size, printable

MODEL_COLUMNS = {
    "name": "MODEL",
    "place": "WHERE",
    "parameters": "WEIGHTS",
    "none": "BF16",
    "8bit": "8BIT",
    "nf4": "NF4",
    "token": "KV A TOKEN",
    "window": "WINDOW",
    "reason": "NOTE",
}
HUB_COLUMNS = {
    "name": "TO FETCH",
    "download": "DOWNLOAD",
    "memory": "MEMORY",
    "nf4": "NF4",
    "window": "WINDOW",
    "licence": "LICENCE",
    "fits": "FITS HERE",
    "suits": "FOR",
}
FITS = {"none": "yes", "nf4": "with --quantize nf4", "": "no"}


def register(commands: Commands, shared: argparse.ArgumentParser) -> None:
    """Add `models` and `models get` to the parser."""
    parser = commands.add_parser(
        "models",
        parents=[shared],
        help="list the models on this machine and their needs",
        description="List the models on this machine and the one that --model names: those that ship, folders and "
        "files under `models` in the home, those of Ollama, LM Studio, Jan, llama.cpp and the hub. Each comes with "
        "the bytes of its weights in each form, and of a token's keys and values. Then come some that are recommended, "
        "and whether they fit here. `stockpot models get NAME` fetches one, and so does naming one with --model.",
    )
    add_json_flag(parser)
    actions = parser.add_subparsers(metavar="COMMAND", title="commands", help="without one, the models are listed")
    _register_get(actions, shared)
    parser.set_defaults(run=run_models)


def _register_get(actions: Commands, shared: argparse.ArgumentParser) -> None:
    """Add `get` to the commands of `stockpot models`."""
    parser = actions.add_parser(
        "get",
        parents=[shared],
        help="fetch a model of the hub, or go on fetching it",
        description="Fetch a model of the hub into its cache, where --model finds it: configuration, tokenizer, chat "
        "template and weights in safetensors, never code. Each file is compared with its checksum. After Ctrl-C or a "
        "broken connection the same command goes on from what has come.",
        epilog=examples("models get qwen3-0.6b", "models get meta-llama/Llama-3.1-8B-Instruct"),
    )
    parser.add_argument("name", metavar="NAME", help="hub id, or short name of a recommended model")
    parser.add_argument(
        "--json", action="store_true", default=argparse.SUPPRESS, help="print one JSON value instead of text"
    )
    parser.set_defaults(run=run_get)


def run_get(arguments: Arguments) -> int:
    """Download the model from the hub."""
    from app.machine.hub import hub_id
    from app.machine.hub_download import fetch_model

    with ProgressLine() as line:
        fetched = fetch_model(hub_id(arguments.name), lambda text, *_: line.show(text))
    if arguments.json:
        print_json(asdict(fetched))
    else:
        print(f"{fetched.name} is here, {byte_size(fetched.bytes)}: --model {fetched.name} uses it.")
    return 0


def run_models(arguments: Arguments) -> int:
    """List the models on this machine, and recommended ones."""
    from app.home import home_folder
    from app.machine.local_models import local_models
    from app.machine.recommended import recommended_json

    found = local_models(home_folder(arguments.home), arguments.model or "")
    others = recommended_json(arguments.device)
    if arguments.json:
        print_json([*(each.to_json() for each in found), *others])
        return 0
    rows = [
        {
            "name": each.name,
            "place": each.place,
            "parameters": _weights(each.parameters) if each.parameters else None,
            **{name: byte_size(size) for name, size in each.weight_bytes.items()},
            "token": byte_size(each.entry_bytes) if each.entry_bytes else None,
            "window": f"{each.window:,}" if each.window else None,
            "reason": each.reason,
        }
        for each in found
    ]
    if rows:
        print(printable(table(rows, MODEL_COLUMNS)))
    else:
        note(
            "There are no models here: put one, a folder or a .gguf file, into the home's folder `models`, or name a "
            "hub id with --model."
        )
    print(printable(f"\n{table([_hub_row(each) for each in others], HUB_COLUMNS)}"))
    note(
        "Sizes of models to fetch are by their publishers' configurations; none of them has been tried here. "
        "`stockpot models get NAME` fetches one."
    )
    return 0


def _hub_row(model: dict[str, Any]) -> dict[str, Any]:
    """Return the row of one recommended model."""
    gated = ", to be accepted on huggingface.co" if model["gated"] else ""
    return {
        "name": model["name"],
        "download": byte_size(model["download"]),
        "memory": byte_size(model["memory"]),
        "nf4": byte_size(model["nf4"]) if model["nf4"] else None,
        "window": f"{model['window']:,}",
        "licence": model["licence"] + gated,
        "fits": FITS[model["fits"]],
        "suits": model["suits"],
    }


def _weights(parameters: int) -> str:
    """Return a number of weights in millions or billions: "2.8 M", "8.03 B"."""
    return f"{parameters / 1e6:.1f} M" if parameters < 1e9 else f"{parameters / 1e9:.2f} B"
