"""Broken, locked, empty, too large and unsupported files: a clear error, and never another exception."""

import random
import zipfile
from collections.abc import Callable
from pathlib import Path

import docx
import openpyxl
import pptx
import pymupdf
import pytest

from ingest import (
    BrokenFile,
    EmptyDocument,
    IngestError,
    Limits,
    OcrUnavailable,
    PasswordNeeded,
    TooLarge,
    UnsupportedFormat,
    WrongPassword,
    ocr_languages,
)
from ingest import (
    ingest as read,
)
from ingest.conversion import Content, ConvertOptions
from tests.ingest import makers


@pytest.mark.parametrize(
    ("name", "content", "error", "words"),
    [
        ("a.pdf", b"", EmptyDocument, "0 bytes"),
        ("a.txt", b"  \n\n ", EmptyDocument, "empty"),
        ("a.pdf", b"<3 this is no pdf", BrokenFile, "no PDF"),
        ("a.pdf", b"%PDF-1.7\nrubbish", BrokenFile, "cannot be opened as PDF"),
        ("a.epub", b"PK\x03\x04" + bytes(100), BrokenFile, "damaged"),
        ("a.xlsm", b"PK\x03\x04" + bytes(100), BrokenFile, "opened as Excel workbook: its archive is damaged"),
        ("a.ppsx", b"<3 this is no show", BrokenFile, "is no PowerPoint presentation: it begins with"),
        ("a.xlsx", bytes(range(256)) * 4, BrokenFile, "is no Excel workbook, or its beginning is damaged"),
        ("a.doc", b"PK\x03\x04" + bytes(100), BrokenFile, "opened as ZIP archive: its archive is damaged"),
        ("a.docx", b"%PDF-1.7\nrubbish", BrokenFile, r"opened as PDF.*named \.docx, but its format is PDF\."),
        ("a.mobi", bytes(60) + b"BOOKMOBI" + bytes(10), BrokenFile, "cut off"),
        (
            "a.docx",
            b"\xd0\xcf\x11\xe0" + "EncryptedPackage\0".encode("utf-16-le"),
            UnsupportedFormat,
            "Excel or PowerPoint",
        ),
        ("a.doc", b"\xd0\xcf\x11\xe0" + bytes(600), BrokenFile, "before 2007"),
        ("a.txt", b"\x89PNG\r\n\x1a\n" + bytes(50), UnsupportedFormat, "PNG picture"),
        ("a.pdf", b"\x7fELF" + bytes(50), UnsupportedFormat, "a program"),
        ("a.bin", bytes(range(256)) * 4, UnsupportedFormat, "binary file of unknown kind"),
        ("a.xml", b"<?xml version='1.0'?><data/>", UnsupportedFormat, "XML"),
        ("a.html", b"<html><body><script>x()</script></body></html>", EmptyDocument, "no text"),
        ("a.html", b"<html><frameset><frame src=b.html></frameset></html>", EmptyDocument, "save each frame"),
        ("a.md", b"<!-- nothing -->\n", EmptyDocument, "no text"),
    ],
)
def test_refused(tmp_path: Path, name: str, content: bytes, error: type[IngestError], words: str) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(error, match=words) as caught:
        read(path)
    assert name in str(caught.value)


def test_a_missing_file_and_a_folder(tmp_path: Path) -> None:
    for path, words in ((tmp_path, "is a folder"), (tmp_path / "none.pdf", "is not there: check")):
        with pytest.raises(BrokenFile, match=words):
            read(path)


def test_content_decides_what_a_file_is(tmp_path: Path) -> None:
    path = makers.pdf(tmp_path / "notes.txt", [[(50, 300, "Really a PDF.")]])
    document = read(path)
    assert (document.format, document.text) == ("pdf", "Really a PDF.")
    assert "named .txt, but its format is PDF" in document.warnings[0]
    book = makers.epub(tmp_path / "a.docx", {"a.xhtml": "<p>Words.</p>"})
    book.write_bytes(book.read_bytes()[:-40])
    with pytest.raises(BrokenFile, match=r"a\.docx cannot be opened as EPUB: its archive is damaged"):
        read(book)
    with pytest.raises(UnsupportedFormat, match="a ZIP archive of 1 file: unpack it"):
        read(makers.archive(tmp_path / "a.epub", {"readme.txt": "hello"}))


@pytest.mark.parametrize(
    "words",
    [
        *("ID3 tags are stored at the end.", "RIFF is a container.", "SQLite format 3 is stable.", "Rar! it said."),
        *("GIF87a is a format.", "The ftyp box comes first.", "A PDF begins with %PDF-1.4 in its first line."),
    ],
)
def test_a_text_may_begin_with_the_name_of_a_format(tmp_path: Path, words: str) -> None:
    (tmp_path / "a.txt").write_text(words)
    assert read(tmp_path / "a.txt").text == words


