"""OpenAI's chat API over contexts, on a real server."""

import asyncio
import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from app.api.openai_chat import ChatRequest, router
from app.api.openai_responses import ResponseRequest
from app.api.openai_turns import MOST_TOKENS, Message, rules_of, turns_of
from app.asking.answer_options import LONGEST, AnswerOptions
from app.errors import UsageError
from app.jobs.worker import Worker
from app.service import Service
from sessions import JobRow
from tests.app.helpers import PATIENCE_SEC, Server, add, book_text, read_through, wait_for


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, tiny: Path) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("openai") / "home", str(tiny)).start()
    yield server
    server.stop()


@pytest.fixture(scope="module")
def context(server: Server) -> str:
    """Return a context that all tests ask."""
    return str(server.read(("The Lamp.txt", book_text(12).encode()), method="exact", budget="320")["id"])


def asked(*words: str) -> list[dict[str, str]]:
    """Return messages of user and assistant, in turns."""
    return [{"role": ("user", "assistant")[n % 2], "content": each} for n, each in enumerate(words)]


def complete(server: Server, model: str, messages: list[Any], **more: Any) -> Any:
    return server.send("/v1/chat/completions", {"model": model, "messages": messages, "max_tokens": 6, **more})


def said(answer: Any) -> str:
    return str(answer["choices"][0]["message"]["content"])


def session_of(server: Server, answer: Any) -> list[tuple[str, str]]:
    turns = server.get(f"/api/sessions/{answer['session']}/turns")
    return [(turn["question"], turn["answer"].strip()) for turn in turns]


def events(response: httpx.Response) -> list[Any]:
    """Return the bodies of all server-sent events except the last, which ends them."""
    lines = [line.removeprefix("data: ") for line in response.iter_lines() if line]
    assert lines.pop() == "[DONE]"
    return [json.loads(line) for line in lines]


def test_contexts_are_models(server: Server, context: str) -> None:
    listed = server.get("/v1/models")
    assert listed["object"] == "list"
    [model] = [each for each in listed["data"] if each["context"] == context]
    assert (model["object"], model["owned_by"], model["title"], model["method"]) == (
        "model",
        "stockpot",
        "The Lamp",
        "exact",
    )
    assert model["id"] == "The Lamp"
    assert server.get(f"/v1/models/{context}") == server.get("/v1/models/The%20Lamp") == model


def test_an_answer_has_its_reason_its_tokens_and_its_sources(server: Server, context: str) -> None:
    answer = complete(server, context, asked("Who kept it?"))
    assert (answer["object"], answer["model"]) == ("chat.completion", context)
    turn = server.get(f"/api/turns/{answer['id']}")
    assert turn["question"] == "Who kept it?"
    assert said(answer) == turn["answer"].strip()
    assert answer["sources"] == turn["sources"]
    measured = turn["measurements"]
    assert answer["found"] == measured["found"]
    assert answer["choices"][0]["finish_reason"] == measured["finish_reason"]
    assert answer["usage"] == {
        "prompt_tokens": measured["prompt_tokens"],
        "completion_tokens": measured["answer_tokens"],
        "completion_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": measured["prompt_tokens"] + measured["answer_tokens"],
    }
    assert 1 <= measured["answer_tokens"] <= 6


def test_an_answer_ends_before_the_text_that_a_client_names(server: Server, context: str) -> None:
    whole = said(complete(server, context, asked("Who kept it?"), max_tokens=30))
    end = whole[5:7]
    for stop in (end, [end, "unheard of"]):
        answer = complete(server, context, asked("Who kept it?"), max_tokens=30, stop=stop)
        assert (said(answer), answer["choices"][0]["finish_reason"]) == (whole[: whole.index(end)].strip(), "stop")


def test_a_conversation_goes_on_in_its_session_and_one_that_differs_in_another(server: Server, context: str) -> None:
    first = complete(server, context, asked("Who?"))
    on = complete(server, "The Lamp", asked("Who?", said(first), "Where?"))  # named by its title
    assert on["session"] == first["session"]
    again = complete(server, context, asked("Who?", said(first), "When?"))
    assert again["session"] != first["session"]
    assert session_of(server, again) == [("Who?", said(first)), ("When?", said(again))]
    assert session_of(server, on) == [("Who?", said(first)), ("Where?", said(on))]
    told = complete(server, context, asked("Who?", "Nobody at all.", "Where?"))  # no answer was ever like this
    assert session_of(server, told) == [("Who?", "Nobody at all."), ("Where?", said(told))]
    assert told["session"] not in (first["session"], again["session"])
    anew = complete(server, context, asked("Who?"))
    assert anew["session"] not in (first["session"], again["session"], told["session"])


