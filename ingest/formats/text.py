"""Plain text and Markdown.

Plain text may be hard-wrapped, as in Project Gutenberg's books: lines that were filled are joined to paragraphs, short
ones (verse, lists, tables) stay as they are, and so do those of logs, tables and programs. Chapters are found by their
headings, where there are such.
"""

import re
from collections import Counter
from dataclasses import dataclass, replace
from itertools import groupby, pairwise
from pathlib import Path
from statistics import quantiles
from unicodedata import category

from lxml.html import defs
from markdown_it import MarkdownIt
from markdown_it.rules_block import StateBlock, html_block, reference
from markdown_it.rules_inline import StateInline, html_inline

from ingest.charset import undeclared
from ingest.clean import seam, tidy, vocabulary, without_terminal_codes
from ingest.document import Reading
from ingest.errors import EmptyDocument
from ingest.formats import html
from ingest.formats.notebook import notebook_blocks, unescaped
from ingest.limits import Limits
from ingest.sections import Block, first_heading, paginate

GUESSED = "The text is not clean UTF-8; it was read as {}. Check accented letters, or save it as UTF-8."
_CHAPTER = re.compile(
    r"^(?:(?:chapter|book|part|volume|canto|act|scene|stave|letter|adventure|section|appendix|chapitre|kapitel|teil|buch"
    r"|cap[ií]tulo|capitolo|parte|livre|rozdzia[lł]|глава|часть|книга)\s+(?:the\s+)?[\w-]+\b"
    r"|(?:prologue|epilogue|preface|foreword|introduction|afterword|conclusion|contents|prolog|epilog|vorwort|préface)\b"
    r"|第[〇零一二三四五六七八九十百千\d]{1,7}[章回節节卷部]).{0,90}$",
    re.IGNORECASE,
)
_NUMERAL = re.compile(r"^[IVXLC]{1,8}(?:[.:)]?$|[.:]\s+[A-Z\d“\"].{0,80}$)")
_SENTENCE_END = (".", "!", "?", ";", ",", "”", '"', "’", ":")
_QUOTE = re.compile(r"(?:> ?)*")
_PART = re.compile(r"^(?:part|book|volume|teil|buch|partie|livre|часть|книга)\b", re.IGNORECASE)
_GUTENBERG_TITLE = re.compile(r"^Title:[ \t]*(\S.*)$", re.MULTILINE)
LINED = re.compile(  # tables, logs, settings, subtitles, programs
    r"\.(?:csv|tsv|tab|log|jsonl?|ndjson|ya?ml|toml|ini|cfg|conf|env|properties|srt|vtt|sub|lrc|diff|patch|py|pyi|ipynb|m?js"
    r"|jsx|tsx?|java|kts?|scala|groovy|go|rs|[cfhmrs]|cc|cpp|cxx|hh|hpp|cs|mm|swift|rb|pl|pm|php|lua|jl|hs|ml|clj|exs?|erl"
    r"|dart|zig|f90|pas|vb|asm|sh|bash|zsh|fish|ps1|bat|cmd|sql|css|scss|less|proto|cmake|gradle|tf|vue|svelte)"
)
_JSON = (".json", ".jsonl", ".ndjson", ".ipynb")
_TABBED, _MAYBE_TABBED = (".tsv", ".tab"), (".txt", ".csv", "")
# What parts the cells of a line: in prose a blank follows these.
_BORDER = re.compile(r"\t|[|]|[,;:](?=\S)")
DEEPEST = 100  # lists and quotations of Markdown within one another, counted in tokens: a list is two
_NOTE = re.compile(r"\[\^[^\]\s]+\]:")
_FIELD = r"(?:[\w\"'.][^\n:]*:(?:[ \t][^\n]*)?|[ \t#\-\]}][^\n]*)?\n"  # a name and its value, or more of that
_FRONT_MATTER = re.compile(
    rf"\A(?:---\n(?=[^\n])((?:{_FIELD})*?)(?:---|\.\.\.)|\+\+\+\n((?:[^\n]*\n)*?)\+\+\+)[ \t]*\n"
)
_FORMULA = re.compile(
    r"\$\$[^$]+\$\$|\$(?=\S)(?:[^$\\]|\\.)*(?<=\S)\$(?!\d)|\\(?:\((?:(?!\\\().)+?\\\)|\[(?:(?!\\\[).)+?\\\])", re.DOTALL
)
_TAG = re.compile(r"</?([A-Za-z][\w:-]*)\s*>")
_KNOWN_TAGS = frozenset(
    {
        *defs.tags,
        *("bdi", "data", "dialog", "main", "nobr", "picture", "rb", "rtc", "search", "slot", "template"),
        *("annotation", "mfrac", "mi", "mn", "mo", "mover", "mroot", "mrow", "mspace", "msqrt", "mstyle", "msub"),
        *("msubsup", "msup", "mtable", "mtd", "mtext", "mtr", "munder", "munderover", "semantics"),
    }
)


