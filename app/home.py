"""Where things are: the home folder, what ships with the program, and which model a name stands for."""

import os
from pathlib import Path

ASSETS = Path(__file__).resolve().parent.parent / "assets"
SAMPLE_SUFFIXES = (".epub", ".pdf", ".txt", ".html")


def home_folder(given: str | Path | None) -> Path:
    """The home folder: `given`, else $STOCKPOT_HOME, else ~/.stockpot. Not made here."""
    return Path(given or os.environ.get("STOCKPOT_HOME") or "~/.stockpot").expanduser().resolve()


def sample_book() -> Path | None:
    """The book that ships with the program; None if this installation has none."""
    found = [path for suffix in SAMPLE_SUFFIXES for path in sorted((ASSETS / "sample").glob(f"*{suffix}"))]
    return found[0] if found else None
