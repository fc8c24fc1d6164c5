"""Kernel functions on vectors, sequences and precomputed matrices."""

from steelyard.kernels.kernel import Kernel, PrecomputedKernel
from steelyard.kernels.sequences import EditKernel, GlobalAlignmentKernel, SequenceKernel

__all__ = ["EditKernel", "GlobalAlignmentKernel", "Kernel", "PrecomputedKernel", "SequenceKernel"]
