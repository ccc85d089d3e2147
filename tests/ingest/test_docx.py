"""Word documents: markup that hides or changes text, tables, notes, drawings."""

import re
import zipfile
from pathlib import Path

import docx
import pytest
from docx.oxml import parse_xml

from ingest import EmptyDocument, ingest
from tests.ingest import makers
from tests.ingest.office_makers import W, listed, word


def test_what_paragraphs_hide_is_read(tmp_path: Path) -> None:
    document = docx.Document()
    document.add_heading("Report", 1)
    paragraph = document.add_paragraph("Kept ")
    w = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
    paragraph._p.append(parse_xml(f"<w:ins {w}><w:r><w:t>inserted</w:t></w:r></w:ins>"))
    paragraph._p.append(parse_xml(f"<w:del {w}><w:r><w:delText>deleted</w:delText></w:r></w:del>"))
    document.element.body.insert(
        2, parse_xml(f"<w:sdt {w}><w:sdtContent><w:p><w:r><w:t>In a control.</w:t></w:r></w:p></w:sdtContent></w:sdt>")
    )
    document.add_heading("Details", 2)
    document.add_paragraph("One", style="List Bullet")
    document.add_paragraph("Two", style="List Bullet")
    document.core_properties.title = "Word Document"
    document.save(str(tmp_path / "a.docx"))
    read_back = ingest(tmp_path / "a.docx")
    assert read_back.title == "Report"
    assert [page.text for page in read_back.pages] == [
        "Report\n\nKept inserted\n\nIn a control.",
        "Details\n\n- One\n- Two",
    ]


RAISED = '<w:r><w:rPr><w:vertAlign w:val="superscript"/></w:rPr><w:t>5</w:t></w:r>'


