"""Turns `results/*.json` into docs/results.md: tables, heat maps and curves. `python -m benchmarks.pages`.

One function for each section: rows of a benchmark in, paragraphs of Markdown out.
"""

import matplotlib

matplotlib.use("svg")
matplotlib.rcParams["svg.hashsalt"] = "stockpot"  # the same figure is the same file