def test_requests_that_go_on_with_one_conversation_at_once_are_not_mixed(server: Server, context: str) -> None:
    first = complete(server, context, asked("Who was first?"))
    questions = [f"Which {number}?" for number in range(6)]

    def go_on(question: str) -> Any:
        return complete(server, context, asked("Who was first?", said(first), question))

    with ThreadPoolExecutor(len(questions)) as pool:
        answers = list(pool.map(go_on, questions))
    assert len({answer["session"] for answer in answers}) == len(questions)
    for question, answer in zip(questions, answers, strict=True):
        assert session_of(server, answer) == [("Who was first?", said(first)), (question, said(answer))]


def test_what_the_system_says_stands_before_each_question_and_is_not_kept(server: Server, context: str) -> None:
    system = {"role": "system", "content": "Be brief."}
    first = complete(server, context, [system, *asked("Who was it?")])
    assert session_of(server, first)[0][0] == "Who was it?"
    parts = [{"type": "text", "text": "Who was"}, {"type": "text", "text": " it?"}]
    on = complete(
        server, context, [system, {"role": "user", "content": parts}, *asked("Who was it?", said(first), "Why?")[1:]]
    )
    assert on["session"] == first["session"]
    plain = complete(server, context, asked("Who was it?"))
    assert [any("system message" in note for note in each["notes"]) for each in (first, plain)] == [True, False]
    rules = first["usage"]["prompt_tokens"] - plain["usage"]["prompt_tokens"]
    assert rules >= 3
    plain_on = complete(server, context, asked("Who was it?", said(first), "Why?"))
    assert on["usage"]["prompt_tokens"] - plain_on["usage"]["prompt_tokens"] == rules
    refused = complete(server, context, [{**system, "content": "Be brief. " * 2000}, *asked("Who?")])
    assert (refused["status"], "at most 20,000" in refused["error"]["message"]) == (400, True)


