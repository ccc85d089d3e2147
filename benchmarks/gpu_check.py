"""What Stockpot promises of a 24 GB GPU, checked on one, in one command of at most nine minutes: `make gpu-check`.

    python -m benchmarks.gpu_check                       # the whole, on CUDA
    python -m benchmarks.gpu_check --tiny --device cpu   # the very same code with tiny shapes, in under a minute

Random weights of real shapes in NF4, the process held to 24 GiB of the device. Four parts:

1. parity: the seam in bf16 against transformers' own attention, both against float32, and every kernel;
2. reading up to a million tokens with each method: speed and bytes, against the planner's prediction;
3. at 64K, 256K and 1M on the way: seconds to the first token of a question of 50 tokens, tokens/s of an answer;
4. the same for transformers' dense and offloaded caches, and for kvpress where it is installed.

Every cell of the table has a share of the time and stops when it is spent: what was not measured says so in `status`.
Eight minutes do not suffice for reading a million tokens with every method and every model; `--models Llama-3.1-8B
--methods infinitehip` gives all of them to one.
Text is noise and so are the weights: speed and bytes are those of the shapes, answers mean nothing. What a model that
was trained would cost more or less for its attention's sparsity is not seen here.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import importlib.util
import json
import logging
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import torch
from torch import Tensor
from transformers import DynamicCache, PreTrainedModel

from benchmarks.random_models import SHAPES, config_of, random_model, random_network
from benchmarks.report import RESULTS, machine, table
from engine import (
    METHODS,
    Answer,
    Context,
    Conversation,
    EngineError,
    Machine,
    Method,
    Model,
    Plan,
    Planner,
    Rates,
    Reader,
    Sampling,
    make_method,
    measure_rates,
    skeleton_of,
)
from engine.memory import NOT_IN_SOURCE
from engine.reader import default_chunk
from engine.records import DEVICE, HOST
from engine.retaining import FILE, RetainingHeads, save_heads
from engine.seam import NoRotation, attach

LENGTHS = (64 << 10, 256 << 10, 1 << 20)
TINY_LENGTHS = (256, 512, 1024)
QUESTION = 50  # tokens
DECODED = 32  # tokens of an answer whose speed is taken, or as many as there is time for
BASELINES = ("dense", "offloaded", "kvpress")
STORES = ("bfloat16", "int8", "int4")  # of the host tier, the least lossy that fits
PARITY_SHARE = 0.12
MODEL_SHARES = {"Llama-3.1-8B": 4.0, "Qwen2.5-7B": 1.0, "Phi-3-mini": 1.0}
CELL_SHARES = {"infinipot": 3.0, "infinitehip": 3.0, "infllm": 2.0, "locret": 2.0}  # of a model's time; others 1.0
NO_GPU = "There is no CUDA GPU here, so nothing was checked; --tiny --device cpu runs the same code on the processor."
COLUMNS = {
    "model": ["model", "what", "seconds", "status"],
    "parity": ["model", "what", "error", "allowed", "ok"],
    "kernels": [],
    "reading": [
        *("model", "method", "tokens", "status", "tokens_per_second", "planned_tokens_per_second", "to_dense"),
        *("device_bytes", "planned_device_bytes", "host_bytes", "planned_host_bytes"),
    ],
    "answering": [
        *("model", "method", "tokens", "status", "first_token_seconds", "planned_first_token_seconds"),
        *("tokens_per_second", "planned_tokens_per_second", "to_dense"),
    ],
}
Row = dict[str, Any]
log = logging.getLogger(__name__)


class NotReached(BaseException):
    """The time of a cell is spent. Like KeyboardInterrupt no Exception, which Triton's interpreter would swallow."""


