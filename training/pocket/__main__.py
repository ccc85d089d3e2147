"""`python -m training.pocket`: train the pocket model from the command line."""

import logging

from training.flags import settings_parser, show
from training.pocket import PocketSettings, train


def main() -> None:
    """Read the flags (one for each setting) and train."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    train(PocketSettings(**vars(settings_parser(PocketSettings, "python -m training.pocket").parse_args())), show)


if __name__ == "__main__":
    main()
