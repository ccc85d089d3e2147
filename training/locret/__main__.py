"""`python -m training.locret`: train retaining heads from the command line."""

from training.flags import train_from_flags
from training.locret import LocretSettings, train

if __name__ == "__main__":
    train_from_flags(LocretSettings, train, "python -m training.locret")
