"""Numbers as sheets and charts show them, by the codes of their formats: 0.25 is "25%", 45000 is "2023-03-15".

A day is written as 2023-03-15 whatever its code; currencies and units stay. A code that is not understood (fractions,
conditions, digits in several groups), and one that hides its number, shows the number as it is.
"""

import re
from datetime import datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal
from functools import lru_cache

BUILT_IN = {  # by their numbers, which stand for them; some are written otherwise in other languages
    **{1: "0", 2: "0.00", 3: "#,##0", 4: "#,##0.00", 9: "0%", 10: "0.00%", 11: "0.00E+00", 48: "##0.0E+0"},
    **dict.fromkeys((5, 6, 37, 38), "#,##0"),
    **dict.fromkeys((7, 8, 39, 40), "#,##0.00"),
    **{41: "#,##0", 42: "#,##0", 43: "#,##0.00", 44: "#,##0.00"},
    **dict.fromkeys((*range(14, 18), *range(27, 32), 36, *range(50, 55), 57, 58), "yyyy-mm-dd"),
    **dict.fromkeys((18, 20, 32, 34, 55), "h:mm"),
    **dict.fromkeys((19, 21, 33, 35, 45, 47, 56), "h:mm:ss"),
    **{22: "yyyy-mm-dd h:mm", 46: "[h]:mm:ss"},
}
_EPOCH, _EPOCH_OF_MACS = datetime(1899, 12, 30), datetime(1904, 1, 1)
_LEAP = 60  # there is no such day, 1900-02-29, but it is counted
_MOST_DIGITS = 30  # behind the point
_LONGEST_PLAIN = 20  # digits before the point, or noughts behind it: more are written as a power
_MOST_DECIMALS, _LEAST_DECIMALS = 6, 2  # of a number that was calculated
_LONGEST = 255  # characters of a code

_PIECE = re.compile(
    r'"(?P<quoted>[^"]*)"?|\\(?P<escaped>.)|(?P<filler>\*.)|_.|\[\$(?P<currency>[^\]-]*)[^\]]*\]|\[(?P<elapsed>h+|m+|s+)\]'
    r"|\[(?P<note>[^\]]*)\]|(?P<general>General)|(?P<half>A/P|AM/PM)|(?P<digits>[0#?][0#?,.]*|\.[0#?]+)"
    r"|(?P<power>E[+-]0+)|(?P<part>[ymdhs]+)|(?P<other>.)",
    re.IGNORECASE | re.DOTALL,
)


def shown(value: str, code: str, of_macs: bool = False) -> str:
    """A number, as the file writes it, in the format of that code; what is no number as it is.

    of_macs: days are counted from 1904.
    """
    if len(code) > _LONGEST:
        return plain(value)
    try:
        number = float(value)
        sections = _sections(code)
        if _is_time(code):
            return _time(number, code, of_macs)
        index = 1 if number < 0 and len(sections) > 1 else 2 if number == 0 and len(sections) > 2 else 0
        exact = Decimal(value if number.is_integer() else f"{number:.15g}")
        return _in_form(abs(exact) if index == 1 else exact, sections[index]) or plain(value)
    except (ValueError, ArithmeticError):
        return plain(value)


def plain(value: str) -> str:
    """A number without the last digits of its binary form: 4.3 and not 4.2999999999999998; as it is if it is none.

    All digits of whole numbers stay, however they are spelled: 1.2345678901234E13 may be what something is called.
    """
    if re.fullmatch(r"-?\d+", value):
        return value
    try:
        number = Decimal(value)
        if not number.is_finite():
            return value
        if abs(number.adjusted()) > _LONGEST_PLAIN:
            return f"{float(value):.10g}"
        if number != number.to_integral_value():
            number = Decimal(f"{float(value):.15g}")
            if -int(number.as_tuple().exponent) > _MOST_DECIMALS:
                places = max(10, number.adjusted() + 1 + _LEAST_DECIMALS)
                return f"{float(value):.{places}g}"
        written = f"{number:f}"
        return written.rstrip("0").rstrip(".") if "." in written else written
    except (ValueError, ArithmeticError):
        return value