def test_a_stream_brings_the_same_answer_piece_by_piece(server: Server, context: str) -> None:
    whole = complete(server, context, asked("What then?"))
    body = {"model": context, "messages": asked("What then?"), "max_tokens": 6, "stream": True}
    options = {"include_usage": True}
    with httpx.stream("POST", f"{server.url}/v1/chat/completions", json=body, timeout=PATIENCE_SEC) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        plain = events(response)
    url, body = f"{server.url}/v1/chat/completions", {**body, "stream_options": options}
    with httpx.stream("POST", url, json=body, timeout=PATIENCE_SEC) as response:
        *told, usage = events(response)
    for each in (plain, told):
        assert {piece["object"] for piece in each} == {"chat.completion.chunk"}
        assert each[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
        assert "".join(piece["choices"][0]["delta"].get("content", "") for piece in each).strip() == said(whole)
        reasons = [piece["choices"][0]["finish_reason"] for piece in each]
        assert reasons == [None] * (len(each) - 1) + [whole["choices"][0]["finish_reason"]]
        assert [source["place"] for source in each[-1]["sources"]] == [each["place"] for each in whole["sources"]]
    assert (usage["choices"], usage["usage"]) == ([], whole["usage"])


@pytest.mark.parametrize("stream", [True, False])
def test_going_away_stops_the_answer(server: Server, context: str, stream: bool) -> None:
    question = f"Who goes away, {stream}?"
    body = {"model": context, "messages": asked(question), "max_tokens": 4000, "stream": stream}
    url = f"{server.url}/v1/chat/completions"

    def turns() -> list[Any]:
        found = server.get("/api/sessions")
        every = [turn for row in found for turn in server.get(f"/api/sessions/{row['id']}/turns")]
        return [turn for turn in every if turn["question"] == question]

    with server.held_back():
        if stream:
            with httpx.stream("POST", url, json=body, timeout=PATIENCE_SEC) as response:
                next(line for line in response.iter_lines() if '"content": "' in line and '"content": ""' not in line)
        else:
            with pytest.raises(httpx.ReadTimeout):
                httpx.post(url, json=body, timeout=httpx.Timeout(PATIENCE_SEC, read=2))
            wait_for(lambda: bool(turns()), "the question to be kept")
        wait_for(lambda: turns()[0]["status"] == "cancelled", "the answer to be stopped")


@pytest.mark.parametrize("stream", [True, False])
def test_what_is_not_to_be_stored_is_gone_once_it_is_answered(server: Server, context: str, stream: bool) -> None:
    first = complete(server, context, asked("Who stores it?"))
    before, folders = server.get("/api/sessions"), set((server.home / "sessions").iterdir())
    on = asked("Who stores it?", said(first), "Where?")
    body = {"model": context, "messages": on, "max_tokens": 6, "store": False, "stream": stream}
    with httpx.stream("POST", f"{server.url}/v1/chat/completions", json=body, timeout=PATIENCE_SEC) as response:
        if stream:
            pieces = events(response)
            answer, whole = "".join(each["choices"][0]["delta"].get("content", "") for each in pieces), pieces[-1]
        else:
            whole = json.loads(response.read())
            answer = said(whole)
    assert {"found", "sources", "citations", "sure", "unsupported", "notes"} <= set(whole)
    assert "session" not in whole
    assert server.get("/api/sessions") == before, "the conversation that it goes on from is as it was"
    assert set((server.home / "sessions").iterdir()) == folders
    assert server.send(f"/api/turns/{whole['id']}", method="GET")["status"] == 404
    assert said(complete(server, context, on)) == answer.strip()


def test_going_away_leaves_nothing_that_is_not_to_be_stored(server: Server, context: str) -> None:
    before = server.get("/api/sessions")
    body = {"model": context, "messages": asked("Who goes?"), "max_tokens": 4000, "stream": True, "store": False}
    with server.held_back():
        with httpx.stream("POST", f"{server.url}/v1/chat/completions", json=body, timeout=PATIENCE_SEC) as response:
            next(line for line in response.iter_lines() if '"content": "' in line and '"content": ""' not in line)
            assert len(server.get("/api/sessions")) == len(before) + 1
        wait_for(lambda: bool(server.get("/api/sessions") == before), "the session to be deleted")


@pytest.mark.parametrize("stream", [True, False])
def test_an_answer_that_somebody_else_stopped_is_not_whole(server: Server, context: str, stream: bool) -> None:
    """The finish reason was "stop", as for a complete answer."""
    question = f"Who is stopped, {stream}?"
    body = {"model": context, "messages": asked(question), "max_tokens": 4000, "stream": stream}

    def begun() -> list[Any]:
        found = [server.get(f"/api/sessions/{row['id']}/turns") for row in server.get("/api/sessions")]
        return [turn for turns in found for turn in turns if turn["question"] == question and turn["answer"]]

    with server.held_back(), ThreadPoolExecutor(1) as pool:
        asking = pool.submit(httpx.post, f"{server.url}/v1/chat/completions", json=body, timeout=PATIENCE_SEC)
        wait_for(lambda: bool(begun()), "the first words")
        server.send(f"/api/turns/{begun()[0]['id']}/cancel")
        answer = asking.result()
    last = events(answer)[-1] if stream else answer.json()
    assert last["choices"][0]["finish_reason"] == "length"


@pytest.mark.parametrize("stream", [True, False])
def test_a_session_that_is_deleted_meanwhile_is_said_to_be_gone(server: Server, context: str, stream: bool) -> None:
    """The stream broke off without an error."""
    url, before = f"{server.url}/v1/chat/completions", server.send("/api/sessions", {"context": context})["id"]
    body = {"model": context, "messages": asked(f"Who is gone, {stream}?"), "stream": stream}

    def begun() -> list[str]:
        return [row["id"] for row in server.get("/api/sessions") if row["title"] == f"Who is gone, {stream}?"]

    with server.held_back(), ThreadPoolExecutor(1) as pool:
        first = server.send(f"/api/sessions/{before}/turns", {"question": "Who is first?", "max_tokens": 4000})["id"]
        wait_for(lambda: bool(server.get(f"/api/turns/{first}")["answer"]), "the first words")
        asking = pool.submit(httpx.post, url, json=body, timeout=PATIENCE_SEC)
        wait_for(lambda: bool(begun()), "the question to wait for its turn")
        server.send(f"/api/sessions/{begun()[0]}", method="DELETE")
        answer = asking.result()
        server.send(f"/api/turns/{first}/cancel")
    *_, last = [line.removeprefix("data: ") for line in answer.text.splitlines() if line]
    error = json.loads(last)["error"]
    assert (answer.status_code, error["type"]) == (200 if stream else 404, "invalid_request_error")
    assert "it was deleted" in error["message"]


def test_null_is_as_good_as_nothing(server: Server, context: str) -> None:
    nothing = dict.fromkeys(("stream", "stream_options", "response_format", "temperature", "n", "stop", "tools"))
    assert complete(server, context, asked("Who?"), **nothing)["object"] == "chat.completion"


@pytest.mark.parametrize("stream", [True, False])
def test_nobody_waits_while_the_answer_of_somebody_who_went_away_is_stopped(
    service: Service, book: Path, monkeypatch: pytest.MonkeyPatch, stream: bool
) -> None:
    """The server's event loop waited for the database, up to half a minute, and answered no other request."""
    worker, row = Worker(service), read_through(service, add(service, book))
    app, cancel, where = FastAPI(), service.store.jobs.request_cancel, list[int]()
    app.include_router(router(service, worker))

    def noted(id: str) -> JobRow:
        where.append(threading.get_ident())
        return cancel(id)

    monkeypatch.setattr(service.store.jobs, "request_cancel", noted)
    body = json.dumps({"model": row.id, "messages": asked("Who?"), "stream": stream}).encode()

    async def ask_and_go() -> None:
        messages = [{"type": "http.request", "body": body}]
        gone = asyncio.Event()

        async def receive() -> dict[str, Any]:
            if messages:
                return messages.pop()
            if stream:
                await gone.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            if message.get("body"):
                gone.set()

        headers = [(b"content-type", b"application/json")]
        scope = {"type": "http", "method": "POST", "path": "/v1/chat/completions", "headers": headers}
        await app({**scope, "query_string": b"", "asgi": {"version": "3.0", "spec_version": "2.3"}}, receive, send)

    asyncio.run(ask_and_go())
    assert len(where) == 1
    assert where[0] != threading.get_ident()
    assert service.store.turns.all(service.store.sessions.all()[0].id)[0].status == "cancelled"


CALL = {"role": "assistant", "content": None, "tool_calls": [{"id": "1", "type": "function"}]}
TURNS: dict[str, tuple[list[dict[str, Any]], list[tuple[str, str]], str]] = {
    "a greeting": ([{"role": "assistant", "content": "Hello!"}, *asked("Who?")], [], "Who?"),
    "two questions": ([*asked("Who?"), *asked("Where?")], [], "Who?\n\nWhere?"),
    "two answers": (
        [*asked("Who?", "He."), {"role": "assistant", "content": "Or she."}, *asked("Where?")],
        [("Who?", "He.\n\nOr she.")],
        "Where?",
    ),
    "an empty question": (asked("Who?", "He.", " ", "She.", "Where?"), [("Who?", "He.\n\nShe.")], "Where?"),
    "a result of a tool": ([*asked("Who?"), CALL, {"role": "tool", "content": "Anna"}], [], "Who?\n\nAnna"),
    "a result of a function": ([*asked("Who?"), {"role": "function", "content": "Anna"}], [], "Who?\n\nAnna"),
    "a result of a response": (
        [*asked("Who?"), {"type": "function_call"}, {"type": "function_call_output", "call_id": "1", "output": "Anna"}],
        [],
        "Who?\n\nAnna",
    ),
    "the system's text": ([*asked("Who?"), {"role": "system", "content": "Be brief."}], [], "Who?"),
}


@pytest.mark.parametrize(("messages", "said", "question"), TURNS.values(), ids=TURNS)
def test_messages_of_other_programs_become_turns(
    messages: list[dict[str, Any]], said: list[tuple[str, str]], question: str
) -> None:
    assert turns_of([Message.model_validate(each) for each in messages]) == (said, question)


@pytest.mark.parametrize("none", [0, -1, None])
def test_a_number_of_tokens_below_one_means_the_usual_limit(none: int | None) -> None:
    chat = ChatRequest(model="m", messages=[], max_tokens=none)
    assert chat.options().max_tokens == MOST_TOKENS
    assert ChatRequest(model="m", messages=[], max_completion_tokens=none, max_tokens=9).options().max_tokens == 9
    assert ResponseRequest(model="m", max_output_tokens=none).options().max_tokens == MOST_TOKENS


def schema_format(schema: dict[str, Any]) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "person", "strict": True, "schema": schema}}


