"""Base classes of the online learners: multiclass streams on top of binary models, and kernel learners.

One or two classes need one binary model, whose decision function is positive for the label that appeared
first. When a third label appears, every class gets its own one-vs-rest model. The model of the second class
starts as a copy of the first model with flipped sign, because with two classes "second against rest" is
"first against rest" with the sign reversed. Later classes start with their first row. The learned state
therefore depends only on the rows and their order.

A *target* is one of these binary problems. Names that contain "machine" refer to the binary models.

Native models process only rows of numbers. With a sequence kernel, a row is one number: the slot of the
sequence in a :class:`~steelyard.kernels.sequences.SequenceStore`, which also has the kernel values.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from steelyard import _native
from steelyard._concurrency import lock_of, synchronized
from steelyard._labels import restored_labels
from steelyard._memory import check_fits_memory
from steelyard._types import FloatArray
from steelyard._validation import validate_rows
from steelyard.base import Batch, Label, Learner, fitted_property, sorted_classes
from steelyard.exceptions import DataError
from steelyard.kernels import Kernel, SequenceKernel
from steelyard.kernels.kernel import check_kernel_range
from steelyard.kernels.sequences import SequenceStore, is_sequence_kernel, restored_items
from steelyard.params import (
    AnyOf,
    Finite,
    Former,
    Instance,
    Integer,
    OneOf,
    Positive,
    parameter,
    parametrized,
)

Signs = NDArray[np.int8]

_SWEEP_SEQUENCES = 64  # number of sequences that are added to the table and learned together


class OnlineLearner(Learner):
    """Base class of learners that process rows one by one, in order.

    A subclass implements the abstract methods below. If one native call learns the whole batch, it changes
    the binary models in place. If several calls are needed, they change copies, which then replace the
    models, so a failing call changes nothing. Predictions acquire the lock of the learner, because they read
    the models.
    """

    _labels: list[Label]  # labels in order of first appearance
    random_state: Any  # parameter of some learners, which also have a seed
    _seed: int  # seed of the random numbers

    @abstractmethod
    def _add_target(self) -> None:
        """Append an untrained binary model for a new target."""

    @abstractmethod
    def _copy_target(self) -> None:
        """Append a copy of the first binary model."""

    @abstractmethod
    def _copy_machines(self) -> None:
        """Replace all binary models by copies."""

    @abstractmethod
    def _sweep(self, X: NDArray[Any], signs: Signs) -> None:
        """Learn rows by one native call, which cannot fail. ``signs[target, i]`` is +1 or -1 for row i."""

    @abstractmethod
    def _target_scores(self, X: NDArray[Any]) -> FloatArray:
        """Return decision values of shape (n_targets, n_rows)."""

    @abstractmethod
    def _machines_state(self) -> dict[str, Any]:
        """Return the learned state of the binary models as arrays and plain values."""

    @abstractmethod
    def _set_machines_state(self, state: dict[str, Any]) -> None:
        """Restore the binary models from the result of ``_machines_state``."""

    def _target_thresholds(self) -> FloatArray:
        """Return the decision threshold of each target."""
        return np.zeros(self._n_targets())

    def _start(self, batch: Batch) -> None:  # noqa: ARG002 - subclasses use the batch
        self._labels = []
        if "random_state" in self._constraints:
            self._seed = _draw_seed(self.random_state)

    def _learn(self, batch: Batch) -> None:
        X, codes = self._weighted_rows(batch)
        segments = list(self._segments(batch.labels, codes))
        if len(segments) > 1 or any(new_label is not None for *_, new_label in segments):
            # Several native calls follow. They change copies, so that a failing call changes nothing.
            self._copy_machines()
        for begin, end, new_label in segments:
            if new_label is not None:
                self._add_label(new_label)
            position = {label: index for index, label in enumerate(self._labels)}
            # Labels that first occur in a later segment get the index -1. This segment has no rows of them.
            targets = np.array([position.get(label, -1) for label in batch.labels])
            is_own = targets == np.arange(self._n_targets())[:, None]
            signs = np.where(is_own, np.int8(1), np.int8(-1)) * self._orientation()[:, None]
            self._sweep(X[begin:end], signs.take(codes[begin:end], axis=1))

    def _weighted_rows(self, batch: Batch) -> tuple[Any, NDArray[np.int32]]:
        """Replace each row of integer weight k by k copies."""
        if batch.weights is None:
            return batch.X, batch.codes
        width = np.diff(batch.X.indptr).max(initial=1) if sp.issparse(batch.X) else self.n_features_in_
        check_fits_memory(
            8 * int(width) * int(batch.weights.sum()),
            f"{type(self).__name__}: rows repeated by their sample_weight",
            "scale the weights down, or use C to change the size of the steps",
        )
        times = batch.weights.astype(np.int64)
        if not np.array_equal(times, batch.weights):
            raise DataError(
                "sample_weight must contain integers, because a row of weight k is learned k times; "
                "nothing was changed.",
                source=type(self).__name__,
                hint="use C to change the size of the steps",
            )
        codes = np.repeat(batch.codes, times)
        if isinstance(batch.X, list):
            return [item for item, n in zip(batch.X, times, strict=True) for _ in range(n)], codes
        return batch.X[np.repeat(np.arange(len(times)), times)], codes

    def _segments(
        self, labels: list[Label], codes: NDArray[np.int32]
    ) -> Iterator[tuple[int, int, Label | None]]:
        """Split the rows before the first row of each new label. Yield (begin, end, new label or None)."""
        unknown = [code for code, label in enumerate(labels) if label not in self._labels]
        # A label is ignored while all its rows have weight 0.
        starts = sorted((int(np.argmax(codes == code)), code) for code in unknown if (codes == code).any())
        ends = [start for start, _ in starts] + [len(codes)]
        if ends[0]:
            yield 0, ends[0], None
        for (start, code), end in zip(starts, ends[1:], strict=True):
            yield start, end, labels[code]

    def _add_label(self, label: Label) -> None:
        self._labels = [*self._labels, label]
        if len(self._labels) == 2:
            return  # the second class is the negative class of the first target, so it needs no target
        if len(self._labels) == 3:
            self._copy_target()
        self._add_target()

    def _n_targets(self) -> int:
        return 1 if len(self._labels) <= 2 else len(self._labels)

    def _orientation(self) -> NDArray[np.int8]:
        """Return the sign of each target: +1 if its positive class is its own label, -1 if it is flipped."""
        orientation = np.ones(self._n_targets(), dtype=np.int8)
        orientation[1:2] = -1  # this target is created as a copy of the first one
        return orientation

    # -- prediction -------------------------------------------------------------------------------------

    @fitted_property
    @synchronized
    def classes_(self) -> NDArray[Any]:
        """Labels of all classes seen so far, sorted."""
        return sorted_classes(self._labels)

    def _class_order(self) -> list[int]:
        """Return the target index of each class in sorted order."""
        return [self._labels.index(label) for label in sorted(self._labels)]

    def _by_class(self, values: FloatArray) -> FloatArray:
        """Convert values per target (first axis) to values per sorted class, or one for the second of two."""
        towards_label = values * self._orientation().reshape(-1, *[1] * (values.ndim - 1))
        if len(self._labels) <= 2:
            return towards_label if self._labels[0] == max(self._labels) else -towards_label
        return towards_label[self._class_order()]

    # Reads acquire the lock, because native calls change the binary models in place.
    decision_function = synchronized(Learner.decision_function)
    predict = synchronized(Learner.predict)
    explain = synchronized(Learner.explain)

    def _scored(self, X: Any, method: str) -> tuple[FloatArray, NDArray[Any]]:
        rows = validate_rows(self, X, method)
        scores = self._by_class(self._target_scores(rows) - self._target_thresholds()[:, None])
        return scores.T, sorted_classes(self._labels)

    def _get_state(self) -> dict[str, Any]:
        if not self._is_started():
            return {}
        seed = {"seed": self._seed} if "random_state" in self._constraints else {}
        return {**self._features(), "labels": list(self._labels), "machines": self._machines_state() | seed}

    def _set_state(self, state: dict[str, Any]) -> None:
        if not state:
            return
        self._set_features(state)
        self._labels = restored_labels(state["labels"])
        if not self._labels or len(set(self._labels)) != len(self._labels):
            raise ValueError("the list of labels is empty or contains a label twice")
        if "random_state" in self._constraints:
            self._seed = int(state["machines"]["seed"])
            if not 0 <= self._seed < 2**64:
                raise ValueError("the random seed is not an unsigned 64-bit integer")
        self._set_machines_state(state["machines"])

    def __getstate__(self) -> dict[str, Any]:
        """Return parameters and learned state without native objects, for copy and pickle."""
        with lock_of(self):
            return {"parameters": self.get_params(deep=False), "state": self._get_state()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state["parameters"])
        self._set_state(state["state"])


def _draw_seed(random_state: Any) -> int:
    """Return a seed for the native counter-based random number generator."""
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(2**63))
    if random_state is None:
        return int(np.random.default_rng().integers(2**63))
    return int(check_random_state(random_state).randint(2**63, dtype=np.int64))


@parametrized(kw_only=True)
class KernelParameters:
    """Parameters of the learners with one kernel."""

    kernel: str | SequenceKernel = parameter(
        "rbf",
        AnyOf(
            OneOf("rbf", "linear", "polynomial", "poly", "laplacian", "sigmoid"),
            Instance(SequenceKernel, description="a sequence kernel"),
        ),
    )
    gamma: float | str = parameter(
        1.0,
        Former(
            AnyOf(Positive(), OneOf("scale", "median")),
            auto="gamma='auto' meant the median distance in this learner and 1 / n_features in others; "
            "write gamma='median' to keep the former behaviour",
        ),
    )
    degree: int = parameter(3, Integer(0))
    coef0: float = parameter(0.0, Finite())

    def _make_kernels(self, X: Any) -> list[Kernel]:
        """Return the kernel. A value such as gamma="median" is computed from the rows of ``X``."""
        kernel = Kernel(self.kernel, gamma=self.gamma, degree=self.degree, coef0=self.coef0)
        return [kernel.resolve(X)]


class KernelLearner(OnlineLearner):
    """Base class of kernel learners. Native models process the rows of ``X``, or indices of sequences."""

    _store: SequenceStore | None  # store of sequences, or None if rows are numbers
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

    def _start(self, batch: Batch) -> None:
        super()._start(batch)
        self._set_kernels(self._make_kernels(batch.X))

    def _set_kernels(self, kernels: list[Kernel]) -> None:
        self._kernels = kernels
        self._store = SequenceStore(kernels) if any(map(is_sequence_kernel, kernels)) else None

    def _restore_kernels(self, trees: list[Any], dtype: str) -> None:
        """Restore the kernels of a file, and check the dtype of its support vectors."""
        if dtype not in {"float32", "float64"}:
            raise ValueError("support vectors must be float32 or float64")
        if self.__dict__.get("gamma") == "auto":
            self.__dict__["gamma"] = "median"  # earlier versions saved gamma="median" as "auto"
        self._set_kernels([Kernel.from_tree(tree) for tree in trees])

    def _specs(self) -> list[_native.KernelSpec]:
        return [kernel.spec() for kernel in self._kernels] if self._store is None else self._store.specs()

    def _width(self) -> int:
        """Return the number of columns of the rows that the native models process."""
        return self.n_features_in_ if self._store is None else 1

    def _to_samples(self, rows: NDArray[Any]) -> Any:
        """Convert rows in the format of the native models to samples in the format of the caller."""
        return rows if self._store is None else self._store.at(rows)

    def _to_rows(self, samples: Any) -> Any:
        """Convert samples from a file to rows in the format of the native models."""
        if self._store is None:
            return samples
        return self._store.add(restored_items(self._kernels[0].kernel, samples))

    def _learn(self, batch: Batch) -> None:
        check_kernel_range(self._kernels, batch.X, type(self).__name__)
        super()._learn(batch)

    def _sweep(self, X: Any, signs: Signs) -> None:
        if self._store is None:
            self._learn_rows(self._convert_rows(X), signs)
            return
        self._copy_machines()
        # The store computes the kernel values of new sequences in blocks, by one native call per block.
        for begin in range(0, len(X), _SWEEP_SEQUENCES):
            block = slice(begin, begin + _SWEEP_SEQUENCES)
            self._learn_rows(self._store.add(X[block]), np.ascontiguousarray(signs[:, block]))
            self._store.retain(self._stored_rows())
