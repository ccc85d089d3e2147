"""Mails of Outlook, XPS, comics, and Office files of before 2007."""

import shutil
import struct
import subprocess
from pathlib import Path

import pymupdf
import pytest

from ingest import BrokenFile, EmptyDocument, UnsupportedFormat, ingest
from ingest.formats.compressed_rtf import decompressed
from ingest.office import legacy
from ingest.print.ocr import ocr_languages
from ingest.subprocess import ingest_in_subprocess
from tests.ingest import makers, office_makers
from tests.ingest.ole_makers import ole, outlook

HEAD = {"001A": "IPM.Note", "0037": "The key", "0C1A": "Joost", "5D01": "joost@example.org", "0E04": "Anna"}
PRINTED = "The keeper of the lamp went up the long stair."


def test_a_mail_of_outlook_is_read(tmp_path: Path) -> None:
    markup = '<p>Vier Säcke fehlten.</p><img src="cid:1@x"><p>Bis morgen.</p>'
    files = ({"3707": "plan.pdf"}, {"3707": "logo.png", "3712": "1@x"}, {"3001": "Another mail"})
    path = outlook(tmp_path / "a.msg", HEAD | {"1000": "not this", "1013": markup.encode()}, files)
    document = ingest_in_subprocess(path)
    head = "From: Joost <joost@example.org>\nTo: Anna\nDate: Mon, 03 May 2021 16:00:00 +0000\nSubject: The key"
    assert document.text == f"{head}\n\nVier Säcke fehlten.\n\nBis morgen."
    assert (document.format, document.title) == ("msg", "The key")
    assert document.warnings == ("Attached and not read: plan.pdf, Another mail. Save what you need and add it.",)
    makers.check_invariants(document)


def test_a_mail_of_outlook_in_plain_text_or_in_rtf_alone(tmp_path: Path) -> None:
    plain = outlook(
        tmp_path / "a.msg", {"0037": "Plain", "001A": "IPM.Appointment", "1000": "Line one\r\n\r\nTwo" + " x" * 3000}
    )
    assert ingest(plain).text.startswith("Line one\n\nTwo x")
    assert "IPM.Appointment" in ingest(plain).warnings[0]
    rtf = rb"{\rtf1\ansi The mill was sold.\par It was sold again.}"
    literal = b"".join(b"\0" + rtf[at : at + 8] for at in range(0, len(rtf), 8))
    packed = struct.pack("<LL4sL", len(literal) + 12, len(rtf), b"LZFu", 0) + literal
    path = outlook(tmp_path / "b.msg", HEAD | {"1009": packed})
    assert ingest(path).text.endswith("The mill was sold.\n\nIt was sold again.")
    first_letters = struct.pack("<LL4sL", 17, 6, b"LZFu", 0) + b"\x03" + b"\x00\x04" + b"\x0d\x50"
    assert decompressed(first_letters) == rb"{\rtf1"


@pytest.mark.parametrize("share", [0.3, 0.6, 0.95])
def test_a_mail_of_outlook_that_is_cut_off_is_refused(tmp_path: Path, share: float) -> None:
    path = outlook(tmp_path / "a.msg", HEAD | {"1000": "words " * 3000})
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * share)])
    with pytest.raises(BrokenFile, match=r"of Outlook.* [Ff]etch it again"):
        ingest(path)


def test_a_mail_of_outlook_with_a_damaged_part_is_refused(tmp_path: Path) -> None:
    path = outlook(tmp_path / "a.msg", HEAD | {"1000": "words " * 3000})
    data = bytearray(path.read_bytes())
    name = data.index("__substg1.0_1000001F".encode("utf-16-le"))
    data[name + 0x74 : name + 0x78] = (0x7FFF).to_bytes(4, "little")  # where its text begins
    path.write_bytes(data)
    with pytest.raises(
        BrokenFile, match=r"cannot be opened as a mail of Outlook\. The file is damaged: fetch it again"
    ):
        ingest(path)


