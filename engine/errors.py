"""Errors of the engine, as one tree.

    EngineError
    ├── SettingsError       a method, budget or sampling setting is invalid
    ├── ModelError
    │   ├── ModelNotFound       no model at that path or id
    │   └── UnsupportedModel    an architecture that was not shown to match transformers
    ├── WeightsError        trained weights beside the model: missing, damaged, or for another model
    │   └── NoSuchWeights       no such weights are possible for this model
    ├── ContextMismatch     saved state of another model, method or text
    └── OutOfMemory         device or host memory does not suffice

Every message names the finding, the expectation and the next step. Only `app` phrases them for the screen.
"""


class EngineError(Exception):
    """Base of all errors the engine raises on purpose."""


class SettingsError(EngineError):
    """A setting is out of range, unknown or contradicts another one."""


class ModelError(EngineError):
    """The model cannot be used."""


NO_NUMBERS = (
    "its weights are damaged, or too large for the type that it computes in. Fetch it anew, or choose another model."
)
"""The cause of logits that are not finite, and the next step."""


class ModelNotFound(ModelError):
    """There is no model at the given path or hub id."""


class UnsupportedModel(ModelError):
    """The architecture is not in the table of architectures shown to match transformers."""


class WeightsError(EngineError):
    """Weights that a method needs beside the model are missing, damaged, or made for another model."""


class NoSuchWeights(WeightsError):
    """No such weights are possible for this model, whoever trains them."""


class ContextMismatch(EngineError):
    """Saved state does not belong to this model, method or text."""


class OutOfMemory(EngineError):
    """Device or host memory is exhausted."""


def require(condition: bool, message: str) -> None:
    """Raise SettingsError with the message unless the condition holds."""
    if not condition:
        raise SettingsError(message)
