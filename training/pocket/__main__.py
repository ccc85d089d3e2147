"""`python -m training.pocket`: train the pocket model from the command line."""

import logging

from training.flags import train_from_flags
from training.pocket import PocketSettings, train

if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    train_from_flags(PocketSettings, train, "python -m training.pocket")
