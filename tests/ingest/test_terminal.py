"""The text that a terminal shows: colours, progress, moves of the cursor, and line ends that are none of these."""

from pathlib import Path

import pytest

from ingest.terminal import terminal_text
from tests.ingest.makers import read


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("\x1b[1;32mPASSED\x1b[0m in \x1b[33m3\x1b[0m s", "PASSED in 3 s"),
        ("10%|#  |\r50%|##  |\r100%|####| 40/40\nend", "100%|####| 40/40\nend"),
        ("Load  99 of 100\rLoad 100\nend", "Load 100 of 100\nend"),
        ("Load 100 of 100\r\x1b[KLoad 7\nend", "Load 7\nend"),
        ("one\ntwo\n\x1b[2A\x1b[2Kuno\x1b[1B\r\x1b[2Kdue\nend", "uno\ndue\nend"),
        ("a\ba bold, _\bu under, abc\b\bX\n", "a bold, u under, aXc\n"),
        ("\x1b]8;;http://a.b\x07link\x1b]8;;\x07 and \x1b(Bplain", "link and plain"),
        ("\x1b[5Gx\x1b[3Dy\x1b[9999999999999C.", "  y x" + " " * 998 + "."),
        ("One.\rTwo.\rThree.", "One.\nTwo.\nThree."),
        ("Name\rAnna\nend", "Name\rAnna\nend"),
        ("one\r\ntwo\r\r\n", "one\r\ntwo\r\r\n"),
    ],
)
def test_text_is_as_a_terminal_shows_it(written: str, shown: str) -> None:
    assert terminal_text(written) == shown


def test_a_log_has_its_last_progress_alone(tmp_path: Path) -> None:
    assert read(tmp_path / "a.log", "start\r\nfetch 1\rcopy 22\nend\n").text == "start\ncopy 22\nend"
    assert read(tmp_path / "b.log", "one\rtwo\r").text == "one\ntwo"
    assert read(tmp_path / "a.jsonl", '{"say": "\\u001b[31mred\\u001b[0m"}').text == '{"say": "red"}'
