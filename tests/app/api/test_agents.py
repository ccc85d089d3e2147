"""The tools for agents, by the client of the official SDK: over standard input and output, and over HTTP."""

import json
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import StdioServerParameters
from mcp.client import Client

from app.api.agent_tools import MOST_READ, AgentTools
from app.api.anchors import Verdict, anchor_of, verify
from app.errors import UsageError
from app.service import Service
from tests.app.helpers import FACTS, ROOT, Cli, Server, add, in_process

TOOLS = ["list_documents", "contents", "read", "ask", "verify"]
Call = Callable[..., Awaitable[Any]]


def with_client(where: Any, use: Callable[[Client, Call], Awaitable[None]]) -> None:
    """Connect a client and use it. The call of a tool returns its JSON, or the sentence of its error."""

    async def connected() -> None:
        async with Client(where) as client:

            async def call(tool: str, **given: Any) -> Any:
                told = await client.call_tool(tool, given)
                return told.content[0].text if told.is_error else json.loads(told.content[0].text)

            await use(client, call)

    anyio.run(connected)


def test_an_agent_lists_reads_asks_and_verifies(
    read: tuple[Cli, dict[str, Any], str], capsys: pytest.CaptureFixture[str]
) -> None:
    cli, result, _ = read
    command = ["-m", "app", "--home", str(cli.home), "--model", cli.model, "mcp"]
    id = result["documents"][0]["id"]

    async def use(client: Client, call: Call) -> None:
        assert [tool.name for tool in (await client.list_tools()).tools] == TOOLS
        assert await call("list_documents") == {"document": id, "title": "The Keeper", "pages": 1, "read": True}
        assert (await call("contents", document="The Keeper"))["document"] == id
        [page] = (await call("read", document=id, pages="1/21-22"))["pages"]
        assert page["text"].strip() == "\n\n".join(FACTS)
        told = await call("ask", document="The Keeper", question="Who was the keeper?")
        assert told["answer"]
        assert told["found"] == bool(told["passages"])
        for passage in told["passages"]:
            quoted = await call("verify", anchor=passage["anchor"], quote=passage["quote"])
            assert quoted == {"stands": True, "because": ""}
        known = await call("verify", anchor=page["anchor"], quote="the LAMP must never go dark")
        other = await call("verify", anchor=page["anchor"], quote="The lamp must ever go dark")
        assert (known["stands"], other["stands"]) == (True, False)
        assert "no document or context 'Moby Dick'" in await call("ask", document="Moby Dick", question="Who?")
        assert "There is no section 9" in await call("read", document=id, pages="9")
        assert "question is empty" in await call("ask", document=id, question=" ")

    with_client(StdioServerParameters(command=sys.executable, args=command, cwd=ROOT), use)
    sessions = json.loads(in_process(cli.home, capsys, "list", "sessions", "--json")[1])
    assert sessions == []  # nothing of a question is kept


def test_the_server_answers_agents_and_keeps_no_chat(server: Server) -> None:
    before = server.get("/api/sessions")

    async def use(_: Client, call: Call) -> None:
        told = await call("ask", document="The Lamp", question="Who was the keeper?", pages="1/6-7")
        assert told["answer"]
        assert "There is no section 4" in await call("ask", document="The Lamp", question="Who?", pages="4")

    with_client(f"{server.url}/mcp", use)
    assert server.get("/api/sessions") == before


def test_the_missing_package_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "mcp", None)
    status, out, err = in_process(tmp_path / "home", capsys, "mcp")
    assert (status, out) == (1, "")
    assert "pip install -e '.[mcp]'" in err


def test_long_pages_are_read_in_parts(service: Service, tmp_path: Path) -> None:
    path = tmp_path / "Long.txt"
    path.write_text("\n\n".join(f"Line {number} of the log." for number in range(2000)), encoding="utf-8")
    [id] = add(service, path)

    async def never(*_: str) -> Any:
        raise AssertionError

    document = service.document_cache.document(id)
    tools, answers, start = AgentTools(service, never), list[list[str]](), 0
    while start is not None:
        told = tools.read(id, f"1-{len(document.pages)}", start)
        answers.append([page["text"] for page in told["pages"]])
        start = told.get("next")
    assert len(answers) > 1
    assert [sum(map(len, each)) for each in answers[:-1]] == [MOST_READ] * (len(answers) - 1)
    assert "".join(part for each in answers for part in each) == "".join(page.text for page in document.pages)
    with pytest.raises(UsageError, match="no text on '1' behind character 900,000"):
        tools.read(id, "1", 900_000)


def test_a_quotation_is_checked_word_by_word_within_its_passage(service: Service, book: Path) -> None:
    [id] = add(service, book)
    text = service.document_cache.document(id).text
    start = text.index("diary")
    anchor = anchor_of(service, id, start, start + 3)
    assert verify(service, anchor, "Diary!") == Verdict(True)
    assert not verify(service, anchor, "dia").stands, "half a word is another word"
    assert verify(service, anchor, "Tobias Renn").because.endswith("but on page 1.")
    assert verify(service, anchor, "Moby Dick").because == "These words stand nowhere in the document."
    assert "has no characters" in verify(service, anchor.replace(f"-{start + 3}", "-999999"), "diary").because
    digest = anchor.split(":")[1]
    assert "another version" in verify(service, anchor.replace(digest, digest[::-1]), "diary").because
    assert "another version" in verify(service, anchor.replace(digest, digest[:4]), "diary").because
    for wrong in ("", "d-222222", anchor.replace(":", "/")):
        with pytest.raises(UsageError, match="is no anchor"):
            verify(service, wrong, "diary")
    with pytest.raises(UsageError, match="no words"):
        verify(service, anchor, " … ")
