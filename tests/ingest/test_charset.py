"""Encodings, declared or not, and the transfer encodings of e-mail."""

from pathlib import Path

import pytest

from ingest import EmptyDocument, ingest
from tests.ingest import makers
from tests.ingest.makers import read


@pytest.mark.parametrize(
    "encoding",
    [
        *("utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "iso-2022-jp"),
        *("cp1252", "cp1251", "gb18030", "shift_jis"),
    ],
)
def test_encodings(tmp_path: Path, encoding: str) -> None:
    words = {
        "cp1252": "“Où est l’été?” demanda-t-elle à voix basse; ça coûte 5 € près de l’église. ",
        "cp1251": "Смотритель маяка поднялся по лестнице и посчитал все корабли в гавани. ",
        "gb18030": "守灯塔的人每天晚上都要爬上三百级台阶，数一数港口里的船只。",
        "shift_jis": "灯台守は毎晩三百段の階段を登り、港に入る船の数を数えていました。",
        "iso-2022-jp": "灯台守は毎晩三百段の階段を登り、港に入る船の数を数えていました。",
    }.get(encoding, "Der Wärter zählte die Schiffe: Ärger, Öl, Übermut – 日本語. ")
    document = read(tmp_path / "a.txt", (words * 20).encode(encoding))
    assert words.strip() in document.text
    assert bool(document.warnings) == (not encoding.startswith(("utf", "iso-2022")))


@pytest.mark.parametrize(
    ("declared", "body", "expected"),
    [
        ("gb2312", "朱镕基先生".encode("gbk"), "朱镕基先生"),
        ("Shift_JIS", "①灯台守".encode("cp932"), "①灯台守"),
        ("x-sjis", "髙い灯台".encode("cp932"), "髙い灯台"),
        ("euc-kr", "똠방각하".encode("cp949"), "똠방각하"),
        ("euc-jp", b"\xad\xa1" + "灯台".encode("euc_jp"), "①灯台"),
        ("big5", b"\xf9\xd6" + "嘅".encode("big5hkscs"), "碁嘅"),
        ("us-ascii", "Café “here”".encode("cp1252"), "Café “here”"),
        ("windows-1252", b"Caf\xe9 \x81", "Café \ufffd"),
        ("windows-1251", "Маяк ".encode("cp1251") + b"\x98", "Маяк \ufffd"),
        ("utf-16", "Café".encode(), "Café"),
        ("iso-8859-1", "Café – “here”".encode(), "Café – “here”"),
        ("iso-2022-jp", "灯台".encode("iso-2022-jp"), "灯台"),
        ("unicode_escape", "Café".encode(), "Café"),
        ("no-such-thing", "Café".encode(), "Café"),
    ],
)
def test_no_byte_outside_the_declared_encoding_ends_the_text(
    tmp_path: Path, declared: str, body: bytes, expected: str
) -> None:
    """libxml2 stopped at such a byte, and everything after it was lost silently."""
    head = f"<html><head><meta charset={declared}></head><body><p>"
    document = read(tmp_path / "a.html", head.encode() + body + b"</p><p>The end.</p></body></html>")
    assert document.text == f"{expected}\n\nThe end."
    assert not any("read as" in warning for warning in document.warnings)
    book = f'<?xml version="1.0" encoding="{declared}"?><FictionBook><body><section><p>'
    document = read(tmp_path / "a.fb2", book.encode() + body + b"</p><p>The end.</p></section></body></FictionBook>")
    assert document.text == f"{expected}\n\nThe end."


def test_a_doubt_about_characters_speaks_of_no_font(tmp_path: Path) -> None:
    document = read(tmp_path / "a.html", b"<meta charset=windows-1251><p>\x98 " + "Маяк".encode("cp1251"))
    assert document.pages[0].quality.warnings == ("1 of 5 characters could not be read in the file's encoding",)


MAIL = """From: Anne Lee <anne@example.org>
Subject: =?utf-8?q?The_lamp_=E2=80=94_again?=
MIME-Version: 1.0
Content-Type: multipart/mixed; boundary="b"

--b
Content-Type: text/plain; charset=iso-8859-1
Content-Transfer-Encoding: base64

Q2Fm6SBhdCBzZXZlbi4=
--b
Content-Type: text/plain
Content-Disposition: attachment; filename="plan.txt"

Nothing.
--b--
"""


ARCHIVE = """From: <Saved by Blink>
Subject: Frames
MIME-Version: 1.0
Content-Type: multipart/related; boundary="b"; type="text/html"

--b
Content-Type: text/html; charset=utf-8

<html><frameset><frame src="cid:1"></frameset></html>
--b
Content-Type: text/html; charset=utf-8
Content-Transfer-Encoding: quoted-printable

<html><body><h1>=C3=9Cber uns</h1><p>Long w=
ords.</p></body></html>
--b--
"""


def test_mail_and_web_archives(tmp_path: Path) -> None:
    document = read(tmp_path / "a.eml", MAIL.replace("\n", "\r\n"))
    said = "From: Anne Lee <anne@example.org>\nSubject: The lamp — again"
    assert (document.format, document.title, document.text) == ("eml", "The lamp — again", f"{said}\n\nCafé at seven.")
    assert document.warnings == ("Attached and not read: plan.txt. Save what you need and add it.",)
    document = read(tmp_path / "a.mht", ARCHIVE)
    assert (document.format, document.title, document.text) == ("mhtml", "Frames", "Über uns\n\nLong words.")
    assert read(tmp_path / "a.md", MAIL).format == "md"
    with pytest.raises(EmptyDocument, match="has no text in it"):
        read(tmp_path / "b.mht", ARCHIVE[: ARCHIVE.index("--b\nContent-Type: text/html; charset=utf-8\nContent-T")])


def test_markup_that_declares_no_encoding_is_guessed_with_a_warning(tmp_path: Path) -> None:
    words = "Смотритель маяка поднялся по лестнице и посчитал все корабли в гавани. "
    body = f"<p>{words * 20}</p>".encode("cp1251")
    document = read(tmp_path / "a.html", b"<html><body>" + body)
    assert words.strip() in document.text
    assert "read as cp1251" in document.warnings[0]
    late = b"<html><head><script>" + b" " * 4000 + b"</script><meta charset=windows-1251></head>" + body + b"</html>"
    document = read(tmp_path / "b.html", late)
    assert words.strip() in document.text
    assert not document.warnings
    book = makers.epub(tmp_path / "a.epub", {"a.xhtml": ""})
    document = ingest(makers.with_member(book, "book/a.xhtml", b"<html><body>" + body))
    assert words.strip() in document.text
    assert any("book/a.xhtml" in warning and "cp1251" in warning for warning in document.warnings)


@pytest.mark.parametrize(
    ("encoding", "note"),
    [
        ("cp1255", "המעבורת נמכרה בסתיו"),
        ("cp1255", "רשימת קניות: חלב, לחם, ביצים"),
        ("cp1251", "Паром продали осенью."),
        ("cp1251", "Цена 900 рублей"),
        ("cp1253", "Η γέφυρα άνοιξε την άνοιξη"),
        ("cp1256", "فتح الجسر في الربيع"),
        ("cp1254", "Günaydın dünya, şimdi çay içiyoruz"),
        ("cp1250", "Prom sprzedano jesienią, a most był otwarty wiosną."),
        ("cp1250", "Loď byla prodána na podzim"),
        ("cp1257", "Prāmis tika pārdots rudenī"),
        ("cp874", "สะพานเปิดในฤดูใบไม้ผลิ"),
        ("cp932", "渡し船は秋に売られた。"),
        ("gb18030", "渡船在秋天卖掉了。"),
        ("big5", "橋在春天開通"),
        ("cp949", "다리가 봄에 열렸다"),
        ("koi8-r", "Мост открыли весной, и лодка больше не нужна."),
        ("cp866", "Паром продали осенью."),
        ("cp1252", "Le bac a été vendu à l’automne."),
        ("cp1252", "jalapeño"),
        ("cp1252", "Prix : 900 €"),
        ("cp1252", "§ 5 Abs. 2"),
    ],
)
def test_a_short_note_has_the_letters_of_its_language(tmp_path: Path, encoding: str, note: str) -> None:
    document = read(tmp_path / "a.txt", note.encode(encoding))
    assert document.text == note
    assert "not clean UTF-8" in document.warnings[0]
