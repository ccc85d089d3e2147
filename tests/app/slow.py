"""Keep readings and answers under way until a test has looked at them, on any machine.

As a program it is `stockpot`, held back as long as a file exists:

    python -m tests.app.slow FILE serve --port 7910

A reading that is held back stays after its first pass, which it reports again and again. An answer rests after each
piece. Both still react to a stop or a question, and go on at full speed when they are released. If the file has the
word FULL in it, the memory ends after the first pass instead, as PyTorch says it. The random weights of tests look
everywhere a little, so every place is a source. They repeat themselves, on some processors sooner than on others, so
no repetition ends an answer.
"""

import sys
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, cast

import engine
from app.asking import answers, sources
from app.cli import main

REST_SEC = 0.05
REST_BETWEEN_PIECES_SEC = 0.2  # a page can be loaded again while an answer of some tens of pieces is held back
FULL = "full"
NO_MEMORY = "DefaultCPUAllocator: can't allocate memory: you tried to allocate 4096 bytes."


def hold_back(
    held: Callable[[], bool],
    patch: Callable[[type, str, Any], None] = setattr,
    full: Callable[[], bool] = lambda: False,
) -> None:
    """Hold readings and answers of this process back while `held` returns True.

    Args:
        held: the condition.
        patch: function that replaces an attribute.
        full: whether the memory ends after the first pass of a reading.
    """
    run, ask = engine.Reader.run, engine.Conversation.ask

    def wading(self: engine.Reader) -> Iterator[engine.ReadProgress]:
        for progress in run(self):
            yield progress
            if full():
                raise RuntimeError(NO_MEMORY)
            while held() and not self.finished:
                time.sleep(REST_SEC)
                yield progress

    def halting(self: engine.Conversation, *given: Any, **more: Any) -> Iterator["engine.AnswerPiece | engine.Answer"]:
        asked = cast(Generator[engine.AnswerPiece | engine.Answer], ask(self, *given, **more))
        with closing(asked) as events:
            for event in events:
                yield event
                if held():
                    time.sleep(REST_BETWEEN_PIECES_SEC)

    patch(engine.Reader, "run", wading)
    patch(engine.Conversation, "ask", halting)


def run() -> int:
    """Run `stockpot`, held back by the file that the first argument names, and return its exit status."""
    file = Path(sys.argv[1])
    hold_back(file.exists, full=lambda: file.exists() and file.read_text() == FULL)
    return main(sys.argv[2:])


if __name__ == "__main__":
    sources.LEAST_SHARE = 0.0
    answers.repetition_start = lambda text: None
    sys.exit(run())
