"""Kernel functions on vectors, sequences and precomputed matrices."""

from steelyard.kernels.kernel import (
    EditKernel,
    GlobalAlignmentKernel,
    Kernel,
    PrecomputedKernel,
    SequenceKernel,
)

__all__ = ["EditKernel", "GlobalAlignmentKernel", "Kernel", "PrecomputedKernel", "SequenceKernel"]
