"""The border between `ingest` and a format's module: the options it takes and the content it returns."""

from collections.abc import Callable
from dataclasses import dataclass, field

from ingest.document import Page, TocEntry
from ingest.limits import Limits


def _ignore(done: int, total: int) -> None:
    """Take a report of progress that nobody waits for."""


@dataclass(frozen=True)
class ConvertOptions:
    """Everything that a format's `convert` may need besides the file."""

    limits: Limits = field(default_factory=Limits)
    password: str | None = None  # for encrypted PDFs
    ocr: bool | None = None  # None: pages without text, where Tesseract is installed; False: never; True: demanded
    on_page: Callable[[int, int], None] = _ignore  # takes (pages done, pages in all)


@dataclass(frozen=True)
class Content:
    """The pages of a file, before they become a `Document`."""

    pages: list[Page]
    toc: list[TocEntry]
    titles: list[str | None]  # candidates for the document's title, best first
    warnings: list[str]
