"""From whatever transformers and its like raise about a model's files to one sentence that says what is wrong."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from engine.errors import EngineError, ModelError, ModelNotFound
from engine.measure import is_out_of_memory

POINTER = b"version https://git-lfs"  # what a clone without git-lfs has in place of a large file
ANEW = "fetch the checkpoint anew, or see that config.json is its own"  # what to do about tensors that do not fit it


@contextmanager
def load_errors_as(kind: type[ModelError], what: str) -> Iterator[None]:
    """While in it, an error is raised anew as `kind`: "what: its cause.". The engine's own pass, and want of memory."""
    try:
        yield
    except EngineError:
        raise
    except Exception as error:
        if is_out_of_memory(error):
            raise
        raise kind(f"{what}: {cause_of(error)}.") from error


def cause_of(error: BaseException) -> str:
    """What an error says, as half a sentence: the first one of the error that it came from."""
    root = error.__cause__ or error
    said = " ".join(str(root.args[0] if isinstance(root, KeyError) and root.args else root).split())
    first = re.split(r"(?<=[.!?])\s", said)[0].rstrip(".!")
    return first if " " in first else f"{type(root).__name__} {first}".rstrip()


def refuse_pointers(paths: Iterable[Path]) -> None:
    """Refuse files that a clone without git-lfs has left out; what is no file is let be.

    Raises:
        ModelNotFound: naming the first.
    """
    for path in filter(Path.is_file, paths):
        with path.open("rb") as file:
            if file.read(len(POINTER)) == POINTER:
                raise ModelNotFound(
                    f"{path} is a git-lfs pointer and not the file itself: run 'git lfs pull' in its folder."
                )