@pytest.mark.parametrize("head", [b"\r\n", b"HTTP/1.1 200 OK\r\nContent-Type: application/pdf\r\n\r\n"])
@pytest.mark.parametrize("name", ["a.pdf", "a"])
def test_a_pdf_may_begin_late(tmp_path: Path, name: str, head: bytes) -> None:
    path = makers.pdf(tmp_path / name, [[(50, 300, "Late words.")]], deflate=True)
    path.write_bytes(head + path.read_bytes())
    assert read(path).text == "Late words."


def test_signatures_of_binary_files_are_still_known(tmp_path: Path) -> None:
    for head in (b"ID3\x04\x00\x00", b"SQLite format 3\x00", b"Rar!\x1a\x07\x01\x00", b"\x00\x00\x00\x20ftypisom"):
        (tmp_path / "a.txt").write_bytes(head + bytes(range(200)))
        with pytest.raises(UnsupportedFormat, match=r"an MP3|a RAR|an SQLite|an MP4"):
            read(tmp_path / "a.txt")


def test_passwords(tmp_path: Path) -> None:
    path = makers.pdf(
        tmp_path / "a.pdf",
        [[(50, 300, "Secret.")]],
        encryption=pymupdf.PDF_ENCRYPT_AES_256,
        user_pw="open",
        owner_pw="o",
    )
    with pytest.raises(PasswordNeeded, match=r"a\.pdf is encrypted"):
        read(path)
    with pytest.raises(WrongPassword, match="does not open"):
        read(path, password="shut")
    assert read(path, password="open").text == "Secret."


def test_drm_is_named(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedFormat, match="DRM"):
        read(makers.mobi(tmp_path / "a.mobi", "<p>x</p>", encryption=2))
    locked = (
        '<encryption xmlns="urn:oasis:names:tc:opendocument:xmlns:container" xmlns:e="http://www.w3.org/2001/04/xmlenc#">'
        '<e:EncryptedData><e:EncryptionMethod Algorithm="{}"/></e:EncryptedData></encryption>'
    )
    chapters = {"a.xhtml": "<p>Words.</p>"}
    fonts = locked.format("http://www.idpf.org/2008/embedding")
    assert read(makers.epub(tmp_path / "fonts.epub", chapters, **{"META-INF__encryption.xml": fonts})).text == "Words."
    text = locked.format("http://www.w3.org/2001/04/xmlenc#aes128-cbc")
    path = makers.epub(tmp_path / "text.epub", chapters, **{"META-INF__encryption.xml": text})
    with pytest.raises(UnsupportedFormat, match="DRM"):
        read(path)


def test_zip_bombs_are_refused_before_unpacking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bomb = makers.epub(tmp_path / "bomb.epub", {"a.xhtml": "<p>x</p>"}, **{"book__big.bin": bytes(40 << 20)})
    opened: list[str] = []
    original = zipfile.ZipFile.open
    monkeypatch.setattr(
        zipfile.ZipFile,
        "open",
        lambda self, name, *rest, **more: opened.append(str(name)) or original(self, name, *rest, **more),
    )
    with pytest.raises(TooLarge, match="zip bomb"):
        read(bomb)
    with pytest.raises(TooLarge, match="bytes when unpacked"):
        read(bomb, limits=Limits(unpacked_bytes=1 << 20))
    with pytest.raises(TooLarge, match="archive members"):
        read(bomb, limits=Limits(archive_members=3))
    assert opened == []


@pytest.mark.parametrize(
    ("limits", "words"),
    [(Limits(file_bytes=100), "bytes"), (Limits(pages=2), "3 pages"), (Limits(characters=20), "characters")],
    ids=["bytes", "pages", "characters"],
)
def test_limits(tmp_path: Path, limits: Limits, words: str) -> None:
    path = makers.pdf(tmp_path / "a.pdf", [[(50, 300, f"Page {n} says so.")] for n in range(3)])
    with pytest.raises(TooLarge, match=rf"{words}.*Split it into smaller files\.$"):  # no option raises a limit
        read(path, limits=limits)
    with pytest.raises(ValueError, match="at least 1"):
        Limits(pages=0)


def test_records_that_lie_over_one_another_do_not_grow(tmp_path: Path) -> None:
    path = makers.mobi(tmp_path / "a.mobi", "<p>word</p>" * 2000)
    data = bytearray(path.read_bytes())
    data[78 + 8 : 78 + 12], data[78 + 16 : 78 + 20] = data[78 + 16 : 78 + 20], data[78 + 8 : 78 + 12]
    path.write_bytes(data)
    with pytest.raises(BrokenFile, match="cut off"):
        read(path)


