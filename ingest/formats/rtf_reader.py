"""A reader of RTF (Microsoft's specification, 1.9.1): paragraphs, table rows, notes, text boxes and comments.

Text is read as if all tracked changes were accepted. Hidden text, headers and footers are left out. A note or comment
leaves its number, "[1]", and stands at the end.
"""

import codecs
import copy
import re
from dataclasses import dataclass, field

from ingest.clean import join_inline, one_line, superscript, tidy
from ingest.office.symbol_fonts import symbol, symbols_to_unicode
from ingest.sections import Block, join_blocks, row_blocks
from ingest.table import Cell, is_layout, table_lines

_TOKEN = re.compile(
    rb"\\([A-Za-z]{1,32})(-?\d{1,10})? ?|\\'([0-9A-Fa-f]{2})|\\([^A-Za-z])|([{}])|([^\\{}\r\n]+)", re.DOTALL
)
_CHARSETS = {  # of fonts, beside the code page of the document
    **{77: "mac_roman", 128: "cp932", 129: "cp949", 130: "johab", 134: "gb18030", 136: "big5hkscs", 161: "cp1253"},
    **{162: "cp1254", 163: "cp1258", 177: "cp1255", 178: "cp1256", 186: "cp1257", 204: "cp1251", 222: "cp874"},
    **{78: "cp932", 79: "big5hkscs", 80: "cp949", 83: "mac_greek", 84: "mac_cyrillic", 85: "gb18030", 88: "cp874"},
    **{89: "mac_latin2", 238: "cp1250", 254: "cp437", 255: "cp850"},
}
_SYMBOLS = 2  # charset of symbol fonts
_SIGNS = {
    **{"tab": "\t", "emdash": "—", "endash": "–", "emspace": " ", "enspace": " ", "qmspace": " ", "bullet": "•"},
    **{"lquote": "‘", "rquote": "’", "ldblquote": "“", "rdblquote": "”", "line": "\n", "lbr": "\n"},
    **{"zwj": "\u200d", "zwnj": "\u200c", "nestcell": ", ", "nestrow": "; "},
}
_ESCAPED = {"~": "\xa0", "_": "\u2011", "{": "{", "}": "}", "\\": "\\"}
_ENDS = frozenset({"par", "sect", "page", "column"})
# Starred groups are left out, these excepted.
_READ = frozenset(
    ("shpinst", "shpgrp", "do", "annotation", "footnote", "ud", "atnauthor", "nesttableprops", "moMath", "moMathPara")
)
_LEFT_OUT = frozenset(
    (
        *("colortbl", "pict", "objdata", "objclass", "objname", "nonshppict", "sp", "fldinst", "nonesttables", "upr"),
        *("header", "headerl", "headerr", "headerf", "footer", "footerl", "footerr", "footerf", "revtbl", "filetbl"),
        *("ftnsep", "ftnsepc", "ftncn", "aftnsep", "aftnsepc", "aftncn", "xe", "tc", "txe", "rxe", "pntxta", "pntxtb"),
        *("bkmkstart", "bkmkend", "atnid", "atnref", "atndate", "atntime", "atnicn", "atnparent", "atrfstart"),
        *("atrfend", "template", "generator", "background", "listtable", "listoverridetable", "rsidtbl", "pgptbl"),
        *("themedata", "colorschememapping", "datastore", "latentstyles", "mmathPict", "mmathPr", "info", "macc"),
    )
)
_FORMULAS = {"mden": "/", "msup": "^", "msub": "_", "mdeg": "√"}  # signs before parts of a formula
_HEADING = re.compile(r"heading ([1-6])\b", re.IGNORECASE)
_LONGEST_HEADING = 200


def read_rtf(data: bytes) -> tuple[list[Block], str]:
    """Return the blocks of an RTF document, and its title or "". What cannot be understood is passed over."""
    reader = _Reader()
    reader.read(data)
    return reader.finished(), one_line(reader.title)


