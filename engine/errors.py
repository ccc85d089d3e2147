"""What can go wrong in the engine, as one tree.

    EngineError
    ├── SettingsError       a method, budget or sampling setting that cannot be
    ├── ModelError
    │   ├── ModelNotFound       no model at that path or id
    │   ├── UnsupportedModel    an architecture the engine has not been shown to match
    │   └── WeightsError        trained weights beside the model: missing, damaged, or for another model
    │       └── NoSuchWeights       there can be none for this model
    ├── ContextMismatch     saved state that belongs to another model, method or text
    └── OutOfMemory         the device or host memory does not suffice

Every message says what was found, what was wanted and what to do next. Only `app` phrases them for the screen.
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
"""Why a model's numbers are none, and what to do."""


class ModelNotFound(ModelError):
    """There is no model at the given path or hub id."""


class UnsupportedModel(ModelError):
    """The architecture is not in the table of architectures shown to match transformers."""


class WeightsError(ModelError):
    """Weights that a method needs beside the model's own are missing, damaged, or made for another model."""


class NoSuchWeights(WeightsError):
    """No weights of that kind can be for this model, whoever trains them."""


class ContextMismatch(EngineError):
    """Saved state does not belong to this model, method or text."""


class OutOfMemory(EngineError):
    """Device or host memory is exhausted."""


def require(condition: bool, message: str) -> None:
    """Raise SettingsError with the message unless the condition holds."""
    if not condition:
        raise SettingsError(message)
