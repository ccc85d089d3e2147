"""Files of the rarer formats broken, judged as `documents` does: OpenDocument, RTF, mailboxes, XPS, comics, notebooks,
PalmDOC, and old Office files where LibreOffice is installed.
"""

from __future__ import annotations

import importlib
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pymupdf

from benchmarks.trust.common import Tally
from benchmarks.trust.documents import break_files, numbered_lines, office_originals
from ingest.office.legacy import office_program

OLD = {"docx": "doc", "xlsx": "xls", "pptx": "ppt"}
MAILS = 5
STARTS = 3
"""Times that LibreOffice is started: with a new profile it asks to be started again."""


def run(folder: Path, trials: int, seed: int) -> Tally:
    """Break files so many times, and read each in the process that the app reads in."""
    return break_files(list(_originals(folder)), folder, trials, seed)


def _originals(folder: Path) -> Iterator[Path]:
    makers: Any = importlib.import_module("tests.ingest.makers")
    lines = numbered_lines()
    marked = "".join(f"<p>{line}</p>\n" for line in lines)
    yield from _open_documents(folder, makers, lines)
    yield makers.archive(folder / "a.xps", _printed(lines))
    yield makers.archive(folder / "a.cbz", {f"{number}.png": _picture(lines[number]) for number in range(3)})
    page = f"<html><head><title>Words</title></head><body>\n{marked}</body></html>"
    palm = makers.mobi(folder / "a.pdb", page, packed=True)
    palm.write_bytes(palm.read_bytes().replace(b"BOOKMOBI", b"TEXtREAd").replace(b"MOBI\0", b"\0\0\0\0\0"))
    yield palm
    mail = f"From: a@example.org\nSubject: Words\nMIME-Version: 1.0\nContent-Type: text/html\n\n{page}\n"
    plist = "<?xml version='1.0'?><plist/>"
    each = len(lines) // MAILS
    box = ""
    for at in range(0, len(lines), each):
        few = "".join(f"<p>{line}</p>\n" for line in lines[at : at + each])
        box += f"From a@example.org Mon May  3 10:00:00 2021\n{mail.replace(marked, few)}\n"
    cells = [{"cell_type": "markdown", "source": [line]} for line in lines]
    text = {
        "rtf": r"{\rtf1\ansi\deff0{\fonttbl{\f0 Arial;}}" + "\\par\n".join(lines) + "}",
        "mbox": box,
        "emlx": f"{len(mail)}\n{mail}{plist}",
        "ipynb": json.dumps({"cells": cells, "nbformat": 4}, indent=1),
    }
    for suffix, content in text.items():
        (folder / f"a.{suffix}").write_text(content)
        yield folder / f"a.{suffix}"
    if program := office_program():
        for path in office_originals(folder):
            yield _as_old(program, path)


def _open_documents(folder: Path, makers: Any, lines: list[str]) -> Iterator[Path]:
    texts, sheets, slides = (importlib.import_module(f"tests.ingest.test_{kind}") for kind in ("odt", "ods", "odp"))
    yield texts.odt(folder / "a.odt", "".join(map(texts.p, lines)))
    (folder / "a.fodt").write_text('<?xml version="1.0"?>' + texts.document("".join(map(texts.p, lines))))
    yield folder / "a.fodt"
    rows = "".join(sheets.row(*map(sheets.cell, line.split())) for line in lines)
    yield makers.archive(folder / "a.ods", {"mimetype": sheets.KIND, "content.xml": sheets.content(sheets.sheet(rows))})
    shown = "".join(
        slides.slide(*(slides.box(texts.p(line), y=row) for row, line in enumerate(lines[at : at + 10])))
        for at in range(0, len(lines), 10)
    )
    yield makers.archive(folder / "a.odp", {"mimetype": slides.KIND, "content.xml": slides.content(shown)})


def _printed(lines: list[str]) -> dict[str, str | bytes]:
    """Return the members of an XPS document."""
    names = 'xmlns="http://schemas.microsoft.com/xps/2005/06"'
    pages = [lines[at : at + 30] for at in range(0, len(lines), 30)]
    listed = "".join(f'<PageContent Source="/{number}.fpage"/>' for number in range(len(pages)))
    kind = "http://schemas.microsoft.com/xps/2005/06/fixedrepresentation"
    members: dict[str, str | bytes] = {
        "[Content_Types].xml": "<Types/>",
        "_rels/.rels": f'<Relationships><Relationship Type="{kind}" Target="/a.fdseq"/></Relationships>',
        "a.fdseq": f'<FixedDocumentSequence {names}><DocumentReference Source="/a.fdoc"/></FixedDocumentSequence>',
        "a.fdoc": f"<FixedDocument {names}>{listed}</FixedDocument>",
        "f.ttf": pymupdf.Font("helv").buffer,
    }
    for number, page in enumerate(pages):
        glyphs = "".join(
            f'<Glyphs FontUri="/f.ttf" FontRenderingEmSize="10" OriginX="20" OriginY="{30 + 18 * row}" '
            f'Fill="#ff000000" UnicodeString="{line}"/>'
            for row, line in enumerate(page)
        )
        members[f"{number}.fpage"] = f'<FixedPage {names} Width="800" Height="600">{glyphs}</FixedPage>'
    return members


def _picture(line: str) -> bytes:
    with pymupdf.open() as drawn:
        drawn.new_page(width=900, height=120).insert_text((20, 60), line, fontsize=14)
        picture: bytes = drawn[0].get_pixmap(dpi=100).tobytes("png")
    return picture


def _as_old(program: Path, path: Path) -> Path:
    """Convert an Office file to the format of before 2007."""
    old = OLD[path.suffix[1:]]
    profile = f"-env:UserInstallation=file://{path.parent}/profile"
    command = [program, profile, "--headless", "--norestore", "--nolockcheck", "--convert-to", old, "--outdir"]
    made = path.with_suffix(f".{old}")
    for _ in range(STARTS):
        if not made.exists():
            subprocess.run([*command, path.parent, path], check=False, capture_output=True, timeout=300)
    return made
