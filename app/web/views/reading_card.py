"""A reading as HTML: its documents, its progress, and the contents of its memory."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from app.formatting import byte_size, clock, plural, speed, whole_percent
from app.language import t, told
from app.listing import how_read
from app.reading.documents import LEFT_OUT
from app.web.views.markup import bar, esc, page_link, told_html
from app.web.views.metrics_panel import TIERS
from ingest.document import noun_of_pages
from sessions import ContextRow, DocumentRow, JobRow, shown_title

STAGES = {
    "reading": "Reading",
    "distilling": "Distilling what was read",
    "ready": "It has been read.",
    "saving": "Saving",
    "loading the model": "Loading the model",
    "fetching the model": "Fetching the model",
    "": "Beginning",
}
MOST_COVERAGE = 3  # most documents with a line each; more are folded
WAITING, STOPPING = "Waiting for its turn", "Stopping as soon as it can"
ENDED = {
    "paused": "Stopped. What was read so far is kept: it goes on from there.",
    "cancelled": "Cancelled.",
    "failed": "It could not be read.",
}


def ingest_card(job: JobRow, name: str, kept: int = 0, names: Sequence[str] = ()) -> str:
    """Return the card of an upload.

    Args:
        job: the job of the upload.
        name: its title.
        kept: number of documents made of it.
        names: names of its documents and files.
    """
    head = f'<section class="card" data-tab="{_tab_of_upload(job, name)}"><h1>{esc(name)}</h1>'
    noun = "document" if job.payload.get("documents") else "file"
    if len(names) > 1:
        head += _folded_lines(job.id, plural(len(names), noun), [esc(each) for each in names], "names")
    missing = job.progress.get("left_out", [])
    if job.status == "failed":
        if job.progress.get("locked"):
            files = plural(kept, "other file")
            ready = t("{files} is ready and kept here.", files=files)
            if kept > 1:
                ready = t("{files} are ready and kept here.", files=files)
            said = f"{ready} {t('What is left out can be added later.')}"
        else:
            said = t("Its text is kept: New document lists it, to be read in another way.")
            if kept > 1:
                said = t(
                    "The text of {documents} is kept: New document lists them, to be read in another way.",
                    documents=plural(kept, "document"),
                )
        quiet = f'<p class="quiet">{said}</p>' if kept else ""
        if job.progress.get("locked") or kept:  # otherwise the reason names them all
            others = t("{files} cannot be read", files=plural(len(missing), "other file"))
            quiet += _folded(job.id, others, missing, "left-out", expanded=True)
        return f"{head}{_reasons(job.error or '')}{quiet}</section>"
    if job.status == "cancelled":
        return f'{head}<p class="note">{t("Cancelled. Nothing new was kept.")}</p></section>'
    words, how_far = _stage(job)
    stage = f'<span role="status">{esc(words)}</span>'
    if how_far:  # changes too often to be read out
        stage = t("{name}: {value}", name=stage, value=esc(how_far))
    pages = t("{n} of {whole}", n=job.done, whole=plural(job.total, "page")) if job.total else ""
    share = job.done / job.total if job.total else 0.0
    line = bar(share, t("Pages: {pages}", pages=pages or t("none yet")), "wide")
    unread = t("{files} cannot be read", files=plural(len(missing), "file"))
    left_out = _folded(job.id, unread, missing, "left-out", expanded=True)
    return f'{head}<p class="stage">{stage}</p>{line}<p class="figures"><span>{pages}</span></p>{left_out}</section>'


def _reasons(error: str) -> str:
    """Return why an upload failed as HTML: a sentence, or a list with one for each of several files."""
    _, *left_out = error.split(LEFT_OUT)
    if not left_out:
        return f'<p class="note failed" role="alert">{told_html(error)}</p>'
    listed = "".join(f"<li>{told_html(each.strip())}</li>" for each in left_out)
    return f'<ul class="note failed" role="alert">{listed}</ul>'


def _tab_of_upload(job: JobRow, name: str) -> str:
    """Return the text for the browser's tab of an upload, which page.js shows."""
    failed = t("Needs a password") if job.progress.get("locked") else t("Could not be read")
    return esc(f"{f'{failed} · ' if job.status == 'failed' else ''}{shown_title(name)}")


