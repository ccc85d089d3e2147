"""What a file is, told by its content; its name only settles what content leaves open."""

import re
import zipfile
import zlib
from pathlib import Path

from ingest.archive import Members
from ingest.charset import wide_encoding
from ingest.document import count
from ingest.errors import BrokenFile, EmptyDocument, UnsupportedFormat
from ingest.formats import mbox
from ingest.formats.epub import CONTAINER
from ingest.formats.text import LINED
from ingest.limits import Limits, check_archive, read_member
from ingest.office.package import Package

SUPPORTED: dict[str, str] = {
    "pdf": "PDF",
    "epub": "EPUB",
    "fb2": "FictionBook",
    "mobi": "MOBI",
    "txt": "plain text",
    "md": "Markdown",
    "html": "HTML",
    "mhtml": "web archive (MHTML)",
    "eml": "e-mail",
    "mbox": "mailbox (mbox)",
    "docx": "Word document",
    "odt": "OpenDocument text",
    "rtf": "RTF document",
    "pptx": "PowerPoint presentation",
    "xlsx": "Excel workbook",
}
ALIASES = {
    **{"markdown": "md", "mdown": "md", "htm": "html", "xhtml": "html", "text": "txt", "azw": "mobi", "prc": "mobi"},
    **{"pdb": "mobi", "emlx": "eml", "mht": "mhtml", "mbx": "mbox", "ott": "odt", "odm": "odt", "fodt": "odt"},
    **dict.fromkeys(("docm", "dotx", "dotm"), "docx"),
    **dict.fromkeys(("pptm", "ppsx", "ppsm", "potx", "potm"), "pptx"),
    **dict.fromkeys(("xlsm", "xltx", "xltm"), "xlsx"),
}
_HEAD_BYTES = 1 << 16
_FEW_CONTROLS = 2  # control characters that a short text may have

# What is refused is refused by its name.
_SIGNATURES: tuple[tuple[bytes, str], ...] = (
    (b"%!PS", "a PostScript file: convert it to PDF"),
    (b"AT&TFORM", "a DjVu book: convert it to PDF"),
    (b"ITSF", "a compiled help file (CHM): convert it to EPUB or PDF"),
    (b"\x89PNG", "a PNG picture: save it as PDF to have its text recognised"),
    (b"\xff\xd8\xff", "a JPEG picture: save it as PDF to have its text recognised"),
    (b"GIF8", "a GIF picture: save it as PDF to have its text recognised"),
    (b"II*\x00", "a TIFF picture: save it as PDF to have its text recognised"),
    (b"MM\x00*", "a TIFF picture: save it as PDF to have its text recognised"),
    (b"BM", "a BMP picture: save it as PDF to have its text recognised"),
    (b"\x1f\x8b", "a gzip archive: unpack it first"),
    (b"BZh", "a bzip2 archive: unpack it first"),
    (b"\xfd7zXZ", "an xz archive: unpack it first"),
    (b"(\xb5/\xfd", "a zstd archive: unpack it first"),
    (b"7z\xbc\xaf", "a 7-Zip archive: unpack it first"),
    (b"Rar!\x1a", "a RAR archive: unpack it first"),
    (b"\x7fELF", "a program (ELF)"),
    (b"MZ", "a program (Windows)"),
    (b"SQLite format 3\x00", "an SQLite database"),
    (b"ID3", "an MP3 recording"),
    (b"OggS", "an Ogg recording"),
    (b"RIFF", "a RIFF recording or picture"),
    (b"fLaC", "a FLAC recording"),
)
_OFFICE_KINDS = ("docx", "pptx", "xlsx")
_UNREAD_KINDS = {
    "xlsb": "a binary Excel workbook (XLSB): save it as XLSX",
    "visio": "a Visio drawing: save it as PDF",
}
_ZIP_KINDS = (
    ("content.opf", "an unfinished e-book archive without META-INF/container.xml"),
    ("classes.dex", "an Android package"),
    ("META-INF/MANIFEST.MF", "a Java archive"),
)
_LOCKED = "an encrypted Office document: remove its password in Word, Excel or PowerPoint and save it again"
_OLE_KINDS = (  # by what their streams are called
    ("EncryptedPackage", _LOCKED),
    ("__properties_version1.0", "a mail of Outlook (MSG): save it from there as EML or PDF"),
    ("VisioDocument", "a Visio drawing: save it as PDF"),
    ("WordDocument", "a Word document of before 2007 (DOC): save it as DOCX or PDF"),
    ("PowerPoint Document", "a PowerPoint presentation of before 2007 (PPT): save it as PPTX or PDF"),
    ("Workbook", "an Excel workbook of before 2007 (XLS): save it as XLSX"),
    ("", "an Office document of before 2007 (DOC, XLS, PPT) or another OLE file: save it as DOCX, XLSX, PPTX or PDF"),
)
_PICTURES = re.compile(r"\.(?:jpe?g|png|gif|webp|bmp|tiff?|avif)$|(?:^|/)(?:comicinfo\.xml|thumbs\.db)$", re.IGNORECASE)
_TEXT_BEGINS = re.compile(rb"\s*(?:<!doctype\s+html|<html[\s>])", re.IGNORECASE)
_HTML = re.compile(
    rb"<!doctype\s+html|<html[\s>]|<head[\s>]|<body[\s>]|\A\s*(?:<!--.*?-->\s*)?<(?:div|p|h1|table|meta|title|article)[\s>]",
    re.IGNORECASE | re.DOTALL,
)
# The lines that an e-mail begins with: MIME-Version is among them where its text may be coded, but not always.
_FIELDS = rb"(?:\xef\xbb\xbf|\d{1,9} *\r?\n)?(?:[!-9;-~]+:[^\n]*\n(?:[ \t][^\n]*\n)*)*?"
_MAIL = re.compile(_FIELDS + rb"MIME-Version:", re.IGNORECASE)
_NAMED_MAIL = re.compile(_FIELDS + rb"(?:MIME-Version|From|Content-Type):", re.IGNORECASE)


