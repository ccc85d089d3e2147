"""InfiniPot's own rules, beyond the promises of all methods."""

from __future__ import annotations

import dataclasses
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor

from engine import Answer, Conversation, Model, Reader, Sampling, SettingsError, make_method
from engine.loops import passes
from engine.loops.context import new_memory
from engine.loops.passes import feed, novelties
from engine.memory import Memory
from engine.methods.infinipot import InfiniPot
from engine.methods.presets import PROMPTS
from engine.model import load_model
from engine.parts.evictors.catalyst import CatalystEvictor
from engine.parts.footprint import ReadingTask
from engine.parts.mass import NOT_IN_SOURCE
from engine.records import DEVICE
from tests.engine.reading import answer, next_logits, read

ASSETS = Path(__file__).resolve().parents[2] / "assets"
ranks_alike = partial(torch.testing.assert_close, rtol=0.01, atol=0.02)  # novelties, in bfloat16 on some CPUs
POT = InfiniPot(budget=160, keep=0.5, prompt="Sum up.", novelty_share=0.5, pooling=1)


def filled_pot(model: Model, ids: Tensor, settings: InfiniPot) -> Memory:
    """Return a full pot that has seen its catalyst and is about to be distilled."""
    pot = new_memory(model, settings)
    room = pot.evictor.room()
    source = torch.arange(room, dtype=torch.int32)
    pot.evictor.shares_pass = False
    for _ in feed(model, settings, pot, ids[:room], source, 64):
        pass
    assert pot.evictor.room() == 0
    prompt = settings.catalyst()
    if prompt is not None:
        catalyst = torch.tensor(model.chat.turn(prompt))
        pot.evictor.catalyst_tokens = len(catalyst)
        model.forward(catalyst, pot, torch.full((len(catalyst),), NOT_IN_SOURCE, dtype=torch.int32))
    return pot


def test_the_catalyst_counts_against_the_budget(model: Model) -> None:
    pot = new_memory(model, POT)
    assert pot.evictor.room() == 160 - len(model.chat.turn("Sum up."))


def test_half_is_chosen_by_novelty_and_shared_by_all_heads(model: Model, ids: Tensor) -> None:
    pot = filled_pot(model, ids, POT)
    novelty = pot.store.own[0].score[0, : pot.store.entries].clone()
    pot.evict()
    assert pot.store.entries == 80
    most_novel = set(novelty.topk(40).indices.tolist())
    for layer in range(len(model.spec.layers)):
        for head in pot.positions(layer):
            assert most_novel <= set(head.tolist())


def test_the_rest_is_chosen_per_head_by_the_catalysts_attention(model: Model, ids: Tensor) -> None:
    settings = dataclasses.replace(POT, novelty_share=0.0)
    pot = filled_pot(model, ids, settings)
    assert pot.evictor.attention is not None
    expected = [
        seen.view(layer.kv_heads, -1, pot.store.entries).amax(1).topk(80).indices.sort().values
        for seen, layer in zip(pot.evictor.attention.values(), model.spec.layers, strict=True)
    ]
    pot.evict()
    for layer, kept in enumerate(expected):
        assert torch.equal(pot.positions(layer).long(), kept)
    assert len({tuple(head.tolist()) for layer in range(3) for head in pot.positions(layer)}) > 1


