"""Plain text in any usual encoding, with the notebooks, tables, logs and programs that are read as such."""

import re
from collections import Counter
from pathlib import Path

from ingest.charset import decode_undeclared, lost_blocks
from ingest.conversion import Content, ConvertOptions
from ingest.errors import EmptyDocument
from ingest.formats import FORMATS, captions, suffix_of
from ingest.formats.notebook import decode_escapes, notebook_blocks
from ingest.formats.paragraphs import plain_blocks
from ingest.limits import Limits
from ingest.sections import first_heading, paginate
from ingest.terminal import strip_escaped_codes, terminal_text

GUESSED = "The text is not clean UTF-8; it was read as {}. Check accented letters, or save it as UTF-8."
_GUTENBERG_TITLE = re.compile(r"^Title:[ \t]*(\S.*)$", re.MULTILINE)
_JSON = ("json", "jsonl", "ndjson", "ipynb")
_TABBED, _MAYBE_TABBED = ("tsv", "tab"), ("txt", "csv", "")


def convert(path: Path, options: ConvertOptions) -> Content:
    """Convert plain text to sections.

    Raises:
        TooLarge: too many bytes or characters.
        EmptyDocument: nothing but blanks.
    """
    text, warnings = read_text(path, options.limits)
    suffix = suffix_of(path)
    by_lines = suffix in FORMATS["txt"].line_suffixes
    notebook = notebook_blocks(text) if suffix == "ipynb" else None
    if notebook:
        blocks, left_out = notebook
        pages, toc = paginate(blocks)
        if pages:
            return Content(pages, toc, [first_heading(blocks)], [*warnings, *left_out])
    if suffix in _JSON:
        warnings += [] if notebook else _cut_off(text, suffix)
        text = decode_escapes(strip_escaped_codes(text))
    if suffix in _TABBED or (suffix in _MAYBE_TABBED and _has_columns(text)):
        text, by_lines = re.sub(r"\t+", lambda tabs: " |" * len(tabs[0]) + " ", text), True
    said = captions.caption_blocks(text) if suffix in captions.SUFFIXES else None
    pages, toc = paginate(plain_blocks(text, by_lines) if said is None else said)
    if not pages:
        raise EmptyDocument(f"{path.name} holds nothing but blanks.")
    named = _GUTENBERG_TITLE.search(text[:5000])
    return Content(pages, toc, [named[1] if named else None], warnings)


def _cut_off(text: str, suffix: str) -> list[str]:
    """Return a warning if a JSON file has no end. suffix: ipynb for a notebook that could not be read as one."""
    whole = text.strip()
    if suffix == "ipynb":
        return ["The notebook is cut off or damaged, and was read as plain text: compare it with the original."]
    ends = {"{": "}", "[": "]"}.get(whole[:1])
    if ends and not whole.endswith(ends):
        return [f"The file begins with {whole[0]} and does not end with {ends}, so it may be cut off. Fetch it again."]
    return []


def read_text(path: Path, limits: Limits) -> tuple[str, list[str]]:
    """Return a file's text with line feeds for line ends, and a warning if its encoding was guessed.

    Raises:
        TooLarge: too many bytes or characters.
    """
    limits.check(path.name, "bytes", path.stat().st_size, limits.text_member_bytes)
    text, guessed = decode_undeclared(path.read_bytes())
    warnings = []
    if guessed is not None:
        warnings.append(GUESSED.format(guessed))
    warnings += lost_blocks(text)
    text = terminal_text(text, is_output=suffix_of(path) == "log" and "\n" in text)
    text = re.sub(r"\r\n?|[\x0b\x0c\x85\u2028\u2029]", "\n", text)
    limits.check(path.name, "characters", len(text), limits.characters)
    return text, warnings


def _has_columns(text: str) -> bool:
    """Return whether tabs separate columns: nine lines in ten, and at least three, have as many of them."""
    tabs = [line.lstrip().count("\t") for line in text.split("\n") if line.strip()]
    (most, lines), *_ = Counter(tabs).most_common(1) or [(0, 0)]
    return most > 0 and lines >= max(3, 0.9 * len(tabs))
