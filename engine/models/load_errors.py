"""Turn errors of transformers and other libraries about a model's files into one clear sentence."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from engine.errors import EngineError, ModelError, ModelNotFound
from engine.memory_usage import is_out_of_memory

POINTER = b"version https://git-lfs"  # how the stand-in for a large file begins in a clone without git-lfs
MOST_LETTERS = 200  # of a cause that a message shows
ANEW = "fetch the checkpoint anew, or see that config.json is its own"  # advice for tensors that do not fit config.json


@contextmanager
def load_errors_as(kind: type[ModelError], what: str) -> Iterator[None]:
    """Raise errors of the block anew as `kind`, with the message "what: cause.".

    Errors of the engine and of memory that ran out pass unchanged.
    """
    try:
        yield
    except EngineError:
        raise
    except Exception as error:
        if is_out_of_memory(error):
            raise
        raise kind(f"{what}: {cause_of(error)}.") from error


def cause_of(error: BaseException) -> str:
    """Return the first sentence of an error's cause, without its full stop."""
    root = error.__cause__ or error
    said = " ".join(str(root.args[0] if isinstance(root, KeyError) and root.args else root).split())
    first = re.split(r"(?<=[.!?])\s", said)[0].rstrip(".!")
    said = first if " " in first else f"{type(root).__name__} {first}".rstrip()
    return said if len(said) <= MOST_LETTERS else f"{said[:MOST_LETTERS]}…"


def refuse_pointers(paths: Iterable[Path]) -> None:
    """Refuse git-lfs pointers among these paths; paths that are no files are skipped.

    Raises:
        ModelNotFound: naming the first.
    """
    for path in filter(Path.is_file, paths):
        with path.open("rb") as file:
            if file.read(len(POINTER)) == POINTER:
                raise ModelNotFound(
                    f"{path} is a git-lfs pointer and not the file itself: run 'git lfs pull' in its folder."
                )
