"""The pocket model: a small Llama for looking things up, trained from scratch by `train(PocketSettings())`.

Data: `words.py`, `values.py`, `relations.py`, `verbs.py` and `wordings.py` are combined to `facts.py`. Facts, books
(`prose.py`) and questions about real passages (`questions.py`) make the rows of `documents.py`. `ladder.py` defines the
stages of the curriculum. `prepare.py` builds everything in tokens of `tokenizer.py`.
Training: `train.py`, with `network.py` and `optimiser.py`, in several processes (`workers.py`).
Result: `export.py` and `card.py` write the model; `evaluate.py` measures it with its own `reader.py`.
"""

from training.pocket.settings import PocketSettings
from training.pocket.train import Progress, train

__all__ = ["PocketSettings", "Progress", "train"]
