"""The formats that are read: one row each, and one file each for those that are text or markup at heart.

A new format needs a module with `convert(path, options)` and a row below. Everything else reads the rows: detection,
the suffixes that are looked for in folders, and the sentences that name the formats to a person.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ingest.sample import ArchiveSample, Sample

if TYPE_CHECKING:
    from ingest.conversion import Content, ConvertOptions


@dataclass(frozen=True, kw_only=True)
class Format:
    """One format: its names, how it is recognised, and where it is converted."""

    name: str  # as `Document.format` has it; also its usual suffix
    title: str  # as a person reads it in a list of formats
    module: str  # holds `convert`; imported when the first such file comes, as some packages load slowly
    suffixes: tuple[str, ...]  # in lower case, without dots
    line_suffixes: tuple[str, ...] = ()  # more suffixes, not looked for in folders; every line of such a file is kept
    signature: Callable[[Sample], bool] | None = None  # recognises it by fixed bytes near its beginning
    is_open_xml: bool = False  # an Open XML package; its name is the kind that the package says
    in_archive: Callable[[ArchiveSample], bool] | None = None  # recognises another ZIP archive of it
    in_text: Callable[[Sample], bool] | None = None  # recognises it among texts
    is_quoted: bool = False  # other texts may quote it, so those are recognised first
    by_suffix: bool = False  # a text that nothing else recognises is of this format if its suffix says so
    is_strict: bool = False  # a file with its suffix and other content is damaged
    page_noun: str = "section"  # as a person calls one `Page`
    scan_advice: str = ""  # the way to have text in pictures recognised

    @property
    def has_fixed_pages(self) -> bool:
        """True if its pages are printed ones or slides. Other formats are cited by section and paragraph."""
        return self.page_noun != "section"

    def recognises_archive(self, archive: ArchiveSample) -> bool:
        """Return whether a ZIP archive is a file of this format."""
        if self.is_open_xml:
            return archive.open_xml == self.name
        return self.in_archive is not None and self.in_archive(archive)

    def convert(self, path: Path, options: ConvertOptions) -> Content:
        """Convert a file of this format.

        Raises:
            IngestError: the file cannot be converted.
        """
        content: Content = importlib.import_module(self.module).convert(path, options)
        return content


_ROWS = (
    Format(
        name="cbz",
        title="comic (CBZ)",
        module="ingest.print.cbz",
        suffixes=("cbz",),
        in_archive=lambda archive: archive.is_comic,
        page_noun="page",
        scan_advice="If they are scans, install Tesseract with its language data and read the file again with OCR.",
    ),
    Format(
        name="doc",
        title="Word document of before 2007",
        module="ingest.office.legacy",
        suffixes=("doc", "dot"),
        signature=lambda sample: sample.old_office == "doc",
    ),
    Format(
        name="docx",
        title="Word document",
        module="ingest.office.docx",
        suffixes=("docx", "docm", "dotx", "dotm"),
        is_open_xml=True,
        is_strict=True,
    ),
    Format(
        name="eml",
        title="e-mail",
        module="ingest.formats.mail",
        suffixes=("eml", "emlx"),
        in_text=lambda sample: sample.is_mail and sample.named != "mhtml",
        is_quoted=True,
    ),
    Format(
        name="epub",
        title="EPUB",
        module="ingest.formats.epub",
        suffixes=("epub",),
        in_archive=lambda archive: archive.is_epub,
        is_strict=True,
    ),
    Format(
        name="fb2",
        title="FictionBook",
        module="ingest.formats.fb2",
        suffixes=("fb2",),
        in_archive=lambda archive: not archive.open_xml and len(archive.ending(".fb2")) == 1,
        in_text=lambda sample: sample.has_element(b"FictionBook"),
        is_strict=True,
    ),
    Format(
        name="html",
        title="HTML",
        module="ingest.formats.html",
        suffixes=("html", "htm", "xhtml"),
        in_text=lambda sample: sample.is_html,
        is_quoted=True,
        by_suffix=True,
    ),
    Format(
        name="mbox",
        title="mailbox (mbox)",
        module="ingest.formats.mbox",
        suffixes=("mbox", "mbx"),
        in_text=lambda sample: sample.is_mailbox,
    ),
    Format(
        name="md",
        title="Markdown",
        module="ingest.formats.markdown",
        suffixes=("md", "markdown", "mdown"),
        by_suffix=True,
    ),
    Format(
        name="mhtml",
        title="web archive (MHTML)",
        module="ingest.formats.mail",
        suffixes=("mhtml", "mht"),
        in_text=lambda sample: sample.is_mail and sample.named == "mhtml",
    ),
    Format(
        name="mobi",
        title="MOBI",
        module="ingest.formats.mobi",
        suffixes=("mobi", "azw", "prc", "pdb"),
        signature=lambda sample: sample.head[60:68] in (b"BOOKMOBI", b"TEXtREAd"),
        is_strict=True,
    ),
    Format(
        name="msg",
        title="mail of Outlook",
        module="ingest.formats.msg",
        suffixes=("msg",),
        signature=lambda sample: sample.is_outlook,
        is_strict=True,
    ),
    Format(
        name="odp",
        title="OpenDocument presentation",
        module="ingest.office.odp",
        suffixes=("odp", "otp", "fodp"),
        in_archive=lambda archive: archive.is_open_document("presentation"),
        in_text=lambda sample: sample.is_open_document("presentation"),
        page_noun="slide",
        scan_advice="If they are pictures of text, save the presentation as PDF and read that with OCR.",
    ),
    Format(
        name="ods",
        title="OpenDocument sheet",
        module="ingest.office.ods",
        suffixes=("ods", "ots", "fods"),
        in_archive=lambda archive: archive.is_open_document("spreadsheet"),
        in_text=lambda sample: sample.is_open_document("spreadsheet"),
    ),
    Format(
        name="odt",
        title="OpenDocument text",
        module="ingest.office.odt",
        suffixes=("odt", "ott", "odm", "fodt"),
        in_archive=lambda archive: archive.is_open_document("text"),
        in_text=lambda sample: sample.is_open_document("text"),
    ),
    Format(
        name="pdf",
        title="PDF",
        module="ingest.print.pdf",
        suffixes=("pdf",),
        signature=lambda sample: sample.is_pdf,
        is_strict=True,
        page_noun="page",
        scan_advice="If they are scans, install Tesseract with its language data and read the file again with OCR.",
    ),
    Format(
        name="ppt",
        title="PowerPoint presentation of before 2007",
        module="ingest.office.legacy",
        suffixes=("ppt", "pps", "pot"),
        signature=lambda sample: sample.old_office == "ppt",
        page_noun="slide",
        scan_advice="If they are pictures of text, save the presentation as PDF and read that with OCR.",
    ),
    Format(
        name="pptx",
        title="PowerPoint presentation",
        module="ingest.office.pptx",
        suffixes=("pptx", "pptm", "ppsx", "ppsm", "potx", "potm"),
        is_open_xml=True,
        is_strict=True,
        page_noun="slide",
        scan_advice="If they are pictures of text, save the presentation as PDF and read that with OCR.",
    ),
    Format(
        name="rtf",
        title="RTF document",
        module="ingest.formats.rtf",
        suffixes=("rtf",),
        signature=lambda sample: sample.head.startswith(b"{\\rtf"),
    ),
    Format(
        name="txt",
        title="plain text",
        module="ingest.formats.text",
        suffixes=("txt", "text"),
        line_suffixes=(
            *("csv", "tsv", "tab", "log", "json", "jsonl", "ndjson", "yaml", "yml", "toml", "ini", "cfg", "conf"),
            *(
                "env",
                "properties",
                "srt",
                "vtt",
                "sbv",
                "sub",
                "lrc",
                "diff",
                "patch",
                "py",
                "pyi",
                "ipynb",
                "js",
                "mjs",
            ),
            *("jsx", "ts", "tsx", "java", "kt", "kts", "scala", "groovy", "go", "rs", "c", "f", "h", "m", "r", "s"),
            *("cc", "cpp", "cxx", "hh", "hpp", "cs", "mm", "swift", "rb", "pl", "pm", "php", "lua", "jl", "hs", "ml"),
            *("clj", "ex", "exs", "erl", "dart", "zig", "f90", "pas", "vb", "asm", "sh", "bash", "zsh", "fish", "ps1"),
            *("bat", "cmd", "sql", "css", "scss", "less", "proto", "cmake", "gradle", "tf", "vue", "svelte"),
        ),
        by_suffix=True,
    ),
    Format(
        name="xls",
        title="Excel workbook of before 2007",
        module="ingest.office.legacy",
        suffixes=("xls", "xlt"),
        signature=lambda sample: sample.old_office == "xls",
    ),
    Format(
        name="xlsx",
        title="Excel workbook",
        module="ingest.office.xlsx",
        suffixes=("xlsx", "xlsm", "xltx", "xltm"),
        is_open_xml=True,
        is_strict=True,
    ),
    Format(
        name="xps",
        title="XPS document",
        module="ingest.print.xps",
        suffixes=("xps", "oxps"),
        in_archive=lambda archive: bool(archive.ending(".fdseq", ".fdoc")),
        is_strict=True,
        page_noun="page",
        scan_advice="If they are scans, install Tesseract with its language data and read the file again with OCR.",
    ),
)

FORMATS: dict[str, Format] = {row.name: row for row in _ROWS}
"""Every format by its name."""

SUFFIXES: dict[str, Format] = {suffix: row for row in _ROWS for suffix in row.suffixes}
"""The format of each suffix that is looked for in folders."""


def suffix_of(path: Path) -> str:
    """Return a file's suffix as the rows have it: in lower case, without its dot."""
    return path.suffix.casefold().lstrip(".")


def format_titles() -> str:
    """Return the formats as a person reads them: "e-mail, EPUB, ..., Word document"."""
    return ", ".join(sorted((row.title for row in _ROWS), key=str.casefold))


def formats_once(sentences: Sequence[str]) -> list[str]:
    """Return sentences about several files, with the list of the formats that are read only in the last that has it."""
    listing = f" Stockpot reads {format_titles()}."
    last = max((number for number, each in enumerate(sentences) if each.endswith(listing)), default=0)
    return [each if number == last else each.removesuffix(listing) for number, each in enumerate(sentences)]
