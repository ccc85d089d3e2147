"""Sweeps as HTML: the offer to search a whole text, their progress, lists and tables."""

from collections.abc import Mapping
from itertools import groupby
from typing import Any

from app.asking.document_table import in_words as joined_in_words
from app.asking.self_test import in_words
from app.formatting import plural, time_in_words
from app.language import place_words, t
from app.web.views.markup import esc, page_link, place_after, told_html
from sessions import UNDER_WAY, JobRow

MOST_SHOWN, MOST_ALSO = 300, 20
"""Differences of two documents, and further places of an item, that are shown; the files have all."""


def whole_list(job: JobRow | None, told: Mapping[str, Any] | None, seconds: float | None) -> str:
    """Return the offer below an answer, or the search with its result.

    Args:
        job: the search, if there was one.
        told: its result so far, see `whole_list.whole_list`.
        seconds: time that a search takes, if known.
    """
    if job is None:
        time = time_in_words(seconds)
        return _area(_button("whole", t("Search the whole text") + (f" ({time})" if time else "")))
    words = t("Searching the whole text"), t("Go on searching")
    return _area(_progress(job, "place", *words) + (_list(job, told) if told else ""))


def table(job: JobRow, title: str, told: Mapping[str, Any] | None) -> str:
    """Return a table over documents, or two compared.

    Args:
        job: the sweep.
        title: heading of the whole.
        told: its result so far, see `document_table.table` and `comparison.comparison`.
    """
    heading = f"<h2>{esc(title)}</h2>"
    done = f"<p>{_button('remove', t('Remove'))}{_files(job, 'csv', 'md')}</p>" if job.status not in UNDER_WAY else ""
    if "compare" in job.payload:
        found, progress = _compared, _progress(job, "passage", t("Comparing"), t("Go on"))
    else:
        found, progress = _table, _progress(job, "cell", t("Asking each"), t("Go on"))
    return _area(heading + progress + (found(told) if told else "") + done)


def self_test(job: JobRow | None, told: Mapping[str, Any] | None) -> str:
    """Return a self-test with its cards, or the button that begins it. told: see `self_test.self_test`."""
    hint = t("Ten questions made of the text, asked of its memory")
    button = _button("whole", t("Self-test"), hint)
    shown = _progress(job, "step", t("Testing"), t("Go on")) + (_cards(job, told) if told else "") if job else button
    return f'<section class="book recap">{shown}</section>'


def _cards(job: JobRow, told: Mapping[str, Any]) -> str:
    """Return how many are right, of each chapter and of all, and the cards with their answers folded."""
    scores = [*told["chapters"], {"chapter": t("All"), **told["all"]}] if told["cards"] else []
    lines = "".join(
        f"<p>{esc(each['chapter'])}: {plural(each['n'], 'question')}, {esc(in_words(each))}</p>"
        for each in (scores if len(scores) > 2 else scores[-1:])
    )
    cards = "".join(
        f'<li><details data-fold="{esc(job.id)} {esc(each["document"])} {each["start"]}">'
        f"<summary>{esc(each['question'])}</summary>"
        f'<p>{_value(each)} ({_place(each)})</p><p class="quiet">{_tried(each)}</p></details></li>'
        for each in told["cards"]
    )
    none = t("No question could be made of it.") if job.status == "done" and not cards else ""
    model = t("By {model}", model=esc(told["model"]))
    files = f'<p class="quiet">{model}{_files(job, "tsv", "csv")}</p>' if cards else ""
    return f"{lines}{none}<ol>{cards}</ol>{files}"


def _tried(card: Mapping[str, Any]) -> str:
    """Return both answers that were given without the passage open, and whether they are right."""
    names = {"alone": t("From memory alone"), "found": t("With passages")}
    return "<br>".join(
        f"{'✓' if card['right'][name] else '✗'} {said}: {esc(card[name].strip())}" for name, said in names.items()
    )


def _area(html: str) -> str:
    return f'<div class="whole">{html}</div>'


def _button(action: str, words: str, hint: str = "") -> str:
    title = f' title="{esc(hint)}"' if hint else ""
    return f'<button type="button" data-action="{action}"{title}>{esc(words)}</button>'


def _progress(job: JobRow, noun: str, under_way: str, go_on: str) -> str:
    """Return how far a sweep is, with the button that stops it; or why it ended early, with one to go on."""
    if job.status in UNDER_WAY:
        said = [under_way]
        if job.total:
            said.append(t("{n} of {whole}", n=job.done, whole=plural(job.total, noun)))
        if left := time_in_words(job.progress.get("left")):
            said.append(t("{time} left", time=left))
        return f'<p role="status">{esc(" · ".join(said))} {_button("rest", t("Stop"))}</p>'
    if job.status == "done":
        return ""
    return (f"<p>{told_html(job.error)}</p>" if job.error else "") + _button("whole", go_on)


def _files(job: JobRow, *forms: str) -> str:
    """Return links to the result as files."""
    at, names = f"api/sweeps/{esc(job.id)}?format=", {"csv": "CSV", "md": "Markdown", "tsv": "TSV (Anki)"}
    return "".join(f' <a href="{at}{form}" download>{names[form]}</a>' for form in forms)


