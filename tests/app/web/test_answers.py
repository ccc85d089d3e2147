"""What stands below an answer, and how readings are told apart."""

from dataclasses import replace
from typing import Any

import pytest

from app.service import Service
from app.web.list_props import ListProps
from app.web.tab_state import Selection
from app.web.views.turn import NOWHERE, conversation
from sessions import TurnRow
from tests.app.helpers import add_context, add_document
from tests.app.web.rows import turn

TITLES = {"d-a": "Emma", "d-b": "Kim"}


def source(document: str, place: str, weight: float) -> dict[str, Any]:
    where = {"document": document, "page": 3, "place": place}
    return {**where, "quote": "Lit.", "weight": weight, "start": 7, "end": 12}


def answered(sources: list[dict[str, Any]], found: bool = True, **changes: Any) -> TurnRow:
    row = turn(answer="It is lit.", sources=sources, **changes)
    return replace(row, measurements={**row.measurements, "found": found})


def test_an_answer_is_copied_with_its_documents_and_places() -> None:
    sources = [source("d-a", "page 3", 0.5), source("d-b", "page 9", 0.2), source("d-a", "page 4", 0.3)]
    html = conversation([answered(sources)], TITLES)
    assert 'data-cited="Emma, page 3, page 4; Kim, page 9"' in html
    assert "data-cited" not in conversation([answered(sources, found=False)], TITLES)
    assert "data-cited" not in conversation([answered([])], TITLES)


@pytest.mark.parametrize(
    ("sources", "found", "status", "said"),
    [
        ([], True, "done", True),
        ([], False, "done", False),
        ([], True, "cancelled", False),
        ([source("d-a", "page 3", 0.5)], True, "done", False),
    ],
)
def test_an_answer_that_rests_on_no_passage_says_so(
    sources: list[dict[str, Any]], found: bool, status: str, said: bool
) -> None:
    """PRODUCT: highlighting the wrong sentence is worse than highlighting none."""
    assert (NOWHERE in conversation([answered(sources, found, status=status)], TITLES)) == said


def test_speed_is_folded_and_a_question_can_be_asked_again() -> None:
    html = conversation([answered([])], TITLES)
    assert html.index('<details class="speed"') < html.index("to the first word") < html.index("</details>")
    assert 'data-action="again"' in html
    assert 'aria-label="Ask question 1 again"' in html


def test_two_readings_of_one_file_show_what_differs(service: Service) -> None:
    document, other = add_document(service, "Kim"), add_document(service, "Emma")
    first = add_context(service, document)
    second = add_context(service, document, method="locret")
    alone = add_context(service, other)
    names = {id: name for name, id in ListProps(service).contexts(Selection())["contexts"]["choices"]}
    assert "exact" in names[first.id]
    assert "locret" in names[second.id]
    assert "exact" not in names[alone.id]
    third = add_context(service, document, method="locret", model="models/smollm2")
    names = {id: name for name, id in ListProps(service).contexts(Selection())["contexts"]["choices"]}
    assert "ocket" in names[second.id]
    assert "locret" in names[third.id]
