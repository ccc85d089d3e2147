"""The right side as HTML: a map of the documents, their contents, and passages that a search found."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from app.asking.recap import Part
from app.formatting import percent, plural
from app.language import place_words, t
from app.reading.memory_map import Remembered, tenths
from app.search import Passage
from app.web.outline import Cell, Outline
from app.web.views.markup import esc, page_link, place_after, told_html
from sessions import UNDER_WAY, DocumentRow, JobRow

DEEPEST = 4
"""Deepest level of the contents that is indented."""
MOST_UNFOLDED = 3
"""Most documents whose contents are unfolded."""
MOST_TICKS = 60
"""Most chapters that all have a tick in the map; of more, those of the first level have one."""
WIDTH, HEIGHT = 480.0, 30.0
"""Size of the map's drawing."""


@dataclass(frozen=True)
class Book:
    """The documents of a chat, and what is drawn of them.

    documents: the documents, in reading order.
    outlines: their outlines by id; those that cannot be opened are missing.
    drawn: the cells of the map.
    remembered: the memory map; empty if everything is held.
    looked: sources of the last answer.
    read: share of the text that is read, 0 to 1.
    places: how far the documents have been read, by id.
    """

    documents: Sequence[DocumentRow]
    outlines: Mapping[str, Outline]
    drawn: Sequence[Cell]
    remembered: Sequence[Remembered] = ()
    looked: Sequence[Mapping[str, Any]] = ()
    read: float = 1.0
    places: Mapping[str, str] = field(default_factory=dict)


def book(shown: Book) -> str:
    """Return the map and the contents of the documents of a chat."""
    documents = shown.documents
    listed = [_contents(number, row, shown) for number, row in enumerate(documents, 1)]
    name = t("Documents") if len(documents) > 1 else t("This document")
    return f'<section class="book"><h2>{name}</h2>{_map(shown)}{"".join(listed)}</section>'


def no_book() -> str:
    """Return the text for the right side while no document is open: the way from a file to an answer."""
    steps = (
        (t("Drop in a document."), t("You see how long it is, and how many minutes reading takes, before it begins.")),
        (t("Let it be read once."), t("Ask meanwhile about what was read so far, or close the page: it goes on.")),
        (t("Ask."), t("Under each answer are the passages that the model looked at; their pages open here.")),
        (t("Come back."), t("What was read stays on this computer, and is not read again for the next question.")),
    )
    listed = "".join(f"<li><b>{first}</b> {then}</li>" for first, then in steps)
    return f'<section class="book"><h2>{t("From a file to an answer")}</h2><ol class="steps">{listed}</ol></section>'


def _map(shown: Book) -> str:
    documents, outlines, remembered, looked = shown.documents, shown.outlines, shown.remembered, shown.looked
    if not shown.drawn:
        return ""
    before, total = {}, 0
    for row in documents:
        if row.id in outlines:
            before[row.id] = total
            total += outlines[row.id].characters
    titles = {row.id: row.title for row in documents}

    def across(document: str, character: int) -> float:
        return WIDTH * (before[document] + character) / max(1, total)

    pieces = []
    for cell in shown.drawn:
        left, right = across(cell.document, cell.start), across(cell.document, cell.end)
        # The root makes small shares distinguishable.
        dark = 1.0 if cell.share is None else cell.share**0.5
        said = _told(cell, outlines[cell.document], titles[cell.document] if len(documents) > 1 else "")
        pieces.append(
            f'<rect x="{left:.2f}" y="9" width="{max(0.1, right - left):.2f}" height="14" fill-opacity="{dark:.3f}" '
            f"{_leads(cell.document, cell.page, cell.start)}><title>{esc(said)}</title></rect>"
        )
    ticks = []
    for row in documents:
        outline = outlines.get(row.id)
        chapters = outline.chapters if outline else ()
        top = min((chapter.level for chapter in chapters), default=1)
        for chapter in chapters:
            if chapter.level == top or len(chapters) <= MOST_TICKS:
                at = across(row.id, chapter.start)
                ticks.append(f'<line class="tick" x1="{at:.2f}" x2="{at:.2f}" y1="24" y2="{HEIGHT:.0f}"/>')
        if before.get(row.id):
            at = across(row.id, 0)
            ticks.append(f'<line class="border" x1="{at:.2f}" x2="{at:.2f}" y1="6" y2="{HEIGHT:.0f}"/>')
    marks = []
    for source in looked:
        if source["document"] in before and "start" in source:
            there = t("The last answer looked here: {place}", place=esc(place_words(source["place"])))
            at = across(source["document"], int(source["start"]))
            marks.append(
                f'<path class="looked" d="M{at - 4:.2f} 0h8l-4 8z" '
                f"{_leads(source['document'], int(source['page']), int(source['start']), int(source['end']))}>"
                f"<title>{there}</title></path>"
            )
    kept = (
        t("How much is remembered of each tenth: {shares}.", shares=", ".join(map(percent, tenths(remembered))))
        if remembered
        else t("Everything is remembered.")
    )
    if shown.read < 1:
        at = WIDTH * shown.read
        pieces.append(f'<rect class="unread" x="{at:.2f}" y="9" width="{WIDTH - at:.2f}" height="14"/>')
        kept = t("Of the first {share}, which is read: {kept}", share=percent(shown.read), kept=kept)
    places = ", ".join(dict.fromkeys(place_words(str(source["place"])) for source in looked))
    last = t("The last answer looked at {place}.", place=places) if places else ""
    label = " ".join(filter(None, [t("Map from beginning to end."), kept, last]))
    return (
        f'<figure class="map{"" if remembered else " whole"}"><svg viewBox="-4 0 {WIDTH + 8:.0f} {HEIGHT:.0f}" '
        f'preserveAspectRatio="none" role="img" aria-label="{esc(label)}">{"".join([*pieces, *ticks, *marks])}</svg>'
        f"<figcaption>{_legend(remembered, bool(marks), bool(ticks), shown.read)}</figcaption></figure>"
    )