@dataclass
class _Group:
    """The state that a brace saves and restores."""

    kind: str = ""  # "", or a destination whose text is kept elsewhere: "fonttbl", "stylesheet", "title", "atnauthor"
    left_out: bool = False
    starred: bool = False
    font: int | None = None
    fallback: int = 1  # letters that stand for one \u where Unicode is not known
    hidden: bool = False
    deleted: bool = False
    raised: bool = False
    opens: str = ""  # the note, comment or text box that ends with this group
    in_shape: list[str] | None = None  # the texts of its shape read so far, shared with the groups within
    unicode_pair: bool | None = None  # in a pair of ANSI and Unicode texts: whether the pair itself is left out


@dataclass
class _Flow:
    """The paragraphs of the document, of a note, or of a text box."""

    blocks: list[Block] = field(default_factory=list)
    runs: list[tuple[str, bool]] = field(default_factory=list)  # text, and whether it is raised
    boxes: list[Block] = field(default_factory=list)  # text boxes of the paragraph
    cells: list[Cell] = field(default_factory=list)
    rows: list[list[Cell]] = field(default_factory=list)
    dropped: list[bool] = field(default_factory=list)  # for each cell of the row, whether it was deleted
    drops: bool = False  # the next cell was deleted
    level: int = 0
    in_table: bool = False
    in_list: bool = False
    listing: bool = False  # the last paragraph was in a list

    def text(self) -> str:
        """Return the text of the runs so far, and forget them."""
        parts: list[str] = []
        joined: list[tuple[str, bool]] = []
        for text, raised in self.runs:
            if joined and joined[-1][1] == raised:
                joined[-1] = (joined[-1][0] + text, raised)
            else:
                joined.append((text, raised))
        for text, raised in joined:
            whole = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
            parts.append(superscript(whole, linked=False) if raised else whole)
        self.runs = []
        return tidy(join_inline(parts))

    def end_paragraph(self) -> None:
        if self.in_table:
            self.runs.append(("\n", False))
            return
        self.end_table()
        if text := self.text():
            level = self.level if len(text) < _LONGEST_HEADING else 0
            if level:
                self.blocks.append(Block(one_line(text), level))
            else:
                first = self.in_list and not self.listing
                self.blocks.append(Block(text, tight=self.in_list, first=first))
            self.listing = self.in_list
        self.in_list = False
        self.blocks += self.boxes
        self.boxes = []

    def end_cell(self) -> None:
        self.cells.append(Cell(one_line(self.text())))

    def end_row(self) -> None:
        gone = [*self.dropped, *(False for _ in self.cells)]
        self.rows.append([cell for cell, dropped in zip(self.cells, gone, strict=False) if not dropped])
        self.cells = []

    def end_table(self) -> None:
        words = [[cell.text for cell in row] for row in self.rows]
        if is_layout(words, headed=False):
            self.blocks += [Block(text) for row in words for text in row if text]
        else:
            self.blocks += row_blocks(table_lines(self.rows))
        self.rows = []

    def end(self) -> list[Block]:
        """Return all blocks; nothing more follows."""
        self.in_table = False
        if self.cells:
            self.end_cell()
            self.end_row()
        self.end_paragraph()
        return self.blocks


