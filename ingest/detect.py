"""Detection of a file's format by its content; its name only settles questions that the content leaves open."""

import zipfile
import zlib
from pathlib import Path

from ingest.errors import BrokenFile, EmptyDocument
from ingest.formats import FORMATS, SUFFIXES, Format, suffix_of
from ingest.limits import Limits
from ingest.sample import HEAD_BYTES, OLE, Sample, sample_archive, sample_damaged_archive
from ingest.unsupported import archive_kind, binary_kind, refusal
from ingest.wording import count

_TEXTS = sorted(FORMATS.values(), key=lambda row: row.is_quoted)
"""The formats in the order in which texts are compared with them."""


def detect(path: Path, limits: Limits) -> tuple[str, list[str]]:
    """Return the name of a file's format, and a warning if the file's name suggests another one.

    Raises:
        EmptyDocument: the file holds no bytes, or only blanks.
        UnsupportedFormat: its format is not read.
        BrokenFile: it is neither of the format that its name suggests nor a text.
        TooLarge: it is an archive that must not be unpacked.
    """
    with path.open("rb") as file:
        head = file.read(HEAD_BYTES)
    if not head.strip(b"\x00 \t\r\n"):
        raise EmptyDocument(f"{path.name} is empty: {path.stat().st_size} bytes, none of them text. Fetch it again.")
    suffix = suffix_of(path)
    named = SUFFIXES.get(suffix)
    # Plain text and Markdown are not recognised by any markup, as they may speak of all.
    quotes_markup = suffix in FORMATS["txt"].line_suffixes or (
        named is not None and named.by_suffix and named.in_text is None
    )
    sample = Sample(path, head, named.name if named else "", quotes_markup)
    found = _archive_format(sample, named, limits) if sample.is_archive else _file_format(sample, named)
    warnings = []
    if named and named != found and not {named.name, found.name} <= {"txt", "md"}:
        warnings.append(f"The file is named .{suffix}, but its format is {found.title}.")
    return found.name, warnings


def _archive_format(sample: Sample, named: Format | None, limits: Limits) -> Format:
    """Return the format of a ZIP archive."""
    path = sample.path
    try:
        archive = sample_archive(path, limits)
    except (zipfile.BadZipFile, zlib.error, OSError, EOFError, RuntimeError, ValueError, NotImplementedError) as error:
        title = _damaged_title(sample, named)
        raise BrokenFile(
            f"{path.name} cannot be opened as {title}: its archive is damaged or incomplete. Fetch it again."
        ) from error
    for each in FORMATS.values():
        if each.recognises_archive(archive):
            return each
    if kind := archive_kind(archive, suffix_of(path)):
        raise refusal(path, kind)
    if named and named.is_open_xml:
        raise BrokenFile(f"{path.name} is no {named.title}, or most of it is missing. Fetch it again.")
    files = count(len(archive.names), "file")
    raise refusal(path, f"a ZIP archive of {files}: unpack it and add the documents in it")


def _damaged_title(sample: Sample, named: Format | None) -> str:
    """Return the title of a damaged archive's format, from its first members, or else from its name."""
    beginning = sample_damaged_archive(sample.head)
    found = next((each for each in FORMATS.values() if each.recognises_archive(beginning)), None)
    if found is None and named and (named.is_open_xml or named.in_archive):
        found = named
    return found.title if found else "ZIP archive"


def _file_format(sample: Sample, named: Format | None) -> Format:
    """Return the format of a file that is no archive."""
    path = sample.path
    if not sample.begins_as_text:
        for each in FORMATS.values():
            if each.signature and each.signature(sample):
                return each
        if sample.head.startswith(OLE) and not sample.ole_streams:
            raise BrokenFile(
                f"{path.name} is a file of Office before 2007 or of Outlook, and damaged or cut off. Fetch it again."
            )
        if kind := binary_kind(sample):
            raise refusal(path, kind)
        if not sample.is_wide and sample.looks_binary:
            if named and named.is_strict and named.in_text is None:
                raise BrokenFile(f"{path.name} is no {named.title}, or its beginning is damaged. Fetch it again.")
            raise refusal(path, "a binary file of unknown kind")
    for each in _TEXTS:
        if each.in_text and each.in_text(sample):
            return each
    if named and named.is_strict:
        begin = sample.plain[:24].decode("utf-8", errors="replace")
        raise BrokenFile(
            f"{path.name} is no {named.title}: it begins with {begin!r}. "
            "Fetch it again, or name it .txt to read it as plain text."
        )
    if not sample.quotes_markup and sample.plain.lstrip(b"\xef\xbb\xbf \r\n").startswith(b"<?xml"):
        raise refusal(path, "an XML file of unknown kind: convert it to HTML or plain text")
    return named if named and named.by_suffix else FORMATS["txt"]
