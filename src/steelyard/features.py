"""Random feature maps: fixed once settled, and therefore as mergeable as the rows themselves."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import fields
from hashlib import blake2b
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_array, validate_data

from steelyard._memory import check_fits_memory
from steelyard._types import FloatArray
from steelyard.exceptions import DataError, NotFittedError
from steelyard.feature_maps import FourierMap, LandmarkMap, ReluMap, SettledMap
from steelyard.params import (
    MAX_COUNT,
    AnyOf,
    Constraint,
    Former,
    Integer,
    ListOf,
    OneOf,
    Positive,
    check_params,
)
from steelyard.persistence import storable

__all__ = ["RandomFeatures"]

_WIDTHS = (0.05, 0.25, 1.0, 4.0)  # multiples of the median width, for Fourier features
_SAMPLE = 2000  # rows of the first chunk that are looked at
_SQUARED = 1e100  # sums of squares of smaller values are finite
_PAIRS = 500  # of which so many for the median distance
_FEW = 3  # up to so many features that vary, distances are Euclidean

_REMEMBERED = 512  # rows of the last chunk, at most, that are remembered as they were mapped

_MAPS: dict[str, type[SettledMap]] = {
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
        "n_components": Integer(1, MAX_COUNT),
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
            raise DataError(f"{error}", source="RandomFeatures.fit") from error
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
                source="RandomFeatures.transform",
                hint="call fit() with the first rows",
            )
        try:
            X = validate_data(self, X, accept_sparse="csr", dtype=np.float64, reset=False)
        except ValueError as error:
            raise DataError(f"{error}", source="RandomFeatures.transform") from error
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
                source="RandomFeatures",
            )
        return copy.copy(self)

    def settled_for(self, n_features: int) -> RandomFeatures:
        """A fixed map for rows of a width, where the seed and the width alone decide it."""
        if not self.is_settled and self.gamma == "rows":
            raise DataError(
                'gamma="rows" follows the first rows, so the width of the rows does not settle the map.',
                source="RandomFeatures",
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

    def inside(self, X: FloatArray) -> FloatArray:
        """What the features of rows are linear in; rows that are learned next are mapped from it."""
        inside = self._map.inside(X)
        if 1 < len(X) <= _REMEMBERED:
            self._last_inside = self._map, np.array(X), inside  # at once: threads may ask
        return inside

    def native_inside(self) -> tuple[Any, ...]:
        """What :meth:`inside` calls natively: function, arrays and numbers."""
        return self._map.native_inside()

    def carried_inside(self, coef: FloatArray) -> FloatArray:
        """Planes over the features as planes over what :meth:`inside` gives; features are rounded there."""
        return self._map.carried_inside(coef)

    def map_from_inside(self, X: FloatArray) -> FloatArray:
        """The same bits as :meth:`map_rows`, by way of :meth:`inside` and without threads of other libraries.

        Those would get in the way of learners that work side by side.
        """
        last = self.__dict__.get("_last_inside")
        if last is not None and last[0] is self._map and np.array_equal(last[1], X):
            return self._map.completed(last[2])
        return self._map.completed(self._map.inside(X))

    def __getstate__(self) -> dict[str, Any]:
        state = dict(super().__getstate__())
        state.pop("_last_rows", None)
        state.pop("_last_inside", None)
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


def _earlier_map(name: str, values: dict[str, Any]) -> SettledMap:
    """A map of a file from before values were integers: the same but for what rounding changes."""
    if name == "landmarks":
        return LandmarkMap.with_root(**values)
    return FourierMap.make(**values) if name == "fourier" else ReluMap.make(**values, full=False)


def _settle(owner: RandomFeatures, X: Any) -> SettledMap:
    rng = np.random.default_rng(owner.random_state)
    d = X.shape[1]
    check_fits_memory(
        8 * d * owner.n_components, f"a map of {d:,} x {owner.n_components:,}", "take fewer n_components"
    )
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
    largest = np.abs(rows).max(axis=0, initial=0.0)
    unit = np.where(largest > _SQUARED, largest, 1.0)  # of columns whose squares would overflow
    mean, deviation = rows.mean(axis=0), (rows / unit).std(axis=0) * unit
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
