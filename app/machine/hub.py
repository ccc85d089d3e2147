"""Names of models on the hub, and the hub's errors as sentences for people."""

import difflib
import json
from collections.abc import Iterator
from contextlib import contextmanager

from app.errors import AppError, NotFound, Unreachable, UsageError
from app.machine.gguf_names import split_tag
from app.machine.model_names import POCKET, SMOLLM2, split_model
from app.machine.recommended import RECOMMENDED
from app.machine.short_names import meant, near_names, recommended_names


def hub_id(name: str) -> str:
    """Return the hub id for a name, with the tag of a GGUF file if it has one, or that of a recommended model.

    Raises:
        UsageError: the name is neither.
        Ambiguous: it is the beginning of several.
    """
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]  # looked up when asked for

    plain = split_model(name)[0]
    if plain in (POCKET, SMOLLM2):
        raise UsageError(f"{plain} comes with Stockpot and is not fetched from the hub: `stockpot models` lists it.")
    if "/" not in plain:
        short = recommended_names()
        if found := meant(plain, short):
            return found
        near = near_names(plain, short)
        hint = f"Did you mean {near}?" if near else "Give a hub id, such as Qwen/Qwen3-0.6B."
        raise UsageError(f"No recommended model is called {plain!r}. {hint}")
    try:
        validate_repo_id(split_tag(plain)[0])
    except HFValidationError:
        raise UsageError(f"{plain!r} is no hub id: give one, such as Qwen/Qwen3-0.6B.") from None
    return plain


@contextmanager
def explain_hub_errors(name: str) -> Iterator[None]:
    """Turn errors of huggingface_hub, and Ctrl-C, into AppErrors with a sentence. name: the model asked for."""
    from huggingface_hub import constants
    from huggingface_hub.errors import (  # type: ignore[attr-defined]  # HTTPError is whoever's the client is
        GatedRepoError,
        HfHubHTTPError,
        HTTPError,
        LocalEntryNotFoundError,
        OfflineModeIsEnabled,
        RepositoryNotFoundError,
    )

    page = f"{constants.ENDPOINT}/{name}"
    tokens = f"{constants.ENDPOINT}/settings/tokens"
    again = "try again, which goes on from what has come"
    try:
        yield
    except GatedRepoError:
        raise AppError(
            f"{name} is gated: accept its licence at {page}, make a token at {tokens}, put it "
            "into the variable HF_TOKEN, and try again."
        ) from None
    except RepositoryNotFoundError:
        near = difflib.get_close_matches(name, [each.name for each in RECOMMENDED if each.name != name], n=1)
        meant = f"Did you mean {near[0]}?" if near else "See how it is spelled there."
        raise NotFound(
            f"The hub has no model {name}, or a private one, which needs a token in the variable HF_TOKEN. {meant}"
        ) from None
    except OfflineModeIsEnabled:
        raise Unreachable("The variable HF_HUB_OFFLINE forbids asking the hub: unset it, and try again.") from None
    except HfHubHTTPError as error:
        if error.response.status_code in (401, 403):
            raise AppError(
                f"The hub does not let this token have {name}: make one that may read it at {tokens}, and put it into "
                "the variable HF_TOKEN."
            ) from error
        raise AppError(f"The hub refused with status {error.response.status_code}: try again later.") from error
    except (HTTPError, LocalEntryNotFoundError, json.JSONDecodeError) as error:  # a page of the network instead of JSON
        raise Unreachable(
            f"The hub ({constants.ENDPOINT}) does not answer: see that this machine has a network, then {again}."
        ) from error
    except KeyboardInterrupt:
        raise AppError(f"Stopped. To have the rest of {name}, {again}.") from None
