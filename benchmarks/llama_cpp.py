"""Runs llama.cpp beside Stockpot, in another interpreter that has the package llama-cpp-python.

The package is never a dependency: it is built where it is wanted, and named by the path of its interpreter.
"""

from __future__ import annotations

import argparse
import json
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

CHATS = """
import json, sys, time
began = time.monotonic()
from llama_cpp import Llama
asked = json.load(sys.stdin)
model = Llama(asked["model"], n_ctx=asked["window"], n_threads=asked["threads"], n_threads_batch=asked["threads"],
              verbose=False)
for messages, most in asked["chats"]:
    said = model.create_chat_completion(messages, temperature=0.0, max_tokens=most)
    line = {"answer": said["choices"][0]["message"]["content"], "tokens": said["usage"]["prompt_tokens"],
            "seconds": time.monotonic() - began, "cpu": time.process_time()}
    print(json.dumps(line), flush=True)
"""
Chat = tuple[list[dict[str, str]], int]
"""The messages of a chat, and the most tokens of its answer."""


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


def chat_answers(
    python: Path, file: Path, chats: Sequence[Chat], window: int, threads: int
) -> Iterator[dict[str, Any]]:
    """Yield llama.cpp's greedy answer to each chat; it keeps what it has read of the one before.

    Args:
        python: an interpreter with llama-cpp-python.
        file: the model's GGUF file.
        chats: messages, and the most tokens of each answer.
        window: tokens that the model may see at once.
        threads: CPU threads.

    Yields:
        `answer`; `tokens` of its prompt; `seconds` since llama.cpp was started; `cpu`, seconds of processor time.

    Raises:
        RuntimeError: llama.cpp failed; with its message.
    """
    asked = {"model": str(file), "chats": list(chats), "window": window, "threads": threads}
    for line in run_script(python, CHATS, asked).splitlines():
        yield json.loads(line)
