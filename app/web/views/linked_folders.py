"""Linked folders as HTML: a line below the files, and notes on documents whose files have changed or are gone."""

from collections.abc import Mapping, Sequence
from typing import Any

from app.jobs.linked_folders import counted
from app.language import t
from app.web.views.markup import esc, told_html
from sessions import DocumentRow

MOST_NAMED = 50
"""Most refused and gone files that are named on the page; `stockpot link --list` names all."""
COUNTS = {
    "read": "{n} read",
    "reading": "{n} being read",
    "waiting": "{n} waiting",
    "refused": "{n} refused",
    "gone": "{n} gone",
}


def linked_line(folders: Sequence[Mapping[str, Any]]) -> str:
    """Return the line about linked folders; its fold lists problems, and refused and gone files.

    folders: as `linked_folders.linked` returns them.
    """
    if not folders:
        said = t("{command} keeps a folder in step.", command="<code>stockpot link FOLDER</code>")
        return f'<p class="quiet">{said}</p>'
    files = [file for each in folders for file in each["files"]]
    counts = [t(COUNTS[state], n=count) for state, count in counted(files).items()]
    named = ", ".join(esc(each["folder"]) for each in folders)
    problems = [told_html(each["problem"]) for each in folders if each["problem"]]
    lines = [_file(file) for file in files if file["state"] in ("refused", "gone")]
    listed = "".join(f"<li>{line}</li>" for line in [*problems, *lines[:MOST_NAMED]])
    return (
        f'<details class="quiet" data-fold="linked"{" open" if problems else ""}>'
        f"<summary>{' · '.join([t('In step with {folders}', folders=named), *counts])}</summary>"
        f"<ul>{listed}</ul></details>"
    )


def _file(file: Mapping[str, Any]) -> str:
    why = told_html(file["reason"]) if file["state"] == "refused" else t("gone; what was read of it stays")
    return t("{name}: {value}", name=esc(file["name"]), value=why)


def version_notes(documents: Sequence[DocumentRow], newer: Mapping[str, str]) -> str:
    """Return notes on documents that a newer version follows, and on those whose file is gone.

    newer: id by document of the context that has read its newer version, "" for none yet.
    """
    notes = []
    for row in documents:
        if row.id in newer:
            link = f'<a href="?context={esc(newer[row.id])}">{t("Show the newer one")}</a>' if newer[row.id] else ""
            said = t("“{title}” has changed in its folder since. This is the older version.", title=esc(row.title))
            notes.append(f"{said} {link}")
        if row.gone_at is not None:
            said = t("The file of “{title}” is gone from its folder. What was read of it stays.", title=esc(row.title))
            notes.append(said)
    return "".join(f'<p class="note">{each}</p>' for each in notes)
