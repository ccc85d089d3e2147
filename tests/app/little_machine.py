"""A machine of 16 GB, on which any model of other programs counts as a better one; a program like `tests.app.slow`."""

import sys

from app.machine import recommended
from tests.app.slow import run

GB = 10**9

if __name__ == "__main__":
    recommended.memory_for_weights = lambda device: (12 * GB, False)
    recommended.total_memory = lambda device: 16 * GB
    recommended.form_in = lambda device: "blocks"  # before anything else takes these from there
    from app.machine import offer

    offer.BETTER = 0
    sys.exit(run())
