"""Bytes that kernels ask of host memory: what the planner counts is what they load, counted by address."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor
from transformers import AutoConfig, LlamaForCausalLM

from engine import Conversation, Model, make_method
from engine.models.sizes import model_sizes
from engine.parts.archive.host_tier import HostTier
from engine.parts.archive.tier_plan import slab_bytes
from engine.parts.footprint import ReadingTask
from engine.parts.selectors import key_stream, pruned
from engine.parts.selectors.asked import Asked
from engine.parts.selectors.stages import parse_stages
from kernels import choice
from kernels.rows import Slabs
from kernels.slab_facts import tensors_of
from tests.engine.conftest import byte_tokenizer, tiny_config
from tests.engine.matrix import QUESTION, TIGHT, hip
from tests.engine.plans import LLAMA_8B
from tests.engine.reading import next_logits, read

STAGES = "8:8:48:1 8:4:24:1"
LAYERS = 2
# In MB, of Llama-3.1-8B over 64K, 256K and 1M entries in int4: of a token of an answer, by the units of a bank, by how
# many keys one is on the device, and by what query heads compare. And of the last tokens of the text,
# by the units of a bank and by what query heads compare
MOST = {
    (0, 0, "heads"): (163, 168, 187),
    (1024, 0, "heads"): (55, 60, 79),
    (1024, 8, "heads"): (13.5, 15, 21),
    (1024, 1, "heads"): (1.9, 1.9, 1.9),
    (1024, 8, "groups"): (6.5, 7, 8.5),
}
MOST_OF_TEXT = {
    (0, "heads"): (0.52, 1.65, 4.8),
    (1024, "heads"): (1.41, 2.2, 5.4),
    (1024, "groups"): (1.41, 2.2, 5.4),
}


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch) -> tuple[list[range], list[int]]:
    """Run kernels in Triton's interpreter; return a list for ranges of addresses, and bytes loaded from them so far."""
    interpreter = pytest.importorskip("triton.runtime.interpreter")
    watched, count = list[range](), [0]
    plain = interpreter.InterpreterBuilder.create_masked_load

    def load(self: object, pointers: object, mask: object, *more: object, **others: object) -> object:
        found = plain(self, pointers, mask, *more, **others)
        at = torch.from_numpy(pointers.data.astype("int64"))  # type: ignore[attr-defined]
        here = torch.from_numpy(mask.data.astype(bool)).expand_as(at)  # type: ignore[attr-defined]
        size = found.data.dtype.itemsize
        for each in watched:
            count[0] += int((here & (at >= each.start) & (at < each.stop)).sum()) * size
        return found

    monkeypatch.setattr(interpreter.InterpreterBuilder, "create_masked_load", load)
    monkeypatch.setattr(choice, "implementation", lambda: "triton")
    return watched, count


def addresses(host: HostTier) -> Iterator[range]:
    """Yield the addresses of keys and values in host memory."""
    for slab in host.slabs:
        for bank in (*slab.keys, *slab.values):
            for part in tensors_of(bank):
                yield range(part.data_ptr(), part.data_ptr() + part.nbytes)


@pytest.mark.parametrize(("cache", "probes"), [(0, 0), (20, 0), (20, 4)])
def test_a_token_loads_what_is_counted(
    cache: int,
    probes: int,
    ids: Tensor,
    loaded: tuple[list[range], list[int]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Check two layers, as an interpreted kernel takes long."""
    config = tiny_config()
    config.num_hidden_layers = LAYERS
    model = Model(LlamaForCausalLM(config), byte_tokenizer(), "tiny", "-")
    with monkeypatch.context() as patch:
        patch.setattr(choice, "implementation", lambda: "torch")
        method = hip(stages=STAGES, first_keep=24, cache=cache, probes=probes)
        conversation = Conversation(read(model, method, ids[:160]))
        conversation.feed([70, 71])
        conversation.memory.mass = conversation.mass
        conversation.feed([72], repeated=True)
    memory, (watched, count) = conversation.memory, loaded
    assert memory.archive is not None
    watched += addresses(memory.archive.host)
    before = memory.usage().traffic
    conversation.feed([73], repeated=True)
    asked = Asked(model.spec, memory.num_evicted - 1, 24, stages=parse_stages(STAGES), bank=cache, probes=probes)
    entry = model.spec.entry_width * 4
    if not cache:
        assert count[0] == pytest.approx(asked.of_answer() * entry, rel=0.05)
        return
    now = memory.usage().traffic
    moved = now["moved_bytes"] - before["moved_bytes"]
    looked_up = 24 // 4 + (48 // 4 if probes else 0)  # units that are attended to, and those of the last stage
    assert now["hits"] - before["hits"] + now["misses"] - before["misses"] == LAYERS * looked_up
    compared = asked.compared(0, asked.far / 8, probes) + (0 if probes else asked.compared(1, 0))
    assert count[0] == pytest.approx(compared * entry + moved, rel=0.05)


@pytest.mark.parametrize("name", ["infinitehip", "infinitehip-int8"])
def test_what_the_blocks_of_a_pass_choose_comes_once_for_all(
    name: str, model: Model, ids: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Check on a CPU, as if keys came to a GPU for each pass."""
    expected = next_logits(model, TIGHT[name], read(model, TIGHT[name], ids, 160).memory, QUESTION)
    units: list[tuple[int, int, int]] = []
    plain = pruned.gathered_units

    def gathered(slabs: tuple[Slabs, Slabs], starts: Tensor, limits: Tensor, *sizes: int) -> object:
        found, rows = plain(slabs, starts, limits, *sizes)
        inside = starts < limits[:, None]
        places = rows.view(*starts.shape, -1)[..., 0][inside]
        units.append((len(places.unique()), len(starts[inside].unique()), len(places)))
        return found, rows

    monkeypatch.setattr(pruned.PruningSelector, "_streams", lambda selector: selector._looks_far)
    monkeypatch.setattr(key_stream, "copy_to_device_async", lambda slabs, device: lambda: slabs)
    monkeypatch.setattr(pruned, "gathered_units", gathered)
    logits = next_logits(model, TIGHT[name], read(model, TIGHT[name], ids, 160).memory, QUESTION)
    assert torch.equal(logits, expected)
    assert all(copied == different < chosen for copied, different, chosen in units if chosen > 50)
    assert max(units)[2] > 50


@pytest.mark.parametrize(("cache", "probes", "compares"), MOST)
def test_a_million_tokens_in_host_memory(cache: int, probes: int, compares: str) -> None:
    settings = {"cache": cache, "probes": probes, "compares": compares}
    method = make_method("infinitehip", preset="3k-flash", store="int4", **settings)
    spec = model_sizes(AutoConfig.for_model("llama", **LLAMA_8B), torch.bfloat16, torch.device("cuda")).spec
    entry = slab_bytes(spec, torch.quint4x2, 1 << 20) / (1 << 20)
    last, texts = 4096, MOST_OF_TEXT[cache, compares]
    for tokens, most, of_text in zip((1 << 16, 1 << 18, 1 << 20), MOST[cache, probes, compares], texts, strict=True):
        before, plan = (method.plan(spec, ReadingTask(n, 10, method.gpu_pass, len)) for n in (tokens - last, tokens))
        assert 0.9 * most < plan.lookup.asked * entry / 1e6 <= most
        fetched = tokens * plan.lookup.fetched - (tokens - last) * before.lookup.fetched
        assert 0.9 * of_text < fetched / last * entry / 1e6 <= of_text
