"""Messages and the exception for a training that is asked to stop (`engine/signals.py`)."""

from __future__ import annotations

from engine import EngineError

PATIENCE = "\nStopping after this step; once more ends at once.\n"


class Stopped(EngineError):
    """A training was asked to stop and has saved a checkpoint."""

    @classmethod
    def after(cls, steps: int) -> Stopped:
        """Return the exception for a stop after `steps` steps."""
        return cls(f"Stopped after step {steps:,}, and saved: the same command with --resume goes on from there.")