def _legend(remembered: Sequence[Remembered], looked: bool, chapters: bool, read: float) -> str:
    said = []
    if remembered:
        shares = [each.share for each in remembered]
        least, most = percent(min(shares)), percent(max(shares))
        darker = t("darker: remembers more ({least} to {most})", least=least, most=most)
        said.append(f'<span><i class="key shade"></i>{darker}</span>')
    else:
        held = t("everything is remembered") if read >= 1 else t("read, and remembered")
        said.append(f'<span><i class="key held"></i>{held}</span>')
    if read < 1:
        said.append(f'<span><i class="key unread"></i>{t("not read yet")}</span>')
    if looked:
        said.append(f'<span><i class="key looked"></i>{t("where the last answer looked")}</span>')
    if chapters:
        said.append(f'<span><i class="key tick"></i>{t("chapters")}</span>')
    return "".join([*said, f"<span>{t('Click a spot to read it.')}</span>"])


def _told(cell: Cell, outline: Outline, title: str) -> str:
    """Return the tooltip of a cell: its chapter and page, and the share that is remembered."""
    chapter = next((each.title for each in reversed(outline.chapters) if each.start <= cell.start), "")
    page = t(f"{outline.noun} {{n}}", n=cell.page)
    place = ", ".join(filter(None, [title, chapter, "" if chapter and outline.noun == "section" else page]))
    return place if cell.share is None else t("{place}: {share} remembered", place=place, share=percent(cell.share))


def _leads(document: str, page: int, start: int, end: int = 0) -> str:
    """Return the attributes of a mark that leads to a place."""
    return f'data-action="page" data-href="documents/{esc(document)}/pages/{page}{place_after(start, end)}"'


def _contents(number: int, row: DocumentRow, shown: Book) -> str:
    outline, documents = shown.outlines.get(row.id), shown.documents
    several = len(documents) > 1
    title = page_link(row.id, 1, esc(row.title), hint=t("Read it from its first page"))
    if outline is None:
        return f'<div class="document"><p class="name">{title}</p></div>'
    size = plural(row.pages, outline.noun)
    alone = (
        f'<button type="button" data-action="name" data-pages="{number}:" '
        f'title="{t("The next answer comes from this document only")}">{t("Ask about this one only")}</button>'
        if several
        else ""
    )
    lines = "".join(
        f'<li style="--level:{min(each.level, DEEPEST)}">'
        f"{page_link(row.id, each.page, esc(each.title), place_after(each.start, each.start))}</li>"
        for each in outline.chapters
    )
    folded = (
        f'<details data-fold="contents {esc(row.id)}"{" open" if len(documents) <= MOST_UNFOLDED else ""}>'
        f"<summary>{t('Contents')}</summary><ol>{lines}</ol></details>"
        if lines
        else ""
    )
    place = (
        f'<label class="quiet" title="{t("Answers then know nothing that comes later")}">{t("I have read up to")} '
        f'<input data-place="{esc(row.id)}" value="{esc(shown.places.get(row.id, ""))}" '
        f'placeholder="{t("the end")}" autocomplete="off"></label>'
        if row.pages > 1
        else ""
    )
    name = f"{number}. {title}" if several else title
    return (
        f'<div class="document"><p class="name">{name}</p><p class="quiet">{esc(size)} {alone}</p>{place}{folded}</div>'
    )


def recap(parts: Sequence[Part], job: JobRow | None) -> str:
    """Return the sentences on the chapters, and a button to have them made. job: the last that made them, if any."""
    under_way = job is not None and job.status in UNDER_WAY
    button = (
        f'<p class="quiet" role="status">{t("Summing up")} {job.done} / {job.total}</p>'
        if job is not None and under_way
        else f'<button type="button" data-action="recap" title="{t("Two sentences on each chapter, up to there")}">'
        f"{t('Recap')}</button>"
    )
    why = f'<p class="note">{told_html(job.error)}</p>' if job is not None and job.error else ""
    said = "".join(
        f"<li>{page_link(each.document, each.page, esc(each.title))}<p>{esc(' '.join(each.sentences))}</p></li>"
        for each in parts
        if each.sentences
    )
    return f'<section class="book recap">{button}{why}<ol>{said}</ol></section>'


def found(passages: Sequence[Passage], several: bool) -> str:
    """Return the passages that a search found. several: whether to name their documents."""
    if not passages:
        return f'<p class="quiet" role="status">{t("Nothing found in the text.")}</p>'
    items = []
    for each in passages:
        words, at = "", 0
        for start, end in each.highlights:
            words += f"{esc(each.snippet[at:start])}<mark>{esc(each.snippet[start:end])}</mark>"
            at = end
        words += esc(each.snippet[at:])
        title = f'<span class="title">{esc(each.title)}</span>' if several else ""
        link = page_link(each.document, each.page, esc(place_words(each.place)), place_after(each.start, each.end))
        items.append(
            f"<li>{link}{title}<p>{words}</p>"
            f'<button type="button" data-action="name" data-pages="{esc(each.pages)}" '
            f'title="{t("The next answer comes from this place")}">{t("Ask about this place")}</button></li>'
        )
    return f'<p class="quiet" role="status">{plural(len(passages), "passage")}</p><ol>{"".join(items)}</ol>'
