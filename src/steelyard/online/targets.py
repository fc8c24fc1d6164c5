"""What all online learners share: a stream of labels told to two-class machines.

Two classes need one machine, whose decision function is positive for the label that came first. With a third
label every class gets a machine of its own against the rest: the second class takes over a mirrored copy of
the first machine, since for two classes the one against the rest is the other way round, and every later
class starts with its first row. So the model is a matter of the rows and their order alone.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from steelyard._concurrency import lock_of, synchronized
from steelyard._labels import restored_labels
from steelyard._memory import check_fits_memory
from steelyard._types import FloatArray
from steelyard._validation import validate_rows
from steelyard.base import Batch, Label, Learner, sorted_classes
from steelyard.exceptions import DataError

__all__ = ["OnlineLearner", "draw_seed", "stored_seed"]

Signs = NDArray[np.int8]

_MIRRORED = 1  # the target that began as the copy of target 0


class OnlineLearner(Learner):
    """Base of the learners that take rows one by one, in their order.

    A subclass keeps machines and gives ``_start_machines``, ``_add_target``, ``_copy_target``, ``_sweep``,
    ``_separate_machines``, ``_target_scores``, and where it has them ``_target_cuts``. Machines are changed
    in place, by one native call, where that is all there is to do; otherwise copies of them are, which then
    take their place. Questions wait for their turn, as there is no other answer than that of the machines.
    """

    _labels: list[Label]  # in the order in which they first came

    # -- what a subclass gives --------------------------------------------------------------------------

    @abstractmethod
    def _start_machines(self, X: NDArray[Any]) -> None:
        """Begin without any target, for rows like these."""

    @abstractmethod
    def _add_target(self) -> None:
        """Add a machine that has seen nothing."""

    @abstractmethod
    def _copy_target(self) -> None:
        """Add a copy of the first machine."""

    @abstractmethod
    def _separate_machines(self) -> None:
        """Go on with copies of the machines."""

    @abstractmethod
    def _sweep(self, X: NDArray[Any], signs: Signs) -> None:
        """Learn rows in one native call that cannot fail; ``signs[target, i]`` is +1 or -1."""

    @abstractmethod
    def _target_scores(self, X: NDArray[Any]) -> FloatArray:
        """Decision functions, one row a target."""

    def _target_cuts(self) -> FloatArray:
        """Where each target's decision function is cut."""
        return np.zeros(self._n_targets())

    # -- learning ---------------------------------------------------------------------------------------

    def _start(self, batch: Batch) -> None:
        self._labels = []
        self._start_machines(batch.X)

    def _learn(self, batch: Batch) -> None:
        X, codes = self._weighted_rows(batch)
        segments = list(self._segments(batch.labels, codes))
        if len(segments) > 1 or any(new_label is not None for *_, new_label in segments):
            self._separate_machines()  # all of it takes more than one step
        for begin, end, new_label in segments:
            if new_label is not None:
                self._enter(new_label)
            position = {label: index for index, label in enumerate(self._labels)}
            # A label that comes only later has no position yet, and no row in this segment.
            signs = self._signs(np.array([position.get(label, -1) for label in batch.labels]))
            self._sweep(X[begin:end], signs.take(codes[begin:end], axis=1))

    def _weighted_rows(self, batch: Batch) -> tuple[Any, NDArray[np.int32]]:
        """A row of weight k is a row that comes k times."""
        if batch.weights is None:
            return batch.X, batch.codes
        check_fits_memory(
            8 * self.n_features_in_ * int(batch.weights.sum()),
            f"{type(self).__name__}: rows repeated as often as sample_weight says",
            "scale the weights down, or set C for the size of a step",
        )
        times = batch.weights.astype(np.int64)
        if not np.array_equal(times, batch.weights):
            raise DataError(
                "sample_weight must be whole numbers, as rows are learned one by one "
                "and a row of weight k is learned k times; nothing was changed.",
                source=type(self).__name__,
                hint="set C for the size of a step",
            )
        codes = np.repeat(batch.codes, times)
        if isinstance(batch.X, list):
            return [item for item, n in zip(batch.X, times, strict=True) for _ in range(n)], codes
        return np.repeat(batch.X, times, axis=0), codes

    def _segments(
        self, labels: list[Label], codes: NDArray[np.int32]
    ) -> Iterator[tuple[int, int, Label | None]]:
        """Cut rows where a label comes for the first time."""
        unknown = [code for code, label in enumerate(labels) if label not in self._labels]
        present = np.bincount(codes, minlength=len(labels)) if unknown else codes  # not of weight 0
        new = [code for code in unknown if present[code]]
        starts = sorted((int(np.argmax(codes == code)), code) for code in new)
        ends = [start for start, _ in starts[1:]] + [len(codes)]
        known_until = starts[0][0] if starts else len(codes)
        if known_until:
            yield 0, known_until, None
        for (start, code), end in zip(starts, ends, strict=False):
            yield start, end, labels[code]

    def _enter(self, label: Label) -> None:
        self._labels = [*self._labels, label]
        if len(self._labels) == 2:
            return  # the other side of the first machine
        if len(self._labels) == 3:
            self._copy_target()
        self._add_target()

    def _n_targets(self) -> int:
        return 1 if len(self._labels) <= 2 else len(self._labels)

    def _orientation(self) -> NDArray[np.int8]:
        """+1 where a machine is positive for its own label, -1 for the mirrored one."""
        orientation = np.ones(self._n_targets(), dtype=np.int8)
        orientation[_MIRRORED:2] = -1
        return orientation

    def _signs(self, targets: NDArray[np.int64]) -> Signs:
        own = targets == np.arange(self._n_targets())[:, None]
        signs: Signs = np.where(own, np.int8(1), np.int8(-1)) * self._orientation()[:, None]
        return signs

    # -- answering --------------------------------------------------------------------------------------

    @property
    @synchronized
    def classes_(self) -> NDArray[Any]:
        """Labels seen, sorted."""
        self._need("classes_")
        return sorted_classes(self._labels)

    def _by_class(self, values: FloatArray) -> FloatArray:
        """Turn values of the targets (along the first axis) into values of the sorted classes.

        For one or two classes there is one value, positive for the second class.
        """
        towards_label = values * self._orientation().reshape(-1, *[1] * (values.ndim - 1))
        classes = sorted(self._labels)
        if len(classes) <= 2:
            return towards_label if self._labels[0] == classes[-1] else -towards_label
        return towards_label[[self._labels.index(label) for label in classes]]

    # The machines are changed in place and keep no answer.
    decision_function = synchronized(Learner.decision_function)
    predict = synchronized(Learner.predict)

    def _scored(self, X: Any, method: str) -> tuple[FloatArray, NDArray[Any]]:
        rows = validate_rows(self, X, method)
        scores = self._by_class(self._target_scores(rows) - self._target_cuts()[:, None])
        return scores.T, sorted_classes(self._labels)

    # -- saving -----------------------------------------------------------------------------------------

    @abstractmethod
    def _machines_state(self) -> dict[str, Any]:
        """All that the machines have learned, as arrays and plain values."""

    @abstractmethod
    def _set_machines_state(self, state: dict[str, Any]) -> None:
        """Make the machines that ``_machines_state`` described."""

    def _get_state(self) -> dict[str, Any]:
        if not self._is_started():
            return {}
        return {
            **self._features(),
            "labels": list(self._labels),
            "machines": self._machines_state(),
        }

    def _set_state(self, state: dict[str, Any]) -> None:
        if not state:
            return
        self._set_features(state)
        self._labels = restored_labels(state["labels"])
        if not self._labels or len(set(self._labels)) != len(self._labels):
            raise ValueError("the labels are empty or repeat")
        self._set_machines_state(state["machines"])

    def __getstate__(self) -> dict[str, Any]:
        """For copying and pickling: parameters and what was learned, without native objects."""
        with lock_of(self):
            return {"parameters": self.get_params(deep=False), "state": self._get_state()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state["parameters"])
        self._set_state(state["state"])


def stored_seed(value: Any) -> int:
    """A seed from a file, which could be anything."""
    if not 0 <= int(value) < 2**64:
        raise ValueError("the seed is not a number of 64 bits")
    return int(value)


def draw_seed(random_state: Any) -> int:
    """A seed for the native draws, which go by step number."""
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(2**63))
    if random_state is None:
        return int(np.random.default_rng().integers(2**63))
    return int(check_random_state(random_state).randint(2**63, dtype=np.int64))
