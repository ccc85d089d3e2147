"""What PDF alone has: raised and doubled print, forms, large first letters, page labels, comments, files within."""

from dataclasses import replace
from pathlib import Path

import pymupdf

from ingest import PageQuality, ingest
from tests.ingest import makers


def made(*pieces: tuple[float, float, str, float]) -> pymupdf.Document:
    """A page with pieces of print at (x, y), of these sizes; to be saved."""
    document = pymupdf.open()
    page = document.new_page(width=400, height=600)
    for x, y, text, size in pieces:
        page.insert_text((x, y), text, fontsize=size)
    return document


def text_of(path: Path, document: pymupdf.Document) -> str:
    document.save(path)
    document.close()
    return ingest(path, ocr=False).text


def width(text: str, size: float) -> float:
    return float(pymupdf.get_text_length(text, fontsize=size))


def test_raised_print_is_no_part_of_the_number_before_it(tmp_path: Path) -> None:
    """A footnote made 8,935,112 eighty-nine millions, and 10 to the sixth a hundred and six."""
    pieces, x = [], 50.0
    for text, lift in (("It had 8,935,112", 0), ("3", 4), (" people on 10", 0), ("6", 4), (" km", 0), ("2", 4)):
        size = 7 if lift else 11
        pieces.append((x, 300.0 - lift, text, size))
        x += width(text, size)
    note = [(50.0, 396.0, "3", 6.0), (50.0 + width("3", 6), 400.0, "At the last count.", 9.0)]
    document = made(*pieces, *note)
    assert text_of(tmp_path / "a.pdf", document) == "It had 8,935,112^3 people on 10^6 km^2\n\n3 At the last count."


def test_print_that_is_drawn_twice_to_look_bold_comes_once(tmp_path: Path) -> None:
    document = made((50, 300, "The Keeper", 16), (50.4, 300, "The Keeper", 16), (50, 340, "He kept it.", 11))
    assert text_of(tmp_path / "a.pdf", document) == "The Keeper\n\nHe kept it."


def test_a_large_first_letter_belongs_to_its_word(tmp_path: Path) -> None:
    lines = [
        "he keeper of the lamp climbed up the stairs",
        "to the gallery and counted the ships, and all",
        "were bound.",
    ]
    pieces = [(78 if number < 2 else 50, 296.0 + 14 * number, line, 11.0) for number, line in enumerate(lines)]
    document = made((50, 318, "T", 40), *pieces)
    assert text_of(tmp_path / "a.pdf", document) == "T" + " ".join(lines)


def test_short_lines_of_a_block_stay_apart(tmp_path: Path) -> None:
    """An address or a list was one line, where none of its lines was longer than the others."""
    text = [f"The keeper of the lamp climbed up the stairs for the {number}th time." for number in range(4, 8)]
    address = ["Mr. John Smith", "12 Main Street", "Springfield"]
    lines = [(50, 100 + 14 * y, line) for y, line in enumerate(text)]
    lines += [(50, 300 + 14 * y, line) for y, line in enumerate(address)]
    read = ingest(makers.pdf(tmp_path / "a.pdf", [lines]), ocr=False).text
    assert read.endswith("\n\n" + "\n".join(address))
    assert read.startswith(" ".join(text))


def test_an_empty_cell_keeps_its_column(tmp_path: Path) -> None:
    """Who still writes was said to have died; a cell over two columns leaves neither empty."""
    rows = [
        ["Name", "Born", "Died", "Remark"],
        ["Grace Hopper", "1906", "1992", "navy"],
        ["Donald Knuth", "1938", "", "still writing"],
        ["Plato", "in the years BC", "", "Greek"],
    ]
    columns = (50, 170, 240, 310)
    lines = [
        (x, 100 + 14 * y, text) for y, row in enumerate(rows) for x, text in zip(columns, row, strict=True) if text
    ]
    assert ingest(makers.pdf(tmp_path / "a.pdf", [lines]), ocr=False).text.splitlines() == [
        "Name | Born | Died | Remark",
        "Grace Hopper | 1906 | 1992 | navy",
        "Donald Knuth | 1938 | | still writing",
        "Plato | in the years BC | Greek",
    ]


