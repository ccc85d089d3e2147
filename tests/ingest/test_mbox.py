"""Mailboxes: their mails are sections of their own, and what is no mailbox stays what it is."""

import mailbox
from email.message import EmailMessage
from pathlib import Path

import pytest

from ingest import BrokenFile, Document, EmptyDocument, Limits, TooLarge, ingest
from tests.ingest import makers

BORDER = "From anne@a.org Mon Jun  1 10:00:00 2026\n"


def mail(body: str, day: int = 1, subject: str = "Re: Lamps", **headers: str) -> EmailMessage:
    """A mail of Anne's from June 2026."""
    message = EmailMessage()
    message["From"] = "Anne <anne@a.org>"
    message["Date"] = f"{day} Jun 2026 10:00:00 +0000"
    message["Subject"] = subject
    for name, value in headers.items():
        message[name.replace("_", "-")] = value
    message.set_content(body)
    return message


def kept(path: Path, *mails: EmailMessage) -> Path:
    """A mailbox as Python's own library writes it."""
    box = mailbox.mbox(path)
    for each in mails:
        box.add(each)
    box.close()
    return path


def raw(folder: Path, text: str, name: str = "Inbox") -> Document:
    return makers.read(folder / name, text)


def test_every_mail_is_a_section_cited_by_its_subject_and_date(tmp_path: Path) -> None:
    """Mailboxes were plain text before: base64, markup and all."""
    rich = mail("Plain.", 2)
    rich.add_alternative("<h1>Dear all</h1><p>The lamp is out.</p>", subtype="html")
    rich.add_attachment(b"%PDF-1.7", "application", "pdf", filename="plan.pdf")
    document = ingest(kept(tmp_path / "Inbox", mail("Übung.\n\nThe lamp is lit."), rich, mail("Bye.", 3, "")))
    assert (document.title, document.format) == ("Inbox", "mbox")
    labels = ["Re: Lamps (2026-06-01)", "Re: Lamps (2026-06-02)", "No subject (2026-06-03)"]
    assert [page.label for page in document.pages] == [entry.title for entry in document.toc] == labels
    assert document.pages[0].text.splitlines() == [
        "From: Anne <anne@a.org>", "Date: Mon, 01 Jun 2026 10:00:00 +0000", "Subject: Re: Lamps", "",
        "Übung.", "", "The lamp is lit.",
    ]  # fmt: skip
    assert document.pages[1].text.endswith("Dear all\n\nThe lamp is out.")
    assert document.locate(document.text.index("The lamp is out.")).label == "Re: Lamps (2026-06-02), paragraph 3"
    assert document.warnings == ("Attached and not read: plan.pdf. Save what you need and add it.",)


def test_a_line_of_a_mail_begins_no_other(tmp_path: Path) -> None:
    """Writers put ">" before such lines; some forget it."""
    document = ingest(kept(tmp_path / "Inbox", mail("From here on it is dark.\n\n>From the past."), mail("Bye.", 2)))
    assert len(document.pages) == 2
    assert document.pages[0].text.endswith("From here on it is dark.\n\nFrom the past.")
    careless = "Subject: A\n\nFrom here on it is dark.\n\nFrom Mon Jun  1 10:00:00 2026\nit was light.\n"
    document = raw(tmp_path, f"{BORDER}{careless}\n{BORDER}Subject: B\n\nBye.\n", "careless")
    assert [page.label for page in document.pages] == ["A", "B"]
    assert "it was light." in document.pages[0].text


@pytest.mark.parametrize(
    "border",
    [
        BORDER,
        "From 1679@xxx Tue Mar 14 10:11:12 +0000 2023\r\n",  # Gmail's
        "From anne at a.org  Tue Jun  2 09:10:11 2020\n",  # a list's archive
        "From - Thu Jan 02 03:04:05 2025\n",  # Thunderbird's
        "From MAILER-DAEMON Fri Jul  8 12:08 UTC 2011\n",
        "From anne@a.org Mon, 01 Jun 2026 10:00:00 +0000\n",
        "From \r\n",  # Thunderbird's of today
        "\ufeff\nFrom - Thu Jan 02 03:04:05 2025\n",
    ],
)
@pytest.mark.parametrize("name", ["Inbox", "2020-June.txt", "all.mbox", "one.eml"])
def test_a_mailbox_is_known_by_its_first_lines(tmp_path: Path, border: str, name: str) -> None:
    document = raw(tmp_path, f"{border}Subject: =?utf-8?b?TGFtcHM=?=\n\nLit.\n", name)
    assert (document.format, document.title, document.text) == ("mbox", "Lamps", "Lit.")


