"""Random feature maps: fixed once settled, and therefore as mergeable as the rows themselves."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, fields
from hashlib import blake2b
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike
from scipy.linalg import eigh
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_array, validate_data

from steelyard import _native
from steelyard._threads import num_threads
from steelyard._types import FloatArray
from steelyard.exceptions import DataError, NotFittedError
from steelyard.params import AnyOf, Constraint, Former, Integer, ListOf, OneOf, Positive, check_params
from steelyard.persistence import storable

__all__ = ["RandomFeatures"]

_WIDTHS = (0.05, 0.25, 1.0, 4.0)  # multiples of the median width, for Fourier features
_SAMPLE = 2000  # rows of the first chunk that are looked at
_PAIRS = 500  # of which so many for the median distance
_FEW = 3  # up to so many features that vary, distances are Euclidean
_SMALLEST = 1e-6  # eigenvalues of the landmarks' kernel matrix below this fade out of its inverse root

_REMEMBERED = 512  # rows of the last chunk, at most, that are remembered as they were mapped
_BLOCK = 2048  # rows whose kernel values stay in the cache until they are multiplied

# What comes out has 20 bits with its sign, and what is summed on the way is such that no sum can round.
_VALUE_BITS = 19
_KERNEL_BITS = 23
_ROOT_BITS = 53 - _KERNEL_BITS
_FAR = 8.0  # standard deviations from zero to the mean beyond which a feature is measured from its mean
_CEILING = 16.0  # standard deviations at which a rectified unit of a "rows" map is full
_GRID = 2.0**-19  # of coordinates whose squares are summed
_MOST = 64.0  # the farthest of these: half to this power is nothing


def _power_below(value: float) -> float:
    """The largest power of two that is not larger."""
    return float(2.0 ** np.floor(np.log2(value)))


@dataclass(frozen=True)
class ProjectionMap:
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
        _check_shapes(self, self.weights, self.starts)

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

    def _numbers(self) -> tuple[float, float, float]:
        """Amplitude, quantum and ceiling, as the native loops want them."""
        raise NotImplementedError


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

        Units that are ``full`` far beyond what rows of scale 1 can reach have 20 bits; others have room.
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
        _check_shapes(self, self.landmarks, self.root[0])
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
        factor = self.step * 2.0**-_KERNEL_BITS / self.quantum
        for begin in range(0, len(rows), _BLOCK):
            block = out[begin : begin + _BLOCK]
            kernel = values[: len(block)]
            _halvings(
                rows[begin : begin + _BLOCK],
                self.shift,
                self.scale,
                self.landmarks,
                kernel,
                euclidean=self.euclidean,
            )
            # Integers below 2**53 all the way: whoever multiplies, and in which order, the sums are the same.
            np.matmul(kernel, self.root, out=block)
            _native.round_to_grid(block, factor, self.quantum, num_threads())
        return out


def _check_shapes(settled: ProjectionMap | LandmarkMap, weights: FloatArray, outputs: FloatArray) -> None:
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
    _native.map_rows(
        "halving_2" if euclidean else "halving", rows, shift, scale, places, np.zeros(places.shape[1]),
        out, 2.0**_KERNEL_BITS, 1.0, 1.0, num_threads(),
    )  # fmt: skip


_MAPS: dict[str, type[FourierMap | ReluMap | LandmarkMap]] = {
    "fourier": FourierMap,
    "relu": ReluMap,
    "landmarks": LandmarkMap,
}


@storable("RandomFeatures")
class RandomFeatures(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    r"""A random nonlinear map that is settled once and then stays.

    In front of a linear learner it makes it nonlinear. Because the map never changes after it is
    settled, statistics of mapped rows add, subtract and merge as exactly as those of plain rows.

    Parameters
    ----------
    n_components : int, default=1000
        Number of features that come out.
    kind : {"laplacian", "rbf", "relu"}, default="laplacian"
        The kernel that is approached: ``exp(-gamma * |x - z|_1)``, ``exp(-gamma * |x - z|^2)``, or the
        one of a wide layer of rectified units.
    gamma : "rows", float or list of float, default="rows"
        Numbers decide the map by seed alone, on features as they come; several numbers share the
        components evenly. "rows" settles it by the first rows: features are brought to mean 0 and
        variance 1, widths follow the median distance, and for the Laplacian kernel the features are
        spanned by landmarks blended from neighbouring rows.
    random_state : int, default=0
        The seed. Equal seeds, parameters and first rows give equal maps.

    Attributes
    ----------
    n_features_in_ : int
        Number of features that go in.

    Notes
    -----
    Fourier features :math:`\sqrt{2/m}\cos(w^\top x + \phi)` have inner products that approach the kernel
    at a rate of :math:`1/\sqrt m`. For the Laplacian kernel with "rows", the map is instead
    :math:`z(x) = K_{LL}^{-1/2} k(L, x)` for landmarks :math:`L`, whose inner products are the best that
    the span of the landmarks allows. At most half of the landmarks are points between a row of the
    first chunk and one of its three nearest neighbours, the rest cross two of these points, feature by
    feature. No row itself is kept,
    but the landmarks show where the first rows lay; where that must not be, give ``gamma`` as numbers.

    Up to three features that vary are compared by Euclidean distance, more by the sum of absolute
    differences.

    What comes out are integers times a power of two, ``quantum``: 20 bits with the sign (rectified units
    whose ``gamma`` is a number have as many as they need). A row has the same bits whether it comes alone
    or among a million, dense or sparse, on one thread or many, at any instruction level: sums on the way
    are of numbers so short that they cannot round, or always go from the first feature to the last.

    Examples
    --------
    >>> import numpy as np
    >>> from steelyard import RandomFeatures
    >>> X = np.random.default_rng(0).normal(size=(200, 3))
    >>> Z = RandomFeatures(500, kind="rbf", gamma=0.5).fit_transform(X)
    >>> exact = np.exp(-0.5 * np.square(X[0] - X[1]).sum())
    >>> bool(abs(Z[0] @ Z[1] - exact) < 0.1)
    True
    """

    _constraints: ClassVar[Mapping[str, Constraint]] = {
        "n_components": Integer(1),
        "kind": OneOf("laplacian", "rbf", "relu"),
        "gamma": Former(
            AnyOf(OneOf("rows"), Positive(), ListOf(Positive())),
            auto="gamma='auto' is 1 / n_features in learners and was another rule here; write gamma='rows' "
            "for what it was",
        ),
        "random_state": Integer(0),
    }

    def __init__(
        self,
        n_components: int = 1000,
        *,
        kind: str = "laplacian",
        gamma: str | float | list[float] = "rows",
        random_state: int = 0,
    ) -> None:
        self.n_components = n_components
        self.kind = kind
        self.gamma = gamma
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: object = None) -> Self:  # noqa: ARG002 - scikit-learn passes labels
        """Settle the map by the first rows.

        Parameters
        ----------
        X : {array-like, sparse matrix, table} of shape (n_samples, n_features)
            First rows; with numbers for ``gamma`` only their width counts.
        y : ignored
            Labels play no part.

        Returns
        -------
        self
        """
        check_params(self, self._constraints)
        try:
            X = validate_data(self, X, accept_sparse="csr", dtype=np.float64)
        except ValueError as error:
            raise DataError(f"{error}", who="RandomFeatures.fit") from error
        self._map = _settle(self, X)
        return self

    def transform(self, X: ArrayLike) -> FloatArray:
        """Map rows.

        Parameters
        ----------
        X : {array-like, sparse matrix, table} of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        ndarray of shape (n_samples, n_components)
        """
        if not self.is_settled:
            raise NotFittedError(
                "this map is not fitted yet.",
                who="RandomFeatures.transform",
                hint="call fit() with the first rows",
            )
        try:
            X = validate_data(self, X, accept_sparse="csr", dtype=np.float64, reset=False)
        except ValueError as error:
            raise DataError(f"{error}", who="RandomFeatures.transform") from error
        return self._map.apply(X)

    @property
    def is_settled(self) -> bool:
        """Whether the map is fixed."""
        return "_map" in self.__dict__

    @property
    def _n_features_out(self) -> int:
        """For the names of columns, where scikit-learn's ``set_output`` asks for a table."""
        return self.map_rows(np.zeros((1, self.n_features_in_))).shape[1]

    @property
    def quantum(self) -> float:
        """The power of two that all values of a settled map are multiples of."""
        return self._map.quantum

    def settled(self, X: Any) -> RandomFeatures:
        """A fixed map: a copy of this one if it is settled already, else one settled by these rows."""
        if not self.is_settled:
            twin = type(self)(**self.get_params(deep=False))
            return twin.fit(check_array(X, accept_sparse="csr", dtype=np.float64))
        if X.shape[1] != self.n_features_in_:
            raise DataError(
                f"the map was settled for {self.n_features_in_} features; got {X.shape[1]}.",
                who="RandomFeatures",
            )
        return copy.copy(self)

    def settled_for(self, n_features: int) -> RandomFeatures:
        """A fixed map for rows of a width, where the seed and the width alone decide it."""
        if not self.is_settled and self.gamma == "rows":
            raise DataError(
                'gamma="rows" follows the first rows, so the width of the rows does not settle the map.',
                who="RandomFeatures",
                hint="settle one map first, RandomFeatures(...).fit(X), and give it to all learners",
            )
        return self.settled(sp.csr_array((1, n_features)))

    def map_rows(self, X: Any) -> FloatArray:
        """Map rows that were checked before; the result is not to be written to.

        A chunk is often asked about and then learned: the last few rows are remembered as they came out.
        """
        if sp.issparse(X) or not 1 < len(X) <= _REMEMBERED:
            return self._map.apply(X)
        settled, last = self._map, self.__dict__.get("_last_rows")
        if last is not None and last[0] is settled and np.array_equal(last[1], X):
            known: FloatArray = last[2]
            return known
        mapped = settled.apply(X)
        mapped.flags.writeable = False
        self._last_rows = settled, np.array(X), mapped  # at once: threads may ask
        return mapped

    def __getstate__(self) -> dict[str, Any]:
        state = dict(super().__getstate__())
        state.pop("_last_rows", None)
        return state

    def same_map(self, other: RandomFeatures | None) -> bool:
        """Whether two settled maps are equal to the bit."""
        if other is None:
            return False
        mine, theirs = self._get_state(), other._get_state()
        return mine.keys() == theirs.keys() and all(np.array_equal(mine[key], theirs[key]) for key in mine)

    def digest(self) -> str:
        """A name for a settled map: maps that are equal to the bit have equal names."""
        name = blake2b(digest_size=16)
        for key, value in sorted(self._get_state().items()):
            name.update(f"{key}:".encode())
            name.update(value.tobytes() if isinstance(value, np.ndarray) else repr(value).encode())
        return name.hexdigest()

    def __sklearn_is_fitted__(self) -> bool:
        return self.is_settled

    def __sklearn_clone__(self) -> RandomFeatures:
        # A settled map is part of the choice of a model, so that learners in several places share it.
        return copy.copy(self)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _get_state(self) -> dict[str, Any]:
        if not self.is_settled:
            return {}
        name = next(name for name, kind in _MAPS.items() if isinstance(self._map, kind))
        values = {field.name: getattr(self._map, field.name) for field in fields(self._map)}
        return {"map": name, "n_features": int(self.n_features_in_), **values}

    def _set_state(self, state: dict[str, Any]) -> None:
        if self.gamma == "auto":  # so it was called in older files
            self.gamma = "rows"
        values = dict(state)
        name, self.n_features_in_ = values.pop("map"), int(values.pop("n_features"))
        self._map = _earlier_map(name, values) if "mean" in values else _MAPS[name](**values)
        if len(self._map.shift) != self.n_features_in_:
            raise ValueError("the map does not have the width of the features")


