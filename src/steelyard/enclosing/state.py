"""State: the rows of one class, and the ball around them once it has been asked for."""

from __future__ import annotations

from typing import Any

import numpy as np

from steelyard._types import FloatArray
from steelyard.enclosing.ball import Ball
from steelyard.enclosing.bodies import Body, BodySettings, build_body
from steelyard.enclosing.rows import ClassRows
from steelyard.items import is_sequence_kernel, restored_items
from steelyard.kernels import Kernel
from steelyard.sequence_kernels import sequence_key

__all__ = ["ClassState"]


class ClassState:
    """What is kept of one class.

    Rows are brought into their order, and the body is trained, when it is first asked for.
    """

    def __init__(self, rows: ClassRows) -> None:
        self._rows = rows
        self._parts: list[tuple[Any, FloatArray]] = []  # rows that came since
        self._settings: BodySettings | None = None
        self._ball: Ball | None = None
        self._body: Body | None = None

    @classmethod
    def empty(cls, like: Any) -> ClassState:
        """Return the state of a class without rows, of the kind of these."""
        return cls(ClassRows(like[:0], np.empty(0)))

    def copy(self) -> ClassState:
        """Return a state that goes its own way from here on."""
        twin = ClassState(self._rows)
        twin._parts = list(self._parts)
        twin._settings, twin._ball, twin._body = self._settings, self._ball, self._body
        return twin

    def __getstate__(self) -> dict[str, Any]:
        # A body may hold native rows, which cannot travel; it is built anew from the ball, without a search.
        return {**self.__dict__, "_body": None}

    def add(self, X: Any, weights: FloatArray) -> None:
        """Take in more rows; what was derived from the former ones is void."""
        self._parts.append((X, weights))
        self._settings = self._ball = self._body = None

    @property
    def rows(self) -> ClassRows:
        """All rows so far."""
        if self._parts:
            self._rows, self._parts = self._rows.with_more(self._parts), []
        return self._rows

    def body(self, settings: BodySettings) -> Body:
        """Return the body that these settings ask for."""
        if self._settings != settings:
            self._settings, self._ball, self._body = settings, None, None
        if self._body is None:
            self._body = build_body(self.rows, settings, self._ball)
            self._ball = self._body.ball
        return self._body

    # -- saving -------------------------------------------------------------------------------------

    def describe(self, settings: BodySettings) -> dict[str, Any]:
        """Return rows and ball as plain values; a body is built from them without a search."""
        ball, rows = self.body(settings).ball, self.rows
        return {"X": rows.X, "weights": rows.weights, "alpha": ball.alpha, "radius": ball.radius}

    @classmethod
    def restore(cls, described: dict[str, Any], settings: BodySettings, n_features: int) -> ClassState:
        """Return the state that ``describe`` described."""
        weights, alpha = (np.ascontiguousarray(described[name]) for name in ("weights", "alpha"))
        if is_sequence_kernel(settings.kernel):
            items = restored_items(Kernel(settings.kernel), described["X"])
            rows = ClassRows.gather(items, np.ones(len(items)))
            if list(map(sequence_key, rows.X)) != list(map(sequence_key, items)):
                raise ValueError("the sequences of a class are not distinct or not in order")
            X = np.arange(len(rows.X), dtype=np.float64)[:, None]
            n_features = 1
        else:
            X = np.ascontiguousarray(described["X"])
        radius = float(described["radius"])
        if any(array.dtype != np.float64 for array in (X, weights, alpha)):
            raise ValueError("rows and weights must be float64")
        if X.ndim != 2 or X.shape[1] != n_features or not len(X) == len(weights) == len(alpha) > 0:
            raise ValueError("the shapes of a class do not fit")
        if not (np.isfinite(X).all() and np.isfinite(weights).all() and np.isfinite(alpha).all()):
            raise ValueError("a class has values that are not finite")
        if not ((weights > 0).all() and (alpha >= 0).all() and (alpha > 0).any() and 0 <= radius < np.inf):
            raise ValueError("a class has weights that cannot be")
        if not is_sequence_kernel(settings.kernel):
            rows = ClassRows.gather(X, weights)
            if not np.array_equal(rows.X, X):
                raise ValueError("the rows of a class are not distinct or not in order")
        state = cls(ClassRows(rows.X, weights))
        state._settings, state._ball = settings, Ball(alpha, radius)
        return state
