"""Helpers of the app's tests: a book with facts in it, a server, and the command line in this process."""

import json
import os
import random
import signal
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from app.asking.answer_options import AnswerOptions
from app.cli import main
from app.jobs.uploads import copy_in
from app.jobs.worker import Worker
from app.reading import readings
from app.reading.documents import IngestOptions, add_documents
from app.reading.preparing import prepare
from app.reading.readings import read
from app.service import Service
from sessions import UNDER_WAY, ContextRow, DocumentRow, JobRow, Store
from tests.app.forked import start_program

ROOT = Path(__file__).resolve().parents[2]
SETTINGS = {"budget": 320}
BUDGET = {"budget": "320"}  # as people type it
SHORT = AnswerOptions(max_tokens=12)
TOO_WIDE = {"budget": 320, "top_k": 300}
"""Settings of `exact` that leave no room for a question."""
TIERS = {"device", "host", "disk"}
QWEN = {
    "model_type": "qwen2",
    "architectures": ["Qwen2ForCausalLM"],
    "hidden_size": 3584,
    "intermediate_size": 18944,
    "num_hidden_layers": 28,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "vocab_size": 152064,
    "max_position_embeddings": 131072,
    "dtype": "bfloat16",
    "tie_word_embeddings": False,
}
PATIENCE_SEC = 240.0
"""Seconds after which a test counts as hanging; a busy slow machine takes ten times as long as a good one."""
FACTS = (
    "The lighthouse at Cape Orlen was built in 1872 by Tobias Renn. Its keeper was Maren Hollis, who kept a diary.",
    "“The lamp must never go dark,” she wrote on her first evening. The pass key of the vault is 48213.",
)


def book_text(paragraphs: int) -> str:
    """Return a text with two facts in the middle of plain prose."""
    filler = [f"On day {n} the sea was calm, and the fox slept under boat number {n}." for n in range(paragraphs)]
    middle = paragraphs // 2
    return "\n\n".join([*filler[:middle], *FACTS, *filler[middle:]])


def other_words(patch: pytest.MonkeyPatch) -> None:
    """Change the instruction that is put before every text."""
    opening = [{"role": "system", "content": "Read this. <<text>>"}, {"role": "user", "content": "<<question>>"}]
    patch.setattr("engine.models.chat.OPENINGS", (opening,))


class Cli(NamedTuple):
    """The first options of commands."""

    home: Path
    model: str