CELL = "<w:tc><w:p><w:r><w:t>{}</w:t></w:r></w:p>{}</w:tc>"


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (
            '<w:p><w:r><w:drawing xmlns:wp="http://schemas.openxmlformats.org/drawingml/2006/wordprocessingDrawing">'
            '<wp:inline><wp:docPr id="1" name="P" descr="Ships in the harbour"/></wp:inline></w:drawing></w:r></w:p>',
            "[picture: Ships in the harbour]",
        ),
        (f"<w:p><w:r><w:t>10</w:t></w:r>{RAISED}</w:p>", "10^5"),
        (
            "<w:p><w:r><w:t>19</w:t></w:r>"
            + RAISED
            + "<w:proofErr/>"
            + RAISED.replace("5<", ", 7<")
            + '<w:hyperlink w:anchor="n">'
            + RAISED
            + "</w:hyperlink><w:r><w:t> 2</w:t></w:r>"
            + RAISED.replace("5<", "n<")
            + "<w:r><w:t>x</w:t></w:r></w:p>",
            "19^5,7[5] 2^n x",
        ),
        (
            "<w:p><w:r><w:ruby><w:rt><w:r><w:t>とう</w:t></w:r></w:rt><w:rubyBase><w:r><w:t>塔</w:t></w:r></w:rubyBase>"
            "</w:ruby></w:r></w:p>",
            "塔",
        ),
        (
            "<w:tbl><w:tr>" + CELL.format("a", "") + "<w:sdt><w:sdtContent>" + CELL.format("b", "") + "</w:sdtContent>"
            "</w:sdt></w:tr><w:sdt><w:sdtContent><w:tr>"
            + CELL.format("c", "<w:tbl><w:tr>" + CELL.format("inner", "") + "</w:tr></w:tbl><w:p/>")
            + "</w:tr></w:sdtContent></w:sdt></w:tbl>",
            "a\n\nb\n\nc\n\ninner",
        ),
        (
            "<w:p><w:r><w:t>a</w:t><w:txbxContent><w:p><w:r><w:t>b</w:t><w:txbxContent><w:p><w:r><w:t>c</w:t></w:r></w:p>"
            "</w:txbxContent></w:r></w:p></w:txbxContent></w:r><w:del><w:r><w:txbxContent><w:p><w:r><w:t>gone</w:t></w:r>"
            "</w:p></w:txbxContent></w:r></w:del></w:p>",
            "a\n\nb\n\nc",
        ),
        (
            "<w:p><w:r><w:t>So </w:t></w:r><m:oMath><m:r><m:t>y=</m:t></m:r><m:f><m:num><m:r><m:t>1</m:t></m:r></m:num>"
            "<m:den><m:r><m:t>2+x</m:t></m:r></m:den></m:f><m:sSup><m:e><m:d><m:e><m:r><m:t>a</m:t></m:r></m:e></m:d>"
            "</m:e><m:sup><m:r><m:t>2</m:t></m:r></m:sup></m:sSup><m:rad><m:deg><m:r><m:t>3</m:t></m:r></m:deg><m:e><m:r><m:t>b</m:t></m:r>"
            "</m:e></m:rad></m:oMath></w:p>",
            "So y=1/(2+x)(a)^2√[3](b)",
        ),
        (
            "<w:p><m:oMath><m:r><m:t>1</m:t></m:r><m:r><m:t>2</m:t></m:r><m:f><m:num><m:r><m:t>3</m:t></m:r></m:num><m:den>"
            "<m:r><m:t>4</m:t></m:r></m:den></m:f><m:r><m:t>=</m:t></m:r><m:sSub><m:e><m:r><m:t>x</m:t></m:r></m:e><m:sub><m:r>"
            "<m:t>i</m:t></m:r></m:sub></m:sSub><m:r><m:t>y</m:t></m:r><m:d><m:e><m:m><m:mPr/><m:mr><m:e><m:r><m:t>1</m:t></m:r>"
            "</m:e><m:e/></m:mr><m:mr><m:e><m:r><m:t>3</m:t></m:r></m:e><m:e><m:r><m:t>4</m:t></m:r></m:e></m:mr></m:m></m:e>"
            "</m:d></m:oMath></w:p>",
            "12 3/4=x_i y(1, ; 3, 4)",
        ),
        (
            "<w:p><w:r><w:t>10 </w:t><w:sym w:font='Symbol' w:char='F06D'/><w:t>g </w:t>"
            "<w:sym w:font='Symbol' w:char='F0B3'/><w:t> 2 </w:t><w:sym w:font='Wingdings' w:char='F0FE'/>"
            "<w:t> yes </w:t><w:sym w:font='Other' w:char='F041'/></w:r></w:p>",
            "10 μg ≥ 2 ☑ yes \uf041",
        ),
        (
            "<w:p><w:r><w:t>Seen</w:t></w:r><w:r><w:rPr><w:vanish/></w:rPr><w:t>, hidden</w:t></w:r>"
            "<w:r><w:rPr><w:vanish w:val='0'/></w:rPr><w:t>, seen</w:t></w:r></w:p>",
            "Seen, seen",
        ),
    ],
    ids=[
        "picture",
        "superscript",
        "superscripts",
        "ruby",
        "nested table",
        "boxes",
        "formula",
        "parts of a formula",
        "signs",
        "hidden",
    ],
)
def test_markup_that_changes_what_is_said(tmp_path: Path, body: str, expected: str) -> None:
    assert ingest(word(tmp_path / "a.docx", body)).text == expected


STYLES = (
    '<w:style w:type="paragraph" w:styleId="Mine"><w:name w:val="Mine"/><w:basedOn w:val="Heading1"/></w:style>'
    '<w:style w:type="paragraph" w:styleId="Part"><w:name w:val="Part"/><w:pPr>'
    '<w:outlineLvl w:val="1"/></w:pPr></w:style>'
    '<w:style w:type="paragraph" w:styleId="No"><w:name w:val="No"/><w:basedOn w:val="Heading1"/><w:pPr>'
    '<w:outlineLvl w:val="9"/></w:pPr></w:style></w:styles>'
)


