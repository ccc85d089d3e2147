"""`stockpot plan`: the memory and time that a reading would need."""

import argparse
from pathlib import Path
from typing import Any

from app.commands.common import Arguments, Commands, ProgressLine, add_json_flag, print_json, table
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


def register(commands: Commands, shared: argparse.ArgumentParser) -> None:
    """Add `plan` to the parser."""
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


def run_plan(arguments: Arguments) -> int:
    """Plan a reading; return 1 if nothing fits, or the named method does not."""
    from app.errors import UsageError
    from app.home import home_folder
    from app.machine.model_names import canonical_model, default_model, named_model

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

    name = canonical_model(
        named_model(arguments.model, arguments.quantize, arguments.home) or default_model(arguments.home),
        arguments.home,
    )
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
    """Return the plan as text. named: whether it is for one named method."""
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
    """Return a line for each method that needs training first or strains the model, and an empty line after them."""
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
    """Return in a word or two whether a method fits."""
    if not plan["possible"]:
        return "never"
    return "no" if not plan["fits"] else "if trained" if plan["lacks"] else "yes"


def _fitting(plan: dict[str, Any]) -> str:
    """Return whether the named method fits, and if not, how much of the text would."""
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
    """Return the number of tokens of files, encoded with the model's tokenizer. Nothing is kept."""
    import engine
    from app.machine.model_names import model_source
    from app.reading.token_stream import compose
    from ingest.subprocess import ingest_in_subprocess

    documents = []
    with ProgressLine() as progress:
        for each in sources:
            progress.show(f"Extracting the text of {Path(each).name}")
            documents.append((each, ingest_in_subprocess(Path(each), password=password)))
    source = model_source(model)
    return len(compose(engine.load_chat(source, engine.read_config(source)), documents).ids)
