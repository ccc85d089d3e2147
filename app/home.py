"""The home folder, and the files that ship with the program."""

import os
from pathlib import Path

ASSETS = Path(__file__).resolve().parent.parent / "assets"
MODELS = "models"
"""Folder in the home for models."""
PACKED = "packed"
"""Folder in the home for weights that were packed for products; later starts of their models are faster."""
SAMPLE_SUFFIXES = (".epub", ".pdf", ".txt", ".html")


def home_folder(given: str | Path | None) -> Path:
    """Return the home folder: `given`, else $STOCKPOT_HOME, else ~/.stockpot. It is not created here."""
    return Path(given or os.environ.get("STOCKPOT_HOME") or "~/.stockpot").expanduser().resolve()


def sample_book() -> Path | None:
    """Return the book that ships with the program, or None."""
    found = [path for suffix in SAMPLE_SUFFIXES for path in sorted((ASSETS / "sample").glob(f"*{suffix}"))]
    return found[0] if found else None
