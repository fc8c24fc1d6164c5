"""Decision rule: the class whose body has the smallest ratio of distance (to its center) to radius."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from steelyard._types import FloatArray, IntArray
from steelyard.enclosing.bodies import Body, ExplicitBody

_POINT_RADIUS = 1e-100  # replaces the radius 0 of a body that contains a single point
_BLOCK_ROWS = 4096


def distance_ratios(bodies: list[Body], X: FloatArray) -> FloatArray:
    """Return the ratio of distance to radius for each row and body.

    A body around a single point has radius 0, which is replaced by 1e-100. Its ratio is 0 at the point and
    huge but finite elsewhere, so bodies of positive radius have smaller ratios there. If all bodies are
    points, the nearest point has the smallest ratio.
    """
    ratios = np.empty((len(X), len(bodies)))
    for block, values in _in_blocks(bodies, X):
        ratios[block] = values
    return ratios


def nearest_bodies(bodies: list[Body], X: FloatArray) -> tuple[IntArray, FloatArray]:
    """Return the body with the smallest ratio of distance to radius for each row, and this ratio."""
    kinds = {type(body) for body in bodies}
    if len(kinds) == 1 and issubclass(kind := kinds.pop(), ExplicitBody):
        return kind.nearest(bodies, _radii(bodies), X)
    nearest, smallest = np.empty(len(X), dtype=np.int64), np.empty(len(X))
    for block, values in _in_blocks(bodies, X):
        nearest[block] = values.argmin(axis=1)
        smallest[block] = values[np.arange(len(values)), nearest[block]]
    return nearest, smallest


def _radii(bodies: list[Body]) -> FloatArray:
    return np.array([max(body.ball.radius, _POINT_RADIUS) for body in bodies])


def _in_blocks(bodies: list[Body], X: FloatArray) -> Iterator[tuple[slice, FloatArray]]:
    """Yield the ratios in blocks of a few thousand rows, which fit in the CPU cache."""
    radii = _radii(bodies)
    for begin in range(0, len(X), _BLOCK_ROWS):
        block = slice(begin, begin + _BLOCK_ROWS)
        ratios = _squared_distances(bodies, X[block])
        np.sqrt(ratios, out=ratios)
        ratios /= radii
        yield block, ratios


def _squared_distances(bodies: list[Body], X: FloatArray) -> FloatArray:
    kinds = {type(body) for body in bodies}
    if len(kinds) == 1:
        return kinds.pop().all_squared_distances(bodies, X)
    squared = np.empty((len(X), len(bodies)))
    for kind in kinds:
        columns = [column for column, body in enumerate(bodies) if type(body) is kind]
        squared[:, columns] = kind.all_squared_distances([bodies[column] for column in columns], X)
    return squared
