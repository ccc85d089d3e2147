"""Archives that are filled by slabs sharing their tensors hold what a reading would, and answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.gpu_check.aliases import alias
from benchmarks.gpu_check.growing import Growing, noise
from benchmarks.model_shapes import config_of
from benchmarks.random_models import random_model
from engine import Conversation, Machine, Model, Planner, Rates, Sampling, make_method
from engine.memory import Memory
from engine.parts.archive import tier_plan
from engine.parts.window import WindowStore
from engine.trained.retaining import FILE as HEADS
from engine.trained.retaining import RetainingHeads
from engine.trained.sidecar_weights import save_weights
from tests.engine.reading import read

CPU = torch.device("cpu")
LLAMA, PHI = "Llama-3.1-8B", "Phi-3-mini"
CHUNK, SLAB = 256, 512
CASES: dict[str, dict[str, Any]] = {
    "exact": {},
    "exact-int4": {"store": "int4"},
    "exact-sketched": {"budget": 700, "sketch": "int2"},
    "infllm": {},
    "infllm-int4": {"store": "int4", "budget": 900},
    "infinitehip": {},
    "infinitehip-int4": {"store": "int4"},
    "recall": {},
    "recall-int8": {"store": "int8"},
}
EVERY = [(LLAMA, case) for case in CASES] + [(PHI, case) for case in ("exact", "infllm-int4", "recall-int8")]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Model]:
    return {name: made(name, tmp_path_factory.mktemp("beside")) for name in (LLAMA, PHI)}


def made(name: str, folder: Path) -> Model:
    model = random_model(name, config_of(name, tiny=True), CPU, torch.float32, True, folder)
    save_weights(RetainingHeads(model.spec, [16] * len(model.spec.layers)), folder / HEADS, model.spec, {})
    return model


def checked_alias(memory: Memory, tokens: int) -> int:
    """Check that all that counts entries counts the aliases, before a pass mends it."""
    assert memory.archive is not None
    memory.archive.host.flush()
    sketch = memory.archive.host.sketch
    before = 0 if sketch is None else sketch.length
    added = alias(memory, tokens)
    assert sketch is None or sketch.length == before + added
    if isinstance(memory.store, WindowStore) and memory.store.wide:
        assert memory.store.wide.seen == memory.seen
    return added


@pytest.mark.parametrize(("name", "case"), EVERY)
def test_aliased_slabs_count_as_slabs_of_their_own(
    name: str, case: str, models: dict[str, Model], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tier_plan, "SLAB", SLAB)
    monkeypatch.setattr("benchmarks.gpu_check.growing.alias", checked_alias)
    model, method = models[name], make_method(case.split("-")[0], **CASES[case])
    planner = Planner.of_loaded(model, Machine(1 << 40, 1 << 40, True, Rates(1e11, 1e10, 1e10, 1e11, 1e10)))
    growing = Growing(model, method)
    for length in (5 * SLAB, 13 * SLAB + 100):
        growing.extend(length, CHUNK)
        most = growing.to_fill(growing.behind)
        filled = sum(growing.fills(growing.behind))
        for _ in growing.reads(growing.total):
            pass
        assert filled <= most <= 2 * SLAB
        usage, plain = growing.context().usage(), read(model, method, noise(model, length), CHUNK).usage()
        assert usage.entries == plain.entries
        assert usage.bytes == pytest.approx(plain.bytes, rel=0.01)
        assert usage.bytes == pytest.approx(planner.plan(method, length, "nf4").footprint.usage.bytes, rel=0.01)
        *_, answer = Conversation(growing.context()).ask("What is it?", Sampling(max_tokens=4))
        assert answer.answer_tokens == 4  # type: ignore[union-attr]
    assert growing.aliased >= 8 * SLAB
    assert growing.memory.archive is not None
    slabs = growing.memory.archive.host.slabs
    if slabs[0].keys[0].shape[0]:  # layers that look far, which not every model has
        assert len({slab.keys[0].data_ptr() for slab in slabs}) <= len(slabs) - 8
    assert len({slab.source.data_ptr() for slab in slabs}) == len(slabs), "kernels' tables are told apart by these"


def test_a_short_archive_has_no_slab_to_share(models: dict[str, Model]) -> None:
    growing = Growing(models[LLAMA], make_method("exact"))
    growing.extend(3000, CHUNK)
    assert sum(growing.fills(growing.total)) == growing.total
    assert growing.aliased == 0
