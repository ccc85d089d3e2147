"""The table of formats: sound rows, and documentation that names each format."""

import importlib
import re
from pathlib import Path

import pytest

from ingest.formats import FORMATS, SUFFIXES, format_titles

ROOT = Path(__file__).resolve().parents[2]


def test_rows_are_in_order_and_no_suffix_is_claimed_twice() -> None:
    assert list(FORMATS) == sorted(FORMATS)
    suffixes = [suffix for row in FORMATS.values() for suffix in (*row.suffixes, *row.line_suffixes)]
    assert len(suffixes) == len(set(suffixes))
    assert all(SUFFIXES[name].name == name for name in FORMATS)


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_can_be_recognised_and_converted(name: str) -> None:
    row = FORMATS[name]
    assert row.signature or row.in_archive or row.is_open_xml or row.in_text or row.by_suffix
    assert callable(importlib.import_module(row.module).convert)


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_is_named_to_people(name: str) -> None:
    text = (ROOT / "docs" / "your-data.md").read_text(encoding="utf-8")
    words = re.findall(r"\w+", text)
    assert name.upper() in words or name in words or FORMATS[name].title in text
    assert FORMATS[name].title in format_titles()