def test_styles_are_headings_by_what_they_are_based_on_and_by_their_outline(tmp_path: Path) -> None:
    body = (listed("One", style="Mine"), listed("Two", style="Part"), listed("no heading", style="No"))
    path = word(tmp_path / "a.docx", "".join(body))
    with zipfile.ZipFile(path) as archive:
        styles = archive.read("word/styles.xml").decode().replace("</w:styles>", STYLES)
    document = ingest(makers.with_member(path, "word/styles.xml", styles.encode()))
    assert [(entry.level, entry.title) for entry in document.toc] == [(1, "One"), (2, "Two")]
    assert document.text == "One\n\nTwo\n\nno heading"


def test_tables_that_arrange_a_page_are_read_cell_by_cell(tmp_path: Path) -> None:
    """A whole curriculum vitae was one line."""
    row = "<w:tbl><w:tr><w:tc>{}</w:tc><w:tc>{}</w:tc></w:tr></w:tbl>"
    left = listed("Anne Lee") + listed("Keeper")
    right = (
        listed("Work", style="Heading1")
        + listed("1815 the lamp", style="ListBullet")
        + listed("Home", style="Heading1")
    )
    alone = f"<w:tbl><w:tr><w:tc>{listed('A box.')}{listed('Of two.')}</w:tc></w:tr></w:tbl>"
    header = row.format(listed("Ship", style="Heading3"), listed("Guns", style="Heading3"))
    table = header.replace("</w:tbl>", row.format(listed("Lark"), listed("7")).removeprefix("<w:tbl>"))
    document = ingest(
        word(tmp_path / "a.docx", row.format(left, right) + alone + table + listed("dot", style="ListBullet"))
    )
    assert [page.label for page in document.pages] == ["opening", "Work", "Home"]
    assert document.text == (
        "Anne Lee\n\nKeeper\n\nWork\n\n- 1815 the lamp\n\nHome\n\nA box.\n\nOf two.\n\nShip | Guns\nLark | 7\n\n- dot"
    )


def test_tables_of_data_keep_their_rows_where_a_cell_holds_another(tmp_path: Path) -> None:
    """Every value stood in a paragraph of its own, away from its label."""
    cell, row = "<w:tc>{}</w:tc>", "<w:tr>{}</w:tr>"
    inner = f"<w:tbl>{row.format(cell.format(listed('lead')) + cell.format(listed('6 t')))}</w:tbl>"
    rows = [("Ship", listed("Lark")), ("Guns", listed("7")), ("Built", listed("1815")), ("Load", inner)]
    table = "".join(row.format(cell.format(listed(label)) + cell.format(value)) for label, value in rows)
    document = ingest(word(tmp_path / "a.docx", f"<w:tbl>{table}</w:tbl>"))
    assert document.text == "Ship | Lark\nGuns | 7\nBuilt | 1815\nLoad | lead | 6 t"


def test_footnotes_keep_their_paragraphs_apart(tmp_path: Path) -> None:
    cite = '<w:r><w:footnoteReference w:id="{}"/></w:r>'
    path = word(tmp_path / "a.docx", f"<w:p><w:r><w:t>Word</w:t></w:r>{cite.format(7)}{cite.format(2)}</w:p>")
    notes = (
        f'<w:footnotes xmlns:w="{W}"><w:footnote w:id="2"><w:p><w:r><w:t>First.</w:t></w:r></w:p><w:p><w:r><w:t>Then'
        "</w:t><w:tab/><w:t>more</w:t><w:br/><w:t>lines.</w:t></w:r></w:p></w:footnote></w:footnotes>"
    )
    kind = "http://schemas.openxmlformats.org/officeDocument/2006/relationships/footnotes"
    rels = "word/_rels/document.xml.rels"
    with zipfile.ZipFile(path) as archive:
        linked = archive.read(rels).replace(
            b"</Relationships>", f'<Relationship Id="n" Type="{kind}" Target="footnotes.xml"/></Relationships>'.encode()
        )
    makers.with_member(makers.with_member(path, rels, linked), "word/footnotes.xml", notes.encode())
    # The note of the first mark is not there; the second keeps its number.
    assert ingest(path).text == "Word[1][2]\n\n[2] First. Then more lines."
    with zipfile.ZipFile(path) as archive:
        body = archive.read("word/document.xml").replace(
            b"<w:body>", f"<w:body>{listed('A', style='Heading1')}".encode()
        )
    document = ingest(makers.with_member(path, "word/document.xml", body))
    assert [(page.label, page.text) for page in document.pages] == [
        ("A", "A\n\nWord[1][2]"),
        ("Notes", "Notes\n\n[2] First. Then more lines."),
    ]
    assert (
        ingest(word(tmp_path / "b.docx", f"{listed('A', style='Heading1')}<w:p>{cite.format(7)}</w:p>")).text
        == "A\n\n[1]"
    )


