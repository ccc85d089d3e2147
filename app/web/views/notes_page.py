"""The notes of a chat as HTML, to be put beside it, or in a browser tab of its own."""

from collections.abc import Mapping, Sequence
from itertools import groupby

from app.language import place_words, t
from app.notes import Note
from app.web.views.document_page import whole
from app.web.views.markdown import rendered
from app.web.views.markup import esc, page_link, place_after


def notes_page(session: str, title: str, notes: Sequence[Note], pdfs: Mapping[str, str]) -> str:
    """Return the notes as a whole page. The arguments are those of `notes_beside`."""
    return whole(f"{t('Notes')} · {title}", f"<div>{notes_beside(session, title, notes, pdfs)}</div>", base="../../")


def notes_beside(session: str, title: str, notes: Sequence[Note], pdfs: Mapping[str, str]) -> str:
    """Return the notes as HTML to be put beside the chat.

    Args:
        session: id of the chat.
        title: its title.
        notes: its notes, in the order of its questions.
        pdfs: titles by id of the PDFs that they quote.
    """
    header = f'<header><h2 tabindex="-1">{t("Notes")}</h2><p>{esc(title)}</p></header>'
    if not notes:
        return f'{header}<p class="quiet">{t("Nothing of this chat is kept any more.")}</p>'
    asked = groupby(notes, lambda each: (each.turn, each.question))
    body = "".join(f"<h3>{esc(question)}</h3>{''.join(map(_note, each))}" for (_, question), each in asked)
    return f"{header}{downloads(session, pdfs)}{body}"


def downloads(session: str, pdfs: Mapping[str, str]) -> str:
    """Return links to the notes as files, and to copies of PDFs with their passages highlighted."""
    at = f"api/sessions/{esc(session)}"
    files = [(f"export?notes=true&amp;format={kind}", name) for kind, name in (("md", "Markdown"), ("docx", "Word"))]
    files += [(f"highlights/{esc(id)}", t("“{title}” with highlights", title=esc(name))) for id, name in pdfs.items()]
    links = " ".join(f'<a href="{at}/{path}" download>{name}</a>' for path, name in files)
    return f'<p class="export">{t("Take these notes with you:")} {links}</p>'


def _note(note: Note) -> str:
    """Return a kept answer with its sources, or a kept source."""
    said = f'<div class="answer-text">{rendered(note.answer)}</div>' if note.answer else ""
    quotes = "".join(
        f'<blockquote lang="">{esc(each["quote"])}<cite>'
        + page_link(
            each["document"],
            int(each["page"]),
            f"{esc(each['title'])}, {esc(place_words(each['place']))}",
            place_after(int(each["start"]), int(each["end"])) if "start" in each else "",
        )
        + "</cite></blockquote>"
        for each in note.sources
    )
    return f'<section class="note-kept">{said}{quotes}</section>'
