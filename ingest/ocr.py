"""Whether text in pictures can be recognised here: what Tesseract has data for."""

import os
from pathlib import Path


def ocr_languages() -> tuple[str, ...]:
    """The languages whose Tesseract data are installed, `eng` first; none where OCR cannot run."""
    import pymupdf  # takes a second, and few ask

    try:
        folder = Path(os.environ.get("TESSDATA_PREFIX") or pymupdf.get_tessdata())
    except RuntimeError:
        return ()
    found = sorted(file.stem for file in folder.glob("*.traineddata") if file.stem != "osd")
    return tuple(sorted(found, key=lambda language: language != "eng"))