def test_mails_of_todays_thunderbird_are_told_apart(tmp_path: Path) -> None:
    """It writes no date before them: all behind the first were one mail, or all of them plain text."""
    mails = [
        f"From \r\nSubject: {name}\r\n\r\nFrom here on.\r\nFrom \r\nSo: it was.\r\n\r\n"
        for name in ("One", "Two", "Three")
    ]
    document = raw(tmp_path, "".join(mails))
    assert [page.label for page in document.pages] == ["One", "Two", "Three"]
    assert all(page.text == "From here on.\nFrom\nSo: it was." for page in document.pages)


def test_a_line_that_goes_on_and_on_takes_no_time(tmp_path: Path) -> None:
    """It took seventeen seconds, and eight times as long at twice its length."""
    long = "From " + "Mon Jan  1 00:00 2024 " * 40_000
    assert raw(tmp_path, f"{long}\nX\n", "a.txt").format == "txt"
    assert len(raw(tmp_path, f"{BORDER}Subject: A\n\nx\n\n{long}\nY: z\n").toc) == 1


@pytest.mark.parametrize(
    "text",
    [
        "From Prague we went on.\nNote: it rained.\n",
        "From Mon Jun 01 10:00:00 2026\nit was light.\n",
        "From\nNote: it rained.\n",
        "The log.\nFrom anne@a.org Mon Jun  1 10:00:00 2026\nSubject: Lamps\n\nLit.\n",
    ],
)
def test_what_only_begins_like_a_mailbox_is_none(tmp_path: Path, text: str) -> None:
    assert raw(tmp_path, text, "a.txt").format == "txt"


def test_mails_that_were_deleted_are_not_read(tmp_path: Path) -> None:
    """Thunderbird leaves them in the file until it is compacted."""
    deleted, read = mail("Gone.", 1, X_Mozilla_Status="0009"), mail("Kept.", 2, X_Mozilla_Status="0001")
    odd = mail("Odd.", 3, X_Mozilla_Status="?")
    document = ingest(kept(tmp_path / "Inbox", deleted, read, odd))
    assert [page.text.splitlines()[-1] for page in document.pages] == ["Kept.", "Odd."]
    with pytest.raises(EmptyDocument, match="no mail with text"):
        ingest(kept(tmp_path / "Trash", deleted))


def test_a_mail_is_limited_and_not_the_file(tmp_path: Path) -> None:
    path = kept(tmp_path / "Inbox", *(mail("x" * 900, day) for day in range(1, 9)))
    assert len(ingest(path, limits=Limits(text_member_bytes=2000)).pages) == 8
    with pytest.raises(TooLarge, match="bytes in one mail"):
        ingest(path, limits=Limits(text_member_bytes=500))
    with pytest.raises(TooLarge, match="characters"):
        ingest(path, limits=Limits(characters=3000))


@pytest.mark.parametrize(
    "address", ["Anne <a@x.org>, en: c@d.org, <e@f.g;>;", "Anne <@,x.org>, B: c<@d.org, (<e@@f.g>;"]
)
def test_headers_that_pythons_parser_stumbles_over_are_said_as_they_are(tmp_path: Path, address: str) -> None:
    """It raises one of its own errors, by which the mail could not be read."""
    text = f"From: {address}\nMIME-Version: 1.0\nSubject: Lamps\n\nLit.\n"
    for name, border in (("a.eml", ""), ("Inbox", BORDER)):
        assert raw(tmp_path, border + text, name).text == f"From: {address}\nSubject: Lamps\n\nLit."


def test_a_mail_that_cannot_be_understood_is_counted(tmp_path: Path) -> None:
    odd = 'Subject: Odd\nContent-Disposition: attachment; filename*0="a b"; flename*1*\n\nOdd.\n'
    document = raw(tmp_path, f"{BORDER}Subject: A\n\nLit.\n\n{BORDER}{odd}\n{BORDER}Subject: B\n\nOut.\n")
    assert [page.label for page in document.pages] == ["A", "B"]
    assert document.warnings == ("Not read: 1 mail that cannot be understood.",)


def test_damage_within_a_mailbox_is_survived(tmp_path: Path) -> None:
    data = kept(tmp_path / "Inbox", *(mail(f"Mail {day}.", day) for day in range(1, 5))).read_bytes()
    for start in range(0, len(data), 37):
        damaged = tmp_path / f"damaged-{start}"
        damaged.write_bytes(data[:start] + b"\x80\xff:\n\n" + data[start + 20 :])
        try:
            text = ingest(damaged).text
        except BrokenFile as error:
            pytest.fail(f"{start}: {error}")
        assert sum(f"Mail {day}." in text for day in range(1, 5)) >= 3
