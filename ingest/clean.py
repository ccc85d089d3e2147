"""Cleaning of characters, words and lines: ligatures, invisible characters, hyphens at line ends.

Nothing here knows files or pages. NFKC is not applied to everything, as it would change superscripts, fractions,
full-width and half-width forms and many CJK characters.
"""

import re
import unicodedata
from collections.abc import Iterable

_LIGATURES = str.maketrans({
    "ﬀ": "ff", "ﬁ": "fi", "ﬂ": "fl", "ﬃ": "ffi", "ﬄ": "ffl", "ﬅ": "st", "ﬆ": "st",
})  # fmt: skip
# Armenian ligatures and the Arabic letters in their presentation forms; the spaced vowel signs FE70-FE7F and
# the whole-phrase signs FDF0-FDFF stay as they are.
_SHAPED = re.compile("[\ufb13-\ufb17\ufb50-\ufbb1\ufbd3-\ufd3d\ufd50-\ufdc7\ufe80-\ufefc]")
_JUNK = re.compile(
    "[\u200b\u2060\ufeff\u00ad\u200e\u200f\u061c\u202a-\u202e\u2066-\u2069\u180e]"  # invisible, or bidi control
    "|[\x00-\x08\x0b\x0e-\x1f\x7f-\x9f\ufff9-\ufffb\ud800-\udfff]"
    "|\u0640+"  # tatweel stretches Arabic words to fill a line
    "|(?<=[\x00-\u024f])[\u200c\u200d](?=[\x00-\u024f])"  # joiners matter in Persian, Indic scripts and emoji only
    "|[\ufe00-\ufe0d](?=[\x00-\u024f])"
)
# In files with a wrongly declared encoding these control characters are quotes and dashes of Windows.
_WINDOWS = {
    code: bytes([code]).decode("cp1252")
    for code in range(0x80, 0xA0)
    if code not in (0x81, 0x85, 0x8D, 0x8F, 0x90, 0x9D)
}
_SYMBOL_BULLETS = re.compile("[\uf0b7\uf0a7\uf0d8\uf0fc\uf0a8\uf076\uf06e\uf0e0]")  # Word's symbol fonts
_PRIVATE = re.compile("[\ue000-\uf8ff\U000f0000-\U0010ffff]")
# Text that needs no cleaning: most paragraphs of Western books. NFC changes none of these characters.
_LETTERS = r"[!-~\xa1-\xac\xae-\u017f\u2010-\u2027\u2030-\u205e]++"
PLAIN = re.compile(rf"{_LETTERS}(?:(?: |\n\n?){_LETTERS})*+")
# No language has thirty marks on a letter (UAX #15, stream-safe text), and sorting n marks takes n² steps.
_PILED = re.compile(r"[^\w\s!-~]{31,}")
_MOST_MARKS = 30
_BLANK = re.compile("[ \t\u00a0\u1680\u2000-\u200a\u202f\u205f\u3000]")
_SPACES = re.compile(f"{_BLANK.pattern}+")
_BREAKS = re.compile("\r\n|[\r\x0b\x0c\x85\u2028\u2029]")
# Old TeX fonts write ğ as breve + g. Acute, grave and tilde stay, as they also serve as quotes and operators.
_LOOSE_ACCENT = re.compile("([˘ˇ¨˝˚]) ?([A-Za-zı])")
_COMBINING = {"˘": "\u0306", "ˇ": "\u030c", "¨": "\u0308", "˝": "\u030b", "˚": "\u030a"}

_LONGEST_WORD = 80
_WORD = re.compile(r"[^\W\d_]+(?:[-‐][^\W\d_]+)*")
_HYPHEN_END = re.compile(r"([^\W\d_]+)[-‐]$")
_WORD_START = re.compile(r"[^\W\d_]+")
_TERMINAL = re.compile(r"[.!?…:。！？؟۔।][\"'”’»)\]\d*†‡]*$")
# Scripts without spaces between words: Han, Kana, and their punctuation.
_UNSPACED = re.compile("[\u2e80-\u312f\u31a0-\u9fff\uf900-\ufaff\uff00-\uffef\U00020000-\U0003ffff]+")
_HANGUL = re.compile("[\uac00-\ud7a3]+")
# Superscripts that belong to the word before them: ordinals of English, French and Spanish, Mme and Mlle.
_ORDINAL = re.compile(r"(?i:st|nd|rd|th|tm)|ers?|ère|res?|[eèé]mes?|es?|os?|[aªº]|mes?|lles?")
_NOTE_MARK = re.compile(r"\w.*|[*†‡§¶‖#]+")
_LONGEST_MARK = 30  # characters; a longer one is small text
_NUMBERS = re.compile(r"[-−+]?\d+(?:[.,;–—-]\d+)*")
_MARK = re.compile(r"\^[^\s()]+|\[[^\[\]]+\]")
_PICTURE_FILE = re.compile(r"\.(?:png|jpe?g|gif|bmp|tiff?|svg|webp|emf|wmf|heic)$", re.IGNORECASE)
_OPEN_DASH = re.compile(r"(?:[\w.,;:!?”’)][-‐‑–—]|[-–—]{2}|—|/)$")
_SPACED_WORD = re.compile(r"[A-Za-z\u00c0-\u06ff]{4,}")  # words of alphabets with spaces
_DRAWN_OUT = re.compile(r"([^\W\d_])\1\1")  # from fonts that map Arabic justification strokes to a letter
_ENOUGH_WORDS = 20


