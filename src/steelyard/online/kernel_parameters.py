"""The parameters by which online learners name their kernel, settled by the first rows."""

from __future__ import annotations

from typing import Any

from steelyard.kernels import Kernel, SequenceKernel
from steelyard.params import AnyOf, Constraint, Finite, Former, Instance, Integer, OneOf, Positive

__all__ = ["GAMMA_OF_STREAMS", "KERNEL_CONSTRAINTS", "settled_gamma", "settled_kernel"]

GAMMA_OF_STREAMS = Former(
    AnyOf(Positive(), OneOf("scale", "median")),
    auto="gamma='auto' was the median rule in this learner and 1 / n_features in others; "
    "write gamma='median' for what it was here",
)
KERNEL_CONSTRAINTS: dict[str, Constraint] = {
    "kernel": AnyOf(
        OneOf("rbf", "linear", "polynomial", "poly", "laplacian", "sigmoid"),
        Instance(SequenceKernel, description="a sequence kernel"),
    ),
    "gamma": GAMMA_OF_STREAMS,
    "degree": Integer(0),
    "coef0": Finite(),
}


def settled_kernel(
    name: str | SequenceKernel, gamma: float | str, degree: int, coef0: float, X: Any
) -> Kernel:
    """The kernel with numbers; a rule for gamma looks at these rows."""
    return Kernel(name, gamma=gamma, degree=degree, coef0=coef0).resolve(X)


def settled_gamma(saved: float | str) -> float | str:
    """The rule for gamma as a file has it: files from before say "auto" and mean the median."""
    return "median" if saved == "auto" else saved
