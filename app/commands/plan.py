"""`stockpot plan` and `stockpot models`: what a reading would need, and which models are here."""

import argparse
from pathlib import Path
from typing import Any

from app.commands import models
from app.commands.common import Arguments, Commands, ProgressLine, add_json_flag, note, print_json, table
from app.commands.inputs import check_file, files_of
from app.commands.parser import examples
from app.commands.reading import add_weights, password_of, settings_of
from app.formatting import byte_size, duration, printable, short_seconds, speed
from app.machine.gpus import CARDS, gpu_of
from app.quantities import bytes_of, rates_of, tokens_of

PLAN_COLUMNS = {
    "method": "METHOD",
    "budget": "BUDGET",
    "fits": "FITS",
    "longest": "LONGEST TEXT",
    "device": "DEVICE",
    "host": "HOST",
    "reading": "READING",
    "first": "FIRST TOKEN",
    "answer": "TOKENS/S",
}
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
    """Add the commands."""
    parser = commands.add_parser(
        "plan",
        parents=[shared],
        help="say what reading a text would need, and which method suits the machine",
        description="Plan a reading from a model's configuration alone: bytes, time, the longest text that fits, and "
        "the best method. Without --gpu it is for this machine; with it, for one that you may not own.",
        epilog=examples("plan book.pdf", "plan --tokens 128K --method infllm", "plan --tokens 1M --gpu rtx4090"),
    )
    parser.add_argument(
        "sources", metavar="FILE|FOLDER", nargs="*", help="what is to be read; its text is counted and not kept"
    )
    parser.add_argument(
        "--tokens", metavar="N", help="length of the text instead, such as 250000, 128K or 1M (K: 1,024)"
    )
    parser.add_argument("--password", metavar="P", help="password of an encrypted file")
    parser.add_argument("--method", metavar="METHOD", help="plan for this method only (default: for all)")
    parser.add_argument("--budget", metavar="N", help="entries per KV head and layer on the device (with --method)")
    parser.add_argument(
        "--set", metavar="KEY=VALUE", action="append", default=[], dest="settings", help="another setting of the method"
    )
    add_weights(parser)
    parser.add_argument(
        "--gpu",
        metavar="CARD|SIZE",
        help="GPU to plan for: its memory, such as 24GiB, or one of " + ", ".join(CARDS),
    )
    parser.add_argument("--host", metavar="SIZE", help="host memory to plan for, such as 64GiB (default: what is free)")
    parser.add_argument(
        "--rates",
        metavar="TFLOPS,GB/S,GB/S",
        help="what that GPU reaches in large matrix products, in its memory and over the link to the host; "
        "without them, times are those of the card named, and left out for a size alone",
    )
    add_json_flag(parser)
    parser.set_defaults(run=run_plan)
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
    models.register(actions, shared)
    parser.set_defaults(run=run_models)


def run_plan(arguments: Arguments) -> int:
    """Plan; 1 if nothing fits, or the method that is named does not."""
    from app.errors import UsageError
    from app.home import canonical_model, default_model, home_folder, named_model

    settings = settings_of(arguments)
    if bool(arguments.sources) == bool(arguments.tokens):
        raise UsageError("Name the files to plan for, or give the length of a text with --tokens.")
    if settings and not arguments.method:
        raise UsageError("--budget and --set are settings of a method: name it with --method.")
    if arguments.rates is not None and arguments.gpu is None:
        raise UsageError("--rates says what a GPU reaches: give its memory with --gpu.")
    tokens = tokens_of(arguments.tokens) if arguments.tokens else 0
    gpu, card_rates = gpu_of(arguments.gpu) if arguments.gpu else (None, None)
    host = None if arguments.host is None else bytes_of(arguments.host)
    rates = card_rates if arguments.rates is None else rates_of(arguments.rates)
    sources = files_of(arguments.sources)
    for each in sources:
        check_file(each, password_of(arguments))
    from app.machine.planning import PlanRequest, report

    name = canonical_model(named_model(arguments.model, arguments.quantize) or default_model())
    wanted = PlanRequest(
        tokens=tokens or _count(name, sources, password_of(arguments)),
        method=arguments.method,
        settings=settings,
        quantize=arguments.quantize,
        gpu=gpu,
        host=host,
        rates=rates,
    )
    result = report(name, wanted, home_folder(arguments.home), arguments.device)
    if arguments.json:
        print_json(result)
    else:
        print(printable(_plan_in_words(result, named=bool(arguments.method))))
    fits = any(plan["fits"] for plan in result["plans"])
    return 0 if fits or (result["best"] and not arguments.method) else 1


