"""Fonts of a PDF that say by the names of their glyphs which letters these are, where they do not say so else.

A name such as "f_f_i" is that of a ligature, in parts (Adobe's glyph list specification). MuPDF takes its first letter,
or what the font has as its text, which may be a character that is private to it.
"""

import re
from typing import Any

import pymupdf

_PRIVATE = re.compile("[\ue000-\uf8ff\ufffd]")
_PAIR = re.compile(rb"<([0-9A-Fa-f]{2,4})>\s*<([0-9A-Fa-f]{4})>(?=\s*(?:<[0-9A-Fa-f]+>\s*<|endbfchar))")
_SECTION = re.compile(rb"beginbfchar.*?endbfchar", re.DOTALL)
_UNKNOWN = 0xFFFD
_MOST_BYTES = 1 << 18  # of what a font says about its text
_CMAP = """/CIDInit /ProcSet findresource begin 12 dict begin begincmap /CMapName /Names def /CMapType 2 def
1 begincodespacerange <00> <FF> endcodespacerange
{} beginbfchar
{}
endbfchar endcmap end end"""


def mend_fonts(document: Any, page: int, seen: set[int]) -> None:
    """Have the fonts of a page say what the names of their glyphs say, in memory alone.

    page: its index. seen: the fonts that were looked at before.
    """
    for xref, *_ in document.get_page_fonts(page):
        if xref and xref not in seen:
            seen.add(xref)
            _mend(document, xref)


def _mend(document: Any, xref: int) -> None:
    kind, differences = document.xref_get_key(xref, "Encoding/Differences")
    if kind != "array":
        kind, encoding = document.xref_get_key(xref, "Encoding")
        if kind != "xref":
            return
        kind, differences = document.xref_get_key(int(encoding.split()[0]), "Differences")
    names = _names(differences) if kind == "array" else {}
    kind, text = document.xref_get_key(xref, "ToUnicode")
    if kind == "xref":
        stream = int(text.split()[0])
        said = document.xref_stream(stream) or b""
        if len(said) > _MOST_BYTES:
            return
        mended = _SECTION.sub(lambda section: _PAIR.sub(lambda pair: _renamed(pair, names), section[0]), said)
        if mended != said:
            document.update_stream(stream, mended)
        return
    ligatures = {code: letters for code, letters in names.items() if len(letters) > 1}
    if not ligatures:
        return
    lines = "\n".join(f"<{code:02X}> <{letters.encode('utf-16-be').hex()}>" for code, letters in ligatures.items())
    added = document.get_new_xref()
    document.update_object(added, "<<>>")
    document.update_stream(added, _CMAP.format(len(ligatures), lines).encode())
    document.xref_set_key(xref, "ToUnicode", f"{added} 0 R")


def _names(differences: str) -> dict[int, str]:
    """What the glyphs of an encoding are called, as letters, by their codes; those that are no letters left out."""
    names, code = {}, 0
    for number, name in re.findall(r"(?<![\w/])(\d{1,3})(?!\w)|/([^\s/\[\]()<>{}%]+)", differences):
        if number:
            code = int(number)
            continue
        if letters := letters_of(name):
            names[code] = letters
        code += 1
    return {code: letters for code, letters in names.items() if code < 256}


def letters_of(name: str) -> str:
    """The letters of a glyph's name, as "ffi" of "f_f_i.alt"; "" where it does not say them."""
    signs = [pymupdf.mupdf.fz_unicode_from_glyph_name(part) for part in name.partition(".")[0].split("_") if part]
    return "" if _UNKNOWN in signs else "".join(map(chr, signs))


def _renamed(pair: re.Match[bytes], names: dict[int, str]) -> bytes:
    letters = names.get(int(pair[1], 16))
    if letters is None or not _PRIVATE.fullmatch(chr(int(pair[2], 16))) or _PRIVATE.search(letters):
        return pair[0]
    return b"<%s> <%s>" % (pair[1], letters.encode("utf-16-be").hex().encode())
