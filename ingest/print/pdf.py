"""PDF, through PyMuPDF: text in its natural order, page by page; scans through Tesseract where it is installed.

Comments and what is filled into forms stand below the print of their page. Left out: pictures, attached files (which a
warning names), and the layout of tables beyond one row a line.
"""

import re
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import pymupdf

from ingest import titles
from ingest.clean import commented, doubts, mend_accents, one_line, raised, tidy, unreadable
from ingest.document import OCR_FOUND_NOTHING, Page, PageQuality, Reading, TocEntry, count, listed, page_label
from ingest.errors import BrokenFile, EmptyDocument, OcrUnavailable, PasswordNeeded, WrongPassword
from ingest.limits import Limits
from ingest.print.bidi import RIGHT_TO_LEFT, Facing, Glyph, facing, in_order
from ingest.print.glyph_names import mend_fonts
from ingest.print.layout import Paragrapher, Sheet, laid_out
from ingest.print.letter_spacing import has_false_blanks, settle
from ingest.print.lines import Block, Line
from ingest.print.ocr import ocr_languages_used
from ingest.print.running_heads import drop_running_heads

OCR_DPI = 300
OCR_HINT = (
    "install Tesseract with its language data (for example `apt install tesseract-ocr`, or set TESSDATA_PREFIX "
    "to the folder of its .traineddata files) and read the file again"
)
FEW = 150  # characters of text, with which a page that is mostly a picture may say more than they do
PICTURE_SHARE = 0.5  # of the page
OUTLINES = 20  # paths drawn on a page without text: fewer are a frame, more may be letters
SMALL, LIFTED = 0.85, 0.15  # of the line's font size: so small, and so far above its base line, is a superscript
# No ligatures (MuPDF spells them out), no pictures; characters without a mapping come as U+FFFD and are counted. Print
# that is drawn twice, a hair apart, to look bold comes once.
_FLAGS = pymupdf.TEXT_MEDIABOX_CLIP | pymupdf.TEXT_COLLECT_STYLES
_NO_COMMENTS = (  # annotations whose words are print (MuPDF gives them as such), or say what a program wrote
    *(pymupdf.PDF_ANNOT_FREE_TEXT, pymupdf.PDF_ANNOT_LINK, pymupdf.PDF_ANNOT_POPUP, pymupdf.PDF_ANNOT_WIDGET),
    *(pymupdf.PDF_ANNOT_FILE_ATTACHMENT, pymupdf.PDF_ANNOT_STAMP, pymupdf.PDF_ANNOT_REDACT),
)
_MARKING = (
    *(pymupdf.PDF_ANNOT_HIGHLIGHT, pymupdf.PDF_ANNOT_UNDERLINE, pymupdf.PDF_ANNOT_SQUIGGLY),
    pymupdf.PDF_ANNOT_STRIKE_OUT,
)
_HYPHEN = re.compile(
    r"\u00ad(?=\s*$)|(?<=[^\W\d_]{2})[\u2212\uffff\u2011](?=\s*$)"
)  # at the end of a line, however mapped
_NOTE = re.compile(r"\[?\d{1,3}[)\]]|\(\d{1,3}\)")  # the mark of a note, in brackets or behind half of one

# MuPDF is not thread-safe and keeps its messages in one place for the whole process.
_mupdf_lock = threading.Lock()


@contextmanager
def alone_with_mupdf() -> Iterator[list[str]]:
    """Alone with MuPDF, its chatter on stderr off; the list yielded holds its distinct messages afterwards."""
    messages: list[str] = []
    tools = pymupdf.TOOLS
    with _mupdf_lock:
        errors, warnings = tools.mupdf_display_errors(), tools.mupdf_display_warnings()
        tools.mupdf_display_errors(False)
        tools.mupdf_display_warnings(False)
        tools.reset_mupdf_warnings()
        try:
            yield messages
        finally:
            messages.extend(dict.fromkeys(line for line in tools.mupdf_warnings().splitlines() if line.strip()))
            tools.mupdf_display_errors(errors)
            tools.mupdf_display_warnings(warnings)


def read(
    path: Path,
    *,
    limits: Limits,
    password: str | None,
    ocr: bool | None,
    on_page: Callable[[int, int], None],
) -> Reading:
    """Read a PDF.

    Args:
        ocr: None recognises pages without text where Tesseract is installed, False never, True demands it.
        on_page: called with (pages done, pages in all) after each page.

    Raises:
        BrokenFile, PasswordNeeded, WrongPassword, TooLarge, EmptyDocument, OcrUnavailable.
    """
    languages = () if ocr is False else ocr_languages_used()
    if ocr and not languages:
        raise OcrUnavailable(f"{path.name}: OCR was asked for, but Tesseract's language data is not here: {OCR_HINT}.")
    with alone_with_mupdf() as messages:
        reading = _read(path, limits, password, "+".join(languages), on_page)
    reading.warnings.extend(_explain(messages))
    return reading


