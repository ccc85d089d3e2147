"""One reading of lengths for every command."""

from __future__ import annotations

import pytest

from engine import SettingsError, tokens_of


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("7", 7),
        ("12,345", 12345),
        ("20_000", 20000),
        ("2K", 2048),
        ("128k", 131072),
        ("1M", 1 << 20),
        ("1.5K", 1536),
        ("1,200.5k", 1229312),
    ],
)
def test_a_length_is_read(text: str, tokens: int) -> None:
    assert tokens_of(text) == tokens


@pytest.mark.parametrize("text", ["", "-3", "0", "0.5", "much", "2G", "K", "1,5M", "12,34", "1,2345", "_1", "9" * 400])
def test_what_is_no_length_is_refused(text: str) -> None:
    with pytest.raises(SettingsError, match=f"not {text!r}"):
        tokens_of(text)
