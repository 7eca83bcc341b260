"""Attention kernels as row-stochastic linear operators.

A kernel holds the attention of one layer, ``A[i, j]`` = weight of source j in target i, and
answers products with it without forming the n x n matrix.
"""

from posbias.kernels.attention import AttentionKernel
from posbias.kernels.base import Kernel, Matrix, Vector
from posbias.kernels.dense import DenseKernel
from posbias.kernels.description import kernel_from_description
from posbias.kernels.energy import EnergyKernel
from posbias.kernels.head import Head, Sink
from posbias.kernels.masks import Causal, Full, Mask, PrefixLM, SlidingWindow, WindowSink
from posbias.kernels.mixture import MixtureKernel
from posbias.kernels.positions import (
    ALiBi,
    Cosine,
    KerpleLog,
    KerplePower,
    LagTable,
    NoPE,
    Position,
    RopeSum,
    T5Buckets,
)
from posbias.kernels.summary import SummaryKernel

__all__ = [
    "ALiBi",
    "AttentionKernel",
    "Causal",
    "Cosine",
    "DenseKernel",
    "EnergyKernel",
    "Full",
    "Head",
    "Kernel",
    "KerpleLog",
    "KerplePower",
    "LagTable",
    "Mask",
    "Matrix",
    "MixtureKernel",
    "NoPE",
    "Position",
    "PrefixLM",
    "RopeSum",
    "Sink",
    "SlidingWindow",
    "SummaryKernel",
    "T5Buckets",
    "Vector",
    "WindowSink",
    "kernel_from_description",
]
