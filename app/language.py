"""The language of the page: the one that the browser prefers, if it is among assets/languages. English is the source.

A file there maps English text to its translation, with the same {placeholders}. The placeholder n and those that begin
with n_ stand for numbers, those in COUNTED and INNER for words with translations of their own. Its part "page" has
texts that the page's own code puts together (`t`), "sentences" has errors, notes and stages that other code makes and
keeps in English (`told`), and "places" the names of pages (`place_words`). The command line and the APIs stay English,
because only the page calls `speaking`.
"""

import json
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache, lru_cache

from app.home import ASSETS

ENGLISH = "en"
LANGUAGES = ("de", "es", "fr", "ja", "zh-CN")
"""Tags of the languages beside English, as Gradio names its own words."""
COUNTED, INNER = ("size", "free", "needed", "things", "kind_of", "status", "where"), ("kind", "rest")
"""Placeholders for words: those in COUNTED may stay English, those in INNER make the whole sentence stay English."""
APART = {": ": ("file", "member"), ". ": ("list", "things", "place", "encoding")}
"""Placeholders whose values have no such sign, so that they do not take in what stands before or behind them."""
UNSPACED = ("ja", "zh-CN")
"""Languages without spaces between sentences, and with a comma of their own."""
_SEPARATORS = {"de": ".,", "es": ".,", "fr": "\u202f,"}
"""The signs between thousands and before decimals, where they are not those of English."""

_present: ContextVar[str] = ContextVar("language", default=ENGLISH)


def language_of(accepted: str) -> str:
    """Return the language for an Accept-Language header: its first one, as Gradio chooses, or English."""
    first = accepted.split(",")[0].partition(";")[0].strip()
    return next((each for each in (first, first.partition("-")[0]) if each in LANGUAGES), ENGLISH)


@contextmanager
def speaking(language: str) -> Iterator[None]:
    """Let `t`, `told` and `figure` use a language."""
    before = _present.set(language)
    try:
        yield
    finally:
        _present.reset(before)


def present() -> str:
    """Return the tag of the language in use."""
    return _present.get()


@cache
def words(language: str, part: str = "") -> dict[str, str]:
    """Return the translations of a language by their English text; none for English.

    part: "page", "sentences" or "places", see above; "" for all of them.
    """
    if language == ENGLISH:
        return {}
    parts: dict[str, dict[str, str]] = json.loads(
        (ASSETS / "languages" / f"{language}.json").read_text(encoding="utf-8")
    )
    return parts[part] if part else {text: said for each in parts.values() for text, said in each.items()}


def t(text: str, **values: object) -> str:
    """Return a text in the language in use. values: its placeholders; whole numbers get separators."""
    said = words(_present.get()).get(text, text)
    shown = {name: figure(f"{each:,}") if isinstance(each, int) else each for name, each in values.items()}
    return said.format(**shown) if values else said


def figure(number: str) -> str:
    """Return a number that is written as in English with the separators of the language in use."""
    signs = _SEPARATORS.get(_present.get())
    return number.translate({ord(","): signs[0], ord("."): signs[1]}) if signs else number


def told(sentence: str) -> str:
    """Return an English sentence that was made elsewhere in the language in use, or unchanged if it has no translation.

    Errors and notes are kept in English. They are matched whole, or else sentence by sentence.
    """
    return joined([said for said, _ in told_parts(sentence)])


def told_parts(sentence: str) -> tuple[tuple[str, bool], ...]:
    """Return the parts of `told`, each with False if it stays English for want of a translation.

    A part that ends in ":" and has none is a title, whose words are its own, if the next part has one.
    """
    language = _present.get()
    return ((sentence, True),) if language == ENGLISH else _told(language, sentence)


def joined(sentences: Iterable[str]) -> str:
    """Join sentences, with spaces between them if the language in use has any."""
    return ("" if _present.get() in UNSPACED else " ").join(filter(None, sentences))


