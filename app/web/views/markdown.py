"""Text of a model as a page shows it: its Markdown as it is meant, all else as it is written.

HTML in it is never rendered. Links and pictures, which would lead or ask elsewhere, stay as they are typed. Whoever
marks something in the text gives the HTML and the places that it goes to.
"""

import re
from collections.abc import Sequence
from functools import lru_cache

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from markdown_it.utils import EnvType, OptionsDict

# Around the number of a mark. Unicode keeps U+FDD0 for the inner use of programs; the half brackets beside it are for
# Markdown, to which stars behind a full stop end what is bold only if no letter follows.
_OURS = "\ufdd0"
_OPEN, _CLOSE = f"\N{TOP LEFT HALF BRACKET}{_OURS}", f"{_OURS}\N{TOP RIGHT HALF BRACKET}"
_MARK = re.compile(f"{_OPEN}(\\d+){_CLOSE}")
# Answers are no documents: a line under a line makes no heading of it, and what is indented is no code.
_NOT_MEANT = ("link", "image", "autolink", "reference", "entity", "html_block", "html_inline", "lheading", "code")

DEEPEST = 200
"""Lists and quotations in one another: behind deeper ones, all that follows would be left out."""

Mark = tuple[int, str]
"""HTML and the offset in the text that it is put at."""


def _heading(renderer: RendererHTML, tokens: Sequence[Token], index: int, options: OptionsDict, env: EnvType) -> str:
    """A line of its own; the page's headings part the page."""
    return '<p class="heading">' if tokens[index].nesting > 0 else "</p>"


def _parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"html": False, "maxNesting": DEEPEST}).enable("table").disable(_NOT_MEANT)
    parser.add_render_rule("heading_open", _heading)
    parser.add_render_rule("heading_close", _heading)
    return parser


_MARKDOWN = _parser()


@lru_cache(maxsize=2048)  # a page asks for all turns of its session once a second
def rendered(text: str, marks: tuple[Mark, ...] = ()) -> str:
    """The text as HTML. A single line is a line, whatever it begins with: "1872." is a year, and no list."""
    text = text.replace(_OURS, "\N{REPLACEMENT CHARACTER}")
    pieces, at = [], 0
    for number, (offset, _) in enumerate(marks):
        pieces.append(f"{text[at:offset]}{_OPEN}{number}{_CLOSE}")
        at = offset
    marked = "".join([*pieces, text[at:]]).strip()
    html = _MARKDOWN.render(marked) if "\n" in marked else f"<p>{_MARKDOWN.renderInline(marked)}</p>"
    return _MARK.sub(lambda found: marks[int(found[1])][1], html)
