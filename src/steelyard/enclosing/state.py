"""Rows of one class, and a cache of the sphere or ellipsoid (body) that encloses them."""

from __future__ import annotations

from typing import Any

import numpy as np

from steelyard._types import FloatArray
from steelyard._validation import MAX_FEATURE, largest_magnitude
from steelyard.enclosing.bodies import Ball, Body, BodySettings, ClassRows, build_body
from steelyard.kernels.sequences import is_sequence_kernel, restored_items, sequence_key


class ClassState:
    """Rows of one class and a cache of its body. Instances are immutable, except that the cache is filled.

    New batches are appended to a list that successive states share. Each state uses only its first
    ``n_batches`` entries.
    """

    def __init__(
        self, rows: ClassRows, batches: list[tuple[Any, FloatArray]] | None = None, n_batches: int = 0
    ) -> None:
        self._content = rows, [] if batches is None else batches, n_batches
        self._cached: tuple[BodySettings, Ball, Body | None] | None = None

    @classmethod
    def empty(cls, like: Any) -> ClassState:
        """Return the state of a class without rows. ``like`` is a batch with the type of later batches."""
        return cls(ClassRows(like[:0], np.empty(0)))

    def __getstate__(self) -> dict[str, Any]:
        # A body may contain native objects, which cannot be pickled, so it is rebuilt from the ball.
        (rows, batches, n_batches), cached = self._content, self._cached
        return {
            "_content": (rows, batches[:n_batches], n_batches),
            "_cached": None if cached is None else (*cached[:2], None),
        }

    def with_more(self, X: Any, weights: FloatArray) -> ClassState:
        """Return the state with more rows added."""
        rows, batches, n_batches = self._content
        if len(batches) != n_batches:  # another state has already appended to the shared list
            batches = batches[:n_batches]
        batches.append((X, weights))
        return ClassState(rows, batches, n_batches + 1)

    @property
    def rows(self) -> ClassRows:
        """All rows of the class."""
        rows, batches, n_batches = self._content
        if n_batches:
            rows = rows.with_more(batches[:n_batches])
            self._content = rows, [], 0
        return rows

    def cached_body(self, settings: BodySettings) -> Body | None:
        """Return the body for these settings, or None if it is not cached."""
        cached = self._cached
        return None if cached is None or cached[0] != settings else cached[2]

    def body(self, settings: BodySettings) -> Body:
        """Return the body for these settings, computed if it is not cached."""
        body = self.cached_body(settings)
        if body is None:
            cached = self._cached
            ball = None if cached is None or cached[0] != settings else cached[1]
            body = build_body(self.rows, settings, ball)
            self._cached = settings, body.ball, body
        return body

    # -- persistence --------------------------------------------------------------------------------

    def describe(self, settings: BodySettings) -> dict[str, Any]:
        """Return rows and ball as a dict, from which the body can be rebuilt without the solver."""
        ball, rows = self.body(settings).ball, self.rows
        return {"X": rows.X, "weights": rows.weights, "alpha": ball.alpha, "radius": ball.radius}

    @classmethod
    def restore(cls, described: dict[str, Any], settings: BodySettings, n_features: int) -> ClassState:
        """Restore the state from the result of ``describe``."""
        weights, alpha = (np.ascontiguousarray(described[name]) for name in ("weights", "alpha"))
        if is_sequence_kernel(settings.kernel):
            items = restored_items(settings.kernel, described["X"])
            rows = ClassRows.gather(items, np.ones(len(items)))
            if list(map(sequence_key, rows.X)) != list(map(sequence_key, items)):
                raise ValueError("the sequences of a class are not distinct or not sorted")
            X = np.arange(len(rows.X), dtype=np.float64)[:, None]
            n_features = 1
        else:
            X = np.ascontiguousarray(described["X"])
        radius = float(described["radius"])
        if any(array.dtype != np.float64 for array in (X, weights, alpha)):
            raise ValueError("rows and weights must be float64")
        if X.ndim != 2 or X.shape[1] != n_features or not len(X) == len(weights) == len(alpha) > 0:
            raise ValueError("the arrays of a class do not match in shape")
        if not (np.isfinite(X).all() and np.isfinite(weights).all() and np.isfinite(alpha).all()):
            raise ValueError("a class contains values that are not finite")
        if max(largest_magnitude(X), largest_magnitude(weights)) > MAX_FEATURE:
            raise ValueError(f"a class contains values beyond {MAX_FEATURE:.0e}")
        if not ((weights > 0).all() and (alpha >= 0).all() and (alpha > 0).any() and 0 <= radius < np.inf):
            raise ValueError("a class has weights or a radius out of range")
        if not is_sequence_kernel(settings.kernel):
            rows = ClassRows.gather(X, weights)
            if not np.array_equal(rows.X, X):
                raise ValueError("the rows of a class are not distinct or not sorted")
        state = cls(ClassRows(rows.X, weights))
        state._cached = settings, Ball(alpha, radius), None
        return state
