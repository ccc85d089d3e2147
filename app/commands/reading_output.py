"""Progress and results of readings, as text and as JSON."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from app.formatting import byte_size, clock, of_budget, of_text, plural

if TYPE_CHECKING:
    from app.reading.progress import Report
    from app.service import Service
    from sessions import ContextRow, DocumentRow


def describe(report: "Report", budget: int | None) -> str:
    """Return one line of progress; a narrow terminal shows only its beginning."""
    if not report.usage:
        return report.stage
    entries = report.usage["entries"]["device"]
    pace = f"{report.tokens_per_second:,.0f} tokens/s, " if report.tokens_per_second else ""
    return (
        f"{report.stage}, {clock(report.seconds_left)} left: {report.tokens_done:,} of {report.tokens_total:,} tokens, "
        f"{pace}{entries:,} {of_budget(entries, budget)}"
    )


def summary(service: "Service", row: "ContextRow") -> dict[str, Any]:
    """Return the object of `ingest --json` and `resume --json`. kv_entries: entries on the device, which the budget
    counts.
    """
    import engine

    documents = service.store.contexts.documents(row.id)
    usage = row.usage or {"entries": {"device": 0}, "bytes": {"device": 0, "host": 0, "disk": 0}}
    return {
        "context": row.id,
        "documents": [
            {
                "id": each.id,
                "title": each.title,
                "pages": each.pages,
                "characters": each.characters,
                "sha256": each.sha256,
            }
            for each in documents
        ],
        "tokens": row.tokens,
        "method": row.method,
        "budget": row.budget,
        "seconds": round(row.seconds, 3),
        "tokens_per_second": round(row.tokens_per_second, 1),
        "kv_entries": usage["entries"]["device"],
        "kv_bytes": usage["bytes"],
        "peak_memory_bytes": engine.memory_report()["peak_process_bytes"],
        "warnings": row.warnings,
    }


def reading_in_words(
    result: dict[str, Any],
    documents: Sequence["DocumentRow"],
    tokens_read: int,
    read_before: int = 0,
    *,
    known: bool = False,
) -> str:
    """Return a reading in words.

    Args:
        result: the object.
        documents: the documents that were read.
        tokens_read: tokens of the text that were read.
        read_before: tokens that an earlier context had read, if documents were added to it.
        known: whether all of it had been read before this command.
    """
    from ingest.document import noun_of_pages

    lines = []
    for each in documents:
        sizes = plural(each.pages, noun_of_pages(each.format)), plural(each.characters, "character")
        lines.append(f"{each.title}: {', '.join(sizes)}")
    budget = "no budget" if result["budget"] is None else f"budget {result['budget']:,}"
    kv = ", ".join(f"{byte_size(size)} on the {tier}" for tier, size in result["kv_bytes"].items() if size)
    read = of_text(tokens_read, result["tokens"])
    if read_before:
        read = f"{plural(tokens_read - read_before, 'token')} behind {read_before:,} that were read before,"
    held, beside = result["kv_entries"], result["kv_entries"] - tokens_read
    sum_of = f": the text's {tokens_read:,}, and {beside:,} of the words that go before it" if beside > 0 else ""
    pace = f" ({result['tokens_per_second']:,.0f} tokens/s)" if result["tokens_per_second"] else ""
    lines += [
        f"{'Read before:' if known else 'Read'} {read} in {clock(result['seconds'])}{pace} with {result['method']}, "
        f"{budget}.",
        f"It holds {held:,} entries per KV head and layer on the device{sum_of}; {kv or 'nothing kept'}.",
        f'Context {result["context"]}. Ask it: stockpot ask {result["context"]} "..."',
    ]
    return "\n".join(lines)
