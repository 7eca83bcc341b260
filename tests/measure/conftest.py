"""Tests of measurements share the tiny models of tests/models and run on one thread."""

from __future__ import annotations

import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "models"))
torch.set_num_threads(1)
