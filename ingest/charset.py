"""Decoding of text in any encoding. Bytes outside the encoding are replaced, so decoding always succeeds."""

import codecs
import re
from itertools import pairwise
from unicodedata import category
from unicodedata import name as unicode_name

import chardet

from ingest.wording import count

# Declared encoding -> the superset that files are really written in, as in browsers.
_LARGER = {
    "gb2312": "gb18030",
    "gbk": "gb18030",
    "cp936": "gb18030",
    "cp950": "big5hkscs",
    "hz-gb-2312": "hz",
    "big5": "big5hkscs",
    "shift_jis": "cp932",
    "sjis": "cp932",
    "windows-31j": "cp932",
    "euc-jp": "euc_jis_2004",
    "euc-kr": "cp949",
    "ks_c_5601-1987": "cp949",
    "windows-949": "cp949",
    "ascii": "cp1252",
    "us-ascii": "cp1252",
    "latin1": "cp1252",
    "iso-8859-1": "cp1252",
    "iso8859-1": "cp1252",
    "iso-8859-9": "cp1254",
    "iso-8859-11": "cp874",
    "tis-620": "cp874",
    "windows-874": "cp874",
    "iso-8859-8-i": "iso8859_8",
}
# No supersets of ASCII, so believed only if declared outside of the markup.
_NOT_AS_ASCII = ("utf-7", "hz", "utf-16", "utf-16le", "utf-16be", "iso-2022-kr", "iso-2022-cn")
_JAPANESE = ("iso-2022-jp", "iso2022-jp", "csiso2022jp", "iso-2022-jp-1", "iso-2022-jp-ms", "cp50220", "cp50221")
_MANY = 16  # NULs; fewer may be a slip of a program
_UTF_32 = (b"\xff\xfe\x00\x00", b"\x00\x00\xfe\xff")
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")
_DECLARED = re.compile(rb"<\?xml[^<>]*?encoding=[\"']([\w.:-]+)|<meta[^<>]+charset=[\"']?([\w.:-]+)", re.IGNORECASE)
_DECLARED_WITHIN = 1 << 16  # bytes: some pages begin with their scripts
_XML_DECLARATION = re.compile(r"^\s*<\?xml[^>]*\?>")
_JIS = re.compile(rb"\x1b\$[B@]([\x21-\x7e]*)(?:\x1b\([BJ])?")  # letters of JIS X 0208, and the return to ASCII
_SAMPLED = 1 << 16  # bytes: enough to guess an encoding
_NEAR = 0.75  # confidence in one encoding, as a share of that in another, that makes the two nearly equal
_SIGNS = frozenset("§°©®™€£¥–—‘’“”„‚…«»‹›•·½¼¾²³µ¿¡×÷±\xa0\xad")  # other characters than letters
_WIDE = ("utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-32-be", "utf-7")  # recognised before
_ALPHABETS = frozenset({"LATIN", "GREEK", "CYRILLIC", "HEBREW", "ARABIC", "THAI", "ARMENIAN", "GEORGIAN"})
_ASCII = rb"plain +AEE- \u0041"  # decodes to something else in UTF-16, UTF-7, EBCDIC and Python's escapes


def decode(data: bytes, declared: str | None = None) -> tuple[str, list[str]]:
    """Decode markup by its byte order mark, its declared encoding, as UTF-8, or by a guess, in this order.

    A declared single-byte encoding yields to clean UTF-8, as no other text looks like that.

    Args:
        data: the markup.
        declared: the encoding named outside of the markup; it takes precedence over one named inside.

    Returns:
        The text without an XML declaration, with U+FFFD for bytes outside the encoding; a warning if it was guessed.
    """
    text, warnings = _decode(data, declared)
    return _XML_DECLARATION.sub("", text), [*warnings, *lost_blocks(text)]


def lost_blocks(text: str) -> list[str]:
    """Return a warning if NULs stand where text was lost, as a disk leaves blocks that were never written."""
    lost = text.rstrip("\0").count("\0")
    if lost < _MANY:
        return []
    line = text.count("\n", 0, text.index("\0")) + 1
    return [f"{lost:,} NULs stand from line {line:,} on where text was lost. Compare it with the original."]