def open_pdf(path: Path, password: str | None) -> Any:
    """Open a file as a PDF, whatever its name says; the caller holds `alone_with_mupdf()` and closes it.

    Raises:
        BrokenFile, PasswordNeeded, WrongPassword.
    """
    try:
        document = pymupdf.open(str(path), filetype="pdf")
    except Exception as error:  # FileDataError, RuntimeError, ValueError: MuPDF's own kinds differ by cause
        raise BrokenFile(
            f"{path.name} cannot be opened as PDF ({_reason(error, path)}). "
            "The file is damaged or incomplete: fetch it again, or open and re-save it elsewhere."
        ) from error
    try:
        if document.needs_pass:
            if password is None:
                raise PasswordNeeded(f"{path.name} is encrypted: give its password and try again.")
            if not document.authenticate(password):
                raise WrongPassword(f"The password given does not open {path.name}: check it and try again.")
    except BaseException:
        document.close()
        raise
    return document


def check_password(path: Path, password: str | None) -> None:
    """Refuse a password that does not open a PDF; one that is not encrypted needs none, and takes any.

    Raises:
        BrokenFile, PasswordNeeded, WrongPassword.
    """
    with alone_with_mupdf():
        open_pdf(path, password).close()


def _reason(error: Exception, path: Path) -> str:
    return one_line(str(error).replace(str(path), path.name)).rstrip(".")[:120]


def _read(
    path: Path, limits: Limits, password: str | None, language: str, on_page: Callable[[int, int], None]
) -> Reading:
    document = open_pdf(path, password)
    try:
        total: int = document.page_count
        if not total:
            raise BrokenFile(f"{path.name} has no pages: it is damaged or incomplete. Fetch it again.")
        limits.check(path.name, "pages", total, limits.pages)
        leaves = []
        characters = 0
        fonts: set[int] = set()
        for index in range(total):
            with suppress(Exception):  # a font that is damaged so that it cannot be mended is one that is read as it is
                mend_fonts(document, index, fonts)
            leaf = _leaf(document, index, language)
            characters += _length(leaf.sheet.blocks)
            limits.check(path.name, "characters", characters, limits.characters)
            leaves.append(leaf)
            on_page(index + 1, total)
        pages = _pages(leaves, _labels(document, total))
        if not any(page.text for page in pages):
            raise EmptyDocument(_no_text(path.name, pages, language))
        metadata_title = (document.metadata or {}).get("title")
        attached = [name for leaf in leaves for name in leaf.attached]
        warnings = [*_attached(document, attached), *_rendered(document)]
        return Reading(pages, _toc(document, total), [metadata_title, _heading(leaves)], warnings)
    finally:
        document.close()


@dataclass(frozen=True)
class Leaf:
    """A page as it was found; see `PageQuality`."""

    sheet: Sheet
    source: str
    warnings: tuple[str, ...] = ()
    pictured: bool | None = None
    attached: tuple[str, ...] = ()  # files that hang on it


def _leaf(document: Any, index: int, language: str) -> Leaf:
    """One page. A page that cannot be read is an empty one."""
    try:
        page = document[index]
        height = float(page.rect.height)
        blocks = _blocks(page.get_text("dict", flags=_FLAGS), page.rotation_matrix)
        raw = "\n".join(line.text for block in blocks for line in block)
        if RIGHT_TO_LEFT.search(raw) or any(map(has_false_blanks, raw.split("\n"))):
            blocks = _blocks(page.get_text("rawdict", flags=_FLAGS), page.rotation_matrix)
        if document.is_form_pdf:
            blocks = _filled(page, blocks)
        comments = _below(page, _comments(page))
        pictured, warnings = _pictured(page, len(raw)), []
        if language and (pictured or unreadable(raw)):
            try:
                recognised = _recognised(page, language)
                if _length(recognised) > (0 if unreadable(raw) else 2 * len(raw)):  # not what was there already
                    return Leaf(Sheet([*recognised, *comments], height), "ocr", attached=_pinned(page))
                warnings.append(OCR_FOUND_NOTHING)
            except Exception as error:  # Tesseract's trouble with one page must not lose the book
                warnings.append(f"OCR failed: {one_line(str(error))[:120]}")
        if not blocks and not pictured and (complaint := _complaint(page)):
            warnings.append(f"could not be read: {complaint}")
        beside = len(raw) + _length(comments)
        if pictured and beside and not language:
            warnings.append(f"a picture fills the page, with only {count(beside, 'character')} of text beside it")
        blocks += comments
        return Leaf(Sheet(blocks, height), "text" if blocks else "none", tuple(warnings), pictured, _pinned(page))
    except Exception as error:  # one bad page never stops the book
        return Leaf(Sheet([], 1.0), "none", (f"could not be read: {one_line(str(error))[:120]}",))


