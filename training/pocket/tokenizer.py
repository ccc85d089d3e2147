"""The pocket model's byte-level BPE tokenizer: about 4K entries, single digits, special tokens.

A space is put before every stretch of text without one (after a special token, at the start of a page), so that a name
has the same tokens at the start of an answer and inside a sentence. Answers therefore begin with a space.
"""

from collections.abc import Iterable
from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

BOS, USER, ASSISTANT, END, PAD = "<|bos|>", "<|user|>", "<|assistant|>", "<|end|>", "<|pad|>"
_WORDS = r"'s|\d| ?\p{L}+| ?[^\s\p{L}\d]+|\s+(?!\S)|\s"
CHAT_TEMPLATE = (
    "{{ bos_token }}"
    "{% for message in messages %}"
    "{% if message['role'] == 'system' %}{{ message['content'] }}"
    "{% elif message['role'] == 'user' %}<|user|>{{ message['content'] }}"
    "{% elif message['role'] == 'assistant' %}<|assistant|>{{ message['content'] }}<|end|>"
    "{% else %}{{ raise_exception('unknown role ' + message['role']) }}{% endif %}"
    "{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def train_tokenizer(texts: Iterable[str], size: int, window: int) -> PreTrainedTokenizerFast:
    """Train a tokenizer on `texts`.

    Args:
        texts: the books and a sample of synthetic facts.
        size: vocabulary, special tokens included.
        window: the model's trained window in tokens, written to `model_max_length`.
    """
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Prepend(" "), normalizers.Replace(Regex(r"\A (?=\s)"), "")]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_WORDS), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        min_frequency=2,
        show_progress=False,
        special_tokens=[BOS, USER, ASSISTANT, END, PAD],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    tokenizer.train_from_iterator(texts, trainer)
    return wrap(tokenizer, window)


def wrap(tokenizer: Tokenizer, window: int) -> PreTrainedTokenizerFast:
    """Return the tokenizer as a transformers tokenizer, with the chat template."""
    fast = PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=tokenizer,
        bos_token=BOS,
        eos_token=END,
        pad_token=PAD,
        additional_special_tokens=[USER, ASSISTANT],
        model_max_length=window,
        clean_up_tokenization_spaces=False,
    )
    fast.chat_template = CHAT_TEMPLATE
    return fast


def is_pocket(tokenizer: PreTrainedTokenizerBase) -> bool:
    """Return whether a tokenizer has the special tokens of pocket models."""
    return {BOS, USER, ASSISTANT, END, PAD} <= tokenizer.get_vocab().keys()


def load_tokenizer(folder: Path) -> PreTrainedTokenizerFast:
    """Load the tokenizer saved in `folder`.

    Raises:
        FileNotFoundError: no tokenizer there.
    """
    if not (folder / "tokenizer.json").is_file():
        raise FileNotFoundError(f"There is no tokenizer.json in {folder}.")
    loaded: PreTrainedTokenizerFast = PreTrainedTokenizerFast.from_pretrained(folder)
    return loaded
