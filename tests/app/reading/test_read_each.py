"""Reading a library: known files, broken ones, a stop, a full disk, and going on."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from app.reading import documents
from app.reading.documents import IngestOptions
from app.reading.progress import Report
from app.reading.read_each import AHEAD, Outcome, read_each
from app.service import Service
from sessions import DiskFull
from tests.app.helpers import SETTINGS, book_text


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def read(
    service: Service,
    files: list[Path],
    on_report: Callable[[str, Report], None] = lambda name, report: None,
    should_stop: Callable[[], bool] = lambda: False,
    settings: dict[str, Any] = SETTINGS,
) -> dict[str, Outcome]:
    outcomes = list(read_each(service, files, "exact", settings, IngestOptions(), on_report, should_stop))
    assert [each.source for each in outcomes] == [str(each) for each in files]
    return {Path(each.source).name: each for each in outcomes}


@pytest.fixture
def extracted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the names of the files whose text is extracted."""
    names, extract = list[str](), documents.ingest_in_subprocess

    def noting(file: Path, **given: Any) -> Any:
        names.append(file.name)
        return extract(file, **given)

    monkeypatch.setattr(documents, "ingest_in_subprocess", noting)
    return names


def test_a_library_is_read_past_bad_and_known_files_and_goes_on_after_a_stop(
    service: Service, tmp_path: Path, extracted: list[str]
) -> None:
    known = write(tmp_path / "known.txt", "The keeper of the lamp was Maren Hollis.")
    before = read(service, [known])["known.txt"]
    assert (before.state, before.tokens > 0) == ("read", True)
    copy = write(tmp_path / "copy.txt", known.read_text(encoding="utf-8"))
    (torn := tmp_path / "torn.pdf").write_bytes(b"%PDF-1.7 nonsense")
    book = write(tmp_path / "book.txt", book_text(60))
    fox = write(tmp_path / "fox.txt", "The fox slept under boat number 7.")
    files, stopped = [torn, known, copy, book, fox], False

    def on_report(name: str, report: Report) -> None:
        nonlocal stopped
        stopped = name == str(book) and report.tokens_done > 0

    extracted.clear()
    first = read(service, files, on_report, lambda: stopped)
    assert [each.state for each in first.values()] == ["refused", "known", "known", "left", "left"]
    assert "torn.pdf" in first["torn.pdf"].reason
    assert {first[name].context for name in ("known.txt", "copy.txt")} == {before.context}
    assert not {"known.txt", "copy.txt"} & set(extracted)
    [paused] = service.store.contexts.all(first["book.txt"].document)
    assert paused.status == "paused"
    assert 0 < paused.tokens_read < paused.tokens
    extracted.clear()
    again = read(service, files)
    assert [each.state for each in again.values()] == ["refused", "known", "known", "read", "read"]
    assert again["book.txt"].context == paused.id
    assert again["book.txt"].tokens == paused.tokens - paused.tokens_read
    assert not {"known.txt", "copy.txt", "book.txt"} & set(extracted)
    assert len(service.store.contexts.all()) == 3


def test_a_document_read_in_another_way_is_not_known(service: Service, tmp_path: Path) -> None:
    lamp = write(tmp_path / "lamp.txt", "The keeper of the lamp was Maren Hollis.")
    first = read(service, [lamp])["lamp.txt"]
    other = read(service, [lamp], settings={"budget": 384})["lamp.txt"]
    assert (first.state, other.state) == ("read", "read")
    assert (first.document, first.context) != (other.document, other.context)
    assert read(service, [lamp], settings={"budget": 384})["lamp.txt"].context == other.context


def test_the_text_of_what_is_known_is_not_encoded(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lamp = write(tmp_path / "lamp.txt", "The keeper of the lamp was Maren Hollis.")
    first = read(service, [lamp])["lamp.txt"]
    monkeypatch.setattr("app.reading.read_each.prepare", None)  # any call fails
    assert read(service, [lamp])["lamp.txt"].context == first.context
    fox = write(tmp_path / "fox.txt", "The fox slept.")
    assert read(service, [fox])["fox.txt"].state == "refused"


def test_a_full_disk_leaves_the_rest_for_the_next_time(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = [write(tmp_path / f"{n}.txt", f"The fox slept under boat number {n}.") for n in range(AHEAD + 4)]
    add, kept = service.store.contexts.add, []

    def fills(**given: Any) -> Any:
        if len(kept) == 2:
            raise DiskFull(tmp_path, 10, 0)
        kept.append(add(**given))
        return kept[-1]

    monkeypatch.setattr(service.store.contexts, "add", fills)
    outcomes = [*read(service, files).values()]
    assert [each.state for each in outcomes] == ["read"] * 2 + ["left"] * (AHEAD + 2)
    assert all("No room on the disk" in each.reason for each in outcomes[2:])
    monkeypatch.undo()
    assert [each.state for each in read(service, files).values()] == ["known"] * 2 + ["read"] * (AHEAD + 2)


def test_a_model_that_cannot_be_loaded_ends_it(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import engine

    def fails(*given: Any, **more: Any) -> Any:
        raise engine.OutOfMemory("The weights do not fit.")

    monkeypatch.setattr(engine, "load_model", fails)
    files = [write(tmp_path / f"{n}.txt", f"The fox slept under boat number {n}.") for n in range(2)]
    assert [(each.state, each.reason) for each in read(service, files).values()] == [
        ("left", "The weights do not fit.")
    ] * 2