def _recognised(page: Any, language: str) -> list[Block]:
    found = page.get_textpage_ocr(dpi=OCR_DPI, full=True, language=language)
    return _blocks(page.get_text("dict", flags=_FLAGS, textpage=found))


def _complaint(page: Any) -> str:
    """What MuPDF says that is wrong with a page; empty if nothing."""
    before = pymupdf.TOOLS.mupdf_warnings(False)
    page.get_text("text", flags=_FLAGS)
    said = pymupdf.TOOLS.mupdf_warnings(False)[len(before) :].split("\n")
    return next((one_line(each)[:120] for each in said if "error" in each), "")


def _length(blocks: list[Block]) -> int:
    return sum(len(line.text) for block in blocks for line in block)


def _pictured(page: Any, characters: int) -> bool:
    """Whether a page with so little text is mostly a picture; one without any, whether something is drawn on it."""
    if characters >= FEW:
        return False
    drawn = page.get_bboxlog()
    kinds = [kind for kind, _ in drawn]
    if "ignore-text" in kinds:  # unseen: what somebody's OCR found
        return False
    if not characters and sum("path" in kind for kind in kinds) >= OUTLINES:
        return True
    covered = sum(float(abs(pymupdf.Rect(box) & page.rect)) for kind, box in drawn if "image" in kind)
    return covered > (PICTURE_SHARE * float(abs(page.rect)) if characters else 0.0)


def _blocks(page: dict[str, Any], turn: pymupdf.Matrix = pymupdf.Identity) -> list[Block]:
    """Lines of print. turn: from the coordinates of the text to those of the page as it is shown."""
    blocks = []
    page_facing = facing(_glyphs(line) for block in page["blocks"] for line in block.get("lines", ()))
    for block in page["blocks"]:
        lines = []
        for line in block.get("lines", ()):
            if "chars" in line["spans"][0]:
                settle(line)
            main = max(line["spans"], key=lambda span: len(span.get("text") or span["chars"]))
            raw = _text(line, main, page_facing)
            raw = _HYPHEN.sub("-", raw).replace("\ufffe", "-")
            text = mend_accents(tidy(raw))
            if not text:
                continue
            x0, y0, x1, y1 = pymupdf.Rect(line["bbox"]) * turn
            mono = bool(main["flags"] & pymupdf.TEXT_FONT_MONOSPACED)
            across, along = line["dir"]
            level = abs(across * turn.b + along * turn.d) < 0.1
            lines.append(Line(text, x0, y0, x1, y1, main["size"], mono, level, raw[-1].isspace(), raw[0].isspace()))
        if lines:
            blocks.append(lines)
    return laid_out(blocks)


def _glyphs(line: dict[str, Any]) -> list[Glyph]:
    """The characters of a line, and where they stand along it; none if it does not say where."""
    across, along = line["dir"]
    found = []
    for each in (each for span in line["spans"] for each in span.get("chars", ())):
        x0, y0, x1, y1 = each["bbox"]
        ends = x0 * across + y0 * along, x1 * across + y1 * along
        found.append(Glyph(each["c"], min(ends), max(ends)))
    return found


def _text(line: dict[str, Any], main: dict[str, Any], page: Facing) -> str:
    """The text of a line of MuPDF's; in order where parts of it run from right to left, if it says where they stand.

    main: the span with the most characters, above which others are raised.
    """
    spans = line["spans"]
    texts = [span["text"] if "text" in span else "".join(each["c"] for each in span["chars"]) for span in spans]
    if "text" in spans[0] or not RIGHT_TO_LEFT.search("".join(texts)):
        return "".join(_marked(spans, texts, main, line["dir"]))
    return in_order(_glyphs(line), max(span["size"] for span in spans), page)


