"""The same questions to llama.cpp, which gets the whole text before each and keeps what it has read of it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.llama_cpp import run_script
from benchmarks.way_in.questions import Question

ASKED = """
import json, sys, time
began = time.monotonic()
from llama_cpp import Llama
asked = json.load(sys.stdin)
model = Llama(asked["model"], n_ctx=asked["window"], n_threads=asked["threads"], n_threads_batch=asked["threads"],
              verbose=False)
for question in asked["questions"]:
    messages = [{"role": "user", "content": asked["text"] + "\\n\\n" + question}]
    said = model.create_chat_completion(messages, temperature=0.0, max_tokens=asked["most"])
    line = {"answer": said["choices"][0]["message"]["content"], "tokens": said["usage"]["prompt_tokens"],
            "seconds": time.monotonic() - began, "cpu": time.process_time()}
    print(json.dumps(line), flush=True)
"""


def ask(
    python: Path, file: Path, text: str, questions: Sequence[Question], window: int, most: int, threads: int
) -> Iterator[tuple[str, int, float, float]]:
    """Yield each answer, the tokens of its prompt, and the seconds since llama.cpp was started, also of processors.

    Args:
        python: an interpreter with llama-cpp-python.
        file: the model's GGUF file.
        text: the whole text.
        questions: the questions.
        window: tokens that the model may see at once.
        most: most tokens of an answer.
        threads: CPU threads.

    Raises:
        RuntimeError: llama.cpp failed; with its message.
    """
    asked = {"model": str(file), "text": text, "questions": [each.text for each in questions]}
    limits = {"window": window, "most": most, "threads": threads}
    for line in run_script(python, ASKED, asked | limits).splitlines():
        said = json.loads(line)
        yield said["answer"], said["tokens"], said["seconds"], said["cpu"]