@dataclass
class Check:
    """One run: where it runs, within what, and what it has found."""

    place: torch.device
    tiny: bool
    limit: int  # bytes of the device
    ends: float  # by time.monotonic
    folder: Path  # for what lies beside a model
    lengths: tuple[int, ...] = LENGTHS
    methods: tuple[str, ...] = (*BASELINES, *METHODS)
    rows: list[Row] = field(default_factory=list)

    @property
    def dtype(self) -> torch.dtype:
        """What is computed in."""
        return torch.bfloat16 if self.place.type == "cuda" else torch.float32

    def left(self) -> float:
        """Seconds."""
        return self.ends - time.monotonic()

    def add(self, part: str, **facts: Any) -> None:
        """A row of the table of a part."""
        self.rows.append({"part": part, **facts})

    def cell(self, part: str, facts: Row, share_sec: float, do: Callable[[float], None]) -> None:
        """Do something within its share of the time; what stops it becomes a row.

        do: is given the moment, by time.monotonic, at which it should be over; it is interrupted a little later.
        """
        began = time.monotonic()
        try:
            with _alarm(min(1.2 * share_sec + 1.0, max(self.left(), 0.1))):
                do(began + share_sec)
        except NotReached as reason:
            said = str(reason) or f"stopped after {time.monotonic() - began:.0f} s"
            self.add(part, **facts, status=f"not reached: {said}")
        except (EngineError, torch.OutOfMemoryError, MemoryError) as error:
            self.add(part, **facts, status=f"{type(error).__name__}: {str(error).splitlines()[0]}")
        except Exception as error:  # one cell must not end a run that was paid for
            log.exception("%s failed", facts)
            self.add(part, **facts, ok=False, status=f"failed: {type(error).__name__}: {error}")
        finally:
            free_all(self.place)


@contextmanager
def _alarm(seconds: float) -> Iterator[None]:
    """Raise NotReached in this thread when the time is over."""

    def ring(number: int, frame: object) -> None:
        raise NotReached

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, max(seconds, 0.01))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def free_all(place: torch.device) -> None:
    """Let go of what is unused."""
    gc.collect()
    if place.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(place)


def device_bytes(place: torch.device) -> int:
    """Peak since `free_all` on a GPU; on a processor what is resident now."""
    return int(torch.cuda.max_memory_allocated(place) if place.type == "cuda" else psutil.Process().memory_info().rss)


def wait(place: torch.device) -> float:
    """Now, once the device has done all it was given."""
    if place.type == "cuda":
        torch.cuda.synchronize(place)
    return time.monotonic()


# Part 1: parity


def check_seam(check: Check, name: str) -> None:
    """Two layers of real width, read in chunks in bf16: no further from float32 than twice transformers' own."""
    config = config_of(name, check.tiny, layers=2)
    vocabulary: int = config.vocab_size
    ids = torch.randint(vocabulary, (600,), generator=torch.Generator().manual_seed(1)).to(check.place)
    low = random_network(config, check.place, torch.bfloat16, nf4=False)
    made: Any = random_network(config, check.place, torch.bfloat16, nf4=False)  # the same weights
    high = made.float()
    with torch.no_grad():
        exact = high(input_ids=ids[None], use_cache=False).logits[0]
        theirs = low(input_ids=ids[None], use_cache=False).logits[0].float()
    spec = attach(low)
    memory = make_method("full").new_memory(spec, lambda text: 1)
    pieces = []
    with torch.no_grad():
        for chunk in torch.split(ids, 171):
            memory.begin(torch.full((len(chunk),), NOT_IN_SOURCE, dtype=torch.int32))
            pieces.append(low(input_ids=chunk[None], use_cache=False, memory=memory).logits[0].float())
            memory.commit()
    ours = torch.cat(pieces)
    error, allowed = float((ours - exact).norm() / exact.norm()), 2 * float((theirs - exact).norm() / exact.norm())
    check.add("parity", model=name, what="seam, bf16", error=error, allowed=allowed, ok=error <= allowed, status="done")


def check_kernels(check: Check) -> None:
    """Every kernel against its reference, where the benchmark that does it is there."""
    if importlib.util.find_spec("benchmarks.gpu_kernels") is None:
        check.add("kernels", status="not reached: benchmarks.gpu_kernels is not there")
        return
    kernels = importlib.import_module("benchmarks.gpu_kernels")
    for row in kernels.kernel_rows(check.place, list(check.lengths)):
        check.rows.append({"status": "done", **row, "part": "kernels"})


