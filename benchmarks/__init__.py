"""Benchmarks: measurements of Stockpot's claims. Run them with `stockpot bench ...` or `make bench`.

Lives here: needle documents, accuracy, latency and memory, comparisons with transformers, tables and plots. Results go
to `results/` as JSON with a description of the machine. Not here: tests; a benchmark measures, it does not pass or
fail. May import `engine`, `kernels` and, for invented facts, `training`.
"""
