"""A page of a document by itself, in a tab of its own, with the passage marked that a source points to."""

from app.web.views.markup import esc
from ingest import Page

STYLE = """
:root { color-scheme: light dark; --paper: #fffdf9; --ink: #25211c; --soft: #645b4f; --mark: #f8dfa8; }
@media (prefers-color-scheme: dark) { :root { --paper: #201d1a; --ink: #ece6dc; --soft: #b3a999; --mark: #5b481c; } }
body { margin: 0; padding: 32px 24px 64px; background: var(--paper); color: var(--ink);
  font: 17px/1.65 "Iowan Old Style", "Palatino Linotype", Palatino, "Book Antiqua", Georgia, serif; }
main { max-width: 44rem; margin: 0 auto; }
h1 { font-size: 1.3rem; line-height: 1.3; margin: 0; overflow-wrap: anywhere; }
header p { margin: 4px 0 28px; color: var(--soft); }
#text { white-space: pre-wrap; overflow-wrap: anywhere; unicode-bidi: plaintext; text-align: start; }
mark { background: var(--mark); color: inherit; scroll-margin-top: 30vh; }
"""


def document_page(title: str, page: Page, start: int = 0, end: int = 0) -> str:
    """All of it as HTML. start, end: the characters of the page's text that are marked, as `#passage`."""
    text = page.text
    start, end = max(0, start), min(end, len(text))
    if start < end:
        marked = f'{esc(text[:start])}<mark id="passage">{esc(text[start:end])}</mark>{esc(text[end:])}'
    else:
        marked = esc(text)
    return (
        f'<!doctype html><html><head><meta charset="utf-8"><title>{esc(page.label)} · {esc(title)}</title>'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>{STYLE}</style></head>'
        f"<body><main><header><h1>{esc(page.label)}</h1><p>{esc(title)}</p></header>"
        f'<div id="text">{marked}</div></main></body></html>'
    )