def _earlier_map(name: str, values: dict[str, Any]) -> FourierMap | ReluMap | LandmarkMap:
    """A map of a file from before values were integers: the same but for what rounding changes."""
    if name == "landmarks":
        return LandmarkMap.with_root(**values)
    return FourierMap.make(**values) if name == "fourier" else ReluMap.make(**values, full=False)


def _settle(owner: RandomFeatures, X: Any) -> FourierMap | ReluMap | LandmarkMap:
    rng = np.random.default_rng(owner.random_state)
    d = X.shape[1]
    if not isinstance(owner.gamma, str):
        return _numbered_map(owner, np.zeros(d), np.ones(d), np.atleast_1d(owner.gamma), rng)
    sample = _sample(X, rng)
    mean, scale = _standardization(sample)
    rows = (sample - mean) * scale
    if owner.kind == "laplacian":
        return _landmark_map(rows, mean, scale, owner.n_components, rng)
    if owner.kind == "relu":
        return _numbered_map(owner, mean, scale, np.ones(1), rng)
    squared = _median_distance(rows, euclidean=True) ** 2
    return _numbered_map(owner, mean, scale, np.array(_WIDTHS) / squared, rng)


def _sample(X: Any, rng: np.random.Generator) -> FloatArray:
    """At most a few thousand rows, drawn by the seed."""
    if X.shape[0] > _SAMPLE:
        X = X[np.sort(rng.choice(X.shape[0], size=_SAMPLE, replace=False))]
    rows: FloatArray = X.toarray() if sp.issparse(X) else X
    return rows


