"""The parameters by which online learners name their kernel, and which rows it can take."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from steelyard.exceptions import DataError
from steelyard.items import is_sequence_kernel
from steelyard.kernels import Kernel, SequenceKernel
from steelyard.params import AnyOf, Constraint, Finite, Instance, Integer, OneOf, Positive

__all__ = ["KERNEL_CONSTRAINTS", "check_kernel_range", "settled_kernel"]

KERNEL_CONSTRAINTS: dict[str, Constraint] = {
    "kernel": AnyOf(
        OneOf("rbf", "linear", "polynomial", "poly", "laplacian", "sigmoid"),
        Instance(SequenceKernel, description="a sequence kernel"),
    ),
    "gamma": AnyOf(Positive(), OneOf("scale", "auto")),
    "degree": Integer(0),
    "coef0": Finite(),
}
_LARGEST_VALUE = 1e150  # kernel values beyond this could overflow in sums of products


def settled_kernel(
    name: str | SequenceKernel, gamma: float | str, degree: int, coef0: float, X: Any
) -> Kernel:
    """The kernel with numbers; "auto" asks for the median distance between the rows."""
    rule = "median" if gamma == "auto" else gamma
    return Kernel(name, gamma=rule, degree=degree, coef0=coef0).resolve(X)


def check_kernel_range(kernels: list[Kernel], X: NDArray[Any], who: str) -> None:
    """Refuse rows whose kernel values could overflow; distances may, as their kernels are then 0."""
    of_products = [
        kernel
        for kernel in kernels
        if not is_sequence_kernel(kernel) and kernel.kernel not in {"rbf", "laplacian"}
    ]
    if not of_products:
        return
    largest = max(float(X.max(initial=0.0)), -float(X.min(initial=0.0)))
    product = X.shape[1] * largest * largest
    for kernel in of_products:
        reached = product
        if kernel.kernel == "polynomial":
            with np.errstate(over="ignore"):
                reached = float(
                    np.float64(float(kernel.gamma) * product + abs(kernel.coef0)) ** kernel.degree
                )
        if reached > _LARGEST_VALUE:
            raise DataError(
                f"X has values so large (up to {largest:g}) that {kernel!r} could overflow; "
                "nothing was changed.",
                who=who,
                hint="bring the features to a common scale first",
            )
