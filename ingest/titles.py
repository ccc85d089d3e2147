"""A document's title: its metadata if they make sense, else its first heading, else the file's name."""

import re
from pathlib import Path

from ingest.clean import one_line
from ingest.formats import SUFFIXES

LONGEST = 200  # characters

_SUFFIX = re.compile(r"\.[a-z0-9]{1,10}", re.IGNORECASE)
_UNREAD_SUFFIXES = ("doc", "ppt", "xls", "tex", "dvi", "ps", "pages", "indd", "qxp", "qxd", "wpd", "pub", "fm")
_FILE_NAME = re.compile(rf"^\S*\w\.(?:{'|'.join((*SUFFIXES, *_UNREAD_SUFFIXES))})$", re.IGNORECASE)
_PROGRAM = re.compile(
    r"^(microsoft (word|powerpoint|excel|office)\b.*|adobe \w+( pdf)?|powerpoint presentation|word document"
    r"|slide ?\d+|presentation\d*|document\d*|doc\d+|layout \d+|print|scan(ned)?[ _\d]*|img[_ \d]*|output|template"
    r"|unknown|untitled.*|unbenannt.*|sans titre.*|sin t[ií]tulo.*|ohne titel.*|no title|title|none|null|default"
    r"|new document|tmp\w*|temp\w*|index|cover|contents"
    r"|table of contents|inhalt(sverzeichnis)?|table des mati[eè]res|\(anonymous\))$",
    re.IGNORECASE,
)


def usable_title(title: str | None) -> str:
    """Return a title on one line, or "" if it is a program's default, a file name, or has no words."""
    title = one_line(title or "")
    if not re.search(r"[^\W\d_]", title) or len(title) > LONGEST or "\ufffd" in title or " | " in title:
        return ""
    return "" if _FILE_NAME.match(title) or _PROGRAM.match(title) else title


def choose_title(path: Path, *candidates: str | None) -> str:
    """Return the first usable candidate, else the file's stem with spaces for underscores."""
    for candidate in candidates:
        if title := usable_title(candidate):
            return title
    name = path.stem if _SUFFIX.fullmatch(path.suffix) else path.name  # "Mr. Smith goes home" has none
    return one_line(re.sub(r"_+", " ", name))[:LONGEST] or path.name or "document"
