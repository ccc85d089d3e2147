"""Tables that a sweep has filled, as CSV or Markdown."""

import csv
import io
import re
from typing import Any, Literal

Form = Literal["csv", "md", "tsv"]
NOT_FOUND = "not found"
_NUMBER = re.compile(r"[+-]?\d[\d.,]*\s?%?")


def written(told: dict[str, Any], form: Form) -> str:
    """Return a table over documents, a complete list, a comparison or a self-test as text.

    Values have their places, and question marks if they are doubtful. In CSV, place and question mark have columns of
    their own. A self-test in TSV is a question and its answer in each line, as programs for learning take them.

    Args:
        told: result of a sweep, see `Task`.
        form: "csv", "md", or "tsv".
    """
    kinds = {"items": _list, "columns": _documents, "cards": _cards, "documents": _compared}
    lines = next(kind for name, kind in kinds.items() if name in told)(told, form)
    if form == "md":
        lines.insert(1, ["---"] * len(lines[0]))
        return "\n".join(f"| {' | '.join(_in_cell(text) for text in line)} |" for line in lines) + "\n"
    text = io.StringIO()
    dialect = "excel-tab" if form == "tsv" else "excel"
    csv.writer(text, dialect, lineterminator="\n").writerows([_plain(each) for each in line] for line in lines)
    return text.getvalue()


def _list(told: dict[str, Any], form: Form) -> list[list[str]]:
    items = [{**each, "label": "; ".join(one["label"] for one in (each, *each["also"]))} for each in told["items"]]
    if form == "md":
        return [["", "found", "place"], *([f"{at}", *_marked(each)] for at, each in enumerate(items, 1))]
    return [["found", "place", "doubtful", "quote"], *([*_apart(each), each["quote"]] for each in items)]


def _documents(told: dict[str, Any], form: Form) -> list[list[str]]:
    headings = [each["heading"] for each in told["columns"]]
    if form == "md":
        lines = [["document", *headings]]
        for row in told["rows"]:
            marked = (_marked(each) if each["found"] else [NOT_FOUND] for each in row["cells"])
            lines.append([row["title"], *(f"{value} ({place[0]})" if place else value for value, *place in marked)])
        return lines
    lines = [["document", "title", *(f"{each}{more}" for each in headings for more in ("", ", place", ", doubtful"))]]
    for row in told["rows"]:
        apart = (_apart(each) if each["found"] else [NOT_FOUND, "", ""] for each in row["cells"])
        lines.append([row["document"], row["title"], *(text for texts in apart for text in texts)])
    return lines


def _compared(told: dict[str, Any], form: Form) -> list[list[str]]:
    heads = ["section", "kind", "about", "doubtful", "first", "first, place", "second", "second, place"]
    lines = [["", *(each["title"] for each in told["documents"])] if form == "md" else heads]
    for row in told["rows"]:
        alone, doubt = row["kind"] == "alone", "?" * row["doubtful"]
        said = [
            ["", ""] if alone and own != row["own"] else [each["quote"], each["place"]]
            for own, each in enumerate(row["passages"])
        ]
        if form == "md":
            kind = "only here" if alone else ", ".join(["differs", *row["about"]])
            lines.append([f"{kind} {doubt}".strip(), *(f"{quote} ({place})" if quote else "" for quote, place in said)])
        else:
            lines.append([row["section"], row["kind"], " ".join(row["about"]), doubt, *said[0], *said[1]])
    return lines


def _cards(told: dict[str, Any], form: Form) -> list[list[str]]:
    if form == "tsv":
        return [[each["question"], f"{each['answer']} ({each['label']})"] for each in told["cards"]]
    lines = [["question", "answer", "place", "memory alone", "with passages"]]
    for each in told["cards"]:
        tested = [("right: " if each["right"][name] else "wrong: ") + each[name] for name in ("alone", "found")]
        lines.append([each["question"], each["answer"], each["label"], *tested])
    return lines


def _marked(item: dict[str, Any]) -> list[str]:
    """Return value and place; a doubtful value with a question mark."""
    return [f"{item['answer']}{' ?' * item['doubtful']}", item["label"]]


def _apart(item: dict[str, Any]) -> list[str]:
    """Return value, place, and a question mark if it is doubtful."""
    return [item["answer"], item["label"], "?" * item["doubtful"]]


def _plain(text: str) -> str:
    """Return a text that no spreadsheet takes for a formula."""
    return f"'{text}" if text.startswith(("=", "+", "-", "@")) and not _NUMBER.fullmatch(text) else text


def _in_cell(text: str) -> str:
    """Return a text in one line, with its bars escaped."""
    return " ".join(text.split()).replace("\\", "\\\\").replace("|", "\\|")