def test_pictures_of_a_mobi_book_are_no_text(tmp_path: Path) -> None:
    """An illustrated book of 150 MB was refused although it had little text."""
    limits = Limits(text_member_bytes=1 << 14)
    for style in ("", "p { color: red }"):
        path = makers.mobi(tmp_path / "a.azw3", "<p>Words.</p>", style=style, picture=bytes(1 << 15))
        assert read(path, limits=limits).text == "Words."
    for packed, words in ((False, "bytes of text"), (True, "bytes when unpacked")):
        path = makers.mobi(tmp_path / "b.azw3", "<p>Words.</p>" * 2000, packed=packed)
        with pytest.raises(TooLarge, match=words):
            read(path, limits=limits)


def test_word_documents_have_limits(tmp_path: Path) -> None:
    document = docx.Document()
    for _ in range(500):
        document.add_paragraph("Some words that are kept.")
    document.save(str(tmp_path / "a.docx"))
    for limits, words in ((Limits(text_member_bytes=1 << 14), "bytes"), (Limits(characters=1000), "characters")):
        with pytest.raises(TooLarge, match=words):
            read(tmp_path / "a.docx", limits=limits)


def test_entities_do_not_grow_and_nothing_is_fetched(tmp_path: Path) -> None:
    laughs = '<!ENTITY a0 "ha">' + "".join(f'<!ENTITY a{n} "{f"&a{n - 1};" * 10}">' for n in range(1, 10))
    path = tmp_path / "a.fb2"
    path.write_text(
        f'<?xml version="1.0"?><!DOCTYPE x [{laughs}<!ENTITY f SYSTEM "file:///etc/passwd">]>'
        "<FictionBook><body><section><p>&a9; &f; end</p></section></body></FictionBook>"
    )
    text = read(path).text
    assert "end" in text
    assert len(text) < 200
    assert "root:" not in text


def deep(*tags: str, depth: int) -> str:
    """Return words within `depth` nested elements."""
    around = tags * (depth // len(tags))
    closing = "".join(f"</{tag}>" for tag in reversed(around))
    return "".join(f"<{tag}>" for tag in around) + "<p>deep words</p>" + closing


@pytest.mark.parametrize("depth", [90, 1_000, 20_000])
def test_deep_nesting_does_not_exhaust_the_stack(tmp_path: Path, depth: int) -> None:
    for name, content in {
        "a.html": f"<html><p>top</p>{deep('div', depth=depth)}",
        "b.html": f"<html><p>top</p>{deep('table', 'tr', 'td', depth=depth)}",
        "c.fb2": f"<FictionBook><body><p>top</p>{deep('cite', depth=depth)}</body></FictionBook>",
        "d.md": "top\n\n" + ">" * min(depth, 5_000) + " deep words",
    }.items():
        (tmp_path / name).write_text(content)
        try:
            text = read(tmp_path / name).text
        except IngestError as error:
            assert depth > 1_000, error  # noqa: PT017
            assert name in str(error)  # noqa: PT017
        else:
            assert "top" in text
            assert depth > 1_000 or "deep words" in text


def test_pages_without_text_are_named(tmp_path: Path) -> None:
    """A scan with a stamp counted as a page with text, and a blank page as a scan."""
    stamp = [(50, 580, "DEF-000123")]
    path = makers.pdf(tmp_path / "a.pdf", [[(50, 300, "Words.")], [], [], stamp, []], scans=[2, 3, 4])
    document = read(path, ocr=False)
    assert [page.quality.source for page in document.pages] == ["text", "none", "none", "text", "none"]
    assert [page.quality.lacks_text for page in document.pages] == [False, True, True, True, False]
    assert document.warnings == (
        "2 of 5 pages have text; page 5 blank; doubtful text on page 4 (a picture fills the page, with only 10 "
        "characters of text beside it). No text on pages 2-3: the model will not know what is on them. If they are "
        "scans, install Tesseract with its language data and read the file again with OCR.",
    )


def test_a_file_that_is_saved_while_it_is_read_is_refused(tmp_path: Path) -> None:
    """The old text was kept under the new file's fingerprint, so the new file was never read."""
    path = makers.pdf(tmp_path / "paper.pdf", [[(50, 300, "An early draft.")]])

    def save(done: int, total: int) -> None:
        makers.pdf(tmp_path / "new.pdf", [[(50, 300, "The paper as it was printed.")]]).replace(path)

    with pytest.raises(BrokenFile, match="changed while it was being read"):
        read(path, on_page=save)
    assert "as it was printed" in read(path).text


@pytest.mark.skipif(bool(ocr_languages()), reason="Tesseract is installed here")
def test_ocr_demanded_where_there_is_none(tmp_path: Path) -> None:
    path = makers.pdf(tmp_path / "a.pdf", [[(50, 300, "Words.")]])
    with pytest.raises(OcrUnavailable, match="Tesseract"):
        read(path, ocr=True)
    assert read(path, ocr=None).text == "Words."


@pytest.mark.skipif(not ocr_languages(), reason="Tesseract's language data is not installed")
def test_ocr_reads_a_scan(data: Path) -> None:
    document = read(data / "pdf" / "ocrmypdf__linn.pdf", ocr=True)
    assert document.pages[0].quality.source == "ocr"
    assert len(document.text) > 500


def test_failing_ocr_is_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "eng.traineddata").write_bytes(b"no language data")
    monkeypatch.setenv("TESSDATA_PREFIX", str(tmp_path))
    assert ocr_languages() == ("eng",)
    document = read(makers.pdf(tmp_path / "a.pdf", [[(50, 300, "Words.")], [], []], scans=[2]))
    assert document.pages[0].text == "Words."
    assert "OCR failed" in document.pages[1].quality.warnings[0]
    assert not document.pages[2].quality.warnings
    assert "install Tesseract" not in document.coverage()


