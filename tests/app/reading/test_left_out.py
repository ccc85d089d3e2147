"""An imprint is neither read nor a source, and every token still leads to its place in the document."""

from dataclasses import replace
from pathlib import Path

import pytest

from app.asking.sources import find_sources
from app.asking.turns import answer, keep_question
from app.errors import UsageError
from app.listing import details
from app.reading.open_context import open_context
from app.reading.pages import page_of
from app.reading.saved_state import check_context
from app.reading.token_stream import PART, Stream, TextSpan, compose, read_text
from app.service import Service
from engine import Passage
from sessions import StoreCorrupt
from tests.app.helpers import SHORT, add, read_through
from tests.ingest.makers import epub

STORY = "<h2>{}</h2><p>The keeper lit the lamp. The pass key of the vault is 48213.</p>"
LICENCE = '<section epub:type="copyright-page"><h2>Uncopyright</h2><p>You may copy the zeppelin.</p></section>'


@pytest.fixture
def path(tmp_path: Path) -> Path:
    chapters = {"a.xhtml": STORY.format("One"), "b.xhtml": LICENCE, "c.xhtml": STORY.format("Two"), "d.xhtml": LICENCE}
    return epub(tmp_path / "book.epub", chapters)


def test_tokens_lead_to_their_places_around_what_is_left_out(service: Service, path: Path) -> None:
    [id] = add(service, path)
    document, chat = service.document_cache.document(id), service.models.chat(service.models.default)
    assert "zeppelin" not in read_text(document)
    assert read_text(document).count("48213") == 2
    for others in (0, 1):  # alone, and behind another with headings before both
        stream = compose(chat, [("d-other", document)] * others + [(id, document)])
        stretch = stream.stretches[-1]
        ids, starts = chat.encode(read_text(document)).ids, stream.starts[stretch.first : stretch.end]
        if not others:
            assert stream.ids.equal(ids.cpu().long())
        assert starts.equal(starts.sort().values)
        assert not any(low <= start < high for low, high in document.left_out for start in starts.tolist())
        key = document.text.rindex("48213")  # behind the gap
        [place] = stream.spans(*_ends(stream.between(id, key, key + 5)))
        assert "48213" in document.text[place.start : place.end + 1]
        spans = stream.spans(stretch.first, stretch.end)
        assert [document.text[each.start : each.end].split("\n")[0] for each in spans] == ["One", "Two"]
        assert not any("zeppelin" in document.text[each.start : each.end] for each in spans)
        assert not list(stream.between(id, *document.span(2)))
    loaded = Stream.load(stream.tensors(), stream.meta())
    assert loaded.stretches == stream.stretches


def _ends(tokens: range) -> tuple[int, int]:
    return tokens[0], tokens[-1] + 1


def test_it_is_read_asked_and_shown_so(service: Service, path: Path) -> None:
    [id] = add(service, path)
    context = read_through(service, [id])
    session = service.store.sessions.add(context.id)
    turn = answer(service, keep_question(service, session.id, "What is the pass key?").id, SHORT)
    assert all("zeppelin" not in each["quote"] for each in turn.sources)
    stream = open_context(service, context.id).stream
    whole = find_sources([Passage(0, len(stream.ids), 1.0)], stream, service.document_cache)
    assert ["48213" in each.quote for each in whole] == [True, True]
    assert all("zeppelin" not in each.quote for each in whole)
    with pytest.raises(UsageError, match="no text"):
        answer(service, keep_question(service, session.id, "What may I copy?", "2").id, SHORT)
    contents = page_of(service, id, 1).contents
    assert [each.title for each in contents] == ["One", "Uncopyright (not read)", "Two", "Uncopyright (not read)"]
    facts = details(service, "document", service.store.documents.get(id))
    assert [each["read"] for each in facts["contents"]] == [True, False, True, False]


def test_damaged_ranges_are_noticed(service: Service, path: Path) -> None:
    context = read_through(service, add(service, path))
    parts, meta = service.store.contexts.state(context.id).load(context.fingerprint)
    check_context(context, parts, meta)
    assert parts[PART]["ids"].numel()
    for wrong in ([[9, 3]], [[3]], [[0, 1 << 30]], [[-1, 2]]):
        meta["stretches"][0]["left_out"] = wrong
        with pytest.raises(StoreCorrupt):
            check_context(context, parts, meta)


def test_a_span_ends_at_what_is_left_out(service: Service, path: Path) -> None:
    [id] = add(service, path)
    chat, document = service.models.chat(service.models.default), service.document_cache.document(id)
    [stretch] = compose(chat, [(id, document)]).stretches
    (low, high), _ = stretch.left_out
    assert stretch.kept(low - 5, high + 5) == [TextSpan(id, low - 5, low), TextSpan(id, high, high + 5)]
    assert stretch.kept(low - 5, low) == [TextSpan(id, low - 5, low)]
    assert replace(stretch, left_out=()).kept(low, high) == [TextSpan(id, low, high)]
