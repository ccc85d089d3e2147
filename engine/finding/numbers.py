"""Numbers of a text by value: digits and number words below a thousand, so that "6" and "six" are one number.

Of ordinals only the English ones up to the twelfth are known, without "first" and "second".
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

from engine.finding.words import ENGLISH, FRENCH, GERMAN, SPANISH

DIGITS = re.compile(r"\d+(?:[.,\u202f\u00a0 ]\d{3})*(?:[.,:]\d+)?")

_PIECE = re.compile(rf"(?P<digits>{DIGITS.pattern})|[^\W\d_]+")
_GROUPS = re.compile(r"[.,\u202f\u00a0 ](?=\d{3}(?!\d))")
_BETWEEN = re.compile(r"(?:[-\u2010\u2011]|\s+)(?:(?:and|et|y)(?:[-\u2010\u2011]|\s+))?")

_ORDINALS = ("third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth", "eleventh", "twelfth")
_HUNDREDS = ("dosc", "tresc", "cuatroc", "quin", "seisc", "setec", "ochoc", "novec")

# Words from 0 on, words of the tens from 20 on, and others with their values.
_WORDS: dict[int, tuple[str, str, dict[str, int]]] = {
    ENGLISH: (
        """
        zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen
        eighteen nineteen
        """,
        "twenty thirty forty fifty sixty seventy eighty ninety",
        {"hundred": 100} | {word: at for at, word in enumerate(_ORDINALS, 3)},
    ),
    GERMAN: (
        """
        null ein zwei drei vier fünf sechs sieben acht neun zehn elf zwölf dreizehn vierzehn fünfzehn sechzehn siebzehn
        achtzehn neunzehn
        """,
        "zwanzig dreißig vierzig fünfzig sechzig siebzig achtzig neunzig",
        {"eins": 1, "eine": 1, "einem": 1, "einen": 1, "einer": 1, "eines": 1, "hundert": 100},
    ),
    FRENCH: (
        "zéro un deux trois quatre cinq six sept huit neuf dix onze douze treize quatorze quinze seize",
        "vingt trente quarante cinquante soixante septante huitante nonante",
        {"une": 1, "vingts": 20, "cent": 100, "cents": 100},
    ),
    SPANISH: (
        """
        cero uno dos tres cuatro cinco seis siete ocho nueve diez once doce trece catorce quince dieciséis diecisiete
        dieciocho diecinueve veinte veintiuno veintidós veintitrés veinticuatro veinticinco veintiséis veintisiete
        veintiocho veintinueve
        """,
        "veinte treinta cuarenta cincuenta sesenta setenta ochenta noventa",
        {"un": 1, "una": 1, "veintiún": 21, "cien": 100, "ciento": 100}
        | {
            f"{hundreds}{ending}": 100 * at
            for at, hundreds in enumerate(_HUNDREDS, 2)
            for ending in ("ientos", "ientas")
        },
    ),
}


class Number(NamedTuple):
    """A number of a text: characters `start` to `end`, and its value, which is "12000" for 12,000."""

    start: int
    end: int
    value: str


def numbers(text: str, language: int) -> Iterator[Number]:
    """Yield the numbers of a text in digits, and in words of a language: 6, twenty-one, dreihundert, quatre-vingts."""
    known, start, end, value = _values(language), 0, 0, 0
    for piece in _PIECE.finditer(text):
        if piece["digits"]:
            if end:
                yield Number(start, end, str(value))
                start = end = value = 0
            plain = _GROUPS.sub("", piece[0])
            yield Number(*piece.span(), plain.lstrip("0") or "0")
            continue
        word = known.get(piece[0].lower())
        if word is None:
            continue
        between = _BETWEEN.fullmatch(text, end, piece.start())
        apart = between is None or (language == ENGLISH and "and" in between[0] and value < 100)
        joined = None if apart else _joined(value, word, language)
        if end and joined is None:
            yield Number(start, end, str(value))
        start, end, value = (piece.start() if joined is None else start), piece.end(), joined or word
    if end:
        yield Number(start, end, str(value))


@cache
def _values(language: int) -> dict[str, int]:
    """Return the words of a language that are numbers, or parts of one, with their values."""
    small, tens, others = _WORDS[language]
    found = {word: at for at, word in enumerate(small.split())}
    tens_of = {word: 10 * at for at, word in enumerate(tens.split(), 2)}
    if language == GERMAN:  # the parts of a number are one word
        units = small.split()[1:10]
        tens_of |= {f"{unit}und{ten}": at + of for at, unit in enumerate(units, 1) for ten, of in tens_of.items()}
        below, hundreds = {"": 0, "eins": 1, **found, **tens_of}, [(1, ""), *enumerate(units, 1)]
        tens_of |= {f"{unit}hundert{rest}": 100 * at + of for at, unit in hundreds for rest, of in below.items()}
    return {**found, **tens_of, **others}


def _joined(value: int, word: int, language: int) -> int | None:
    """Return the value of a number that goes on with a word: 20 and 1 are 21, 2 and 100 are 200; None for two."""
    below = value % 100
    if word == 100 and 0 < value < 10:
        return 100 * value
    if language == FRENCH and (below, word) == (4, 20):
        return value + 76
    if value >= 100 and below == 0 and 0 < word < 100:
        return value + word
    most = 20 if language == FRENCH and below in (60, 80) else 10
    if below and below % 10 == 0 and 0 < word < most and (below > 10 or language == FRENCH):
        return value + word
    return None
