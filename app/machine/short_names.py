"""Short names of models: the last part of a path or hub id, or its beginning, such as "qwen3-8b"."""

import difflib
from collections import ChainMap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from app.errors import Ambiguous, UsageError
from app.formatting import either
from app.home import MODELS, home_folder
from app.machine.found_models import found_models
from app.machine.model_names import GGUF, POCKET, SMOLLM2
from app.machine.recommended import RECOMMENDED

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
    shipped = {POCKET: POCKET, SMOLLM2: SMOLLM2}
    near = near_names(short, dict(ChainMap(shipped, *(dict(names) for names in known))))
    hint = f"Did you mean {near}?" if near else "Give a path, or a hub id such as Qwen/Qwen3-0.6B."
    raise UsageError(
        f"No model is called {short!r}. {hint} `stockpot models` lists those here and others, and "
        "`stockpot models get NAME` fetches one."
    )


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
        raise Ambiguous(f"{short!r} fits several models: did you mean {_either(found)}?")
    return found[0] if found else None


def near_names(short: str, names: Names) -> str:
    """Return in words the names that begin with a short one, else the one most like it; "" if there is none."""
    wanted = short.lower()
    begun = sorted({full for name, full in names.items() if name.startswith(wanted)})
    return _either(begun or [names[each] for each in difflib.get_close_matches(wanted, names, n=1)])


def _either(names: Sequence[str]) -> str:
    """Return names to choose from in words, at most MOST_SHOWN of them; "" for none."""
    rest = ["another"] if len(names) > MOST_SHOWN else []
    return either([*names[:MOST_SHOWN], *rest]) if names else ""


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
