"""Recaps: the chapters up to a place, their ends read again, and only sentences that rest on them."""

from dataclasses import asdict
from pathlib import Path

import pytest

from app.asking.named_pages import named_pages, spans_of
from app.asking.recap import LETTERS, QUESTION, SHAPE, known_recap, parts_of, recap
from app.asking.sweep import KIND, Finding, Place, sweep
from app.jobs.work import Stopped
from app.jobs.worker import Worker
from app.service import Service
from app.web.views.book import recap as recap_html
from sessions import RECAP, ContextRow
from tests.app.helpers import add, add_context, read_through, work_once

LONG = "\n\n".join(f"On day {n} Maren Hollis cleaned the lamp and wrote of the weather." for n in range(200))
CHAPTERS = {
    "The Lamp": "Maren Hollis kept the lamp at Cape Orlen.\n\nShe wrote a diary every evening.",
    "The Watch": f"It began in spring.\n\n{LONG}\n\nIt ended with the death of Captain Brandt.",
    "The Storm": "Tobias Renn drowned in the harbour.\n\nNobody found the golden compass.",
}


@pytest.fixture
def book(tmp_path: Path) -> Path:
    path = tmp_path / "Keeper.md"
    path.write_text("\n\n".join(f"# {title}\n\n{text}" for title, text in CHAPTERS.items()), encoding="utf-8")
    return path


def texts(service: Service, context: ContextRow, up_to: str) -> list[str]:
    """Return what is read again of each chapter."""
    ids, cache, found = context.document_ids, service.document_cache, []
    for part in parts_of(context, up_to, cache):
        named = named_pages(part.pages, ids, cache)
        assert tuple((low, high) for _, low, high in spans_of(named, ids, cache)) == part.spans
        found.append("".join(cache.document(part.document).text[low:high] for low, high in part.spans))
    return found


def test_the_ends_of_each_chapter_up_to_a_place_are_read_again(service: Service, book: Path) -> None:
    context = add_context(service, *map(service.store.documents.get, add(service, book)))
    first, second, third = texts(service, context, "")
    assert all(each in first for each in CHAPTERS["The Lamp"].split("\n\n"))
    assert "It began in spring." in second
    assert "Captain Brandt" in second
    assert "day 100 " not in second
    assert len(second) < 2 * LETTERS + 200
    assert "golden compass" in third
    assert [len(texts(service, context, place)) for place in ("1", "2", "3")] == [1, 2, 3]
    *_, cut = texts(service, context, "2/50")
    assert "day 48 " in cut
    assert not any(later in cut for later in ("day 49 ", "Captain Brandt", "drowned"))
    *_, cut = texts(service, context, "3/1")
    assert "drowned" in cut
    assert "golden compass" not in cut


def test_a_document_without_chapters_is_summed_up_in_stretches(service: Service, tmp_path: Path) -> None:
    path = tmp_path / "Plain.txt"
    path.write_text("\n\n".join([LONG] * 6))
    context = add_context(service, *map(service.store.documents.get, add(service, path)))
    parts = parts_of(context, "", service.document_cache)
    assert [part.title for part in parts[:2]] == ["sections 1-2", "sections 3-4"]
    assert len(parts) > 3
    assert [part.page for part in parts] == sorted({part.page for part in parts})


def keep(service: Service, context: ContextRow, pages: str, said: str) -> None:
    found = Finding(Place(context.id, pages), QUESTION, (), said)
    service.store.measurements.add(KIND, context.id, {**asdict(found), "shape": SHAPE.name})


def test_only_sentences_that_rest_on_the_chapter_are_told(service: Service, book: Path) -> None:
    context = add_context(service, *map(service.store.documents.get, add(service, book)))
    first, second, third = parts_of(context, "", service.document_cache)
    said = (
        "Maren Hollis kept the lamp at Cape Orlen. Captain Brandt died in the evening of 1714. She wrote a diary every"
    )
    keep(service, context, first.pages, said)
    keep(service, context, third.pages, "Maren Hollis found the golden compass. Tobias Renn drowned in the harbour.")
    one, two, three = known_recap(service, context)
    assert one.sentences == ("Maren Hollis kept the lamp at Cape Orlen.",), "nothing there comes close to the second"
    assert two.sentences is None, "not asked yet"
    keep(service, context, second.pages, "Captain Brandt died in the Mediterranean. A dragon of Numidia came.")
    assert known_recap(service, context)[1].sentences == ("“It ended with the death of Captain Brandt.”",), "quoted"
    assert three.sentences == ("Tobias Renn drowned in the harbour.",), "nor to the first"
    assert [each.title for each in known_recap(service, context, "1")] == ["The Lamp"]
    html = recap_html([one, two, three], None)
    assert "Tobias Renn drowned" in html
    assert "The Watch" not in html


def test_numbers_of_a_sentence_stand_in_one_sentence(service: Service, tmp_path: Path) -> None:
    path = tmp_path / "Harbour.md"
    path.write_text(
        "# Harbour\n\nThe harbour of Orlen counted 412 fishing boats.\n\nThe lighthouse of Orlen was built in 1871."
        "\n\n# Hill\n\nNobody lives on the hill."
    )
    context = add_context(service, *map(service.store.documents.get, add(service, path)))
    first, _ = parts_of(context, "", service.document_cache)
    for said, told in (
        ("The lighthouse of Orlen counted 412 boats in 1871.", "“The harbour of Orlen counted 412 fishing boats.”"),
        ("The harbour of Orlen had 412 fishing boats.", "The harbour of Orlen had 412 fishing boats."),
    ):
        keep(service, context, first.pages, said)
        assert known_recap(service, context)[0].sentences == (told,)


def test_a_recap_goes_on_where_it_was_stopped_and_makes_way(service: Service, book: Path) -> None:
    context = read_through(service, add(service, book))

    def stop_second() -> None:
        if service.store.measurements.newest(KIND, context.id):
            raise Stopped

    task = recap(service, context, "2")
    stopped = sweep(service, task, stop_second)
    assert [part["title"] for part in task.told([next(stopped)])["parts"]] == ["The Lamp"]
    with pytest.raises(Stopped):
        next(stopped)
    worker = Worker(service)
    job = worker.recap(context.id, "3")
    assert job is not None
    assert worker.recap(context.id, "3") == job, "it is under way"
    work_once(worker)
    done = service.store.jobs.get(job.id)
    assert (done.kind, done.status, done.done, done.total) == (RECAP, "done", 3, 3)
    assert len(service.store.measurements.newest(KIND, context.id)) == 3, "nothing was asked twice"
    assert all(part.sentences is not None for part in known_recap(service, context))
    assert service.store.sessions.all() == []