def detect(path: Path, limits: Limits) -> tuple[str, list[str]]:
    """The format of a file (a key of SUPPORTED), and warnings where its name says another.

    Raises:
        EmptyDocument: no bytes. UnsupportedFormat: something else. BrokenFile: not what its name says, and no text.
        TooLarge: an archive that must not be unpacked.
    """
    with path.open("rb") as file:
        head = file.read(_HEAD_BYTES)
    if not head.strip(b"\x00 \t\r\n"):
        raise EmptyDocument(f"{path.name} is empty: {path.stat().st_size} bytes, none of them text. Fetch it again.")
    suffix = path.suffix.casefold().lstrip(".")
    named = ALIASES.get(suffix, suffix)
    found = _binary(path, head, named, limits) or _textual(path, head, named)
    warnings = []
    if named in SUPPORTED and named != found and not {named, found} <= {"txt", "md"} and path.suffix:
        warnings.append(f"The file is named .{suffix}, but it is {SUPPORTED[found]} and was read as such.")
    return found, warnings


def _binary(path: Path, head: bytes, named: str, limits: Limits) -> str | None:
    if head.startswith((b"PK\x03\x04", b"PK\x05\x06", b"PK\x07\x08")):  # which may begin with a PDF, stored
        return _archive(path, named, limits)
    if _begins_as_text(head):
        return None
    # Up to 1024 bytes of something else may come first; but a text may also speak of it.
    if head.lstrip().startswith(b"%PDF-") or (b"%PDF-" in head[:1024] and (named == "pdf" or _holds_binary(head))):
        return "pdf"
    if head.startswith(b"{\\rtf"):
        return "rtf"
    if head[60:68] in (b"BOOKMOBI", b"TEXtREAd"):
        return "mobi"
    if head.startswith(b"\xd0\xcf\x11\xe0"):
        with path.open("rb") as file:
            inside = file.read(1 << 24)
        raise UnsupportedFormat(
            _refusal(path, next(what for stream, what in _OLE_KINDS if stream.encode("utf-16-le") in inside))
        )
    for signature, what in _SIGNATURES:
        # Letters and digits alone may well begin a text.
        if head.startswith(signature) and (not signature.isalnum() or _holds_binary(head)):
            raise UnsupportedFormat(_refusal(path, what))
    if head[4:8] == b"ftyp" and _holds_binary(head):
        raise UnsupportedFormat(_refusal(path, "a video, recording or picture in an MP4 container"))
    return None