def superset_encoding(declared: str) -> str:
    """Return Python's name of the encoding that files with a declared encoding are really written in."""
    name = declared.casefold().removeprefix("x-")
    return _LARGER.get(name, name)


def known_encoding(name: str) -> str:
    """Return the superset of an encoding by Python's name, or "" if Python does not know it."""
    try:
        return codecs.lookup(superset_encoding(name)).name
    except LookupError:
        return ""


def _decode(data: bytes, declared: str | None) -> tuple[str, list[str]]:
    outside = bool(declared)
    if not declared and (within := _DECLARED.search(data, 0, _DECLARED_WITHIN)):
        declared = (within[1] or within[2]).decode("ascii")
    if declared and not data.startswith((*_UTF_32, *_UTF_16, b"\xef\xbb\xbf")):
        name = superset_encoding(declared)
        if name in _JAPANESE:
            return decode_iso_2022_jp(data), []
        if outside and name in _NOT_AS_ASCII and known_encoding(name):
            text = data.decode(name, errors="replace")
            if text.count("\ufffd") * 50 <= len(text):
                return text, []
        # The declaration was readable as ASCII, so the encoding must be a superset of ASCII.
        if name not in ("utf-8", "utf8") and _is_ascii_in(name) and not (_is_single(name) and _is_utf_8(data)):
            return data.decode(name, errors="replace"), []
    text, guessed = decode_undeclared(data)
    if guessed is None:
        return text, []
    return text, [
        f"The text is not clean UTF-8 and names no other encoding; it was read as {guessed}. "
        "Check accented letters, or save it as UTF-8."
    ]


def decode_undeclared(data: bytes) -> tuple[str, str | None]:
    """Decode bytes that declare no encoding except by a byte order mark.

    Returns:
        The text, and the guessed encoding for a warning; None if nothing was guessed.
    """
    if wide := wide_encoding(data):
        return data.decode(wide, errors="replace"), None
    if b"\x1b$)C" in data and data.isascii():
        return data.decode("iso2022_kr", errors="replace"), None
    if b"\x1b$" in data and data.isascii():
        return decode_iso_2022_jp(data), None
    try:
        return data.decode("utf-8-sig"), None
    except UnicodeDecodeError:
        return _guess(data)


def decode_iso_2022_jp(data: bytes) -> str:
    """Decode ISO-2022-JP with the signs that Windows adds to it, such as ① and ㈱, which no codec of Python has."""

    def as_windows(found: re.Match[bytes]) -> bytes:
        pairs = zip(found[1][::2], found[1][1::2], strict=False)
        letters = bytes(byte for row, cell in pairs for byte in _shift_jis(row, cell)).decode("cp932", errors="replace")
        return b"\x1b%G" + letters.encode() + b"\x1b%@"

    def decoded(piece: bytes) -> str:
        if piece.startswith(b"\x1b%G"):
            return piece[3:].decode()
        return piece.decode("iso2022_jp_ext", errors="replace")

    marked = _JIS.sub(as_windows, data)
    return "".join(map(decoded, re.split(rb"(\x1b%G.*?)\x1b%@", marked, flags=re.DOTALL)))


def _shift_jis(row: int, cell: int) -> tuple[int, int]:
    """Return the two bytes of Shift_JIS for those of a letter of JIS X 0208."""
    first = (row + 1) // 2 + (0x70 if row < 0x5F else 0xB0)
    return first, cell + (0x1F + (cell > 0x5F) if row % 2 else 0x7E)


def wide_encoding(data: bytes) -> str | None:
    """Return the encoding if it is UTF-32 with a byte order mark, or UTF-16 with or without one; else None."""
    if data.startswith(_UTF_32):
        return "utf-32"
    if data.startswith(_UTF_16):
        return "utf-16"
    sample = data[:4096]
    for name, high, low in (("utf-16-le", sample[1::2], sample[::2]), ("utf-16-be", sample[::2], sample[1::2])):
        # In UTF-16 the high byte of blanks, line ends and Western letters is NUL, and no character is NUL.
        if high.count(0) * 10 > len(high) and 0 not in low:
            text = sample[: len(sample) & ~1].decode(name, errors="replace")
            strange = sum(category(sign) in ("Cc", "Cn", "Co") and not sign.isspace() for sign in text)
            return name if (strange + text.count("\ufffd")) * 50 <= len(text) else None
    return None


