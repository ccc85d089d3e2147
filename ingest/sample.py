"""Evidence for recognising a format: the beginning of a file, and the directory of an archive."""

import re
import zipfile
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from ingest.archive import Members, check_archive, read_member
from ingest.charset import wide_encoding
from ingest.limits import Limits

HEAD_BYTES = 1 << 16
MARKUP_BYTES = 4096  # markup that names a format stands this near to the beginning
OPEN_DOCUMENT = "application/vnd.oasis.opendocument"
EPUB_CONTAINER = "META-INF/container.xml"
OLE = b"\xd0\xcf\x11\xe0"
"""Beginning of the files of Office before 2007, of Outlook's mails, and of encrypted Office files."""
_OLE_BYTES = 1 << 24  # of a damaged OLE file, searched for the names of its streams
_OLE_STREAMS = ("EncryptedPackage", "__properties_version1.0", "VisioDocument", "WordDocument", "PowerPoint Document")
_OLD_OFFICE = {"WordDocument": "doc", "PowerPoint Document": "ppt", "Workbook": "xls", "Book": "xls"}
_FEW_CONTROLS = 2  # control characters that a short text may have
_MEMBER = re.compile(rb"PK\x03\x04.{22}(..)..", re.DOTALL)  # before a member's name; group 1 is the name's length
_MIMETYPE = re.compile(r"mimetype(application/[\w.+-]+?)(?:PK|[^\w.+-]|$)")
_ZIP = (b"PK\x03\x04", b"PK\x05\x06", b"PK\x07\x08")
_TEXT_BEGINS = re.compile(rb"\s*(?:<!doctype\s+html|<html[\s>])", re.IGNORECASE)
_HTML = re.compile(
    rb"<!doctype\s+html|<html[\s>]|<head[\s>]|<body[\s>]|\A\s*(?:<!--.*?-->\s*)?<(?:div|p|h1|table|meta|title|article)[\s>]",
    re.IGNORECASE | re.DOTALL,
)
_HTML_FIRST = re.compile(rb"\W*<!doctype html|\W*<html", re.IGNORECASE)
# The header lines of an e-mail. MIME-Version is among them if its text may be encoded, but not always.
_FIELDS = rb"(?:\xef\xbb\xbf|\d{1,9} *\r?\n)?(?:[!-9;-~]+:[^\n]*\n(?:[ \t][^\n]*\n)*)*?"
_MAIL = re.compile(_FIELDS + rb"MIME-Version:", re.IGNORECASE)
_NAMED_MAIL = re.compile(_FIELDS + rb"(?:MIME-Version|From|Content-Type):", re.IGNORECASE)
# The line before each mail of a mailbox: the sender and a date, or nothing more. A header of the mail follows.
_BORDER = re.compile(rb"From (?:\s*|(?=[^\n]*\d:\d\d)(?=[^\n]*\b(?:19|20)\d\d\b)[^\n]*)\n")
_LONGEST_BORDER = 300  # bytes
_HEADER = re.compile(rb"[!-9;-~]{1,100}:")
_PICTURE = re.compile(
    r"\.(?:jpe?g|jp2|jxl|png|gif|webp|bmp|tiff?|avif)$|(?:^|/)(?:comicinfo\.xml|thumbs\.db|\.ds_store)$", re.IGNORECASE
)


