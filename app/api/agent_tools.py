"""Tools for agents, served by the Model Context Protocol: list, contents, read, ask and verify. They change nothing.

Each passage comes with an anchor (`anchors.py`), so that an agent, or whoever reads its work, can check every
quotation without the model.
"""

import functools
import importlib.metadata
import inspect
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import asdict, replace
from typing import Any

from anyio.to_thread import run_sync
from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import ToolAnnotations

from app.api.anchors import anchor_of, verify
from app.asking.answers import Checked
from app.asking.named_pages import Named, named_pages, page_name, spans_of
from app.asking.quotes import sentences_around
from app.asking.turns import checked_question
from app.errors import UsageError, expected, phrase
from app.listing import details, find_document, read_documents, reading_of
from app.service import Service

INSTRUCTIONS = (
    "Long documents that a person reads with Stockpot, on their own machine. `ask` answers from a whole document with "
    "the passages that say so; the model there is small, so compare its answer with them. Quote only words that "
    "`verify` confirms."
)
MOST_READ = 20_000
"""Most characters of one answer of `read`."""
MOST_SOURCES, QUOTED = 3, 240
"""Passages of an answer, and most characters of each that are quoted."""
Asks = Callable[[str, str, str], Awaitable[Checked]]
"""Asks a context a question over pages, "" for all: context, question, pages."""


class AgentTools:
    """The tools over one home. Each returns JSON, or raises an error with a sentence."""

    def __init__(self, service: Service, ask: Asks) -> None:
        """Keep the home, and the function that has questions answered."""
        self._service, self._ask = service, ask

    def list_documents(self) -> list[dict[str, Any]]:
        """List all documents, the newest first. Only one that is `read` can be asked; each can be shown by `read`."""
        ready = read_documents(self._service)
        return [
            {"document": row.id, "title": row.title, "pages": row.pages, "read": row.id in ready}
            for row in self._service.store.documents.all()
        ]

    def contents(self, document: str) -> dict[str, Any]:
        """Show the table of contents of a document, with the pages where its parts begin.

        Args:
            document: its id, or its title.
        """
        row = find_document(self._service, document)
        facts = details(self._service, "document", row)
        return {
            "document": row.id,
            "title": row.title,
            "pages": facts["coverage"],
            "contents": [
                {"level": each["level"], "title": each["title"], "page": each["name"]} for each in facts["contents"]
            ],
        }

    def read(self, document: str, pages: str, start: int = 0) -> dict[str, Any]:
        """Show the text of pages, each with its anchor.

        Args:
            document: its id, or its title.
            pages: "12-14, iii" as printed, or sections of a book without pages; "12 of the file" by the file's own
                count; "3/40-45" for paragraphs of section 3.
            start: characters to leave out at the beginning; take `next` of the answer before to go on.
        """
        service, cache = self._service, self._service.document_cache
        row = find_document(service, document)
        text, shown, behind, room = cache.document(row.id), list[dict[str, Any]](), start, MOST_READ
        if start < 0:
            raise UsageError(f"start is 0 or more, not {start}.")
        for each in _single(named_pages(pages, [row.id], cache)):
            [(_, first, end)] = spans_of([each], [row.id], cache)
            left_out = min(behind, end - first)
            behind, first = behind - left_out, first + left_out
            last = min(end, first + room)
            if first < last:
                name, anchor = page_name(text, text.locate(first).page), anchor_of(service, row.id, first, last)
                shown.append({"page": name, "anchor": anchor, "text": text.text[first:last]})
                room -= last - first
            if last < end:
                return {"pages": shown, "next": start + MOST_READ}
        if not shown:
            raise UsageError(f"There is no text on {pages!r}{f' behind character {start:,}' if start else ''}.")
        return {"pages": shown}

    async def ask(self, document: str, question: str, pages: str = "") -> dict[str, Any]:
        """Ask a question about a document: return the answer of the model that read it, and the passages behind it.

        `found` is false if the document does not seem to say it. `sure` is 0 to 1; below 0.05 check it above all.

        Args:
            document: its id, or its title; or that of several that were read together.
            question: the question, in whole words; each is asked by itself.
            pages: pages to answer from alone, as for `read`; empty for all.
        """
        context, narrowed = reading_of(self._service, document, pages)
        told = await self._ask(context.id, checked_question(question), narrowed)
        measured = told.measurements
        return {
            "answer": told.answer.strip(),
            "found": measured["found"],
            "sure": measured.get("sure"),
            "passages": [self._passage(each) for each in told.sources[:MOST_SOURCES] if measured["found"]],
            "warnings": measured["warnings"],
        }

    def _passage(self, source: dict[str, Any]) -> dict[str, str]:
        """Return place, anchor and words of a source."""
        id, start, end = source["document"], source["start"], source["end"]
        text = self._service.document_cache.document(id).text
        held = sentences_around(text[start:end], 0, end - start, QUOTED)
        first, last = start + held.start, start + held.end
        return {
            "place": source["place"],
            "anchor": anchor_of(self._service, id, first, last),
            "quote": text[first:last],
        }

    def verify(self, anchor: str, quote: str) -> dict[str, Any]:
        """Check whether the words of a quotation stand in a passage. Case and punctuation do not matter.

        Args:
            anchor: the passage, as `ask` and `read` name it.
            quote: the words.
        """
        return asdict(verify(self._service, anchor, quote))


def _single(named: Sequence[Named]) -> Iterator[Named]:
    """Yield each page of a range by itself; paragraphs stay together."""
    for each in named:
        numbers = range(each.first, each.last + 1) if each.page is None else ()
        yield from (replace(each, first=number, last=number) for number in numbers) if numbers else (each,)


def agent_server(service: Service, ask: Asks) -> MCPServer:
    """Return a server of the tools over a home. ask: has questions answered."""
    tools = AgentTools(service, ask)
    server = MCPServer("stockpot", instructions=INSTRUCTIONS, version=importlib.metadata.version("stockpot"))
    harmless = ToolAnnotations(read_only_hint=True, open_world_hint=False)
    for tool in (tools.list_documents, tools.contents, tools.read, tools.ask, tools.verify):
        server.tool(description=inspect.getdoc(tool), annotations=harmless)(_speaking(tool))
    return server


def _speaking(tool: Callable[..., Any]) -> Callable[..., Any]:
    """Return a tool whose errors are sentences for the agent."""

    @functools.wraps(tool)
    async def called(**given: Any) -> Any:
        try:
            return await tool(**given) if inspect.iscoroutinefunction(tool) else await run_sync(lambda: tool(**given))
        except Exception as error:
            if expected(error):
                raise ToolError(phrase(error)) from error
            raise

    return called
