"""RTF, through striprtf: paragraphs and table rows. A warning counts pictures and objects."""

import re
from pathlib import Path

from striprtf.striprtf import rtf_to_text

from ingest.charset import lost_blocks
from ingest.clean import one_line
from ingest.conversion import Content, ConvertOptions
from ingest.errors import EmptyDocument
from ingest.sections import Block, paginate
from ingest.wording import count

_TITLE = re.compile(r"\{\\title\s([^{}]{1,1000})\}")
_OBJECT = re.compile(r"\\(?:pict|objdata)(?![a-z])")
_BRACE = re.compile(r"\\[\\{}]|([{}])")  # the group is a brace that is no text
_BINARY = re.compile(r"\\bin(?![a-z])")
_STRANGE = re.compile("[\x01-\x08\x0b\x0c\x0e-\x1f\x7f]")  # no RTF has them outside of binary data
_MANY = 4


def convert(path: Path, options: ConvertOptions) -> Content:
    """Convert an RTF document.

    Raises:
        TooLarge: too many bytes or characters.
        EmptyDocument: no text.
    """
    limits = options.limits
    limits.check(path.name, "bytes", path.stat().st_size, limits.text_member_bytes)
    source = path.read_bytes().decode("cp1252", errors="replace")
    text = rtf_to_text(source, errors="replace").replace("\x00", "")
    limits.check(path.name, "characters", len(text), limits.characters)
    pages, toc = paginate(_block(line) for line in text.split("\n") if line.strip())
    objects = len(_OBJECT.findall(source))
    within = f"Not read: {count(objects, 'picture or object')} within the document. Save it as PDF and add that."
    if not pages:
        raise EmptyDocument(f"{path.name} has no text in it. {within if objects else 'Fetch it again.'}")
    said = _TITLE.search(source)
    title = one_line(rtf_to_text(f"{{\\rtf1\\ansi {said[1]}}}", errors="replace")) if said else None
    return Content(pages, toc, [title], [*([within] if objects else []), *_damage(source)])


def _damage(source: str) -> list[str]:
    """Return warnings of text that may be missing because the document is cut off or overwritten."""
    depth, ended = 0, len(source)
    for found in _BRACE.finditer(source):
        if found[1]:
            depth += 1 if found[1] == "{" else -1
            if depth <= 0:
                ended = found.end()
                break
    warnings = lost_blocks(source[:ended])
    strange = len(_STRANGE.findall(source)) if not _BINARY.search(source) else 0
    if depth > 0:
        warnings.append("The document has no end, so it may be cut off: compare its end with the original.")
    elif re.search(r"\w", source[ended:]):
        warnings.append(
            f"There is text behind the end of the document ({count(len(source) - ended, 'character')}), so it may be "
            "damaged: compare it with the original."
        )
    if strange >= _MANY:
        warnings.append(
            f"The document has {strange:,} control characters, which RTF does not allow: it is damaged, and text may "
            "be missing. Compare it with the original."
        )
    return warnings


def _block(line: str) -> Block:
    """Return a paragraph, or a table row, whose cells each end in a bar."""
    if line.endswith("|"):
        return Block(" | ".join(cell.strip() for cell in line.split("|")[:-1]), tight=True)
    return Block(line)
