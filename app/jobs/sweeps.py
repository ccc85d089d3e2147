"""Jobs that sweep: their tasks and their results. Findings are kept with the contexts, not in the jobs."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from app.asking.answers import Place
from app.asking.document_table import columns_of, rows_of, table
from app.asking.recap import parts_of, recap_task
from app.asking.sweep import Task, known
from app.asking.turns import checked_question
from app.asking.whole_list import whole_list
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


def task_of(service: Service, job: JobRow) -> Task:
    """Return the task of a job. Of a list whose places are not known yet, this loads the model."""
    if job.kind == RECAP:
        context = service.store.contexts.get(job.subject_id)
        return recap_task(context.id, parts_of(context, job.payload["up_to"], service.document_cache))
    if "question" not in job.payload:
        return table(rows_of(service, job.payload["documents"]), columns_of(job.payload["columns"]))
    places = [Place(**each) for each in job.progress["places"]] if "places" in job.progress else None
    return whole_list(service, job.subject_id, job.payload["question"], places)


def progress_of(task: Task, left: float | None) -> dict[str, Any]:
    """Return the progress of a job. left: seconds that the rest takes, if known."""
    return {"places": [asdict(each) for each in task.places], "left": left}


def result_of(service: Service, job: JobRow) -> dict[str, Any] | None:
    """Return the result of a job so far, as `Task.told` does; None before it has begun."""
    if not job.progress:
        return None
    task = task_of(service, job)
    return task.told(known(service, task))
