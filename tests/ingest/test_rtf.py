"""RTF: paragraphs, rows, letters of other code pages, notes, boxes, tracked changes, and warnings about objects."""

from pathlib import Path

import pytest

from tests.ingest import makers

HEAD = r"{\rtf1\ansi\ansicpg1252\deff0{\fonttbl{\f0{\*\panose 02020603}Arial;}{\f1\fcharset204 Arial Cyr;}"
HEAD += r"{\f2\fcharset2 Symbol;}{\f3\fcharset128 MS Mincho;}}"
HEAD += r"{\stylesheet{\s0 Normal;}{\s1\outlinelevel0 \'dcberschrift 1;}{\s2 heading 2;}{\*\cs3 \v Hidden;}}"


def text_of(folder: Path, body: str) -> str:
    return makers.read(folder / "a.rtf", f"{HEAD}\n{body}}}").text


def test_an_rtf_document_is_read(tmp_path: Path) -> None:
    head = r"{\rtf1\ansi\ansicpg1250{\fonttbl{\f0 Arial;}}{\info{\title The mill}}\f0 "
    body = r"M\'fcller, \u945? and \'9aek\par Second {\b bold} line.\par\trowd\cellx9\cellx19 a\cell b\cell\row "
    picture = r"{\pict\wmetafile8 01020304}The end.\par}"
    document = makers.read(tmp_path / "a.rtf", head + body + picture)
    assert (document.format, document.title) == ("rtf", "The mill")
    assert document.text == "Müller, α and šek\n\nSecond bold line.\n\na | b\n\nThe end."
    assert [warning.partition(" within")[0] for warning in document.warnings] == ["Not read: 1 picture or object"]


@pytest.mark.parametrize(
    ("body", "read"),
    [
        (r"a year {\deleted\revauthdel1 400}{\revised 450} florins\par", "a year 450 florins"),
        (r"The boat{\deleted , old\par }{} and the mill\par", "The boat and the mill"),
        (r"One.\v Secret.\par Hidden, too.\v0  Two.\par", "One.\n\nTwo."),
        (r"One.{\v\plain  Three.}\par", "One. Three."),
        (r"{\deleted Gone{\footnote\pard\plain {\super\chftn} A note.}}Here.\par", "Here."),
    ],
)
def test_tracked_changes_are_accepted_and_hidden_text_is_not_read(tmp_path: Path, body: str, read: str) -> None:
    assert text_of(tmp_path, body) == read


def test_a_row_and_a_cell_that_were_deleted_are_not_read(tmp_path: Path) -> None:
    rows = r"\trowd\cellx9\cellx19\intbl Tar\cell 4\cell\row\trowd\cellx9\cellx19\intbl{\deleted Rope\cell 7\cell\row}"
    rows += r"\trowd\cellx9\cldel\cellx19\intbl Oil\cell 7\cell\row\pard End.\par"
    assert text_of(tmp_path, rows) == "Tar | 4\nOil\n\nEnd."


def test_notes_and_comments_are_numbered_and_stand_at_the_end(tmp_path: Path) -> None:
    body = r"The ferry was sold{\super\chftn}{\footnote\pard\plain {\super\chftn} For nine hundred florins.} in autumn"
    body += (
        r"{\*\atnid AB}{\*\atnauthor Anna Berg}\chatn{\*\annotation{\*\atnref 1}\pard\plain Says who?\par Ask.}.\par "
    )
    body += r"Nobody saw it{\super\chftn}{\footnote\ftnalt\pard\plain {\super\chftn} It sank.}.\par"
    assert text_of(tmp_path, body) == (
        "The ferry was sold[1] in autumn[2].\n\nNobody saw it[3].\n\n"
        "[1] For nine hundred florins.\n[2] Anna Berg: Says who? Ask.\n[3] It sank."
    )


def test_a_text_box_is_read_once_behind_its_paragraph(tmp_path: Path) -> None:
    old = r"{\*\do\dobxpage{\dptxbx{\dptxbxtext\pard\plain No crossing.\par}}}"
    new = r"{\shp{\*\shpinst{\sp{\sn shapeType}{\sv 202}}{\shptxt\pard\plain No crossing.\par}}{\shprslt" + old + "}}"
    for box in (old, new, r"{\shp{\shprslt" + old + "}}"):
        body = r"\pard The notice" + box + r" hung there.\par It was taken down.\par"
        assert text_of(tmp_path, body) == "The notice hung there.\n\nNo crossing.\n\nIt was taken down."


@pytest.mark.parametrize(
    ("body", "read"),
    [
        (r"\uc1 It was \u-10179?\u-8704? and \u55356?\u57098?.", "It was 😀 and 🌊."),
        (r"\uc2 \u26085\'93\'fa\uc0 \u26412.", "日本."),
        (r"{\f1 \'cc\'ee\'f1\'f2}, {\f2 a \'b7} and {\f3 \'93\'fa\'96\'7b}", "Мост, α • and 日本"),
        (r"{\upr{A road: ?}{\*\ud{A road: \u26725?}}} goes.", "A road: 桥 goes."),
        (r"\{10{\super 2}\}\~m{\super th}\line x\-y", "{10^2} mth\nxy"),
        (
            r"{\field{\*\fldinst HYPERLINK \"http://a.b\"}{\fldrslt the mill}} {\*\unknown no}{\header no\par}yes",
            "the mill yes",
        ),
        (r"{\*\bin4 {{{{}a{\pict\bin3 }}}}b", "ab"),
        (r"{\mmath{\*\moMath{\mf{\mfPr\mtype}{\mnum{\mr a}}{\mden{\mr b}}}}{\mmathPict x}} = c", "a/b = c"),
    ],
)
def test_signs_groups_and_fields(tmp_path: Path, body: str, read: str) -> None:
    assert text_of(tmp_path, body + r"\par") == read


def test_headings_lists_and_cells_of_several_lines(tmp_path: Path) -> None:
    body = r"\pard\s1 The ferry\par\pard\s0 Old.\par\pard\s2 The price\par\pard\plain It had:\par "
    body += r"{\listtext\f2 \'b7\tab}a lamp\par{\listtext\f2 \'b7\tab}a bell\par\pard Then:\par"
    body += r"\trowd\cellx9\cellx19\intbl two\par lines\cell 5\cell\row\pard\outlinelevel2 End\par\pard It ended.\par"
    document = makers.read(tmp_path / "a.rtf", f"{HEAD}\n{body}}}")
    assert [(entry.level, entry.title) for entry in document.toc] == [(1, "The ferry"), (2, "The price"), (3, "End")]
    assert "It had:\n\n• a lamp\n• a bell\n\nThen:\n\ntwo lines | 5\n\nEnd" in document.text
