"""Base class of the online learners: multiclass streams on top of binary models.

One or two classes need one binary model, whose decision function is positive for the label that appeared
first. When a third label appears, every class gets its own one-vs-rest model. The model of the second class
starts as a copy of the first model with flipped sign, because with two classes "second against rest" is
"first against rest" with the sign reversed. Later classes start with their first row. The learned state
therefore depends only on the rows and their order.

A *target* is one of these binary problems. Names that contain "machine" refer to the binary models.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from steelyard._concurrency import lock_of, synchronized
from steelyard._labels import restored_labels
from steelyard._memory import check_fits_memory
from steelyard._types import FloatArray
from steelyard._validation import validate_rows
from steelyard.base import Batch, Label, Learner, sorted_classes
from steelyard.exceptions import DataError

Signs = NDArray[np.int8]

_FLIPPED_TARGET = 1  # index of the target that is created as a copy of target 0; its sign is flipped


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

    # -- abstract methods of subclasses ------------------------------------------------------------------

    @abstractmethod
    def _start_machines(self, X: NDArray[Any]) -> None:
        """Create a state without targets for rows with the number of columns and the dtype of ``X``."""

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

    # -- learning ---------------------------------------------------------------------------------------

    def _start(self, batch: Batch) -> None:
        self._labels = []
        if "random_state" in self._constraints:
            self._seed = draw_seed(self.random_state)
        self._start_machines(batch.X)

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
            signs = self._signs(np.array([position.get(label, -1) for label in batch.labels]))
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
        present = np.bincount(codes, minlength=len(labels)) if unknown else codes
        new = [code for code in unknown if present[code]]
        starts = sorted((int(np.argmax(codes == code)), code) for code in new)
        ends = [start for start, _ in starts[1:]] + [len(codes)]
        known_until = starts[0][0] if starts else len(codes)
        if known_until:
            yield 0, known_until, None
        for (start, code), end in zip(starts, ends, strict=False):
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
        orientation[_FLIPPED_TARGET : _FLIPPED_TARGET + 1] = -1
        return orientation

    def _signs(self, targets: NDArray[np.int64]) -> Signs:
        own = targets == np.arange(self._n_targets())[:, None]
        signs: Signs = np.where(own, np.int8(1), np.int8(-1)) * self._orientation()[:, None]
        return signs

    # -- prediction -------------------------------------------------------------------------------------

    @property
    @synchronized
    def classes_(self) -> NDArray[Any]:
        """Labels of all classes seen so far, sorted."""
        self._need("classes_")
        return sorted_classes(self._labels)

    def _class_order(self) -> list[int]:
        """Return the target index of each class in sorted order."""
        return [self._labels.index(label) for label in sorted(self._labels)]

    def _by_class(self, values: FloatArray) -> FloatArray:
        """Convert values per target (first axis) to values per class in sorted order.

        For one or two classes there is one value. It is positive for the second class.
        """
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

    # -- persistence ------------------------------------------------------------------------------------

    def _get_state(self) -> dict[str, Any]:
        if not self._is_started():
            return {}
        machines = self._machines_state()
        if "random_state" in self._constraints:
            machines["seed"] = self._seed
        return {**self._features(), "labels": list(self._labels), "machines": machines}

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


def draw_seed(random_state: Any) -> int:
    """Return a seed for the native counter-based random number generator."""
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(2**63))
    if random_state is None:
        return int(np.random.default_rng().integers(2**63))
    return int(check_random_state(random_state).randint(2**63, dtype=np.int64))