def test_comments_are_notes_with_their_author(tmp_path: Path) -> None:
    """Comments were left out silently."""
    document = docx.Document()
    document.add_heading("Contract", 1)
    first = document.add_paragraph("The lamp is ").add_run("lent")
    comment = document.add_comment([first], "Sold, I thought.", author="Anne", initials="A")
    comment.add_paragraph("Ask him.")
    second = document.add_paragraph("It is to be ").add_run("lit")
    document.add_comment([second], "By whom?")
    document.save(str(tmp_path / "a.docx"))
    contract, notes = ingest(tmp_path / "a.docx").pages
    assert contract.text == "Contract\n\nThe lamp is lent[1]\n\nIt is to be lit[2]"
    assert notes.text == "Notes\n\n[1] Anne: Sold, I thought. Ask him.\n[2] By whom?"


DRAWINGS = "http://schemas.openxmlformats.org/drawingml/2006"


RELATED = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"


def drawing(path: Path, place: str, kind: str, part: str) -> Path:
    """Write a Word document with a drawing whose words are in a part of their own."""
    names = f'xmlns:a="{DRAWINGS}/main" xmlns:d="{DRAWINGS}/diagram" xmlns:c="{DRAWINGS}/chart" xmlns:r="{RELATED}"'
    graphic = f"<w:drawing><a:graphic {names}><a:graphicData>{place}</a:graphicData></a:graphic></w:drawing>"
    word(path, f"<w:p><w:r><w:t>See</w:t></w:r><w:r>{graphic}</w:r><w:r><w:t>there.</w:t></w:r></w:p>")
    rels = "word/_rels/document.xml.rels"
    relation = f'<Relationship Id="rDrawn" Type="{RELATED}/{kind}" Target="drawn.xml"/></Relationships>'
    with zipfile.ZipFile(path) as archive:
        linked = archive.read(rels).replace(b"</Relationships>", relation.encode())
    return makers.with_member(
        makers.with_member(path, rels, linked), "word/drawn.xml", part.replace("NAMES", names).encode()
    )


def test_the_words_of_a_diagram_are_read(tmp_path: Path) -> None:
    def point(words: str, kind: str = "node") -> str:
        runs = "".join(f"<a:r><a:t>{each}</a:t></a:r>" for each in words.split("|"))
        return f'<d:pt type="{kind}"><d:t><a:p>{runs}</a:p></d:t></d:pt>'

    points = point("Plan") + point("an arrow", "parTrans") + point("Bu|ild") + point("") + point("Anne", "asst")
    part = f"<d:dataModel NAMES><d:ptLst>{points}</d:ptLst></d:dataModel>"
    path = drawing(tmp_path / "a.docx", '<d:relIds r:dm="rDrawn"/>', "diagramData", part)
    assert ingest(path).text == "See [diagram: Plan; Build; Anne] there."
    lost = drawing(tmp_path / "b.docx", '<d:relIds r:dm="rGone"/>', "diagramData", part)
    assert ingest(lost).text == "Seethere."


