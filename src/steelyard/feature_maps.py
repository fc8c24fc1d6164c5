"""Fitted feature maps. The mapped values of a row are bit-identical on every machine and in every batch."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from numbers import Real
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from scipy.linalg import eigh

from steelyard import _native
from steelyard._threads import limit_blas, num_threads, one_blas_thread
from steelyard._types import FloatArray
from steelyard._validation import canonical_csr

# Output values have 20 bits including the sign. Intermediate sums have at most 53 bits and are not rounded.
_VALUE_BITS = 19
KERNEL_BITS = 23
_ROOT_BITS = 53 - KERNEL_BITS
# Constant added to the eigenvalues of the landmarks' kernel matrix before its inverse root is computed.
_RIDGE = 1e-6
_BLOCK_ROWS = 2048  # number of rows per block, whose kernel values stay in the CPU cache until they are used
_MIN_ROWS_FOR_THREADS = 17  # with fewer rows, determining the number of threads takes as long as the mapping
_MAX_UNSHIFTED_MEAN = 8.0  # features whose mean exceeds this many standard deviations are centered
# Number of standard deviations; rectified units with gamma="rows" are clipped at the next power of two.
_RELU_CEILING = 16.0
_COORDINATE_STEP = 2.0**-19  # Euclidean coordinates are multiples of this step, so their squares have 52 bits
_MAX_COORDINATE = 64.0  # the kernel of this distance is 2**-64, which rounds to 0


def _power_below(value: float) -> float:
    """Return the largest power of two that does not exceed the value."""
    return float(2.0 ** np.floor(np.log2(value)))


@dataclass(frozen=True)
class ProjectionMap:
    """Base class of rounded functions of the projection ``starts + ((x - shift) * scale) @ weights``.

    ``intermediates`` returns values of which the output features are linear functions: in projections the
    features themselves, in landmark maps kernel values. The results of ``apply_without_blas`` and ``apply``
    are bit-identical; threads of BLAS would slow down learners that run in parallel.

    Weights and coordinates have 24 bits, so products are exact. Sums are computed from the first feature to
    the last, so the output is bit-identical in every batch. The names of the fields are keys in files.
    """

    shift: FloatArray
    scale: FloatArray
    weights: FloatArray
    starts: FloatArray
    quantum: float  # all output values are multiples of this power of two
    height: float  # amplitude of the function or, for rectified units, their largest value

    function: ClassVar[str]

    def __post_init__(self) -> None:
        _check_map(self, self.weights, self.starts, self.height)

    def apply(self, X: Any) -> FloatArray:
        out = np.empty((X.shape[0], len(self.starts)))
        numbers = (*self._numbers(), num_threads())
        if sp.issparse(X):
            rows = canonical_csr(X)
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

    intermediates = apply_without_blas = apply

    @property
    def native_intermediates(self) -> tuple[Any, ...]:
        return self.function, self.shift, self.scale, self.weights, self.starts, *self._numbers()

    def coef_of_intermediates(self, coef: FloatArray) -> FloatArray:
        return coef

    def _numbers(self) -> tuple[float, float, float]:
        """Return amplitude, step and ceiling as arguments of the native code."""
        return self.height / self.quantum, self.quantum, 1.0


class FourierMap(ProjectionMap):
    """Map ``height * cos(2 pi t)``, where the projection ``t`` is an angle in turns."""

    function = "cosine"

    @classmethod
    def make(cls, mean: FloatArray, scale: FloatArray, weights: FloatArray, phases: FloatArray) -> FourierMap:
        """Return the map ``sqrt(2 / m) * cos(((x - mean) * scale) @ weights + phases)``."""
        height = float(np.sqrt(2.0 / len(phases)))
        step = 2.0 * _power_below(height) * 2.0**-_VALUE_BITS
        turn = 2.0 * np.pi
        return cls(*_shifted(mean, scale, weights / turn, phases / turn), step, height)


class ReluMap(ProjectionMap):
    """Map ``min(max(0, t), height)`` of a projection ``t``: rectified linear units."""

    function = "rectified"

    def _numbers(self) -> tuple[float, float, float]:
        return 1.0 / self.quantum, self.quantum, self.height

    @classmethod
    def make(
        cls, mean: FloatArray, scale: FloatArray, weights: FloatArray, phases: FloatArray, *, full: bool
    ) -> ReluMap:
        """Return the map ``max(0, ((x - mean) * scale) @ weights + phases) / sqrt(m)``.

        With ``full``, outputs have 20 bits and are clipped at the next power of two above 16 standard
        deviations. Otherwise they have up to 51 bits.
        """
        share = 1.0 / np.sqrt(len(phases))
        spread = float(np.sqrt(np.square(weights).sum(axis=0).mean() + 1.0)) * share
        step = 2.0 * _power_below(_RELU_CEILING * spread) * 2.0**-_VALUE_BITS
        ceiling = step * 2.0 ** (_VALUE_BITS if full else 50)
        return cls(*_shifted(mean, scale, weights * share, phases * share), step, ceiling)


class SigmoidMap(ProjectionMap):
    """Map ``height / (1 + 2**-t)`` of a projection ``t``: a layer of sigmoid units."""

    function = "sigmoid"

    @classmethod
    def make(cls, mean: FloatArray, scale: FloatArray, weights: FloatArray, biases: FloatArray) -> SigmoidMap:
        """Return the map ``1 / (1 + exp(-((x - mean) * scale) @ weights - biases))``."""
        per_halving = 1.0 / np.log(2.0)
        return cls(
            *_shifted(mean, scale, weights * per_halving, biases * per_halving), 2.0**-_VALUE_BITS, 1.0
        )


@dataclass(frozen=True)
class LandmarkMap:
    """Nyström map ``k(landmarks, x) @ root`` with ``k = 2**-|u - v|``, rounded to multiples of ``quantum``.

    Features are scaled so that a distance of 1 halves the kernel. Kernel values are integers of 23 bits, and
    ``root`` contains integers (times ``step``) with column sums below 2**30, so their products can be summed
    without rounding in any order. The names of the fields are keys in files.
    """

    shift: FloatArray
    scale: FloatArray
    landmarks: FloatArray  # transposed landmarks, shape (n_features, n_components)
    root: FloatArray
    step: float
    quantum: float
    euclidean: bool

    def __post_init__(self) -> None:
        _check_map(self, self.landmarks, self.root[0], self.step)
        if not np.isfinite(self.root).all():
            raise ValueError("a feature map contains numbers that are not finite")
        if self.root.shape != (self.root.shape[0],) * 2:
            raise ValueError("the root of the landmarks' kernel matrix must be square")

    @classmethod
    def make(
        cls, mean: FloatArray, scale: FloatArray, landmarks: FloatArray, rate: float, *, euclidean: bool
    ) -> LandmarkMap:
        """Return the map for landmarks in standardized coordinates and ``k = exp(-rate * |u - v|)``."""
        m, d = landmarks.shape
        places = _places(landmarks, rate, euclidean=euclidean)
        # The root is not known yet, and kernel values do not depend on it.
        unscaled = cls(np.zeros(d), np.ones(d), places, np.zeros((m, m)), 1.0, 1.0, euclidean)
        kernel = unscaled.intermediates(places.T)
        with one_blas_thread:  # LAPACK results are rounded differently for different numbers of threads
            values, vectors = eigh(kernel * 2.0**-KERNEL_BITS, driver="evd", overwrite_a=True)
            values = np.maximum(values, 0.0)
            # The symmetric root is unique, so it does not depend on order or signs of the eigenvectors.
            root = (vectors * (np.sqrt(values) / (values + _RIDGE))) @ vectors.T
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
        """Return the map with a given inverse square root of the kernel matrix."""
        step = _power_below(float(np.abs(root).sum(axis=0).max())) * 2.0**-_ROOT_BITS
        while np.abs(integers := np.rint(root / step) + 0.0).sum(axis=0).max() > 2.0**_ROOT_BITS:
            step *= 2.0
        places = _places(landmarks, rate, euclidean=euclidean)
        halvings = rate / np.log(2.0)
        return cls(mean, scale * halvings, places, integers, step, 2.0**-_VALUE_BITS, euclidean)

    def apply(self, X: Any) -> FloatArray:
        rows = _rows(X.toarray() if sp.issparse(X) else X)
        out = np.empty((len(rows), len(self.root)))
        values = np.empty((min(len(rows), _BLOCK_ROWS), len(self.root)))
        for begin in range(0, len(rows), _BLOCK_ROWS):
            block = out[begin : begin + _BLOCK_ROWS]
            kernel = self.intermediates(rows[begin : begin + _BLOCK_ROWS], values[: len(block)])
            # All partial sums are integers below 2**53, so the result is bit-identical with every BLAS.
            with limit_blas(len(self.root)):
                np.matmul(kernel, self.root, out=block)
            _native.round_to_step(block, self._step_ratio, self.quantum, num_threads())
        return out

    def apply_without_blas(self, X: FloatArray) -> FloatArray:
        kernel, out, threads = self.intermediates(X), np.empty((len(X), len(self.root))), num_threads()
        _native.linear_scores(kernel, self._root_columns, np.zeros(len(self.root)), out, threads)
        _native.round_to_step(out, self._step_ratio, self.quantum, threads)
        return out

    def intermediates(self, X: FloatArray, out: FloatArray | None = None) -> FloatArray:
        """Return the kernel values ``2**-distance`` of rows and landmarks as 23-bit integers."""
        out = np.empty((len(X), len(self.root))) if out is None else out
        threads = num_threads() if len(X) >= _MIN_ROWS_FOR_THREADS else 1
        function, shift, scale, landmarks, starts, amplitude, step, ceiling = self.native_intermediates
        numbers, rows = (amplitude, step, ceiling, threads), np.ascontiguousarray(X, dtype=np.float64)
        _native.map_rows(function, rows, shift, scale, landmarks, starts, out, *numbers)
        return out

    @cached_property
    def native_intermediates(self) -> tuple[Any, ...]:
        """Function, arrays and numbers for the native call that computes :meth:`intermediates`."""
        function, starts = "halving_2" if self.euclidean else "halving", np.zeros(len(self.root))
        return function, self.shift, self.scale, self.landmarks, starts, 2.0**KERNEL_BITS, 1.0, 1.0

    def coef_of_intermediates(self, coef: FloatArray) -> FloatArray:
        """Return coefficients of intermediate values that give the same scores as those of the features."""
        carried = np.empty((len(self.root), len(coef)))
        _native.linear_scores(self.root, np.ascontiguousarray(coef), np.zeros(len(coef)), carried, 1)
        return np.ascontiguousarray(carried.T) * (self.step * 2.0**-KERNEL_BITS)

    @cached_property
    def _root_columns(self) -> FloatArray:
        return np.ascontiguousarray(self.root.T)

    @cached_property
    def _step_ratio(self) -> float:
        """Step of the products of kernel values and root, in units of the step of the output values."""
        return self.step * 2.0**-KERNEL_BITS / self.quantum


def _check_map(
    fitted: ProjectionMap | LandmarkMap, weights: FloatArray, outputs: FloatArray, size: float
) -> None:
    if not all(isinstance(number, Real) for number in (fitted.quantum, size)):
        raise ValueError("a feature map contains a list in place of a number")
    if fitted.shift.ndim != 1 or outputs.ndim != 1:
        raise ValueError("a feature map needs one array entry per feature and per component")
    if fitted.scale.shape != fitted.shift.shape or weights.shape != (len(fitted.shift), len(outputs)):
        raise ValueError("the feature map and the model have different numbers of features")
    # A damaged file may contain a step of zero, by which native code would divide.
    if not (np.frexp(fitted.quantum)[0] == 0.5 and 2.0**-200 < fitted.quantum < 2.0**200):
        raise ValueError("the step of a feature map must be a power of two")
    if not all(np.isfinite(part).all() for part in (fitted.shift, fitted.scale, weights, outputs, size)):
        raise ValueError("a feature map contains numbers that are not finite")


def _rows(X: Any) -> FloatArray:
    return np.ascontiguousarray(X, dtype=np.float64)


def _shifted(
    mean: FloatArray, scale: FloatArray, weights: FloatArray, phases: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Rewrite ``((x - mean) * scale) @ weights + phases`` as ``starts + ((x - shift) * scale) @ weights``.

    Return shift, scale, weights (rounded to float32) and starts. If the mean of a feature is not large, its
    shift is zero and ``starts`` accounts for the mean, so that zeros of sparse rows contribute nothing.
    """
    rounded = weights.astype(np.float32).astype(np.float64)
    shift = np.where(np.abs(mean) * scale > _MAX_UNSHIFTED_MEAN, mean, 0.0)
    return shift, scale, rounded, phases - ((mean - shift) * scale) @ rounded


def _places(landmarks: FloatArray, rate: float, *, euclidean: bool) -> FloatArray:
    """Return the transposed landmarks in units of the distance at which the kernel is 1/2."""
    places = _rows(landmarks.T) * (rate / np.log(2.0))
    if not euclidean:
        return places
    # Differences of rounded coordinates have 26 bits, so their squares have 52 bits and are exact.
    rounded = np.rint(places / _COORDINATE_STEP) * _COORDINATE_STEP
    return np.clip(rounded, -_MAX_COORDINATE, _MAX_COORDINATE)


FittedMap = FourierMap | ReluMap | SigmoidMap | LandmarkMap