# Parts 2 and 3: reading and answering


def check_method(check: Check, model: Model, planner: Planner, name: str, over: float) -> None:
    """Read as far as time and memory allow, and answer at each length on the way."""
    method, wanted = _fitting(planner, name, check.lengths)
    facts = {"model": model.name, "method": name, "settings": method.settings()}
    plans = {length: planner.plan(method, length, "nf4") for length in check.lengths}
    for length in set(check.lengths) - set(wanted):
        plan = plans[length]
        longest = f"the longest text is {plan.longest:,} tokens" if plan.longest else "no text fits"
        check.add("reading", **facts, tokens=length, **_planned(plan), status=f"does not fit: {longest}")
    if not wanted:
        return
    ids = torch.randint(model.network.config.vocab_size, (wanted[-1],), generator=torch.Generator().manual_seed(2))
    before = device_bytes(check.place) if check.place.type == "cpu" else 0
    reader = Reader(model, method, ids, plans[wanted[-1]].chunk)
    began, waiting, most, asked_sec = wait(check.place), list(wanted), 0, 0.0
    for progress in reader.run():
        most = max(most, device_bytes(check.place) - before)
        if waiting and progress.tokens_done >= waiting[0]:
            length, now = waiting.pop(0), wait(check.place)
            speed = progress.tokens_done / (now - began - asked_sec)
            check.add(
                "reading",
                **facts,
                tokens=length,
                **_planned(plans[length]),
                tokens_per_second=speed,
                device_bytes=most,
                host_bytes=progress.usage.bytes.get(HOST, 0),
                kv_device_bytes=progress.usage.bytes[DEVICE],
                status="done",
            )
            _answer(check, Context(model, method, reader.memory, len(ids)), facts, length, plans[length], over)
            asked_sec += time.monotonic() - now
            if not waiting:
                return
        elif time.monotonic() > over:
            now = wait(check.place)
            speed = progress.tokens_done / (now - began - asked_sec)
            for length in waiting:
                check.add(
                    "reading",
                    **facts,
                    tokens=length,
                    **_planned(plans[length]),
                    tokens_per_second=speed,
                    device_bytes=most,
                    status=f"not reached: {progress.tokens_done:,} tokens in its time",
                )
            return


def _fitting(planner: Planner, name: str, lengths: tuple[int, ...]) -> tuple[Method, list[int]]:
    """A method with the host tier that fits most of the lengths, and which those are."""
    chosen = make_method(name).settings().get("store") in STORES
    found: list[tuple[Method, list[int]]] = []
    for store in STORES if chosen else ("",):
        try:
            method = make_method(name, **({"store": store} if store else {}))
        except EngineError:
            continue  # a way of storing that there is not (yet)
        found.append((method, [each for each in lengths if planner.plan(method, each, "nf4").fits]))
    return max(found, key=lambda each: len(each[1]))  # of equals the first, which is the least lossy


def _planned(plan: Plan) -> Row:
    return {
        "planned_tokens_per_second": plan.reading_tokens_per_sec,
        "planned_device_bytes": plan.device_bytes,
        "planned_host_bytes": plan.host_bytes,
        "planned_workspace_bytes": plan.workspace_bytes,
        "planned_weight_bytes": plan.weight_bytes,
    }


def _answer(check: Check, context: Context, facts: Row, length: int, plan: Plan, over: float) -> None:
    """Seconds to the first token, and tokens per second after it."""
    facts = {
        **facts,
        "tokens": length,
        "planned_first_token_seconds": plan.first_token_sec,
        "planned_tokens_per_second": plan.answer_tokens_per_sec,
    }
    left = over - time.monotonic()
    if plan.first_token_sec is not None and plan.first_token_sec > max(left, 0.0):
        said = f"not reached: {plan.first_token_sec:.0f} s are planned, {max(left, 0.0):.0f} s left"
        check.add("answering", **facts, status=said)
        return
    chat = context.model.chat
    question = "a" * max(1, QUESTION - len(chat.turn("")))
    first = _last(Conversation(context), question, 2)
    each = max(first.decode_sec, 1e-6)  # of two tokens: the first took part of it, so this is an upper bound
    tokens = max(2, min(DECODED, int((over - time.monotonic()) / each)))
    second = _last(Conversation(context), question, tokens)
    check.add(
        "answering",
        **facts,
        first_token_seconds=second.time_to_first_token_sec,
        tokens_per_second=second.tokens_per_second,
        answer_tokens=second.answer_tokens,
        status="done",
    )