def _marked(
    spans: Sequence[dict[str, Any]], texts: Sequence[str], main: dict[str, Any], direction: Sequence[float]
) -> Iterator[str]:
    """The texts of a line's spans, superscripts marked as such; at its beginning they are the number of a note."""
    across, along = direction

    def is_raised(number: int) -> bool:
        span = spans[number]
        right, down = (there - base for there, base in zip(span["origin"], main["origin"], strict=True))
        lift = right * along - down * across
        return bool(span["size"] < SMALL * main["size"] and lift > LIFTED * main["size"])

    begun = False
    for lifted, numbers in groupby(range(len(spans)), is_raised):
        text = "".join(texts[number] for number in numbers)
        if lifted and (mark := text.strip()):
            marked = raised(mark, linked=bool(_NOTE.fullmatch(mark))) if begun else mark
            text = marked + (" " if not begun or text[-1].isspace() else "")
        yield text
        begun = begun or bool(text.strip())


def _filled(page: Any, blocks: list[Block]) -> list[Block]:
    """The lines of a form with what is filled in as a line each below them, behind the words printed beside it.

    MuPDF gives what fields show as if it were print: a tick is a letter of a font of signs.
    """
    fields = [widget for widget in page.widgets() if tidy(str(widget.field_value or "")) not in ("", "Off")]
    boxes = [widget.rect * page.rotation_matrix for widget in fields]

    def shown_by_field(line: Line) -> bool:
        middle = pymupdf.Point((line.x0 + line.x1) / 2, (line.y0 + line.y1) / 2)
        return any(middle in box for box in boxes)

    printed = [kept for block in blocks if (kept := [line for line in block if not shown_by_field(line)])]
    lines = []
    for widget, box in zip(fields, boxes, strict=True):
        ticked = widget.field_type in (pymupdf.PDF_WIDGET_TYPE_CHECKBOX, pymupdf.PDF_WIDGET_TYPE_RADIOBUTTON)
        value = "yes" if ticked else one_line(str(widget.field_value))
        name = one_line(widget.field_label or "") or _beside(box, printed, ticked) or one_line(widget.field_name or "")
        lines.append(f"{name.rstrip(' :')}: {value}" if name else value)
    return [*printed, *_below(page, lines)]


def _comments(page: Any) -> Iterator[str]:
    """What people noted on the page, a line each."""
    annotation = page.first_annot  # links and fields are not among them
    while annotation:
        kind, said = annotation.type[0], annotation.info
        text, author = one_line(said["content"]), one_line(said["title"])
        hidden = annotation.flags & pymupdf.PDF_ANNOT_IS_HIDDEN
        # What stands in the page itself has no number.
        state = annotation.xref and page.parent.xref_get_key(annotation.xref, "StateModel")[0] != "null"
        # A state says "accepted" of another one; some programs keep with a mark what it is on.
        left_out = not text or hidden or state or kind in _NO_COMMENTS
        if not left_out and not (kind in _MARKING and text in one_line(page.get_textbox(annotation.rect))):
            yield commented(author, text)
        annotation = annotation.next


def _pinned(page: Any) -> tuple[str, ...]:
    """The files that are attached to places on the page, by name."""
    found, annotation = [], page.first_annot
    while annotation:
        if annotation.type[0] == pymupdf.PDF_ANNOT_FILE_ATTACHMENT:
            found.append(one_line(annotation.file_info.get("filename") or annotation.info["content"]) or "a file")
        annotation = annotation.next
    return tuple(found)


def _rendered(document: Any) -> list[str]:
    """A warning where the pages are made by a form's own program, and what stands in the file only asks to wait."""
    try:
        catalog = document.pdf_catalog()
        form = document.xref_get_key(catalog, "AcroForm/XFA")[0] != "null"
        fields = document.xref_get_key(catalog, "AcroForm/Fields")[1].strip("[ ]")
        late = document.xref_get_key(catalog, "NeedsRendering")[1] == "true"
    except Exception:  # damaged: it is no such form
        return []
    if not form or (fields not in ("", "null") and not late):
        return []
    return [
        "The words of the form are kept as XFA, from which Adobe's programs make its pages: they were not read. "
        "Open it in Adobe Reader, print it to a PDF and add that."
    ]


def _below(page: Any, texts: Iterable[str]) -> list[Block]:
    """Lines that stay lines, away from the margins, where running heads are looked for."""
    y = page.rect.y1 / 2
    lines = [Line(text, 0, y, 1, y, 0, mono=True) for text in texts]
    return [lines] if lines else []


def _beside(box: pymupdf.Rect, blocks: list[Block], either: bool) -> str:
    """The words nearest to a field in its row: those before it, or where boxes are ticked on either side."""
    near = []
    for line in (line for block in blocks for line in block):
        if min(line.y1, box.y1) - max(line.y0, box.y0) > 0.5 * min(line.y1 - line.y0, box.height):
            if line.x1 < box.x0 + 2:
                near.append((box.x0 - line.x1, line.text))
            elif either and line.x0 > box.x1 - 2:
                near.append((line.x0 - box.x1, line.text))
    return min(near, default=(0, ""))[1]


