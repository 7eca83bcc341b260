"""Tests of models run on one thread: the models are tiny."""

from __future__ import annotations

import torch

torch.set_num_threads(1)
