"""Fixtures of several tests of the GPU check."""

import pytest

from benchmarks.gpu_check import gauge


@pytest.fixture
def few_repetitions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time each kernel once."""
    for name in ("WARMING", "REPEATS"):
        monkeypatch.setattr(gauge, name, 1)