class _Reader:
    def __init__(self) -> None:
        self.title = ""
        self.flows = [_Flow()]
        self.notes: list[str] = []
        self.author = ""
        self.group = _Group()
        self.groups: list[_Group] = []
        self.encoding = "cp1252"
        self.fonts: dict[int | None, tuple[int, str]] = {}  # charset and name
        self.default_font: int | None = None
        self.levels: dict[int, int] = {}  # heading levels of styles
        self.style = 0
        self.table = (0, 0, "")  # of the entry of the font table or style sheet: number, charset or level, name
        self.bytes = b""
        self.passing = 0  # letters to pass over, as Unicode was given instead

    def read(self, data: bytes) -> None:
        at = 0
        while at < len(data):
            found = _TOKEN.match(data, at)
            if found is None:
                at += 1
                continue
            at = found.end()
            word, number, code, sign, brace, text = found.groups()
            if text is not None:
                self._letters(text)
            elif code:
                self._letters(bytes([int(code, 16)]))
            elif word:
                name, value = word.decode(), int(number) if number else None
                if name == "bin":
                    at += max(value or 0, 0)
                elif name == "u":
                    self._unicode(value or 0)
                else:
                    self._flush()
                    self.passing = 0
                    self._word(name, value)
            else:
                self._flush()
                self.passing = 0
                if brace == b"{":
                    self._open()
                elif brace == b"}":
                    self._close()
                    if not self.groups:
                        return
                else:
                    self._sign(sign.decode("latin-1"))

    def finished(self) -> list[Block]:
        """Return the blocks of the document, its notes last."""
        self._flush()
        while len(self.flows) > 1:  # cut off within a note
            self._end_flow("footnote")
        blocks = self.flows[0].end()
        headed = any(block.level for block in blocks)
        if self.notes and headed:
            blocks.append(Block("Notes", 1))
        return blocks + [
            Block(f"[{number}] {note}", tight=True, first=number == 1) for number, note in enumerate(self.notes, 1)
        ]

    def _open(self) -> None:
        self.groups.append(self.group)
        self.group = copy.copy(self.group)
        self.group.opens, self.group.starred = "", False

    def _close(self) -> None:
        if self.group.kind in ("fonttbl", "stylesheet") and not self.group.left_out:
            self._keep_entry()
        if self.group.opens:
            self._end_flow(self.group.opens)
        self.group = self.groups.pop() if self.groups else _Group()

    def _end_flow(self, kind: str) -> None:
        blocks = self.flows.pop().end()
        if kind == "box":
            self.flows[-1].boxes += blocks
        elif text := join_blocks(blocks):
            self.notes.append(f"{self.author}: {text}" if kind == "annotation" and self.author else text)
            self.flows[-1].runs.append((f"[{len(self.notes)}]", False))
        if kind == "annotation":
            self.author = ""

    def _sign(self, sign: str) -> None:
        if sign == "*":
            self.group.starred = True
        elif sign in "\r\n":
            self._word("par", None)
        elif sign in _ESCAPED:
            self._put(_ESCAPED[sign])

    def _letters(self, text: bytes) -> None:
        passed = min(self.passing, len(text))
        self.passing -= passed
        if not self.group.left_out:
            self.bytes += text[passed:]

    def _unicode(self, number: int) -> None:
        self._flush()
        self.passing = self.group.fallback
        number = number + 0x10000 if number < 0 else number
        if 0 < number <= 0x10FFFF:
            self._put(symbols_to_unicode(self.fonts.get(self.group.font, (0, ""))[1], chr(number)))

    def _flush(self) -> None:
        if not self.bytes:
            return
        data, self.bytes = self.bytes, b""
        charset, name = self.fonts.get(self.group.font, (0, ""))
        if charset == _SYMBOLS and not self.group.kind:
            self._put("".join(symbol(name, byte) for byte in data))
        else:
            encoding = _CHARSETS.get(charset, self.encoding)
            self._put(data.decode(encoding, errors="replace").replace("\0", ""))

    def _put(self, text: str) -> None:
        group = self.group
        if group.left_out or group.hidden or group.deleted:
            return
        if group.kind in ("fonttbl", "stylesheet"):
            self.table = (*self.table[:2], self.table[2] + text)
            if text.endswith(";"):
                self._keep_entry()
        elif group.kind == "title":
            self.title += text
        elif group.kind == "atnauthor":
            self.author = one_line(self.author + text)
        else:
            self.flows[-1].runs.append((text, group.raised))

    def _keep_entry(self) -> None:
        number, value, name = self.table
        name = name.strip(" ;")
        if name and self.group.kind == "fonttbl":
            self.fonts[number] = (value, name)
        elif name:
            heading = _HEADING.match(name)
            self.levels[number] = int(heading[1]) if heading else value
        self.table = (0, 0, "")

    def _word(self, name: str, value: int | None) -> None:
        group, flow = self.group, self.flows[-1]
        starred, group.starred = group.starred, False
        if group.unicode_pair is not None and name == "ud":
            group.left_out, group.unicode_pair = group.unicode_pair, None
        elif starred and name not in _READ:
            group.left_out = True
        elif name == "title":  # in a group that is left out itself
            group.kind, group.left_out = "title", False
        elif name == "upr":
            group.unicode_pair, group.left_out = group.left_out, True
        elif group.left_out:
            return
        elif name in _LEFT_OUT or (name == "shprslt" and group.in_shape) or re.fullmatch(r"m[A-Za-z]+Pr", name):
            group.left_out = True
        elif group.kind in ("fonttbl", "stylesheet"):
            self._entry_word(name, value or 0)
        elif name in ("fonttbl", "stylesheet", "atnauthor"):
            group.kind = name
        elif name == "shp":
            group.in_shape = []
        elif name in ("footnote", "annotation", "shptxt", "dptxbxtext"):
            self._begin_flow(name)
        elif name in _SIGNS:
            self._put(_SIGNS[name])
        elif name in _FORMULAS:
            self._put(_FORMULAS[name])
        elif name in _ENDS:
            if not group.deleted:
                flow.end_paragraph()
        elif not self._formatting(name, value):
            self._document_word(name, value)

    def _begin_flow(self, name: str) -> None:
        group = self.group
        if group.hidden or group.deleted:
            group.left_out = True
            return
        group.opens = name if name in ("footnote", "annotation") else "box"
        group.raised = False
        if group.in_shape is not None:
            group.in_shape.append(name)
        self.flows.append(_Flow())

    def _entry_word(self, name: str, value: int) -> None:
        number, kind, text = self.table
        if (name == "f" and self.group.kind == "fonttbl") or (name == "s" and self.group.kind == "stylesheet"):
            self.table = (value, kind, text)
        elif name == "fcharset" and self.group.kind == "fonttbl":
            self.table = (number, value, text)
        elif name == "outlinelevel" and self.group.kind == "stylesheet":
            self.table = (number, value + 1 if value < 6 else 0, text)
        elif name in ("cs", "ds", "ts"):  # of letters, sections and tables
            self.table = (-1, kind, text)

    def _formatting(self, name: str, value: int | None) -> bool:
        """Apply a word about letters, paragraphs or rows; return whether it is one."""
        group, flow = self.group, self.flows[-1]
        on = value != 0
        if name == "plain":
            group.hidden = group.deleted = group.raised = False
            group.font = self.default_font
        elif name == "pard":
            flow.in_table, flow.level = False, 0
        elif name == "f":
            group.font = value
        elif name == "v":
            group.hidden = on
        elif name == "deleted":
            group.deleted = on
        elif name in ("super", "nosupersub"):
            group.raised = on and name == "super"
        elif name == "s":
            flow.level = self.levels.get(value or 0, 0)
        elif name == "outlinelevel":
            flow.level = value + 1 if value is not None and 0 <= value < 6 else 0
        elif name in ("listtext", "pntext"):
            flow.in_list = True
        elif name == "intbl":
            flow.in_table = True
        elif name == "cell":
            flow.end_cell()
        elif name == "row":
            flow.end_row()
        elif name == "trowd":
            flow.dropped = []
        elif name == "cldel":
            flow.drops = True
        elif name == "cellx":
            flow.dropped.append(flow.drops)
            flow.drops = False
        else:
            return False
        return True

    def _document_word(self, name: str, value: int | None) -> None:
        if name == "uc":
            self.group.fallback = max(value or 0, 0)
        elif name == "deff":
            self.default_font = value
        elif name in ("mac", "pc", "pca"):
            self.encoding = {"mac": "mac_roman", "pc": "cp437", "pca": "cp850"}[name]
        elif name == "ansicpg":
            try:
                self.encoding = codecs.lookup({65001: "utf-8", 10000: "mac_roman"}.get(value or 0, f"cp{value}")).name
            except LookupError:
                self.encoding = "cp1252"
