"""Kernel functions on vectors, sequences and precomputed matrices, and weighted sums of kernel values."""

from steelyard.kernels.kernel import Kernel, PrecomputedKernel
from steelyard.kernels.sequences import EditKernel, GlobalAlignmentKernel, SequenceKernel

__all__ = ["EditKernel", "GlobalAlignmentKernel", "Kernel", "PrecomputedKernel", "SequenceKernel"]
