"""Helpers of the contract checks: example rows, and comparison of learners."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from steelyard._types import FloatArray
from steelyard.base import BatchLearner, Learner
from steelyard.exceptions import SteelyardError
from steelyard.persistence import from_bytes, to_bytes


class NotApplicable(Exception):  # noqa: N818 - not an error: it gives the reason for skipping
    """Raised by a check that does not apply to a learner."""


@dataclass(frozen=True)
class Stream:
    """Rows and labels."""

    X: FloatArray
    y: NDArray[Any]

    def rows(self, begin: int, end: int | None = None) -> tuple[FloatArray, NDArray[Any]]:
        return self.X[begin:end], self.y[begin:end]


def example_stream(seed: int = 0, n_rows: int = 240, n_classes: int = 2, rare: float = 0.15) -> Stream:
    """Return rows of overlapping classes.

    All classes except 0 are rare; the first rows contain every class.
    """
    rng = np.random.default_rng(seed)
    shares = np.array([1.0, *([rare] * (n_classes - 1))])
    y = rng.choice(n_classes, size=n_rows, p=shares / shares.sum())
    y[: 2 * n_classes] = np.arange(2 * n_classes) % n_classes
    centers = rng.normal(size=(n_classes, 4))
    return Stream(rng.normal(size=(n_rows, 4)) + 1.5 * centers[y], y)


def fitted_in_chunks(learner: BatchLearner, stream: Stream, cuts: list[int]) -> BatchLearner:
    """Return a clone that has learned a stream in chunks that end at the rows ``cuts``."""
    model = clone(learner)
    for begin, end in zip([0, *cuts], [*cuts, len(stream.y)], strict=True):
        if begin < end:
            model.partial_fit(*stream.rows(begin, end))
    return model


def assert_same_scores(
    a: BatchLearner, b: BatchLearner, X: FloatArray, what: str, *, rounding: bool = True
) -> None:
    """Assert that two decision functions are identical or, with ``rounding``, differ by less than 1e-6.

    The difference is relative to the largest score.
    """
    left, right = np.asarray(a.decision_function(X)), np.asarray(b.decision_function(X))
    assert left.shape == right.shape, (
        f"{what}: the decision functions have shapes {left.shape} and {right.shape}"
    )
    if rounding:
        scale = float(np.abs(right).max(initial=1e-300))
        difference = float(np.abs(left - right).max(initial=0.0)) / scale
        assert difference < 1e-6, f"{what}: decision functions differ by {difference:.1e} of their size"
    else:
        assert np.array_equal(left, right), f"{what}: decision functions are not identical"


def partial_fit_if_possible(model: BatchLearner, X: Any, y: Any) -> None:
    """Learn more rows if the learner has partial_fit()."""
    if isinstance(model, Learner):
        model.partial_fit(X, y)


def learn(model: BatchLearner, X: Any, y: Any) -> None:
    """Learn rows by partial_fit() if the learner has it, else by fit()."""
    (model.partial_fit if hasattr(model, "partial_fit") else model.fit)(X, y)


def pickle_copy(model: BatchLearner) -> BatchLearner:
    try:
        copied: BatchLearner = pickle.loads(pickle.dumps(model))  # noqa: S301 - the pickle was created here
    except pickle.PicklingError:  # classes defined in a function cannot be pickled
        return saved_copy(model)
    return copied


def saved_copy(model: BatchLearner) -> BatchLearner:
    copied: BatchLearner = from_bytes(to_bytes(model))
    return copied


def require(condition: bool, reason: str) -> None:
    if not condition:
        raise NotApplicable(reason)


def require_stream(learner: BatchLearner) -> None:
    require(isinstance(learner, Learner), "this learner does not stream")


def may_round_differently(learner: BatchLearner) -> bool:
    """Return whether the results may differ by rounding errors if rows are split into other chunks."""
    return learner._traits.exact or learner._traits.rounding


def assert_raises_and_keeps_state(model: BatchLearner, call: Callable[[], object], what: str) -> None:
    """Assert that a call raises an error with a message and leaves the model bitwise unchanged."""
    before = to_bytes(model)
    try:
        call()
    except (SteelyardError, ValueError, TypeError) as error:
        assert len(str(error)) > 15, f"{what}: the error message is too short: {error!r}"
    else:
        raise AssertionError(f"{what}: no error was raised")
    assert to_bytes(model) == before, f"{what}: the learner was changed by a call that raised"
