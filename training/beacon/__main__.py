"""`python -m training.beacon`: train beacon weights from the command line."""

import sys

from training.beacon import BeaconSettings, Progress, train
from training.flags import settings_parser


def show(line: Progress) -> None:
    """Every 20th step as a line on stderr."""
    if line.step % 20 == 0:
        print(line.in_words(), file=sys.stderr, flush=True)


def main() -> None:
    """Read the flags (one for each setting) and train."""
    arguments = settings_parser(BeaconSettings, "python -m training.beacon").parse_args()
    print(train(BeaconSettings(**vars(arguments)), show))


if __name__ == "__main__":
    main()