def test_observed_attention_is_that_of_eager_softmax(model: Model, ids: Tensor) -> None:
    """Compare CaP's scores with attention worked out by hand for the first layer."""
    pot = filled_pot(model, ids, POT)
    assert pot.evictor.attention is not None
    layer = model.network.base_model.layers[0]  # type: ignore[union-attr,index]
    catalyst = torch.tensor(model.chat.turn("Sum up."))
    text = torch.cat([ids[: pot.store.entries], catalyst])
    with torch.no_grad():
        hidden = layer.input_layernorm(model.network.base_model.embed_tokens(text))  # type: ignore[operator]
        rope = model.spec.layers[0].rope
        q = rope.rotate(layer.self_attn.q_proj(hidden).view(len(text), 6, 8).transpose(0, 1), 0)
        k = rope.rotate(layer.self_attn.k_proj(hidden).view(len(text), 2, 8).transpose(0, 1), 0)
        k = k.repeat_interleave(3, dim=0)
        scores = q @ k.transpose(1, 2) * 8**-0.5
        scores = scores.masked_fill(~torch.ones_like(scores[0]).tril().bool(), float("-inf"))
        expected = scores.softmax(-1)[:, pot.store.entries :, : pot.store.entries].sum(1)
    torch.testing.assert_close(pot.evictor.attention[0], expected, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("share", ["even", "heads"])
@pytest.mark.parametrize("novelty_share", [0.0, 0.5])
def test_a_catalyst_sees_the_same_in_a_pass_of_its_own_and_behind_the_tokens_that_fill_the_pot(
    model: Model, ids: Tensor, novelty_share: float, share: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = dataclasses.replace(POT, novelty_share=novelty_share, share=share)
    passes: list[int] = []
    forward = Model.forward
    monkeypatch.setattr(
        Model, "forward", lambda self, ids, *more: (passes.append(len(ids)), forward(self, ids, *more))[1]
    )
    behind = read(model, settings, ids, 96)
    few = len(passes)
    assert max(passes) <= 96
    monkeypatch.setattr(CatalystEvictor, "shares_pass", False)
    alone = read(model, settings, ids, 96)
    assert few < len(passes) - few
    for layer in range(len(model.spec.layers)):
        assert torch.equal(behind.memory.positions(layer), alone.memory.positions(layer))
    after, expected = (next_logits(model, settings, each.memory, ids[:20]) for each in (behind, alone))
    torch.testing.assert_close(after, expected, atol=2e-5, rtol=1e-4)


def test_the_catalyst_leaves_nothing_behind(model: Model, ids: Tensor) -> None:
    reader = Reader(model, POT, ids)
    for _ in reader.run():
        pass
    held = reader.memory.positions(0)
    prefix = len(model.chat.prefix)
    assert int((held == NOT_IN_SOURCE).sum(dim=1).max()) <= prefix


def test_kept_keys_stand_at_the_first_positions_again(model: Model, ids: Tensor) -> None:
    """Check CR-RoPE: after a distillation the rotated keys are the kept keys at 0, 1, 2, ..."""
    pot = filled_pot(model, ids, POT)
    pot.evict()
    slots = pot.store.own[1]
    expected = slots.layer.rope.rotate(slots.keys[:, : pot.store.entries], 0)
    assert torch.equal(slots.rotated[:, : pot.store.entries], expected)


def test_an_entry_keeps_the_novelty_it_was_given(model: Model, ids: Tensor) -> None:
    pot = filled_pot(model, ids, POT)
    given = pot.store.own[0].score[0, : pot.store.entries].clone()
    pot.evict()
    for head, held in zip(pot.positions(0), pot.store.own[0].score, strict=True):
        assert torch.equal(held[: pot.store.entries], given[head.long()])


def test_pooling_keeps_neighbours_of_what_is_looked_at(model: Model, ids: Tensor) -> None:
    alone = dataclasses.replace(POT, novelty_share=0.0)
    pooled = dataclasses.replace(alone, pooling=9)
    runs = []
    for settings in (alone, pooled):
        pot = filled_pot(model, ids, settings)
        pot.evict()
        gaps = pot.positions(0).diff(dim=1)
        runs.append(float((gaps == 1).float().mean()))
    assert runs[1] > runs[0]


def test_novelty_is_the_loss_of_the_next_token(model: Model, ids: Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    memory = new_memory(model, make_method("full"))
    hidden = model.forward(ids, memory, torch.zeros(len(ids), dtype=torch.int32))
    expected = torch.nn.functional.cross_entropy(model.logits(hidden[:-1]), ids[1:], reduction="none")
    whole = novelties(model, None, hidden, ids)
    assert whole[0] == float("inf")
    ranks_alike(whole[1:], expected)
    second = novelties(model, hidden[99], hidden[100:], ids[100:])
    ranks_alike(second, expected[99:])
    known = novelties(model, hidden[99], hidden[100:], ids[100:], model.logits(hidden[99]))
    ranks_alike(known, expected[99:])
    monkeypatch.setattr(passes, "fast_in_bfloat16", lambda device: False)
    torch.testing.assert_close(novelties(model, None, hidden, ids)[1:], expected)


def test_bfloat16_ranks_the_tokens_of_a_text_as_float32_does(monkeypatch: pytest.MonkeyPatch) -> None:
    pocket = load_model(ASSETS / "pocket", "cpu")
    ids = pocket.encode((ASSETS / "sample" / "three-adventures-and-a-register.html").read_text()[20000:26000]).ids
    hidden = pocket.forward(ids, new_memory(pocket, make_method("full")), torch.zeros(len(ids), dtype=torch.int32))
    kept = []
    for fast in (True, False):
        monkeypatch.setattr(passes, "fast_in_bfloat16", lambda device, fast=fast: fast)
        kept.append(set(novelties(pocket, None, hidden, ids).topk(len(ids) // 2).indices.tolist()))
    assert kept[0] != kept[1], "nothing is worked out in bfloat16"
    assert len(kept[0] & kept[1]) > 0.99 * len(kept[1])


def test_an_answer_works_out_the_logits_of_each_token_once(
    model: Model, ids: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: they were computed to choose a token, and again for its novelty."""
    conversation, plain = (Conversation(read(model, POT, ids)) for _ in range(2))
    list(Conversation(conversation.context).ask("Which?", Sampling(max_tokens=1)))  # counts the usual attention
    rows: list[int] = []
    original = model.logits

    def counting(hidden: Tensor) -> Tensor:
        rows.append(hidden.shape[0] if hidden.dim() > 1 else 1)
        return original(hidden)

    monkeypatch.setattr(model, "logits", counting)
    *_, last = conversation.ask("Which?", Sampling(max_tokens=20))
    assert isinstance(last, Answer)
    before = plain.memory.seen
    assert last.answer_tokens > 2
    assert sum(rows) == conversation.memory.seen - before + 1  # one for the question, and one for each token
    monkeypatch.setattr(Conversation, "_predicted", lambda _, logits, grammar=None: logits)  # keeps none
    assert answer(plain, "Which?", 20) == last.text
    for mine, other in zip(conversation.memory.store.own, plain.memory.store.own, strict=True):  # type: ignore[attr-defined]
        length = conversation.memory.store.length  # type: ignore[attr-defined]
        ranks_alike(mine.score[:, :length], other.score[:, :length])


def test_novelty_never_builds_the_logits_of_a_whole_pass(
    model: Model, ids: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows: list[int] = []
    original = model.logits

    def counting(hidden: Tensor) -> Tensor:
        rows.append(hidden.shape[0])
        return original(hidden)

    monkeypatch.setattr(model, "logits", counting)
    novelties(model, None, torch.randn(301, 48), ids)
    assert sum(rows) == 300
    assert max(rows) <= 128


@pytest.mark.parametrize("prompt", [*sorted(set(PROMPTS) - {"Q"}), "What matters here?"])
def test_every_prompt_can_be_read_with(model: Model, ids: Tensor, prompt: str) -> None:
    reader = Reader(model, InfiniPot(budget=600, keep=0.3, prompt=prompt), ids.repeat(5))
    *_, last = reader.run()
    assert 0 < last.distill_seconds < last.seconds
    assert last.catalyst_seconds > 0
    assert reader.context().usage().entries["device"] <= 600


def test_the_question_prompt_carries_the_question() -> None:
    settings = make_method("infinipot", prompt="Q", question="Who is the captain?")
    assert (settings.catalyst() or "").endswith("Question: Who is the captain?")
    with pytest.raises(SettingsError, match="question"):
        make_method("infinipot", prompt="Q")


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"budget": 100}, "budget"),
        ({"keep": 1.0}, "keep"),
        ({"novelty_share": 1.5}, "novelty_share"),
        ({"pooling": 4}, "pooling"),
        ({"prompt": ""}, "prompt"),
    ],
)
def test_impossible_settings_are_refused_by_name(settings: dict[str, object], named: str) -> None:
    with pytest.raises(SettingsError, match=named):
        make_method("infinipot", **settings)


def test_a_catalyst_that_does_not_fit_is_refused_before_reading(model: Model, ids: Tensor) -> None:
    with pytest.raises(SettingsError, match="no room"):
        Reader(model, InfiniPot(budget=128, keep=0.5, prompt="a long prompt " * 9), ids)


@pytest.mark.parametrize("free", [0, 30, 100])
def test_a_text_that_fits_the_pot_is_not_distilled_before_something_is_said(
    model: Model, ids: Tensor, free: int
) -> None:
    """Regression: it lost half of its entries if less than a quarter of the pot was free."""
    catalyst = model.turn_length(PROMPTS["U"])
    passed = len(ids) + len(model.chat.prefix)
    method = make_method("infinipot", budget=passed + catalyst + free, prompt="U", keep=0.5)
    context = read(model, method, ids)
    assert context.usage().entries[DEVICE] == passed
    planned = method.plan(model.spec, ReadingTask(len(ids), len(model.chat.prefix), 64, model.turn_length))
    assert planned.usage.entries[DEVICE] == passed
    full = read(model, make_method("full"), ids)
    question = torch.tensor([1, 80, 81, 82, 2])[:free]
    if free:
        expected = next_logits(model, full.method, full.memory, question)
        torch.testing.assert_close(next_logits(model, method, context.memory, question), expected)
    conversation = Conversation(context)
    answer(conversation, "Who came, and when? " * 4, tokens=20)  # no space for it
    assert conversation.usage().entries[DEVICE] < passed
