"""List numbers in Word documents."""

import re
import zipfile
from pathlib import Path

from ingest import ingest
from tests.ingest import makers
from tests.ingest.office_makers import W, listed, word

LEVEL = '<w:lvl w:ilvl="{}">{}<w:numFmt w:val="{}"/><w:lvlText w:val="{}"/></w:lvl>'


START = '<w:start w:val="{}"/>'


def test_lists_have_their_numbers(tmp_path: Path) -> None:
    """Word counts them when it shows the page: the file does not tell where "2.1(b)" is."""
    levels = "".join(
        (
            LEVEL.format(0, START.format(1), "decimal", "%1.").replace("<w:numFmt", '<w:pStyle w:val="Top"/><w:numFmt'),
            LEVEL.format(1, START.format(1), "decimal", "%1.%2"),
            LEVEL.format(2, START.format(1), "lowerLetter", "(%3)"),
            LEVEL.format(3, START.format(25), "upperLetter", "%4"),
            LEVEL.format(4, START.format(1), "bullet", "o"),
            LEVEL.format(5, START.format(4), "upperRoman", "%6)").replace(
                "<w:numFmt", '<w:lvlRestart w:val="0"/><w:numFmt'
            ),
            LEVEL.format(6, "", "decimalZero", "%1-%7").replace("<w:numFmt", "<w:isLgl/><w:numFmt"),
            LEVEL.format(7, START.format(1), "none", ""),
        )
    )
    again = '<w:lvlOverride w:ilvl="0"><w:startOverride w:val="7"/></w:lvlOverride>'
    numbering = (
        f'<w:numbering xmlns:w="{W}"><w:abstractNum w:abstractNumId="0">{levels}</w:abstractNum>'
        '<w:abstractNum w:abstractNumId="1"><w:numStyleLink w:val="Plan"/></w:abstractNum>'
        '<w:abstractNum w:abstractNumId="2"><w:styleLink w:val="Plan"/>'
        f"{LEVEL.format(0, START.format(1), 'lowerRoman', '%1')}</w:abstractNum>"
        '<w:num w:numId="1"><w:abstractNumId w:val="0"/></w:num>'
        f'<w:num w:numId="2"><w:abstractNumId w:val="0"/>{again}</w:num>'
        '<w:num w:numId="3"><w:abstractNumId w:val="1"/></w:num></w:numbering>'
    )
    styles = (
        '<w:style w:type="paragraph" w:styleId="Top"><w:name w:val="heading 1"/><w:pPr><w:numPr><w:numId w:val="1"/>'
        '</w:numPr></w:pPr></w:style><w:style w:type="paragraph" w:styleId="Like"><w:name w:val="Like"/><w:basedOn '
        'w:val="Top"/></w:style><w:style w:type="paragraph" w:styleId="ListParagraph">'
        '<w:name w:val="List Paragraph"/></w:style>'
    )
    body = (
        listed("Terms", style="Top"),
        listed("Rent", 1, 1),
        listed("first", 1, 2),
        listed("", 1, 2),
        listed("third", 1, 2),
        listed("far", 1, 3),
        listed("farther", 1, 3),
        listed("farthest", 1, 3),
        listed("dot", 1, 4),
        listed("four", 1, 5),
        listed("Water", 1, 1),
        listed("anew", 1, 2),
        listed("five", 1, 5),
        listed("zero", 1, 6),
        listed("silent", 1, 7),
        listed("Based on it", style="Like"),
        listed("Taken out", 0, style="Like"),
        listed("Only indented", style="ListParagraph"),
        listed("another", 3, 0),
        listed("Begun anew", 2, 0),
        listed("Going on", 1, 0),
        listed("no such list", 99, 0),
    )
    path = word(tmp_path / "a.docx", "".join(body))
    with zipfile.ZipFile(path) as archive:
        known = archive.read("word/styles.xml").decode()
    styles = re.sub(
        r'<w:style .*?w:styleId="(?:Heading1|ListParagraph)".*?</w:style>', "", known, flags=re.DOTALL
    ).replace("</w:styles>", f"{styles}</w:styles>")
    makers.with_member(
        makers.with_member(path, "word/styles.xml", styles.encode()), "word/numbering.xml", numbering.encode()
    )
    document = ingest(path)
    assert document.pages[0].label == "1. Terms"
    assert document.text == (
        "1. Terms\n\n1.1 Rent\n(a) first\n(c) third\nY far\nZ farther\nAA farthest\n----- dot\nIV) four\n1.2 Water\n"
        "(a) anew\nV) five\n1-0 zero\n\nsilent\n\n2. Based on it\n\nTaken out\n\nOnly indented\n\ni another\n"
        "7. Begun anew\n8. Going on\n- no such list"
    )
