"""In which languages text in pictures can be recognised here, by what Tesseract has data for, and in which it is.

STOCKPOT_OCR_LANGUAGES names those to use as Tesseract does, for example "fra+deu", the main one first.
"""

import os
import re
from collections.abc import Sequence
from pathlib import Path

from ingest.errors import OcrUnavailable

VARIABLE = "STOCKPOT_OCR_LANGUAGES"
MOST = 3  # languages that nobody named: each one takes time, and makes mistakes of its own
# Languages of locales as Tesseract calls them, where it does not call them the same.
_OF_LOCALES: dict[str, str] = dict(
    re.findall(
        r"(\w+):(\w+)",
        """
        af:afr ar:ara bg:bul bn:ben ca:cat cs:ces cy:cym da:dan de:deu el:ell en:eng es:spa et:est eu:eus fa:fas fi:fin
        fr:fra ga:gle gl:glg gu:guj he:heb hi:hin hr:hrv hu:hun hy:hye id:ind is:isl it:ita ja:jpn ka:kat kn:kan ko:kor
        lt:lit lv:lav mk:mkd ml:mal mr:mar ms:msa nb:nor nl:nld nn:nor no:nor pa:pan pl:pol pt:por ro:ron ru:rus sk:slk
        sl:slv sq:sqi sr:srp sv:swe ta:tam te:tel th:tha tr:tur uk:ukr ur:urd vi:vie
        zh:chi_sim zh_HK:chi_tra zh_TW:chi_tra
        """,
    )
)


def ocr_languages() -> tuple[str, ...]:
    """The languages whose Tesseract data are installed, `eng` first; none where OCR cannot run."""
    import pymupdf  # takes a second, and few ask

    try:
        folder = Path(os.environ.get("TESSDATA_PREFIX") or pymupdf.get_tessdata())
    except RuntimeError:
        return ()
    found = sorted(file.stem for file in folder.glob("*.traineddata") if file.stem != "osd")
    return tuple(sorted(found, key=lambda language: language != "eng"))


def ocr_languages_used() -> tuple[str, ...]:
    """Those of them that pages are recognised in, as `choose_languages` has it for this environment.

    Raises:
        OcrUnavailable: STOCKPOT_OCR_LANGUAGES names one that is not installed.
    """
    said = (os.environ.get(name) for name in ("LC_ALL", "LC_MESSAGES", "LANG"))
    return choose_languages(ocr_languages(), os.environ.get(VARIABLE, ""), next(filter(None, said), ""))


def choose_languages(installed: Sequence[str], wanted: str, locale: str) -> tuple[str, ...]:
    """Those wanted; where none are, English, that of the locale and others by their names, three at most.

    Args:
        installed: Tesseract's names for them; where there are none, none is chosen.
        wanted: as in "fra+deu"; may be empty.
        locale: as in "fr_FR.UTF-8"; may be empty.

    Raises:
        OcrUnavailable: one that is wanted is not installed.
    """
    named = tuple(dict.fromkeys(filter(None, (name.strip() for name in wanted.split("+")))))
    if installed and named:
        if missing := [name for name in named if name not in installed]:
            raise OcrUnavailable(
                f"{VARIABLE} is {wanted!r}, but Tesseract has no data for {', '.join(missing)} here. "
                f"Install it, or name some of these, joined by +: {', '.join(installed)}."
            )
        return named
    place = re.split(r"[.@]", locale)[0]
    language = place.split("_")[0]
    own = _OF_LOCALES.get(place) or _OF_LOCALES.get(language, language)
    first = [name for name in ("eng", own) if name in installed]
    return tuple(dict.fromkeys([*first, *installed]))[:MOST]
