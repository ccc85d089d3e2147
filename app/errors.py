"""The errors of the app, and the one place that turns errors into sentences for people.

AppError            something that a person asked for cannot be done
├── NotFound        no such document, context, session or turn
├── Ambiguous       a title or id prefix fits several things
├── Unreachable     the hub, or the package mirror, does not answer
└── UsageError      the request itself is wrong (the command line exits with 2)
"""

import logging
import sys


class AppError(Exception):
    """Base of the app's own errors; the message is a sentence for people."""


class NotFound(AppError):
    """There is no document, context, session or turn with that name."""


class Ambiguous(AppError):
    """A title or id prefix fits several things."""


class Unreachable(AppError):
    """The hub, or the package mirror, does not answer."""


class UsageError(AppError):
    """The request is malformed: an unknown setting, a value that is no number."""


# Errors whose message is a sentence for people.
_SPOKEN = (("ingest", "IngestError"), ("sessions", "StoreError"), ("engine", "EngineError"))


def _is_spoken(error: BaseException) -> bool:
    if isinstance(error, AppError):
        return True
    for module_name, class_name in _SPOKEN:
        base = getattr(sys.modules.get(module_name), class_name, None)
        if base is not None and isinstance(error, base):
            return True
    return False


def expected(error: BaseException) -> bool:
    """Return whether people cause and can mend `error`, so that it needs no traceback in the log."""
    return _is_spoken(error) or isinstance(error, OSError | MemoryError)


def log_error(log: logging.Logger, what: str, error: Exception) -> None:
    """Log an error, with its traceback if it was not expected."""
    known = expected(error)
    log.log(logging.INFO if known else logging.ERROR, "%s: %s", what, error, exc_info=None if known else error)


def wrong_usage(error: BaseException) -> bool:
    """Return whether the request itself was wrong: an unknown setting or method, a number out of range."""
    settings = getattr(sys.modules.get("engine"), "SettingsError", None)
    return isinstance(error, UsageError) or (settings is not None and isinstance(error, settings))


def phrase(error: BaseException) -> str:
    """Return a sentence for `error` that a person understands, with the next step if it is known."""
    message = str(error).strip()
    if _is_spoken(error):
        return message or type(error).__name__
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError" or "allocate memory" in message:
        return "There was not enough memory for this. A smaller budget, or a method that condenses, needs less."
    if isinstance(error, FileNotFoundError):
        return f"There is no file {error.filename}." if error.filename else message or "A file is missing."
    if isinstance(error, IsADirectoryError):
        return f"{error.filename} is a folder; name the files in it."
    if isinstance(error, PermissionError):
        return f"{error.filename} may not be opened: permission denied."
    if isinstance(error, OSError):
        where = f" ({error.filename})" if error.filename else ""
        return f"The system reported: {error.strerror or message}{where}."
    if isinstance(error, KeyboardInterrupt):
        return "Stopped."
    return f"Something unexpected went wrong ({type(error).__name__}: {message})."