def read_text(path: Path, limits: Limits) -> Reading:
    """Read plain text of any usual encoding.

    Raises:
        TooLarge, EmptyDocument.
    """
    text, warnings = _decode(path, limits)
    kind = path.suffix.casefold()
    by_lines = bool(LINED.fullmatch(kind))
    if kind == ".ipynb" and (notebook := notebook_blocks(text)):
        blocks, left_out = notebook
        pages, toc = paginate(blocks)
        if pages:
            return Reading(pages, toc, [first_heading(blocks)], [*warnings, *left_out])
    if kind in _JSON:
        text = unescaped(text)
    if kind in _TABBED or (kind in _MAYBE_TABBED and _has_columns(text)):
        text, by_lines = re.sub(r"\t+", lambda tabs: " |" * len(tabs[0]) + " ", text), True
    pages, toc = paginate(plain_blocks(text, by_lines))
    if not pages:
        raise EmptyDocument(f"{path.name} holds nothing but blanks.")
    named = _GUTENBERG_TITLE.search(text[:5000])
    return Reading(pages, toc, [named[1] if named else None], warnings)


def plain_blocks(text: str, by_lines: bool) -> list[Block]:
    """Paragraphs and headings of plain text; `by_lines` keeps all its lines, and looks for no headings."""
    paragraphs = _paragraphs(text, by_lines)
    return [Block(each.text, code=True) for each in paragraphs] if by_lines else _with_chapters(paragraphs)


def read_markdown(path: Path, limits: Limits) -> Reading:
    """Read Markdown (CommonMark with tables): rendered to HTML, whose text it then is.

    Raises:
        TooLarge, EmptyDocument.
    """
    text, warnings = _decode(path, limits)
    title = None
    if front := _FRONT_MATTER.match(text):
        text = text[front.end() :]
        if named := re.search(r"^title *[:=](.*)$", front[1] or front[2], re.MULTILINE | re.IGNORECASE):
            title = re.sub(r"^[\"']|[\"']$", "", named[1].strip())
    markdown = MarkdownIt("commonmark", {"maxNesting": DEEPEST}).enable(["table", "strikethrough"])
    markdown.block.ruler.at("reference", _link_definition, {"alt": ["paragraph"]})
    markdown.block.ruler.at("html_block", _html_lines, {"alt": ["paragraph", "reference", "blockquote"]})
    markdown.inline.ruler.before("escape", "formula", _formula)
    markdown.inline.ruler.at("html_inline", _html_tag)
    parts = markdown.parse(text)
    if max((part.level for part in parts), default=0) >= DEEPEST - 1:  # what lies deeper, and behind it, is not there
        reading = read_text(path, limits)
        doubt = "Lists or quotations lie too deep in one another for Markdown: it was read as plain text."
        return replace(reading, warnings=[*reading.warnings, doubt])
    rendered = markdown.renderer.render(parts, markdown.options, {})
    blocks, _, _ = html.extract(f"<html><body>{rendered}</body></html>", path.name)
    pages, toc = paginate(blocks)
    if not pages:
        raise EmptyDocument(f"{path.name} holds no text.")
    return Reading(pages, toc, [title, first_heading(blocks)], warnings)


def _link_definition(state: StateBlock, first: int, last: int, silent: bool) -> bool:
    """CommonMark's rule, but "[^1]: https://..." is a note, to be read as a paragraph of its own."""
    if _NOTE.match(state.src, state.bMarks[first] + state.tShift[first]):
        return silent  # silent: whether the paragraph before ends here
    return not silent and reference(state, first, last, silent)


def _formula(state: StateInline, silent: bool) -> bool:
    """TeX between its signs is no Markdown: its stars and backslashes stay."""
    found = _FORMULA.match(state.src, state.pos, state.posMax)
    if found is None or (not re.search(r"[$\\^_=]", found[0][2:-2]) and found[0][0] == "\\"):  # just escaped brackets
        return False
    if not silent:
        state.pending += found[0]
    state.pos = found.end()
    return True


