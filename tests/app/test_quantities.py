"""Lengths, sizes and rates as people write them."""

from __future__ import annotations

import pytest

from app.errors import UsageError
from app.machine.gpus import CARDS, gpu_of
from app.quantities import bytes_of, rates_of, tokens_of


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
    with pytest.raises(UsageError, match=f"not {text!r}"):
        tokens_of(text)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("24GiB", 24 << 30),
        ("24", 24 << 30),
        ("24G", 24 << 30),
        ("24g", 24 << 30),
        ("1.5t", 3 << 39),
        ("64 GB", 64_000_000_000),
        ("512mib", 1 << 29),
    ],
)
def test_sizes(text: str, size: int) -> None:
    assert bytes_of(text) == size


def test_what_is_no_size_is_wrong_usage() -> None:
    sizes = [(bytes_of, text) for text in ("", "much", "0", "0.0000001MB", "9" * 400)]
    others = [(tokens_of, "-3"), (tokens_of, "0"), (tokens_of, "9" * 400), (rates_of, "1,2")]
    for read_it, text in [*sizes, *others]:
        with pytest.raises(UsageError, match=f"not .*{text}"):
            read_it(text)


def test_a_card_is_its_memory_and_a_part_of_the_rates_that_its_maker_states() -> None:
    size, rates = gpu_of("RTX 4090")
    assert size == 24 << 30
    assert rates is not None
    card = CARDS["rtx4090"]
    assert 0.5 * card.tflops * 1e12 < rates[0] < card.tflops * 1e12
    assert rates[1] < card.bandwidth * 1e9
    assert rates[2] < card.link * 1e9
    assert gpu_of("4090") == gpu_of("NVIDIA GeForce RTX-4090") == (size, rates)
    assert gpu_of("24GiB") == (24 << 30, None)


@pytest.mark.parametrize(
    ("text", "words"), [("rtx409", "Did you mean rtx4090"), ("voodoo2", "rtx3060"), ("9zz", "9zz")]
)
def test_what_is_no_card_is_refused(text: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        gpu_of(text)
