"""Time, memory and room are foretold for a text, or for a book while there is none."""

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

import engine
from app.errors import AppError
from app.formatting import time_in_words
from app.machine.forecast import (
    BOOK_TOKENS,
    Measured,
    forecast_text,
    reading_plan,
    room_here,
    slowdown,
    time_told,
)
from app.service import Service


def free_memory(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=size, total=size))


def test_room_is_told_before_there_is_a_text(service: Service, tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def said(method: str, name: str = str(tiny), *, loaded: bool = False, **settings: Any) -> str:
        return room_here(name, engine.make_method(method, **settings), service.home, "cpu", loaded=loaded)

    any_length = r"There is room for a text of any length\. A book of 300 pages takes .+ to read\."
    assert re.fullmatch(any_length, said("infinipot"))
    free_memory(monkeypatch, 6_000_000)
    weights_count, loaded = (pages_in(said("full", loaded=loaded)) for loaded in (False, True))
    assert 0 < weights_count <= loaded < 100
    assert pages_in(said("full", f"{tiny}:8bit")) >= weights_count
    assert "takes" not in said("full"), "a book has no room"
    free_memory(monkeypatch, 100_000)
    with pytest.raises(AppError, match=r"tokens with infinipot needs .* of memory, and there are 100.0 kB"):
        said("infinipot")
    free_memory(monkeypatch, 10**10)
    monkeypatch.setattr("sessions.files.shutil.disk_usage", lambda path: SimpleNamespace(free=10**6))
    assert pages_in(said("exact")) < 15  # 256 bytes a token have to be saved
    assert service.models.held is None
    assert "is not on this computer yet" in said("full", "nobody/has-this")  # and nobody is asked for it


def pages_in(line: str) -> int:
    found = re.match(r"There is room for about ([\d,]+) pages", line)
    assert found, line
    return int(found[1].replace(",", ""))


def test_a_text_is_told_with_its_time_memory_and_doubts(
    service: Service, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.getloadavg", lambda: (0.0, 0.0, 0.0))
    method = engine.make_method("exact", budget=512)
    plan, seconds = reading_plan(str(tiny), method, BOOK_TOKENS, service.home, "cpu", loaded=False)
    assert seconds is not None
    line, doubt = forecast_text("Kim and 2 more · about 450 pages", plan, seconds, 4_096)
    expected = rf"Kim and 2 more · about 450 pages · {re.escape(time_in_words(seconds))} · [\d.]+ MB · it fits"
    assert re.fullmatch(expected, line)
    assert doubt == ""
    full, _ = reading_plan(str(tiny), engine.make_method("full"), 9_000, service.home, "cpu", loaded=False)
    assert (
        "trained for shorter texts (4,096 tokens; this has about 9,000)"
        in forecast_text("A · 1 page", full, 1, 4_096)[1]
    )


def test_the_last_reading_corrects_the_plan(service: Service, tiny: Path) -> None:
    method = engine.make_method("infinipot", budget=512)

    def told(tokens: int, measured: Measured | None = None) -> float:
        seconds = reading_plan(str(tiny), method, tokens, service.home, "cpu", loaded=False, measured=measured)[1]
        assert seconds is not None
        return seconds

    planned = told(20_000)
    assert told(20_000, Measured(method, 20_000, 3 * planned)) == pytest.approx(3 * planned)
    slower = told(60_000, Measured(method, 20_000, 3 * planned))
    assert slower == pytest.approx(3 * told(60_000))


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (None, ""),
        (0.2, "a few seconds"),
        (27, "about 30 seconds"),
        (58, "about 1 minute"),
        (150, "about 2 minutes"),
        (5_000, "about 83 minutes"),
        (9_000, "about 2 hours"),
    ],
)
def test_times_are_told_roughly(seconds: float | None, words: str) -> None:
    assert time_in_words(seconds) == words


def test_a_busy_machine_is_told_as_a_range() -> None:
    """A reading was foretold to take 2 minutes beside other work, and took 6."""
    assert slowdown(0.5, 2) == 1.0
    assert slowdown(4.0, 2) == 3.0
    assert time_told(120, 3.0, loaded=True) == (
        "about 2 minutes, or about 6 minutes while this computer is as busy as now"
    )
    assert time_told(120, 1.0, loaded=False) == "about 2 minutes, after the model is loaded"
    assert time_told(3, 1.2, loaded=True) == "a few seconds"
    assert time_told(None, 3.0, loaded=False) == ""