def _pages(leaves: list[Leaf], labels: list[str]) -> list[Page]:
    sheets = drop_running_heads([leaf.sheet for leaf in leaves])
    paragrapher = Paragrapher(sheets)
    texts = [tidy(paragrapher.page(sheet)) for sheet in sheets]
    for index in range(len(texts) - 1):
        texts[index], texts[index + 1] = paragrapher.bridge(texts[index], texts[index + 1])
    pages = []
    for number, (text, leaf, label) in enumerate(zip(texts, leaves, labels, strict=True), 1):
        doubt = leaf.warnings + doubts(text)
        if unreadable(text):  # worse than no text: it would be read as if it said something
            text = ""
        quality = PageQuality(len(text), leaf.source if text else "none", doubt, leaf.pictured)
        pages.append(Page(number, label, text, quality))
    return pages


def _labels(document: Any, total: int) -> list[str]:
    """What each page is called: by its number, and before that by what is printed on it where the file says so."""
    printed = [""] * total
    try:
        if document.get_page_labels():
            printed = [one_line(document[index].get_label()) for index in range(total)]
    except Exception:  # damaged labels are no reason to lose the book
        printed = [""] * total
    names = [label or str(number) for number, label in enumerate(printed, 1)]
    times = Counter(names)
    return [page_label(number, name, alone=times[name] == 1) for number, name in enumerate(names, 1)]


def _attached(document: Any, pinned: list[str]) -> list[str]:
    """A warning that names the files within the file, which are not read. pinned: those on its pages."""
    names = []
    with suppress(Exception):  # as above
        names = [one_line(name) for name in document.embfile_names()]
    names += pinned
    if not names:
        return []
    were = "was" if len(names) == 1 else "were"
    return [f"{count(len(names), 'attached file')} {were} not read: {listed(names, 5)}."]


def _toc(document: Any, total: int) -> list[TocEntry]:
    try:
        entries = document.get_toc(simple=True)
    except Exception:  # a damaged outline is no reason to lose the book
        return []
    toc = []
    for level, title, number in entries:
        if (title := one_line(title)) and number >= 1:
            toc.append(TocEntry(max(1, level), title, min(number, total)))
    return toc


def _heading(leaves: list[Leaf]) -> str | None:
    """The largest print on the first page that has text, where it stands out and is short enough for a title."""
    first = next((leaf.sheet for leaf in leaves if leaf.sheet.blocks), None)
    if not first:
        return None
    lines = [line for block in first.blocks for line in block if line.level and re.search(r"[^\W\d_]{2}", line.text)]
    if len(lines) < 2:
        return None
    largest = max(line.size for line in lines)
    typical = sorted(line.size for line in lines)[len(lines) // 2]
    if largest < 1.15 * typical:
        return None
    start = next(index for index, line in enumerate(lines) if line.size == largest)
    title = []
    for line in lines[start : start + 4]:
        if abs(line.size - largest) > 0.5:
            break
        title.append(line.text)
    return titles.sane(" ".join(title)) or None


def _no_text(name: str, pages: list[Page], language: str) -> str:
    unread = sum(any(warning.startswith("could not") for warning in page.quality.warnings) for page in pages)
    message = f"{name} has no text on {'its one page' if len(pages) == 1 else f'any of its {len(pages)} pages'}"
    if unread:
        return f"{message}; {count(unread, 'page')} could not be read. The file is damaged: fetch it again."
    if any(
        "could not be mapped" in warning or "private" in warning for page in pages for warning in page.quality.warnings
    ):
        return (
            f"{message} that can be read: its fonts do not say which characters their glyphs stand for. "
            f"The pages can be recognised from their looks: {OCR_HINT}."
        )
    if not any(page.quality.pictured for page in pages):
        return f"{message} and no pictures of text either: there is nothing to read in it."
    if language:
        return f"{message}, only pictures, and OCR found nothing in them. Try a sharper scan."
    return f"{message}, only pictures, such as scans. To read them, {OCR_HINT}."


def _explain(messages: list[str]) -> list[str]:
    """MuPDF's messages as at most two warnings."""
    warnings = []
    if any("repair" in message for message in messages):
        warnings.append("The file is damaged and was repaired while reading: compare the result with the original.")
    rest = [message for message in messages if "error" in message.split(":")[0] and "xref" not in message]
    if rest:
        more = f" (and {len(rest) - 1} more)" if len(rest) > 1 else ""
        warnings.append(f"While reading, MuPDF reported: {one_line(rest[0])[:160]}{more}.")
    return warnings