def tidy(text: str) -> str:
    """Return text in NFC with plain characters, single spaces, no blank line ends, at most one empty line in a row."""
    if PLAIN.fullmatch(text):
        return text
    text = _BREAKS.sub("\n", text).translate(_WINDOWS)
    text = _JUNK.sub("", text).translate(_LIGATURES)
    text = _SYMBOL_BULLETS.sub("•", text)
    text = _SHAPED.sub(lambda match: unicodedata.normalize("NFKC", match[0]), text)
    text = unicodedata.normalize("NFC", _PILED.sub(lambda match: _fewer_marks(match[0]), text))
    text = _SPACES.sub(" ", text)
    text = re.sub(r" ?\n ?", "\n", text)
    return re.sub(r"\n{3,}", "\n\n", text).strip()


def _fewer_marks(signs: str) -> str:
    """Drop the combining marks after the thirtieth on a letter."""
    kept, marks = [], 0
    for sign in signs:
        marks = marks + 1 if unicodedata.combining(sign) else 0
        if marks <= _MOST_MARKS:
            kept.append(sign)
    return "".join(kept)


def tidy_code(text: str) -> str:
    """Apply `tidy` to lines that keep their indentation and columns: programs, tables, drawings in characters."""
    lines = _BLANK.sub(" ", _BREAKS.sub("\n", text).expandtabs(4)).split("\n")
    kept = "\n".join("".join(map(_tidy_cell, re.split("( {2,}|^ )", line))).rstrip() for line in lines)
    return re.sub(r"\n{3,}", "\n\n", kept).strip("\n")


def _tidy_cell(text: str) -> str:
    """Apply `tidy` to a cell; keep one of blanks alone."""
    return text if text.isspace() else tidy(text)


def one_line(text: str) -> str:
    """Return `tidy` text on a single line, for titles and labels."""
    return " ".join(tidy(text).split())


def superscript(text: str, linked: bool) -> str:
    """Write a superscript on the line: "[1]" for a footnote's mark, "^5", "^(n+1)". As it is, "19901" would be read.

    Args:
        text: the raised characters.
        linked: they are a link, or in one, so that a number is that of a footnote.
    """
    text = re.sub(r"\s*([,;–—])\s*", r"\1", one_line(text))
    if len(text) > _LONGEST_MARK:
        return text
    mark = text.strip("[](){}") if linked else ""
    if _NOTE_MARK.fullmatch(mark) and (len(mark) == 1 or not _ORDINAL.fullmatch(mark)):
        return f"[{mark}]"
    if _ORDINAL.fullmatch(text) or re.fullmatch(r"[^\w\s]*|\[.*\]", text):
        return text
    return f"^{text if _NUMBERS.fullmatch(text) else in_parentheses(text)}"


def in_parentheses(text: str) -> str:
    """Put an operand in parentheses unless it is a single word or number: "2", "(x+1)"."""
    return text if re.fullmatch(r"\w*|\([^()]*\)", text) else f"({text})"


def join_inline(parts: Iterable[str]) -> str:
    """Join the parts of a paragraph, some made by `superscript`. A blank ends a power or a leading footnote mark."""
    whole: list[str] = []
    marked = begun = False
    for part in filter(None, parts):
        if marked and part[0].isalnum():
            whole.append(" ")
        marked = bool(_MARK.fullmatch(part)) and (part[0] == "^" or not begun)
        begun = begun or not part.isspace()
        whole.append(part)
    return "".join(whole)


def picture_text(description: str | None) -> str:
    """Return a picture's description in brackets, or "" if it is a file name or too short to tell anything."""
    description = one_line(description or "")
    said = len(description) > 15 and not _PICTURE_FILE.search(description)
    return f" [picture: {description}] " if said else ""


def comment_text(author: str | None, text: str) -> str:
    """Return a comment in brackets, as it stands behind the words it is about. Both arguments are single lines."""
    return f"[comment by {author}: {text}]" if author else f"[comment: {text}]"


def attach_accents(text: str) -> str:
    """Put a spacing accent on the letter after it, if one character exists for the pair."""

    def compose(match: re.Match[str]) -> str:
        letter = "i" if match[2] == "ı" else match[2]
        pair = unicodedata.normalize("NFC", letter + _COMBINING[match[1]])
        return pair if len(pair) == 1 else match[0]

    return _LOOSE_ACCENT.sub(compose, text) if re.search("[˘ˇ¨˝˚]", text) else text


