"""A page of a document with the passage of a source marked, in a browser tab of its own or beside the answer. A PDF is
shown as printed too.
"""

from app.language import place_words, present, t
from app.reading.pages import DocumentPage
from app.web.views.markup import esc, told_html

DEEPEST = 6  # deepest level of the contents that is indented
STYLE = """
:root { color-scheme: light dark; --paper: light-dark(#fffdf9, #201d1a); --ink: light-dark(#25211c, #ece6dc);
  --soft: light-dark(#645b4f, #b3a999); --mark: light-dark(#f8dfa8, #5b481c); --link: light-dark(#a6431a, #ec945f);
  --line: light-dark(#e0d8ca, #37322c); }
:root[data-theme=light] { color-scheme: light; }
:root[data-theme=dark] { color-scheme: dark; }
body { margin: 0; padding: 32px 24px 64px; background: var(--paper); color: var(--ink);
  font: 17px/1.65 "Iowan Old Style", "Palatino Linotype", Palatino, "Book Antiqua", Georgia, serif; }
main { max-width: 44rem; margin: 0 auto; display: grid; gap: 28px 48px; }
main:has(figure) { max-width: 92rem; }
@media (min-width: 1100px) { main:has(figure) { grid-template-columns: 1fr 1fr; align-items: start; } }
header { grid-column: 1 / -1; min-width: 0; overflow-wrap: anywhere; }
h1, header p, li { unicode-bidi: plaintext; text-align: start; }
h1 { font-size: 1.3rem; line-height: 1.3; margin: 0; }
header p { margin: 4px 0 0; color: var(--soft); }
nav span { color: var(--soft); }
nav { margin-top: 8px; display: flex; flex-wrap: wrap; gap: 4px 20px; font-size: 15px; }
details { margin-top: 8px; font-size: 15px; }
summary { cursor: pointer; color: var(--soft); }
ol { list-style: none; margin: 4px 0 0; padding: 0; }
li { padding-inline-start: calc(var(--level) * 1.2em); }
a { color: var(--link); }
.both { display: grid; grid-template-columns: 1fr 1fr; gap: 24px 48px; } main:has(.both) { max-width: 92rem; }
:is(#text, .text) { white-space: pre-wrap; overflow-wrap: anywhere; unicode-bidi: plaintext; min-width: 0;
  text-align: start; }
cite { display: block; font-size: 15px; }
mark { background: var(--mark); color: inherit; scroll-margin-top: 30vh; }
figure { margin: 0; min-width: 0; color: var(--soft); }
@media (min-width: 1100px) { figure { position: sticky; top: 24px; } nav a[href="#printed"] { display: none; } }
figure img { display: block; max-width: 100%; max-height: calc(100vh - 48px); border: 1px solid var(--line);
  background: #fff; }
"""
# Requested once, because drawing may take a minute; a failure says why.
SCRIPT = """
(async () => {
  const picture = document.querySelector("#printed img");
  try {
    const answer = await fetch(picture.dataset.from);
    if (answer.ok) picture.src = URL.createObjectURL(await answer.blob());
    else picture.replaceWith((await answer.json()).error);
  } catch {
    picture.replaceWith("The server does not answer: reload the page once it does.");
  }
})();
"""


# The theme chosen on the main page, if there is one.
THEME = 'document.documentElement.dataset.theme = localStorage.getItem("stockpot-theme") ?? "";'


def document_page(shown: DocumentPage, start: int = 0, end: int = 0) -> str:
    """Return the whole page as HTML. start, end: characters of the document's text to mark as `#passage`.

    The language of the document is unknown.
    """
    page = shown.page
    return whole(
        f"{place_words(page.label)} · {shown.title}",
        f'<header><h1 lang="">{esc(place_words(page.label))}</h1><p lang="">{esc(shown.title)}</p>{_elsewhere(shown)}'
        f"{_contents(shown)}</header>"
        f'<div id="text" lang="">{_marked(page.text, start - shown.start, end - shown.start)}</div>'
        f"{_printed(shown, start, end)}",
    )