def test_numbers_of_lines_in_the_margin_are_no_text(tmp_path: Path) -> None:
    """They stood in the middle of sentences; a column of numbers with a heading stays."""
    words = [f"and the keeper of the lamp counted the ships that came at {y + 1}" for y in range(12)]
    text = [(70, 100 + 14 * y, line) for y, line in enumerate(words)]
    numbers = [(40, 100 + 14 * y, str(y + 1)) for y in range(12)]
    read = ingest(makers.pdf(tmp_path / "a.pdf", [numbers + text]), ocr=False).text
    assert read == " ".join(words)
    listed = [(40, 86, "No."), *numbers, *((70, y, f"Ship {y}") for _, y, _ in numbers)]
    assert "9" in ingest(makers.pdf(tmp_path / "b.pdf", [listed]), ocr=False).text.split()


def test_a_form_is_read_with_the_words_beside_its_fields(tmp_path: Path) -> None:
    """Values stood together at the end, without what was asked, and a tick as a figure of its font: "Ibsen 5 3"."""
    document = made((50, 60, "Application, 5 pages", 11))
    fields = [
        ("Surname", pymupdf.PDF_WIDGET_TYPE_TEXT, "Ibsen"),
        ("Children:", pymupdf.PDF_WIDGET_TYPE_TEXT, "5"),
        ("Smoker", pymupdf.PDF_WIDGET_TYPE_CHECKBOX, True),
        ("Vegetarian", pymupdf.PDF_WIDGET_TYPE_CHECKBOX, False),
    ]
    for number, (label, kind, value) in enumerate(fields):
        y = 100 + 30 * number
        document[0].insert_text((50, y + 15), label, fontsize=11)
        widget = pymupdf.Widget()
        widget.field_name, widget.field_type, widget.field_value = f"f1_{number}", kind, value
        widget.rect = pymupdf.Rect(200, y, 300, y + 20)
        document[0].add_widget(widget)
    read = text_of(tmp_path / "a.pdf", document)
    assert read.endswith("\n\nSurname: Ibsen\nChildren: 5\nSmoker: yes")
    assert read.count("Ibsen") == 1
    assert "5 3" not in read


def test_comments_stand_below_the_print_of_their_page(tmp_path: Path) -> None:
    """Whatever reviewers had noted was left out; what they only marked, or hid, or wrote into the page, is no note."""
    document = made((50, 60, "The lamp is lent to Mr Lark for a year.", 11))
    page = document[0]
    page.add_text_annot((300, 60), "Sold, I thought.\nAsk him.").set_info(title="Anne")
    for words, comment in (("a year", "Too long! Übrigens 塔"), ("lent", "lent"), ("Mr Lark", "")):
        page.add_highlight_annot(page.search_for(words)[0]).set_info(content=comment, title="")
    page.add_text_annot((300, 90), "Hidden.").set_flags(pymupdf.PDF_ANNOT_IS_HIDDEN)
    page.add_text_annot((300, 120), "lamp")  # though that is on the page, too
    document.xref_set_key(page.add_text_annot((300, 150), "Accepted").xref, "StateModel", "(Review)")
    page.add_freetext_annot((50, 100, 300, 120), "Written over it.")
    document.new_page(width=400, height=600).insert_text((50, 60), "The ship.")
    document.save(tmp_path / "a.pdf")
    first, second = ingest(tmp_path / "a.pdf", ocr=False).pages
    assert first.text == (
        "The lamp is lent to Mr Lark for a year.\n\nWritten over it.\n\n"
        "[comment by Anne: Sold, I thought. Ask him.]\n[comment: Too long! Übrigens 塔]\n[comment: lamp]"
    )
    assert second.text == "The ship."


