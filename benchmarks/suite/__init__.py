"""The suite: one text, many kinds of questions.

    stockpot bench suite --model DIR --methods full,exact,infllm:looks=1 --budgets 1/4,1/8 --tokens 4K --out suite.jsonl

Each text is real prose from a seed, at any length, with needles of all families and passages of `qa/` spread over it.
It is read once, and each question is asked on a fork of that reading. With --out every finished reading becomes a line
of a JSON lines file; the same command skips those and continues.
"""

from benchmarks.suite.command import main

__all__ = ["main"]