class Server:
    """`stockpot serve` in a process of its own."""

    def __init__(self, home: Path, model: str, program: str = "tests.app.slow") -> None:
        self.home, self.model, self.program = home, model, program
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.process: ForkServerProcess | None = None
        self._held = home.parent / "held"

    def start(self) -> "Server":
        self.home.mkdir(parents=True, exist_ok=True)
        given = ["--home", str(self.home), "--model", self.model, "serve", "--no-introductions"]  # nothing by itself
        log = str(self.home.parent / "server.log")
        port = ["--port", str(self.port)]
        self.process = start_program(self.program, [str(self._held), *given, *port], stdout=log, stderr=log)
        try:
            wait_for(lambda: self._healthy(), "the server to answer")  # fails at once if the server died
        except BaseException:
            self.stop(signal.SIGKILL)
            raise
        return self

    def _healthy(self) -> bool:
        assert self.process is not None
        assert self.process.is_alive(), (self.home.parent / "server.log").read_text()
        try:
            return bool(self.get("/healthz")["status"] == "ok")
        except (urllib.error.URLError, ConnectionError):
            return False

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        if self.process is not None and self.process.is_alive():
            os.kill(self.process.pid or 0, how)
            self.process.join(PATIENCE_SEC)
        self.process = None

    @contextmanager
    def held_back(self, how: str = "") -> Iterator[None]:
        """Keep readings and answers under way meanwhile; afterwards they go on as fast as they can.

        how: slow.FULL to let memory end after the first pass of a reading instead.
        """
        self._held.write_text(how)
        try:
            yield
        finally:
            self._held.unlink()

    def get(self, path: str) -> Any:
        with urllib.request.urlopen(self.url + path, timeout=PATIENCE_SEC) as answer:
            return json.loads(answer.read())

    def text(self, path: str) -> str:
        with urllib.request.urlopen(self.url + path, timeout=PATIENCE_SEC) as answer:
            return str(answer.read().decode())

    def send(self, path: str, body: Any = None, method: str = "POST") -> Any:
        """Send JSON; return the response, or {"status": ..., "error": ...} if it was refused."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, {"Content-Type": "application/json"}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE_SEC) as answer:
                return json.loads(answer.read())
        except urllib.error.HTTPError as error:
            with error:
                return {"status": error.code, **json.loads(error.read())}

    def upload(self, *files: tuple[str, bytes], **fields: str) -> Any:
        """Send files as a form and return the job."""
        edge, lines = "stockpot-test-edge", []
        for name, value in fields.items():
            lines += [f'--{edge}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'.encode()]
        for name, data in files:
            head = f'--{edge}\r\nContent-Disposition: form-data; name="files"; filename="{name}"\r\n\r\n'
            lines += [head.encode(), data, b"\r\n"]
        body = b"".join([*lines, f"--{edge}--\r\n".encode()])
        request = urllib.request.Request(
            self.url + "/api/contexts", body, {"Content-Type": f"multipart/form-data; boundary={edge}"}
        )
        with urllib.request.urlopen(request, timeout=PATIENCE_SEC) as answer:
            return json.loads(answer.read())

    def read(self, *files: tuple[str, bytes], **fields: str) -> dict[str, Any]:
        """Upload, wait until all is read, and return the context."""
        job = self.upload(*files, **fields)
        return self.context_of(job["id"], "ready")

    def context_of(self, job_id: str, *statuses: str) -> dict[str, Any]:
        """Return the context of an upload, once it has one of these statuses."""
        wait_for(lambda: self.get(f"/api/jobs/{job_id}")["status"] in ("done", "failed"), "the upload to be ingested")
        job = self.get(f"/api/jobs/{job_id}")
        assert job["status"] == "done", job["error"]
        path = f"/api/contexts/{job['progress']['context']}"
        wait_for(lambda: self.get(path)["status"] in statuses, f"the context to be {statuses}")
        found: dict[str, Any] = self.get(path)
        return found

    def answered(self, turn_id: str) -> dict[str, Any]:
        """Return the turn, once it has ended."""
        wait_for(lambda: self.get(f"/api/turns/{turn_id}")["status"] != "answering", "the answer")
        found: dict[str, Any] = self.get(f"/api/turns/{turn_id}")
        return found


def free_port() -> int:
    """Return a free port that the system gives to no connection before a server listens there."""
    while True:
        port = random.SystemRandom().randrange(20_000, 30_000)
        with socket.socket() as free:
            try:
                free.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port


def wait_for(what: Callable[[], bool], name: str) -> None:
    """Wait until a condition holds, and look ever less often; fail the test if it never does."""
    deadline, pause = time.monotonic() + PATIENCE_SEC, 0.01
    while not what():
        assert time.monotonic() < deadline, f"waited {PATIENCE_SEC:.0f} s for {name}"
        time.sleep(pause)
        pause = min(1.2 * pause, 0.2)  # a look at a server takes its time from what is waited for


def in_process(home: Path, capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """Return status, standard output and standard error of a command run in this process, which is faster."""
    try:
        status = main(["--home", str(home), *arguments])
    except SystemExit as ended:
        status = int(ended.code or 0)
    out = capsys.readouterr()
    return status, out.out, out.err


def upload(service: Service, tmp_path: Path, name: str, data: bytes) -> list[Path]:
    original = tmp_path / "original"
    original.write_bytes(data)
    with original.open("rb") as handle:
        return copy_in(service.home, [(name, handle)])


def ended(service: Service, job_id: str) -> str:
    """Return how a job ended. Leftovers such as the files of an upload may be removed a moment later."""
    wait_for(lambda: service.store.jobs.get(job_id).status not in UNDER_WAY, f"job {job_id}")
    return service.store.jobs.get(job_id).status


def work_once(worker: Worker) -> None:
    """Run the next job of a worker whose threads do not run."""
    if not worker.take_in_once() or worker._waiting:
        worker.work_once()


def answered(service: Service, worker: Worker, session: str, options: AnswerOptions) -> str:
    """Return how the answer to a question in a session ended."""
    turn = worker.ask(lambda: session, "Who was the keeper?", options)
    (job,) = service.store.jobs.all(subject_id=turn.id)
    status = ended(service, job.id)
    assert service.store.turns.get(turn.id).status == status
    return status


def read_book(service: Service, worker: Worker, tmp_path: Path, paragraphs: int, wait: bool = True) -> str:
    files = upload(service, tmp_path, "book.txt", book_text(paragraphs).encode())
    job = worker.ingest(files, "exact", SETTINGS, IngestOptions())
    assert ended(service, job.id) == "done"
    context = str(service.store.jobs.get(job.id).progress["context"])
    if wait:
        wait_for(lambda: service.store.contexts.get(context).status == "ready", "the reading")
    return context


def add(service: Service, *files: Path) -> list[str]:
    """Turn files into documents and return their ids."""
    return [row.id for row in add_documents(service, files, IngestOptions(), lambda *_: None).documents]


def begin(
    service: Service,
    ids: list[str],
    method: str,
    settings: dict[str, Any],
    model: str | None = None,
    warnings: Sequence[str] = (),
    title: str | None = None,
) -> ContextRow:
    """Prepare a reading, and begin it."""
    return readings.begin(service, prepare(service, ids, method, settings, model), warnings, title=title)


def read_through(service: Service, ids: list[str], method: str = "exact", model: str | None = None) -> ContextRow:
    """Read documents to their end."""
    row = begin(service, ids, method, BUDGET, model)
    return read(service, row.id, lambda report: None)


def add_document(service: Service, title: str) -> DocumentRow:
    number = len(service.store.documents.all())
    facts: dict[str, Any] = {"format": "txt", "pages": 1, "characters": 3, "content": {}, "file": None}
    return service.store.documents.add(sha256=f"{number:064x}", title=title, **facts)


def add_context(service: Service, *documents: DocumentRow, **other: Any) -> ContextRow:
    reading: dict[str, Any] = {"model": "pocket", "method": "exact", "settings": {}, "budget": 320, "tokens": 9}
    reading |= other
    number = len(service.store.contexts.all())
    return service.store.contexts.add(**reading, fingerprint=str(number), document_ids=[each.id for each in documents])


def fails(worker: Worker, files: list[Path], *documents: str) -> JobRow:
    """Queue an upload that becomes documents, but cannot be read with these settings, and return its job."""
    job = worker.ingest(files, "exact", TOO_WIDE, IngestOptions(), documents=documents)
    work_once(worker)
    job = worker.service.store.jobs.get(job.id)
    assert (job.status, "top_k" in str(job.error)) == ("failed", True)
    return job


def emma(store: Store) -> ContextRow:
    """Return a context over a document titled Emma; it has no files."""
    facts: dict[str, Any] = {"format": "txt", "pages": 1, "characters": 3, "content": {}, "file": None}
    document = store.documents.add(sha256="0" * 64, title="Emma", **facts)
    reading: dict[str, Any] = {"model": "pocket", "method": "exact", "settings": {}, "budget": 320, "tokens": 9}
    return store.contexts.add(**reading, fingerprint="print", document_ids=[document.id])


def run_main(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str]:
    status = main([str(each) for each in arguments])
    return status, capsys.readouterr().out