FOUND = {
    "type": "object",
    "properties": {"keeper": {"type": "string", "maxLength": 9}, "years": {"type": "integer"}},
    "required": ["keeper", "years"],
    "additionalProperties": False,
}


def keys_of(text: str) -> list[str]:
    """Return the keys of a JSON object, and check the types of FOUND."""
    value = json.loads(text)
    if "years" in value:
        assert isinstance(value["keeper"], str)
        assert isinstance(value["years"], int)
    return sorted(value)


@pytest.mark.parametrize("most", [1, 60])
def test_an_answer_is_json_that_fits_its_schema_also_when_it_is_cut(server: Server, context: str, most: int) -> None:
    format = schema_format(FOUND)
    answer = complete(server, context, asked("Who kept it?"), response_format=format, max_tokens=most)
    assert keys_of(said(answer)) == ["keeper", "years"]
    assert most > 1 or answer["choices"][0]["finish_reason"] == "length"
    assert session_of(server, answer) == [("Who kept it?", said(answer))]
    object = complete(server, context, asked("Who?"), response_format={"type": "json_object"}, max_tokens=most)
    keys_of(said(object))


def test_json_streams_and_goes_on_in_its_session(server: Server, context: str) -> None:
    format = schema_format(FOUND)
    whole = complete(server, context, asked("And how long?"), response_format=format, max_tokens=9)
    body = {"model": context, "messages": asked("And how long?"), "max_tokens": 9, "response_format": format}
    with httpx.stream(
        "POST", f"{server.url}/v1/chat/completions", json={**body, "stream": True}, timeout=PATIENCE_SEC
    ) as response:
        brought = events(response)
    pieces = [each["choices"][0]["delta"].get("content", "") for each in brought]
    assert keys_of("".join(pieces)) == ["keeper", "years"]
    assert "".join(pieces).strip() == said(whole)
    assert brought[-1]["choices"][0]["finish_reason"] == "length"
    on = complete(server, context, asked("And how long?", said(whole), "Why?"))
    assert on["session"] in (whole["session"], brought[0]["session"])