def _last(conversation: Conversation, question: str, tokens: int) -> Answer:
    *_, last = conversation.ask(question, Sampling(temperature=2.0, max_tokens=tokens, seed=3))
    assert isinstance(last, Answer)
    return last


# Part 4: what there is elsewhere


@contextmanager
def stock(network: PreTrainedModel) -> Iterator[None]:
    """The network as transformers made it: its own rotary embedding, its own attention."""
    base: Any = network.base_model
    ours, implementation = base.rotary_emb, network.config._attn_implementation
    assert isinstance(ours, NoRotation)
    base.rotary_emb = ours.original
    network.set_attn_implementation("sdpa")
    try:
        yield
    finally:
        base.rotary_emb = ours
        network.set_attn_implementation(implementation)


def check_baseline(check: Check, model: Model, name: str, over: float) -> None:
    """Transformers' own cache, on the device or offloaded to the host, read in the same chunks; or kvpress."""
    facts = {"model": model.name, "method": name}
    if name == "kvpress":
        _check_kvpress(check, model, facts)
        return
    network, place = model.network, check.place
    cache = DynamicCache(config=network.config, offloading=name == "offloaded" and place.type == "cuda")
    before = device_bytes(place) if place.type == "cpu" else 0
    chunk, done, most, asked_sec, began = default_chunk(place.type == "cpu"), 0, 0, 0.0, wait(place)
    ids = torch.randint(network.config.vocab_size, (check.lengths[-1],), generator=torch.Generator().manual_seed(2)).to(
        place
    )
    with stock(network), torch.no_grad():
        for length in check.lengths:
            while done < length and time.monotonic() < over:
                network.base_model(input_ids=ids[None, done : done + chunk], past_key_values=cache, use_cache=True)
                done, most = done + chunk, max(most, device_bytes(place) - before)
            now = wait(place)
            speed = done / (now - began - asked_sec)
            reached = done >= length
            status = "done" if reached else f"not reached: {done:,} tokens in its time"
            check.add(
                "reading",
                **facts,
                tokens=length,
                tokens_per_second=speed,
                device_bytes=most,
                host_bytes=0,
                status=status,
            )
            if not reached:
                return
            _answer_stock(check, network, cache, ids[:QUESTION], facts, length, over)
            asked_sec += wait(place) - now


def _answer_stock(
    check: Check, network: PreTrainedModel, cache: DynamicCache, question: Tensor, facts: Row, length: int, over: float
) -> None:
    """Ask at the end of what the cache holds; the few tokens stay there, as some caches cannot take them out again."""
    head: Any = network.get_output_embeddings()  # type: ignore[no-untyped-call]
    began = wait(check.place)
    pending, times = question, list[float]()
    while len(times) < DECODED and (len(times) < 2 or time.monotonic() < over):
        hidden = network.base_model(input_ids=pending[None], past_key_values=cache, use_cache=True).last_hidden_state
        pending = head(hidden[0, -1:]).float().argmax(-1)
        times.append(wait(check.place))
    check.add(
        "answering",
        **facts,
        tokens=length,
        first_token_seconds=times[0] - began,
        tokens_per_second=(len(times) - 1) / (times[-1] - times[0]),
        answer_tokens=len(times),
        status="done",
    )


