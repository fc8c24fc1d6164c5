"""Synthetic surveillance trajectories of cars in a parking lot, a few of which are suspicious."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from steelyard._types import FloatArray
from steelyard.exceptions import ParameterError

__all__ = ["SUSPICIOUS", "make_trajectories"]


# Number of trajectories of each pattern in the video data of Wu and Chang (ICDM 2004).
_COUNTS = {"circling": 30, "zigzag": 22, "back-and-forth": 40, "go-straight": 200, "parking": 3161}
SUSPICIOUS = ("back-and-forth", "circling", "zigzag")

_LENGTH, _WIDTH = 100.0, 60.0  # size of the parking lot in metres
_LANES = np.array([10.0, 30.0, 50.0])


def make_trajectories(
    counts: Mapping[str, int] | None = None,
    *,
    noise: float = 0.7,
    random_state: int | np.random.Generator | None = None,
) -> tuple[list[FloatArray], NDArray[np.str_]]:
    """Generate trajectories of cars in a parking lot, with various lengths, and their patterns.

    Most cars drive along a lane and turn into a slot ("parking") or leave at the other end ("go-straight").
    A few circle around a block of slots ("circling"), weave ("zigzag"), or go back and forth.

    Parameters
    ----------
    counts : mapping of str to int, optional
        Number of trajectories of each pattern; by default as in the paper, where 92 of 3,453 are suspicious.
    noise : float, default=0.7
        Standard deviation of the position error, in metres.
    random_state : int or numpy.random.Generator, optional
        Seed.

    Returns
    -------
    trajectories : list of ndarray of shape (length, 2)
        Between 25 and 90 positions in metres at regular time steps.
    patterns : ndarray of str
        Pattern of each trajectory; the patterns in ``SUSPICIOUS`` are rare.

    Examples
    --------
    >>> from steelyard.datasets.trajectories import make_trajectories
    >>> X, pattern = make_trajectories({"circling": 2, "parking": 3}, random_state=0)
    >>> pattern.tolist(), [len(x) for x in X]
    (['parking', 'parking', 'parking', 'circling', 'circling'], [69, 45, 79, 86, 64])
    """
    rng = np.random.default_rng(random_state)
    wanted = _COUNTS if counts is None else counts
    for unknown in [name for name in wanted if name not in _COUNTS]:
        raise ParameterError(
            f"patterns must be among {', '.join(_COUNTS)}; got {unknown!r}.", source="make_trajectories"
        )
    patterns = np.repeat(list(wanted), list(wanted.values()))
    rng.shuffle(patterns)
    return [_drive(str(pattern), noise, rng) for pattern in patterns], patterns


def _drive(pattern: str, noise: float, rng: np.random.Generator) -> FloatArray:
    path = _path(pattern, rng)
    if rng.random() < 0.5:  # half of the cars enter at the opposite end
        path = np.array([_LENGTH, 0.0]) + path * [-1.0, 1.0]
    positions = _at_pace(path, int(rng.integers(25, 91)), rng)
    return positions + noise * rng.normal(size=positions.shape)


def _at_pace(path: FloatArray, n_steps: int, rng: np.random.Generator) -> FloatArray:
    """Return positions along a path at regular times, with slowly changing speed."""
    steps = np.linalg.norm(np.diff(path, axis=0), axis=1)
    way = np.concatenate([[0.0], np.cumsum(steps)])
    pace = np.exp(0.4 * np.cumsum(rng.normal(size=n_steps)) / np.sqrt(n_steps))
    done = np.concatenate([[0.0], np.cumsum(pace[1:])])
    where = done / done[-1] * way[-1]
    return np.column_stack([np.interp(where, way, path[:, k]) for k in range(2)])


def _along_lane(rng: np.random.Generator, end: float) -> FloatArray:
    x = np.linspace(0.0, end, 40)
    bend = rng.normal(scale=1.0) * np.sin(np.pi * x / _LENGTH)
    return np.column_stack([x, rng.choice(_LANES) + rng.normal(scale=1.0) + bend])


def _path(pattern: str, rng: np.random.Generator) -> FloatArray:
    if pattern == "go-straight":
        return _along_lane(rng, _LENGTH)
    if pattern == "zigzag":
        path = _along_lane(rng, rng.uniform(60.0, _LENGTH))
        waves = rng.uniform(1.5, 3.5)
        weave = rng.uniform(3.0, 7.0) * np.sin(2.0 * np.pi * waves * path[:, 0] / path[-1, 0])
        return path + np.column_stack([np.zeros(len(path)), weave])
    if pattern == "back-and-forth":
        path = _along_lane(rng, rng.uniform(35.0, 90.0))
        for _ in range(rng.integers(1, 4)):
            back = path[-1] - [rng.uniform(12.0, 30.0), rng.normal(scale=1.0)]
            forth = back + np.array([rng.uniform(10.0, 30.0), rng.normal(scale=1.0)])
            path = np.concatenate([path, _line(path[-1], back), _line(back, forth)])
        return path
    if pattern == "circling":  # into a lane and then once or twice around a block of slots
        path = _along_lane(rng, rng.uniform(15.0, 60.0))
        angle = np.linspace(0.0, 2.0 * np.pi * rng.uniform(1.0, 2.0), 80)
        side = rng.choice([-1.0, 1.0])
        width, height = rng.uniform(6.0, 15.0), rng.uniform(5.0, 10.0)
        loop = np.column_stack([width * np.sin(angle), side * height * (1.0 - np.cos(angle))])
        return np.concatenate([path, path[-1] + loop])
    # Parking: along a lane, sometimes past the slot and back, and around the corner into the slot.
    path = _along_lane(rng, rng.uniform(15.0, 90.0))
    if rng.random() < 0.25:
        path = np.concatenate([path, _line(path[-1], path[-1] - [rng.uniform(4.0, 12.0), 0.0])])
    side = rng.choice([-1.0, 1.0])
    corner = np.linspace(0.0, np.pi / 2.0, 8)
    radius = rng.uniform(3.0, 5.0)
    turn = path[-1] + radius * np.column_stack([np.sin(corner), side * (1.0 - np.cos(corner))])
    slot = _line(turn[-1], turn[-1] + [0.0, side * rng.uniform(2.0, 5.0)])
    return np.concatenate([path, turn, slot])


def _line(begin: FloatArray, end: FloatArray) -> FloatArray:
    return np.linspace(begin, end, 10)[1:]
