"""`stockpot show`: print one document, page, context, session or turn."""

import os
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from app.commands.common import (
    Arguments,
    open_service,
    print_json,
    source_line,
)
from app.errors import AppError, UsageError
from app.formatting import byte_size, clock, percent, printable, speed

if TYPE_CHECKING:
    from app.service import Service
    from sessions import TurnRow


def when(seconds: float) -> str:
    """Return a time as local date and minute."""
    return datetime.fromtimestamp(seconds).strftime("%Y-%m-%d %H:%M")


def run_show(arguments: Arguments) -> int:
    """Print everything about one thing."""
    from app.listing import KINDS, details, find, titles_before_places
    from sessions import SessionRow, TurnRow

    if arguments.mark and not arguments.picture:
        raise UsageError("--mark goes with --picture: it marks there what a source says.")
    if arguments.picture and arguments.page is None:
        raise UsageError("--picture goes with --page, which says what to show.")
    with open_service(arguments) as service:
        if arguments.page is not None:
            return _show_page(service, arguments)
        kind, row = find(service, arguments.id, (*KINDS, "turn"))
        facts = details(service, kind, row)
        if arguments.json:
            print_json(facts)
        elif isinstance(row, TurnRow):
            context = service.store.sessions.get(row.session_id).context_id
            lines = _describe_turn(row, _titles(service, context), titles_before_places(service, context))
            print(printable("\n".join(lines)))
        else:
            titles = _titles(service, row.context_id) if isinstance(row, SessionRow) else []
            print(printable("\n".join(_describe(facts, titles))))
    return 0


def _titles(service: "Service", context_id: str) -> list[str]:
    """Return the titles of a context's documents, in reading order."""
    return [row.title for row in service.store.contexts.documents(context_id)]


def _show_page(service: "Service", arguments: Arguments) -> int:
    from app.asking.named_pages import page_number
    from app.listing import find_document
    from app.reading.pages import page_of, picture_of_page

    row = find_document(service, arguments.id)
    found = page_of(service, row.id, page_number(arguments.page, service.document_cache.document(row.id)))
    page, facts = found.page, {"document": row.id, "page": found.page.number, "place": found.page.label}
    if arguments.picture:
        start, end = arguments.mark or (0, 0)
        picture = picture_of_page(found, start, end, os.environ.get("STOCKPOT_PASSWORD") or None)
        try:
            Path(arguments.picture).write_bytes(picture)
        except OSError as error:
            raise AppError(f"{arguments.picture} cannot be written ({error.strerror}): name another file.") from error
        text, facts = arguments.picture, {**facts, "picture": arguments.picture}
    else:
        text, facts = f"{page.label}\n\n{page.text}", {**facts, "text": page.text}
    if arguments.json:
        print_json(facts)
    else:
        print(printable(text))
    return 0


def _describe_turn(turn: "TurnRow", titles: Sequence[str], before: dict[str, str]) -> list[str]:
    """Return the lines for a turn. titles: of the documents; before: words before a place, by document."""
    sources = [source_line(each, before) for each in turn.sources]
    if sources and not turn.measurements.get("found", True):
        sources.insert(0, "  Closest passages:")
    return [f"turn {turn.id} of session {turn.session_id}", *_said(turn, titles), *sources]


def _describe(facts: dict[str, Any], titles: Sequence[str]) -> list[str]:
    """Return the lines for a document, context or session. titles: of the documents that a session is over."""
    from app.reading.memory_map import Remembered, tenths
    from app.reading.pages import NOT_READ
    from ingest.document import noun_of_pages
    from sessions import TurnRow

    lines = [f"{facts['kind']} {facts['id']}: {facts['title']}"]
    for key, value in facts.items():
        if key in ("kind", "id", "title", "fingerprint", "document_ids") or value in (None, [], {}):
            continue
        if key == "read_before" and not value:
            continue
        if key == "seconds":
            rate = f" ({speed((facts['tokens_read'] - facts['read_before']) / value)} tokens/s)" if value else ""
            lines.append(f"  time: {clock(value)}{rate}")
        elif key == "usage":
            lines += _holdings(value)
        elif key.endswith("_at"):
            lines.append(f"  {key.removesuffix('_at')}: {when(value)}")
        elif key.startswith("bytes") or key.endswith("_bytes"):
            lines.append(f"  {key.replace('_', ' ')}: {byte_size(value)}")
        elif key == "turns" and isinstance(value, list):
            for turn in value:
                lines += _said(TurnRow(**turn), titles, f"[{turn['id']}] ")
        elif key == "memory_map":
            shares = tenths([Remembered(**each) for each in value])
            lines.append(f"  kept of each tenth of the text: {', '.join(map(percent, shares))}")
        elif key == "introduction":
            lines += [f"  summary: {value['summary']}"] if value["summary"] else []
            lines += [f"  question: {each}" for each in value["questions"]]
        elif key == "job":
            lines.append(f"  job: {value['id']} ({value['status']})")
        elif key == "documents":
            several = len(value) > 1  # numbered, as `--pages` names them
            for number, each in enumerate(value, 1):
                lines.append(f"  document{f' {number}' if several else ''}: {each['id']} {each['title']}")
        elif key == "pages":
            lines.append(f"  {noun_of_pages(facts['format'])}s: {value:,}")
        elif key == "contents":
            noun = noun_of_pages(facts["format"])
            for entry in value:
                place = f"{noun} {entry['name']}{'' if entry['read'] else f', {NOT_READ}'}"
                lines.append(f"  {'  ' * entry['level']}{entry['title']} ({place})")
        elif isinstance(value, dict):
            lines.append(f"  {key}: " + ", ".join(f"{name} {_plain(each)}" for name, each in value.items()))
        elif key == "warnings":
            lines += [f"  warning: {each}" for each in value]
        elif isinstance(value, list):
            lines.append(f"  {key}: " + ", ".join(str(each) for each in value))
        else:
            lines.append(f"  {key.replace('_', ' ')}: {_plain(value)}")
    return lines


def _plain(value: object) -> str:
    """Return a setting or number as people write it."""
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "none"}[value]
    return f"{value:,}" if isinstance(value, int) else str(value)


def _holdings(usage: dict[str, Any]) -> list[str]:
    """Return a line for each tier that holds entries."""
    entries, size = usage["entries"], usage["bytes"]
    return [
        f"  on the {tier}: {entries[tier]:,} entries per KV head and layer, {byte_size(size[tier])}"
        for tier in entries
        if entries[tier] or size[tier]
    ]


def _said(turn: "TurnRow", titles: Sequence[str], name: str = "") -> list[str]:
    """Return question and answer of a turn, indented. name: words before the question."""
    from app.asking.named_pages import pages_in_words

    head = f"  {turn.position + 1}. "
    status = ": ".join(filter(None, [turn.status, turn.error]))
    answer = turn.answer if status == "done" else f"{turn.answer} [{status}]".lstrip()
    asked = turn.question + (f"\n[{pages_in_words(turn.pages)}]" if turn.pages else "")
    said = "\n".join([answer, *(f"[{each}]" for each in turn.notes(titles))])
    return [*_indented(name + asked, head), *_indented(said, " " * len(head))]


def _indented(text: str, head: str) -> list[str]:
    first, *more = text.splitlines() or [""]
    return [head + first, *(" " * len(head) + line for line in more)]
