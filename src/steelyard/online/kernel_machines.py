"""The shape of the kernel learners that keep one list of support vectors for each target."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from steelyard import _native
from steelyard._concurrency import synchronized
from steelyard._threads import num_threads
from steelyard._types import FloatArray
from steelyard.kernels import Kernel, SequenceKernel
from steelyard.online.kernel_learners import KernelLearner
from steelyard.online.kernel_parameters import KERNEL_CONSTRAINTS, settled_gamma, settled_kernel
from steelyard.params import Constraint

__all__ = ["KernelListLearner"]

Expansion = _native.KernelExpansion64 | _native.KernelExpansion32
_NUMBERS = ("bias", "margin", "deviation", "mistakes", "seen")


class KernelListLearner(KernelLearner):
    """Base of NORMA, RBP, Forgetron and Projectron.

    A subclass says in ``_learn_rows`` by which rule lists learn. The kernel is settled by the first rows.
    """

    _constraints: ClassVar[dict[str, Constraint]] = KERNEL_CONSTRAINTS

    kernel: str | SequenceKernel
    gamma: float | str
    degree: int
    coef0: float

    _lists: list[Any]  # of Expansion, all of one kind, one a target
    _kernel: Kernel
    _dtype: np.dtype[Any]

    def _used_kernels(self) -> list[Kernel]:
        return [self._kernel]

    def _spec(self) -> _native.KernelSpec:
        (spec,) = self._specs()
        return spec

    def _kept_rows(self) -> NDArray[Any]:
        return np.concatenate([machine.vectors for machine in self._lists])

    def _start_machines(self, X: NDArray[Any]) -> None:
        self._kernel = settled_kernel(self.kernel, self.gamma, self.degree, self.coef0, X)
        self._lists = []
        self._open_items()
        self._dtype = np.dtype(np.float64) if self._items is not None else X.dtype

    def _add_target(self) -> None:
        kind = _native.KernelExpansion32 if self._dtype == np.float32 else _native.KernelExpansion64
        self._lists.append(kind(self._spec(), self._width()))

    def _copy_target(self) -> None:
        self._lists.append(self._build(_describe(self._lists[0])))

    def _separate_machines(self) -> None:
        if self._items is not None:
            self._items = self._items.copy()
        self._lists = [self._build(_describe(machine)) for machine in self._lists]

    def _like_vectors(self, X: NDArray[Any]) -> NDArray[Any]:
        if self._dtype == np.float32 and X.dtype == np.float64:
            self._dtype = X.dtype
            self._lists = [self._build(_describe(machine)) for machine in self._lists]
        return X.astype(self._dtype, copy=False)

    def _target_scores(self, X: NDArray[Any]) -> FloatArray:
        if self._items is not None:
            return np.array([self._sequence_scores(machine, X) for machine in self._lists])
        lists: list[Any] = list(self._lists)
        if self._dtype == np.float32 and X.dtype == np.float64:
            lists = [self._build(_describe(machine), np.dtype(np.float64)) for machine in lists]
        rows = X if self._dtype == np.float32 else X.astype(self._dtype, copy=False)
        return np.array([machine.scores(rows, num_threads()) for machine in lists])

    def _sequence_scores(self, machine: Expansion, items: Any) -> FloatArray:
        stored = self._samples_of(machine)
        if not stored:
            return np.full(len(items), machine.bias)
        return self._kernel.block(items, stored) @ np.asarray(machine.coef) + machine.bias

    def _samples_of(self, machine: Expansion) -> Any:
        """What a machine keeps, as the caller passed it."""
        return self._samples(np.asarray(machine.vectors))

    @property
    @synchronized
    def support_vectors_(self) -> Any:
        """Vectors kept: an array for two classes, a list with one array a class for more.

        Of sequences it is a list, or a list of lists.
        """
        self._need("support_vectors_")
        arrays = [self._samples_of(machine) for machine in self._lists]
        return arrays[0] if len(arrays) == 1 else [arrays[i] for i in self._class_order()]

    @property
    @synchronized
    def dual_coef_(self) -> list[FloatArray] | FloatArray:
        """Weights of the support vectors, in the same form."""
        self._need("dual_coef_")
        if len(self._lists) == 1:
            return self._by_class(np.asarray(self._lists[0].coef)[None])[0]
        weights = [
            np.asarray(m.coef) * sign for m, sign in zip(self._lists, self._orientation(), strict=True)
        ]
        return [weights[i] for i in self._class_order()]

    def _class_order(self) -> list[int]:
        return [self._labels.index(label) for label in sorted(self._labels)]

    def _machines_state(self) -> dict[str, Any]:
        return {
            "kernel": self._kernel.to_tree(),
            "dtype": self._dtype.name,
            "lists": [_describe(machine) | {"vectors": self._samples_of(machine)} for machine in self._lists],
        }

    def _set_machines_state(self, state: dict[str, Any]) -> None:
        if state["dtype"] not in {"float32", "float64"}:
            raise ValueError("vectors are float32 or float64")
        self.gamma = settled_gamma(self.gamma)
        self._kernel, self._dtype = Kernel.from_tree(state["kernel"]), np.dtype(state["dtype"])
        self._open_items()
        self._lists = [
            self._build(description | {"vectors": self._rows_of(description["vectors"])})
            for description in state["lists"]
        ]
        if len(self._lists) != self._n_targets() or {m.n_features for m in self._lists} != {self._width()}:
            raise ValueError("the lists do not fit the labels or the features")

    def _build(self, description: dict[str, Any], dtype: np.dtype[Any] | None = None) -> Expansion:
        dtype = self._dtype if dtype is None else dtype
        kind: Any = _native.KernelExpansion32 if dtype == np.float32 else _native.KernelExpansion64
        arrays = {
            "vectors": np.ascontiguousarray(description["vectors"], dtype=dtype),
            "coef": np.ascontiguousarray(description["coef"], dtype=np.float64),
            "times": np.ascontiguousarray(description["times"], dtype=np.uint64),
        }
        numbers = {name: description[name] for name in _NUMBERS}
        if not all(np.isfinite(values).all() for values in (*arrays.values(), *numbers.values())):
            raise ValueError("a list of support vectors holds values that are not finite")
        machine: Expansion = kind.from_state(self._spec(), **arrays, **numbers)
        return machine


def _describe(machine: Expansion) -> dict[str, Any]:
    arrays = {"vectors": machine.vectors, "coef": machine.coef, "times": machine.times}
    return arrays | {name: getattr(machine, name) for name in _NUMBERS}
