"""Triton's interpreter where there is no GPU; it must be asked for before Triton compiles anything."""

from __future__ import annotations

import os

import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"
