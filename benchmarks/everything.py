"""The benchmarks of the pocket model, each written to `results/`; finished ones are skipped. `make bench`.

Interrupted runs of `needle`, and those with fewer trials than planned here, are continued. Everything takes more than a
day on two CPU cores; `--quick` runs the sizes of docs/results.md that fit into hours. Real models are measured by
`benchmarks.real_suite`, `benchmarks.gguf`, `benchmarks.llama_cpp_speed` and `benchmarks.drafts`.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from dataclasses import dataclass
from pathlib import Path

from benchmarks import haystack, latency, needle, options, speed
from benchmarks.report import RESULTS

RUNS = {"needle": needle.main, "latency": latency.main, "speed": speed.main}
CONDENSING = "streaming,truncate,infinipot,infinipot-cap,infinipot-nuc"
FIXED = "exact,infinipot,locret"
RETRIEVING = "infllm,infinitehip"
PROMPT = "infinipot:preset=pocket"  # a catalyst prompt for this model
THREE = "infinitehip:preset=pocket-far"  # three stages; the paper's presets attend to more than this model's window
HEADS = "locret,recall"  # run apart, so that new retaining heads change no other results
SKETCHED = "exact:sketch=int4,exact:sketch=int2"
CODED = "recall:store=int8,recall:store=int4"
FAR = "exact,infinipot,locret"  # one method that keeps everything is enough, as it takes long
OTHERS = "streaming,truncate,infinipot-cap,infinipot-nuc"
PLANNED = f"full,streaming,infinipot,locret,beacon,exact,{RETRIEVING},recall"
UNSEEN = ",".join(haystack.UNSEEN)
RATIOS = ",".join(f"beacon:ratio={ratio}" for ratio in (2, 4, 8, 16, 32))
AGAIN, POTS = "--read-again --budgets 1024", "infinipot,infinipot:preset=pocket"
NAMED, FORGETFUL = "--page 400 --budgets 1024", "streaming,truncate,infinipot,locret,beacon"
IN_PARTS = f"recall,{RETRIEVING},locret,{PROMPT}"
KEPT = ",".join(f"{method}:store={store}" for method in ("locret", "infinipot") for store in ("model", "int8", "int4"))


@dataclass(frozen=True)
class Run:
    """One benchmark: its name under results/, program and options. `quick` ones are part of --quick."""

    name: str
    program: str
    options: str
    quick: bool = True


def passkeys(methods: str, tokens: str, trials: int, budgets: str) -> str:
    """Return the options for one pass key at three depths, in filler and in real prose."""
    return f"--methods {methods} --kinds passkey,prose --tokens {tokens} --trials {trials} --budgets {budgets}"


def settings(name: str, values: str) -> str:
    """Return the options for facts read by Locret with each value of a setting."""
    each = ",".join(f"locret:{name}={value}" for value in values.split(","))
    return f"--methods {each} --budgets 512 --tokens 2K,8K --trials 5"


PLAN = [
    Run("speed", "speed", ""),
    Run("latency", "latency", "--methods streaming,infinipot,locret --budget 1024 --tokens 100K,1M"),
    Run("latency-exact", "latency", "--methods exact,exact:looks=1 --budget 1024 --tokens 100K,1M", False),
    Run("latency-retrieving", "latency", f"--methods infllm,{THREE} --budget 1024 --tokens 100K,1M", False),
    Run("plans", "latency", f"--methods {PLANNED} --tokens 8K,32K"),
    Run("facts-full", "needle", "--methods full --tokens 256,512,1K,2K --trials 20"),
    Run("facts-unseen", "needle", f"--methods full --kinds {UNSEEN} --tokens 512,1K --trials 12"),
    Run(
        "facts-unseen-exact",
        "needle",
        f"--methods exact --budgets 512 --kinds {UNSEEN} --tokens 2K,8K --trials 12",
    ),
    Run("facts-exact", "needle", "--methods exact --budgets 512 --tokens 512,2K,8K,32K --trials 20"),
    Run(
        "facts-stores", "needle", "--methods exact:store=int8,exact:store=int4 --budgets 512 --tokens 2K,8K --trials 20"
    ),
    Run("facts-sketched", "needle", f"--methods {SKETCHED} --budgets 1024 --tokens 2K,8K,32K --trials 20"),
    Run("facts-sketched-128k", "needle", f"--methods {SKETCHED} --budgets 1024 --tokens 128K --trials 4"),
    Run("facts-sketched-1m", "needle", f"--methods {SKETCHED} --budgets 1024 --tokens 1M --trials 1", False),
    Run("facts-recall-stores", "needle", f"--methods {CODED} --budgets 1024 --tokens 2K,8K,32K --trials 20"),
    Run("facts-kept-stores", "needle", f"--methods {KEPT} --budgets 1024 --tokens 2K --trials 8"),
    Run("facts-exact-128k", "needle", "--methods exact --budgets 512 --tokens 128K --trials 4"),
    Run("facts-exact-1m", "needle", "--methods exact --budgets 512 --tokens 1M --trials 1"),
    Run("facts-condensing", "needle", f"--methods {CONDENSING} --budgets 1024 --tokens 2K,8K,32K --trials 5"),
    Run("facts-prompt", "needle", f"--methods {PROMPT} --budgets 1024 --tokens 2K,8K,32K --trials 5"),
    Run("facts-retrieving", "needle", f"--methods {RETRIEVING} --budgets 1024 --tokens 2K,8K,32K --trials 20"),
    Run("facts-exact-1024", "needle", "--methods exact --budgets 1024 --tokens 2K,8K,32K --trials 20"),
    Run("facts-presets", "needle", f"--methods {THREE} --budgets 1024 --tokens 2K,8K,32K --trials 5"),
    Run("facts-heads", "needle", f"--methods {HEADS} --budgets 1024 --tokens 2K,8K,32K --trials 20"),
    Run("facts-condensing-128k", "needle", f"--methods {CONDENSING} --budgets 1024 --tokens 128K --trials 2"),
    Run(
        "facts-condensing-1m",
        "needle",
        "--methods infinipot,streaming,truncate --budgets 1024 --tokens 1M --trials 1",
        False,
    ),
    Run("facts-looked-at-128k", "needle", f"{NAMED} --methods exact,recall --tokens 128K --trials 2"),
    Run("facts-far", "needle", f"--methods recall,{RETRIEVING},locret --budgets 1024 --tokens 128K --trials 2"),
    Run("facts-exact-1024-128k", "needle", "--methods exact --budgets 1024 --tokens 128K --trials 4"),
    Run("facts-exact-1024-1m", "needle", "--methods exact --budgets 1024 --tokens 1M --trials 1", False),
    Run("facts-recall-1m", "needle", "--methods recall --budgets 1024 --tokens 1M --trials 1"),
    Run("facts-infllm-1m", "needle", "--methods infllm --budgets 1024 --tokens 1M --trials 1", False),
    Run("facts-infinitehip-1m", "needle", f"--methods {THREE} --budgets 1024 --tokens 1M --trials 1", False),
    Run("facts-read-again", "needle", f"{AGAIN} --methods locret --tokens 2K,8K,32K --trials 20"),
    Run("facts-read-again-pot", "needle", f"{AGAIN} --methods {POTS} --tokens 2K,8K,32K --trials 5"),
    Run("facts-read-again-128k", "needle", f"{AGAIN} --methods locret --tokens 128K --trials 2"),
    Run("facts-read-again-1m", "needle", f"{AGAIN} --methods locret --tokens 1M --trials 1", False),
    Run("facts-named", "needle", f"{NAMED} --methods {FORGETFUL} --tokens 2K,8K,32K --trials 5"),
    Run("facts-looked-at", "needle", f"{NAMED} --methods exact,recall,{RETRIEVING} --tokens 2K,8K,32K --trials 5"),
    Run("facts-named-128k", "needle", f"{NAMED} --methods {FORGETFUL} --tokens 128K --trials 2"),
    Run("facts-named-1m", "needle", f"{NAMED} --methods {FORGETFUL} --tokens 1M --trials 1", False),
    Run("facts-locret-1m", "needle", "--methods locret --budgets 1024 --tokens 1M --trials 1", False),
    Run("facts-parts", "needle", f"--parts 4 --methods {IN_PARTS} --budgets 1024 --tokens 2K,8K,32K --trials 5"),
    Run("facts-parts-exact", "needle", "--parts 4 --methods exact --budgets 512 --tokens 2K,8K,32K --trials 5"),
    Run("facts-beacon", "needle", f"--methods beacon,{RATIOS} --budgets 1024 --tokens 512,1K,2K --trials 4"),
    Run(
        "hard", "needle", f"--methods exact,locret,{RETRIEVING},recall --kinds two,pairs --tokens 2K,8K,32K --trials 4"
    ),
    Run("facts-budgets", "needle", f"--methods {FIXED} --budgets 512,2048,4096 --tokens 2K,8K,32K --trials 5"),
    Run("facts-pooling", "needle", settings("pooling", "1,3,5,9")),
    Run("facts-shares", "needle", settings("share", "even,pyramid,heads,all")),
    Run("passkey-full", "needle", "--methods full --kinds passkey,prose --tokens 1K,2K --trials 20"),
    Run("passkey", "needle", passkeys("exact,streaming,truncate,infinipot", "2K,8K", 20, "1024")),
    Run("passkey-prompt", "needle", passkeys(PROMPT, "2K,8K", 20, "1024")),
    Run("passkey-halves", "needle", passkeys("infinipot-cap,infinipot-nuc", "2K,8K", 20, "1024")),
    Run("passkey-retrieving", "needle", passkeys(RETRIEVING, "2K,8K", 20, "1024")),
    Run("passkey-heads", "needle", passkeys(HEADS, "2K,8K", 20, "1024")),
    Run("passkey-beacon", "needle", passkeys("beacon,beacon:ratio=2", "1K,2K,8K", 20, "1024")),
    Run("passkey-beacon-far", "needle", passkeys("beacon", "32K,128K", 2, "1024")),
    Run("passkey-32k", "needle", passkeys(f"exact,{CONDENSING}", "32K", 20, "1024")),
    Run("passkey-32k-retrieving", "needle", passkeys(RETRIEVING, "32K", 20, "1024")),
    Run("passkey-32k-heads", "needle", passkeys(HEADS, "32K", 20, "1024")),
    Run("passkey-128k", "needle", passkeys(f"exact,{CONDENSING}", "128K", 20, "1024"), False),
    Run("passkey-128k-kept", "needle", passkeys("infllm,locret,recall", "128K", 20, "1024"), False),
    Run("passkey-128k-infinitehip", "needle", passkeys(THREE, "128K", 20, "1024"), False),
    Run("passkey-1m", "needle", passkeys(FAR, "1M", 1, "1024"), False),
    Run("passkey-1m-others", "needle", passkeys(OTHERS, "1M", 1, "1024"), False),
    Run("passkey-1m-recall", "needle", passkeys("recall", "1M", 1, "1024") + " --depths 0.5", False),
    Run("passkey-1m-infllm", "needle", passkeys("infllm", "1M", 1, "1024") + " --depths 0.5", False),
    Run("passkey-1m-infinitehip", "needle", passkeys(THREE, "1M", 1, "1024") + " --depths 0.5", False),
    Run("passkey-10m", "needle", "--methods locret --kinds passkey --tokens 10M --depths 0.5 --trials 1", False),
]


def finished(run: Run, out: Path) -> bool:
    """Return whether the result exists, with as many trials as planned."""
    if not out.exists():
        return False
    wanted = re.search(r"--trials (\d+)", run.options)
    return wanted is None or json.loads(out.read_text()).get("trials", int(wanted[1])) >= int(wanted[1])


def main(argv: list[str] | None = None) -> int:
    """Run the benchmarks that have no result yet."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="only what fits into some hours on two cores")
    parser.add_argument("--only", choices=[run.name for run in PLAN], metavar="RUN", help="a single run by name")
    chosen = parser.parse_args(argv)
    for run in PLAN:
        out = RESULTS / f"{run.name}.json"
        wanted = run.name == chosen.only if chosen.only else run.quick or not chosen.quick
        if not wanted:
            continue
        if finished(run, out):
            print(f"{run.name}: {out} is there already", file=sys.stderr)
            continue
        print(f"== {run.name}", file=sys.stderr, flush=True)
        RUNS[run.program]([*run.options.split(), "--out", str(out)])
    return 0


if __name__ == "__main__":
    options.run(main)