def place_words(label: str) -> str:
    """Return a place, such as "page 3", in the language in use. A document's own headings stay as they are."""
    language = _present.get()
    if language == ENGLISH:
        return label
    parts = re.split(r"((?:^| )\+ )", label)  # pages that are kept in view stand behind a plus sign
    return "".join(_matched(language, "places", part) or part for part in parts)


@lru_cache(maxsize=4096)
def _told(language: str, sentence: str) -> tuple[tuple[str, bool], ...]:
    parts, said = re.split(r"(?<=[.;:!?]) ", sentence), list[tuple[str, bool]]()
    while parts:
        longest = (" ".join(parts[:many]) for many in range(len(parts), 0, -1))
        found = next(((each, known) for each in longest if (known := _sentence(language, each))), None)
        given, known = found or (parts[0], parts[0])
        said.append((known, found is not None))
        del parts[: len(re.split(r"(?<=[.;:!?]) ", given))]
    for index in range(len(said) - 2, -1, -1):  # from the end, as a title may stand behind another
        if said[index][0].endswith(":") and said[index + 1][1]:
            said[index] = said[index][0], True
    return tuple((each, fine or not re.search(r"[^\W\d]", each)) for each, fine in said)  # "7." needs none


def _sentence(language: str, sentence: str) -> str | None:
    return words(language).get(sentence) or _matched(language, "sentences", sentence)


def _matched(language: str, part: str, text: str) -> str | None:
    for pattern, translation in _patterns(language, part):
        if match := pattern.fullmatch(text):
            values = {name: _value(language, name, each) for name, each in match.groupdict().items()}
            if None not in values.values():
                return translation.format(**values)
    return None


def _is_number(name: str) -> bool:
    return name == "n" or name.startswith("n_")


def _value(language: str, name: str, value: str) -> str | None:
    """Return the words for a placeholder; None if they need a translation and have none."""
    if _is_number(name):
        return figure(value)
    if name in COUNTED:
        return _counted(language, value) or value
    if name in ("doubt", "reason"):
        return _sentence(language, value) or value
    if name == "list" and (cut := re.fullmatch(r"(.+) and ([\d,]+) more", value, re.DOTALL)):
        return words(language)["{list} and {n} more"].format(list=cut[1], n=figure(cut[2]))
    if name == "list":
        return _counted(language, value) or value
    if name in INNER:
        return _sentence(language, value)
    if name == "formats":
        return ("、" if language in UNSPACED else ", ").join(t(each) for each in value.split(", "))
    return place_words(value) if name == "place" else value


def _counted(language: str, value: str) -> str | None:
    """Return the translation of words, or of a number with its noun or unit; None if there is none."""
    if value in words(language):
        return words(language)[value]
    number, _, noun = value.partition(" ")
    known = words(language).get(f"{{n}} {noun}") if re.fullmatch(r"[\d.,]+", number) else None
    return known and known.format(n=figure(number))


@cache
def _patterns(language: str, part: str) -> list[tuple[re.Pattern[str], str]]:
    """Return the texts of a part as patterns, those with most words of their own first."""
    held = sorted(words(language, part).items(), key=lambda each: -len(re.sub(r"\{\w+\}", "", each[0])))
    return [(pattern_of(text), said) for text, said in held]


def pattern_of(text: str) -> re.Pattern[str]:
    """Return a pattern that matches a text with any values for its placeholders."""
    pieces, seen = [], set()
    for piece in re.split(r"(\{\w+\})", text):
        name = piece[1:-1]
        if not re.fullmatch(r"\{\w+\}", piece):
            pieces.append(re.escape(piece))
        elif name in seen:
            pieces.append(f"(?P={name})")
        else:
            seen.add(name)
            sign = next((each for each, names in APART.items() if name in names), "")
            any_words = f"(?:(?!{re.escape(sign)}).)+?" if sign else ".+?"
            pieces.append(rf"(?P<{name}>-?[\d.,]+)" if _is_number(name) else f"(?P<{name}>{any_words})")
    return re.compile("".join(pieces), re.DOTALL)
