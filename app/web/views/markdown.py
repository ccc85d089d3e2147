"""Render a model's text: Markdown as HTML, everything else as written.

HTML in the text is never rendered. Links and pictures, which would lead to other sites, stay as typed. Callers mark
places in the text by giving HTML with offsets.
"""

import re
from collections.abc import Sequence
from functools import lru_cache

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from markdown_it.utils import EnvType, OptionsDict

# Around the number of a mark. Unicode reserves U+FDD0 for internal use; the half brackets beside it are for
# Markdown, in which stars after a full stop end bold text only if no letter follows.
_OURS = "\ufdd0"
_OPEN, _CLOSE = f"\N{TOP LEFT HALF BRACKET}{_OURS}", f"{_OURS}\N{TOP RIGHT HALF BRACKET}"
_MARK = re.compile(f"{_OPEN}(\\d+){_CLOSE}")
# Answers are no documents: no underlined headings, and no indented code.
_NOT_MEANT = ("link", "image", "autolink", "reference", "entity", "html_block", "html_inline", "lheading", "code")

DEEPEST = 200
"""Most nested lists and quotations; the parser would leave out all text after deeper ones."""

Mark = tuple[int, str]
"""HTML, and the offset in the text to put it at."""


def _heading(renderer: RendererHTML, tokens: Sequence[Token], index: int, options: OptionsDict, env: EnvType) -> str:
    """Return a heading as a line of its own, because headings structure the page."""
    return '<p class="heading">' if tokens[index].nesting > 0 else "</p>"


def _parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"html": False, "maxNesting": DEEPEST}).enable("table").disable(_NOT_MEANT)
    parser.add_render_rule("heading_open", _heading)
    parser.add_render_rule("heading_close", _heading)
    return parser


_MARKDOWN = _parser()


@lru_cache(maxsize=2048)  # a page asks for all turns of its session at each change
def rendered(text: str, marks: tuple[Mark, ...] = ()) -> str:
    """Return the text as HTML. A single line is never a list: "1872." is a year."""
    text = text.replace(_OURS, "\N{REPLACEMENT CHARACTER}")
    pieces, at = [], 0
    for number, (offset, _) in enumerate(marks):
        pieces.append(f"{text[at:offset]}{_OPEN}{number}{_CLOSE}")
        at = offset
    marked = "".join([*pieces, text[at:]]).strip()
    html = _MARKDOWN.render(marked) if "\n" in marked else f"<p>{_MARKDOWN.renderInline(marked)}</p>"
    return _MARK.sub(lambda found: marks[int(found[1])][1], html)
