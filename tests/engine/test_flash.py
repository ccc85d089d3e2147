"""FlashAttention: its choice and its inputs. Without a GPU a stand-in follows its rule."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from engine import Model
from engine.parts import flash
from engine.parts.attention import SharedKeys, causal_range, torch_sdpa
from tests.engine.matrix import CLOSE, QUESTION, TIGHT
from tests.engine.reading import next_logits, read


@pytest.fixture(autouse=True)
def chosen_anew() -> Iterator[None]:
    for each in (flash.choice, flash.capable):
        each.cache_clear()
    yield
    for each in (flash.choice, flash.capable):
        each.cache_clear()


def flash_attn_func(q: Tensor, k: Tensor, v: Tensor, softmax_scale: float, causal: bool) -> Tensor:
    """Follow flash-attn's documentation: [B, T, H, D], fewer KV heads, causality aligned to the last key."""
    group = q.shape[2] // k.shape[2]
    k, v = k.repeat_interleave(group, dim=2), v.repeat_interleave(group, dim=2)
    logits = torch.einsum("bthd,bnhd->bhtn", q, k) * softmax_scale
    if causal:
        hidden = torch.ones(q.shape[1], k.shape[1], dtype=torch.bool).triu(k.shape[1] - q.shape[1] + 1)
        logits = logits.masked_fill(hidden, float("-inf"))
    return torch.einsum("bhtn,bnhd->bthd", logits.softmax(-1), v)


@pytest.mark.parametrize(("queries", "keys"), [(1, 63), (63, 63), (7, 111)])
def test_it_is_given_what_it_expects(queries: int, keys: int) -> None:
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(heads, n, 8, generator=generator) for heads, n in ((6, queries), (2, keys), (2, keys)))
    span = causal_range(queries, keys, None, q.device)
    expected = torch_sdpa(SharedKeys(q, [(k, keys)], [(v, keys)], span), 0.3)
    torch.testing.assert_close(flash.attend(flash_attn_func, q, k, v, 0.3), expected)


def test_a_reading_by_its_rule_is_the_same(model: Model, ids: Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    """Send everything to the stand-in that would go to FlashAttention on a GPU."""
    expected = next_logits(model, TIGHT["full"], read(model, TIGHT["full"], ids).memory, QUESTION)
    calls: list[bool] = []

    def counted(*rows: Tensor, softmax_scale: float, causal: bool) -> Tensor:
        calls.append(causal)
        return flash_attn_func(*rows, softmax_scale=softmax_scale, causal=causal)

    monkeypatch.setattr(flash, "usable", lambda q: True)
    monkeypatch.setattr(flash, "choice", lambda: (counted, ""))
    logits = next_logits(model, TIGHT["full"], read(model, TIGHT["full"], ids).memory, QUESTION)
    torch.testing.assert_close(logits, expected, **CLOSE)
    assert len(calls) >= len(model.spec.layers) * 5


def test_what_it_cannot_do_stays_with_pytorch() -> None:
    assert not flash.usable(torch.zeros(1, 1, 8))
    meta = torch.zeros(1, 1, 8, device="meta", dtype=torch.bfloat16)
    assert not flash.usable(meta)


@pytest.mark.parametrize(("capability", "usable"), [((7, 5), False), ((8, 0), True), ((12, 0), True)])
def test_a_gpu_that_is_too_old_for_it_is_asked_once(
    capability: tuple[int, int], usable: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: on compute capability 7.5 flash-attn raised in every pass, and PyTorch made the whole mask."""
    asked: list[torch.device] = []
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: [asked.append(device), capability][1])
    q: Any = SimpleNamespace(is_cuda=True, dtype=torch.float16, shape=(1, 1, 128), device=torch.device("cuda", 0))
    assert [flash.usable(q) for _ in range(3)] == [usable] * 3
    assert asked == [q.device]


@pytest.mark.parametrize(
    ("gpu", "installed", "loads", "function", "words"),
    [
        (False, True, True, False, "no GPU"),
        (True, False, True, False, "pip install"),
        (True, True, False, False, "cannot be loaded"),
        (True, True, True, True, "is installed"),
    ],
)
def test_it_is_chosen_once_and_says_why(
    gpu: bool, installed: bool, loads: bool, function: bool, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = SimpleNamespace(flash_attn_func=flash_attn_func) if loads else SimpleNamespace()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpu)
    monkeypatch.setattr(flash.importlib.util, "find_spec", lambda name: object() if installed else None)
    monkeypatch.setattr(flash.importlib, "import_module", lambda name: package)
    assert (flash.choice()[0] is not None) == function
    assert words in flash.choice()[1]
