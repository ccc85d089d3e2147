"""`python -m training.beacon`: train beacon weights from the command line."""

from training.beacon import BeaconSettings, train
from training.flags import train_from_flags

if __name__ == "__main__":
    train_from_flags(BeaconSettings, train, "python -m training.beacon")
