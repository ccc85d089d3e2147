"""Answers that fit a JSON schema, on the eager and the recorded path."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from torch import Tensor

from engine import (
    Answer,
    AnswerPiece,
    AskOptions,
    Conversation,
    Model,
    Sampling,
    SettingsError,
    grammar_of,
    make_method,
)
from engine.errors import ModelError
from engine.json_grammar import JsonAnswer
from tests.engine.reading import read

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 3, "maxLength": 12},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "kind": {"enum": ["keeper", "trader"]},
        "born": {"type": "string", "format": "date"},
        "marks": {"type": "array", "items": {"type": "number"}, "minItems": 2, "maxItems": 4},
        "heir": {"$ref": "#"},
    },
    "required": ["name", "age", "kind", "born", "marks"],
    "additionalProperties": False,
}


def fits(person: Any) -> bool:
    """Return whether a value is a PERSON."""
    return (
        set(person) - {"heir"} == set(PERSON["required"])
        and 3 <= len(person["name"]) <= 12
        and isinstance(person["age"], int)
        and 0 <= person["age"] <= 150
        and person["kind"] in ("keeper", "trader")
        and [len(part) for part in person["born"].split("-")] == [4, 2, 2]
        and 2 <= len(person["marks"]) <= 4
        and all(isinstance(each, int | float) for each in person["marks"])
        and ("heir" not in person or fits(person["heir"]))
    )


def asked(model: Model, ids: Tensor, sampling: Sampling, options: AskOptions | None = None) -> tuple[str, Answer]:
    """Return the pieces of an answer as one text, and the answer."""
    conversation = Conversation(read(model, make_method("full"), ids))
    *pieces, last = conversation.ask("Who was it?", sampling, options)
    assert isinstance(last, Answer)
    assert conversation.said == [model.chat.told("Who was it?", last.text, True)], "the next turn sees the whole answer"
    return "".join(piece.text for piece in pieces if isinstance(piece, AnswerPiece)), last


@pytest.mark.parametrize("most", [1, 2, 7, 20, 33, 50, 77, 110, 4000])
def test_an_answer_fits_its_schema_wherever_it_is_cut(model: Model, ids: Tensor, most: int) -> None:
    sampling = Sampling(temperature=1.0, seed=most, max_tokens=most, json_schema=PERSON)
    told, answer = asked(model, ids, sampling)
    assert told == answer.text
    assert fits(json.loads(answer.text))
    assert answer.finish_reason == ("stop" if most == 4000 else "length")


def test_a_random_model_writes_no_json_by_itself(model: Model, ids: Tensor) -> None:
    with pytest.raises(ValueError, match=r"Expecting|Extra|Invalid|control"):
        json.loads(asked(model, ids, Sampling(max_tokens=40))[1].text)


def test_recorded_passes_are_restricted_as_well(model: Model, ids: Tensor, replayed: list[int]) -> None:
    answer = asked(model, ids, Sampling(max_tokens=12, json_schema={"type": "object"}))[1]
    assert len(replayed) >= 10
    assert isinstance(json.loads(answer.text), dict)


def test_an_answer_that_begins_to_repeat_itself_is_completed(model: Model, ids: Tensor) -> None:
    options = AskOptions(repetition_start=lambda said: 1 if len(said) > 9 else None)
    told, answer = asked(model, ids, Sampling(json_schema=PERSON), options)
    assert (told, answer.finish_reason) == (answer.text, "repetition")
    assert fits(json.loads(answer.text))


@pytest.mark.parametrize(
    "said", ['{"a": "b', '{"a": -', '{"a": 1', '{"a": [1, [', '{"a": "\\', '{"a', '{"a": tr', "{", ""]
)
def test_any_beginning_can_be_completed(model: Model, said: str) -> None:
    begun = JsonAnswer(model.grammar_tokenizer, {"type": "object"})
    begun.masked(torch.zeros(model.network.config.vocab_size))
    ids = model.tokenizer(said, add_special_tokens=False)["input_ids"]
    for each in ids:
        begun.add(each)
    text = model.decode([*ids, *begun.closing()])
    assert text.startswith(said)
    assert isinstance(json.loads(text), dict)


def test_what_cannot_be_completed_soon_is_said(model: Model) -> None:
    endless = JsonAnswer(model.grammar_tokenizer, {"type": "string", "minLength": 5000})
    with pytest.raises(ModelError, match="cannot end soon by its JSON schema: allow more tokens"):
        endless.closing()


@pytest.mark.parametrize(
    ("schema", "cause"),
    [
        ({"type": "objekt"}, "Invalid type: objekt"),
        ({"type": "array", "uniqueItems": True}, "uniqueItems"),
        ({"$ref": "#/nowhere"}, "does not exist"),
        ({"type": "string", "pattern": "("}, "regex parse error"),
        ({"enum": []}, "Unsatisfiable"),
        ({"properties": {"a": False}, "required": ["a"], "type": "object"}, "Unsatisfiable"),
    ],
)
def test_a_schema_that_no_answer_can_fit_is_refused(schema: dict[str, Any], cause: str) -> None:
    with pytest.raises(SettingsError, match=rf"^No answer can be made to fit this JSON schema: .*{cause}[^\n]*\.$"):
        grammar_of(schema)


def test_a_stop_text_would_cut_json() -> None:
    with pytest.raises(SettingsError, match="leave one of both out"):
        Sampling(stop=("}",), json_schema={})