def _stage(job: JobRow) -> tuple[str, str]:
    """Return the work of a job in words, and its progress or subject, "" if there is none."""
    if job.status == "queued":
        return t(WAITING), ""
    if job.cancel_requested:
        return t(STOPPING), ""
    stage, _, how_far = job.stage.partition(": ")
    return told(STAGES.get(stage, stage[:1].upper() + stage[1:])), how_far


def reading_card(
    context: ContextRow,
    documents: Sequence[DocumentRow],
    job: JobRow | None,
    progress: Mapping[str, Any],
) -> str:
    """Return the card of an unfinished reading. progress: a Report as plain data."""
    done = max(int(progress.get("tokens_done", 0)), context.tokens_read)
    total = int(progress.get("tokens_total", 0)) or context.tokens
    share = done / total if total else 0.0
    running = context.status == "reading"
    stage = esc(" ".join(filter(None, _stage(job))) if job else t("Read by another program"))
    if not running:
        stage = told_html(context.error or ENDED.get(context.status, context.status))
    left, rate = "", ""
    if progress.get("tokens_per_second"):
        left = t("{time} left", time=clock(progress.get("seconds_left"))) if running else ""
        rate = t("{n} tokens/s", n=speed(progress["tokens_per_second"]))
    pages = sum(document.pages for document in documents)
    nouns = {noun_of_pages(document.format) for document in documents}
    noun = nouns.pop() if len(nouns) == 1 else "section"
    place = t("about {n} of {whole}", n=round(share * pages), whole=plural(pages, noun))
    figures = [t("{n} of {whole}", n=done, whole=plural(total, "token")), place, rate, left]
    cells = "".join(f"<span>{esc(each)}</span>" for each in figures if each)
    tone = "failed" if context.status == "failed" else ""
    titles, read = [_opened(document) for document in documents], whole_percent(share)
    listed = _folded_lines(context.id, plural(len(titles), "document"), titles, "names") if len(titles) > 1 else ""
    return (
        f'<section class="card" data-tab="{_tab(context, share)}"><h1>{esc(context.title)}</h1>{listed}'
        f'<p class="stage {tone}" role="status">{stage}</p>'
        f'<div class="percent">{read}</div>{bar(share, t("{share} read", share=read), "wide")}'
        f'<p class="figures">{cells}</p>{_warned(context, expanded=True)}'
        f"{kept(context, progress.get('usage') or context.usage)}</section>"
    )


def kept(context: ContextRow, usage: Mapping[str, Any]) -> str:
    """Return the tokens that the model has at hand, against its budget, and its bytes."""
    if not usage:
        return ""
    entries, size = usage["entries"]["device"], usage["bytes"]
    held, line = t("{n} tokens at hand", n=entries), ""
    if context.budget:
        held = t("{n} of {n_all} tokens at hand", n=entries, n_all=context.budget)
        line = bar(entries / context.budget, held, "wide budget")
    names = [(t(name), byte_size(size[tier])) for tier, (name, _) in TIERS.items() if size[tier]]
    sizes = " · ".join(t("{name}: {value}", name=name, value=value) for name, value in names)
    return f'<div class="kept"><p>{esc(held)}</p>{line}<p class="quiet">{esc(sizes)}</p></div>'


