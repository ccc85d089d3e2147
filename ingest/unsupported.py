"""Kinds of files that are not read, so that a refusal can name them and say what to do."""

import re
from pathlib import Path

from ingest.errors import UnsupportedFormat
from ingest.formats import format_titles
from ingest.sample import OLE, OPEN_DOCUMENT, ArchiveSample, Sample

SIGNATURES: tuple[tuple[bytes, str], ...] = (
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
OPEN_XML = {
    "xlsb": "a binary Excel workbook (XLSB): save it as XLSX",
    "visio": "a Visio drawing: save it as PDF",
}
ARCHIVES = (
    ("content.opf", "an unfinished e-book archive without META-INF/container.xml"),
    ("classes.dex", "an Android package"),
    ("META-INF/MANIFEST.MF", "a Java archive"),
)
IWORK = {  # by the suffixes of Apple's programs
    "key": "a Keynote presentation: open it in Keynote, or on icloud.com, and export it as PDF or PowerPoint",
    "pages": "a Pages document: open it in Pages, or on icloud.com, and export it as PDF or Word",
    "numbers": "a Numbers sheet: open it in Numbers, or on icloud.com, and export it as Excel or PDF",
}
OTHER_IWORK = (
    "a Keynote, Pages or Numbers file: open it in that program, or on icloud.com, and export it as PDF, PowerPoint, "
    "Word or Excel"
)
_IWORK_MEMBER = re.compile(r"(?:^|/)(?:Index/.*\.iwa|Index\.zip|index\.apxl(?:\.gz)?|buildVersionHistory\.plist)$")
OLE_STREAMS = (  # by the names of their streams
    (
        "EncryptedPackage",
        "an encrypted Office document: remove its password in Word, Excel or PowerPoint and save it again",
    ),
    ("VisioDocument", "a Visio drawing: save it as PDF"),
)
OTHER_OLE = "an Office document of before 2007 (DOC, XLS, PPT) or another OLE file: save it as DOCX, XLSX, PPTX or PDF"


def refusal(path: Path, kind: str) -> UnsupportedFormat:
    """Return the error for a file of a kind that is not read. kind: a noun, and the advice after a colon."""
    return UnsupportedFormat(f"{path.name} is {kind}. Stockpot reads {format_titles()}.")


def binary_kind(sample: Sample) -> str:
    """Return the kind of a binary file that is not read, with advice; "" if it is none of those known."""
    head = sample.head
    if head.startswith(OLE):
        return next((kind for stream, kind in OLE_STREAMS if stream in sample.ole_streams), OTHER_OLE)
    for signature, kind in SIGNATURES:
        # A text may begin with letters and digits alone.
        if head.startswith(signature) and (not signature.isalnum() or sample.holds_binary):
            return kind
    if head[4:8] == b"ftyp" and sample.holds_binary:
        return "a video, recording or picture in an MP4 container"
    return ""


def archive_kind(archive: ArchiveSample, suffix: str) -> str:
    """Return the kind of a ZIP archive that is not read, with advice; "" if it is none of those known."""
    if any(map(_IWORK_MEMBER.search, archive.names)) or (suffix in IWORK and "index.xml" in archive.names):
        return IWORK.get(suffix, OTHER_IWORK)
    if archive.open_xml in OPEN_XML:
        return OPEN_XML[archive.open_xml]
    if archive.mimetype.startswith(OPEN_DOCUMENT):
        if archive.is_locked:
            return "an encrypted OpenDocument file: remove its password in LibreOffice and save it again"
        return "an OpenDocument drawing, chart or formula: save it as PDF"
    for member, kind in ARCHIVES:
        if member in archive.names:
            return kind
    return ""
