"""Settled feature maps: what a row becomes, to the bit, wherever and beside whatever it is computed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from numbers import Real
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from scipy.linalg import eigh
from threadpoolctl import threadpool_limits

from steelyard import _native
from steelyard._threads import num_threads
from steelyard._types import FloatArray

__all__ = ["FourierMap", "LandmarkMap", "ProjectionMap", "ReluMap", "SettledMap"]

# What comes out has 20 bits with its sign, and what is summed on the way is such that no sum can round.
_VALUE_BITS = 19
_KERNEL_BITS = 23
_ROOT_BITS = 53 - _KERNEL_BITS
_SMALLEST = 1e-6  # eigenvalues of the landmarks' kernel matrix below this fade out of its inverse root
_BLOCK = 2048  # rows whose kernel values stay in the cache until they are multiplied
_FEW_ROWS = 16  # so few rows that to ask for the number of threads takes as long
_FAR = 8.0  # standard deviations from zero to the mean beyond which a feature is measured from its mean
_CEILING = 16.0  # standard deviations at which a rectified unit of a "rows" map is full
_GRID = 2.0**-19  # of coordinates whose squares are summed
_MOST = 64.0  # the farthest of these: half to this power is nothing


def _power_below(value: float) -> float:
    """The largest power of two that is not larger."""
    return float(2.0 ** np.floor(np.log2(value)))


@dataclass(frozen=True)
class ProjectionMap(ABC):
    """A function of ``starts + ((x - shift) * scale) @ weights``, rounded to multiples of ``quantum``.

    Weights have 24 bits, as have the coordinates that they meet: products are exact, and sums go from the
    first feature to the last, so a value has the same bits wherever and beside whatever it is computed.
    """

    shift: FloatArray
    scale: FloatArray
    weights: FloatArray
    starts: FloatArray
    quantum: float
    height: float

    function: ClassVar[str]

    def __post_init__(self) -> None:
        _check_single(self.quantum, self.height)
        _check_shapes(self, self.weights, self.starts)
        _check_finite(self.shift, self.scale, self.weights, self.starts, self.height)

    def apply(self, X: Any) -> FloatArray:
        out = np.empty((X.shape[0], len(self.starts)))
        numbers = (*self._numbers(), num_threads())
        if sp.issparse(X):
            rows = X if X.has_canonical_format else _canonical(X)
            _native.map_sparse_rows(
                self.function, np.asarray(rows.data, dtype=np.float64),
                rows.indices.astype(np.int64), rows.indptr.astype(np.int64),
                self.shift, self.scale, self.weights, self.starts, out, *numbers,
            )  # fmt: skip
        else:
            _native.map_rows(
                self.function, _rows(X), self.shift, self.scale, self.weights, self.starts, out, *numbers
            )
        return out

    def inside(self, X: FloatArray) -> FloatArray:
        """Values that the features are linear in: here the features."""
        return self.apply(X)

    def native_inside(self) -> tuple[Any, ...]:
        """What :meth:`inside` calls natively: function, arrays and numbers."""
        return self.function, self.shift, self.scale, self.weights, self.starts, *self._numbers()

    def carried_inside(self, coef: FloatArray) -> FloatArray:
        """Planes over features as planes over these values."""
        return coef

    def completed(self, inside: FloatArray) -> FloatArray:
        """The features that belong to such values."""
        return inside

    @abstractmethod
    def _numbers(self) -> tuple[float, float, float]:
        """Amplitude, quantum and ceiling, as the native loops want them."""


class FourierMap(ProjectionMap):
    """``height * cos(2 pi t)``, the angle ``t`` in turns."""

    function = "cosine"

    def _numbers(self) -> tuple[float, float, float]:
        return self.height / self.quantum, self.quantum, 1.0

    @classmethod
    def make(cls, mean: FloatArray, scale: FloatArray, weights: FloatArray, phases: FloatArray) -> FourierMap:
        """``sqrt(2 / m) * cos(((x - mean) * scale) @ weights + phases)``."""
        height = float(np.sqrt(2.0 / len(phases)))
        quantum = 2.0 * _power_below(height) * 2.0**-_VALUE_BITS
        turn = 2.0 * np.pi
        return cls(*_shifted(mean, scale, weights / turn, phases / turn), quantum, height)


class ReluMap(ProjectionMap):
    """``min(max(0, t), height)``."""

    function = "rectified"

    def _numbers(self) -> tuple[float, float, float]:
        return 1.0 / self.quantum, self.quantum, self.height

    @classmethod
    def make(
        cls, mean: FloatArray, scale: FloatArray, weights: FloatArray, phases: FloatArray, *, full: bool
    ) -> ReluMap:
        """``max(0, ((x - mean) * scale) @ weights + phases) / sqrt(m)``.

        FeatureBounds that are ``full`` far beyond what rows of scale 1 can reach have 20 bits; others have room.
        """
        share = 1.0 / np.sqrt(len(phases))
        spread = float(np.sqrt(np.square(weights).sum(axis=0).mean() + 1.0)) * share
        quantum = 2.0 * _power_below(_CEILING * spread) * 2.0**-_VALUE_BITS
        ceiling = quantum * 2.0 ** (_VALUE_BITS if full else 50)
        return cls(*_shifted(mean, scale, weights * share, phases * share), quantum, ceiling)


@dataclass(frozen=True)
class LandmarkMap:
    """``k(landmarks, x) @ root`` with ``k = 2**-|u - v|``, rounded to multiples of ``quantum``.

    ``scale`` measures features so that half a kernel value is a distance of 1. Kernel values are integers
    of 23 bits, ``root`` holds integers (times ``step``) whose columns have sums below 2**30: products of
    the two are exact in any order.
    """

    shift: FloatArray
    scale: FloatArray
    landmarks: FloatArray  # feature by feature: (n_features, n_components)
    root: FloatArray
    step: float
    quantum: float
    euclidean: bool

    def __post_init__(self) -> None:
        _check_single(self.quantum, self.step)
        _check_shapes(self, self.landmarks, self.root[0])
        _check_finite(self.shift, self.scale, self.landmarks, self.root, self.step)
        if self.root.shape != (self.root.shape[0],) * 2:
            raise ValueError("the root of the landmarks' kernel matrix must be square")

    @classmethod
    def make(
        cls, mean: FloatArray, scale: FloatArray, landmarks: FloatArray, rate: float, *, euclidean: bool
    ) -> LandmarkMap:
        """Landmarks are rows in standardized coordinates, ``k = exp(-rate * |u - v|)``."""
        places = _places(landmarks, rate, euclidean=euclidean)
        d = len(mean)
        kernel = np.empty((len(landmarks),) * 2)
        _halvings(_rows(places.T), np.zeros(d), np.ones(d), places, kernel, euclidean=euclidean)
        with threadpool_limits(1, user_api="blas"):  # the bits depend on the number of threads
            values, vectors = eigh(kernel * 2.0**-_KERNEL_BITS, driver="evd", overwrite_a=True)
            values = np.maximum(values, 0.0)
            # The symmetric root is unique, so it does not depend on the order or signs of the eigenvectors.
            root = (vectors * (np.sqrt(values) / (values + _SMALLEST))) @ vectors.T
        return cls.with_root(mean, scale, landmarks, root, rate, euclidean=euclidean)

    @classmethod
    def with_root(
        cls,
        mean: FloatArray,
        scale: FloatArray,
        landmarks: FloatArray,
        root: FloatArray,
        rate: float,
        *,
        euclidean: bool,
    ) -> LandmarkMap:
        """The same with a root that is known."""
        step = _power_below(float(np.abs(root).sum(axis=0).max())) * 2.0**-_ROOT_BITS
        while np.abs(integers := np.rint(root / step) + 0.0).sum(axis=0).max() > 2.0**_ROOT_BITS:
            step *= 2.0
        places = _places(landmarks, rate, euclidean=euclidean)
        halvings = rate / np.log(2.0)
        return cls(mean, scale * halvings, places, integers, step, 2.0**-_VALUE_BITS, euclidean)

    def apply(self, X: Any) -> FloatArray:
        rows = _rows(X.toarray() if sp.issparse(X) else X)
        out = np.empty((len(rows), len(self.root)))
        values = np.empty((min(len(rows), _BLOCK), len(self.root)))
        for begin in range(0, len(rows), _BLOCK):
            block = out[begin : begin + _BLOCK]
            kernel = values[: len(block)]
            self._kernel_values(rows[begin : begin + _BLOCK], kernel)
            # Integers below 2**53 all the way: whoever multiplies, and in which order, the sums are the same.
            np.matmul(kernel, self.root, out=block)
            self._round(block)
        return out

    def inside(self, X: FloatArray) -> FloatArray:
        """Kernel values at the landmarks: features are linear in them, but for their rounding."""
        out = np.empty((len(X), len(self.root)))
        self._kernel_values(_rows(X), out)
        return out

    def native_inside(self) -> tuple[Any, ...]:
        """What :meth:`inside` calls natively: function, arrays and numbers."""
        return _halving(self.shift, self.scale, self.landmarks, euclidean=self.euclidean)

    def carried_inside(self, coef: FloatArray) -> FloatArray:
        """Planes over features as planes over the kernel values, whose product with the root is spared."""
        carried = np.empty((len(self.root), len(coef)))
        _native.linear_scores(self.root, np.ascontiguousarray(coef), np.zeros(len(coef)), carried, 1)
        return np.ascontiguousarray(carried.T) * (self.step * 2.0**-_KERNEL_BITS)

    def completed(self, inside: FloatArray) -> FloatArray:
        """The features that belong to such kernel values."""
        out = np.empty(inside.shape)
        _native.linear_scores(inside, self._root_columns, np.zeros(len(self.root)), out, num_threads())
        self._round(out)
        return out

    @cached_property
    def _root_columns(self) -> FloatArray:
        return np.ascontiguousarray(self.root.T)

    def _kernel_values(self, rows: FloatArray, out: FloatArray) -> None:
        _halvings(rows, self.shift, self.scale, self.landmarks, out, euclidean=self.euclidean)

    def _round(self, out: FloatArray) -> None:
        factor = self.step * 2.0**-_KERNEL_BITS / self.quantum
        _native.round_to_grid(out, factor, self.quantum, num_threads())


def _check_finite(*parts: Any) -> None:
    if not all(np.isfinite(part).all() for part in parts):
        raise ValueError("a map has numbers that are not finite")


def _check_single(*parts: Any) -> None:
    if not all(isinstance(part, Real) for part in parts):  # a file may hold a list here
        raise ValueError("a map has a list where one number must be")


def _check_shapes(settled: ProjectionMap | LandmarkMap, weights: FloatArray, outputs: FloatArray) -> None:
    if settled.shift.ndim != 1 or outputs.ndim != 1:
        raise ValueError("the numbers of a map by feature and by component must be lists")
    if settled.scale.shape != settled.shift.shape or weights.shape != (len(settled.shift), len(outputs)):
        raise ValueError("the map does not have the width of the features")
    # A file may hold anything here: a step of zero would divide by it.
    if not (np.frexp(settled.quantum)[0] == 0.5 and 2.0**-200 < settled.quantum < 2.0**200):
        raise ValueError("the map must have a power of two as its least step")


def _rows(X: Any) -> FloatArray:
    return np.ascontiguousarray(X, dtype=np.float64)


def _canonical(X: Any) -> Any:
    rows = X.copy()
    rows.sum_duplicates()
    return rows


def _shifted(
    mean: FloatArray, scale: FloatArray, weights: FloatArray, phases: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Shift, scale, weights and starts of ``((x - mean) * scale) @ weights + phases``.

    Where zero is not far from the mean it stays zero, so that sparse rows need no other features than
    those they have; what the mean takes off is part of the starts.
    """
    rounded = weights.astype(np.float32).astype(np.float64)
    shift = np.where(np.abs(mean) * scale > _FAR, mean, 0.0)
    return shift, scale, rounded, phases - ((mean - shift) * scale) @ rounded