@dataclass(frozen=True)
class Sample:
    """The first `HEAD_BYTES` of a file, with the format that its name suggests."""

    path: Path
    head: bytes
    named: str  # the format that has the file's suffix; "" if none has
    quotes_markup: bool  # a file of this name may speak of HTML and mails without being one

    @cached_property
    def is_archive(self) -> bool:
        """True if the file is a ZIP archive, which may itself begin with a stored PDF."""
        return self.head.startswith(_ZIP)

    @cached_property
    def ole_streams(self) -> frozenset[str]:
        """Names of streams and folders at the root of an OLE file, or those that its bytes name if it is damaged."""
        if not self.head.startswith(OLE):
            return frozenset()
        import olefile  # other files do not need it

        with suppress(Exception), olefile.OleFileIO(self.path) as file:  # it raises many kinds for damaged files
            if found := frozenset(path[0] for path in file.listdir(storages=True)):
                return found
        with self.path.open("rb") as raw:
            inside = raw.read(_OLE_BYTES)
        names = (*_OLE_STREAMS, *_OLD_OFFICE)
        return frozenset(name for name in names if f"{name}\0".encode("utf-16-le") in inside)

    @property
    def is_outlook(self) -> bool:
        """True if the file is a mail, or another item, that Outlook saved."""
        return "__properties_version1.0" in self.ole_streams

    @property
    def old_office(self) -> str:
        """The kind of an Office file of before 2007 ("doc", "ppt", "xls"); "" for any other file."""
        if self.is_outlook or "EncryptedPackage" in self.ole_streams:
            return ""
        return next((kind for name, kind in _OLD_OFFICE.items() if name in self.ole_streams), "")

    @cached_property
    def begins_as_text(self) -> bool:
        """True if the file begins like a mail, mailbox or web page, all of which may hold raw pictures or a NUL."""
        return self.has_mime_header or self.is_mailbox or bool(_TEXT_BEGINS.match(self.head))

    @cached_property
    def is_wide(self) -> bool:
        """True if the file is UTF-16 or UTF-32."""
        return bool(wide_encoding(self.head))

    @cached_property
    def plain(self) -> bytes:
        """The head with one byte for each Western character."""
        return self.head.replace(b"\x00", b"") if self.is_wide else self.head

    @cached_property
    def looks_binary(self) -> bool:
        """True if there are more control characters than any text has.

        A text may hold a few NULs, or end in them. Shifts of letters and backspaces, as in manual pages, do not count.
        """
        text = self.head[:8192].rstrip(b"\x00") or self.head[:8192]
        control = sum(byte < 32 and byte not in b"\a\b\t\n\v\f\r\x0e\x0f\x1a\x1b" for byte in text)
        return control > max(_FEW_CONTROLS if len(text) > _FEW_CONTROLS * 5 else 0, len(text) / 50)

    @cached_property
    def holds_binary(self) -> bool:
        """True if there is a NUL, or the head looks binary."""
        return b"\x00" in self.head or self.looks_binary

    @cached_property
    def has_mime_header(self) -> bool:
        """True if the file begins with the header lines of an e-mail, MIME-Version among them."""
        return bool(_MAIL.match(self.head))

    @property
    def is_mail(self) -> bool:
        """True if the file is an e-mail. A name that says so needs less evidence."""
        if self.named in ("eml", "mhtml") and _NAMED_MAIL.match(self.head):
            return True
        return not self.quotes_markup and self.has_mime_header

    @cached_property
    def is_mailbox(self) -> bool:
        """True if the file begins with the border line of a mailbox."""
        first, _, after = self.plain.removeprefix(b"\xef\xbb\xbf").lstrip(b"\r\n").partition(b"\n")
        return is_mail_border(first + b"\n", after)

    @property
    def is_html(self) -> bool:
        """True if the file is a web page, or a piece of one."""
        if not self.quotes_markup and _HTML.search(self.plain[:MARKUP_BYTES]):
            return True
        return bool(_HTML_FIRST.match(self.plain))

    @property
    def is_pdf(self) -> bool:
        """True if the file is a PDF. Up to 1024 bytes may come before its signature, but a text may also mention it."""
        if self.head.lstrip().startswith(b"%PDF-"):
            return True
        return b"%PDF-" in self.head[:1024] and (self.named == "pdf" or self.holds_binary)

    def is_open_document(self, kind: str) -> bool:
        """Return whether the file is an OpenDocument file of a kind in one XML file."""
        return self.has_element(b"office:document") and b"opendocument." + kind.encode() in self.plain

    def has_element(self, pattern: bytes) -> bool:
        """Return whether a tag matches `pattern`, a regular expression, near the beginning."""
        return bool(re.search(rb"<" + pattern + rb"[\s>]", self.plain[:MARKUP_BYTES]))


def is_mail_border(line: bytes, following: bytes) -> bool:
    """Return whether a line begins a mail of a mailbox, judging by the line and the one after it."""
    if not line.startswith(b"From ") or len(line) > _LONGEST_BORDER:
        return False
    return bool(_BORDER.fullmatch(line)) and bool(_HEADER.match(following))


@dataclass(frozen=True)
class ArchiveSample:
    """The directory of a ZIP archive."""

    names: tuple[str, ...]
    mimetype: str  # as EPUB and OpenDocument declare it in a member of that name; else ""
    is_epub: bool
    is_locked: bool  # an OpenDocument file with a password
    open_xml: str  # "docx", "pptx", "xlsx", "xlsb", "visio" or ""

    def is_open_document(self, kind: str) -> bool:
        """Return whether it is an OpenDocument file of a kind that needs no password."""
        return self.mimetype.startswith(f"{OPEN_DOCUMENT}.{kind}") and not self.is_locked

    @property
    def is_comic(self) -> bool:
        """True if the archive holds nothing but pictures."""
        return bool(self.names) and all(_PICTURE.search(name) for name in self.names)

    def ending(self, *suffixes: str) -> list[str]:
        """Return the members whose names end in one of some suffixes."""
        return [name for name in self.names if name.casefold().endswith(suffixes)]


def sample_damaged_archive(head: bytes) -> ArchiveSample:
    """Return what the first members tell of a ZIP archive whose directory is lost. head: its first bytes."""
    from ingest.office.package import folder_kind

    found = [(each.end(), int.from_bytes(each[1], "little")) for each in _MEMBER.finditer(head)]
    names = tuple(head[start : start + length].decode("utf-8", errors="replace") for start, length in found)
    mimetype = typed[1] if (typed := _MIMETYPE.search(head[:200].decode("ascii", errors="replace"))) else ""
    is_epub = mimetype == "application/epub+zip" or EPUB_CONTAINER in names
    open_xml = next(filter(None, map(folder_kind, names)), "")
    return ArchiveSample(names, mimetype, is_epub, False, open_xml)


def sample_archive(path: Path, limits: Limits) -> ArchiveSample:
    """Read the directory of a ZIP archive, and the few members that tell its format.

    Raises:
        TooLarge: it must not be unpacked.
        zipfile.BadZipFile, zlib.error, OSError, EOFError, RuntimeError, ValueError: it is damaged.
    """
    from ingest.office.package import Package  # lxml is not needed for other files

    with zipfile.ZipFile(path) as archive:
        check_archive(archive, path.name, limits)
        members = Members(archive)
        mimetype = ""
        if (typed := members.find("mimetype")) and archive.getinfo(members.names[typed]).file_size < 200:
            mimetype = archive.read(members.names[typed]).decode("ascii", errors="replace").strip()
        manifest = members.find("META-INF/manifest.xml")
        is_locked = manifest is not None and (
            b"encryption-data" in read_member(archive, members.names[manifest], limits)
        )
        is_epub = mimetype == "application/epub+zip" or members.find(EPUB_CONTAINER) is not None
        open_xml = "" if is_epub else Package(archive, limits).kind
        return ArchiveSample(tuple(members.names), mimetype, is_epub, is_locked, open_xml)
