"""Markdown: CommonMark with tables and strikethrough, rendered to HTML and converted from there."""

import re
from dataclasses import replace
from pathlib import Path

from lxml.html import defs
from markdown_it import MarkdownIt
from markdown_it.rules_block import StateBlock, html_block, reference
from markdown_it.rules_inline import StateInline, html_inline

from ingest.conversion import Content, ConvertOptions
from ingest.errors import EmptyDocument
from ingest.formats import text
from ingest.markup import html
from ingest.sections import first_heading, paginate

DEEPEST = 100  # nested lists and quotations, counted in tokens: a list is two
_NOTE = re.compile(r"\[\^[^\]\s]+\]:")
_FIELD = r"(?:[\w\"'.][^\n:]*:(?:[ \t][^\n]*)?|[ \t#\-\]}][^\n]*)?\n"  # a name with its value, or a line that goes on
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


def convert(path: Path, options: ConvertOptions) -> Content:
    """Convert Markdown to sections of text.

    Raises:
        TooLarge: too many bytes or characters.
        EmptyDocument: no text.
    """
    source, warnings = text.read_text(path, options.limits)
    title = None
    if front := _FRONT_MATTER.match(source):
        source = source[front.end() :]
        if named := re.search(r"^title *[:=](.*)$", front[1] or front[2], re.MULTILINE | re.IGNORECASE):
            title = re.sub(r"^[\"']|[\"']$", "", named[1].strip())
    markdown = MarkdownIt("commonmark", {"maxNesting": DEEPEST}).enable(["table", "strikethrough"])
    markdown.block.ruler.at("reference", _link_definition, {"alt": ["paragraph"]})
    markdown.block.ruler.at("html_block", _html_lines, {"alt": ["paragraph", "reference", "blockquote"]})
    markdown.inline.ruler.before("escape", "formula", _formula)
    markdown.inline.ruler.at("html_inline", _html_tag)
    parts = markdown.parse(source)
    if max((part.level for part in parts), default=0) >= DEEPEST - 1:  # the parser drops all that is nested deeper
        content = text.convert(path, options)
        warning = "Lists or quotations lie too deep in one another for Markdown: it was read as plain text."
        return replace(content, warnings=[*content.warnings, warning])
    rendered = markdown.renderer.render(parts, markdown.options, {})
    blocks, _, _ = html.extract(f"<html><body>{rendered}</body></html>", path.name)
    pages, toc = paginate(blocks)
    if not pages:
        raise EmptyDocument(f"{path.name} holds no text.")
    return Content(pages, toc, [title, first_heading(blocks)], warnings)


def _link_definition(state: StateBlock, first: int, last: int, silent: bool) -> bool:
    """Apply CommonMark's rule, but keep "[^1]: https://..." as a paragraph: it is a footnote."""
    if _NOTE.match(state.src, state.bMarks[first] + state.tShift[first]):
        return silent  # silent: the parser asks whether the paragraph before ends here
    return not silent and reference(state, first, last, silent)


def _formula(state: StateInline, silent: bool) -> bool:
    """Keep TeX between its delimiters as it is, stars and backslashes included."""
    found = _FORMULA.match(state.src, state.pos, state.posMax)
    if found is None or (not re.search(r"[$\\^_=]", found[0][2:-2]) and found[0][0] == "\\"):  # escaped brackets
        return False
    if not silent:
        state.pending += found[0]
    state.pos = found.end()
    return True


def _html_tag(state: StateInline, silent: bool) -> bool:
    """Apply CommonMark's rule, but keep "Vec<String>" as text."""
    return not _is_no_tag(state.src, state.pos) and html_inline(state, silent)


def _html_lines(state: StateBlock, first: int, last: int, silent: bool) -> bool:
    """Apply CommonMark's rule, but keep a line of "<file>" alone as text."""
    start = state.bMarks[first] + state.tShift[first]
    return not _is_no_tag(state.src, start) and html_block(state, first, last, silent)


def _is_no_tag(source: str, start: int) -> bool:
    """Return whether the text at `start` looks like a tag but names no element of HTML."""
    tag = _TAG.match(source, start)
    if not tag or (tag[1].casefold() in _KNOWN_TAGS and (tag[1].islower() or tag[1].isupper())):
        return False
    return "-" not in tag[1]  # custom elements have a hyphen
