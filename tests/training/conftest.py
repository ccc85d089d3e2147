"""Fixtures: a tiny library of books, and models made from it within seconds."""

import json
import lzma
import random
from pathlib import Path

import pytest
import torch
from transformers import LlamaForCausalLM

from engine import Model, load_model
from tests.engine.conftest import byte_tokenizer, tiny_config
from training.locret.examples import Example
from training.pocket.documents import Recipe
from training.pocket.ladder import Mix, Stage
from training.pocket.prepare import Materials, prepare
from training.pocket.prose import HELD_OUT_BOOKS
from training.pocket.settings import PocketSettings

TINY = (
    Stage("again", 0.5, (Mix(Recipe(96, "again", language=0.1), 16),), 0.05),
    Stage("chat", 0.5, (
        Mix(Recipe(192, "chat", dense=0.5, facts=(2, 3)), 8),
        Mix(Recipe(192, "chat", facts=(2, 3)), 8, far=True),
    ), 0.05),
)  # fmt: skip
_WORDS = [
    "the", "old", "man", "walked", "along", "the", "river", "and", "thought", "about", "the", "house", "where",
    "his", "mother", "had", "lived", "before", "the", "war", "she", "was", "a", "quiet", "woman", "with", "grey",
    "eyes", "who", "never", "spoke", "of", "the", "sea", "though", "she", "had", "crossed", "it", "twice", "in",
    "a", "small", "boat",
]  # fmt: skip


def _book(seed: int) -> str:
    rng = random.Random(seed)
    paragraphs = []
    for _ in range(60):
        sentences = [
            " ".join(rng.choice(_WORDS) for _ in range(rng.randint(6, 16))).capitalize() + "." for _ in range(4)
        ]
        paragraphs.append(" ".join(sentences))
    return "\n\n".join(paragraphs)


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a data folder with six short books, four of them held out."""
    folder = tmp_path_factory.mktemp("data")
    (folder / "books").mkdir()
    names = ["first-book", "second-book", *HELD_OUT_BOOKS]
    with lzma.open(folder / "books" / "books.jsonl.xz", "wt", encoding="utf-8") as file:
        for seed, name in enumerate(names):
            file.write(json.dumps({"id": name, "text": _book(seed)}) + "\n")
    return folder


@pytest.fixture(scope="session")
def settings(library: Path, tmp_path_factory: pytest.TempPathFactory) -> PocketSettings:
    """Return settings of a model that is small enough to train in a test."""
    work = tmp_path_factory.mktemp("work")
    return PocketSettings(
        data_dir=library,
        work_dir=work,
        out_dir=work / "model",
        tokens=1,
        vocabulary=1024,
        width=32,
        layers=2,
        heads=2,
        kv_heads=1,
        head_size=16,
        inner=64,
        window=512,
        workers=1,
        scale=0.25,
        checkpoint_seconds=1e9,
    )


@pytest.fixture(scope="session")
def materials(settings: PocketSettings) -> Materials:
    """Return tokenizer and prose of the tiny library."""
    return prepare(settings)


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a tiny model, for trainings that keep the model frozen."""
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("model")
    LlamaForCausalLM(tiny_config()).save_pretrained(folder)
    byte_tokenizer().save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def model(folder: Path) -> Model:
    """Return the tiny model, loaded."""
    return load_model(folder, device="cpu")


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a file with twenty rows of text, question and answer."""
    path = tmp_path_factory.mktemp("data") / "rows.jsonl"
    rows = [
        {"text": f"In house {n} there lives a cat. " * 5, "question": f"Who lives in house {n}?", "answer": f"Cat {n}."}
        for n in range(20)
    ]
    path.write_text("\n".join(json.dumps(row) for row in rows) + "\n")
    return path


def example(prompt: int = 60, answer: int = 9) -> Example:
    """Return random tokens whose last ones are an answer."""
    ids = torch.randint(4, 260, (prompt + answer,), generator=torch.Generator().manual_seed(3))
    asking = torch.zeros(prompt + answer, dtype=torch.bool)
    asking[prompt - 1 :] = True
    return Example(ids, prompt, asking)
