"""Turns the files of `results/` into docs/results.md: tables and two figures. `python -m benchmarks.pages`.

Each section is a function from rows of a benchmark to paragraphs of Markdown. Every table names the model, the hardware
and the number of questions, and every share has a 95 % interval beside it.
"""

import matplotlib

matplotlib.use("svg")
matplotlib.rcParams["svg.hashsalt"] = "stockpot"  # same figure, same bytes
matplotlib.rcParams["svg.fonttype"] = "none"  # text as text: smaller files
