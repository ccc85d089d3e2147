"""The memory map: how much of each stretch of a text is remembered."""

import json
from itertools import pairwise
from pathlib import Path

import pytest
import torch

from app.listing import details
from app.reading.document_cache import DocumentCache
from app.reading.documents import IngestOptions, add_documents
from app.reading.memory_map import STRETCHES, Remembered, load_map, memory_map, save_map, tenths, with_places
from app.reading.readings import read
from app.reading.token_stream import Stream, Stretch
from app.service import Service
from ingest import Document, Page, PageQuality
from tests.app.helpers import begin, in_process


def document(title: str, pages: int, letters: int) -> Document:
    """Return a document with pages of so many letters."""
    return Document(
        title,
        "pdf",
        title * 8,
        tuple(Page(n + 1, f"page {n + 1}", "x" * letters, PageQuality(letters, "text")) for n in range(pages)),
    )


LONG, SHORT = document("Long", 50, 18), document("Short", 1, 3)
LIBRARY = DocumentCache({"d-long": LONG, "d-short": SHORT}.__getitem__)
TOKENS = len(LONG.text)  # a token for each letter


def stream() -> Stream:
    starts = torch.cat([torch.arange(TOKENS), torch.arange(3)])
    stretches = (Stretch("d-long", 0, TOKENS, TOKENS), Stretch("d-short", TOKENS, TOKENS + 3, 3))
    return Stream(torch.zeros(TOKENS + 3, dtype=torch.int64), starts, stretches)


def test_stretches_follow_each_other_and_end_with_their_document() -> None:
    remembered = torch.zeros(TOKENS + 3)
    remembered[:40] = 0.5
    found = with_places(memory_map(remembered, stream()), LIBRARY)
    assert len(found) == STRETCHES + 1
    assert sum(each.tokens for each in found) == TOKENS + 3
    for before, after in pairwise(found[:-1]):
        assert before.end == after.start
    assert found[-1] == Remembered("d-short", 0, 3, "page 1", 3, 0.0)
    assert found[0].place == "page 1"
    assert found[-2].place == "page 50"
    assert sum(each.share * each.tokens for each in found) == pytest.approx(20, abs=0.01)
    assert [each.share for each in found[:4]] == [0.5] * 4


def test_a_text_of_few_tokens_has_as_many_stretches() -> None:
    """Regression: a reading with more stretches than tokens failed at its end."""
    stretches = (Stretch("d-long", 0, 0, 0), Stretch("d-short", 0, 3, 3))
    few = Stream(torch.zeros(3, dtype=torch.int64), torch.arange(3), stretches)
    found = with_places(memory_map(torch.tensor([1.0, 0.0, 0.5]), few), LIBRARY)
    assert [(each.document, each.start, each.tokens, each.share) for each in found] == [
        ("d-short", 0, 1, 1.0),
        ("d-short", 1, 1, 0.0),
        ("d-short", 2, 1, 0.5),
    ]


def test_there_is_no_map_of_what_is_remembered_whole(service: Service) -> None:
    assert memory_map(torch.ones(TOKENS + 3), stream()) == []
    save_map(service.store, "c-abcdef", [])
    assert service.store.measurements.newest("memory map", "c-abcdef") == []


def test_tenths_are_means_of_their_tokens() -> None:
    def piece(tokens: int, share: float) -> Remembered:
        return Remembered("d-long", 0, 0, "page 1", tokens, share)

    assert tenths([piece(10, n / 10) for n in range(10)]) == pytest.approx([n / 10 for n in range(10)])
    assert tenths([piece(1, 1.0), piece(3, 0.0), *[piece(4, 0.25)] * 9]) == pytest.approx([0.25] * 10)
    assert tenths([piece(2, 0.5)]) == [0.5]


@pytest.mark.parametrize("method", ["streaming", "infinipot", "exact"])
def test_a_reading_keeps_its_map(service: Service, book: Path, method: str, capsys: pytest.CaptureFixture[str]) -> None:
    ids = [row.id for row in add_documents(service, [book], IngestOptions(), lambda *_: None).documents]
    row = read(service, begin(service, ids, method, {"budget": "320"}).id, lambda report: None)
    shown = details(service, "context", row)["memory_map"]
    assert [Remembered(**each) for each in shown] == load_map(service.store, row.id)
    status, out, _ = in_process(service.home, capsys, "show", row.id)
    assert status == 0
    if method == "exact":
        assert shown == []
        assert "tenth" not in out
        return
    assert "  kept of each tenth of the text: " in out
    assert sum(each["tokens"] for each in shown) == row.tokens
    entries = sum(each["tokens"] * each["share"] for each in shown)
    assert 0 < entries <= 320
    assert entries == pytest.approx(row.usage["entries"]["device"], abs=80)  # tokens of the template are not text
    assert shown[0]["start"] == 0
    status, out, _ = in_process(service.home, capsys, "show", row.id, "--json")
    assert json.loads(out)["memory_map"] == shown
    service.store.contexts.delete(row.id)
    assert load_map(service.store, row.id) == []
