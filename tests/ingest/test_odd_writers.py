"""Files as real programs write them: stray characters, other encodings, base64 in pieces, footers."""

import zipfile
from base64 import b64encode
from pathlib import Path

import pytest

from ingest import UnsupportedFormat, ingest
from tests.ingest import makers, office_makers

HEAD = b"From: a@example.org\nSubject: The mill\nMIME-Version: 1.0\n"
TEXT = "The sacks of the Müller came on Tuesday."


def mail(path: Path, body: bytes, more: bytes = b"", head: bytes = HEAD) -> str:
    return makers.read(path, head + more + b"\n" + body).text


@pytest.mark.parametrize(
    ("charset", "encoding", "words"),
    [
        *(
            ("gb2312", "gbk", "致朱镕基先生的函"),
            ("Shift_JIS", "cp932", "①会議の件㈱水車"),
            ("euc-kr", "cp949", "똠방각하의 물레방아"),
        ),
        *(("iso-8859-1", "cp1252", "Müller’s “mill” – 900 €"), ("big5", "big5hkscs", "嘅水車")),
    ],
)
def test_headers_are_read_in_the_encoding_that_they_are_in(
    tmp_path: Path, charset: str, encoding: str, words: str
) -> None:
    raw = words.encode(encoding)
    word = f"=?{charset}?B?".encode() + b64encode(raw) + b"?="
    head = b"From: a@example.org\nSubject: %s\nContent-Type: text/plain; charset=" + charset.encode() + b"\n"
    for number, subject in enumerate((word, raw)):
        assert f"Subject: {words}" in mail(tmp_path / f"{number}.eml", raw * 4, head=head % subject)


def test_what_stands_behind_the_padding_of_base64_is_read(tmp_path: Path) -> None:
    coded = b"Content-Type: text/plain; charset=utf-8\nContent-Transfer-Encoding: base64\n"
    one, two = (b64encode(text.encode()) for text in ("First part..\n", "Second part.\n"))
    assert mail(tmp_path / "a.eml", one + b"\n" + two + b"\n", coded).endswith("First part..\nSecond part.")
    footer = b"_______\nThe list of the mill, for all who grind\n"
    assert "The list of the mill" in mail(tmp_path / "b.eml", one + b"\n" + footer, coded)
    long = b64encode((TEXT * 9).encode())
    wrapped = b"\n".join(long[start : start + 76] for start in range(0, len(long), 76))
    assert TEXT * 9 in mail(tmp_path / "c.eml", wrapped, coded)


@pytest.mark.parametrize(
    ("charset", "raw", "words"),
    [
        *(("utf-7", b"M+APw-hle", "Mühle"), ("hz-gb-2312", "水车".encode("hz"), "水车")),
        ("iso-2022-kr", "물레방아".encode("iso2022_kr"), "물레방아"),
    ],
)
def test_encodings_that_are_no_ascii_count_where_the_mail_names_them(
    tmp_path: Path, charset: str, raw: bytes, words: str
) -> None:
    assert words in mail(tmp_path / "a.eml", raw, f"Content-Type: text/plain; charset={charset}\n".encode())


def test_quoted_lines_are_joined_without_their_marks(tmp_path: Path) -> None:
    flowed = b"Content-Type: text/plain; format=flowed\n"
    body = b"> The warden asks whether the loft was \n> locked on Tuesday.\n>> By me.\nIt was \nnot.\n"
    assert "> The warden asks whether the loft was locked on Tuesday." in mail(tmp_path / "a.eml", body, flowed)
    lines = (
        "The sacks came on Tuesday and were carried up to the loft by two of the men who live\nbeside the mill, and "
    )
    lines += "nobody counted them until Wednesday, when four of them were gone and\nthe key was lost."
    quoted = "\n".join(f"> {line}" for line in (lines + "\n\n" + lines).split("\n"))
    text = mail(tmp_path / "b.eml", f"{lines}\n\n{quoted}\n".encode())
    assert text.count("men who live beside the mill") == 3
    assert "gone and the key was lost.\n>\n> The sacks" in text


def test_files_in_letters_are_left_out_and_named(tmp_path: Path) -> None:
    body = b"Here it is.\n\nbegin 644 plan.png\nM" + b'(" P0' * 12 + b"\n`\nend\n\nYours, Joost\n"
    document = makers.read(tmp_path / "a.eml", HEAD + b"\n" + body)
    assert document.text.endswith("Here it is.\n\nYours, Joost")
    assert document.warnings == ("Attached and not read: plan.png. Save what you need and add it.",)


def test_mails_of_apple_are_read(tmp_path: Path) -> None:
    whole = HEAD + b"\n" + TEXT.encode() + b"\n"
    document = makers.read(tmp_path / "1.emlx", b"%d      \n" % len(whole) + whole + b"<?xml version='1.0'?><plist/>")
    assert (document.format, document.warnings) == ("eml", ())
    assert document.text.endswith(TEXT)


def test_mails_of_a_mailbox_need_no_blank_line_between_them(tmp_path: Path) -> None:
    border = b"From a@example.org Mon May  3 10:00:00 2021\n"
    document = makers.read(tmp_path / "a.mbox", 2 * (border + HEAD + b"\nWords.\n"))
    assert len(document.toc) == 2


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.txt", b"First.\n\nSec\x00ond.", "First.\n\nSecond."),
        ("b.txt", b"Words before the power went out." + 300 * b"\x00", "Words before the power went out."),
        ("a.mbox", b"From a@b.org Mon May  3 10:00:00 2021\n" + HEAD + b"\nSec\x00ond.\n", "Second."),
        ("a.html", b"<!DOCTYPE html><html><body><p>One</p>\x00\x01\x02\x03<p>Two</p></body></html>", "One\n\nTwo"),
        ("a.1", 9 * b"N\bNA\bAM\bME\bE _\bg_\bo\n", "NAME go"),
        ("a.log", b"\x1b[32mINFO\x1b[0m n=\x1b[1m40\x1b[0m \x1b]8;;http://x\x07link\x1b]8;;\x07\n", "INFO n=40 link"),
        ("config.xml.txt", b"<?xml version='1.0'?><mill>De Hoop</mill>", "De Hoop"),
    ],
)
def test_a_few_signs_that_are_no_text_do_not_refuse_one(tmp_path: Path, name: str, content: bytes, words: str) -> None:
    assert words in makers.read(tmp_path / name, content).text


