"""Fetch weights from the hub, after one short request that shows whether it answers.

Without a network, huggingface_hub tries for half a minute to fetch a file, and does so for each file that a cached
model never had.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from pathlib import Path

from huggingface_hub import constants, get_session
from huggingface_hub.errors import HFValidationError
from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]  # public, but looked up when asked for
from transformers.utils import SAFE_WEIGHTS_INDEX_NAME, SAFE_WEIGHTS_NAME
from transformers.utils.hub import cached_file, get_checkpoint_shard_files

WAIT_SEC = 4.0
_FORBIDDEN = constants.HF_HUB_OFFLINE  # set by the user: the hub is never asked


def hub_is_silent(source: str) -> bool:
    """Return whether the hub does not answer; then huggingface_hub is limited to its cache. False for a path."""
    try:
        validate_repo_id(source)
    except HFValidationError:
        return False
    if not _FORBIDDEN:
        constants.HF_HUB_OFFLINE = False
        constants.HF_HUB_OFFLINE = not _answers()
    return bool(constants.HF_HUB_OFFLINE)


def hub_answers() -> bool:
    """Return whether the hub answers now. It is not asked if the user forbids that."""
    return not _FORBIDDEN and _answers()


def fetched(source: str) -> Path:
    """Return the folder of the cache with the weights of a hub id; fetch them if they are not there."""
    single = cached_file(source, SAFE_WEIGHTS_NAME, _raise_exceptions_for_missing_entries=False)
    if single is not None:
        return Path(single).parent
    index = cached_file(source, SAFE_WEIGHTS_INDEX_NAME)
    assert index is not None
    get_checkpoint_shard_files(source, index)  # type: ignore[no-untyped-call]
    return Path(index).parent


def _answers() -> bool:
    """Return whether the hub answers in time. In a thread, since resolving its name may outlast any timeout."""
    answers: list[int] = []

    def knock() -> None:
        with suppress(Exception):  # any error means no answer
            answers.append(get_session().head(constants.ENDPOINT, timeout=WAIT_SEC).status_code)

    thread = threading.Thread(target=knock, daemon=True)
    thread.start()
    thread.join(WAIT_SEC)
    return bool(answers)
