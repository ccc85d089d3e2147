"""A tiny Llama with random weights and its own tokenizer, for tests of everything but the quality of answers."""

from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

TEMPLATE = (
    "{% for message in messages %}<|{{ message['role'] }}|>{{ message['content'] }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
THINKING = TEMPLATE.replace("<|assistant|>{% endif %}", "<|assistant|><think>\n{% endif %}")
SPECIAL = ["<|end|>", "<|system|>", "<|user|>", "<|assistant|>"]


def make_tiny_model(folder: Path, seed: int = 0, thinking: bool = False) -> Path:
    """Write the model to `folder` and return it. thinking: its template makes it reason first, which it never ends."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=SPECIAL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    sentence = "the quick brown fox jumps over the lazy dog and the pass key is 12345"
    tokenizer.train_from_iterator([sentence] * 4, trainer)
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token="<|end|>",
        additional_special_tokens=SPECIAL[1:],
        chat_template=THINKING if thinking else TEMPLATE,
    )
    if thinking:
        fast.add_tokens(["<think>", "</think>"])
    fast.save_pretrained(folder)
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=len(fast),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=4096,
        bos_token_id=None,
        eos_token_id=fast.eos_token_id,
        tie_word_embeddings=False,
    )
    model = LlamaForCausalLM(config)
    with torch.no_grad():
        model.lm_head.weight[fast.eos_token_id] = 0.0  # it talks until it is stopped, on every processor
    model.save_pretrained(folder)
    return folder


if __name__ == "__main__":
    import sys

    print(make_tiny_model(Path(sys.argv[1])))