def test_responses_and_own_turns_are_json_as_well(server: Server, context: str) -> None:
    format = {"type": "json_schema", "name": "found", "schema": FOUND}
    body = {"model": context, "input": "Who kept it?", "max_output_tokens": 9, "text": {"format": format}}
    response = server.send("/v1/responses", body)
    assert keys_of(response["output"][0]["content"][0]["text"]) == ["keeper", "years"]
    assert (response["status"], response["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})
    refused = server.send("/v1/responses", {**body, "text": {"format": {**format, "schema": 1}}})
    assert (refused["status"], refused["error"]["message"][:20]) == (400, "text.format has the ")
    session = server.send("/api/sessions", {"context": context})["id"]
    asked_for = {"question": "Who?", "max_tokens": 9, "json_schema": FOUND}
    turn = server.send(f"/api/sessions/{session}/turns", asked_for)
    wait_for(lambda: server.get(f"/api/turns/{turn['id']}")["status"] == "done", "the answer")
    assert keys_of(server.get(f"/api/turns/{turn['id']}")["answer"]) == ["keeper", "years"]
    refused = server.send(f"/api/sessions/{session}/turns", {**asked_for, "json_schema": {"type": "objekt"}})
    assert (refused["status"], refused["error"][:38]) == (400, "No answer can be made to fit this JSON")


@pytest.mark.parametrize(
    ("messages", "more", "sentence"),
    [
        ([], {}, "There are no messages"),
        (asked("Who?", "He."), {}, "The last message is the user's"),
        (asked(" "), {}, "The question is empty"),
        (asked("Who?", "He.", " "), {}, "The question is empty"),
        (asked("Who?"), {"stop": ["."], "n": 2}, "does not support n above 1"),
        (asked("Who?"), {"stop": ""}, "cannot be empty"),
        (asked("Who?"), {"n": 2}, "does not support n above 1"),
        (
            asked("Who?"),
            {"tools": [{"type": "function"}], "tool_choice": "required"},
            "does not support a tool_choice that demands a tool",
        ),
        (asked("Who?"), {"logprobs": True}, "does not support logprobs"),
        (asked("Who?"), {"response_format": {"type": "grammar"}}, "response_format has the type text, json_object, or"),
        (asked("Who?"), {"response_format": {"type": "json_schema", "json_schema": {}}}, "json_schema with a schema"),
        (asked("Who?"), {"response_format": schema_format({"type": "objekt"})}, "fit this JSON schema: Invalid type"),
        (asked("Who?"), {"response_format": {"type": "json_object"}, "stop": "}"}, "would cut its JSON"),
        (asked("Who?"), {"temperature": 9}, "between 0 and 5"),
        (asked("\N{EGYPTIAN HIEROGLYPH A001}" * 19_999), {}, "tokens, and the model looks at"),
        (asked("Who?"), {"seed": 1 << 63}, "A seed is a whole number"),
        ([{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}], {}, "text or files, not image_url"),
        ([{"role": "robot", "content": "Who?"}], {}, "role: Input should be"),
    ],
)
def test_what_cannot_be_done_is_said_as_its_clients_expect(
    server: Server, context: str, messages: list[Any], more: dict[str, Any], sentence: str
) -> None:
    before = server.get("/api/sessions")
    refused = complete(server, context, messages, **more)
    assert (refused["status"], refused["error"]["type"]) == (400, "invalid_request_error")
    assert sentence in refused["error"]["message"]
    assert server.get("/api/sessions") == before, "nothing is kept of it"


def test_what_is_not_there_is_said_too(server: Server, context: str) -> None:
    missing = complete(server, "c-nobody", asked("Who?"))
    assert missing["status"] == 404
    assert "There is no context 'c-nobody'" in missing["error"]["message"]
    assert "GET /v1/models shows what there is." in missing["error"]["message"]
    assert server.send("/v1/embeddings", {})["status"] == 404
    for path in ("/v1", "/v1/chat/completions"):  # the second is there, and is posted to
        missing = server.send(path, method="GET")
        assert missing["status"] == 404
        assert (
            "there are POST /v1/chat/completions, POST /v1/responses, GET /v1/models, and /v1/files."
            in missing["error"]["message"]
        )
    untyped = httpx.post(f"{server.url}/v1/chat/completions", content="{}", timeout=PATIENCE_SEC).json()
    assert "Content-Type: application/json" in untyped["error"]["message"]


def test_turns_are_questions_with_their_answers() -> None:
    spoken = [Message(**each) for each in asked(" One? ", "1", "Two?", "2\n", "Three?")]
    assert turns_of(spoken) == ([("One?", "1"), ("Two?", "2")], "Three?")
    rules = [Message(role="developer", content="A."), Message(role="system", content="B.")]
    assert turns_of([*rules, *spoken]) == ([("One?", "1"), ("Two?", "2")], "Three?")
    assert rules_of([*rules, *spoken]) == "A.\n\nB."
    assert turns_of([*rules, *spoken[:1]]) == ([], "One?")


@pytest.mark.parametrize(
    ("given", "tokens", "seed"),
    [
        ({}, MOST_TOKENS, None),
        ({"seed": -1}, MOST_TOKENS, None),
        ({"max_tokens": 10**6, "seed": 0}, LONGEST, 0),
        ({"max_completion_tokens": 7, "max_tokens": 9, "seed": 5}, 7, 5),
    ],
)
def test_numbers_mean_what_other_servers_take_them_for(given: dict[str, Any], tokens: int, seed: int | None) -> None:
    options = ChatRequest(model="m", messages=[], **given).options()
    assert (options.max_tokens, options.seed) == (tokens, seed)


def test_an_effort_says_how_much_a_model_may_reason() -> None:
    usual = AnswerOptions.max_reasoning
    for effort, most in ((None, usual), ("", usual), ("medium", usual), ("none", 0), ("Low", 1024), (" HIGH", 16384)):
        assert ChatRequest(model="m", messages=[], reasoning_effort=effort).options().max_reasoning == most
    for effort, most, reason in ((None, 30, None), ("low", 1024, True)):  # a short answer limits the reasoning too
        limited = ChatRequest(model="m", messages=[], reasoning_effort=effort, max_tokens=30).options()
        assert (limited.max_reasoning, limited.reason) == (most, reason)
    with pytest.raises(UsageError, match="reasoning_effort other than none, minimal, low, medium, high, xhigh"):
        ChatRequest(model="m", messages=[], reasoning_effort="off").options()
