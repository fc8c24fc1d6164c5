"""Base classes of the online kernel learners.

Native models process only rows of numbers. With a sequence kernel, a row is one number: the index of the
sequence in an :class:`~steelyard.kernels.sequences.ItemTable`, which also stores kernel values.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from steelyard import _native
from steelyard._concurrency import synchronized
from steelyard._threads import num_threads
from steelyard._types import FloatArray
from steelyard.base import Batch
from steelyard.explanation.attribution import Attribution, explain_kernel_sum
from steelyard.explanation.neighbors import RememberedRows
from steelyard.kernels import Kernel, SequenceKernel
from steelyard.kernels.kernel import check_kernel_range
from steelyard.kernels.sequences import ItemTable, is_sequence_kernel, restored_items
from steelyard.online.base import OnlineLearner, Signs
from steelyard.params import AnyOf, Constraint, Finite, Former, Instance, Integer, OneOf, Positive

Expansion = _native.KernelExpansion64 | _native.KernelExpansion32
_SWEEP_SEQUENCES = 64  # number of sequences that are added to the table and learned together
_NUMBERS = ("bias", "margin", "deviation", "mistakes", "seen")


@dataclass(eq=False, repr=False, kw_only=True)
class KernelParameters:
    """Parameters of the learners with one kernel."""

    _constraints: ClassVar[dict[str, Constraint]] = {
        "kernel": AnyOf(
            OneOf("rbf", "linear", "polynomial", "poly", "laplacian", "sigmoid"),
            Instance(SequenceKernel, description="a sequence kernel"),
        ),
        "gamma": Former(
            AnyOf(Positive(), OneOf("scale", "median")),
            auto="gamma='auto' meant the median distance in this learner and 1 / n_features in others; "
            "write gamma='median' to keep the former behaviour",
        ),
        "degree": Integer(0),
        "coef0": Finite(),
    }

    kernel: str | SequenceKernel = "rbf"
    gamma: float | str = 1.0
    degree: int = 3
    coef0: float = 0.0

    def _make_kernels(self, X: Any) -> list[Kernel]:
        """Return the kernel. A value such as gamma="median" is computed from the rows of ``X``."""
        kernel = Kernel(self.kernel, gamma=self.gamma, degree=self.degree, coef0=self.coef0)
        return [kernel.resolve(X)]

    def _convert_former_gamma(self) -> None:
        """Convert gamma of a file, because earlier versions saved gamma="median" as "auto"."""
        if self.gamma == "auto":
            self.gamma = "median"


class KernelLearner(OnlineLearner):
    """Base class of kernel learners. Native models process the rows of ``X``, or indices of sequences."""

    _items: ItemTable | None  # table of sequences, or None if rows are numbers
    _kernels: list[Kernel]  # kernels in use, with numeric gamma

    @abstractmethod
    def _make_kernels(self, X: Any) -> list[Kernel]:
        """Return the kernels. If their gamma is not a number, it is computed from ``X``, the first rows."""

    @abstractmethod
    def _convert_rows(self, X: NDArray[Any]) -> Any:
        """Return ``X`` in the dtype of the models. Float32 models become float64 if ``X`` is float64."""

    @abstractmethod
    def _learn_rows(self, rows: Any, signs: Signs) -> None:
        """Learn rows with the models of all targets, by one native call."""

    @abstractmethod
    def _stored_rows(self) -> NDArray[Any]:
        """Return the support vectors as rows, in the format that the native learners store."""

    def _start_machines(self, X: Any) -> None:
        self._set_kernels(self._make_kernels(X))

    def _set_kernels(self, kernels: list[Kernel]) -> None:
        self._kernels = kernels
        self._items = ItemTable(kernels) if any(map(is_sequence_kernel, kernels)) else None

    def _specs(self) -> list[_native.KernelSpec]:
        if self._items is not None:
            return self._items.specs()
        return [kernel.spec() for kernel in self._kernels]

    def _width(self) -> int:
        """Return the number of columns of the rows that the native models process."""
        return self.n_features_in_ if self._items is None else 1

    def _to_samples(self, rows: NDArray[Any]) -> Any:
        """Convert rows in the format of the native models to samples in the format of the caller."""
        return rows if self._items is None else self._items.at(rows)

    def _to_rows(self, samples: Any) -> Any:
        """Convert samples from a file to rows in the format of the native models."""
        if self._items is None:
            return samples
        return self._items.add(restored_items(self._kernels[0].kernel, samples))

    def _learn(self, batch: Batch) -> None:
        check_kernel_range(self._kernels, batch.X, type(self).__name__)
        super()._learn(batch)

    def _sweep(self, X: Any, signs: Signs) -> None:
        if self._items is None:
            self._learn_rows(self._convert_rows(X), signs)
            return
        self._copy_machines()
        # The item table computes the kernel values of new sequences in blocks, by one native call per block.
        for begin in range(0, len(X), _SWEEP_SEQUENCES):
            block = slice(begin, begin + _SWEEP_SEQUENCES)
            self._learn_rows(self._items.add(X[block]), np.ascontiguousarray(signs[:, block]))
            self._items.retain(self._stored_rows())


class KernelExpansionLearner(KernelParameters, KernelLearner):
    """Base class of NORMA, RBP, Forgetron and Projectron: one kernel expansion per target.

    A subclass implements the update rule in ``_learn_rows``. A gamma of "median" or "scale" is
    computed from the first rows.
    """

    _constraints: ClassVar[dict[str, Constraint]] = KernelParameters._constraints
    _expansions: list[Any]  # native Expansion objects, one per target, all of the same dtype
    _dtype: np.dtype[Any]

    def _stored_rows(self) -> NDArray[Any]:
        return np.concatenate([expansion.vectors for expansion in self._expansions])

    def _start_machines(self, X: NDArray[Any]) -> None:
        super()._start_machines(X)
        self._expansions = []
        self._dtype = np.dtype(np.float64) if self._items is not None else X.dtype

    def _add_target(self) -> None:
        self._expansions.append(_expansion_type(self._dtype)(self._specs()[0], self._width()))

    def _copy_target(self) -> None:
        self._expansions += self._copied()[:1]

    def _copy_machines(self) -> None:
        if self._items is not None:
            self._items = self._items.copy()
        self._expansions = self._copied()

    def _copied(self, dtype: np.dtype[Any] | None = None) -> list[Any]:
        return [self._build(_describe(expansion), dtype) for expansion in self._expansions]

    def _convert_rows(self, X: NDArray[Any]) -> NDArray[Any]:
        if self._dtype == np.float32 and X.dtype == np.float64:
            self._dtype = X.dtype
            self._expansions = self._copied()
        return X.astype(self._dtype, copy=False)

    def _target_scores(self, X: NDArray[Any]) -> FloatArray:
        if self._items is not None:
            return np.array([self._sequence_scores(expansion, X) for expansion in self._expansions])
        expansions: list[Any] = list(self._expansions)
        if self._dtype == np.float32 and X.dtype == np.float64:
            expansions = self._copied(X.dtype)
        rows = X if self._dtype == np.float32 else X.astype(self._dtype, copy=False)
        return np.array([expansion.scores(rows, num_threads()) for expansion in expansions])

    def _sequence_scores(self, expansion: Expansion, items: Any) -> FloatArray:
        stored = self._vectors(expansion)
        if not stored:
            return np.full(len(items), expansion.bias)
        return self._kernels[0].block(items, stored) @ np.asarray(expansion.coef) + expansion.bias

    def _vectors(self, expansion: Expansion) -> Any:
        """Return the support vectors of an expansion in the format of the caller."""
        return self._to_samples(np.asarray(expansion.vectors))

    @property
    @synchronized
    def support_vectors_(self) -> Any:
        """Support vectors: an array for two classes, a list with one array per class for more classes.

        With a sequence kernel, each array is a list of sequences instead.
        """
        self._need("support_vectors_")
        vectors = [self._vectors(expansion) for expansion in self._expansions]
        return vectors[0] if len(vectors) == 1 else [vectors[i] for i in self._class_order()]

    @property
    @synchronized
    def dual_coef_(self) -> list[FloatArray] | FloatArray:
        """Weights of the support vectors, in the same form as ``support_vectors_``."""
        self._need("dual_coef_")
        if len(self._expansions) == 1:
            return self._by_class(np.asarray(self._expansions[0].coef)[None])[0]
        oriented = zip(self._expansions, self._orientation(), strict=True)
        weights = [np.asarray(expansion.coef) * sign for expansion, sign in oriented]
        return [weights[i] for i in self._class_order()]

    def _remembered_rows(self) -> RememberedRows:
        rows = np.asarray(self._stored_rows(), dtype=np.float64)
        if len(self._expansions) > 1 or len(self._labels) < 2:
            return RememberedRows(rows)
        labels = np.empty(len(rows), dtype=object)  # the class of a support vector is the sign of its weight
        labels[:] = [self._labels[int(weight <= 0.0)] for weight in self._expansions[0].coef]
        return RememberedRows(rows, labels)

    def _attribution(self, X: FloatArray, background: FloatArray | None) -> Attribution:
        parts = [
            explain_kernel_sum(
                X,
                self._kernels[0],
                np.asarray(e.vectors),
                np.asarray(e.coef)[None],
                np.array([e.bias]),
                background=background,
            )
            for e in self._expansions
        ]
        contributions = self._by_class(np.stack([part.contributions[:, :, 0] for part in parts]))
        base = self._by_class(np.concatenate([part.base for part in parts]) - self._target_thresholds())
        return Attribution(np.ascontiguousarray(contributions.transpose(1, 2, 0)), base)

    def _machines_state(self) -> dict[str, Any]:
        return {
            "kernel": self._kernels[0].to_tree(),
            "dtype": self._dtype.name,
            "lists": [_describe(e) | {"vectors": self._vectors(e)} for e in self._expansions],
        }

    def _set_machines_state(self, state: dict[str, Any]) -> None:
        if state["dtype"] not in {"float32", "float64"}:
            raise ValueError("support vectors must be float32 or float64")
        self._convert_former_gamma()
        self._set_kernels([Kernel.from_tree(state["kernel"])])
        self._dtype = np.dtype(state["dtype"])
        self._expansions = [
            self._build(description | {"vectors": self._to_rows(description["vectors"])})
            for description in state["lists"]
        ]
        widths = {expansion.n_features for expansion in self._expansions}
        if len(self._expansions) != self._n_targets() or widths != {self._width()}:
            raise ValueError("the kernel expansions do not match the labels or the features")

    def _build(self, description: dict[str, Any], dtype: np.dtype[Any] | None = None) -> Expansion:
        dtype = self._dtype if dtype is None else dtype
        arrays = {
            "vectors": np.ascontiguousarray(description["vectors"], dtype=dtype),
            "coef": np.ascontiguousarray(description["coef"], dtype=np.float64),
            "times": np.ascontiguousarray(description["times"], dtype=np.uint64),
        }
        numbers = {name: description[name] for name in _NUMBERS}
        if not all(np.isfinite(values).all() for values in (*arrays.values(), *numbers.values())):
            raise ValueError("a kernel expansion contains values that are not finite")
        expansion: Expansion = _expansion_type(dtype).from_state(self._specs()[0], **arrays, **numbers)
        return expansion


def _expansion_type(dtype: np.dtype[Any]) -> Any:
    return _native.KernelExpansion32 if dtype == np.float32 else _native.KernelExpansion64


def _describe(expansion: Expansion) -> dict[str, Any]:
    arrays = {"vectors": expansion.vectors, "coef": expansion.coef, "times": expansion.times}
    return arrays | {name: getattr(expansion, name) for name in _NUMBERS}
