"""The pocket model: a small Llama that looks things up, trained from nothing by `train(PocketSettings())`.

What it is trained on: `words.py`, `values.py`, `relations.py`, `verbs.py` and `wordings.py` make `facts.py`. Facts, the
books (`prose.py`) and questions about real passages (`questions.py`) make the rows of `documents.py`, as the stages of
`ladder.py` want them; `prepare.py` has all of it ready, in the tokens of `tokenizer.py`.
How: `train.py`, with `network.py` and `optimiser.py`, in several processes (`workers.py`).
What comes of it: `export.py` and `card.py` write it, `evaluate.py` measures it, with a `reader.py` of its own.
"""

from training.pocket.settings import PocketSettings
from training.pocket.train import Progress, train

__all__ = ["PocketSettings", "Progress", "train"]