def xps(path: Path) -> Path:
    """Write an XPS document of one line."""
    names = 'xmlns="http://schemas.microsoft.com/xps/2005/06"'
    look = 'FontUri="/f.ttf" FontRenderingEmSize="16" OriginX="50" OriginY="90" Fill="#ff000000"'
    glyphs = f'<Glyphs {look} UnicodeString="{PRINTED}"/>'
    pages = "".join(f'<PageContent Source="/{number}.fpage"/>' for number in (1, 2))
    kind = "http://schemas.microsoft.com/xps/2005/06/fixedrepresentation"
    members = {
        "[Content_Types].xml": "<Types/>",
        "_rels/.rels": f'<Relationships><Relationship Type="{kind}" Target="/a.fdseq"/></Relationships>',
        "a.fdseq": f'<FixedDocumentSequence {names}><DocumentReference Source="/a.fdoc"/></FixedDocumentSequence>',
        "a.fdoc": f"<FixedDocument {names}>{pages}</FixedDocument>",
        "1.fpage": f'<FixedPage {names} Width="800" Height="600">{glyphs}</FixedPage>',
        "2.fpage": f'<FixedPage {names} Width="800" Height="600">{glyphs.replace("keeper", "owner")}</FixedPage>',
        "f.ttf": pymupdf.Font("helv").buffer,
    }
    return makers.archive(path, members)


def test_an_xps_document_is_read_page_by_page(tmp_path: Path) -> None:
    document = ingest_in_subprocess(xps(tmp_path / "a.xps"))
    assert [page.text for page in document.pages] == [PRINTED, PRINTED.replace("keeper", "owner")]
    assert [page.label for page in document.pages] == ["page 1", "page 2"]
    assert document.warnings == ()
    makers.check_invariants(document)


def test_a_damaged_xps_document_is_refused(tmp_path: Path) -> None:
    path = xps(tmp_path / "a.xps")
    with pytest.raises(EmptyDocument, match=r"has no text on any of its 2 pages; 2 pages could not be read"):
        ingest(makers.with_member(makers.with_member(path, "1.fpage", b"<Fixed"), "2.fpage", b""))
    with pytest.raises(BrokenFile, match="cannot be opened as XPS"):
        ingest(makers.with_member(path, "a.fdoc", b"<nothing"))


def test_the_pictures_of_a_comic_are_recognised_or_said_to_need_ocr(tmp_path: Path) -> None:
    with pymupdf.open() as drawn:
        drawn.new_page(width=400, height=120).insert_text((20, 60), PRINTED[:33], fontsize=16)
        picture = drawn[0].get_pixmap(dpi=200).tobytes("png")
    path = makers.archive(tmp_path / "a.cbz", {"01.png": picture, "02.webp": b"x", "ComicInfo.xml": "<ComicInfo/>"})
    if ocr_languages():
        document = ingest(path)
        assert "keeper" in document.text
        assert "Not read: 1 picture (WebP, AVIF or JPEG XL): 02.webp" in document.warnings[0]
    with pytest.raises(EmptyDocument, match=r"only pictures, such as scans. To read them, install Tesseract"):
        ingest(path, ocr=False)
    with pytest.raises(EmptyDocument, match="no page that can be read"):
        ingest(makers.archive(tmp_path / "b.cbz", {"1.webp": b"x"}))


def test_without_libreoffice_old_files_say_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(legacy, "office_program", lambda: None)
    for stream, kind in (("WordDocument", "DOC"), ("Workbook", "XLS"), ("PowerPoint Document", "PPT")):
        with pytest.raises(UnsupportedFormat, match=rf"\({kind}\): install LibreOffice.*or save it as {kind}X or PDF"):
            ingest(ole(tmp_path / "a.bin", {stream: b"x"}))
    with pytest.raises(UnsupportedFormat, match="encrypted Office document"):
        ingest(ole(tmp_path / "b.doc", {"EncryptedPackage": b"x", "WordDocument": b"x"}))


@pytest.mark.skipif(legacy.office_program() is None, reason="LibreOffice is not installed")
def test_old_office_files_are_read_through_libreoffice(tmp_path: Path) -> None:
    office_makers.word(tmp_path / "a.docx", "<w:p><w:r><w:t>The mill was sold in 1931.</w:t></w:r></w:p>")
    profile = f"-env:UserInstallation={(tmp_path / 'profile').as_uri()}"
    command = [shutil.which("soffice") or "libreoffice", profile, "--headless", "--convert-to", "doc", "--outdir"]
    subprocess.run([*command, tmp_path, tmp_path / "a.docx"], check=True, capture_output=True)
    sockets = set(legacy.SOCKETS.glob("OSL_PIPE_*"))
    document = ingest_in_subprocess(tmp_path / "a.doc")
    assert (document.format, document.text) == ("doc", "The mill was sold in 1931.")
    assert "Read as LibreOffice converts it to DOCX" in document.warnings[0]
    assert set(legacy.SOCKETS.glob("OSL_PIPE_*")) <= sockets
    path = ole(tmp_path / "b.doc", {"WordDocument": b"nothing of a document" * 400})
    with pytest.raises(BrokenFile, match=r"b.doc cannot be opened by LibreOffice.*as DOCX without one"):
        ingest_in_subprocess(path)