def test_the_series_of_a_chart_are_read(tmp_path: Path) -> None:
    def points(*values: str) -> str:
        return "".join(f'<c:pt idx="{index}"><c:v>{value}</c:v></c:pt>' for index, value in enumerate(values))

    def series(name: str, *values: str) -> str:
        years = f"<c:cat><c:strRef><c:strCache>{points('2024', '2025')}</c:strCache></c:strRef></c:cat>"
        sold = f"<c:val><c:numLit>{points(*values)}</c:numLit></c:val>"
        return f"<c:ser><c:tx><c:v>{name}</c:v></c:tx>{years}{sold}</c:ser>"

    title = "<c:title><c:tx><c:rich><a:p><a:r><a:t>Lamps sold</a:t></a:r></a:p></c:rich></c:tx></c:title>"
    plot = series("Oil", "4.2999999999999998", "3") + series("Gas", "1", "5")
    part = f"<c:chartSpace NAMES><c:chart>{title}<c:plotArea>{plot}</c:plotArea></c:chart></c:chartSpace>"
    path = drawing(tmp_path / "a.docx", '<c:chart r:id="rDrawn"/>', "chart", part)
    said = "Lamps sold; Oil: 2024 4.3, 2025 3; Gas: 2024 1, 2025 5"
    assert ingest(path).text == f"See [chart: {said}] there."

    def numbers(name: str, *values: str, form: str = "") -> str:
        code = f"<c:formatCode>{form}</c:formatCode>" if form else ""
        return f"<c:{name}><c:numRef><c:numCache>{code}{points(*values)}</c:numCache></c:numRef></c:{name}>"

    levels = f"<c:lvl>{points('007', '1e5')}</c:lvl><c:lvl>{points('2024')}</c:lvl>"
    odd = (
        f"<c:title><c:tx><c:strRef><c:strCache>{points('Of a cell')}</c:strCache></c:strRef></c:tx></c:title>"
        f"<c:ser><c:cat><c:multiLvlStrRef><c:multiLvlStrCache>{levels}</c:multiLvlStrCache></c:multiLvlStrRef></c:cat>"
        f"{numbers('val', '1234567890123456', '0.1')}</c:ser>"
        f"<c:ser>{numbers('cat', '37261', form='m/d/yyyy')}{numbers('val', '3.5', form='0.0&quot; days&quot;')}</c:ser>"
    )
    part = f"<c:chartSpace NAMES>{odd}</c:chartSpace>"
    text = ingest(drawing(tmp_path / "c.docx", '<c:chart r:id="rDrawn"/>', "chart", part)).text
    assert text == "See [chart: Of a cell; 007 1234567890123456, 1e5 0.1; 2002-01-05 3.5 days] there."
    torn = ingest(drawing(tmp_path / "d.docx", '<c:chart r:id="rDrawn"/>', "chart", ""))
    assert torn.text == "Seethere."
    assert torn.warnings == ("Not read: 1 drawing that cannot be understood.",)
    many = f"<c:chartSpace NAMES>{series('Oil', *map(str, range(300)))}</c:chartSpace>"
    text = ingest(drawing(tmp_path / "b.docx", '<c:chart r:id="rDrawn"/>', "chart", many)).text
    assert text.endswith(" 98, 99 and 200 more] there.")


