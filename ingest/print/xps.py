"""XPS documents, through MuPDF: pages of print, as in a PDF."""

from pathlib import Path

from ingest.conversion import Content, ConvertOptions
from ingest.print import pdf


def convert(path: Path, options: ConvertOptions) -> Content:
    """Convert an XPS document to pages of text.

    Raises:
        IngestError: as for a PDF.
    """
    return pdf.convert(path, options, "xps")
