"""The numbers of list items, in digits, letters or Roman numerals."""

_ROMAN = (
    *((1000, "m"), (900, "cm"), (500, "d"), (400, "cd"), (100, "c"), (90, "xc")),
    *((50, "l"), (40, "xl"), (10, "x"), (9, "ix"), (5, "v"), (4, "iv"), (1, "i")),
)


def list_number(number: int, kind: str) -> str:
    """Write a number of a list as Word names the kinds: "lowerLetter" is "c", "upperRoman" is "III".

    A kind that is not known here is written in digits; "none" is "".
    """
    match kind:
        case "none":
            return ""
        case "decimalZero":
            return f"{number:02}"
        case "lowerLetter" | "upperLetter" if 0 < number <= 26 * 9:  # z is followed by aa, bb
            text = chr(ord("a") + (number - 1) % 26) * ((number - 1) // 26 + 1)
        case "lowerRoman" | "upperRoman" if 0 < number < 4000:
            text = ""
            for size, letters in _ROMAN:
                text += letters * (number // size)
                number %= size
        case _:
            return str(number)
    return text.upper() if kind.startswith("upper") else text