def _list(job: JobRow, told: Mapping[str, Any]) -> str:
    """Return how many were found, and a table of them with links to their pages."""
    said = t("{n} found in {whole} of the text", n=told["count"], whole=plural(told["searched"], "place"))
    if told["dropped"]:
        said += ". " + t("{n} left out: no sentence there has their words", n=told["dropped"])
    lines = "".join(f"<tr><td>{_value(each)}</td><td>{_places(each)}</td></tr>" for each in told["items"])
    table = f"<div><table>{lines}</table></div>" if lines else ""
    return f"<p><b>{esc(said)}</b>{_files(job, 'csv') if lines else ''}</p>{table}"


def _table(told: Mapping[str, Any]) -> str:
    """Return documents in rows and questions in columns; each value leads to its page."""
    heads = "".join(f'<th title="{esc(each["question"])}">{esc(each["heading"])}</th>' for each in told["columns"])
    rows = "".join(
        f"<tr><th>{page_link(row['document'], 1, esc(row['title']))}</th>{''.join(map(_cell, row['cells']))}"
        + "<td></td>" * (len(told["columns"]) - len(row["cells"]))
        + "</tr>"
        for row in told["rows"]
    )
    joined = "".join(
        f"<p><b>{esc(column['heading'])}</b>: {esc(joined_in_words(each))}</p>"
        for column, each in zip(told["columns"], told["joined"], strict=True)
        if len(told["rows"]) > 1 and (each["answers"] or each["nothing"])
    )
    return f"<div><table><thead><tr><th></th>{heads}</tr></thead><tbody>{rows}</tbody></table></div>{joined}"


def _compared(told: Mapping[str, Any]) -> str:
    """Return the differences of two documents, side by side and section by section."""
    heads = "".join(f"<th>{page_link(each['document'], 1, esc(each['title']))}</th>" for each in told["documents"])
    if not told["rows"]:
        return f"<p><b>{t('No difference was found. Headings and very short sentences are not compared.')}</b></p>"
    rows = ""
    for section, own in groupby(told["rows"][:MOST_SHOWN], lambda each: each["section"]):
        rows += f'<tr><th colspan="3">{esc(section)}</th></tr>' if section else ""
        rows += "".join(map(_difference, own))
    hidden = len(told["rows"]) - MOST_SHOWN
    more = f"<p>{t('{n} others', n=hidden)}</p>" if hidden > 0 else ""
    return f"<div><table><thead><tr>{heads}<th></th></tr></thead><tbody>{rows}</tbody></table></div>{more}"


def _difference(row: Mapping[str, Any]) -> str:
    """Return a row: both passages, or the one that stands alone, and a link to both pages side by side."""
    about = {"number": t("another number"), "not": t("one of them denies it")}
    said = [about[each] for each in row["about"]]
    if row["kind"] == "alone":
        said.append(t("only here"))
    doubt = f' <span title="{t("The other has similar words")}">?</span>' if row["doubtful"] else ""
    cells = ""
    for own, (each, spans) in enumerate(zip(row["passages"], row["changed"] or ([], []), strict=True)):
        if row["kind"] == "alone" and own != row["own"]:
            cells += "<td></td>"
            continue
        quote, at = "", 0
        for start, end in spans:
            quote += f"{esc(each['quote'][at:start])}<mark>{esc(each['quote'][start:end])}</mark>"
            at = end
        place = _place({**each, "label": each["place"]})
        cells += f'<td lang="">{quote}{esc(each["quote"][at:])} <small>{place}</small></td>'
    one, other = row["passages"]
    both = (
        f"side-by-side/{esc(one['document'])}/{one['page']}/{esc(other['document'])}/{other['page']}?start={one['start']}"
        f"&amp;end={one['end']}&amp;other_start={other['start']}&amp;other_end={other['end']}#passage"
    )
    link = f'<a href="{both}" target="_blank" rel="noopener">{t("Both pages")}</a>'
    return f"<tr>{cells}<td>{esc(', '.join(said))}{doubt} <small>{link}</small></td></tr>"


def _cell(cell: Mapping[str, Any]) -> str:
    if not cell["found"]:
        return f'<td class="quiet">{t("not found")}</td>'
    return f"<td>{_value(cell)} <small>{_place(cell)}</small></td>"


def _value(item: Mapping[str, Any]) -> str:
    doubt = f' <span title="{t("Said there in other words")}">?</span>' if item["doubtful"] else ""
    return f"{esc(item['answer'])}{doubt}"


def _places(item: Mapping[str, Any]) -> str:
    return ", ".join(map(_place, [item, *item["also"][:MOST_ALSO]])) + " …" * (len(item["also"]) > MOST_ALSO)


def _place(item: Mapping[str, Any]) -> str:
    place = place_after(item["start"], item["end"])
    return page_link(item["document"], item["page"], esc(place_words(item["label"])), place, esc(item["quote"]))
