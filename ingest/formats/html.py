"""Web pages."""

import re
from pathlib import Path

from ingest.charset import decode
from ingest.conversion import Content, ConvertOptions
from ingest.errors import EmptyDocument
from ingest.markup.html import extract
from ingest.markup.html_damage import damage_warnings, end_warning
from ingest.sections import first_heading, paginate


def convert(path: Path, options: ConvertOptions) -> Content:
    """Convert a web page.

    Raises:
        BrokenFile: no markup in it.
        EmptyDocument: no text in it.
        TooLarge: too many bytes or characters.
    """
    limits = options.limits
    limits.check(path.name, "bytes", path.stat().st_size, limits.text_member_bytes)
    markup, warnings = decode(path.read_bytes())
    warnings += [*damage_warnings(markup), *end_warning(markup)]
    blocks, _, title = extract(markup, path.name)
    if blocks and re.search(r"<frameset\b", markup, re.IGNORECASE):
        warnings.append(
            "The page shows others in frames, which are files of their own and were not read: add them too."
        )
    limits.check(path.name, "characters", sum(len(block.text) for block in blocks), limits.characters)
    pages, toc = paginate(blocks)
    if not pages:
        if warnings:
            raise EmptyDocument(f"{path.name} has no text. {warnings[0]}")
        raise EmptyDocument(
            f"{path.name} has no text. If a script fills the page in, open it in a browser and save it from there; "
            "of a page in frames, save each frame."
        )
    return Content(pages, toc, [title, first_heading(blocks)], warnings)
