"""Joined segments, and all paths of a single segment, against attention written out."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from engine.models.spec import Scoring
from engine.parts import attention, flash
from engine.parts.attention import PerQueryKeys, SharedKeys, attend, causal_range, torch_sdpa

SCALE = 0.3


def random(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def shown(queries: int, keys: int, window: int | None) -> SharedKeys:
    k, v = random(2, keys + 3, 8), random(2, keys + 4, 8)
    span = causal_range(queries, keys, window, torch.device("cpu"))
    return SharedKeys(random(6, queries, 8), [(k, keys)], [(v, keys)], span)


def probabilities(logits: Tensor, queries: int, keys: int, window: int | None) -> Tensor:
    last = torch.arange(keys - queries, keys)[:, None]
    position = torch.arange(keys)
    hidden = (position > last) | (position <= last - (window or keys))
    return logits.masked_fill(hidden, float("-inf"))


@pytest.mark.parametrize(("queries", "keys"), [(9, 9), (1, 30), (7, 30)], ids=["square", "one-query", "chunk"])
@pytest.mark.parametrize("window", [None, 5])
@pytest.mark.parametrize("few", [0, 1 << 20], ids=["merged", "written-out"])
def test_all_ways_of_a_lone_segment_are_causal_attention(
    monkeypatch: pytest.MonkeyPatch, queries: int, keys: int, window: int | None, few: int
) -> None:
    monkeypatch.setattr(attention, "FEW_BYTES", few)
    segment = shown(queries, keys, window)
    k, v = (bank[0][0][:, :keys].repeat_interleave(3, 0) for bank in (segment.keys, segment.values))
    logits = probabilities(segment.q @ k.transpose(1, 2) * SCALE, queries, keys, window)
    expected = logits.softmax(-1) @ v
    torch.testing.assert_close(torch_sdpa(segment, SCALE), expected, atol=1e-6, rtol=1e-5)
    output, given = attend([segment], Scoring(SCALE), watched=True)
    torch.testing.assert_close(output, expected, atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(given[0][:, 0], logits.softmax(-1).sum(dim=1), atol=1e-6, rtol=1e-5)


class OnGpu(Tensor):
    """A tensor that claims to be on a GPU."""

    is_cuda = True


@pytest.mark.parametrize("kv_heads", [2, 6])
@pytest.mark.parametrize("window", [None, 5])
def test_on_a_gpu_no_mask_is_made_of_what_is_causal(
    monkeypatch: pytest.MonkeyPatch, kv_heads: int, window: int | None
) -> None:
    """Regression: models without grouped heads built a mask of queries x keys, and the others took our kernel."""
    k, v = random(kv_heads, 33, 8).bfloat16(), random(kv_heads, 34, 8).bfloat16()
    q = random(6, 7, 8).bfloat16()
    span = causal_range(7, 30, window, q.device)
    segment = SharedKeys(q.as_subclass(OnGpu), [(k, 30)], [(v, 30)], span)
    made: list[tuple[int, int]] = []
    monkeypatch.setattr(
        type(span), "mask_between", lambda span, *rows: made.append(rows) or span.mask(torch.arange(*rows))
    )
    monkeypatch.setattr(flash, "capable", lambda device: True)
    output = attention.fused(segment, SCALE)
    if window and kv_heads < 6:
        assert output is None, "PyTorch has no kernel for it that does not write all logits"
        return
    wide_k, wide_v = (bank.float().repeat_interleave(6 // kv_heads, 0) for bank in (k[:, :30], v[:, :30]))
    logits = probabilities(q.float() @ wide_k.transpose(1, 2) * SCALE, 7, 30, window)
    torch.testing.assert_close(output.as_subclass(Tensor).float(), logits.softmax(-1) @ wide_v, atol=0.02, rtol=0.02)
    assert bool(made) == bool(window)


@pytest.mark.parametrize(("size", "heads", "ours"), [(576, 1, True), (576, 6, False), (256, 1, False)])
def test_on_a_gpu_wide_heads_that_share_keys_are_for_our_kernel(
    monkeypatch: pytest.MonkeyPatch, size: int, heads: int, ours: bool
) -> None:
    """Check this since PyTorch would repeat all keys for each query head."""
    monkeypatch.setattr(flash, "capable", lambda device: True)
    k, q = random(heads, 30, size).bfloat16(), random(6, 1, size).bfloat16()
    segment = SharedKeys(q.as_subclass(OnGpu), [(k, 30)], [(k, 30)], causal_range(1, 30, None, q.device))
    assert (attention.fused(segment, SCALE) is None) == ours


@pytest.mark.parametrize("few", [0, 1 << 20], ids=["merged", "written-out"])
@pytest.mark.parametrize("softcap", [None, 2.0])
@pytest.mark.parametrize("with_sink", [False, True], ids=["no-sink", "sink"])
def test_segments_share_one_softmax(
    monkeypatch: pytest.MonkeyPatch, softcap: float | None, few: int, with_sink: bool
) -> None:
    monkeypatch.setattr(attention, "FEW_BYTES", few)
    sink = random(6) + 1 if with_sink else None
    near = shown(5, 12, None)
    far = PerQueryKeys(random(6, 5, 8), random(6, 5, 4, 8), random(6, 5, 4, 8) + 1, random(6, 5, 4) > 0)
    near_logits = near.q @ near.keys[0][0][:, :12].repeat_interleave(3, 0).transpose(1, 2) * SCALE
    far_logits = (far.k @ far.q[..., None])[..., 0] * SCALE
    if softcap is not None:
        near_logits, far_logits = (torch.tanh(logits / softcap) * softcap for logits in (near_logits, far_logits))
    near_logits = probabilities(near_logits, 5, 12, None)
    logits = [near_logits, far_logits.masked_fill(~far.seen, float("-inf"))]
    if sink is not None:
        logits.append(sink[:, None, None].expand(6, 5, 1))
    weights = torch.cat(logits, dim=-1).softmax(-1)[..., :16]
    values = near.values[0][0][:, :12].repeat_interleave(3, 0)
    expected = weights[..., :12] @ values + (weights[..., None, 12:] @ far.v)[:, :, 0]
    output, given = attend([near, far], Scoring(SCALE, softcap, sink), watched=True)
    torch.testing.assert_close(output, expected, atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(given[0][:, 0], weights[..., :12].sum(dim=1), atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(given[1], weights[..., 12:], atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=["bfloat16", "half"])
@pytest.mark.parametrize("kind", ["shown", "picked"])
def test_logits_are_not_rounded_to_the_models_type(dtype: torch.dtype, kind: str) -> None:
    """Regression: they were rounded before they became float32."""
    q, k = (3 * random(heads, count, 64).to(dtype) for heads, count in ((4, 1), (2, 300)))
    by_head = k.repeat_interleave(2, 0)
    if kind == "picked":
        segment: PerQueryKeys | SharedKeys = PerQueryKeys(
            q, by_head[:, None], by_head[:, None], torch.ones(4, 1, 300, dtype=torch.bool)
        )
    else:
        segment = SharedKeys(q, [(k, 300)], [(k, 300)], causal_range(1, 300, None, torch.device("cpu")))
    exact = q.double() @ by_head.double().transpose(1, 2) * SCALE
    torch.testing.assert_close(segment.logits(Scoring(SCALE)).double(), exact, atol=1e-4, rtol=1e-5)
