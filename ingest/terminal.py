"""The text that a terminal shows: without colour codes and overwritten lines."""

import re
from itertools import pairwise

_CODE = (  # sequences with parameters; titles and links; character sets; single letters
    r"\x1b(?:\[([0-?]*)[ -/]*([@-~])|[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?|[ -/]+[0-~]|[0-Z\\^_`a-z{|}~])"
)
_TOKENS = re.compile(rf"{_CODE}|[\r\b]|[^\r\b\x1b]+|\x1b")
_CONTROLS = re.compile(r"[\r\b\x1b]")
_LONE_RETURN = re.compile(r"\r(?!\n)(?=[^\r])")
_ESCAPED_CODE = re.compile(r"\\u001[bB]\[[0-?]*[ -/]*[@-~]")  # as JSON writes it
_FARTHEST = 1000  # lines or letters that the cursor may be moved at once
_LONGEST_PROGRESS = 300  # characters of a line that shows how far a program is


def terminal_text(text: str, is_output: bool = False) -> str:
    """Return text as a terminal shows it, if it was written to one; any other text is returned as it is.

    Args:
        text: with any line ends.
        is_output: it is known to be a program's output; otherwise its control characters must tell.
    """
    if not is_output and "\n" not in text:
        text = text.replace("\r", "\n")  # as files of old Macintoshes end their lines
    if is_output or "\x1b" in text or "\b" in text or _overwrites(text):
        return _shown(text)
    return text


def strip_escaped_codes(text: str) -> str:
    """Remove colour codes from JSON that was not decoded."""
    return _ESCAPED_CODE.sub("", text)


def _overwrites(text: str) -> bool:
    """Return whether carriage returns go back to the start of a line, as behind "10 %"; else they are line ends."""
    if "\n" not in text or not _LONE_RETURN.search(text):
        return False
    returned = [line.rstrip("\r").split("\r") for line in text.split("\n")]
    pairs = [pair for parts in returned for pair in pairwise(parts)]
    return all(
        max(map(len, pair)) <= _LONGEST_PROGRESS and _first_word(pair[0]) == _first_word(pair[1]) for pair in pairs
    )


def _first_word(text: str) -> str:
    """Return the first letters of a line: those of "Loading" in "[3/9] Loading a"; "" for "10%|##  |"."""
    found = re.search(r"[^\W\d_]+", text)
    return found[0] if found else ""


def _shown(text: str) -> str:
    """Move a cursor over lines as a terminal does. Screens that are cleared or scrolled stay."""
    rows, row, column = [""], 0, 0
    for number, written in enumerate(text.split("\n")):
        if number:
            row, column = row + 1, 0
            if row == len(rows):
                rows.append("")
        if not rows[row] and not _CONTROLS.search(written):
            rows[row] = written
            continue
        line = list(rows[row])
        for token in _TOKENS.finditer(written):
            sign = token[0]
            if sign == "\r":
                column = 0
            elif sign == "\b":
                column = max(column - 1, 0)
            elif token[2]:
                first = token[1].split(";")[0]
                steps = min(int(first), _FARTHEST) if first.isdecimal() else 0
                if token[2] in "ABEF":
                    rows[row] = "".join(line)
                    row = max(row - max(steps, 1), 0) if token[2] in "AF" else row + max(steps, 1)
                    rows += [""] * (row + 1 - len(rows))
                    line = list(rows[row])
                    column = 0 if token[2] in "EF" else column
                elif token[2] in "CDG":
                    moved = {"C": column + max(steps, 1), "D": column - max(steps, 1), "G": steps - 1}[token[2]]
                    column = max(moved, 0)
                elif token[2] == "K":
                    line = line[:column] if steps == 0 else [*" " * min(column, len(line)), *line[column:]]
                    line = [] if steps == 2 else line
            elif sign[0] != "\x1b":
                line += " " * (column - len(line))
                line[column : column + len(sign)] = sign
                column += len(sign)
        rows[row] = "".join(line)
    return "\n".join(rows)
