"""Fixtures of tests of models and plans."""

import json
from pathlib import Path

import pytest

from tests.app.helpers import QWEN


@pytest.fixture
def config_only(tmp_path: Path) -> Path:
    """Return a folder with the config.json of Qwen2.5-7B and nothing else."""
    folder = tmp_path / "Qwen2.5-7B"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(QWEN))
    return folder
