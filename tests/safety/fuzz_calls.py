"""Fuzzing of method calls with unusual arguments."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp

from steelyard.exceptions import SteelyardError
from steelyard.persistence import from_bytes, to_bytes
from tests.safety.subjects import SUBJECTS, Subject

_CALLED = [subject for subject in SUBJECTS if not isinstance(subject.X, list)]


def trial(rng: np.random.Generator) -> bool:
    """Assert that a call raises and changes nothing, or leaves a usable learner."""
    subject = _CALLED[rng.integers(len(_CALLED))]
    model = subject.fitted_copy()
    X, y = _odd_rows(subject, rng)
    name = ("fit", "partial_fit", "forget", "predict", "decision_function", "predict_proba")[rng.integers(6)]
    model.decision_function(subject.questions)  # ProximalSVC(C="auto") selects C at the first prediction
    before = to_bytes(model)
    method = getattr(model, name, None)
    if method is None:
        return False
    arguments = (X, y) if name in {"fit", "partial_fit", "forget"} else (X,)
    kept = copy.deepcopy(arguments)
    try:
        method(*arguments)
    except (SteelyardError, ValueError, TypeError) as error:
        assert isinstance(error, SteelyardError), f"{subject.name}.{name}: {type(error).__name__}: {error}"
        assert to_bytes(model) == before, f"{subject.name}.{name}: a call that raised changed the learner"
        return False
    assert _alike(arguments, kept), f"{subject.name}.{name}: the call changed its arguments"
    with contextlib.suppress(SteelyardError):
        answers = np.asarray(model.decision_function(subject.questions))
        assert np.isfinite(answers).all(), f"{subject.name}.{name}: the scores are not finite"
    from_bytes(to_bytes(model))
    return True


def _alike(left: Any, right: Any) -> bool:
    return repr(left) == repr(right)


def _odd_rows(subject: Subject, rng: np.random.Generator) -> tuple[Any, Any]:
    begin = int(rng.integers(0, 40))
    n = int(rng.integers(0, 9))
    X, y = subject.X[begin : begin + n].copy(), np.minimum(subject.y[begin : begin + n], 1)
    X = _ODD_X[rng.integers(len(_ODD_X))](X, rng)
    y = _ODD_Y[rng.integers(len(_ODD_Y))](y, rng)
    return X, y


def _with_value(value: float) -> Callable[[Any, Any], Any]:
    def change(X: Any, rng: np.random.Generator) -> Any:
        if X.size:
            X[rng.integers(len(X)), rng.integers(X.shape[1])] = value
        return X

    return change


_ODD_X: list[Callable[[Any, Any], Any]] = [
    lambda X, _: X,
    lambda X, _: X,
    lambda X, _: X.tolist(),
    lambda X, _: X.astype(np.float32),
    lambda X, _: X.astype(">f8"),
    lambda X, _: np.asfortranarray(X),
    lambda X, _: X[:, ::-1],
    lambda X, _: X[:, :2],
    lambda X, _: X[:, 0],
    lambda X, _: X[None],
    lambda X, _: X.astype(str),
    lambda X, _: X.astype(object),
    lambda X, _: X.astype(complex),
    lambda X, _: sp.csr_array(X),
    lambda X, _: None,
    lambda X, _: "rows",
    lambda X, _: {"a": 1},
    lambda X, _: np.ma.masked_invalid(X),
    lambda X, _: X * 1e160,
    lambda X, _: X * 1e-160,
    lambda X, _: X * 0.0,
    *map(_with_value, [np.nan, np.inf, -np.inf, 1e308, -1e308, 1e100, 5e-324, -0.0]),
]
_ODD_Y: list[Callable[[Any, Any], Any]] = [
    lambda y, _: y,
    lambda y, _: y,
    lambda y, _: y.tolist(),
    lambda y, _: y.astype(bool),
    lambda y, _: y.astype(np.uint8),
    lambda y, _: y.astype(float),
    lambda y, _: y + 0.5,
    lambda y, _: y.astype(str),
    lambda y, _: y.astype(object),
    lambda y, _: y.astype("S1"),
    lambda y, _: y[:, None],
    lambda y, _: np.column_stack([y, y]),
    lambda y, _: y[:-1],
    lambda y, _: y * np.nan,
    lambda y, _: None,
    lambda y, _: "labels",
    lambda y, _: [None] * len(y),
    lambda y, _: [[1]] * len(y),
    lambda y, _: ["a\0"] * len(y),
    lambda y, _: ["\ud800"] * len(y),
    lambda y, _: y + 2**62,
    lambda y, _: y.astype(np.uint64) + np.uint64(2**63),
    lambda y, _: np.full(len(y), 3),
    lambda y, _: y.astype("datetime64[s]"),
]
