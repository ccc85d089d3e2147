"""Models that reason first: reasoning is kept apart, and the next turn does not see it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

from engine import Answer, AnswerPiece, AskOptions, Conversation, Method, Model, Sampling
from engine.models.chat import INSTRUCTION, Chat
from engine.models.thinking import Channels, Marks, Speech, find_marks
from engine.parts.mass import NOT_IN_SOURCE
from engine.trained import beacons
from engine.trained.beacons import Beacons
from engine.trained.retaining import FILE, RetainingHeads
from engine.trained.sidecar_weights import save_weights
from tests.engine.conftest import TEMPLATE, byte_tokenizer, tiny_config
from tests.engine.matrix import CLOSE, QUESTION, TIGHT, covering_methods
from tests.engine.reading import loaded, read

# Like the templates of reasoning models: they open the answer to come, and drop the reasoning of earlier answers.
STRIPPED = TEMPLATE.replace("<|assistant|>{{ m['content'] }}", "<|assistant|>{{ m['content'].split('</think>')[-1] }}")
OPENED = STRIPPED.replace(
    "{% if add_generation_prompt %}<|assistant|>", "{% if add_generation_prompt %}<|assistant|><think>\n"
)


# Like gpt-oss's: messages name their author and channel; the last is on `final`.
CHANNELS = (
    "{% for m in messages %}<|start|>{{ m['role'] }}"
    "{% if m['role'] == 'assistant' %}<|channel|>final{% endif %}<|message|>{{ m['content'] }}<|end|>"
    "{% endfor %}{% if add_generation_prompt %}<|start|>assistant{% endif %}"
)
EMPTY = "<think>\n\n</think>\n\n"
ANALYSIS, FINAL = "<|channel|>analysis<|message|>", "<|channel|>final<|message|>"
NEXT = "<|end|><|start|>assistant"
CHANNEL_MARKS = Channels("<|channel|>", NEXT + FINAL, "<|message|>")
THOUGHT = Marks("<|channel>thought\n", "<channel|>", gap="")


def channelled() -> PreTrainedTokenizerFast:
    """Make the byte tokenizer of a model that names the channels of its messages."""
    tokenizer = byte_tokenizer()
    tokenizer.chat_template = CHANNELS
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|start|>", "<|channel|>", "<|message|>"]})
    tokenizer.add_special_tokens({"eos_token": "<|return|>"})
    return tokenizer


def thinker(template: str, tokens: bool = True) -> PreTrainedTokenizerFast:
    """Make the byte tokenizer of a model that reasons. tokens: its signs are tokens of their own."""
    tokenizer = byte_tokenizer()
    tokenizer.chat_template = template
    if tokens:
        tokenizer.add_tokens(["<think>", "</think>"])
    return tokenizer


@pytest.fixture(scope="module")
def thinking(tmp_path_factory: pytest.TempPathFactory) -> Model:
    """Make a random model whose template opens the reasoning, which it never closes itself."""
    torch.manual_seed(0)
    config = tiny_config()
    config.vocab_size = 262
    folder = tmp_path_factory.mktemp("thinking")
    model = Model(LlamaForCausalLM(config), thinker(OPENED), "thinker", "thinker-digest", folder)
    save_weights(RetainingHeads(model.spec, [24] * len(model.spec.layers)), folder / FILE, model.spec, {})
    save_weights(Beacons(model.spec), folder / beacons.FILE, model.spec, {})
    return model


def scripted(monkeypatch: pytest.MonkeyPatch, model: Model, *texts: str) -> None:
    """Make the model write these texts, one an answer, each ended by its stop token; "" leaves it free."""
    ids = [[*model.tokenizer(text, add_special_tokens=False)["input_ids"], 3] for text in texts]
    waiting: Iterator[int] = (each for answer in ids for each in answer)
    monkeypatch.setattr("engine.loops.conversation.choose", lambda logits, sampling, generator: next(waiting))


def asked(
    conversation: Conversation, question: str, sampling: Sampling | None = None
) -> tuple[list[AnswerPiece], Answer]:
    *pieces, last = conversation.ask(question, sampling)
    assert isinstance(last, Answer)
    return [piece for piece in pieces if isinstance(piece, AnswerPiece)], last


def joined(pieces: list[AnswerPiece], reasoning: bool) -> str:
    return "".join(piece.text for piece in pieces if piece.reasoning == reasoning)


@pytest.mark.parametrize(
    ("added", "template", "marks"),
    [
        (["<think>", "</think>"], TEMPLATE, Marks("<think>", "</think>")),
        (["[THINK]", "[/THINK]"], TEMPLATE, Marks("[THINK]", "[/THINK]")),
        ([], STRIPPED, Marks("<think>", "</think>")),
        (["</tool>"], TEMPLATE.replace("}<|end|>", "}</reasoning><|end|>"), Marks("<reasoning>", "</reasoning>")),
        (["</tool>"], TEMPLATE, None),
        (["<|channel>", "<channel|>"], TEMPLATE, THOUGHT),
    ],
)
def test_the_signs_are_found_in_tokens_or_template(added: list[str], template: str, marks: Marks | None) -> None:
    tokenizer = byte_tokenizer()
    tokenizer.chat_template = template
    tokenizer.add_tokens(added)
    assert find_marks(tokenizer) == marks


@pytest.mark.parametrize("tokens", [True, False], ids=["tokens", "letters"])
@pytest.mark.parametrize(
    ("opened", "text", "reasoning", "said"),
    [
        (True, "\nHm, <b> so.\n</think>\n\nYes </think>.", "Hm, <b> so.", "Yes </think>."),
        (False, " <think>\nHm.\n</think>\n\nYes.", "Hm.", "Yes."),
        (True, "<think>Hm.</think>Yes.", "Hm.", "Yes."),
        (False, "<thing> is <think>.", "", "<thing> is <think>."),
        (False, "<th", "", "<th"),
        (False, "<think></think>Yes.", "", "Yes."),
        (True, "never ends </th", "never ends", ""),
    ],
)
def test_an_answer_is_parted(tokens: bool, opened: bool, text: str, reasoning: str, said: str) -> None:
    tokenizer = thinker(STRIPPED, tokens)
    assert spoken(tokenizer, find_marks(tokenizer), opened, text) == (reasoning, said)


@pytest.mark.parametrize(
    ("text", "reasoning", "said"),
    [
        ("<|channel>thought\nHm.\n<channel|>Yes.", "Hm.", "Yes."),
        ("<|channel>thought\n<channel|>Yes.", "", "Yes."),
        ("Yes, a <|channel>.", "", "Yes, a <|channel>."),
        ("<|channel>thou", "", "<|channel>thou"),
    ],
)
def test_a_thought_on_a_channel_is_parted(text: str, reasoning: str, said: str) -> None:
    """Cover Gemma 4, whose template puts an empty thought before an immediate answer."""
    tokenizer = byte_tokenizer()
    tokenizer.chat_template = STRIPPED
    tokenizer.add_tokens(["<|channel>", "<channel|>"])
    assert spoken(tokenizer, find_marks(tokenizer), False, text) == (reasoning, said)
    chat = Chat(tokenizer)
    assert tokenizer.decode(chat.opening(reasoning=False)).endswith("<|assistant|><|channel>thought\n<channel|>")
    assert tokenizer.decode(chat.closing()) == "\n<channel|>"


@pytest.mark.parametrize("between", ["</think>", "\n<think></think>\n"])
def test_an_answer_at_once_stands_behind_what_the_template_puts_before_earlier_ones(between: str) -> None:
    """Cover GLM 4.6 and 4.7, which have no other way to skip reasoning."""
    tokenizer = byte_tokenizer()
    template = TEMPLATE.replace("<|assistant|>{{", f"<|assistant|>{between}{{{{")
    tokenizer.chat_template = template.replace("<|assistant|>{% endif", "<|assistant|><think>{% endif")
    tokenizer.add_tokens(["<think>", "</think>"])
    chat = Chat(tokenizer)
    assert tokenizer.decode(chat.opening()).endswith("<|assistant|><think>")
    assert chat.opening(reasoning=False) == chat.answered()
    assert tokenizer.decode(chat.answered()).endswith(f"<|assistant|>{between}")


def spoken(tokenizer: PreTrainedTokenizerFast, marks: Marks | None, opened: bool, text: str) -> tuple[str, str]:
    """Return the reasoning and the answer of a text that a model writes token by token."""
    speech, seen = Speech(tokenizer, marks, opened), ""
    for token in tokenizer(text, add_special_tokens=False)["input_ids"]:
        speech.add(token)
        assert speech.reasoning.startswith(seen), "nothing that was shown is taken back"
        seen = speech.reasoning
    speech.end()
    return speech.reasoning, str(tokenizer.decode(speech.said))


@pytest.mark.parametrize(
    ("text", "reasoning", "said"),
    [
        (f"{ANALYSIS}Hm, <b> so.{NEXT}{FINAL}Yes.", "Hm, <b> so.", "Yes."),
        (f"{FINAL}Yes.", "", "Yes."),
        (f"<|channel|>commentary<|message|>I look.{NEXT}{ANALYSIS}Hm.\n{NEXT}{FINAL}\nYes.", "I look.\n\nHm.", "Yes."),
        (f"{ANALYSIS}never ends{NEXT}<|channel|>fin", "never ends", ""),
        (f"{ANALYSIS}never ends{NEXT}{ANALYSIS}", "never ends", ""),
        (f"{ANALYSIS}{NEXT}{FINAL}Yes.", "", "Yes."),
        ("Yes.", "", "Yes."),
        (f"{ANALYSIS}Hm.{NEXT}<|channel|>final <|constrain|>json<|message|>Yes.", "Hm.", "Yes."),
        ("<|channel|>final <|constrain|>json<|message|>Yes.", "", "Yes."),
        (f"{ANALYSIS}Hm.{NEXT}<|channel|>finally<|message|>So.{NEXT}{FINAL}Yes.", "Hm.\n\nSo.", "Yes."),
        (f"<|channel|>??{NEXT}{ANALYSIS}Hm.{NEXT}{FINAL}Yes.", "Hm.", "Yes."),
        ("<|channel|>fin", "", ""),
    ],
)
def test_an_answer_in_channels_is_parted(text: str, reasoning: str, said: str) -> None:
    tokenizer = channelled()
    marks = Chat(tokenizer).marks
    assert marks == CHANNEL_MARKS
    assert spoken(tokenizer, marks, False, text) == (reasoning, said)


@pytest.fixture(scope="module")
def in_channels() -> Model:
    torch.manual_seed(0)
    tokenizer, config = channelled(), tiny_config()
    config.vocab_size, config.eos_token_id = len(tokenizer), tokenizer.eos_token_id
    return Model(LlamaForCausalLM(config), tokenizer, "channels", "channels-digest")


@pytest.mark.parametrize("reasoned", [f"{ANALYSIS}Let me see.{NEXT}", ""])
@pytest.mark.parametrize("stop", ["<|return|>", "<|end|>"])
def test_of_an_answer_in_channels_the_last_is_remembered(
    in_channels: Model, ids: Tensor, monkeypatch: pytest.MonkeyPatch, reasoned: str, stop: str
) -> None:
    """Compare with one plain pass over the template's prompt of the same messages.

    Cover answers that end as the template ends all messages.
    """
    text, said = "The lamp was lit by Renn.", "It was Renn."
    conversation = Conversation(read(in_channels, TIGHT["full"], in_channels.encode(text).ids))
    script = iter(in_channels.tokenizer(f"{reasoned}{FINAL}{said}{stop}", add_special_tokens=False)["input_ids"])
    monkeypatch.setattr("engine.loops.conversation.choose", lambda *_: next(script))
    pieces, last = asked(conversation, "Who?")
    assert joined(pieces, reasoning=False) == last.text == said
    assert joined(pieces, reasoning=True) == last.reasoning == ("Let me see." if reasoned else "")
    assert bool(last.reasoning_tokens) == bool(reasoned)
    assert (next(script, None), last.finish_reason) == (None, "stop")
    roles = ["system", "user", "assistant", "user"]
    messages = [
        {"role": role, "content": each}
        for role, each in zip(roles, [INSTRUCTION + text, "Who?", said, "When?"], strict=True)
    ]
    whole = in_channels.tokenizer.apply_chat_template(messages, add_generation_prompt=True)["input_ids"]
    later = in_channels.chat.turn("When?", first=False)
    assert whole[-len(later) :] == later
    memory = TIGHT["full"].new_memory(in_channels.spec, in_channels.turn_length)
    nowhere = torch.full((len(whole),), NOT_IN_SOURCE, dtype=torch.int32)
    hidden = in_channels.forward(torch.tensor(whole), memory, nowhere)
    torch.testing.assert_close(in_channels.logits(conversation.feed(later)), in_channels.logits(hidden[-1]), **CLOSE)


def test_reasoning_in_a_channel_that_does_not_end_is_ended(
    in_channels: Model, ids: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    conversation = Conversation(read(in_channels, TIGHT["full"], ids))
    script = iter(in_channels.tokenizer(f"{ANALYSIS}abcdefghYes.<|return|>", add_special_tokens=False)["input_ids"])
    monkeypatch.setattr("engine.loops.conversation.choose", lambda *_: next(script))
    _, last = asked(conversation, "Who?", Sampling(max_reasoning=18))  # 10 of them are the sign
    assert (last.reasoning, last.text) == ("abcdefgh", "Yes.")


def test_reasoning_and_answer_are_streamed_apart(thinking: Model, ids: Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    conversation = Conversation(read(thinking, TIGHT["full"], ids))
    scripted(monkeypatch, thinking, "Let me see.\n</think>\n\nIt was Renn.", "</think>Nothing.")
    pieces, last = asked(conversation, "Who?")
    assert (last.reasoning, last.text, last.finish_reason) == ("Let me see.", "It was Renn.", "stop")
    assert joined(pieces, reasoning=True) == last.reasoning
    assert joined(pieces, reasoning=False) == last.text
    assert (last.reasoning_tokens, last.answer_tokens) == (13, 12)
    _, last = asked(conversation, "And?")
    assert (last.reasoning, last.text) == ("", "Nothing.")


def test_reasoning_that_does_not_end_is_ended(thinking: Model, ids: Tensor) -> None:
    conversation = Conversation(read(thinking, TIGHT["full"], ids))
    _, last = asked(conversation, "Who?", Sampling(max_tokens=7, max_reasoning=20))
    assert last.reasoning
    assert last.reasoning_tokens == 20 + len(thinking.chat.closing()) - 2  # without the line ends behind it
    assert (last.answer_tokens, last.finish_reason) == (7, "length")


@pytest.mark.parametrize("kind", ["opened", "unopened", "closed", "channels"])
def test_a_model_may_be_asked_to_answer_at_once(
    thinking: Model, in_channels: Model, ids: Tensor, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Check that the next question sees the answer alone, and may have reasoning again."""
    model = in_channels if kind == "channels" else thinking
    if kind in ("unopened", "closed"):
        template = STRIPPED if kind == "unopened" else OPENED.replace("<think>\n", EMPTY)
        model = Model(model.network, thinker(template), kind, "-")
    opening = model.tokenizer.decode(model.chat.opening(reasoning=False))
    assert opening.endswith(f"assistant{FINAL}" if kind == "channels" else f"<|assistant|>{EMPTY}")
    letters = torch.tensor(model.tokenizer("abcdefghijklmnop", add_special_tokens=False)["input_ids"])
    monkeypatch.setattr("engine.loops.conversation.choose", lambda logits, *_: int(letters[logits[letters].argmax()]))
    context = read(model, TIGHT["full"], ids)
    conversation, silent = Conversation(context), Conversation(context)
    _, last = asked(conversation, "Who?", Sampling(max_tokens=5, max_reasoning=0))
    assert (last.reasoning, last.reasoning_tokens, last.answer_tokens, last.finish_reason) == ("", 0, 5, "length")
    silent.feed(model.chat.told("Who?", last.text, first=True))
    torch.testing.assert_close(logits_after(conversation), logits_after(silent), **CLOSE)
    assert conversation.memory.seen == silent.memory.seen
    if kind == "opened":
        assert asked(conversation, "And?", Sampling(max_tokens=2, max_reasoning=5))[1].reasoning_tokens > 5


