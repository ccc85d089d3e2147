"""Tables that a sweep has filled, as CSV or Markdown."""

import csv
import io
import re
from typing import Any, Literal

Form = Literal["csv", "md"]
NOT_FOUND = "not found"
_NUMBER = re.compile(r"[+-]?\d[\d.,]*\s?%?")


def written(told: dict[str, Any], form: Form) -> str:
    """Return a table over documents, or a complete list, as text.

    Values have their places, and question marks if they are doubtful. In CSV, place and question mark have columns of
    their own.

    Args:
        told: see `document_table.table` and `whole_list.whole_list`.
        form: "csv" or "md".
    """
    lines = (_list if "items" in told else _documents)(told, form)
    if form == "md":
        lines.insert(1, ["---"] * len(lines[0]))
        return "\n".join(f"| {' | '.join(_in_cell(text) for text in line)} |" for line in lines) + "\n"
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([_plain(each) for each in line] for line in lines)
    return text.getvalue()


def _list(told: dict[str, Any], form: Form) -> list[list[str]]:
    if form == "md":
        return [["", "found", "place"], *([f"{at}", *_marked(each)] for at, each in enumerate(told["items"], 1))]
    return [["found", "place", "doubtful", "quote"], *([*_apart(each), each["quote"]] for each in told["items"])]


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
