"""Locret's retaining heads, trained for a frozen model by `train(LocretSettings())`."""

from training.locret.settings import LocretSettings
from training.locret.train import Progress, train

__all__ = ["LocretSettings", "Progress", "train"]
