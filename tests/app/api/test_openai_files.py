"""Files through the real `openai` client: sent, read, asked about, listed and deleted."""

from pathlib import Path
from typing import Any

import openai
import pytest
from openai.types import FileObject

from tests.app.helpers import PATIENCE_SEC, Server, book_text
from tests.ingest.makers import pdf


def send(client: openai.OpenAI, name: str, data: bytes) -> FileObject:
    sent = client.files.create(file=(name, data), purpose="user_data")
    assert (sent.object, sent.filename, sent.bytes, sent.status) == ("file", name, len(data), "uploaded")
    return client.files.wait_for_processing(sent.id, poll_interval=0.2, max_wait_seconds=PATIENCE_SEC)


def test_a_file_is_sent_read_asked_about_and_deleted(client: openai.OpenAI, server: Server) -> None:
    before = [server.get("/api/contexts"), server.get("/api/documents")]
    known = send(client, "The Boat.txt", book_text(10).encode())
    assert known.status == "processed"
    assert client.files.content(known.id).text.strip() == book_text(10).strip()
    part: Any = [{"type": "file", "file": {"file_id": known.id}}, {"type": "text", "text": "Who kept it?"}]
    whole: Any = client.chat.completions.create(
        model="gpt-4o", messages=[{"role": "user", "content": part}], max_tokens=4
    )
    context: Any = known.model_extra and known.model_extra["model"]
    assert server.get(f"/api/sessions/{whole.session}")["context_id"] == context
    again = client.chat.completions.create(
        model=context, messages=[{"role": "user", "content": "Who kept it?"}], max_tokens=4
    )
    assert again.choices[0].message.content == whole.choices[0].message.content
    asked: Any = [{"type": "input_file", "file_id": known.id}, {"type": "input_text", "text": "Who kept it?"}]
    first = client.responses.create(model="gpt-4o", input=[{"role": "user", "content": asked}], max_output_tokens=4)
    assert first.output_text == (whole.choices[0].message.content or "").strip()
    second = client.responses.create(
        model="gpt-4o", input="And where?", previous_response_id=first.id, max_output_tokens=4
    )
    turns = [server.get(f"/api/turns/{each.id}")["session_id"] for each in (first, second)]
    assert turns[0] == turns[1]
    assert client.files.delete(known.id).deleted
    for id in (known.id, "j-none"):
        with pytest.raises(openai.NotFoundError, match="GET /v1/files lists all"):
            client.files.retrieve(id)
    assert [server.get("/api/contexts"), server.get("/api/documents")] == before


def test_files_are_listed_in_pages_and_a_broken_one_says_why(
    client: openai.OpenAI, server: Server, tmp_path: Path
) -> None:
    page = pdf(tmp_path / "page.pdf", [[(72.0, 72.0, "The lamp was lit at six.")]]).read_bytes()
    printed = send(client, "page.pdf", page)
    assert client.files.content(printed.id).read() == page
    broken = send(client, "broken.pdf", b"%PDF-1.7 and nothing else")
    assert broken.status == "error"
    assert "broken.pdf" in (broken.status_details or "")
    named: Any = [{"type": "file", "file": {"file_id": broken.id}}, {"type": "text", "text": "Why?"}]
    with pytest.raises(openai.BadRequestError, match=r"broken.pdf could not be read"):
        client.chat.completions.create(model="any", messages=[{"role": "user", "content": named}])
    with pytest.raises(openai.BadRequestError, match=r"broken.pdf could not be read"):
        client.files.content(broken.id)
    assert [each.id for each in client.files.list(limit=1)] == [broken.id, printed.id]  # two pages
    assert [each.id for each in client.files.list(order="asc", purpose="user_data")] == [printed.id, broken.id]
    assert list(client.files.list(purpose="batch")) == []
    with pytest.raises(openai.BadRequestError, match="for the purpose user_data or assistants, not 'batch'"):
        client.files.create(file=("page.pdf", page), purpose="batch")
    twin = send(client, "page.pdf", page)
    client.files.delete(twin.id)  # what was read of it is also that of the first one
    assert client.files.retrieve(printed.id).status == "processed"
    for each in (printed, broken):
        client.files.delete(each.id)
    assert list(client.files.list()) == []


@pytest.mark.parametrize(
    ("part", "sentence"),
    [
        ({"type": "input_file", "file_data": "data:;base64,AAAA"}, "send the file itself to /v1/files first"),
        ({"type": "input_file", "file_id": "j-none", "file_data": "data:;base64,AAAA"}, "by its file_id alone"),
        ({"type": "input_file", "file_id": 7}, r"it: input\.0\.content\.0\.file_id: Input should be a valid string\."),
        ({"type": "input_image", "image_url": "data:"}, "text or files, not input_image"),
    ],
)
def test_a_message_with_what_is_no_sent_file_is_refused(client: openai.OpenAI, part: Any, sentence: str) -> None:
    asked: Any = [part, {"type": "input_text", "text": "Who?"}]
    with pytest.raises(openai.BadRequestError, match=sentence):
        client.responses.create(model="any", input=[{"role": "user", "content": asked}])
