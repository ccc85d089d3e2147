"""The welcome to a chat without questions, as HTML: what was read, a summary, and questions to begin with."""

from collections.abc import Sequence

from app.asking.introduction import Introduction
from app.formatting import plural
from app.language import t
from app.reading.previews import length_of, pages_in_words
from app.web.views.markup import esc, told_html
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
    parts = [f"<p>{t(READ if ready else READ_SO_FAR)}</p>"]
    if ready and documents and (length := extent(documents)):
        parts.append(f'<p class="extent">{esc(length)}</p>')
    if made is not None and made.summary:
        parts.append(
            f'<section class="summary" aria-label="{t("Summary")}"><p>{esc(made.summary).replace(chr(10), "<br>")}</p>'
            f'<p class="quiet">{t("Written by {model}: check it against the text.", model=esc(model))}</p></section>'
        )
    if made is not None and made.questions:
        asked = "".join(
            f'<li><button type="button" data-action="suggested">{esc(each)}</button></li>' for each in made.questions
        )
        parts.append(f'<ul class="suggested" aria-label="{t("Questions to begin with")}">{asked}</ul>')
    if making:
        parts.append(f'<p class="quiet" role="status">{t(WRITING)}</p>')
    if about:
        parts.append(f'<p class="about">{told_html(about)}</p>')
    return f'<div class="empty welcome">{"".join(parts)}</div>'


def extent(documents: Sequence[Document]) -> str:
    """Return how long documents are, in words: "12 pages, 5 chapters.", "About 180 pages in 15 sections.".

    Of one document with pages alone it is "": the line above says how many of them have text.
    """
    words = pages_in_words([length_of(each.format, len(each.pages), len(each.text)) for each in documents])
    if len(documents) > 1:
        return f"{plural(len(documents), 'document')}, {words}."  # numbers with their nouns: alike in all languages
    [document] = documents
    chapters = sum(entry.level == 1 for entry in document.toc)
    if not FORMATS[document.format].has_fixed_pages:
        sections = plural(len(document.pages), noun_of_pages(document.format))
        words = t("{length} in {sections}", length=f"{words[:1].upper()}{words[1:]}", sections=sections)
    elif chapters < FEW_CHAPTERS:
        return ""
    else:
        words += f", {plural(chapters, 'chapter')}"
    return f"{words}."
