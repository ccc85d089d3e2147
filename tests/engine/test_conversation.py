"""Questions and answers: prompts, sampling, stopping, sources."""

from __future__ import annotations

import itertools
from typing import Any

import psutil
import pytest
import torch
from torch import Tensor
from transformers import GenerationConfig, LlamaForCausalLM

from engine import (
    Answer,
    AnswerPiece,
    AskOptions,
    Conversation,
    Method,
    Model,
    Reader,
    Sampling,
    SettingsError,
    make_method,
)
from engine.errors import ContextMismatch, ModelError, ModelNotFound, OutOfMemory
from engine.loops.stop_texts import displayable, until_stop, whole_characters
from engine.model import load_model
from engine.models.chat import INSTRUCTION
from engine.parts import attention
from engine.parts.mass import AttentionMass, mass_rows
from engine.parts.sources import Sentences, passages
from engine.sampling import LIKELY, choose, own_sampling, penalize
from tests.engine.conftest import byte_tokenizer, tiny_config
from tests.engine.matrix import TIGHT
from tests.engine.reading import answer, read

FULL = make_method("full")


def test_rules_change_an_answer_and_are_not_remembered(model: Model, ids: Tensor) -> None:
    context = read(model, FULL, ids)
    ruled, told, joined = (Conversation(context) for _ in range(3))
    *_, answer = ruled.ask("Who was it?", Sampling(max_tokens=8), AskOptions(rules="Be brief."))
    *_, other = joined.ask("Be brief.\n\nWho was it?", Sampling(max_tokens=8))
    assert isinstance(answer, Answer)
    assert isinstance(other, Answer)
    assert (answer.text, answer.prompt_tokens) == (other.text, other.prompt_tokens)
    told.replay("Who was it?", answer.text)
    assert (ruled.said, ruled.memory.seen) == (told.said, told.memory.seen)
    assert [each.text for each in ruled.ask("And when?", Sampling(max_tokens=8))] == [
        each.text for each in told.ask("And when?", Sampling(max_tokens=8))
    ]


def test_greedy_answers_are_those_of_transformers_generate(model: Model, ids: Tensor) -> None:
    """Compare two turns over a text with one plain prompt in transformers' own cache and attention."""
    torch.manual_seed(0)
    reference = LlamaForCausalLM(tiny_config())
    reference.train(False)
    conversation = Conversation(read(model, FULL, ids, chunk=37))
    prompt = [*model.chat.prefix, *ids.tolist()]
    for turn, question in enumerate(["Who was it?", "And when?"]):
        *pieces, last = conversation.ask(question, Sampling(max_tokens=20))
        assert isinstance(last, Answer)
        prompt += model.chat.turn(question, first=turn == 0)
        whole = torch.tensor([prompt])
        expected = reference.generate(
            whole, attention_mask=torch.ones_like(whole), max_new_tokens=20, do_sample=False, pad_token_id=0
        )[0, len(prompt) :].tolist()
        expected = [token for token in expected if token not in model.stop_ids]
        assert last.text == whole_characters(model.decode(expected).lstrip())
        assert "".join(piece.text for piece in pieces if isinstance(piece, AnswerPiece)) == last.text
        prompt += expected


