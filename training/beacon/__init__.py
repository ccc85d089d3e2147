"""Training of Activation Beacon's weights for a frozen model, by `train(BeaconSettings())`."""

from training.beacon.settings import BeaconSettings
from training.beacon.train import Progress, train

__all__ = ["BeaconSettings", "Progress", "train"]
