"""E-mail of several parts: the parts that are read, and those that are named as unread."""

import struct
from email.message import EmailMessage
from pathlib import Path

import pytest

from ingest import Document
from tests.ingest import makers


def mail(subject: str = "") -> EmailMessage:
    """Return a message to add parts to."""
    message = EmailMessage()
    message["Subject"] = subject
    message["MIME-Version"] = "1.0"
    return message


def leaf(text: str, kind: str = "plain", **how: str) -> EmailMessage:
    """Return a text part. how: arguments of `set_content`."""
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
    """HTML was preferred, so the forwarded mail was read instead of this one."""
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
    """Apple Mail puts files between the parts of the text; only the first part was read, silently."""
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
    strict = EmailMessage()
    strict.set_content(b"<p>Strict.</p>", "application", "xhtml+xml", disposition="inline")
    assert read(tmp_path, many("related", strict, frame)).text == "Strict."
    late = many("related", frame, page)
    late.set_param("start", "<Page>")
    assert read(tmp_path, late).text == "Page."


def test_many_files_are_counted(tmp_path: Path) -> None:
    files = [pdf(f"{number}.pdf") for number in range(15)]
    document = read(tmp_path, many("mixed", leaf("Words."), *files))
    names = ", ".join(f"{number}.pdf" for number in range(12))
    assert document.warnings == (f"Attached and not read: {names} and 3 more. Save what you need and add it.",)


def raw(folder: Path, name: str, *lines: str) -> Document:
    return makers.read(folder / name, "\n".join(lines))


def test_text_of_every_kind_is_read(tmp_path: Path) -> None:
    """A table, a patch or Markdown within a mail was left out silently."""
    assert read(tmp_path, leaf("The lamp\nis *lit*.", "markdown")).text == "The lamp\nis *lit*."
    table = leaf("ship,guns\nLark,7\n", "csv")
    patch = leaf("-old\n+  new\n", "x-patch", filename="a.patch", disposition="inline")
    document = read(tmp_path, many("mixed", leaf("<p>See.</p>", "html"), table, patch))
    assert (document.text, document.warnings) == ("See.\n\nship,guns\nLark,7\n\n-old\n+  new", ())


def test_whatever_else_is_not_read_is_named(tmp_path: Path) -> None:
    """Only files were named."""
    rich, picture, data = leaf("{\\rtf1 Words}", "rtf"), EmailMessage(), EmailMessage()
    picture.set_content(b"GIF89a", "image", "gif")
    data.set_content(b"{}", "application", "json")
    document = read(tmp_path, many("mixed", leaf("Words."), rich, picture, data, data, leaf("<p> </p>", "html")))
    assert document.text == "Words."
    assert document.warnings == (
        "Attached and not read: text/rtf, image/gif, application/json. Save what you need and add it.",
    )


def test_neither_alternatives_nor_the_looks_of_a_page_are_missed(tmp_path: Path) -> None:
    plain, rich, frame = leaf("Plain."), leaf("<p>Rich.</p>", "html"), leaf("<p>Frame.</p>", "html")
    invitation, style, picture = leaf("BEGIN:VCALENDAR", "calendar"), leaf("p { margin: 0 }", "css"), EmailMessage()
    picture.set_content(b"GIF89a", "image", "gif")
    for parts, text in (([plain, invitation], "Plain."), ([plain, rich, invitation], "Rich.")):
        document = read(tmp_path, many("alternative", *parts))
        assert (document.text, document.warnings) == (text, ())
    document = read(tmp_path, many("related", rich, picture, style))
    assert (document.text, document.warnings) == ("Rich.", ())
    document = read(tmp_path, many("related", leaf("<frameset>", "html"), style, frame))
    assert (document.text, document.warnings) == ("Frame.", ())
    document = read(tmp_path, many("related", rich, frame, leaf("<script>no()</script>", "html")))
    assert document.text == "Rich."
    assert document.warnings == ("Attached and not read: text/html. Save what you need and add it.",)


def test_parts_whose_border_is_not_named_are_text(tmp_path: Path) -> None:
    head = ("MIME-Version: 1.0", "Content-Type: multipart/mixed; boundary=x", "", "--x")
    lost = ("Content-Type: multipart/alternative", "", "The lamp.", "--x", "", "The ship.", "--x--")
    assert raw(tmp_path, "a.eml", *head, *lost).text == "The lamp.\n\nThe ship."


def test_the_lines_above_a_mail_are_those_of_any_sender(tmp_path: Path) -> None:
    """A sender without an address was taken for a browser."""
    body = ("Subject: Lamps", "MIME-Version: 1.0", "", "Lit.")
    assert raw(tmp_path, "a.eml", "From: MAILER-DAEMON", *body).text == "From: MAILER-DAEMON\nSubject: Lamps\n\nLit."
    for browser in ("<Saved by Blink>", '"Saved by WebKit"'):
        assert raw(tmp_path, "a.mht", f"From: {browser}", *body).text == "Lit."