def test_a_page_is_read_whose_links_and_comments_have_no_number(tmp_path: Path) -> None:
    """They stand in the page itself, as FPDF writes links: none of its text was read. Or words stand elsewhere."""
    document = made((50, 60, "The lamp is lent to Mr Lark for a year.", 11))
    link = "<</Type/Annot/Subtype/Link/Rect[10 10 50 50]/A<</S/URI/URI(http://lamp.example)>>>>"
    note = "<</Type/Annot/Subtype/Text/Rect[60 10 80 50]/Contents(Sold.)/T(Anne)>>"
    elsewhere = document.get_new_xref()
    document.update_object(elsewhere, "(To whom?)")
    far = f"<</Type/Annot/Subtype/Text/Rect[90 10 99 50]/Contents {elsewhere} 0 R>>"
    document.xref_set_key(document[0].xref, "Annots", f"[{link}{note}{far}]")
    document.save(tmp_path / "a.pdf")
    [page] = ingest(tmp_path / "a.pdf", ocr=False).pages
    assert page.text == "The lamp is lent to Mr Lark for a year.\n\n[comment by Anne: Sold.]\n[comment: To whom?]"


def test_a_comment_on_a_scan_is_not_its_text(tmp_path: Path) -> None:
    path = makers.pdf(tmp_path / "a.pdf", [[]], scans={1})
    with pymupdf.open(path) as document:
        document[0].add_text_annot((300, 60), "Whose hand is this?")
        document.save(tmp_path / "b.pdf")
    scan = ingest(tmp_path / "b.pdf", ocr=False)
    assert scan.text == "[comment: Whose hand is this?]"
    assert scan.pages[0].quality.lacks_text
    assert "only 30 characters of text beside it" in scan.warnings[0]
    assert "install Tesseract" in scan.warnings[0]


def test_pages_are_called_what_is_printed_on_them(tmp_path: Path) -> None:
    path = makers.pdf(tmp_path / "a.pdf", [[(50, 300, f"Words of page {number}.")] for number in range(4)])
    with pymupdf.open(path) as document:
        rules = [(0, "r", 1), (2, "D", 1), (3, "D", 4)]
        document.set_page_labels([{"startpage": at, "prefix": "", "style": s, "firstpagenum": n} for at, s, n in rules])
        document.save(tmp_path / "b.pdf")
    labels = [page.label for page in ingest(tmp_path / "b.pdf", ocr=False).pages]
    assert labels == [
        "page i (page 1 of the file)",
        "page ii (page 2 of the file)",
        "page 1 (page 3 of the file)",
        "page 4",
    ]
    parts = [{"startpage": at, "prefix": "", "style": "D", "firstpagenum": 1} for at in (0, 2)]
    with pymupdf.open(path) as document:
        document.set_page_labels(parts)
        document.save(tmp_path / "c.pdf")
    twice = ingest(tmp_path / "c.pdf", ocr=False)
    assert [page.label for page in twice.pages] == [
        f"page {printed} (page {number} of the file)" for number, printed in enumerate((1, 2, 1, 2), 1)
    ]
    assert twice.printed == ("1", "2", "1", "2")
    lost = replace(twice.pages[2], text="", quality=PageQuality(0, "none"))
    assert "No text on page 3 of the file:" in replace(twice, pages=(*twice.pages[:2], lost)).coverage()
    assert [page.label for page in ingest(path, ocr=False).pages] == ["page 1", "page 2", "page 3", "page 4"]


def test_files_within_the_file_are_named(tmp_path: Path) -> None:
    document = made((50, 300, "Open this portfolio.", 11))
    document.embfile_add("real.pdf", b"%PDF-1.4", filename="real.pdf")
    document.save(tmp_path / "a.pdf")
    assert ingest(tmp_path / "a.pdf", ocr=False).warnings == ("1 attached file was not read: real.pdf.",)