def test_a_model_that_reasons_all_the_same_is_ended(
    in_channels: Model, ids: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = Model(in_channels.network, thinker(STRIPPED), "unopened", "-")
    conversation = Conversation(read(model, TIGHT["full"], ids))
    scripted(monkeypatch, model, "<think>Yes.")
    _, last = asked(conversation, "Who?", Sampling(max_reasoning=0))
    assert last.text == "Yes."


def test_reasoning_and_answer_end_where_they_repeat_themselves(thinking: Model, ids: Tensor) -> None:
    """Check that the answer is cut there and remembered, and that the conversation goes on."""
    conversation = Conversation(read(thinking, TIGHT["full"], ids))
    usual = Sampling(max_tokens=40, max_reasoning=40)
    *_, last = conversation.ask("Who?", usual, AskOptions(repetition_start=lambda said: 9 if len(said) >= 9 else None))
    assert isinstance(last, Answer)
    assert 9 <= len(last.reasoning) < 40
    assert last.reasoning_tokens < 40
    assert len(last.text) == 9
    assert (last.answer_tokens < 40, last.finish_reason) == (True, "repetition")
    assert thinking.decode(conversation.said[0]).endswith(last.text)
    assert asked(conversation, "And?", Sampling(max_tokens=3))[1].answer_tokens <= 3


@pytest.mark.parametrize(
    ("opened", "text", "tokens", "answer"),
    [
        (False, "\n" * 50, 32, ""),  # reasoning may follow
        (True, "So.</think>" + "\n" * 50, 4 + 32, ""),
        (False, "\n\nHi there", 3, "H"),  # known to be an answer at its third token
    ],
)
def test_whatever_a_model_says_its_answer_ends(
    thinking: Model, ids: Tensor, monkeypatch: pytest.MonkeyPatch, opened: bool, text: str, tokens: int, answer: str
) -> None:
    """Regression: line ends before an answer did not count, and a model that wrote only those went on."""
    monkeypatch.setattr(Chat, "opens_reasoning", lambda self, first: opened)
    conversation = Conversation(read(thinking, TIGHT["full"], ids))
    said = list[int]()
    script = iter(thinking.tokenizer(text, add_special_tokens=False)["input_ids"])

    def choose(*_: object) -> int:
        said.append(next(script))
        return said[-1]

    monkeypatch.setattr("engine.loops.conversation.choose", choose)
    _, last = asked(conversation, "Who?", Sampling(max_tokens=1 if answer else 9, max_reasoning=20))
    assert (len(said), last.text[:2], last.finish_reason) == (tokens, answer, "length")


def test_a_cancelled_reasoning_leaves_no_trace(thinking: Model, ids: Tensor) -> None:
    context = read(thinking, TIGHT["exact"], ids)
    conversation = Conversation(context)
    pieces = conversation.ask("Who?", Sampling(max_tokens=9, max_reasoning=9))
    next(pieces)
    pieces.close()
    cut = Sampling(max_tokens=9, max_reasoning=9)
    assert asked(conversation, "Where?", cut)[1].text == asked(Conversation(context), "Where?", cut)[1].text


@covering_methods
def test_the_next_turn_knows_nothing_of_the_reasoning(
    thinking: Model, ids: Tensor, method: Method, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compare logits of the next turn with those of a conversation with the answer alone."""
    letters = torch.tensor(thinking.tokenizer("abcdefghijklmnop", add_special_tokens=False)["input_ids"])
    monkeypatch.setattr("engine.loops.conversation.choose", lambda logits, *_: int(letters[logits[letters].argmax()]))
    context = read(thinking, method, ids)
    conversation, silent = Conversation(context), Conversation(context)
    chat = thinking.chat
    for number in range(2):
        question = f"question number {number}?"
        _, last = asked(conversation, question, Sampling(max_tokens=4, max_reasoning=9))
        said = thinking.tokenizer(last.text, add_special_tokens=False)["input_ids"]
        assert (len(said), last.reasoning_tokens) == (4, 9 + len(chat.closing()) - 2)
        silent.feed(chat.question(question, first=number == 0))
        silent.feed([*chat.answered(), *said])
    assert conversation.memory.seen == silent.memory.seen
    assert conversation.usage().entries == silent.usage().entries
    expected, got = logits_after(silent), logits_after(conversation)
    torch.testing.assert_close(got, expected, **CLOSE)
    parts, meta = conversation.state()
    torch.testing.assert_close(logits_after(Conversation.load(context, loaded(parts), meta)), expected, **CLOSE)


def logits_after(conversation: Conversation) -> Tensor:
    """Return the logits of a further question, put to a snapshot."""
    conversation.memory, before = conversation.memory.snapshot(), conversation.memory
    hidden = conversation.feed(QUESTION.tolist())
    conversation.memory = before
    return conversation.model.logits(hidden)


def test_the_history_is_the_templates_own(thinking: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compare with one plain pass over the template's prompt of the same messages, reasoning included."""
    text, reasoned, said = "The lamp was lit by Renn.", "Let me see.\n</think>\n\n", "It was Renn."
    conversation = Conversation(read(thinking, TIGHT["full"], thinking.encode(text).ids))
    scripted(monkeypatch, thinking, f"{reasoned}{said}")
    asked(conversation, "Who?")
    messages = [
        {"role": "system", "content": INSTRUCTION + text},
        {"role": "user", "content": "Who?"},
        {"role": "assistant", "content": f"<think>\n{reasoned}{said}".replace("\n\n", "")},
        {"role": "user", "content": "When?"},
    ]
    whole = thinking.tokenizer.apply_chat_template(messages, add_generation_prompt=True)["input_ids"]
    later = thinking.chat.turn("When?", first=False)
    assert whole[-len(later) :] == later
    memory = TIGHT["full"].new_memory(thinking.spec, thinking.turn_length)
    hidden = thinking.forward(torch.tensor(whole), memory, torch.full((len(whole),), NOT_IN_SOURCE, dtype=torch.int32))
    torch.testing.assert_close(thinking.logits(conversation.feed(later)), thinking.logits(hidden[-1]), **CLOSE)


def test_a_template_without_reasoning_opens_answers_as_before() -> None:
    chat = Chat(byte_tokenizer())
    assert chat.marks is None
    assert chat.closing() == []
    assert chat.turn("Who?") == [*chat.question("Who?"), *chat.opening()]
    assert chat.opening() == chat.answered() == chat.opening(first=False)


def test_a_turn_that_is_told_has_no_reasoning_and_its_text_stays_text(thinking: Model) -> None:
    chat, plain = thinking.chat, Chat(byte_tokenizer())
    for first in (True, False):
        said = thinking.encode("Renn.").ids.tolist()
        assert chat.told("Who?", "Renn.", first) == [*chat.question("Who?", first), *chat.answered(), *said]
        told = plain.told("Who?", "<|end|>", first)
        assert told.count(3) == plain.turn("Who?", first).count(3)
        assert told[: len(plain.turn("Who?", first))] == plain.turn("Who?", first)
