"""Short names of models: the last part of a path or hub id, or its beginning, such as "qwen3-8b"."""

import difflib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from app.errors import Ambiguous, UsageError
from app.formatting import either
from app.home import home_folder
from app.machine.found_models import found_models
from app.machine.model_names import GGUF, POCKET, SMOLLM2
from app.machine.recommended import RECOMMENDED

MODELS = "models"
"""Folder in the home for models."""
MOST_SHOWN = 5
"""Most models that are named when several are meant."""
_ENDS = "-._:"
"""Signs that end a part of a name."""

Names = Mapping[str, str]
"""Short names in small letters, with the names that they stand for."""


def full_name(short: str, home: str | Path | None = None) -> str:
    """Return the path or hub id of the model that a short name means: one on this machine before a recommended one.

    home: the home folder; None for the default one.

    Raises:
        Ambiguous: the name begins those of several models.
        UsageError: there is no such model, here or among the recommended ones.
    """
    groups = (_of_home(home_folder(home)), _of_programs(), _of_the_cache(), recommended_names())
    known = list(groups)
    for names in known:
        if found := meant(short, names):
            return found
    near = nearest(short, [POCKET, SMOLLM2, *(name for names in known for name in names)])
    shown = next((names[near] for names in known if near in names), near)
    hint = f"Did you mean {shown}?" if near else "Give a path, or a hub id such as Qwen/Qwen3-0.6B."
    raise UsageError(f"No model is called {short!r}: {hint} `stockpot models` lists those here and others.")


def meant(short: str, names: Names) -> str | None:
    """Return the name that a short name stands for among others; None if none fits.

    Raises:
        Ambiguous: it begins several.
    """
    wanted = short.lower()
    if wanted in names:
        return names[wanted]
    found = sorted({full for name, full in names.items() if name.startswith(wanted) and name[len(wanted)] in _ENDS})
    if len(found) > 1:
        rest = ["another"] if len(found) > MOST_SHOWN else []
        raise Ambiguous(f"{short!r} fits several models: did you mean {either([*found[:MOST_SHOWN], *rest])}?")
    return found[0] if found else None


def nearest(short: str, names: Iterable[str]) -> str:
    """Return the name that is most like a short one; "" if none is."""
    return next(iter(difflib.get_close_matches(short.lower(), list(names), n=1)), "")


def recommended_names() -> Names:
    """Return the short names of the recommended models."""
    return {_last(each.name): each.name for each in RECOMMENDED}


def _of_home(home: Path) -> Names:
    folder = home / MODELS
    folders = {path.parent.name.lower(): str(path.parent.resolve()) for path in folder.glob("*/config.json")}
    return folders | {path.stem.lower(): str(path.resolve()) for path in folder.glob(f"*{GGUF}")}


def _of_programs() -> Names:
    return {_last(each.name): str(each.path) for each in found_models()}


def _of_the_cache() -> Names:
    return {_last(name): name for name in _cached()}


def _cached() -> Iterator[str]:
    from huggingface_hub import constants

    for folder in Path(constants.HF_HUB_CACHE).glob("models--*"):
        yield folder.name.removeprefix("models--").replace("--", "/")


def _last(name: str) -> str:
    return name.rpartition("/")[2].lower()
