"""RTF: its text, and warnings about pictures, objects and damage."""

import re
from pathlib import Path

from ingest.charset import lost_blocks
from ingest.conversion import Content, ConvertOptions
from ingest.errors import EmptyDocument
from ingest.formats.rtf_reader import read_rtf
from ingest.sections import first_heading, paginate
from ingest.wording import count

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
    data = path.read_bytes()
    source = data.decode("cp1252", errors="replace")
    blocks, title = read_rtf(data)
    limits.check(path.name, "characters", sum(len(block.text) for block in blocks), limits.characters)
    pages, toc = paginate(blocks)
    objects = len(_OBJECT.findall(source))
    within = f"Not read: {count(objects, 'picture or object')} within the document. Save it as PDF and add that."
    if not pages:
        raise EmptyDocument(f"{path.name} has no text in it. {within if objects else 'Fetch it again.'}")
    warnings = [*([within] if objects else []), *_damage(source)]
    return Content(pages, toc, [title, first_heading(blocks)], warnings)


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
