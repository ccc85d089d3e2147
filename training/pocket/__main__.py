"""`python -m training.pocket`: train the pocket model from the command line."""

import logging
import sys

from training.flags import settings_parser
from training.pocket import PocketSettings, Progress, train


def show(line: Progress) -> None:
    """Every 20th step as a line on stderr."""
    if line.step % 20 == 0:
        print(
            f"{line.fraction:6.1%} {line.stage:10} {line.kind:14} step {line.step} {line.tokens / 1e6:.2f} M "
            f"{line.tokens / line.seconds:.0f} tok/s loss {line.loss:.3f} right {line.accuracy:.1%} "
            f"language {line.language_loss:.2f}",
            file=sys.stderr,
            flush=True,
        )


def main() -> None:
    """Read the flags (one for each setting) and train."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    train(PocketSettings(**vars(settings_parser(PocketSettings, "python -m training.pocket").parse_args())), show)


if __name__ == "__main__":
    main()
