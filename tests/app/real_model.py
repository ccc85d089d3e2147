"""A program like `tests.app.slow` for a model that was trained: only where it looked is a source."""

import sys

from tests.app.slow import run

if __name__ == "__main__":
    sys.exit(run())
