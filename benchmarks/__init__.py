"""Benchmarks: what Stockpot claims, measured. `stockpot bench ...` and `make bench` run them.

Lives here: needle documents, accuracy, latency and memory, comparisons with transformers itself, tables and plots.
Results go to `results/` as JSON with the machine's description. Not here: tests; a benchmark measures, it does not pass
or fail. May import `engine`, `kernels` and, for invented facts, `training`.
"""