def ends_sentence(text: str) -> bool:
    """Return whether a line may end a paragraph, judging by its last characters."""
    return bool(_TERMINAL.search(text[-40:]))


def vocabulary(texts: Iterable[str]) -> set[str]:
    """Return all words of some lines, case-folded, without words broken at a line end.

    Compounds are there whole and in parts. A part comes twice, bare and with its hyphen: "low", "low-", "-dimensional".
    """
    words: set[str] = set()
    broken = False  # the last line ended in a broken word, and this one begins with its rest
    for text in texts:
        for match in _WORD.finditer(text):
            if broken and match.start() == 0:
                continue
            if match.end() == len(text) - 1 and text[-1] in "-‐":
                continue
            word = match[0].casefold().replace("‐", "-")
            words.add(word)
            if "-" in word:
                parts = word.split("-")
                words.update(parts)
                words.update(f"{part}-" for part in parts[:-1])
                words.update(f"-{part}" for part in parts[1:])
        broken = text.endswith(("-", "‐"))
    return words


def seam(first: str, second: str, words: set[str], spaced: bool = False, trust_spaces: bool = False) -> tuple[int, str]:
    """Decide how two lines of a paragraph become one.

    Args:
        first: a line, or a paragraph up to here.
        second: the line after it.
        words: `vocabulary` of the document; tells "effi-ciency" from "high-dimensional".
        spaced: the first line had a space at its end.
        trust_spaces: in this document such spaces tell whether a word ended (Korean breaks lines inside words).

    Returns:
        How many characters to cut from the end of `first`, and the text to put between.
    """
    end = first[-_LONGEST_WORD:]  # only the last word matters, and a paragraph may be huge
    if not end or not second or end[-1].isspace():
        return 0, ""
    broken = _HYPHEN_END.search(end)
    if broken:
        tail = _WORD_START.match(second[:_LONGEST_WORD])
        if tail and second[0].islower() and not _is_compound(broken[1], tail[0], words):
            return 1, ""
        return 0, ""  # "high-" + "dimensional", "COVID-" + "19", "Wen-" + "Tau"
    if _OPEN_DASH.search(end) and not spaced:
        return 0, ""
    border = end[-1] + second[0]
    if _UNSPACED.fullmatch(border) or (trust_spaces and not spaced and _HANGUL.fullmatch(border)):
        return 0, ""
    return 0, " "


def join_lines(first: str, second: str, words: set[str]) -> str:
    """Join two lines of a paragraph; see `seam`."""
    lost, glue = seam(first, second, words)
    return first[: len(first) - lost] + glue + second


def _is_compound(head: str, tail: str, words: set[str]) -> bool:
    head, tail = head.casefold(), tail.casefold()
    if head + tail in words:
        return False
    if f"{head}-{tail}" in words or len(head) == 1:
        return True
    if (f"-{tail}" in words and len(tail) >= 4) or (f"{head}-" in words and tail in words and len(tail) >= 4):
        return True
    return min(len(head), len(tail)) >= 4 and head in words and tail in words


def text_warnings(text: str, in_print: bool = True) -> tuple[str, ...]:
    """Return warnings about a page's characters, for a person.

    Fewer than one bad character in fifty, or one bad word in twenty, give no warning.

    Args:
        text: the page's.
        in_print: the characters come from the glyphs of a font, not from a file of characters.
    """
    visible, lost, private = _unknown(text)
    found = []
    if lost * 50 > visible:
        why = "mapped to text (no font mapping)" if in_print else "read in the file's encoding"
        found.append(f"{lost} of {visible} characters could not be {why}")
    if private * 50 > visible:
        found.append(f"{private} of {visible} characters are private to a font and have no known meaning")
    words = _SPACED_WORD.findall(text) if in_print else []
    drawn_out = sum(bool(_DRAWN_OUT.search(word)) for word in words)
    if len(words) >= _ENOUGH_WORDS and drawn_out * 20 > len(words):
        found.append(f"{drawn_out} of {len(words)} words have a letter three times in a row, as if wrongly mapped")
    return tuple(found)


def count_unknown_characters(text: str) -> int:
    """Count the characters that are replaced (U+FFFD) or private to a font."""
    return text.count("\ufffd") + len(_PRIVATE.findall(text))


def is_unreadable(text: str) -> bool:
    """Return whether at least half of the visible characters are unknown or private to a font."""
    visible, lost, private = _unknown(text)
    return visible > 0 and (lost + private) * 2 >= visible


def _unknown(text: str) -> tuple[int, int, int]:
    """Count the visible characters, the replaced ones (U+FFFD) and those of private use."""
    lost, private = text.count("\ufffd"), len(_PRIVATE.findall(text))
    return len("".join(text.split())), lost, private