def test_a_file_that_takes_all_memory_is_no_bug_to_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(path: Path, options: ConvertOptions) -> Content:
        raise MemoryError

    monkeypatch.setattr("ingest.formats.text.convert", fail)
    (tmp_path / "a.txt").write_text("Words.")
    with pytest.raises(BrokenFile, match=r"a\.txt could not be read: it takes more memory than there is\. Convert"):
        read(tmp_path / "a.txt")


def test_damaged_files_never_raise_anything_else(tmp_path: Path) -> None:
    """Whole files with bytes changed and cut: always a document or an IngestError."""
    word = docx.Document()
    word.add_heading("Title", 1)
    word.add_paragraph("Words in a document.")
    word.save(str(tmp_path / "whole.docx"))
    show = pptx.Presentation()
    show.slides.add_slide(show.slide_layouts[0]).shapes.title.text = "Title"
    show.save(str(tmp_path / "whole.pptx"))
    book = openpyxl.Workbook()
    book.active.append(["Words in a sheet.", 7])
    book.save(str(tmp_path / "whole.xlsx"))
    whole: dict[str, Callable[[], Path]] = {
        "pdf": lambda: makers.pdf(tmp_path / "whole.pdf", [[(50, 300, "Some words.")]] * 3),
        "epub": lambda: makers.epub(
            tmp_path / "whole.epub", {"a.xhtml": "<h1>A</h1><p>Words.</p>"}, '<li><a href="a.xhtml">A</a></li>'
        ),
        "mobi": lambda: makers.mobi(
            tmp_path / "whole.mobi", "<h1>A</h1><p>Words and words and words.</p>", packed=True
        ),
        "docx": lambda: tmp_path / "whole.docx",
        "pptx": lambda: tmp_path / "whole.pptx",
        "xlsx": lambda: tmp_path / "whole.xlsx",
    }
    dice = random.Random(7)
    outcomes = {"read": 0, "refused": 0}
    for suffix, make in whole.items():
        data = make().read_bytes()
        for trial in range(40):
            broken = bytearray(data)
            for _ in range(dice.randint(1, 12)):
                broken[dice.randrange(len(broken))] = dice.randrange(256)
            if trial % 3 == 0:
                del broken[dice.randrange(len(broken)) :]
            path = tmp_path / f"broken.{suffix}"
            path.write_bytes(bytes(broken))
            try:
                read(path, ocr=False)
                outcomes["read"] += 1
            except IngestError:
                outcomes["refused"] += 1
    assert min(outcomes.values()) > 10


@pytest.mark.parametrize(
    ("name", "members", "program"),
    [
        ("a.key", ("Index/Presentation.iwa", "preview.jpg"), "Keynote"),
        ("a.pages", ("Index.zip", "preview.jpg"), "Pages"),
        ("a.numbers", ("index.xml", "QuickLook/Preview.pdf"), "Numbers"),
        ("a.zip", ("b.pages/Index/Document.iwa",), "Keynote, Pages or Numbers"),
    ],
)
def test_files_of_apples_programs_are_to_be_exported(
    tmp_path: Path, name: str, members: tuple[str, ...], program: str
) -> None:
    file = makers.archive(tmp_path / name, dict.fromkeys(members, "x"))
    with pytest.raises(UnsupportedFormat, match=f"is a {program} .*export it as .*PDF") as caught:
        read(file)
    assert "unpack" not in str(caught.value)
