"""E-mail of several parts: what is read of it, and what is named as not read."""

from email.message import EmailMessage
from pathlib import Path

from ingest import Document
from tests.ingest import makers


def mail(subject: str = "") -> EmailMessage:
    """A message to put parts into."""
    message = EmailMessage()
    message["Subject"] = subject
    message["MIME-Version"] = "1.0"
    return message


def leaf(text: str, kind: str = "plain", **how: str) -> EmailMessage:
    """A part of text; how: as `set_content` takes it."""
    part = EmailMessage()
    part.set_content(text, subtype=kind, **how)
    return part


def pdf(name: str, disposition: str = "inline") -> EmailMessage:
    part = EmailMessage()
    part.set_content(b"%PDF-1.7", "application", "pdf", filename=name, disposition=disposition)
    return part


def many(kind: str, *parts: EmailMessage) -> EmailMessage:
    message = mail("Lamps")
    message["Content-Type"] = f"multipart/{kind}"
    message.set_payload(list(parts))
    return message


def read(folder: Path, message: EmailMessage) -> Document:
    return makers.read(folder / "a.eml", message.as_bytes())


def test_a_mail_in_plain_text_is_not_lost_to_the_html_that_it_forwards(tmp_path: Path) -> None:
    """Of both, HTML was looked for first: the forwarded mail was read, as if it were this one."""
    forwarded = mail("The old lamp")
    forwarded.set_content("<p>Forwarded words.</p>", subtype="html")
    for disposition in ("attachment", "inline"):
        message = mail("Lamps")
        message.set_content("See what Anne wrote.")
        message.add_attachment(forwarded, disposition=disposition)
        document = read(tmp_path, message)
        assert document.text == "See what Anne wrote."
        assert document.warnings == ("Attached and not read: The old lamp. Save what you need and add it.",)


def test_a_bounce_is_what_the_mail_server_says(tmp_path: Path) -> None:
    returned = mail("Hello")
    returned.set_content("<p>Returned words.</p>", subtype="html")
    whole, status = EmailMessage(), EmailMessage()
    whole.set_content(returned)
    del whole["Content-Disposition"]
    status["Content-Type"] = "message/delivery-status"
    status.set_payload([mail(), mail()])
    document = read(tmp_path, many("report", leaf("Nobody of that name."), status, whole))
    assert document.text == "Nobody of that name."
    assert document.warnings == ("Attached and not read: Hello. Save what you need and add it.",)


def test_what_follows_a_file_within_the_text_is_read(tmp_path: Path) -> None:
    """Apple Mail puts files between the parts of the text, of which only the first was read, without a word."""
    rich = many("mixed", leaf("<p>Before.</p>", "html"), pdf("plan.pdf"), leaf("<p>After.</p>", "html"))
    plain = leaf("Before.\n\nAfter.")
    for message in (rich, many("alternative", plain, rich), many("mixed", many("alternative", plain, rich))):
        document = read(tmp_path, message)
        assert document.text == "Before.\n\nAfter."
        assert document.warnings == ("Attached and not read: plan.pdf. Save what you need and add it.",)
    footer = read(tmp_path, many("mixed", leaf("<p>Words.</p>", "html"), leaf("To unsubscribe, write to the list.")))
    assert footer.text == "Words.\n\nTo unsubscribe, write to the list."


def test_of_alternatives_one_is_read(tmp_path: Path) -> None:
    plain, rich, empty = leaf("Plain."), leaf("<p>Rich.</p>", "html"), leaf("<p> </p>", "html")
    for parts in ([plain, rich], [rich, plain], [plain, many("related", rich, pdf("lamp.pdf"))]):
        assert read(tmp_path, many("alternative", *parts)).text == "Rich."
    assert read(tmp_path, many("alternative", plain, empty)).text == "Plain."
    assert read(tmp_path, many("alternative", leaf("Worse."), leaf("Better."))).text == "Better."


def test_of_a_page_with_what_belongs_to_it_the_page_is_read_or_else_its_frames(tmp_path: Path) -> None:
    page, frame, other = (leaf(f"<p>{words}.</p>", "html", cid=f"<{words}>") for words in ("Page", "Frame", "Other"))
    empty = leaf("<frameset><frame src=b.html></frameset>", "html")
    assert read(tmp_path, many("related", page, frame, other)).text == "Page."
    assert read(tmp_path, many("related", empty, frame, pdf("lamp.pdf"), other)).text == "Frame.\n\nOther."
    late = many("related", frame, page)
    late.set_param("start", "<Page>")
    assert read(tmp_path, late).text == "Page."


def test_many_files_are_counted(tmp_path: Path) -> None:
    files = [pdf(f"{number}.pdf") for number in range(15)]
    document = read(tmp_path, many("mixed", leaf("Words."), *files))
    names = ", ".join(f"{number}.pdf" for number in range(12))
    assert document.warnings == (f"Attached and not read: {names} and 3 more. Save what you need and add it.",)
