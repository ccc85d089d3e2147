"""The sentences of errors and warnings that can come to the page, as the source has them."""

import ast
import itertools
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import app
from app.errors import phrase
from app.machine.model_names import GET_SMOLLM2
from engine.errors import NO_NUMBERS
from engine.models.load_errors import ANEW
from ingest.print.pdf import OCR_HINT

ROOT = Path(app.__file__).parent.parent
ERRORS = (
    *(
        "AppError",
        "NotFound",
        "Ambiguous",
        "Unreachable",
        "UsageError",
        "StoreError",
        "InUse",
        "AlreadyRead",
        "StoreCorrupt",
    ),
    *(
        "StoreFailing",
        "BrokenFile",
        "UnsupportedFormat",
        "PasswordNeeded",
        "WrongPassword",
        "EmptyDocument",
        "NeedsOcr",
        "TooLarge",
    ),
    *("OcrUnavailable", "ModelError", "ModelNotFound", "UnsupportedModel", "ContextMismatch", "OutOfMemory"),
)
"""Errors whose sentences can come to the page. Those of a method's settings are for experts, and stay English."""
ELSEWHERE = (
    *("commands", "api", "cli.py", "guard.py", "server.py", "quantities.py", "gpus.py", "backup.py", "doctor.py"),
)
"""Folders and files of the command line, the APIs and the server's start."""
NOT_ALONE = re.compile(
    "content.xml|.* with another text|The database .* nothing else|A .* has no files|(top-k|min-p|A rep|A reas|A seed|"
    "A text|--weights|Only |At least one file )|it (has|takes|does)|7 (is no folder|holds what|is not linked)"
)
"""Beginnings of those that only the command line can cause, or that are put into another sentence."""
FILLED_IN: dict[str, str | tuple[str, ...]] = {
    "ANEW": ANEW,
    "NO_NUMBERS": NO_NUMBERS,
    "OCR_HINT": OCR_HINT,
    "OF_THE_FILE": "of the file",
    "advice": "Convert it to plain text.",
    "again": "try again, which goes on from what has come",
    "called": "The question",
    "counted": "",
    "gone": ("it was deleted", "what it was about was deleted"),
    "hint": ("Did you mean 7?", "Give a path, or a hub id such as 7.", "Give a hub id, such as 7."),
    "kind": "a RAR archive: unpack it first",
    "meant": "Did you mean 7?",
    "message": "7 has no text on any of its 7 pages",
    "noun": "section",
    "said": "",
    "self._again()": (
        "delete 7, then read its documents again (they are kept).",
        "branch 7 and go on in the branch, which reads the turns that it keeps from their text.",
    ),
    "known": "it has none",
    "there": "7 tokens on page 7",
    "todo": "List the jobs there are.",
    "warnings[0]": "Not read: 7.",
    "what": "names several",
    "where": " of document 7",
    "within": "Save it as PDF and add that.",
}
"""Words for the values that have some, or several; all others have a number."""
WARNED_WITH: dict[str, str | tuple[str, ...]] = {
    "guessed": ("cp1252", "UTF-8, with � for 7 damaged places", "UTF-8, with � for 1 damaged place"),
    "kind": "IPM.CONTACT",
    "listed(unread, 5)": ("7", "7, 7 and 7 more"),
    "more": "",
    "found[0][0].label": "page 7",
    "scanned": "if it holds scanned pictures, save it as PDF and use OCR.",
    "them": "7 characters",
    "where": ("7 ends in the middle, behind “7”", "7 ends in the middle, behind its beginning"),
    "why": ("mapped to text (no font mapping)", "read in the file's encoding"),
    "within": (
        "7 objects within the file, such as charts",
        "7 documents within the file, put in place only when Word opens it",
        "7 objects",
        "7 objects of other programs (7)",
    ),
    "formulas": "7 formulas",
    "named": "slide 7",
    "_slides(self.hidden)": "slides 7-7",
    "_slides(self.embedding)": "slides 7-7",
    "were": "were",
    "_NAMES.get(what, f'<{what}>')": ("A comment", "A CDATA section", "<7>"),
}
"""Those of the warnings."""
WARNING = re.compile(
    r"[A-Z\d].* .*[\w)]\.|[A-Z]\w+ \w+ .*: 7|(\d+ of \d+ (char|wor)|a picture|could not be read:|OCR f).* .*[\w)]",
    re.DOTALL,
)
"""Sentences about a document, and doubts about a page, which are put into one."""


@cache
def spoken() -> tuple[str, ...]:
    """Return the sentences, with examples in place of values."""
    others = f"{GET_SMOLLM2}.", phrase(ValueError("7")), phrase(MemoryError())
    return (*dict.fromkeys(_spoken()), *others)


def _spoken() -> Iterator[str]:
    for folder in ("app", "engine", "ingest", "sessions"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            if not set(ELSEWHERE).isdisjoint(path.relative_to(ROOT).parts):
                continue
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Call) and node.args and ast.unparse(node.func).split(".")[-1] in ERRORS:
                    yield from (each for each in _sentences(node.args[0]) if not NOT_ALONE.match(each))


@cache
def warned() -> tuple[str, ...]:
    """Return the warnings about documents and the doubts about their pages, with examples in place of values."""
    return tuple(dict.fromkeys(_warned()))


def _warned() -> Iterator[str]:
    """Yield each text of `ingest` that is a sentence, or a doubt, and belongs to no error."""
    for path in sorted((ROOT / "ingest").rglob("*.py")):
        for node in _texts(ast.parse(path.read_text(encoding="utf-8"))):
            yield from filter(WARNING.fullmatch, _sentences(node, FILLED_IN | WARNED_WITH))


def _texts(node: ast.AST) -> Iterator[ast.expr]:
    """Yield the texts below a node, without errors, docstrings, lines of the log and parts of other texts."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Constant | ast.JoinedStr):
            if not isinstance(node, ast.Expr):
                yield child
        elif not re.match(r"raise |log\.|re\.|(\w+\.)*(" + "|".join(ERRORS) + r")\(", ast.unparse(child)):
            yield from _texts(child)


def _sentences(node: ast.expr, filled_in: Mapping[str, str | tuple[str, ...]] = FILLED_IN) -> list[str]:
    """Return all sentences that an expression can become."""
    if isinstance(node, ast.Constant):
        return [str(node.value)]
    if isinstance(node, ast.FormattedValue):
        return _sentences(node.value, filled_in)
    if isinstance(node, ast.IfExp):
        return _sentences(node.body, filled_in) + _sentences(node.orelse, filled_in)
    if isinstance(node, ast.JoinedStr):
        return ["".join(each) for each in itertools.product(*(_sentences(each, filled_in) for each in node.values))]
    source = ast.unparse(node)
    noun = re.search(r"(?:count|plural)\(.*'([a-z ]+)'\)$", source)
    filled = f"7 {noun[1]}s" if noun else filled_in.get(source, "7")
    return [filled] if isinstance(filled, str) else list(filled)