def context_head(
    context: ContextRow,
    documents: Sequence[DocumentRow],
    coverage: Sequence[str],
    share: float = 1.0,
    *,
    expanded: bool = False,
) -> str:
    """Return the head of a conversation: the documents, how they were read, and warnings.

    Args:
        context: the context.
        documents: its documents.
        coverage: a line for each document, after its title if that is not the context's.
        share: share of the text that is read.
        expanded: whether to unfold the files left out and the warnings.
    """
    how = t("Read by {model}", model=t(" with ").join(how_read(context)))
    so_far = "" if context.status == "ready" else _so_far(context, share)
    formats = Counter(document.format.upper() for document in documents)
    kinds = ", ".join(each if count == 1 else f"{count:,} {each}" for each, count in formats.items())
    alone = [document.title for document in documents] == [context.title]
    title = _opened(documents[0]) if alone else esc(context.title)
    lines = [_covered(*each) for each in zip(documents, coverage, strict=True)]
    if len(lines) > 1:
        lines = [f"{number}. {line}" for number, line in enumerate(lines, 1)]
    covered = f'<p class="coverage">{"".join(f"<span>{line}</span>" for line in lines)}</p>'
    if len(lines) > MOST_COVERAGE:
        summary = t("{documents}: what of each has text", documents=plural(len(lines), "document"))
        covered = _folded_lines(context.id, summary, lines)
    return (
        f'<header class="context-head" data-tab="{_tab(context, share)}"><h1>{title}</h1>'
        f'<p class="how">{esc(how)} · {esc(kinds)}</p>{so_far}{covered}'
        f"{_warned(context, coverage, expanded)}</header>"
    )


def _warned(context: ContextRow, said: Sequence[str] = (), expanded: bool = False) -> str:
    """Return the files left out and the warnings. said: lines that are visible anyway, without their titles."""
    warnings = list(dict.fromkeys(context.warnings))
    missing = [each.removeprefix(LEFT_OUT) for each in warnings if each.startswith(LEFT_OUT)]
    doubts = [each for each in warnings if not each.startswith(LEFT_OUT) and not each.endswith(tuple(said))]
    files = plural(len(missing), "file")
    left_out = t("{files} were left out", files=files)
    if len(missing) == 1:
        left_out = t("{files} was left out", files=files)
    folded = _folded(context.id, left_out, missing, "left-out", expanded)
    return folded + _folded(context.id, plural(len(doubts), "warning"), doubts, "doubts", expanded)


def _tab(context: ContextRow, share: float) -> str:
    """Return the text for the browser's tab, which page.js shows: the share read if unfinished, and the title."""
    title = shown_title(context.title)
    return esc(title if context.status == "ready" else f"{whole_percent(share)} · {title}")


def _opened(document: DocumentRow) -> str:
    """Return the title of a document as a link to its first page."""
    return page_link(document.id, 1, esc(document.title), hint=t("Read it from its first page"))


def _covered(document: DocumentRow, line: str) -> str:
    before = f"{document.title}: "
    return (
        t("{name}: {value}", name=_opened(document), value=told_html(line.removeprefix(before)))
        if line.startswith(before)
        else told_html(line)
    )


def _so_far(context: ContextRow, share: float) -> str:
    """Return how much of an unfinished text can be asked about, with a link to its reading."""
    read = whole_percent(share)
    said = t("{share} of it has been read, and then it stopped: questions are answered from that.", share=read)
    if context.status == "reading":
        said = t("{share} of it has been read, and it goes on: questions are answered from that.", share=read)
    return (
        f'<p class="so-far">{said} <a href="?context={esc(context.id)}">{t("Show the reading")}</a></p>'
        f"{bar(share, t('{share} read', share=read), 'thin')}"
    )


def _folded(of: str, summary: str, items: Sequence[str], kind: str = "", expanded: bool = False) -> str:
    """Return a folded list of texts under a summary; empty without items. of: id of the thing it is about."""
    return _folded_lines(of, summary, [told_html(each) for each in items], kind, expanded) if items else ""


def _folded_lines(of: str, summary: str, lines: Sequence[str], kind: str = "", expanded: bool = False) -> str:
    """Return a folded list of lines of HTML under a summary."""
    listed = "".join(f"<li>{line}</li>" for line in lines)
    return (
        f'<details class="warnings {kind}" data-fold="{esc(of)} {kind}"{" open" if expanded else ""}>'
        f"<summary>{esc(summary)}</summary><ul>{listed}</ul></details>"
    )
