"""Training of Locret's retaining heads for a frozen model, by `train(LocretSettings())`."""

from training.locret.settings import LocretSettings
from training.locret.train import Progress, train

__all__ = ["LocretSettings", "Progress", "train"]
