"""Writes a trained pocket model as a stock transformers folder, atomically by a rename."""

import os
import shutil
from pathlib import Path

from transformers import GenerationConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from engine import SettingsError
from training.flags import require_writable
from training.pocket.card import CARD
from training.pocket.tokenizer import is_pocket, load_tokenizer


def check_replaceable(folder: Path) -> None:
    """Check that a finished model may replace `folder`.

    Raises:
        SettingsError: the folder holds something other than a pocket model, or cannot be written.
    """
    require_writable(folder.parent, "name another folder with --out-dir")
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return
    if not (folder / "tokenizer.json").is_file() or not is_pocket(load_tokenizer(folder)):
        raise SettingsError(
            f"{folder} holds something else than a pocket model, and would be replaced as a whole: name a new folder "
            "with --out-dir."
        )


def export(
    model: LlamaForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    folder: Path,
    tokens: int,
    steps: int,
    start: Path | None = None,
) -> None:
    """Save config, weights (bfloat16), tokenizer, chat template, generation settings and model card to `folder`.

    A model already there is kept beside it, with .old appended to its name.

    Args:
        model: float32 weights; not changed.
        tokenizer: with the chat template.
        folder: written anew.
        tokens: tokens that it learned from, for the card.
        steps: length of the training, for the card.
        start: the finished model that training continued from, if any.
    """
    aside = folder.with_name(folder.name + ".part")
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(parents=True)
    copy = LlamaForCausalLM(model.config)
    copy = copy.bfloat16()
    copy.load_state_dict(model.state_dict())
    copy.generation_config = GenerationConfig(  # type: ignore[no-untyped-call]
        do_sample=False,
        bos_token_id=model.config.bos_token_id,
        eos_token_id=model.config.eos_token_id,
        pad_token_id=model.config.pad_token_id,
        max_new_tokens=128,
    )
    copy.save_pretrained(aside)
    tokenizer.save_pretrained(aside, save_jinja_files=False)
    shape = model.config
    card = CARD.format(
        parameters=f"{model.num_parameters() / 1e6:.2f}",
        layers=shape.num_hidden_layers,
        width=shape.hidden_size,
        heads=shape.num_attention_heads,
        kv_heads=shape.num_key_value_heads,
        head_size=shape.head_dim,
        vocabulary=shape.vocab_size,
        window=shape.max_position_embeddings,
        tokens=f"{tokens / 1e6:.1f}",
        steps=steps,
        origin=f"the finished model `{start.name}`" if start else "random weights",
        kv_bytes=4 * shape.num_hidden_layers * (shape.num_key_value_heads or 0) * (shape.head_dim or 0),
        folder=folder,
    )
    (aside / "README.md").write_text(card, encoding="utf-8")
    if folder.exists():
        old = folder.with_name(folder.name + ".old")
        shutil.rmtree(old, ignore_errors=True)
        os.replace(folder, old)
    os.replace(aside, folder)
