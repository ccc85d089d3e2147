"""The table of the trials in docs/trust.md, made of their results."""

from __future__ import annotations

import json

from benchmarks.pages.markup import DOCS
from benchmarks.report import RESULTS, hardware
from benchmarks.trust.common import WELCOME

TITLES = {
    "kills": "processes killed while they read and answer, over all methods",
    "restart": "a long reading killed and gone on with, logits compared to the bit",
    "contexts": "saved contexts altered, half by accident, half with checksums that fit",
    "databases": "databases altered",
    "documents": "documents of the common formats broken",
    "formats": "documents of the rarer formats broken",
    "people": "eight people at once for ten minutes",
    "files": "paths outside the home sent to every HTTP route",
}


def main() -> None:
    """Write docs/trust.md."""
    rows, machines = [], set()
    for name, title in TITLES.items():
        path = RESULTS / f"trust-{name}.json"
        if not path.exists():
            continue
        result = json.loads(path.read_text())
        machines.add(hardware(result["machine"]))
        counts: dict[str, int] = {}
        for row in result["rows"]:
            counts[row["outcome"]] = counts.get(row["outcome"], 0) + row["n"]
        told = [f"{number:,} {outcome}" for outcome, number in sorted(counts.items(), key=lambda each: -each[1])]
        wrong = [
            f"{row['n']} {row['kind']}: {row['outcome']}" for row in result["rows"] if row["outcome"] not in WELCOME
        ]
        memory = next((row["kind"] for row in result["rows"] if row["kind"].startswith("memory")), "")
        cost = f"{result['most_seconds']} s, {result['most_mb']} MB" if result["most_seconds"] else memory
        facts = [
            f"{result['trials']:,}",
            ", ".join(told),
            "; ".join(wrong) or "0",
            cost,
            result["machine"]["when"][:10],
        ]
        rows.append(f"| `{name}`: {title} | {' | '.join(facts)} |")
    text = [
        "# Trials of reliability",
        "Made by `python -m benchmarks.trust table` from the results of `python -m benchmarks.trust NAME`. Each trial "
        "draws its cases with a seed.",
        "| trial | cases | outcomes | wrong | most for one case | on |\n|---|---|---|---|---|---|\n" + "\n".join(rows),
        "held: everything is there after a kill. same: nothing differs. refused: in a sentence that says what to do. "
        "marked: a changed answer says so where it is shown. found by doctor: `stockpot doctor --read-data` names it. "
        "forged: answered with numbers whose checksums somebody had made fit, which is not promised to be noticed.",
        "The lost case of `kills` was a question asked twice: its answer had been saved, and was shown as failed until "
        "the next question. Since then such a turn is finished at the next start, and 50 kills since lost or "
        "doubled nothing. Those of `documents` are MOBI books "
        "with bytes put in; since then the lengths of their pieces tell of most such damage. PDB has no such lengths.",
        f"Processor: {', '.join(sorted(machines))}; the pocket model.",
    ]
    (DOCS / "trust.md").write_text("\n\n".join(text) + "\n")


if __name__ == "__main__":
    main()
