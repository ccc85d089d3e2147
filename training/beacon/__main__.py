"""`python -m training.beacon`: train beacon weights from the command line."""

from training.beacon import BeaconSettings, train
from training.flags import settings_parser, show


def main() -> None:
    """Read the flags (one for each setting) and train."""
    arguments = settings_parser(BeaconSettings, "python -m training.beacon").parse_args()
    print(train(BeaconSettings(**vars(arguments)), show))


if __name__ == "__main__":
    main()
