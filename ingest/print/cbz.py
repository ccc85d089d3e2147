"""Comics (CBZ): an archive of pictures, each a page whose text Tesseract recognises where it is installed."""

import re
import zipfile
from pathlib import Path

from ingest.conversion import Content, ConvertOptions
from ingest.errors import EmptyDocument
from ingest.print import pdf
from ingest.wording import count, listed

_UNREAD = re.compile(r"\.(?:webp|avif|jxl)$", re.IGNORECASE)  # MuPDF leaves these pictures out


def convert(path: Path, options: ConvertOptions) -> Content:
    """Convert the pictures, in the order of their names, to pages of text.

    Raises:
        IngestError: as for a PDF of scans.
    """
    with zipfile.ZipFile(path) as archive:
        unread = sorted(name for name in archive.namelist() if _UNREAD.search(name))
        pictures = [name for name in archive.namelist() if not name.endswith("/")]
    said = f"Not read: {count(len(unread), 'picture')} (WebP, AVIF or JPEG XL): {listed(unread, 6)}. Save them as PNG."
    if unread and len(unread) == len(pictures):
        raise EmptyDocument(f"{path.name} has no page that can be read. {said}")
    content = pdf.convert(path, options, "cbz")
    return Content(content.pages, content.toc, content.titles, [*content.warnings, *([said] if unread else [])])