def _check_kvpress(check: Check, model: Model, facts: Row) -> None:
    """The first length, which it reads in one pass, pressed to a quarter by key norms."""
    if importlib.util.find_spec("kvpress") is None:
        check.add("reading", **facts, tokens=check.lengths[0], status="not reached: kvpress is not installed")
        return
    kvpress = importlib.import_module("kvpress")
    network, length = model.network, check.lengths[0]
    ids = torch.randint(network.config.vocab_size, (1, length), generator=torch.Generator().manual_seed(2))
    cache = DynamicCache(config=network.config)
    began = wait(check.place)
    try:
        with stock(network), torch.no_grad(), kvpress.KnormPress(compression_ratio=0.75)(network):
            network.base_model(input_ids=ids.to(check.place), past_key_values=cache, use_cache=True)
    except (TypeError, AttributeError, ValueError, AssertionError) as error:  # another version of either package
        check.add("reading", **facts, tokens=length, status=f"not reached: kvpress says {error}")
        return
    speed = length / (wait(check.place) - began)
    check.add(
        "reading",
        **facts,
        tokens=length,
        tokens_per_second=speed,
        device_bytes=device_bytes(check.place),
        status="done",
    )


# All of it


def compare(rows: list[Row]) -> None:
    """Write beside every speed how many times that of the dense cache it is, at the same length of the same model."""
    dense = {
        (row["part"], row["model"], row["tokens"]): row["tokens_per_second"]
        for row in rows
        if row.get("method") == "dense" and row["status"] == "done"
    }
    for row in rows:
        speed = row.get("tokens_per_second")
        other = dense.get((row["part"], row.get("model"), row.get("tokens")))
        if speed and other and row["status"] == "done":
            row["to_dense"] = speed / other


def check_model(check: Check, name: str, rates: Rates, share_sec: float) -> None:
    """All methods and baselines with one model, each with an equal share of what is left of the model's time."""
    ends = time.monotonic() + share_sec
    config = config_of(name, check.tiny)
    folder = check.folder / name
    began = wait(check.place)
    model = random_model(name, config, check.place, check.dtype, True, folder)
    check.add("model", model=name, what="weights made", seconds=wait(check.place) - began, status="done")
    save_heads(RetainingHeads(model.spec, [1024] * len(model.spec.layers)), folder / FILE, model.spec, {})
    sizes = skeleton_of(model.network, model.spec)
    host = int(psutil.virtual_memory().available * 0.9)
    planner = Planner(
        sizes,
        Machine(check.limit, host, check.place.type == "cpu", rates),
        model.turn_length,
        len(model.chat.prefix),
    )
    # The dense cache comes first, as what all others are compared with; then condensing, then retrieving methods.
    order = sorted(METHODS, key=lambda each: (METHODS[each].family not in ("condensing", "retrieving"), each))
    cells = [each for each in (*BASELINES, *order) if each in check.methods]
    for number, cell in enumerate(cells):
        weights = [CELL_SHARES.get(each, 1.0) for each in cells[number:]]
        left = max(0.0, min(ends, check.ends) - time.monotonic()) * weights[0] / sum(weights)
        facts = {"model": name, "method": cell}

        def measure(over: float, cell: str = cell) -> None:
            if cell in BASELINES:
                check_baseline(check, model, cell, over)
            else:
                check_method(check, model, planner, cell, over)

        free_all(check.place)
        if left < 0.2:
            check.add("reading", **facts, status="not reached: no time left")
        else:
            check.cell("reading", facts, left, measure)
        print(f"{name}, {cell}: {check.rows[-1]['status']}", file=sys.stderr, flush=True)


def run(check: Check, names: list[str]) -> None:
    """All parts."""
    total = check.left()
    for name in names:
        check.cell("parity", {"model": name}, total * PARITY_SHARE / 4, lambda over, name=name: check_seam(check, name))  # type: ignore[misc]
    check.cell("kernels", {}, total * PARITY_SHARE / 4, lambda over: check_kernels(check))
    rates = measure_rates(check.place, check.dtype)
    shares = {name: MODEL_SHARES[name] for name in names}
    for name in names:
        share = check.left() * shares[name] / sum(shares.values())
        del shares[name]
        if share < 1.0:
            check.add("reading", model=name, status="not reached: no time left")
            continue
        try:
            check_model(check, name, rates, share)
        except (EngineError, torch.OutOfMemoryError, MemoryError) as error:
            check.add("model", model=name, status=f"{type(error).__name__}: {error}")
        free_all(check.place)
    compare(check.rows)


