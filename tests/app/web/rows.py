"""Rows of the store, filled with text that would be harmful as HTML."""

from typing import Any

from sessions import TurnRow

EVIL = '<img src=x onerror="alert(1)">&"\''


def turn(**changes: Any) -> TurnRow:
    fields: dict[str, Any] = {
        "id": "t-abcdef",
        "session_id": "s-abcdef",
        "position": 0,
        "question": EVIL,
        "answer": EVIL,
        "status": "done",
        "sources": [
            {
                "document": "d-abcdef",
                "page": 3,
                "place": EVIL,
                "quote": f"a {EVIL} b",
                "weight": 0.5,
                "start": 0,
                "end": 9,
            }
        ],
        "measurements": {
            "time_to_first_token_seconds": 0.5,
            "tokens_per_second": 12.0,
            "answer_tokens": 3,
            "finish_reason": "stop",
            "quotations": [],
        },
        "error": None,
        "asked_of": 2,
        "created_at": 0.0,
        "finished_at": 1.0,
    }
    return TurnRow(**{**fields, **changes})
