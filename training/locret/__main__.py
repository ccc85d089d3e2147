"""`python -m training.locret`: train retaining heads from the command line."""

from training.flags import settings_parser, show
from training.locret import LocretSettings, train


def main() -> None:
    """Read the flags (one for each setting) and train."""
    arguments = settings_parser(LocretSettings, "python -m training.locret").parse_args()
    print(train(LocretSettings(**vars(arguments)), show))


if __name__ == "__main__":
    main()
