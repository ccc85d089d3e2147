"""Imprints: pages about the making and the licence of a book. They are shown, but no part of its text."""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ingest.sections import Block

TYPES = frozenset({"colophon", "copyright-page", "imprint", "imprimatur", "other-credits"})
"""Kinds of such pages in `epub:type` and in an EPUB's guide."""
TITLES = frozenset(
    {"copyright", "copyright page", "copyright notice", "uncopyright", "colophon", "imprint", "impressum"}
    | {"the full project gutenberg license", "project gutenberg license", "mentions légales"}
)
LONGEST = 30_000
"""Characters of an imprint; a longer section with such a title is a text about one."""
_ROOT_TYPE = re.compile(r"<(?:body|section|article|div)\b[^>]*?\bepub:type=[\"']([^\"']*)[\"']", re.IGNORECASE)
_START = re.compile(r"\*\*\*\s*START OF (?:THE|THIS) PROJECT GUTENBERG", re.IGNORECASE)
_END = re.compile(r"(?:\*\*\*\s*)?END OF (?:THE|THIS)? ?PROJECT GUTENBERG", re.IGNORECASE)
_HEAD = 4_000  # characters of markup in which the kind of a page is told
_FRONT, _BACK = 0.25, 0.5  # share of a book before, and behind, which Project Gutenberg's own words stand


def is_imprint(markup: str) -> bool:
    """Return whether a page of an EPUB says that it is an imprint."""
    told = " ".join(_ROOT_TYPE.findall(markup[:_HEAD])).lower().split()
    return not TYPES.isdisjoint(told)


def is_imprint_title(title: str) -> bool:
    """Return whether a section with this title is an imprint."""
    return title.strip(" .:").casefold() in TITLES


def mark_gutenberg(blocks: Sequence["Block"]) -> list["Block"]:
    """Mark what Project Gutenberg puts before and behind a book: everything outside of its lines START and END."""
    sizes = [len(block.text) for block in blocks]
    total, before = sum(sizes), 0
    first, last = 0, len(blocks)
    for number, block in enumerate(blocks):
        if before <= _FRONT * total and _START.match(block.text.lstrip()):
            first = number + 1
        elif before >= _BACK * total and _END.match(block.text.lstrip()):
            last = number
            break
        before += sizes[number]
    if first >= last or (first, last) == (0, len(blocks)):
        return list(blocks)
    marked = [block if first <= number < last else replace(block, imprint=True) for number, block in enumerate(blocks)]
    for number in {first, last} & set(range(len(marked))):
        marked[number] = replace(marked[number], opens_section=True)
    return marked