def test_word_documents_with_macros_templates_and_strict_ones_are_read(tmp_path: Path) -> None:
    path = word(tmp_path / "a.docx", "<w:p><w:r><w:t>Words.</w:t></w:r></w:p>")
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    usual = b"application/vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml"
    for kind in (
        b"application/vnd.ms-word.document.macroEnabled.main+xml",
        b"application/vnd.openxmlformats-officedocument.wordprocessingml.template.main+xml",
    ):
        types = members["[Content_Types].xml"].replace(usual, kind)
        assert types != members["[Content_Types].xml"]
        document = ingest(makers.archive(tmp_path / "a.docm", members | {"[Content_Types].xml": types}))
        assert (document.format, document.text) == ("docx", "Words.")
    strict = {
        name: re.sub(rb"http://schemas.openxmlformats.org/(\w+)/2006/", rb"http://purl.oclc.org/ooxml/\1/", data)
        if not name.startswith(("[", "docProps"))
        else data
        for name, data in members.items()
    }
    strict["_rels/.rels"] = strict["_rels/.rels"].replace(
        b"purl.oclc.org/ooxml/package/", b"schemas.openxmlformats.org/package/2006/"
    )
    assert ingest(makers.archive(tmp_path / "strict.docx", strict)).text == "Words."


def test_documents_within_a_word_document_are_no_silent_loss(tmp_path: Path) -> None:
    """Programs that know HTML but not Word insert it whole: it was left out silently."""
    before, chunk = "<w:p><w:r><w:t>Before.</w:t></w:r></w:p>", "<w:altChunk/>"
    document = ingest(word(tmp_path / "a.docx", f"{before}{chunk}{chunk}<w:p><w:subDoc/></w:p>"))
    assert document.text == "Before."
    assert document.warnings == (
        "Not read: 2 documents within the file, put in place only when Word opens it. Open the file in Word, save it "
        "again and add that.",
        "Not read: 1 part of the document kept in files beside it. Add them too.",
    )
    with pytest.raises(EmptyDocument, match=r"Not read: 1 document within the file.*save it again"):
        ingest(word(tmp_path / "b.docx", chunk))


def test_deleted_rows_and_cells_are_not_read(tmp_path: Path) -> None:
    def row(*texts: str, properties: str = "", cell: str = "") -> str:
        cells = "".join(
            f"<w:tc><w:tcPr>{cell}</w:tcPr><w:p><w:r><w:t>{text}</w:t></w:r></w:p></w:tc>" for text in texts
        )
        return f"<w:tr><w:trPr>{properties}</w:trPr>{cells}</w:tr>"

    gone = row("Rope", "12", properties='<w:del w:id="1" w:author="A"/>')
    half = row("Oil").replace(
        "</w:tr>", row("7", cell='<w:cellDel w:id="2" w:author="A"/>')[len("<w:tr><w:trPr></w:trPr>") :]
    )
    path = word(
        tmp_path / "a.docx", f"<w:tbl>{row('Item', 'Price')}{gone}{row('Tar', '4')}{half}</w:tbl><w:tbl>{gone}</w:tbl>"
    )
    assert ingest(path).text == "Item | Price\nTar | 4\nOil"


def test_text_hidden_by_a_style_is_not_read(tmp_path: Path) -> None:
    from docx.enum.style import WD_STYLE_TYPE

    document = docx.Document()
    secret = document.styles.add_style("Secret", WD_STYLE_TYPE.PARAGRAPH)
    secret.font.hidden = True
    based = document.styles.add_style("Based", WD_STYLE_TYPE.PARAGRAPH)
    based.base_style = secret
    shown = document.styles.add_style("Shown", WD_STYLE_TYPE.PARAGRAPH)
    shown.base_style, shown.font.hidden = secret, False
    hush = document.styles.add_style("Hush", WD_STYLE_TYPE.CHARACTER)
    hush.font.hidden = True
    paragraph = document.add_paragraph("It was sold ")
    paragraph.add_run("below value ", style="Hush")
    paragraph.add_run("for nine ", style="Hush").font.hidden = False
    paragraph.add_run("florins.")
    document.add_paragraph("Gone.", style="Secret")
    document.add_paragraph("Gone, too.", style="Based").add_run(" Both.", style="Hush")
    document.add_paragraph("Kept.", style="Shown")
    document.save(str(tmp_path / "a.docx"))
    assert ingest(tmp_path / "a.docx").text == "It was sold for nine florins.\n\nBoth.\n\nKept."
