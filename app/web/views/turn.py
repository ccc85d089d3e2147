"""A turn as HTML: question, answer with its quotations, sources and measurements."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from app.asking.named_pages import pages_around, pages_in_words, with_pinned
from app.formatting import plural, short_seconds, speed
from app.language import place_words, t
from app.web.views.markdown import Mark, rendered
from app.web.views.markup import bar, esc, page_link, place_after, told_html
from sessions import TurnRow

NOWHERE = "The model looked at no passage in particular: check this answer."
MOST_CITED = 3
"""Most places that are copied with an answer."""
NOTES = {
    "cancelled": "Stopped. The model will not remember this question.",
    "failed": "This could not be answered.",
}


def conversation(
    turns: Sequence[TurnRow], titles: Mapping[str, str], lists: Mapping[str, str] | None = None, *, last: bool = False
) -> str:
    """Return finished turns, oldest first.

    Args:
        turns: the turns.
        titles: titles of the context's documents by id, in reading order.
        lists: results of `whole_list`, by id of the turn.
        last: whether the last turn of the session is among them; its sources are unfolded.
    """
    unfolded, lists = turns[-1].id if last and turns else None, lists or {}
    return "".join(turn_article(turn, titles, lists.get(turn.id, ""), expanded=turn.id == unfolded) for turn in turns)


def turn_article(turn: TurnRow, titles: Mapping[str, str], listed: str = "", *, expanded: bool = False) -> str:
    """Return one finished turn. listed: result of `whole_list`; expanded: whether its sources are unfolded."""
    return (
        f'<article class="turn {esc(turn.status)}" id="{esc(turn.id)}">{_question(turn)}'
        f'<div class="answer">{_reasoning(turn)}{_answer_text(turn)}{_before(turn, titles)}'
        f"{_note(turn)}{listed}{_measured(turn, titles)}{_sources(turn, titles, expanded)}</div></article>"
    )


def live_turn(turn: TurnRow, stage: str) -> str:
    """Return a turn that is being answered. stage: the work before the first word."""
    caret = (len(turn.answer.rstrip()), '<span class="caret" aria-hidden="true"></span>')
    shown = f'<div class="answer-text">{rendered(turn.answer, (caret,))}</div>'
    waiting = f'<p class="waiting"><span class="dots" aria-hidden="true"><i></i><i></i><i></i></span>{esc(stage)}</p>'
    return (
        f'<article class="turn live" id="{esc(turn.id)}" aria-busy="true">{_question(turn)}'
        f'<div class="answer">{_reasoning(turn)}{shown if turn.answer else waiting}</div></article>'
    )


def _reasoning(turn: TurnRow) -> str:
    """Return the reasoning before the answer, folded."""
    if not turn.reasoning.strip():
        return ""
    return (
        f'<details class="reasoning" data-fold="{esc(turn.id)}"><summary>{t("Reasoning")} '
        f'<span class="count">{plural(len(turn.reasoning.split()), "word")}</span></summary>'
        f"<p>{esc(turn.reasoning)}</p></details>"
    )


def _question(turn: TurnRow) -> str:
    return f'<div class="question"><p>{esc(turn.question)}</p></div>'


def _answer_text(turn: TurnRow) -> str:
    if not turn.answer.strip():
        nothing = t("The model ended without a word.") if turn.status == "done" else ""
        return nothing and f'<p class="answer-text nothing">{nothing}</p>'
    marks = sorted([*_quotations(turn), *_unsupported(turn), *_citations(turn)], key=lambda mark: mark[0])
    html = rendered(turn.answer, tuple(marks))
    as_written = html == f"<p>{esc(turn.answer.strip())}</p>"
    kept = "" if as_written else f' data-said="{esc(turn.answer)}"'  # for the copy button
    return f'<div class="answer-text"{kept}>{html}</div>'


def _quotations(turn: TurnRow) -> Iterator[Mark]:
    """Yield marks around quotations, which say whether their words are in the documents."""
    at = 0
    for each in turn.measurements.get("quotations", []):
        start, end = each["start"], each["end"]
        if start < at or end > len(turn.answer) or "\n" in turn.answer[start:end]:
            continue
        at = end
        if each["place"]:
            said = t("These words are on {place}", place=esc(place_words(each["place"])))
            yield start, f'<q class="verified" title="{said}">'
            yield end, "</q>"
        else:
            yield start, f'<span class="unverified" title="{t("These words are not in the documents")}">'
            yield end, f'<span class="sr"> ({t("these words are not in the documents")})</span></span>'


def _unsupported(turn: TurnRow) -> Iterator[Mark]:
    """Yield marks around numbers and names that no passage has."""
    quoted = [(each["start"], each["end"]) for each in turn.measurements.get("quotations", [])]
    for each in turn.measurements.get("unsupported", []):
        start, end = each["start"], each["end"]
        if any(start < stop and begin < end for begin, stop in quoted):
            continue
        said = t("No passage that was read for this answer says so")
        yield start, f'<span class="unverified" title="{said}">'
        yield end, f'<span class="sr"> ({said})</span></span>'


def _citations(turn: TurnRow) -> Iterator[Mark]:
    """Yield after each sentence the number of the place that it attended to most."""
    places = list(_places(turn))
    for each in turn.measurements.get("citations", []):
        source = turn.sources[each["source"]]
        number = places.index((source["document"], source["place"])) + 1
        said = t("The model looked most at {place}", place=esc(place_words(source["place"])))
        yield (
            each["end"],
            f'<button type="button" class="cite" data-action="cite" data-place="{number}" title="{said}">'
            f'<span class="sr">{said}, {t("place")} </span>{number}</button>',
        )


def _before(turn: TurnRow, titles: Mapping[str, str]) -> str:
    """Return a note if more was read after the question."""
    before = turn.asked_before(list(titles.values()))
    return f'<p class="note">{told_html(before)}</p>' if before else ""


def _note(turn: TurnRow) -> str:
    note = NOTES.get(turn.status)
    notes = turn.measurements.get("warnings", []) if note is None else [turn.error or note]
    notes = [*filter(None, [turn.damage]), *notes]
    return "".join(f'<p class="note {esc(turn.status)}" role="status">{told_html(each)}</p>' for each in notes)


def _measured(turn: TurnRow, titles: Mapping[str, str]) -> str:
    """Return the buttons of a finished turn, what was read for it, and its speed, folded."""
    numbers, shown, folded = turn.measurements, "", ""
    if numbers:
        shown = _read_again(numbers.get("read_again_tokens", 0), turn.pages)
        shown += f'<button type="button" data-action="copy">{t("Copy")}</button>'
        if cited := _cited(turn, titles):
            shown += (
                f'<button type="button" data-action="copy" data-cited="{esc(cited)}" '
                f'title="{t("With its document and place")}">{t("Copy with source")}</button>'
            )
        folded = _speed(turn)
    number = turn.position + 1
    return (
        f'<div class="measured">{shown}{_keep(turn, [0]) if turn.answer.strip() else ""}{_notes(turn)}'
        f'<button type="button" data-action="edit" title="{t("Ask in other words, in a new chat")}" '
        f'aria-label="{t("Edit question {n}", n=number)}">{t("Edit")}</button>'
        f'<button type="button" data-action="again" title="{t("Ask the same once more, in a new chat")}" '
        f'aria-label="{t("Ask question {n} again", n=number)}">{t("Ask again")}</button>{folded}</div>'
    )


def _keep(turn: TurnRow, numbers: Sequence[int]) -> str:
    """Return the button that keeps parts of a turn as notes, or drops them. numbers: see `TurnRow.kept`."""
    kept = set(numbers) <= set(turn.kept)
    pressed = str(kept).lower()
    said = t("Take it out of the notes of this chat") if kept else t("Keep it in the notes of this chat")
    return (
        f'<button type="button" data-action="keep" data-numbers="{json.dumps(numbers)}" aria-pressed="{pressed}" '
        f'title="{said}">{t("Keep")}</button>'
    )


def _notes(turn: TurnRow) -> str:
    """Return the button that shows the notes of the chat beside it, if a part of this turn is among them."""
    href = f"sessions/{esc(turn.session_id)}/notes"
    button = f'<button type="button" data-action="page" data-href="{href}">{t("Notes")}</button>'
    return button if turn.kept else ""


def _cited(turn: TurnRow, titles: Mapping[str, str]) -> str:
    """Return the places that an answer rests on, to be copied with it: "Emma, page 3; page 12"."""
    if not turn.sources or not turn.measurements.get("found", True):
        return ""
    named: dict[str, list[str]] = {}
    for document, place in list(_places(turn))[:MOST_CITED]:
        named.setdefault(titles.get(document, ""), []).append(place_words(place))
    return "; ".join(", ".join(filter(None, [title, *places])) for title, places in named.items())


def _speed(turn: TurnRow) -> str:
    numbers = turn.measurements
    first = (
        t("From the question to the first word of the reasoning; the first question also opens the document")
        if numbers.get("reasoning_tokens")
        else t("From the question to the first word of the answer; the first question also opens the document")
    )
    began = t("{time} to the first word", time=short_seconds(numbers["time_to_first_token_seconds"]))
    return (
        f'<details class="speed" data-fold="{esc(turn.id)} speed"><summary>{t("Speed")}</summary><p>'
        f'<span title="{first}">{began}</span>{_reasoned(numbers)}'
        f"{_pace(numbers['tokens_per_second'])}"
        f"<span>{plural(numbers['answer_tokens'], 'token')}</span></p></details>"
    )


def _pace(per_second: float) -> str:
    """Return the speed of an answer; one of a single token has none."""
    return f"<span>{t('{n} tokens/s', n=speed(per_second))}</span>" if per_second else ""


def _reasoned(numbers: Mapping[str, Any]) -> str:
    """Return the time of the reasoning; old turns have only its tokens."""
    tokens = numbers.get("reasoning_tokens", 0)
    said = t("reasoning")
    if numbers.get("reasoning_seconds"):
        said = t("{time} of reasoning", time=short_seconds(numbers["reasoning_seconds"]))
    return f'<span title="{plural(tokens, "token")}">{said}</span>' if tokens else ""


def _read_again(tokens: int, pages: str) -> str:
    if not tokens:
        return ""
    place = esc(place_words(pages_in_words(pages))) if pages else plural(tokens, "token")
    alone, _ = with_pinned(pages)
    why = t("The answer comes from these pages alone") if alone else t("The passages that it is about were read again")
    return f'<span title="{why}">{t("{place} read again", place=place)}</span>'


def edit_line(turn: TurnRow) -> str:
    """Return a line that says where an edited question will go."""
    said = t("This starts a new chat from question {n}. The old chat stays as it is.", n=turn.position + 1)
    return f'<p role="status">{said}</p>'


def _places(turn: TurnRow) -> dict[tuple[str, str], list[Mapping[str, Any]]]:
    """Return the sources by document and place, heaviest first; a place may have several passages."""
    places: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for source in turn.sources:
        places.setdefault((source["document"], source["place"]), []).append(source)
    return dict(sorted(places.items(), key=lambda place: -_weight(place[1])))


def _weight(sources: Sequence[Mapping[str, Any]]) -> float:
    return float(sum(source["weight"] for source in sources))


def _sources(turn: TurnRow, titles: Mapping[str, str], expanded: bool) -> str:
    if not turn.sources:
        looked = turn.measurements.get("found", True) and not turn.measurements.get("counted")
        said = turn.status == "done" and looked and turn.answer.strip()
        return f'<p class="quiet nowhere">{t(NOWHERE)}</p>' if said else ""
    places, cited = _places(turn), bool(turn.measurements.get("citations"))
    found = turn.measurements.get("found", True)
    name = t("Where the model looked") if found else t("Closest passages")
    items = "".join(
        _place(turn, sources, titles, number, numbered=cited) for number, sources in enumerate(places.values(), 1)
    )
    return (
        f'<details class="sources" data-fold="{esc(turn.id)} sources"{" open" if expanded and found else ""}>'
        f'<summary>{name}<span class="count">{plural(len(places), "place")}</span></summary>'
        f"<ol>{items}</ol></details>"
    )


def _place(
    turn: TurnRow, sources: Sequence[Mapping[str, Any]], titles: Mapping[str, str], number: int, *, numbered: bool
) -> str:
    """Return one place of a turn. number: from 1; numbered: whether to show the number."""
    title = titles.get(sources[0]["document"], "")
    several = f'<span class="title">{esc(title)}</span>' if len(titles) > 1 else ""
    shown = f'<span class="number">{number}</span>' if numbered else ""
    weight = _weight(sources)
    share = t("{share} of the attention", share=t("{n}%", n=f"{100 * weight:.0f}"))
    drawn = t("Share of the attention that this answer drew to the documents")
    in_order = sorted(sources, key=lambda each: int(each.get("start", 0)))
    passages = "".join(f"<blockquote>{esc(each['quote'])}</blockquote>" for each in in_order)
    passages += _links(sources) + _to_ask_about(sources[0], list(titles))
    passages += _keep(turn, [number for number, each in enumerate(turn.sources, 1) if each in sources])
    return (
        f'<li><details data-fold="{esc(turn.id)} {number}"{" open" if number == 1 else ""}>'
        f'<summary class="place">{shown}<b>{esc(place_words(sources[0]["place"]))}</b>{several}'
        f'<span class="share" title="{drawn}">{share}</span>'
        f"</summary>{bar(weight, share, 'thin')}{passages}</details></li>"
    )


def _to_ask_about(source: Mapping[str, Any], documents: Sequence[str]) -> str:
    """Return a button that names a source's page for the next question. documents: ids, in reading order."""
    if source["document"] not in documents:
        return ""
    paragraph = source.get("paragraph")  # missing in old answers
    document = documents.index(source["document"]) + 1 if len(documents) > 1 else None
    named = pages_around(int(source["page"]), None if paragraph is None else int(paragraph), document, source["place"])
    return (
        f'<button type="button" data-action="name" data-pages="{named}" title="{t("Turn to it for the next answer")}">'
        f"{t('Ask about this place')}</button>"
    )


def _links(sources: Sequence[Mapping[str, Any]]) -> str:
    """Return a link to each page of a place, which marks its heaviest passage."""
    heaviest = {int(each["page"]): each for each in sorted(sources, key=lambda each: float(each["weight"]))}
    return "".join(
        page_link(
            each["document"],
            page,
            t("Read the whole page"),
            place_after(int(each["start"]), int(each["end"])) if "start" in each else "",
        )
        for page, each in sorted(heaviest.items())
    )