def _places(landmarks: FloatArray, rate: float, *, euclidean: bool) -> FloatArray:
    """Landmarks feature by feature, in units of the distance that halves a kernel value."""
    places = _rows(landmarks.T) * (rate / np.log(2.0))
    # Differences of these have 26 bits, and their squares 52.
    return np.clip(np.rint(places / _GRID) * _GRID, -_MOST, _MOST) if euclidean else places


def _halvings(
    rows: FloatArray,
    shift: FloatArray,
    scale: FloatArray,
    places: FloatArray,
    out: FloatArray,
    *,
    euclidean: bool,
) -> None:
    """``2**-distance`` as integers of 23 bits."""
    called = _halving(shift, scale, places, euclidean=euclidean)
    threads = num_threads() if len(rows) > _FEW_ROWS else 1
    _native.map_rows(called[0], rows, *called[1:5], out, *called[5:], threads)


def _halving(
    shift: FloatArray, scale: FloatArray, places: FloatArray, *, euclidean: bool
) -> tuple[str, FloatArray, FloatArray, FloatArray, FloatArray, float, float, float]:
    """The same as native calls name it: function, arrays and numbers."""
    function, starts = "halving_2" if euclidean else "halving", np.zeros(places.shape[1])
    return function, shift, scale, places, starts, 2.0**_KERNEL_BITS, 1.0, 1.0


SettledMap = FourierMap | ReluMap | LandmarkMap