def test_pictures_within_a_saved_page_do_not_refuse_it(tmp_path: Path) -> None:
    parts = b'Content-Type: multipart/related; boundary="b"\n\n--b\nContent-Type: text/html\n\n'
    parts += "<p>Vier Säcke</p>\n--b\n".encode()
    picture = b"Content-Type: image/png\nContent-Transfer-Encoding: binary\n\n" + bytes(range(256)) * 99 + b"\n--b--\n"
    assert "Vier Säcke" in makers.read(tmp_path / "a.mhtml", HEAD + parts + picture).text


def test_archives_are_refused_by_what_they_are(tmp_path: Path) -> None:
    pdf = makers.pdf(tmp_path / "a.pdf", [[(50, 50, "Words")]]).read_bytes()
    made = (
        (makers.archive(tmp_path / "a.zip", {"a.pdf": pdf, "b.pdf": pdf}, method=0), "a ZIP archive of 2 files"),
        (makers.archive(tmp_path / "a.vsdx", {"visio/document.xml": b"<x/>"}), "a Visio drawing"),
    )
    for path, what in made:
        with pytest.raises(UnsupportedFormat, match=f"is {what}"):
            ingest(path)


def test_books_of_palms_are_read(tmp_path: Path) -> None:
    whole = makers.mobi(tmp_path / "a.mobi", "<h1>第一章</h1><p>水车</p>").read_bytes()
    coded = whole.replace((65001).to_bytes(4, "big"), (936).to_bytes(4, "big"))
    coded = coded.replace("第一章".encode(), "第一章xyz".encode("gbk")).replace("水车".encode(), "水车xy".encode("gbk"))
    (tmp_path / "b.mobi").write_bytes(coded)
    assert ingest(tmp_path / "b.mobi").text == "第一章xyz\n\n水车xy"
    text = makers.mobi(tmp_path / "c.pdb", "The mill was sold in 1931.\n\nIt was a good mill.").read_bytes()
    (tmp_path / "c.pdb").write_bytes(text.replace(b"BOOKMOBI", b"TEXtREAd").replace(b"MOBI\0", b"\0\0\0\0\0"))
    document = ingest(tmp_path / "c.pdb")
    assert (document.format, document.warnings) == ("mobi", ())
    assert document.text == "The mill was sold in 1931.\n\nIt was a good mill."


def test_more_ways_in_which_writers_err(tmp_path: Path) -> None:
    japanese = HEAD + b"Content-Type: text/plain; charset=iso-2022-jp\n\n\x1b$B-!?e<V\x1b(B ok \x1b$B-j\x1b(B"
    assert makers.read(tmp_path / "windows.eml", japanese).text.endswith("①水車 ok ㈱")
    signs = "〒♪☆→ ｶﾅ".encode("iso2022_jp_ext").replace(b"\x1b(B", b"\x1b$B-!-j\x1b(B", 1)
    words = [b64encode(each).decode() for each in (signs, "水".encode()[:2], "水".encode()[2:])]
    subject = f"Subject: =?ISO-2022-JP?B?{words[0]}?=\n =?utf-8?b?{words[1]}?= =?UTF-8?b?{words[2]}?= =?l8r?q?_a?="
    mail = makers.read(
        tmp_path / "subject.eml", f"{subject}\n".encode() + HEAD.replace(b"Subject", b"To") + b"\nWords."
    )
    assert mail.title == "〒♪☆→①㈱ ｶﾅ水 a"
    quoted = HEAD + b"Content-Type: text/plain\nContent-Transfer-Encoding: quoted-printable\n\nin two= \nwords =20\n"
    assert makers.read(tmp_path / "blank.eml", quoted).text.endswith("in twowords")
    book = makers.epub(tmp_path / "a.epub", {"a.xhtml": "<p>One<![CDATA[ & two]]></p><!-- open <p>Lost.</p>"})
    assert ingest(book).text == "One & two"
    assert "a.xhtml: A comment at line 1 has no end" in ingest(book).warnings[0]
    log = makers.read(tmp_path / "a.log", b"Many words were written.\n" * 400 + bytes(4096) + b"After.\n")
    assert log.text.endswith("After.")
    assert "4,096 NULs stand from line 401 on where text was lost" in log.warnings[0]


def test_notes_that_a_presentation_lacks_do_not_lose_their_slide(tmp_path: Path) -> None:
    path = office_makers.slides(tmp_path / "a.pptx", lambda slide: office_makers.text_box(slide.shapes, "Words.", 1, 1))
    relations = "ppt/slides/_rels/slide1.xml.rels"
    with zipfile.ZipFile(path) as file:
        known = file.read(relations)
    kind = f"{office_makers.RELATED}/notesSlide"
    dead = f'<Relationship Id="rNone" Type="{kind}" Target="../notesSlides/notesSlide9.xml"/></Relationships>'
    document = ingest(makers.with_member(path, relations, known.replace(b"</Relationships>", dead.encode())))
    assert document.text == "Words."
    assert "notesSlide9.xml, which the file names but lacks" in document.warnings[0]