def _archive(path: Path, named: str, limits: Limits) -> str:
    try:
        with zipfile.ZipFile(path) as archive:
            check_archive(archive, path.name, limits)
            members = Members(archive)
            names = list(members.names)
            declared = ""
            if (typed := members.find("mimetype")) and archive.getinfo(members.names[typed]).file_size < 200:
                declared = archive.read(members.names[typed]).decode("ascii", errors="replace").strip()
            manifest = members.find("META-INF/manifest.xml")
            locked = manifest is not None and (
                b"encryption-data" in read_member(archive, members.names[manifest], limits)
            )
            office = Package(archive, limits).kind
    except (zipfile.BadZipFile, zlib.error, OSError, EOFError, RuntimeError, ValueError, NotImplementedError) as error:
        kind = SUPPORTED.get(named, "a ZIP archive")
        raise BrokenFile(
            f"{path.name} cannot be opened as {kind}: its archive is damaged or incomplete ({error}). Fetch it again."
        ) from error
    if declared == "application/epub+zip" or members.find(CONTAINER):
        return "epub"
    if office in _OFFICE_KINDS:
        return office
    if office:
        raise UnsupportedFormat(_refusal(path, _UNREAD_KINDS[office]))
    books = [name for name in names if name.casefold().endswith(".fb2")]
    if len(books) == 1:
        return "fb2"
    if declared.startswith("application/vnd.oasis.opendocument") and locked:
        raise UnsupportedFormat(
            _refusal(path, "an encrypted OpenDocument file: remove its password in LibreOffice and save it again")
        )
    if declared.startswith("application/vnd.oasis.opendocument.text"):
        return "odt"
    if declared.startswith("application/vnd.oasis.opendocument"):
        what = "an OpenDocument sheet or presentation (ODS, ODP): save it as XLSX, PPTX or PDF"
        raise UnsupportedFormat(_refusal(path, what))
    for member, what in _ZIP_KINDS:
        if member in names:
            raise UnsupportedFormat(_refusal(path, what))
    if named in _OFFICE_KINDS:
        raise BrokenFile(f"{path.name} is no {SUPPORTED[named]}, or the most of it is missing. Fetch it again.")
    if any(name.casefold().endswith((".fdseq", ".fdoc")) for name in names):
        raise UnsupportedFormat(_refusal(path, "an XPS document: print it to a PDF"))
    if names and all(_PICTURES.search(name) for name in names):
        pictures = count(len(names), "picture")
        what = f"an archive of {pictures}, as comics are (CBZ): convert it to PDF, and read that with OCR"
        raise UnsupportedFormat(_refusal(path, what))
    raise UnsupportedFormat(
        _refusal(path, f"a ZIP archive of {count(len(names), 'file')}: unpack it and add the documents in it")
    )


def _textual(path: Path, head: bytes, named: str) -> str:
    wide = bool(wide_encoding(head))
    if not wide and not _begins_as_text(head) and _looks_binary(head):
        if named in ("pdf", "epub", "mobi", *_OFFICE_KINDS):
            raise BrokenFile(f"{path.name} is no {SUPPORTED[named]}, or its beginning is damaged. Fetch it again.")
        raise UnsupportedFormat(_refusal(path, "a binary file of unknown kind"))
    plain = head.replace(b"\x00", b"") if wide else head
    if re.search(rb"<FictionBook[\s>]", plain[:4096]):
        return "fb2"
    if re.search(rb"<office:document\s", plain[:4096]) and b"opendocument.text" in plain:
        return "odt"
    if mbox.begins(plain):
        return "mbox"
    by_name = named not in ("md", "txt") and not LINED.fullmatch(path.suffix.casefold())  # such may speak of HTML
    if named in ("mhtml", "eml") and _NAMED_MAIL.match(head):
        return named
    if by_name and _MAIL.match(head):
        return "eml"
    if (by_name and _HTML.search(plain[:4096])) or re.match(rb"\W*<!doctype html|\W*<html", plain, re.I):
        return "html"
    if named in ("pdf", "epub", "mobi", "fb2", *_OFFICE_KINDS):
        raise BrokenFile(
            f"{path.name} is no {SUPPORTED[named]}: it begins with {plain[:24].decode('utf-8', errors='replace')!r}. "
            "Fetch it again, or name it .txt to read it as plain text."
        )
    if by_name and plain.lstrip(b"\xef\xbb\xbf \r\n").startswith(b"<?xml"):
        raise UnsupportedFormat(_refusal(path, "an XML file of unknown kind: convert it to HTML or plain text"))
    return named if named in ("md", "html") else "txt"


def _begins_as_text(head: bytes) -> bool:
    """Whether a file begins as mails, mailboxes and pages do, which may hold pictures as they are, or a stray NUL."""
    return bool(_MAIL.match(head) or mbox.begins(head) or _TEXT_BEGINS.match(head))


def _looks_binary(head: bytes) -> bool:
    """Whether there are more control characters than any text has. Texts may have a few NULs, or end in them.

    Not counted are those that shift letters, or strike over them, as pages of manuals do.
    """
    text = head[:8192].rstrip(b"\x00") or head[:8192]
    control = sum(byte < 32 and byte not in b"\a\b\t\n\v\f\r\x0e\x0f\x1a\x1b" for byte in text)
    return control > max(_FEW_CONTROLS if len(text) > _FEW_CONTROLS * 5 else 0, len(text) / 50)


def _holds_binary(head: bytes) -> bool:
    return b"\x00" in head or _looks_binary(head)


def _refusal(path: Path, what: str) -> str:
    return f"{path.name} is {what}. Stockpot reads {', '.join(SUPPORTED.values())}."
