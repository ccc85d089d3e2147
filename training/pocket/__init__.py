"""The pocket model: a small Llama that looks things up, trained from nothing by `train(PocketSettings())`."""

from training.pocket.settings import PocketSettings
from training.pocket.train import Progress, train

__all__ = ["PocketSettings", "Progress", "train"]
