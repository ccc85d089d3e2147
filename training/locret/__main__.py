"""`python -m training.locret`: train retaining heads from the command line."""

import sys

from training.flags import settings_parser
from training.locret import LocretSettings, Progress, train


def show(line: Progress) -> None:
    """Every 20th step as a line on stderr."""
    if line.step % 20 == 0:
        print(line.in_words(), file=sys.stderr, flush=True)


def main() -> None:
    """Read the flags (one for each setting) and train."""
    arguments = settings_parser(LocretSettings, "python -m training.locret").parse_args()
    print(train(LocretSettings(**vars(arguments)), show))


if __name__ == "__main__":
    main()