@pytest.mark.parametrize("few", [0, attention.FEW_BYTES])
@pytest.mark.parametrize("name", ["full", "full-int8", "streaming", "exact", "tova"])
def test_the_last_token_of_a_question_counts_in_its_pass_as_it_does_alone(
    name: str, few: int, model: Model, ids: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Count it in one pass, in passes of seven tokens, and behind the rest of the question."""
    monkeypatch.setattr(attention, "FEW_BYTES", few)
    context, prompt, counted = read(model, TIGHT[name], ids), model.chat.turn("Who was it, and when?"), []
    for begin, most in ((0, len(prompt)), (0, 7), (len(prompt) - 1, 64)):
        conversation = Conversation(context)
        conversation._pass_tokens = most
        conversation.feed(prompt[:begin])
        assert conversation.memory.counts_parts
        conversation.memory.mass = conversation.mass
        conversation.memory.uncounted = len(prompt) - 1 - begin
        conversation.feed(prompt[begin:])
        assert not conversation.memory.uncounted
        counted.append(conversation.mass.total)
    assert counted[2].sum() > 0.0
    for each in counted[:2]:
        torch.testing.assert_close(each, counted[2], rtol=1e-3, atol=1e-4)


def test_the_prompt_is_the_chat_templates(model: Model) -> None:
    tokenizer = model.tokenizer
    messages = [
        {"role": "system", "content": INSTRUCTION + "Text."},
        {"role": "user", "content": "One?"},
        {"role": "assistant", "content": "Two."},
        {"role": "user", "content": "Three?"},
    ]
    expected = tokenizer.apply_chat_template(messages, add_generation_prompt=True)["input_ids"]
    chat = model.chat
    pieces = [*chat.prefix, *model.encode("Text.").ids.tolist(), *chat.turn("One?")]
    pieces += [*model.encode("Two.").ids.tolist(), *chat.turn("Three?", first=False)]
    assert pieces == expected


def test_a_model_that_gives_no_numbers_says_so(ids: Tensor) -> None:
    torch.manual_seed(0)
    network = LlamaForCausalLM(tiny_config())
    model = Model(network, byte_tokenizer(), "tiny", "-")
    context = read(model, FULL, ids)
    network.lm_head.weight.data.fill_(float("nan"))
    with pytest.raises(ModelError, match="no numbers for its next word"):
        list(Conversation(context).ask("Who?"))
    for damaged in ("self_attn.q_proj", "self_attn.k_proj", "mlp.up_proj"):
        torch.manual_seed(0)
        network = LlamaForCausalLM(tiny_config())
        network.get_submodule(f"model.layers.1.{damaged}").weight.data[3, 5] = float("nan")
        with pytest.raises(ModelError, match="gives no numbers: its weights are damaged"):
            Model(network, byte_tokenizer(), "tiny", "-")


@pytest.mark.parametrize("mass", [[float("nan")] * 60, [0.0] * 60, [1.0] * 59 + [float("inf")]])
def test_mass_that_is_no_number_makes_no_passages(mass: list[float]) -> None:
    assert passages(torch.tensor(mass)) == []


def test_each_sentence_has_what_was_looked_at_since_the_one_before() -> None:
    """Check that reasoning before the answer counts for no sentence."""
    mass = AttentionMass(300, torch.device("cpu"))
    sentences = Sentences(mass, lambda text, since: max(since, text.rfind(".") + 1), torch.zeros(300))

    def look(at: int, share: float) -> None:
        mass.add(mass_rows(torch.tensor([at])), torch.tensor([share]))

    look(280, 1.0)
    sentences.grown("")  # reasoning
    for text, at in (("One", 10), ("One.", 10), ("One. Tw", 150), ("One. Two.", 150), ("One. Two. Th", 200)):
        look(at, 0.5)
        sentences.grown(text)
    found = sentences.ended("One. Two. Three\n")
    assert [(each.start, each.end) for each in found] == [(0, 4), (4, 9), (9, 15)]
    assert [[(one.start, one.weight) for one in each.passages] for each in found] == [
        [(10, pytest.approx(1 / 3.5))],
        [(150, pytest.approx(1 / 3.5))],
        [(200, pytest.approx(0.5 / 3.5))],
    ]


@pytest.mark.parametrize("method", [FULL, make_method("exact", budget=96, top_k=24, store="float32")])
def test_to_ask_for_sentences_changes_no_answer(model: Model, ids: Tensor, method: Method) -> None:
    context = read(model, method, ids)
    plain, whole, parted = (
        list(Conversation(context).ask("Who?", Sampling(max_tokens=20), AskOptions(sentence_end=whole)))[-1]
        for whole in (None, lambda text, since: since, lambda text, since: max(since, len(text) // 6 * 6))
    )
    assert isinstance(plain, Answer)
    assert isinstance(whole, Answer)
    assert isinstance(parted, Answer)
    assert plain.text == whole.text == parted.text
    assert plain.sentences == []
    [only] = whole.sentences
    assert (only.start, only.end) == (0, len(plain.text.rstrip()))
    blank = 0.2  # a first token of blanks belongs to no sentence
    for mine, its in zip(only.passages, plain.passages, strict=True):
        assert max(mine.start, its.start) < min(mine.end, its.end)
        assert mine.weight == pytest.approx(its.weight, rel=blank)
    assert "".join(plain.text[each.start : each.end] for each in parted.sentences) == plain.text.rstrip()
    assert len(parted.sentences) > 1
    assert parted.passages == plain.passages


def test_special_tokens_in_a_document_or_question_stay_text(model: Model) -> None:
    text = "He said <|end|> and <|assistant|> too."
    ids = model.encode(text).ids
    assert not set(ids.tolist()) & {0, 1, 2, 3}
    assert model.decode(ids.tolist()) == text
    assert model.chat.turn("<|end|>").count(3) == 0


def test_encoding_knows_where_each_token_begins(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "First line.\nSécond líne — with accents.\n" * 40
    whole = model.encode(text)
    monkeypatch.setattr("engine.models.chat.ENCODE_CHARACTERS", 100)
    pieces = model.encode(text)
    assert torch.equal(whole.ids, pieces.ids)
    assert torch.equal(whole.starts, pieces.starts)
    assert int(pieces.starts[-1]) == len(text) - 1
    assert bool((pieces.starts.diff() >= 0).all())


def test_stop_texts_end_an_answer_and_are_not_shown(model: Model, ids: Tensor) -> None:
    context = read(model, FULL, ids)
    *_, free = Conversation(context).ask("Who?", Sampling(max_tokens=30))
    assert isinstance(free, Answer)
    stop = free.text[5:7]
    *pieces, cut = Conversation(context).ask("Who?", Sampling(max_tokens=30, stop=(stop,)))
    assert isinstance(cut, Answer)
    assert cut.text == whole_characters(free.text[: free.text.index(stop)])
    assert cut.finish_reason == "stop"
    assert "".join(piece.text for piece in pieces if isinstance(piece, AnswerPiece)) == cut.text


@pytest.mark.parametrize("method", [FULL, make_method("exact", budget=96, top_k=24, store="float32")])
def test_after_a_stop_text_the_conversation_goes_on_from_what_was_said(
    model: Model, ids: Tensor, method: Method
) -> None:
    """Regression: the stop text was remembered, and words before it in the same token were not."""
    context = read(model, method, ids)
    conversation, told = Conversation(context), Conversation(context)
    *_, free = Conversation(context).ask("Who?", Sampling(max_tokens=30))
    assert isinstance(free, Answer)
    *_, cut = conversation.ask("Who?", Sampling(max_tokens=30, stop=(free.text[5:8],)))
    assert isinstance(cut, Answer)
    told.replay("Who?", cut.text)
    assert conversation.memory.seen == told.memory.seen
    assert answer(conversation, "And then?") == answer(told, "And then?")


def test_cutting_and_holding_back() -> None:
    assert until_stop("one STOP two", ("STOP", "two")) == ("one ", True)
    assert until_stop("one", ()) == ("one", False)
    assert displayable("one ST", ("STOP",)) == len("one ")
    assert displayable("caf\N{REPLACEMENT CHARACTER}", ()) == 3


def test_no_answer_ends_in_half_a_character(model: Model, ids: Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the model say "é" again and again, which is two of its tokens."""
    context, sign = read(model, FULL, ids), model.encode("é").ids.tolist()
    for most in range(1, 5):
        turns = itertools.cycle(sign)
        monkeypatch.setattr("engine.loops.conversation.choose", lambda *_, turns=turns: next(turns))
        *pieces, last = Conversation(context).ask("Who?", Sampling(max_tokens=most))
        assert isinstance(last, Answer)
        assert last.text == "é" * (most // 2)
        assert last.answer_tokens == most
        assert "".join(piece.text for piece in pieces if isinstance(piece, AnswerPiece)) == last.text


def test_sampling() -> None:
    logits = torch.tensor([0.0, 3.0, 2.0, -5.0])
    generator = torch.Generator().manual_seed(0)
    assert choose(logits, Sampling(), generator) == 1
    assert {choose(logits, Sampling(temperature=1.0, top_p=0.5), generator) for _ in range(50)} == {1}
    drawn = [choose(logits, Sampling(temperature=1.0), generator) for _ in range(400)]
    for cold in (1e-30, 1e-39, 1e-320):  # float32 cannot divide by it
        assert choose(logits, Sampling(temperature=cold), generator) == 1
    assert abs(drawn.count(1) / 400 - float(logits.softmax(0)[1])) < 0.1
    flat, nucleus = torch.zeros(4 * LIKELY), Sampling(temperature=1.0, top_p=0.9)
    assert max(choose(flat, nucleus, generator) for _ in range(100)) >= LIKELY
    flat[7] = flat[3000] = 20.0
    assert {choose(flat, nucleus, generator) for _ in range(50)} == {7, 3000}
    for wrong in ({"temperature": -1.0}, {"top_p": 0.0}, {"max_tokens": 0}, {"stop": ("",)}):
        with pytest.raises(SettingsError):
            Sampling(**wrong)  # type: ignore[arg-type]


def test_what_is_sampled_from_can_be_narrowed() -> None:
    logits = torch.tensor([0.0, 3.0, 2.0, -5.0, 2.5])
    generator = torch.Generator().manual_seed(0)

    def drawn(**settings: float) -> set[int]:
        sampling = Sampling(temperature=2.0, **settings)  # type: ignore[arg-type]
        return {choose(logits, sampling, generator) for _ in range(200)}

    assert drawn() >= {0, 1, 2, 4}
    assert drawn(top_k=3) == {1, 2, 4}
    assert drawn(top_k=99) >= {0, 1, 2, 4}
    assert drawn(min_p=0.7) == {1, 4}
    assert drawn(top_k=3, top_p=0.6) == {1, 4}
    assert drawn(top_p=0.99, min_p=0.9) == {1}
    for wrong in ({"top_k": -1}, {"min_p": 1.5}, {"repetition_penalty": 0.0}):
        with pytest.raises(SettingsError):
            Sampling(**wrong)  # type: ignore[arg-type]


def test_what_was_said_becomes_less_likely() -> None:
    logits = torch.tensor([0.0, 3.0, 2.0, -5.0])
    assert penalize(logits, [1, 3, 1], 2.0).tolist() == [0.0, 1.5, 2.0, -10.0]
    assert penalize(logits, [], 2.0) is penalize(logits, [1], 1.0) is logits


def test_a_penalty_changes_the_greedy_answer(model: Model, ids: Tensor) -> None:
    context = read(model, FULL, ids)

    def tokens(penalty: float) -> list[int]:
        conversation = Conversation(context)
        *_, last = conversation.ask("Who?", Sampling(max_tokens=30, repetition_penalty=penalty))
        assert isinstance(last, Answer)
        return model.encode(last.text).ids.tolist()

    assert len(set(tokens(50.0))) > len(set(tokens(1.0)))


@pytest.mark.parametrize(
    ("published", "own"),
    [
        (None, Sampling()),
        ({}, Sampling()),
        ({"top_p": 0.9}, Sampling(top_p=0.9)),  # no setting asks for sampling
        ({"temperature": 0.6, "top_p": 0.9}, Sampling(temperature=0.6, top_p=0.9)),
        ({"do_sample": True}, Sampling(temperature=1.0)),
        ({"do_sample": False, "temperature": 0.6}, Sampling()),
        (
            {"do_sample": True, "temperature": 0.7, "top_k": 20, "min_p": 0.05, "repetition_penalty": 1.1},
            Sampling(temperature=0.7, top_k=20, min_p=0.05, repetition_penalty=1.1),
        ),
        ({"do_sample": True, "temperature": 0.7, "top_k": -1}, Sampling(temperature=0.7)),
        ({"do_sample": True, "temperature": -3.0}, Sampling()),
    ],
)
def test_a_model_is_sampled_as_its_generation_config_says(published: dict[str, Any] | None, own: Sampling) -> None:
    config = None if published is None else GenerationConfig(**published)  # type: ignore[no-untyped-call]
    assert own_sampling(config) == own


def test_the_same_seed_gives_the_same_answer(model: Model, ids: Tensor) -> None:
    context = read(model, FULL, ids)

    def sampled(seed: int) -> str:
        *_, last = Conversation(context).ask("Who?", Sampling(temperature=2.0, max_tokens=20, seed=seed))
        assert isinstance(last, Answer)
        return last.text

    assert sampled(1) == sampled(1)
    assert sampled(1) != sampled(2)


def test_passages_are_the_peaks_of_attention() -> None:
    mass = torch.zeros(5000)
    mass[100:110] = 1.0
    mass[3000:3003] = 5.0
    mass[3020] = 2.0
    found = passages(mass)
    assert [(p.start, p.end) for p in found] == [(3000, 3021), (100, 110)]
    assert sum(p.weight for p in found) == pytest.approx(1.0)
    assert passages(torch.zeros(10)) == []


def test_attention_mass_counts_only_the_source() -> None:
    mass = AttentionMass(4, torch.device("cpu"))
    source = torch.tensor([[0, -1, 3], [0, 2, -1]], dtype=torch.int32)
    mass.add(mass_rows(source), torch.tensor([[0.5, 0.2, 0.3], [0.1, 0.9, 0.0]]))
    torch.testing.assert_close(mass.total, torch.tensor([0.6, 0.0, 0.9, 0.3]))


def test_attention_of_a_pass_that_failed_is_not_counted_with_the_next() -> None:
    mass, rows = AttentionMass(2, torch.device("cpu")), mass_rows(torch.tensor([0, 1], dtype=torch.int32))
    mass.add(rows, torch.tensor([[0.5, 0.2]]))
    before = mass.save()
    mass.add(rows, torch.tensor([[9.0, 9.0]]))
    mass.restore(before)
    mass.add(rows, torch.tensor([[0.0, 0.3]]))
    torch.testing.assert_close(mass.total, torch.tensor([0.5, 0.5]))


def test_errors_say_what_to_do(model: Model, ids: Tensor) -> None:
    with pytest.raises(SettingsError, match="nothing to read"):
        Reader(model, FULL, ids[:0])
    with pytest.raises(SettingsError, match="no method 'magic'"):
        make_method("magic")
    with pytest.raises(SettingsError, match="no setting 'size'"):
        make_method("exact", size=3)
    with pytest.raises(SettingsError, match="wants a whole number for"):
        make_method("exact", budget="many")
    with pytest.raises(SettingsError, match="no setting 'name'"):  # also a parameter, which gave a traceback
        make_method("exact", **{"name": "x"})
    with pytest.raises(SettingsError, match="wants a number for 'keep'"):  # JSON knows numbers of any length
        make_method("infinipot", keep=10**400)
    with pytest.raises(ModelNotFound, match="no model"):
        load_model("/nowhere/at/all")
    with pytest.raises(SettingsError, match="at least one token"):
        Reader(model, FULL, ids, chunk=0)
    reader = Reader(model, FULL, ids)
    with pytest.raises(ContextMismatch, match="Only 0 of"):
        reader.context()
    parts, meta = reader.state()
    with pytest.raises(ContextMismatch, match="text of"):
        Reader.resume(model, FULL, ids[:-1], {n: p.tensors for n, p in parts.items()}, meta)


def test_a_saved_reading_may_name_settings_that_are_gone() -> None:
    saved = {**make_method("exact").settings(), "logn": True}
    assert make_method("exact", **saved) == make_method("exact")
    assert make_method("infllm", policy="random") == make_method("infllm")
    with pytest.raises(
        SettingsError, match="no longer has the setting 'logn': read the text again"
    ):  # scores would be others
        make_method("exact", **{**saved, "logn": False})


@pytest.mark.parametrize("method", [FULL, make_method("exact")], ids=["full", "exact"])
def test_what_cannot_fit_is_refused_before_reading(
    model: Model, monkeypatch: pytest.MonkeyPatch, method: Method
) -> None:
    scarce = psutil.virtual_memory()._replace(available=10_000)
    monkeypatch.setattr("engine.memory_usage.psutil.virtual_memory", lambda: scarce)
    with pytest.raises(OutOfMemory, match="are free"):
        Reader(model, method, torch.randint(4, 260, (5000,)))


def test_settings_from_the_command_line_are_read_as_their_type() -> None:
    method = make_method("infinipot", budget="512", keep="0.25", prompt="U")
    assert method.settings()["budget"] == 512
    assert method.settings()["keep"] == 0.25
    assert make_method("exact", budget="none").budget is None
