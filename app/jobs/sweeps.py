"""Jobs that sweep: their tasks and their results. Findings are kept with the contexts, not in the jobs."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from app.asking.answers import Place
from app.asking.comparison import comparison, two
from app.asking.document_table import Row, columns_of, rows_of, table
from app.asking.recap import recap
from app.asking.self_test import check_testable, self_test
from app.asking.sweep import Task, known
from app.asking.turns import checked_question
from app.asking.whole_list import whole_list
from app.errors import AppError
from app.language import t
from app.reading.open_context import require_begun
from app.service import Service
from sessions import RECAP, JobRow

SWEEP = "sweep"
"""Kind of the jobs. Their subject is a context, and `done` and `total` are findings. `progress` has the places of the
text as soon as they are known, and the seconds left."""


def list_request(service: Service, context_id: str, question: str) -> tuple[str, dict[str, Any]]:
    """Return subject and payload of a job that searches a context for a list.

    Raises:
        AppError: none of the context has been read yet.
    """
    require_begun(service, service.store.contexts.get(context_id))
    return context_id, {"question": checked_question(question)}


def table_request(service: Service, documents: Sequence[str], columns: Sequence[str]) -> tuple[str, dict[str, Any]]:
    """Return subject and payload of a job that fills a table; see `rows_of` and `columns_of`."""
    columns_of(columns)
    rows = rows_of(service, documents)
    return rows[0].place.context, {"documents": [row.document for row in rows], "columns": [*columns]}


def comparison_request(service: Service, documents: Sequence[str]) -> tuple[str, dict[str, Any]]:
    """Return subject and payload of a job that compares two documents; see `comparison`."""
    [first, second] = two(service, documents)
    return first.place.context, {"documents": [first.document, second.document], "compare": True}


def quiz_request(service: Service, context_id: str, cards: int) -> tuple[str, dict[str, Any]]:
    """Return subject and payload of a job that tests what is known of a context; see `self_test`.

    Raises:
        UsageError: there are no such cards, or the model cannot make any.
        AppError: the context has not been read to its end.
    """
    context = service.store.contexts.get(context_id)
    check_testable(context, cards)
    return context.id, {"cards": cards}


def task_of(service: Service, job: JobRow) -> Task:
    """Return the task of a job. Of a list whose places are not known yet, this loads the model."""
    if job.kind == RECAP:
        return recap(service, service.store.contexts.get(job.subject_id), job.payload["up_to"])
    if "compare" in job.payload:
        rows = _rows(service, job)
        if len(rows) < 2:
            raise AppError("One of the two documents, or its reading, was deleted: compare two others.")
        return comparison(service, rows)
    if "cards" in job.payload:
        return self_test(service, service.store.contexts.get(job.subject_id), job.payload["cards"])
    if "columns" in job.payload:
        return table(_rows(service, job), columns_of(job.payload["columns"]))
    places = [Place(**each) for each in job.progress["places"]] if "places" in job.progress else None
    return whole_list(service, job.subject_id, job.payload["question"], places)


def _rows(service: Service, job: JobRow) -> list[Row]:
    """Return the documents of a table with the places that are asked, which stay the same however often each is read;
    without those that were deleted.
    """
    documents = job.payload["documents"]
    if "places" not in job.progress:
        return rows_of(service, documents)
    titles = {row.id: row.title for row in service.store.documents.existing(documents)}
    places = [Place(**each) for each in job.progress["places"]]
    there = {row.id for row in service.store.contexts.existing([each.context for each in places])}
    asked = zip(documents, places, strict=True)
    return [Row(id, titles[id], place) for id, place in asked if id in titles and place.context in there]


def tables(service: Service) -> list[JobRow]:
    """Return the newest job of each table over documents and each comparison, the oldest first."""
    jobs = [each for each in service.store.jobs.all(kind=SWEEP) if "documents" in each.payload]
    return [*{repr(each.payload): each for each in jobs}.values()]


def quiz_of(service: Service, context_id: str) -> JobRow | None:
    """Return the newest job that tests what is known of a context; None if there is none."""
    jobs = service.store.jobs.all(kind=SWEEP, subject_id=context_id)
    return next((each for each in reversed(jobs) if "cards" in each.payload), None)


def title_of(job: JobRow) -> str:
    """Return the headings of a table, or two words for a comparison."""
    if "compare" in job.payload:
        return t("Two documents compared")
    return "; ".join(each.heading for each in columns_of(job.payload["columns"]))


def remove(service: Service, job: JobRow) -> None:
    """Remove a table that is not being filled; its findings are kept with the contexts."""
    jobs = service.store.jobs.all(kind=SWEEP, subject_id=job.subject_id)
    service.store.jobs.delete(*(each.id for each in jobs if each.payload == job.payload))


def progress_of(task: Task, left: float | None) -> dict[str, Any]:
    """Return the progress of a job. left: seconds that the rest takes, if known."""
    return {"places": [asdict(each) for each in task.places], "left": left}


def result_of(service: Service, job: JobRow) -> dict[str, Any] | None:
    """Return the result of a job so far, as `Task.told` does; None before it has begun."""
    if not job.progress:
        return None
    task = task_of(service, job)
    return task.told(known(service, task))