def write(check: Check, out: Path) -> dict[str, Any]:
    """The result as JSON, in a file with the device's name; returned as well."""
    result = {
        "benchmark": "gpu-check",
        "machine": machine(),
        "device_limit_bytes": check.limit,
        "tiny": check.tiny,
        "rows": check.rows,
    }
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(result, indent=1) + "\n")
    return result


def tables(rows: list[Row]) -> str:
    """One table per part; bytes in GB."""
    shown = []
    for part, columns in COLUMNS.items():
        mine = [{key: _gigabytes(key, value) for key, value in row.items()} for row in rows if row["part"] == part]
        if mine:
            names = columns or [name for name in mine[0] if name != "part"]
            if any(row.get("status") != "done" for row in mine) and "status" not in names:
                names = [*names, "status"]
            shown.append(f"{part}\n{table(mine, names)}")
    return "\n\n".join(shown)


def _gigabytes(key: str, value: object) -> object:
    return f"{value / 1e9:.2f} GB" if key.endswith("_bytes") and isinstance(value, int) else value


def main(argv: list[str] | None = None) -> int:
    """The command line; see the module's docstring. 0: all parity holds; 1: it does not, or there is no GPU."""
    parser = argparse.ArgumentParser(description="Check speed, bytes and exactness on a GPU held to 24 GiB.")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="where it runs (default: cuda)")
    parser.add_argument("--tiny", action="store_true", help="tiny shapes and short texts, to see that it runs")
    parser.add_argument("--minutes", type=float, help="time for all of it (default: 8.5, with --tiny 0.75)")
    parser.add_argument("--memory", type=float, default=24.0, help="GiB of the device to be used (default: 24)")
    parser.add_argument("--models", default=",".join(SHAPES), help="parted by commas (default: %(default)s)")
    parser.add_argument("--methods", default=",".join((*BASELINES, *METHODS)), help="parted by commas (default: all)")
    parser.add_argument("--out", type=Path, help="JSON file (default: benchmarks/results/gpu-check-DEVICE.json)")
    chosen = parser.parse_args(argv)
    names = chosen.models.split(",")
    if unknown := [name for name in names if name not in SHAPES]:
        parser.error(f"there are no shapes of {', '.join(unknown)}: choose of {', '.join(SHAPES)}")
    methods = tuple(chosen.methods.split(","))
    if unknown := [name for name in methods if name not in (*BASELINES, *METHODS)]:
        parser.error(f"there is no {', '.join(unknown)}: choose of {', '.join((*BASELINES, *METHODS))}")
    if chosen.device == "cuda" and not torch.cuda.is_available():
        print(NO_GPU, file=sys.stderr)
        return 1
    place, limit = torch.device(chosen.device), int(chosen.memory * (1 << 30))
    if place.type == "cuda":
        total = torch.cuda.get_device_properties(place).total_memory
        limit = min(limit, total)
        torch.cuda.set_per_process_memory_fraction(limit / total, place)
    minutes = chosen.minutes or (0.75 if chosen.tiny else 8.5)
    lengths = TINY_LENGTHS if chosen.tiny else LENGTHS
    with tempfile.TemporaryDirectory() as folder:
        check = Check(place, chosen.tiny, limit, time.monotonic() + 60 * minutes, Path(folder), lengths, methods)
        name = "-".join(str(machine()["device"]).split()).replace("/", "-") if place.type == "cuda" else "cpu"
        out = chosen.out or RESULTS / f"gpu-check-{name}{'-tiny' if chosen.tiny else ''}.json"
        try:
            run(check, names)
        finally:
            write(check, out)
    print(tables(check.rows))
    print(f"written to {out}", file=sys.stderr)
    return 0 if all(row.get("ok", True) for row in check.rows) else 1


if __name__ == "__main__":
    sys.exit(main())