@lru_cache(maxsize=1000)
def _sections(code: str) -> list[list[tuple[str, str]]]:
    """The pieces of a code, as kind and text, in its sections: for all numbers, or those above, below and at zero."""
    sections: list[list[tuple[str, str]]] = [[]]
    for match in _PIECE.finditer(code):
        kind = match.lastgroup or "blank"
        text = match[match.lastgroup] if match.lastgroup else " "
        if kind == "other" and text == ";":
            sections.append([])
        else:
            sections[-1].append((kind, text))
    return sections


@lru_cache(maxsize=1000)
def _is_time(code: str) -> bool:
    return any(kind in ("part", "elapsed") for kind, _ in _sections(code)[0])


def _time(number: float, code: str, of_macs: bool) -> str:
    pieces = _sections(code)[0]
    letters = "".join(text.casefold() for kind, text in pieces if kind in ("part", "elapsed"))
    seconds = round(number * 86_400)
    if any(kind == "elapsed" for kind, _ in pieces):
        hours, rest = divmod(abs(seconds), 3600)
        clock = f"{'-' * (seconds < 0)}{hours}:{rest // 60:02}"
        return f"{clock}:{rest % 60:02}" if "s" in letters else clock
    # LibreOffice counts below zero, and from a day earlier until Excel's day that there was not.
    epoch = _EPOCH_OF_MACS if of_macs else _EPOCH + timedelta(days=0 <= number < _LEAP)
    moment = epoch + timedelta(seconds=seconds)
    clock = f"{moment:%H:%M:%S}" if "s" in letters else f"{moment:%H:%M}"
    timed, dated = bool(re.search("[hs]", letters)), bool(re.search("[yd]|mmm", letters))
    if timed and (not dated or 0 <= number < 1):
        return clock
    if 0 <= number < 1:
        raise ValueError(f"{number} is no day")
    return f"{moment.date()} {clock}" if timed else str(moment.date())


def _in_form(number: Decimal, pieces: list[tuple[str, str]]) -> str:
    """A number in a section of a code; "" where that is not understood."""
    kinds = [kind for kind, _ in pieces]
    conditional = re.search(r"[<>=]", "".join(_of("note", pieces)))
    if kinds.count("digits") + kinds.count("general") > 1 or conditional or {"/", "@"} & set(_of("other", pieces)):
        return ""
    number *= 100 ** _of("other", pieces).count("%")
    written = ""
    for kind, text in pieces:
        if kind == "digits":
            written += _digits(abs(number), text, "".join(_of("power", pieces)))
        elif kind == "general":
            written += plain(str(abs(number)))
        elif kind not in ("note", "power", "filler"):
            written += text
    # A section for numbers below zero says itself how they look; its number comes without a sign.
    return f"-{written.strip()}" if number < 0 and re.search("[1-9]", written) else written.strip()


def _of(kind: str, pieces: list[tuple[str, str]]) -> list[str]:
    return [text for each, text in pieces if each == kind]


def _digits(number: Decimal, form: str, power: str) -> str:
    scaled = form.rstrip(",")
    number /= 1000 ** (len(form) - len(scaled))
    whole, _, fraction = scaled.partition(".")
    places = len(fraction)
    if power:
        return f"{float(number):.{min(places, _MOST_DIGITS)}E}"
    rounded = number.quantize(Decimal(1).scaleb(-min(places, _MOST_DIGITS)), ROUND_HALF_UP)
    if not rounded and "0" not in form:
        return ""
    before, _, after = f"{rounded:,f}".partition(".")
    if "," not in whole:
        before = before.replace(",", "").zfill(whole.count("0"))
    least = len(fraction.rstrip("#?"))
    after = after[:least] + after[least:].rstrip("0")
    return f"{before}.{after}" if after else before
