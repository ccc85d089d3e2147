"""Errors of turning a file into a document.

    IngestError
    ├── UnsupportedFormat    a kind of file that Stockpot does not read
    ├── BrokenFile           the right kind of file, but it cannot be opened or is not there
    ├── PasswordNeeded       encrypted, and no password was given
    ├── WrongPassword        encrypted, and the password given does not open it
    ├── EmptyDocument        opened, but there is no text on any page
    │   └── NeedsOcr             only OCR can read it, and it was off or is not installed
    ├── TooLarge             beyond a limit: bytes, pages, characters, archive members, unpacked size
    └── OcrUnavailable       OCR, or a language of it, was demanded, and Tesseract's data for it is not installed

Every message names the file, gives the values that matter and says what to do next.
"""


class IngestError(Exception):
    """Base of every error that `ingest` raises on purpose."""


class UnsupportedFormat(IngestError):
    """The file is of a kind that is not read."""


class BrokenFile(IngestError):
    """The file is missing, unreadable, or does not have the structure it claims."""


class PasswordNeeded(IngestError):
    """The file is encrypted: ask for the password and try again."""


class WrongPassword(IngestError):
    """The password given does not open the file."""


class EmptyDocument(IngestError):
    """The file has no text on any page."""


class NeedsOcr(EmptyDocument):
    """Only OCR can read the text of the pages, and it was off or is not installed."""


class TooLarge(IngestError):
    """The file goes beyond one of the `Limits`."""


class OcrUnavailable(IngestError):
    """OCR was demanded (`ocr=True`), or a language of it (STOCKPOT_OCR_LANGUAGES), and cannot run here."""


def out_of_memory(name: str) -> BrokenFile:
    """Return the error for a file that takes all memory."""
    return BrokenFile(
        f"{name} could not be read: it takes more memory than there is. "
        "Convert it to plain text, or split it into smaller files."
    )
