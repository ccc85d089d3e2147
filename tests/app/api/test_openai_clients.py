"""The real `openai` client, and requests as other programs send them, on a real server."""

from typing import Any

import openai
import pytest

from tests.app.helpers import Server

LONG = "Be brief. " * 2001
TOOL = {"type": "function", "name": "look_up", "parameters": {"type": "object", "properties": {}}}


def test_a_document_is_picked_by_its_title(client: openai.OpenAI) -> None:
    [model] = client.models.list().data
    assert model.id == "The Lamp"
    assert client.models.retrieve(model.id) == model


@pytest.mark.parametrize(
    ("said", "named"),
    [
        ([("system", LONG), ("user", "Who?")], "The system message has 20,009 characters; at most 20,000"),
        ([("system", LONG[:15_000]), ("user", LONG[:9_000])], "The system message with the question has"),
        (
            [("user", "Who?"), ("assistant", "He."), ("user", LONG), ("assistant", "She."), ("user", "Why?")],
            "Question 2",
        ),
        ([("user", "Who?"), ("assistant", "He."), ("user", LONG)], "The question has"),
    ],
)
def test_a_message_that_is_too_long_is_named(client: openai.OpenAI, said: list[tuple[str, str]], named: str) -> None:
    messages: Any = [{"role": role, "content": text} for role, text in said]
    with pytest.raises(openai.BadRequestError, match=named):
        client.chat.completions.create(model="The Lamp", messages=messages)


def test_a_chat_streams_what_it_says_at_once(client: openai.OpenAI) -> None:
    asked: Any = {"model": "The Lamp", "messages": [{"role": "user", "content": "Who kept it?"}], "max_tokens": 8}
    whole = client.chat.completions.create(**asked)
    pieces = list(client.chat.completions.create(**asked, stream=True))
    streamed = "".join(each.choices[0].delta.content or "" for each in pieces if each.choices)
    assert streamed.strip() == (whole.choices[0].message.content or "").strip() != ""


def test_tools_that_need_not_be_called_are_left_out_and_said_to_be(client: openai.OpenAI) -> None:
    asked: Any = {"model": "The Lamp", "messages": [{"role": "user", "content": "Who?"}], "max_tokens": 4}
    tool: Any = {"type": "function", "function": {"name": "look_up", "parameters": {}}}
    quiet = [{"tools": []}, {"tools": [tool], "tool_choice": "none"}]
    for more in quiet:
        assert not hasattr(client.chat.completions.create(**asked, **more), "warnings")
    told: Any = client.chat.completions.create(**asked, tools=[tool])
    assert told.warnings == ["The tools were left out: no answer calls one."]
    with pytest.raises(openai.BadRequestError, match="tool_choice that demands a tool"):
        client.chat.completions.create(**asked, tools=[tool], tool_choice="required")


def test_a_response_has_its_text_its_tokens_and_goes_on(client: openai.OpenAI, server: Server) -> None:
    first = client.responses.create(model="The Lamp", input="Who kept it?", max_output_tokens=8)
    assert first.output_text
    assert first.usage is not None
    assert first.usage.total_tokens == first.usage.input_tokens + first.usage.output_tokens
    second = client.responses.create(
        model="The Lamp", input="And where?", previous_response_id=first.id, max_output_tokens=8
    )
    turn, before = server.get(f"/api/turns/{second.id}"), server.get(f"/api/turns/{first.id}")
    assert turn["session_id"] == before["session_id"]
    assert [turn["question"], before["question"]] == ["And where?", "Who kept it?"]


def test_a_streamed_response_is_the_whole_one_in_pieces(client: openai.OpenAI) -> None:
    asked: Any = {"model": "The Lamp", "input": "Who kept it?", "max_output_tokens": 8, "instructions": "Be short."}
    whole = client.responses.create(**asked)
    text, kinds = "", []
    with client.responses.stream(**asked) as stream:
        for event in stream:
            kinds.append(event.type)
            if event.type == "response.output_text.delta":
                text += event.delta
        final: Any = event
    assert text.strip() == whole.output_text == final.response.output_text
    assert kinds[0] == "response.created"
    assert kinds[-1] in ("response.completed", "response.incomplete")


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ({"tools": [TOOL], "tool_choice": "required"}, "tool_choice that demands a tool"),
        ({"text": {"format": {"type": "grammar"}}}, "text.format has the type text, json_object, or json_schema"),
        ({"background": True}, "does not support background"),
        ({"input": ""}, "The question is empty"),
        ({"input": []}, "There are no messages"),
    ],
)
def test_a_response_that_cannot_be_is_refused(client: openai.OpenAI, more: dict[str, Any], sentence: str) -> None:
    with pytest.raises(openai.BadRequestError, match=sentence):
        client.responses.create(**{"model": "The Lamp", "input": "Who?", **more})


def test_going_on_behind_nothing_is_not_found(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError):
        client.responses.create(model="The Lamp", input="Who?", previous_response_id="t-nothing")


def test_what_open_webui_sends_is_answered(server: Server) -> None:
    """The fields are those of Open WebUI's source."""
    answer = server.send(
        "/v1/chat/completions",
        {
            "stream": False,
            "model": "The Lamp",
            "messages": [{"role": "user", "content": [{"type": "text", "text": "Who kept it?"}]}],
            "params": {},
            "features": {"web_search": False},
            "variables": {"{{USER_NAME}}": "me"},
            "tool_ids": None,
            "tools": [],
            "chat_id": "1",
            "id": "2",
            "background_tasks": {"title_generation": True},
            "max_tokens": 4,
        },
    )
    assert answer["choices"][0]["message"]["role"] == "assistant"