@pytest.mark.parametrize("start", ["", "\ufeff"], ids=["plain", "byte order mark"])
@pytest.mark.parametrize("version", [(), ("MIME-Version: 1.0",)], ids=["without a version", "with one"])
def test_a_mail_is_known_by_its_name_and_its_first_lines(tmp_path: Path, start: str, version: tuple[str, ...]) -> None:
    """Without MIME-Version it was plain text: markup, base64 and all."""
    first = (f"{start}Received: from a", "\tby b", "From: a@b.c", "Subject: =?utf-8?b?TGFtcHM=?=", *version)
    coded = ("Content-Type: text/html", "Content-Transfer-Encoding: base64", "", "PHA+TGl0LjwvcD4=")
    document = raw(tmp_path, "a.eml", *first, *coded)
    assert (document.format, document.title, document.warnings) == ("eml", "Lamps", ())
    assert document.text == "From: a@b.c\nSubject: Lamps\n\nLit."
    saved = raw(tmp_path, "a.mht", "Content-Type: text/html", *version, "", "<p>Lit.</p>")
    assert (saved.format, saved.text) == ("mhtml", "Lit.")


def test_what_only_begins_like_a_mail_is_none(tmp_path: Path) -> None:
    assert raw(tmp_path, "a.txt", "From: a@b.c", "", "Lit.").format == "txt"
    assert raw(tmp_path, "a.eml", "Dear Anne,", "From: there", "", "Lit.").format == "txt"


def saved_page(*pages: tuple[str, str, str]) -> bytes:
    parts = "".join(
        f"--B\nContent-Type: text/html\nContent-ID: <{identity}>\nContent-Location: {place}\n\n"
        f"<html><body>{body}</body></html>\n\n"
        for identity, place, body in pages
    )
    head = 'From: <Saved by Blink>\nMIME-Version: 1.0\nContent-Type: multipart/related; boundary="B"\n\n'
    return f"{head}{parts}--B--\n".encode()


def test_the_frames_of_a_saved_page_are_read_where_they_stand(tmp_path: Path) -> None:
    top = "<p>Above.</p><iframe src='cid:b@x'></iframe><p>Below.</p><iframe src='more/c.html'></iframe>"
    pages = (
        ("a@x", "http://e.org/a.html", top),
        ("c@x", "http://e.org/more/c.html", "<p>Last.</p>"),
        ("b@x", "http://e.org/b.html", "<p>Within.</p><iframe src='cid:b@x'></iframe><iframe src='cid:a@x'></iframe>"),
    )
    document = makers.read(tmp_path / "a.mhtml", saved_page(*pages))
    assert document.text == "Above.\n\nWithin.\n\nBelow.\n\nLast."
    assert document.warnings == ()
    document = makers.read(tmp_path / "b.mhtml", saved_page(pages[0], ("d@x", "http://e.org/d.html", "<p>Alone.</p>")))
    assert document.text == "Above.\n\nBelow."
    assert "Attached and not read: text/html" in document.warnings[0]


def tnef(*attributes: tuple[int, bytes]) -> bytes:
    """Return a mail as Outlook packs it, of attributes (kind, value)."""
    parts = (struct.pack("<BLL", 1, kind, len(value)) + value + b"\0\0" for kind, value in attributes)
    return b"\x78\x9f\x3e\x22\x01\x00" + b"".join(parts)


def properties(*values: tuple[int, int, bytes]) -> bytes:
    """Return properties (number, type, value) of varying size, and one of a fixed size before them."""
    whole = struct.pack("<LHHL", len(values) + 2, 0x03, 0x3FDE, 65001)
    whole += struct.pack("<HH16sLL6s2xL", 0x03, 0x8001, b"G" * 16, 1, 6, "own".encode("utf-16-le"), 7)
    for number, kind, value in values:
        whole += struct.pack("<HHLL", kind, number, 1, len(value)) + value + b"\0" * (-len(value) % 4)
    return whole


@pytest.mark.parametrize(
    ("attributes", "text"),
    [
        (
            [(0x00069007, struct.pack("<L", 1251)), (0x0002800C, "Паром.\r\n\r\nКлюч.\0".encode("cp1251"))],
            "Паром.\n\nКлюч.",
        ),
        ([(0x00069003, properties((0x1013, 0x102, "<p>Das <b>Boot</b> fährt.".encode())))], "Das Boot fährt."),
        ([(0x00069003, properties((0x1000, 0x1F, "The key.\0".encode("utf-16-le"))))], "The key."),
        (
            [(0x00069003, properties((0x1009, 0x102, struct.pack("<LL4sL", 23, 11, b"MELA", 0) + rb"{\rtf1 Key}")))],
            "Key",
        ),
    ],
)
def test_the_words_in_a_winmail_dat_are_read(tmp_path: Path, attributes: list[tuple[int, bytes]], text: str) -> None:
    file = [(0x00069002, b"\0" * 14), (0x00018010, b"PLAN~1.PDF\0")]
    file += [(0x00069005, properties((0x3707, 0x1F, "plan of the mill.pdf".encode("utf-16-le"))))]
    for said, expected in (("", text), ("In words.", "In words.")):
        message = EmailMessage()
        message.set_content(said)
        message.add_attachment(
            tnef(*attributes, *file), maintype="application", subtype="ms-tnef", filename="winmail.dat"
        )
        document = read(tmp_path, message)
        assert document.text == expected
        assert "Attached and not read: plan of the mill.pdf." in document.warnings[0]
    cut = tnef(*attributes)[:-9]
    message = EmailMessage()
    message.set_content("Cut.")
    message.add_attachment(cut, maintype="application", subtype="ms-tnef", filename="winmail.dat")
    assert read(tmp_path, message).text == "Cut."
