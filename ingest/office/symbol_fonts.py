"""Fonts whose letters are signs: what these are in Unicode, by their code."""

import re

_SIGNS = {
    "symbol": {
        start + index: sign
        for start, signs in (
            (0x20, " !∀#∃%&∋()∗+,−./0123456789:;<=>?≅ΑΒΧΔΕΦΓΗΙϑΚΛΜΝΟΠΘΡΣΤΥςΩΞΨΖ[∴]⊥_‾αβχδεφγηιϕκλμνοπθρστυϖωξψζ{|}∼"),
            (0xA1, "ϒ′≤⁄∞ƒ♣♦♥♠↔←↑→↓°±″≥×∝∂•÷≠≡≈…"),
            (0xBF, "↵ℵℑℜ℘⊗⊕∅∩∪⊃⊇⊄⊂⊆∈∉∠∇®©™∏√⋅¬∧∨⇔⇐⇑⇒⇓◊〈®©™∑"),
            (0xF1, "〉∫"),
        )
        for index, sign in enumerate(signs)
    },
    "wingdings": {
        **{0x28: "☎", 0x2A: "✉", 0x46: "☞", 0x4A: "☺", 0x4C: "☹", 0x6C: "●", 0x6E: "■", 0x6F: "☐", 0x71: "❑"},
        **{0x76: "❖", 0x9F: "•", 0xA7: "▪", 0xA8: "☐", 0xD8: "➢", 0xDF: "←", 0xE0: "→", 0xE1: "↑", 0xE2: "↓"},
        **{0xE8: "➔", 0xF0: "⇨", 0xFB: "✗", 0xFC: "✓", 0xFD: "☒", 0xFE: "☑"},
    },
    "wingdings 2": {0x4F: "✗", 0x50: "✓", 0x51: "☒", 0x52: "☑", 0x53: "☒", 0x54: "☒", 0xA3: "☐"},
}
_OWN = re.compile("[\uf020-\uf0ff]")


def sign(font: str | None, code: int) -> str:
    """A character of a font of signs; one that is not known here stays private to its font."""
    return _SIGNS.get((font or "").casefold(), {}).get(code & 0xFF, chr(code))


def in_unicode(font: str | None, text: str) -> str:
    """Text with the characters that such a font has in the private range as what they show."""
    return _OWN.sub(lambda found: sign(font, ord(found[0])), text)
