"""Captions: each line once, without tags and numbers, in paragraphs with their time."""

from pathlib import Path

import pytest

from tests.ingest.makers import read

BLANK = " "
VTT = f"""WEBVTT
Kind: captions

STYLE
::cue {{ color: red }}

00:00:00.100 --> 00:00:02.600 align:start position:0%
{BLANK}
the<00:00:00.400><c> ferry</c><00:00:00.700><c.yellow> crossed</c>

00:00:02.600 --> 00:00:02.610 align:start position:0%
the ferry crossed
{BLANK}

00:00:02.610 --> 00:00:05.110
the ferry crossed
twice<00:00:02.910><c> a day</c>

NOTE nobody sees this
nor this

00:00:05.110 --> 00:00:05.120
twice a day
{BLANK}
"""
PLAIN_ROLL = """1
00:00:01,000 --> 00:00:03,000
one boat

2
00:00:03,000 --> 00:00:05,000
one boat
two men

3
00:00:05,000 --> 00:00:07,000
two men
three nets
"""
SRT = """1
00:00:01,000 --> 00:00:02,000
{\\an8}<i>No.</i>
2
00:00:02,000 --> 00:00:03,000
No.

3
01:00:09,500 --> 01:00:12,000
<font color="#ff0">A &amp; B:</font> a < b

12 o'clock

4
01:00:12,000 --> 01:00:13,000
1901
"""


@pytest.mark.parametrize(
    ("name", "written", "text"),
    [
        ("a.vtt", VTT, "[0:00:00]\nthe ferry crossed\ntwice a day"),
        ("a.srt", PLAIN_ROLL, "[0:00:01]\none boat\ntwo men\nthree nets"),
        ("b.srt", SRT, "[0:00:01]\nNo.\nNo.\n\n[1:00:09]\nA & B: a < b\n12 o'clock\n1901"),
        ("b.vtt", "WEBVTT\n\nintro\n00:01.000 --> 00:02.000\n<v.loud Mary Ann>Ahoy!</v>", "[0:00:01]\nMary Ann: Ahoy!"),
        ("a.sbv", "0:00:01.000,0:00:02.000\none\ntwo\n\n0:00:02.000,0:00:03.000\nthree", "[0:00:01]\none\ntwo\nthree"),
        ("c.srt", "No times at all.\nTwo lines.", "No times at all.\nTwo lines."),
    ],
)
def test_captions_are_read_once(tmp_path: Path, name: str, written: str, text: str) -> None:
    assert read(tmp_path / name, written).text == text