def _html_tag(state: StateInline, silent: bool) -> bool:
    """CommonMark's rule, but "Vec<String>" has no tag in it."""
    return not _is_no_tag(state.src, state.pos) and html_inline(state, silent)


def _html_lines(state: StateBlock, first: int, last: int, silent: bool) -> bool:
    """The same of lines: "<file>" may stand alone on one."""
    start = state.bMarks[first] + state.tShift[first]
    return not _is_no_tag(state.src, start) and html_block(state, first, last, silent)


def _is_no_tag(text: str, start: int) -> bool:
    tag = _TAG.match(text, start)
    if not tag or (tag[1].casefold() in _KNOWN_TAGS and (tag[1].islower() or tag[1].isupper())):
        return False
    return "-" not in tag[1]  # an element of the page's own has a hyphen


def _decode(path: Path, limits: Limits) -> tuple[str, list[str]]:
    limits.check(path.name, "bytes", path.stat().st_size, limits.text_member_bytes)
    text, guessed = undeclared(path.read_bytes())
    warnings = []
    if guessed is not None:
        warnings.append(GUESSED.format(guessed))
    text = without_terminal_codes(text)
    text = re.sub(r"\r\n?|[\x0b\x0c\x85\u2028\u2029]", "\n", text)
    limits.check(path.name, "characters", len(text), limits.characters)
    return text, warnings


def _has_columns(text: str) -> bool:
    """Whether tabs part the cells of a table: nine lines in ten, and at least three, have as many of them."""
    tabs = [line.lstrip().count("\t") for line in text.split("\n") if line.strip()]
    (most, lines), *_ = Counter(tabs).most_common(1) or [(0, 0)]
    return most > 0 and lines >= max(3, 0.9 * len(tabs))


@dataclass(frozen=True)
class _Paragraph:
    text: str  # of several lines, each stands as much further in than the others as it did
    gap: int  # blank lines before it

    @property
    def block(self) -> Block:
        return Block(self.text, code="\n" in self.text)


def _paragraphs(text: str, keep_lines: bool) -> list[_Paragraph]:
    lines = [re.sub(r"^[ \t]+", lambda indent: indent[0].expandtabs(4), line.rstrip()) for line in text.split("\n")]
    filled = [line for line in lines if line]
    if not filled:
        return []
    blanks = len(lines) - len(filled)
    if blanks * 20 < len(filled) and sum(map(len, filled)) > 120 * len(filled):
        return [_Paragraph(line, 0) for line in filled]  # one paragraph a line
    width = quantiles(map(len, filled), n=20)[17] if len(filled) > 1 else 0  # 90 of 100 lines are no longer
    wrapped = not keep_lines and 40 <= width <= 120 and _runs_on(lines, width, few=1)
    words = vocabulary(filled) if wrapped else set()
    paragraphs, current, gap = [], list[str](), 2
    for line in [*lines, ""]:
        if line:
            current.append(line)
            continue
        if current:
            whole = "\n".join(current if keep_lines else _pushed_left(current))
            if wrapped:
                whole = "\n".join(_quoted(quote, list(each), width, words) for quote, each in groupby(current, _quote))
            paragraphs.append(_Paragraph(whole, gap))
            current, gap = [], 0
        gap += 1
    return paragraphs


def _quote(line: str) -> str:
    """The signs before a line of a mail that is quoted, one for each time."""
    return "".join(signs[0].split()) if (signs := _QUOTE.match(line)) else ""


def _quoted(quote: str, lines: list[str], width: float, words: set[str]) -> str:
    """Lines of a paragraph that are quoted alike, joined where their sentences run on, with the signs before each."""
    bare = [_QUOTE.sub("", line) for line in lines] if quote else lines
    if quote and not any(bare):
        return quote
    parts = [list(part) for filled, part in groupby(bare, bool) if filled]
    joined = []
    for part in parts:
        runs_on = not _is_listing(part) and _runs_on(part, width - len(quote) - bool(quote))
        whole = _joined(part, width - len(quote) - bool(quote), words) if runs_on else "\n".join(_pushed_left(part))
        joined.append("\n".join(f"{quote} {line}" for line in whole.split("\n")) if quote else whole)
    return f"\n{quote}\n".join(joined)


def _is_full(line: str, following: str, width: float) -> bool:
    """Whether a line ended because the next one's first word found no room."""
    return len(line) + 1 + len(following.split(maxsplit=1)[0]) > width - 8