def _standardization(rows: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Mean, and one over the standard deviation; a constant feature is left out by factor 0."""
    mean, deviation = rows.mean(axis=0), rows.std(axis=0)
    varies = deviation > 1e-9 * np.maximum(1.0, np.abs(mean))
    return mean, np.divide(1.0, deviation, out=np.zeros_like(deviation), where=varies)


def _numbered_map(
    owner: RandomFeatures, mean: FloatArray, scale: FloatArray, gammas: FloatArray, rng: np.random.Generator
) -> FourierMap | ReluMap:
    """Weights drawn from the spectrum of the kernel, the components shared evenly among the widths."""
    d, m = len(mean), owner.n_components
    shares = np.resize(np.asarray(gammas, dtype=np.float64), m)
    if owner.kind == "relu":
        weights = rng.normal(size=(d, m)) * np.sqrt(shares)
        return ReluMap.make(mean, scale, weights, rng.normal(size=m), full=owner.gamma == "rows")
    if owner.kind == "rbf":
        weights = rng.normal(size=(d, m)) * np.sqrt(2.0 * shares)
    else:
        weights = rng.standard_cauchy(size=(d, m)) * shares
    return FourierMap.make(mean, scale, weights, rng.uniform(0.0, 2.0 * np.pi, size=m))


def _landmark_map(
    rows: FloatArray, mean: FloatArray, scale: FloatArray, m: int, rng: np.random.Generator
) -> LandmarkMap:
    euclidean = int(np.count_nonzero(scale)) <= _FEW
    rate = 1.0 / _median_distance(rows[rng.permutation(len(rows))[:_PAIRS]], euclidean=euclidean)
    blends = _blend_neighbours(rows, max(m // 2, 1), rng, euclidean=euclidean)
    n_crossed = m - len(blends)
    first, second = rng.integers(0, len(blends), size=(2, n_crossed))
    from_first = rng.random((n_crossed, rows.shape[1])) < 0.5
    crossed = np.where(from_first, blends[first], blends[second])
    landmarks = np.concatenate([blends, crossed])
    return LandmarkMap.make(mean, scale, landmarks, rate, euclidean=euclidean)


def _blend_neighbours(
    rows: FloatArray, most: int, rng: np.random.Generator, *, euclidean: bool
) -> FloatArray:
    """Points on the way from rows to near neighbours, up to three a row: like the rows, and none of them."""
    n_rows, n_near = len(rows), min(3, len(rows) - 1)
    if n_near == 0:
        return rows
    chosen = np.concatenate([rng.permutation(n_rows) for _ in range(3)])[:most]
    distances = _distances(rows, rows, euclidean=euclidean)
    np.fill_diagonal(distances, np.inf)
    nearest = np.argpartition(distances, n_near - 1, axis=1)[:, :n_near]
    neighbours = rows[nearest[chosen, rng.integers(0, n_near, size=len(chosen))]]
    share = rng.uniform(0.0, 0.5, size=(len(chosen), 1))
    return (1.0 - share) * rows[chosen] + share * neighbours


def _median_distance(rows: FloatArray, *, euclidean: bool) -> float:
    """Median of the distances between different rows; 1 if there are none."""
    part = rows[:_PAIRS]
    distances = _distances(part, part, euclidean=euclidean)
    positive = distances[distances > 0.0]
    return float(np.median(positive)) if len(positive) else 1.0


def _distances(A: FloatArray, B: FloatArray, *, euclidean: bool) -> FloatArray:
    """Distances of all pairs, summed feature by feature: no cancellation and no third dimension."""
    total = np.zeros((len(A), len(B)))
    for a, b in zip(A.T, B.T, strict=True):
        difference = a[:, None] - b
        total += np.square(difference) if euclidean else np.abs(difference)
    return np.sqrt(total) if euclidean else total
