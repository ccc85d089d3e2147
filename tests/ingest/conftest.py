"""Path of the sample files. They are not in the repository; without them their tests are skipped."""

from pathlib import Path

import pytest

DATA = Path(__file__).resolve().parents[2].parent / "shared" / "data"


@pytest.fixture
def data() -> Path:
    if not DATA.is_dir():
        pytest.skip(f"no sample files at {DATA}")
    return DATA