def _runs_on(lines: list[str], width: float, few: int = 0) -> bool:
    """Whether sentences run on over the ends of full lines: nine ends in ten in wrapped English, six in German, none in
    a log or in verse. Fewer than eight such ends tell little: of them, `few` are enough.
    """
    ends = [
        (line, after.lstrip()) for line, after in pairwise(lines) if line and after and _is_full(line, after, width)
    ]
    on = sum(
        (category(line[-1])[0] in "LM" or line[-1] in ",;-–—’”\"'，、")
        and (category(after[0]) in ("Ll", "Lo", "Lm") or (line.isupper() and after.isupper()))
        for line, after in ends
    )
    return on >= (few if len(ends) < 8 else 0.25 * len(ends))


def _is_listing(lines: list[str]) -> bool:
    """Whether lines begin alike or have the same cells, as those of logs and tables."""
    most = max(3.0, 0.8 * len(lines))
    starts = Counter(line.split(maxsplit=1)[0] for line in lines)
    cells = Counter("".join(_BORDER.findall(line)) for line in lines)
    return (
        max(starts.values()) >= most
        or sum(bool(re.match(r"\s*[\[(<]?\d", line)) for line in lines) >= most
        or any(number >= most and (len(borders) > 1 or borders in ("\t", "|")) for borders, number in cells.items())
    )


def _joined(lines: list[str], width: float, words: set[str]) -> str:
    """Lines of one paragraph: after a filled line the next one follows on, after a short one it stays a line."""
    indent = min(len(line) - len(line.lstrip()) for line in lines)
    verse = indent >= 3 and len(lines) > 1
    left = _pushed_left(lines)
    pieces = [left[0]]
    for before, line, pushed in zip(lines, lines[1:], left[1:], strict=False):
        bare = line.strip()
        if _is_full(before, line, width) and not verse and not re.match(r"[-*•]\s|\d{1,3}[.)]\s", bare):
            lost, glue = seam(pieces[-1], bare, words)
            pieces[-1] = pieces[-1][: len(pieces[-1]) - lost]
            pieces.append(glue + bare)
        else:
            pieces.append("\n" + pushed)
    text = re.sub(r"(?<=\S) {2,}", " ", "".join(pieces))  # after sentences, or set to fill the line
    return text if "\n" in text else text.strip()  # the first line of prose may be indented, and says nothing by it


def _pushed_left(lines: list[str]) -> list[str]:
    """Lines without the indentation that they share."""
    indent = min(len(line) - len(line.lstrip()) for line in lines)
    return [line[indent:] for line in lines]


def _with_chapters(paragraphs: list[_Paragraph]) -> list[Block]:
    """Paragraphs as blocks, headings among them where the text has at least two."""
    titles = [tidy(paragraph.text) for paragraph in paragraphs]
    named = [_is_heading(title) for title in titles]
    apart = [
        paragraph.gap >= 2
        and len(title) <= 70
        and "\n" not in title
        and title[:1].isalnum()
        and not title.endswith(_SENTENCE_END)
        for paragraph, title in zip(paragraphs, titles, strict=True)
    ]
    apart = apart if sum(apart) >= 2 else [False] * len(titles)
    if sum(named) + sum(apart) < 2:
        return [paragraph.block for paragraph in paragraphs]
    upper = any(_PART.match(title) for title, is_named in zip(titles, named, strict=True) if is_named) or any(
        is_apart and not is_named for is_apart, is_named in zip(apart, named, strict=True)
    )
    found = [is_named or is_apart for is_named, is_apart in zip(named, apart, strict=True)]
    one_lines = [" ".join(title.split()) for title in titles]
    last = {title.casefold(): index for index, title in enumerate(one_lines) if not _NUMERAL.match(title)}
    blocks = []
    for index, paragraph in enumerate(paragraphs):
        title = one_lines[index]
        # A title that comes again is a line of a table of contents here.
        if found[index] and last.get(title.casefold(), index) == index:
            blocks.append(Block(title, 2 if upper and named[index] and not _PART.match(title) else 1))
        else:
            blocks.append(paragraph.block)
    return blocks


def _is_heading(text: str) -> bool:
    first, _, second = text.partition("\n")
    if len(second) >= 80 or "\n" in second:
        return False
    if _NUMERAL.match(first):
        return len(first) < 10 or not first.endswith(_SENTENCE_END)
    if not _CHAPTER.match(first):
        return False
    # "Part of it was true." begins like a heading; "Chapter 1. I am born." is one.
    numbered = re.match(r"\w+\s+(?:[\dIVXLC]+|[A-Z]+)\b[.:]?", first)
    return first.isupper() or (not first.endswith(_SENTENCE_END) and len(first) < 70) or bool(numbered)
