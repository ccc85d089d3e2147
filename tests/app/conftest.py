"""Fixtures of the app's tests: a model, a book with facts in it and a home."""

import io
import json
import threading
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest

from app.cli import main
from app.home import ASSETS
from app.jobs.worker import Worker
from app.service import Service
from tests.app.helpers import Cli, book_text
from tests.app.slow import hold_back
from tests.app.tiny import make_tiny_model


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(scope="session")
def model(tiny: Path) -> str:
    """Return the name of the model that ships, if it has been trained; else the path of the tiny one."""
    return "pocket" if (ASSETS / "pocket" / "config.json").exists() else str(tiny)


@pytest.fixture
def book(tmp_path: Path) -> Path:
    path = tmp_path / "The Keeper.txt"
    path.write_text(book_text(40), encoding="utf-8")
    return path


@pytest.fixture
def service(tmp_path: Path, tiny: Path) -> Iterator[Service]:
    service = Service(tmp_path / "home", str(tiny), "cpu")
    yield service
    service.close()


@pytest.fixture
def worker(service: Service) -> Iterator[Worker]:
    worker = Worker(service)
    worker.start()
    yield worker
    worker.stop()


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Return an event; while it is set, readings and answers stay under way."""
    event = threading.Event()
    hold_back(event.is_set, monkeypatch.setattr)
    return event


@pytest.fixture(scope="module")
def read(tmp_path_factory: pytest.TempPathFactory, model: str) -> tuple[Cli, dict[str, Any], str]:
    """Return a home with one reading: the command line, the output of `ingest --json`, and its standard error."""
    out, err = io.StringIO(), io.StringIO()
    folder = tmp_path_factory.mktemp("cli")
    book = folder / "The Keeper.txt"
    book.write_text(book_text(40), encoding="utf-8")
    cli = Cli(folder / "home", model)
    with redirect_stdout(out), redirect_stderr(err):
        given = ["--home", str(cli.home), "--model", model, "ingest", str(book), "--method", "exact", "--budget", "320"]
        assert main([*given, "--json"]) == 0, err.getvalue()
    return cli, json.loads(out.getvalue()), err.getvalue()
