"""The welcome to a chat without questions, as HTML: what was read, a summary, and questions to begin with."""

from collections.abc import Sequence

from app.asking.introduction import Introduction
from app.formatting import plural, roughly
from app.reading.previews import pages_of
from app.web.views.markup import esc
from ingest import FORMATS, Document
from ingest.document import noun_of_pages

READ = "It has been read. Ask about any of it."
READ_SO_FAR = "Ask about what has been read so far."
WRITING = "Writing a summary, and questions to begin with …"
FEW_CHAPTERS = 2


def welcome(
    documents: Sequence[Document], *, ready: bool, about: str, made: Introduction | None, making: bool, model: str
) -> str:
    """Return the welcome.

    Args:
        documents: what was read.
        ready: whether all of it was read.
        about: a sentence on the model; "" for none.
        made: the introduction as far as it is made.
        making: whether more of it is being made.
        model: name of the model, for people.
    """
    parts = [f"<p>{READ if ready else READ_SO_FAR}</p>"]
    if ready and documents:
        parts.append(f'<p class="extent">{esc(extent(documents))}</p>')
    if made is not None and made.summary:
        parts.append(
            f'<section class="summary" aria-label="Summary"><p>{esc(made.summary)}</p>'
            f'<p class="quiet">Written by {esc(model)}: check it against the text.</p></section>'
        )
    if made is not None and made.questions:
        asked = "".join(
            f'<li><button type="button" data-action="suggested">{esc(each)}</button></li>' for each in made.questions
        )
        parts.append(f'<ul class="suggested" aria-label="Questions to begin with">{asked}</ul>')
    if making:
        parts.append(f'<p class="quiet" role="status">{WRITING}</p>')
    if about:
        parts.append(f'<p class="about">{esc(about)}</p>')
    return f'<div class="empty welcome">{"".join(parts)}</div>'


def extent(documents: Sequence[Document]) -> str:
    """Return how long documents are, in words: "12 pages, 5 chapters", "About 180 pages in 15 sections"."""
    lengths = [_length(each) for each in documents]
    if len(lengths) == 1:
        return f"{lengths[0][:1].upper()}{lengths[0][1:]}."
    pages = sum(len(each.pages) if _printed(each) else pages_of(len(each.text)) for each in documents)
    return f"{plural(len(documents), 'document')}, about {roughly(pages)} pages."


def _printed(document: Document) -> bool:
    return FORMATS[document.format].has_fixed_pages


def _length(document: Document) -> str:
    noun, count = noun_of_pages(document.format), len(document.pages)
    if _printed(document):
        chapters = sum(entry.level == 1 for entry in document.toc)
        return plural(count, noun) + (f", {plural(chapters, 'chapter')}" if chapters >= FEW_CHAPTERS else "")
    pages = pages_of(len(document.text))
    about = "about 1 page" if pages == 1 else f"about {roughly(pages)} pages"
    return f"{about} in {plural(count, noun)}"