def _guess(data: bytes) -> tuple[str, str]:
    """Decode bytes that are not clean UTF-8; also return the guessed encoding, as the end of a sentence."""
    text = data.decode("utf-8-sig", errors="replace")
    lost = text.count("\ufffd") - data.count("\ufffd".encode())
    kept = len(text) - len(text.encode("ascii", errors="ignore")) - text.count("\ufffd")
    # Other encodings' bytes form some characters of UTF-8 by chance: in 20 letters of any of 19 encodings at most 4 for
    # every 3 places that form none, in 1000 letters 1 for 2. So this is UTF-8 with some damage.
    if kept >= 2 * lost:
        return text, f"UTF-8, with \ufffd for {count(lost, 'damaged place')}"
    sample = data[:_SAMPLED]
    encoding = _likeliest(sample[: sample.rfind(b"\n") + 1] or sample)
    return data.decode(encoding, errors="replace"), encoding


def _likeliest(sample: bytes) -> str:
    """Return the encoding that a text is likely written in, by the letters of its language.

    Encodings of today come before those of DOS, Macintosh and the ISO; one that gives impossible words comes last. In
    short texts, Western Europe's is the likeliest of nearly equal guesses.
    """
    western = sample.decode("cp1252", errors="replace")
    if all(sign.isascii() or sign in _SIGNS for sign in western):
        return "cp1252"
    odd: list[str] = []
    for era in (chardet.EncodingEra.MODERN_WEB, chardet.EncodingEra.ALL & ~chardet.EncodingEra.MAINFRAME):
        guesses = chardet.detect_all(sample, ignore_threshold=True, encoding_era=era)
        known = {known_encoding(guess["encoding"] or ""): guess["confidence"] for guess in reversed(guesses)}
        for name, confidence in reversed(known.items()):
            if name in ("", "ascii", "utf-8", *_WIDE):  # the sample shows no more
                continue
            text = sample.decode(name, errors="replace")
            unknown = sum(sign == "\ufffd" or category(sign) in ("Co", "Cn") for sign in text)
            if unknown * 50 > len(text):
                continue
            if _has_impossible_words(text):
                odd.append(name)
            elif known.get("cp1252", 0) < _NEAR * confidence or not _is_latin(text) or _has_impossible_words(western):
                return name
            else:
                return "cp1252"
    return next(iter(odd), "cp1252")


def _is_latin(text: str) -> bool:
    return all(unicode_name(sign, "").startswith("LATIN") for sign in text if sign.isalpha())


def _has_impossible_words(text: str) -> bool:
    """Return whether many words mix alphabets, have a capital or a sign within them, as in no language."""
    words = [word for word in re.split(r"[\s\x00-\x40\[-`{-\x7f]+", text) if not word.isascii()]
    return sum(map(_is_impossible, words)) * 10 > len(words)


def _is_impossible(word: str) -> bool:
    alphabets = {unicode_name(sign, "").split(" ")[0] for sign in word if category(sign) in ("Lu", "Ll", "Lo")}
    if len(alphabets & _ALPHABETS) > 1 or (alphabets & _ALPHABETS and alphabets - _ALPHABETS):
        return True
    bare = word.strip("".join(_SIGNS))
    return any(
        (category(before) == "Ll" and category(sign) == "Lu")
        or (category(sign) in ("Sm", "So", "Sk", "Sc", "No", "Cc", "Co", "Cn") and before.isalpha())
        for before, sign in pairwise(bare)
    )


def _is_single(encoding: str) -> bool:
    return len(bytes(range(256)).decode(encoding, errors="replace")) == 256


def _is_utf_8(data: bytes) -> bool:
    try:
        return bool(data.decode("utf-8"))
    except UnicodeDecodeError:
        return False


def _is_ascii_in(encoding: str) -> bool:
    try:
        return _ASCII.decode(encoding, errors="replace") == _ASCII.decode("ascii")
    except (LookupError, UnicodeError):  # unknown, or a codec that is no encoding of text
        return False
