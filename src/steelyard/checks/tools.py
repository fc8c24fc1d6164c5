"""What the checks of the contract are made of: rows to learn, and how answers are compared."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from steelyard import persistence
from steelyard._types import FloatArray
from steelyard.base import BatchLearner, Learner
from steelyard.exceptions import SteelyardError

__all__ = [
    "NotApplicable",
    "Stream",
    "example_stream",
    "fed",
    "learn_more",
    "need",
    "pickled",
    "raises_and_keeps",
    "same_answers",
    "saved",
    "teach",
    "written",
]


class NotApplicable(Exception):  # noqa: N818 - not an error: it carries the reason why a check says nothing
    """Raised by a check that does not apply to a learner."""


@dataclass(frozen=True)
class Stream:
    X: FloatArray
    y: NDArray[Any]

    def rows(self, begin: int, end: int | None = None) -> tuple[FloatArray, NDArray[Any]]:
        return self.X[begin:end], self.y[begin:end]


def example_stream(seed: int = 0, n_rows: int = 240, n_classes: int = 2, rare: float = 0.15) -> Stream:
    """Overlapping classes, the later ones rare, the first two present from the start."""
    rng = np.random.default_rng(seed)
    shares = np.array([1.0, *([rare] * (n_classes - 1))])
    y = rng.choice(n_classes, size=n_rows, p=shares / shares.sum())
    y[: 2 * n_classes] = np.arange(2 * n_classes) % n_classes
    centers = rng.normal(size=(n_classes, 4))
    return Stream(rng.normal(size=(n_rows, 4)) + 1.5 * centers[y], y)


def fed(learner: BatchLearner, stream: Stream, cuts: list[int]) -> BatchLearner:
    model = clone(learner)
    for begin, end in zip([0, *cuts], [*cuts, len(stream.y)], strict=True):
        if begin < end:
            model.partial_fit(*stream.rows(begin, end))
    return model


def same_answers(a: BatchLearner, b: BatchLearner, X: FloatArray, *, exact: bool, what: str) -> None:
    """Decision functions agree: bit for bit, or up to rounding for exact learners."""
    left, right = np.asarray(a.decision_function(X)), np.asarray(b.decision_function(X))
    assert left.shape == right.shape, (
        f"{what}: the decision functions have shapes {left.shape} and {right.shape}"
    )
    if exact:
        scale = float(np.abs(right).max(initial=1e-300))
        difference = float(np.abs(left - right).max(initial=0.0)) / scale
        assert difference < 1e-6, f"{what}: decision functions differ by {difference:.1e} of their size"
    else:
        assert np.array_equal(left, right), f"{what}: decision functions are not identical"


def learn_more(model: BatchLearner, X: Any, y: Any) -> None:
    if isinstance(model, Learner):
        model.partial_fit(X, y)


def teach(model: BatchLearner, X: Any, y: Any) -> None:
    """Learn these rows too, or instead where the learner does not stream."""
    (model.partial_fit if hasattr(model, "partial_fit") else model.fit)(X, y)


def pickled(model: BatchLearner) -> BatchLearner:
    try:
        twin: BatchLearner = pickle.loads(pickle.dumps(model))  # noqa: S301 - of our own making
    except pickle.PicklingError:  # a class that was made in a notebook or a test, and has no module
        return saved(model)
    return twin


def saved(model: BatchLearner) -> BatchLearner:
    twin: BatchLearner = persistence.from_bytes(written(model))
    return twin


def written(model: BatchLearner) -> bytes:
    return persistence.to_bytes(model)


def need(condition: bool, reason: str) -> None:
    if not condition:
        raise NotApplicable(reason)


def raises_and_keeps(model: BatchLearner, call: Callable[[], object], what: str) -> None:
    before = written(model)
    try:
        call()
    except (SteelyardError, ValueError, TypeError) as error:
        assert len(str(error)) > 15, f"{what}: the error says too little: {error!r}"
    else:
        raise AssertionError(f"{what}: no error was raised")
    assert written(model) == before, f"{what}: the learner was changed by a call that raised"
