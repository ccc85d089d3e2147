"""RTF: paragraphs, rows, letters of other code pages; what is left out is told."""

from pathlib import Path

from tests.ingest import makers


def test_an_rtf_document_is_read(tmp_path: Path) -> None:
    head = r"{\rtf1\ansi\ansicpg1250{\fonttbl{\f0 Arial;}}{\info{\title The mill}}\f0 "
    body = r"M\'fcller, \u945? and \'9aek\par Second {\b bold} line.\par\trowd\cellx9\cellx19 a\cell b\cell\row "
    picture = r"{\pict\wmetafile8 01020304}The end.\par}"
    document = makers.read(tmp_path / "a.rtf", head + body + picture)
    assert (document.format, document.title) == ("rtf", "The mill")
    assert document.text == "Müller, α and šek\n\nSecond bold line.\n\na | b\n\nThe end."
    assert [warning.partition(" within")[0] for warning in document.warnings] == ["Not read: 1 picture or object"]
