"""Export of a session: Markdown to read, or JSON with every field."""

import json
import re
import textwrap
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from markdown_it import MarkdownIt

from sessions.rows import ContextRow, DocumentRow, SessionRow, TurnRow

LONGEST_HEADING = 120  # characters of a question in its heading
_NOUNS = {"pdf": "page", "xps": "page", "cbz": "page", "pptx": "slide", "ppt": "slide", "odp": "slide"}
_MARKDOWN = MarkdownIt("commonmark")


def as_json(session: SessionRow, context: ContextRow, documents: list[DocumentRow], turns: list[TurnRow]) -> str:
    """Return a session as JSON with every field of every row."""
    rows = {"session": asdict(session), "context": asdict(context)}
    lists = {"documents": [asdict(each) for each in documents], "turns": [asdict(each) for each in turns]}
    return json.dumps({"version": 1, **rows, **lists}, ensure_ascii=False, indent=2) + "\n"


def as_markdown(session: SessionRow, context: ContextRow, documents: list[DocumentRow], turns: list[TurnRow]) -> str:
    """Return a session as Markdown, with its documents, questions, answers and sources."""
    titles = {document.id: document.title for document in documents}
    budget = "" if context.budget is None else f", budget {context.budget:,}"
    lines = [f"# {_line(session.title)}", ""]
    for document in documents:
        noun = _NOUNS.get(document.format, "section")
        pages = f"{document.pages:,} {noun}{'s' * (document.pages != 1)}"
        lines.append(f"- *{_line(document.title)}* ({document.format}, {pages})")
    lines += [
        "",
        f"Read by {_line(context.model)} with {_line(context.method)}{budget}. {_date(session.created_at)}.",
        "",
    ]
    for turn in turns:
        answer = _numbered(turn.answer, turn.measurements.get("citations", []))
        lines += _question(turn.position + 1, turn.question)
        lines += [f"*(Pages named: {_line(turn.pages)})*", ""] if turn.pages else []
        lines += [_text(answer), ""] if answer else []
        if turn.status != "done":
            note = {"answering": "still being answered", "cancelled": "stopped", "failed": "failed"}[turn.status]
            lines += [f"*({note}{': ' + _line(turn.error) if turn.error else ''})*", ""]
        notes = turn.notes([document.title for document in documents])
        lines += [f"*({_line(each)})*\n" for each in notes]
        if turn.sources and not turn.measurements.get("found", True):
            lines += ["*(Closest passages:)*", ""]
        lines += [
            f"{f'{number}.' if answer else '-'} {_source(source, titles)}"
            for number, source in enumerate(turn.sources, 1)
        ]
        lines += [""] if turn.sources else []
    return "\n".join(lines).rstrip() + "\n"


def _question(number: int, question: str) -> list[str]:
    """Return a question as a heading; a long one is shortened there and quoted in full below."""
    head = textwrap.shorten(question, LONGEST_HEADING, placeholder=" …")
    long = len(" ".join(question.split())) > LONGEST_HEADING
    quoted = [*(f"> {_line(line)}  " for line in question.splitlines()), ""] if long else []  # two blanks end a line
    return [f"## {number}. {_line(head)}", "", *quoted]


def _numbered(answer: str, citations: list[dict[str, Any]]) -> str:
    """Return an answer with the number of its source after each sentence that has one."""
    for each in reversed(citations):
        answer = f"{answer[: each['end']]} [{each['source'] + 1}]{answer[each['end'] :]}"
    return answer


def _source(source: dict[str, Any], titles: dict[str, str]) -> str:
    """Return one source on a line: place, weight and quote. `place` is used if there is one, else `page`."""
    document = str(source.get("document", ""))
    place = source.get("place") or (f"p. {source['page']}" if source.get("page") is not None else "")
    where = ", ".join(_line(str(each)) for each in (titles.get(document, document), place) if each)
    weight = source.get("weight")
    share = f" ({weight:.0%})" if isinstance(weight, int | float) else ""
    words = _line(str(source.get("quote") or ""))
    quoted = words if re.match('[“"«„]', words) else f"“{words}”"  # quoted speech already has marks
    return f"{where}{share}{f': {quoted}' if words else ''}"


def _text(text: str) -> str:
    """Return an answer with its Markdown and fenced code unchanged.

    HTML elsewhere is escaped. An image becomes a link, as rendering it would fetch a URL from the text.
    """
    lines = re.sub(r"\r\n?", "\n", text).strip("\n").rstrip().split("\n")
    shown = [_escaped(line) for line in lines]
    if not any("```" in line or "~~~" in line for line in shown):
        return "\n".join(shown)
    fences = [token for token in _MARKDOWN.parse("\n".join(shown)) if token.type == "fence" and not token.level]
    if not any("$$" in line for line in lines):  # in a renderer with formulas, $$ may hide the start of a fence
        for start, end in (token.map for token in fences if token.map):
            shown[start:end] = lines[start:end]
    said = "\n".join(shown)
    return said + _end_of_code(said)


def _end_of_code(text: str) -> str:
    """Return the end of an unclosed code block, or "", so that the following answers are not taken for code."""
    mark = "\N{OBJECT REPLACEMENT CHARACTER}"
    last = next((token for token in reversed(_MARKDOWN.parse(f"{text}\n\n{mark}")) if mark in token.content), None)
    return f"\n{last.markup}" if last is not None and last.type == "fence" else ""


def _escaped(text: str) -> str:
    """Return the text with HTML and image signs escaped; only for text outside code."""
    # A sign that is already escaped loses its backslash, which would escape the entity instead.
    signs = r"(?<!\\)((?:\\\\)*)\\?(<(?=[A-Za-z/!?])|!(?=\[))"
    return re.sub(signs, lambda found: found[1] + {"<": "&lt;", "!": "&#33;"}[found[2]], text)


def _line(text: str) -> str:
    """Return the text on one line, with Markdown signs escaped."""
    return re.sub(r"([\\`*_\[\]])", r"\\\1", _text_line(text))


def _text_line(text: str) -> str:
    return re.sub(r"<(?=[A-Za-z/!?])", "&lt;", " ".join(text.split()))


def _date(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")
