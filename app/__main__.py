"""Run the command line by `python -m app`, where `stockpot` is not installed."""

import sys

from app.cli import main

if __name__ == "__main__":
    sys.exit(main())
