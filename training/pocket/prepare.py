"""Materials of a run: tokenizer, tokenised prose, attribute nouns. Made once and kept."""

import json
import logging
import random
from dataclasses import dataclass
from pathlib import Path

from transformers import PreTrainedTokenizerFast

from engine import SettingsError
from engine.models.chat import INSTRUCTION
from training.pocket import facts
from training.pocket.documents import CATALYSTS, Builder
from training.pocket.facts import FactMaker
from training.pocket.prose import HELD_OUT_BOOKS, Prose, common_nouns, read_books, split_sentences, tokenise
from training.pocket.questions import Passages, load_passages
from training.pocket.settings import PocketSettings
from training.pocket.tokenizer import is_pocket, load_tokenizer, train_tokenizer

log = logging.getLogger(__name__)


@dataclass
class Materials:
    """Tokenizer, training and held-out prose, nouns, and question sets."""

    tokenizer: PreTrainedTokenizerFast
    prose: Prose
    held_out: Prose
    nouns: list[str]
    passages: Passages

    def builder(self) -> Builder:
        """Return a builder of training rows."""
        return Builder(self.tokenizer, self.prose, FactMaker(self.nouns), self.passages)


def prepare(settings: PocketSettings) -> Materials:
    """Load the materials from the work folder, or make them from the data folder.

    Raises:
        DataMissing: the books are not there.
        SettingsError: `start` is not a pocket model, or the work folder has prose in another model's tokens.
    """
    folder = settings.work_dir / "materials"
    done = folder / "nouns.json"
    if not done.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        _make(settings, folder)
    tokenizer = load_tokenizer(folder)
    if settings.start is not None and tokenizer.get_vocab() != _start_tokenizer(settings.start).get_vocab():
        raise SettingsError(
            f"The prose in {settings.work_dir} was tokenised for another model than {settings.start.name}: give the "
            "work folder of that model's own training, or one that is empty."
        )
    nouns = json.loads(done.read_text())
    return Materials(
        tokenizer,
        Prose.load(folder / "train.npz"),
        Prose.load(folder / "held_out.npz"),
        nouns,
        load_passages(settings.data_dir),
    )


def _start_tokenizer(folder: Path) -> PreTrainedTokenizerFast:
    """Load the tokenizer of the model that training continues from.

    Raises:
        SettingsError: it is not a pocket model's.
    """
    tokenizer = load_tokenizer(folder)
    if not is_pocket(tokenizer):
        raise SettingsError(f"The model in {folder} is no pocket model, which alone a training can --start from.")
    return tokenizer


def _make(settings: PocketSettings, folder: Path) -> None:
    books = read_books(settings.data_dir)
    train = [text for name, text in books if name not in HELD_OUT_BOOKS]
    held_out = [text for name, text in books if name in HELD_OUT_BOOKS]
    nouns = common_nouns(train, 1500)
    if settings.start is None:
        log.info("training the tokenizer on %d books", len(train))
        tokenizer = train_tokenizer([*train, *_sample(nouns, settings.seed)], settings.vocabulary, settings.window)
    else:
        tokenizer = _start_tokenizer(settings.start)
    tokenizer.save_pretrained(folder, save_jinja_files=False)
    for name, texts in (("train", train), ("held_out", held_out)):
        prose = tokenise([s for text in texts for s in split_sentences(text)], tokenizer)
        log.info("%s: %d sentences, %d tokens", name, len(prose), len(prose.tokens))
        prose.save(folder / f"{name}.npz")
    (folder / "nouns.json").write_text(json.dumps(nouns))


def _sample(nouns: list[str], seed: int) -> list[str]:
    """Return statements and questions, so that their words get tokens: about 3 MB beside 14 MB of books."""
    rng = random.Random(seed)
    maker = FactMaker(nouns)
    texts = [INSTRUCTION, *CATALYSTS] * 300
    for _ in range(16000):
        subject = facts.make_subject(rng, False)
        fact = maker.fact(rng, subject, maker.relation(rng, subject.kind, set()), False)
        texts += [
            fact.statement,
            facts.question(rng, fact.relation, subject),
            facts.followup(rng, fact.relation, subject),
        ]
    return texts