def page_beside(shown: DocumentPage, start: int = 0, end: int = 0) -> str:
    """Return a page as HTML to be put beside an answer: as printed if it can be, else its text.

    start, end: characters of the document's text to mark.
    """
    page, id = shown.page, esc(shown.document)
    number, (first, last) = page.number, shown.numbers
    steps = [(number - 1, t("Previous"))] if number > first else []
    steps += [(number + 1, t("Next"))] if number < last else []
    links = "".join(f'<a href="documents/{id}/pages/{to}">{name}</a>' for to, name in steps)
    counted = f"<span>{t('{n} of {n_all}', n=number, n_all=last)}</span>" if last > first else ""
    text = f'<div class="page-text" lang="">{_marked(page.text, start - shown.start, end - shown.start)}</div>'
    if shown.printed:
        address = f"api/documents/{id}/pages/{number}/picture?start={start}&amp;end={end}"
        printed = t("{place} as it is printed", place=esc(place_words(page.label)))
        text = (
            f'<figure><p class="quiet" role="status">{t("Drawing the page …")}</p><img hidden data-from="{address}" '
            f'alt="{printed}"></figure><details class="as-text">'
            f"<summary>{t('Its text')}</summary>"
            f"{text}</details>"
        )
    elif not page.text.strip():
        text = f'<p class="quiet">{t("There is no text here.")}</p>'
    return (
        f'<header><h2 lang="" tabindex="-1">{esc(place_words(page.label))}</h2><p lang="">{esc(shown.title)}</p>'
        f"<nav>{counted}{links}</nav></header>{text}"
    )


def both_pages(one: DocumentPage, other: DocumentPage, *spans: tuple[int, int]) -> str:
    """Return pages of two documents side by side, as a whole page. spans: characters to mark in each."""
    body = ""
    for shown, (start, end) in zip((one, other), spans, strict=True):
        page, at = shown.page, f"../../../../documents/{esc(shown.document)}/pages/{shown.page.number}"
        body += (
            f'<section><header><h1 lang=""><a href="{at}">{esc(place_words(page.label))}</a></h1><p lang="">'
            f'{esc(shown.title)}</p></header><div class="text" lang="">'
            f"{_marked(page.text, start - shown.start, end - shown.start)}</div></section>"
        )
    return whole(f"{one.title} · {other.title}", f'<div class="both">{body}</div>')


def no_page(sentence: str) -> str:
    """Return the HTML for a page that cannot be shown."""
    none = t("No such page")
    return whole(none, f'<header><h1>{none}</h1><p role="alert">{told_html(sentence)}</p></header>')


def whole(title: str, body: str, base: str = "") -> str:
    """Return a page of its own as HTML. base: address that its links start from; "" for its own."""
    based = f'<base href="{base}">' if base else ""
    return (
        f'<!doctype html><html lang="{present()}"><head><meta charset="utf-8"><title>{esc(title)}</title>{based}'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{STYLE}</style><script>{THEME}</script></head><body><main>{body}</main></body></html>"
    )


def _marked(text: str, start: int, end: int) -> str:
    start, end = max(0, start), min(end, len(text))
    if start >= end:
        return esc(text)
    return f'{esc(text[:start])}<mark id="passage">{esc(text[start:end])}</mark>{esc(text[end:])}'


def _elsewhere(shown: DocumentPage) -> str:
    """Return its number in the file, and links to its neighbours and the whole file."""
    number, (first, last) = shown.page.number, shown.numbers
    here = f"<span>{t('{n} of {n_all}', n=number, n_all=last)}</span>" if last > first else ""
    links = [(str(number - 1), t("Previous"))] if number > first else []
    links += [(str(number + 1), t("Next"))] if number < last else []
    if shown.printed:
        links.append((f"../../../api/documents/{esc(shown.document)}/file#page={number}", t("Open the PDF here")))
        links.append(("#printed", t("As it is printed")))
    shown_links = "".join(f'<a href="{link}">{name}</a>' for link, name in links)
    return f"<nav>{here}{shown_links}</nav>" if links else ""


def _contents(shown: DocumentPage) -> str:
    """Return the document's table of contents, folded."""
    if not shown.contents:
        return ""
    lines = "".join(
        f'<li style="--level:{min(entry.level, DEEPEST)}"><a href="{entry.page}">{esc(entry.title)}</a></li>'
        for entry in shown.contents
    )
    return f'<details><summary>{t("Contents")}</summary><ol lang="">{lines}</ol></details>'


def _printed(shown: DocumentPage, start: int, end: int) -> str:
    if not shown.printed:
        return ""
    number = shown.page.number
    link = f"../../../api/documents/{esc(shown.document)}/pages/{number}/picture?start={start}&amp;end={end}"
    printed = t("{place} as it is printed", place=esc(place_words(shown.page.label)))
    return f'<figure id="printed"><img data-from="{link}" alt="{printed}"></figure><script>{SCRIPT}</script>'
