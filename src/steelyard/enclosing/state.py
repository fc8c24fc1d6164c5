"""State: the rows of one class, and the ball around them once it has been asked for."""

from __future__ import annotations

from typing import Any

import numpy as np

from steelyard._types import FloatArray
from steelyard._validation import MAX_FEATURE, largest_magnitude
from steelyard.enclosing.ball import Ball
from steelyard.enclosing.bodies import Body, BodySettings, build_body
from steelyard.enclosing.rows import ClassRows
from steelyard.kernels import Kernel
from steelyard.kernels.items import is_sequence_kernel, restored_items
from steelyard.kernels.sequences import sequence_key

__all__ = ["ClassState"]


class ClassState:
    """What is kept of one class; it never changes, but for what is worked out when it is first asked for.

    Rows that came since they were last asked for stand in a list that grows at its end and is shared with
    the states before, each of which knows how much of it is its own.
    """

    def __init__(
        self, rows: ClassRows, parts: list[tuple[Any, FloatArray]] | None = None, n_parts: int = 0
    ) -> None:
        self._kept = rows, [] if parts is None else parts, n_parts
        self._found: tuple[BodySettings, Ball, Body | None] | None = None

    @classmethod
    def empty(cls, like: Any) -> ClassState:
        """Return the state of a class without rows, of the kind of these."""
        return cls(ClassRows(like[:0], np.empty(0)))

    def __getstate__(self) -> dict[str, Any]:
        # A body may hold native rows, which cannot travel; it is built anew from the ball, without a search.
        (rows, parts, n_parts), found = self._kept, self._found
        return {
            "_kept": (rows, parts[:n_parts], n_parts),
            "_found": None if found is None else (*found[:2], None),
        }

    def with_more(self, X: Any, weights: FloatArray) -> ClassState:
        """Return the state after more rows."""
        rows, parts, n_parts = self._kept
        if len(parts) != n_parts:  # another state has gone on from here
            parts = parts[:n_parts]
        parts.append((X, weights))
        return ClassState(rows, parts, n_parts + 1)

    @property
    def rows(self) -> ClassRows:
        """All rows."""
        rows, parts, n_parts = self._kept
        if n_parts:
            rows = rows.with_more(parts[:n_parts])
            self._kept = rows, [], 0
        return rows

    def known_body(self, settings: BodySettings) -> Body | None:
        """Return the body that these settings ask for, if it has been asked for before."""
        found = self._found
        return None if found is None or found[0] != settings else found[2]

    def body(self, settings: BodySettings) -> Body:
        """Return the body that these settings ask for."""
        body = self.known_body(settings)
        if body is None:
            found = self._found
            ball = None if found is None or found[0] != settings else found[1]
            body = build_body(self.rows, settings, ball)
            self._found = settings, body.ball, body
        return body

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
        if max(largest_magnitude(X), largest_magnitude(weights)) > MAX_FEATURE:
            raise ValueError("a class has values that no learner takes")
        if not ((weights > 0).all() and (alpha >= 0).all() and (alpha > 0).any() and 0 <= radius < np.inf):
            raise ValueError("a class has weights that cannot be")
        if not is_sequence_kernel(settings.kernel):
            rows = ClassRows.gather(X, weights)
            if not np.array_equal(rows.X, X):
                raise ValueError("the rows of a class are not distinct or not in order")
        state = cls(ClassRows(rows.X, weights))
        state._found = settings, Ball(alpha, radius), None
        return state
