"""The shape of the linear online learners: a few arrays for each target, changed in place by a sweep."""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from steelyard._concurrency import synchronized
from steelyard._memory import check_fits_memory
from steelyard._types import FloatArray
from steelyard._validation import check_magnitude
from steelyard.base import Batch
from steelyard.online.targets import OnlineLearner, Signs

__all__ = ["Arrays", "LinearLearner", "Shapes"]

Arrays = dict[str, NDArray[Any]]
Shapes = dict[str, tuple[tuple[int, ...], type]]


class LinearLearner(OnlineLearner):
    """Base of OnlinePerceptron, OAM and OPAUC.

    A subclass says in ``_shapes`` which arrays a target has, "weights" among them, and in ``_learn_arrays``
    how they learn, all targets in one native call.
    """

    _targets: list[Arrays]

    @abstractmethod
    def _shapes(self, n_features: int) -> Shapes:
        """The shape of each array of a target, and its type if it does not hold real numbers."""

    @abstractmethod
    def _learn_arrays(self, arrays: dict[str, list[NDArray[Any]]], X: Any, signs: Signs) -> None:
        """Learn rows, in place; of each array there is one a target."""

    def _start_machines(self, X: NDArray[Any]) -> None:  # noqa: ARG002 - linear learners take what they need later
        self._targets = []

    def _add_target(self) -> None:
        shapes = self._shapes(self.n_features_in_)
        n_values = sum(math.prod(shape) for shape, _ in shapes.values())
        check_fits_memory(
            8 * n_values, f"{type(self).__name__} with these parameters", "take a smaller budget"
        )
        self._targets.append({name: np.zeros(shape, dtype) for name, (shape, dtype) in shapes.items()})

    def _copy_target(self) -> None:
        self._targets += _copied(self._targets[:1])

    def _separate_machines(self) -> None:
        self._targets = _copied(self._targets)

    def _learn(self, batch: Batch) -> None:
        check_magnitude(batch.X, type(self).__name__)
        super()._learn(batch)

    def _sweep(self, X: NDArray[Any], signs: Signs) -> None:
        arrays = {name: [target[name] for target in self._targets] for name in self._targets[0]}
        self._learn_arrays(arrays, X, signs)

    def _target_scores(self, X: NDArray[Any]) -> FloatArray:
        # One target at a time, so that scores do not depend on how many rows are asked about together.
        rows = X.astype(np.float64, copy=False)
        return np.array([np.einsum("ij,j->i", rows, arrays["weights"]) for arrays in self._targets])

    @property
    @synchronized
    def coef_(self) -> FloatArray:
        """Normals, one row, or one row a class when there are more than two."""
        self._need("coef_")
        return self._by_class(np.array([arrays["weights"] for arrays in self._targets]))

    @property
    @synchronized
    def intercept_(self) -> FloatArray:
        """Minus the cuts, as many as rows of ``coef_``."""
        self._need("intercept_")
        return self._by_class(-self._target_cuts())

    def _machines_state(self) -> dict[str, Any]:
        return {"targets": _copied(self._targets)}

    def _set_machines_state(self, state: dict[str, Any]) -> None:
        self._targets = [self._checked(arrays) for arrays in state["targets"]]
        if len(self._targets) != self._n_targets():
            raise ValueError("there must be as many targets as the labels need")

    def _checked(self, arrays: Arrays) -> Arrays:
        shapes = self._shapes(self.n_features_in_)
        if arrays.keys() != shapes.keys():
            raise ValueError("a target has other arrays than this learner keeps")
        for name, (shape, dtype) in shapes.items():
            values = arrays[name]
            if values.shape != shape or values.dtype != dtype or not np.isfinite(values).all():
                raise ValueError(
                    f"the array {name!r} has another shape or type, or values that are not finite"
                )
        return {name: np.ascontiguousarray(values) for name, values in arrays.items()}


def _copied(targets: list[Arrays]) -> list[Arrays]:
    return [{name: values.copy() for name, values in arrays.items()} for arrays in targets]
