"""Turns `results/*.json` into docs/results.md: tables, heat maps and curves. `python -m benchmarks.pages`.

Each section is a function from rows of a benchmark to paragraphs of Markdown.
"""

import matplotlib

matplotlib.use("svg")
matplotlib.rcParams["svg.hashsalt"] = "stockpot"  # same figure, same bytes
