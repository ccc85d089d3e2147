"""Whether the hub can be asked, and the weights that it has.

Without a network huggingface_hub tries for half a minute to fetch a file, and that for each file that a model in its
cache never had; so it is looked once, before, whether anybody answers.
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
_FORBIDDEN = constants.HF_HUB_OFFLINE  # as a person set it: then the hub is never asked


def hub_is_silent(source: str) -> bool:
    """Whether a hub id can only be looked for in the cache, to which huggingface_hub is then kept; False for a path."""
    try:
        validate_repo_id(source)
    except HFValidationError:
        return False
    if not _FORBIDDEN:
        constants.HF_HUB_OFFLINE = False
        constants.HF_HUB_OFFLINE = not _answers()
    return bool(constants.HF_HUB_OFFLINE)


def fetched(source: str) -> Path:
    """The folder of the cache with the weights of a hub id, which are fetched if they are not there."""
    single = cached_file(source, SAFE_WEIGHTS_NAME, _raise_exceptions_for_missing_entries=False)
    if single is not None:
        return Path(single).parent
    index = cached_file(source, SAFE_WEIGHTS_INDEX_NAME)
    assert index is not None
    get_checkpoint_shard_files(source, index)  # type: ignore[no-untyped-call]
    return Path(index).parent


def _answers() -> bool:
    """Whether anything comes back, in a thread: looking up a name may take longer than any timeout allows."""
    answers: list[int] = []

    def knock() -> None:
        with suppress(Exception):  # whatever it is, it is no answer
            answers.append(get_session().head(constants.ENDPOINT, timeout=WAIT_SEC).status_code)

    thread = threading.Thread(target=knock, daemon=True)
    thread.start()
    thread.join(WAIT_SEC)
    return bool(answers)
