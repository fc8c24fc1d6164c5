"""Rule: from bodies to the one number that decides, the distance to the centre in units of the radius."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from steelyard._types import FloatArray, IntArray
from steelyard.enclosing.bodies import (
    Body,
    Ellipsoid,
    Sphere,
    ellipsoid_distances,
    nearest_ellipsoid,
    nearest_sphere,
    sphere_distances,
)

__all__ = ["distance_ratios", "nearest_bodies"]


# Explicit bodies share one pass over the rows; a body's numbers do not depend on its company.
_TOGETHER: dict[type, Callable[[list[Any], FloatArray], FloatArray]] = {
    Sphere: sphere_distances,
    Ellipsoid: ellipsoid_distances,
}
_NEAREST: dict[type, Callable[[list[Any], FloatArray, FloatArray], tuple[IntArray, FloatArray]]] = {
    Sphere: nearest_sphere,
    Ellipsoid: nearest_ellipsoid,
}
_POINT_RADIUS = 1e-100
_BLOCK_ROWS = 4096


def distance_ratios(bodies: list[Body], X: FloatArray) -> FloatArray:
    """Return d / R of each row for each body.

    A body around a single point has radius 0. It counts as 1e-100, so that the ratio is 0 at the point
    itself and huge but finite elsewhere: any proper body goes before, and among points the nearest.
    """
    ratios = np.empty((len(X), len(bodies)))
    for block, part in _in_blocks(bodies, X):
        ratios[block] = part
    return ratios


def nearest_bodies(bodies: list[Body], X: FloatArray) -> tuple[IntArray, FloatArray]:
    """Return the body with the smallest d / R for each row, and that ratio."""
    kinds = {type(body) for body in bodies}
    if len(kinds) == 1 and kinds <= _NEAREST.keys():
        return _NEAREST[kinds.pop()](bodies, _radii(bodies), X)
    nearest, smallest = np.empty(len(X), dtype=np.int64), np.empty(len(X))
    for block, part in _in_blocks(bodies, X):
        nearest[block] = part.argmin(axis=1)
        smallest[block] = part[np.arange(len(part)), nearest[block]]
    return nearest, smallest


def _radii(bodies: list[Body]) -> FloatArray:
    return np.array([max(body.ball.radius, _POINT_RADIUS) for body in bodies])


def _in_blocks(bodies: list[Body], X: FloatArray) -> Iterator[tuple[slice, FloatArray]]:
    """Ratios of a few thousand rows at a time, which stay in the cache until they have been used."""
    radii = _radii(bodies)
    for begin in range(0, len(X), _BLOCK_ROWS):
        block = slice(begin, begin + _BLOCK_ROWS)
        ratios = _squared_distances(bodies, X[block])
        np.sqrt(ratios, out=ratios)
        ratios /= radii
        yield block, ratios


def _squared_distances(bodies: list[Body], X: FloatArray) -> FloatArray:
    kinds = {type(body) for body in bodies}
    if len(kinds) == 1 and kinds <= _TOGETHER.keys():
        return _TOGETHER[kinds.pop()](bodies, X)
    squared = np.empty((len(X), len(bodies)))
    for kind in kinds:
        places = [place for place, body in enumerate(bodies) if type(body) is kind]
        if kind in _TOGETHER:
            squared[:, places] = _TOGETHER[kind]([bodies[place] for place in places], X)
        else:
            for place in places:
                squared[:, place] = bodies[place].squared_distances(X)
    return squared