def _plan_in_words(result: dict[str, Any], *, named: bool) -> str:
    """The plan for a person. named: of one method that was asked for."""
    limits, weights = result["limits"], result["plans"][0]["bytes"]["weights"]
    memory = (
        f"{byte_size(limits['device'])} of memory"
        if result["device"] == "cpu"
        else f"{byte_size(limits['device'])} on the GPU and {byte_size(limits['host'])} in the host"
    )
    published, quantize = result["published"], result["plans"][0]["quantize"]
    kind = f"{published['bits']} bits ({published['method']})" if published else quantize
    kind = result["dtype"] if kind == "none" else kind
    lines = [
        f"{result['model']}: {result['parameters']:,} weights, {byte_size(weights)} in {kind}; {memory}.",
        f"{result['tokens']:,} tokens:",
        "",
        table([_row(plan) for plan in result["plans"]], PLAN_COLUMNS),
        "",
        *_doubts(result["plans"]),
        *([_fitting(result["plans"][0])] if named and result["plans"][0]["possible"] else []),
        _advice(result, named=named),
    ]
    return "\n".join(lines)


def _doubts(plans: list[dict[str, Any]]) -> list[str]:
    """What is to be trained before some methods can be used, which strain the model, and an empty line if any."""
    sentences = list(dict.fromkeys(plan[key] for key in ("lacks", "beyond") for plan in plans if plan[key]))
    return [*sentences, ""] if sentences else []


def _row(plan: dict[str, Any]) -> dict[str, Any]:
    budget, longest = plan["settings"]["budget"], plan["longest_tokens"]
    first, answer = plan["first_token_seconds"], plan["answer_tokens_per_second"]
    return {
        "method": plan["method"],
        "budget": "none" if budget is None else f"{budget:,}",
        "fits": _fits(plan),
        "longest": "any" if longest is None else f"{longest:,}",
        "device": byte_size(plan["bytes"]["device"]),
        "host": byte_size(plan["bytes"]["host"]),
        "reading": duration(plan["reading_seconds"]),
        "first": "?" if first is None else short_seconds(first),
        "answer": "?" if answer is None else speed(answer),
    }


def _fits(plan: dict[str, Any]) -> str:
    """Whether it fits, in a word or two."""
    if not plan["possible"]:
        return "never"
    return "no" if not plan["fits"] else "if trained" if plan["lacks"] else "yes"


def _fitting(plan: dict[str, Any]) -> str:
    """Whether the method that was asked for fits, and if not, what of it would."""
    from app.machine.planning import method_in_words

    what, longest = method_in_words(plan["method"], plan["settings"]), plan["longest_tokens"]
    if plan["fits"]:
        return f"{what} fits{' once it is trained' if plan['lacks'] else ''}."
    return f"{what} does not fit; {f'up to {longest:,} tokens would' if longest else 'nor would a shorter text'}."


def _advice(result: dict[str, Any], *, named: bool) -> str:
    from app.machine.planning import method_in_words

    best = result["best"]
    if best is None and any(plan["fits"] for plan in result["plans"]):
        return "Of what fits, nothing is recommended."
    if best is None:
        return "Nothing fits: choose a smaller model, a shorter text, or a machine with more memory."
    weights = "" if best["quantize"] == "none" else f" and weights in {best['quantize']}"
    label = "Best of all methods" if named else "Best here"
    first, speed_of = best["first_token_seconds"], best["answer_tokens_per_second"]
    times = "" if first is None else f" Answers begin after {short_seconds(first)}, at {speed(speed_of)} tokens/s."
    return f"{label}: {method_in_words(best['method'], best['settings'])}{weights}: {best['reason']}.{times}"


def _count(model: str, sources: list[str], password: str | None) -> int:
    """Return the tokens of files, as a reading with that model would have them. Nothing is kept."""
    import engine
    from app.home import model_source
    from app.reading.token_stream import compose
    from ingest.subprocess import ingest_apart

    documents = []
    with ProgressLine() as progress:
        for each in sources:
            progress.show(f"Extracting the text of {Path(each).name}")
            documents.append((each, ingest_apart(Path(each), password=password)))
    source = model_source(model)
    return len(compose(engine.load_chat(source, engine.read_config(source)), documents).ids)


def _weights(parameters: int) -> str:
    """Weights in millions or billions: "2.8 M", "8.03 B"."""
    return f"{parameters / 1e6:.1f} M" if parameters < 1e9 else f"{parameters / 1e9:.2f} B"


def run_models(arguments: Arguments) -> int:
    """List the models."""
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
    """One recommended model as its row of the table."""
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
