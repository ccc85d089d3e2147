"""Runs llama.cpp beside Stockpot, in another interpreter that has the package llama-cpp-python.

The package is never a dependency: it is built where it is wanted, and named by the path of its interpreter.
"""

from __future__ import annotations

import argparse
import json
import subprocess
from pathlib import Path
from typing import Any


def add_interpreter(parser: argparse.ArgumentParser) -> None:
    """Add the option that names the interpreter."""
    parser.add_argument("--llama-cpp-python", type=Path, required=True, help="an interpreter that has this package")


def run_script(python: Path, script: str, asked: dict[str, Any]) -> str:
    """Run a script that reads `asked` as JSON from its standard input, and return what it printed.

    Raises:
        RuntimeError: it failed; with its message.
    """
    run = subprocess.run([python, "-c", script], input=json.dumps(asked), text=True, capture_output=True)
    if run.returncode:
        raise RuntimeError(f"{python} cannot read {asked['model']}: {run.stderr.strip()[-500:]}")
    return run.stdout
