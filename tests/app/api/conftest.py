"""A server with one document, and the real `openai` client to it."""

from collections.abc import Iterator
from typing import Any

import openai
import pytest

from tests.app.helpers import PATIENCE_SEC, Server, book_text


@pytest.fixture(scope="package")
def server(tmp_path_factory: pytest.TempPathFactory, tiny: Any) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("clients") / "home", str(tiny)).start()
    server.read(("The Lamp.txt", book_text(12).encode()), method="exact", budget="320")
    yield server
    server.stop()


@pytest.fixture(scope="package")
def client(server: Server) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="any", timeout=PATIENCE_SEC, max_retries=0) as client:
        yield client
