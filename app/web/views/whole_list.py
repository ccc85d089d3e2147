"""The offer to search a whole text for a list or a count, its progress and its result, as HTML."""

from collections.abc import Mapping
from typing import Any

from app.formatting import plural, time_in_words
from app.language import place_words, t
from app.web.views.markup import esc, page_link, place_after, told_html
from sessions import UNDER_WAY, JobRow


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
    found = _found(job, told) if told else ""
    if job.status in UNDER_WAY:
        said = [t("Searching the whole text")]
        if job.total:
            said.append(t("{n} of {whole}", n=job.done, whole=plural(job.total, "place")))
        if left := time_in_words(job.progress.get("left")):
            said.append(t("{time} left", time=left))
        return _area(f'<p role="status">{esc(" · ".join(said))} {_button("rest", t("Stop"))}</p>{found}')
    if job.status == "done":
        return _area(found)
    why = f"<p>{told_html(job.error)}</p>" if job.error else ""
    return _area(f"{why}{_button('whole', t('Go on searching'))}{found}")


def _area(html: str) -> str:
    return f'<div class="whole">{html}</div>'


def _button(action: str, words: str) -> str:
    return f'<button type="button" data-action="{action}">{esc(words)}</button>'


def _found(job: JobRow, told: Mapping[str, Any]) -> str:
    """Return how many were found, and a table of them with links to their pages."""
    said = t("{n} found in {whole} of the text", n=told["count"], whole=plural(told["searched"], "place"))
    if told["dropped"]:
        said += ". " + t("{n} left out: no sentence there has their words", n=told["dropped"])
    lines = "".join(f"<tr><td>{_value(each)}</td><td>{_place(each)}</td></tr>" for each in told["items"])
    table = f"<div><table>{lines}</table></div>" if lines else ""
    csv = f' <a href="api/sweeps/{esc(job.id)}?format=csv" download>CSV</a>' if lines else ""
    return f"<p><b>{esc(said)}</b>{csv}</p>{table}"


def _value(item: Mapping[str, Any]) -> str:
    doubt = f' <span title="{t("Said there in other words")}">?</span>' if item["doubtful"] else ""
    return f"{esc(item['answer'])}{doubt}"


def _place(item: Mapping[str, Any]) -> str:
    place = place_after(item["start"], item["end"])
    return page_link(item["document"], item["page"], esc(place_words(item["label"])), place, esc(item["quote"]))
