"""Trials of reliability: nothing lost by a kill, nothing damaged taken for whole, nothing outside the home given out.

    python -m benchmarks.trust kills            processes killed while they read and answer, over all methods
    python -m benchmarks.trust contexts         saved contexts altered by accident and on purpose
    python -m benchmarks.trust databases        databases altered
    python -m benchmarks.trust documents        files of the common formats broken
    python -m benchmarks.trust formats          files of the rarer formats broken
    python -m benchmarks.trust people           eight people at once
    python -m benchmarks.trust files            paths outside the home sent to every HTTP route
    python -m benchmarks.trust restart          a long reading killed again and again, and the numbers after it

Each draws its cases with --seed and writes `benchmarks/results/trust-NAME.json`; `python -m benchmarks.trust table`
writes the table of docs/trust.md. They need a checkout with its tests, as some files are made by the tests' makers.
"""
