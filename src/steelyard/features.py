"""Random feature maps. A fitted map never changes, so statistics of mapped rows can be merged."""

from __future__ import annotations

import copy
import math
from dataclasses import KW_ONLY, fields
from hashlib import blake2b
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_array, validate_data

from steelyard._deprecation import renamed_attribute, renamed_method
from steelyard._memory import check_fits_memory
from steelyard._types import FloatArray
from steelyard.exceptions import DataError, NotFittedError
from steelyard.explanation.attribution import Attribution, explain_function, explain_kernel_sum, sampled_rows
from steelyard.feature_maps import KERNEL_BITS, FittedMap, FourierMap, LandmarkMap, ReluMap, SigmoidMap
from steelyard.kernels import Kernel
from steelyard.params import (
    MAX_COUNT,
    AnyOf,
    Former,
    Integer,
    ListOf,
    OneOf,
    Positive,
    check_params,
    parameter,
    parametrized,
)
from steelyard.persistence import storable

__all__ = ["RandomFeatures"]

_WIDTHS = (0.05, 0.25, 1.0, 4.0)  # gamma values of Fourier features in multiples of 1 / median_distance**2
_MAX_SAMPLE_ROWS = 2000  # maximum number of rows to which a map is fitted
_MAX_SQUARED_VALUE = 1e100  # sums of squares of values below this are finite
_DISTANCE_BLOCK_ROWS = 32
_MAX_DISTANCE_ROWS = 500  # maximum number of rows for computing the median distance
_MAX_EUCLIDEAN_FEATURES = 3  # up to this number of varying features, distances are Euclidean
_MAX_CACHED_ROWS = 512  # batches of up to this many rows are cached with their mapped values

_MAPS: dict[str, type[FittedMap]] = {
    "fourier": FourierMap,
    "relu": ReluMap,
    "sigmoid": SigmoidMap,
    "landmarks": LandmarkMap,
}


@storable("RandomFeatures")
@parametrized()
class RandomFeatures(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    r"""Random feature map that is fitted once and then never changes.

    It makes a linear learner nonlinear. Because a fitted map never changes, statistics of mapped rows can be
    added, subtracted and merged as exactly as statistics of the rows themselves.

    Parameters
    ----------
    n_components : int, default=1000
        Number of output features.
    kind : {"laplacian", "rbf", "relu", "sigmoid"}, default="laplacian"
        The kernel that is approximated: ``exp(-gamma * |x - z|_1)``, ``exp(-gamma * |x - z|^2)``, or the
        kernel of a wide layer of rectified linear or sigmoid units. The sigmoid layer is that of the extreme
        SVM (ESVM): weights and biases are uniform between ``-sqrt(gamma)`` and ``sqrt(gamma)``.
    gamma : "rows", float or list of float, default="rows"
        With numbers, the map depends on the seed only and does not scale features; each of several numbers
        gets an equal part of the components. With "rows", the map is fitted to the first rows: features are
        scaled to mean 0 and variance 1, kernel widths depend on the median distance, and the Laplacian
        kernel uses landmarks that are interpolated between neighbouring rows.
    random_state : int, default=0
        The seed. Equal seeds, parameters and first rows give equal maps.

    Attributes
    ----------
    n_features_in_ : int
        Number of input features.
    map_ : object
        The fitted map, for learners of this package.

    Notes
    -----
    Inner products of the Fourier features :math:`\sqrt{2/m}\cos(w^\top x + \phi)` converge to the kernel
    at the rate :math:`1/\sqrt m`. For the Laplacian kernel with "rows", the map is instead the Nyström map
    :math:`z(x) = K_{LL}^{-1/2} k(L, x)` of landmarks :math:`L`, whose inner products are the best
    approximation in the span of the landmarks. At most half of the landmarks are points between a row of the
    first batch and one of its three nearest neighbours; the others combine the features of two such points at
    random. The map stores no row itself, but the landmarks are near the first rows. If that is not
    acceptable, give numbers for ``gamma``.

    With up to three features that vary, distances are Euclidean; with more, they are sums of absolute
    differences.

    Output values are integers times a power of two, ``step``, with 20 bits including the sign (rectified
    units with a number for ``gamma`` have as many bits as they need). The output of a row is bit-identical
    alone or in a batch, dense or sparse, with one thread or many, and at any SIMD level: intermediate sums
    either have so few bits that they cannot round, or are always computed from the first feature to the last.

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

    n_components: int = parameter(1000, Integer(1, MAX_COUNT))
    _: KW_ONLY
    kind: str = parameter("laplacian", OneOf("laplacian", "rbf", "relu", "sigmoid"))
    gamma: str | float | list[float] = parameter(
        "rows",
        Former(
            AnyOf(OneOf("rows"), Positive(), ListOf(Positive())),
            auto="write gamma='rows', the current name of this value; gamma='auto' of other learners is "
            "1 / n_features",
        ),
    )
    random_state: int = parameter(0, Integer(0))

    def fit(self, X: ArrayLike, y: object = None) -> Self:  # noqa: ARG002 - scikit-learn passes labels
        """Fit the map to the first rows.

        Parameters
        ----------
        X : {array-like, sparse matrix, table} of shape (n_samples, n_features)
            First rows; with numbers for ``gamma`` only the number of features is used.
        y : ignored
            Not used.

        Returns
        -------
        self
        """
        check_params(self, self._constraints)
        self.map_ = _fit(self, self._validated(X, "fit", reset=True))
        return self

    def _validated(self, X: Any, method: str, *, reset: bool) -> Any:
        try:
            return validate_data(self, X, reset=reset, accept_sparse="csr", dtype=np.float64)
        except ValueError as error:
            raise DataError(f"{error}", source=f"RandomFeatures.{method}") from error

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
        if not self.is_fitted:
            raise NotFittedError(
                "this feature map is not fitted yet.",
                source="RandomFeatures.transform",
                hint="call fit() with the first rows",
            )
        return self.map_.apply(self._validated(X, "transform", reset=False))

    @property
    def is_fitted(self) -> bool:
        """Whether the map is fitted."""
        return "map_" in self.__dict__

    @property
    def _n_features_out(self) -> int:
        """Number of output features, for ``set_output`` of scikit-learn."""
        return self.map_rows(np.zeros((1, self.n_features_in_))).shape[1]

    @property
    def step(self) -> float:
        """Step of a fitted map, a power of two. All output values are multiples of the step."""
        return self.map_.quantum

    def fitted_on(self, X: Any) -> RandomFeatures:
        """Return a copy of this map if it is fitted, or else a map fitted to the given rows."""
        if not self.is_fitted:
            unfitted = type(self)(**self.get_params(deep=False))
            return unfitted.fit(check_array(X, accept_sparse="csr", dtype=np.float64))
        if X.shape[1] != self.n_features_in_:
            raise DataError(
                f"the map was fitted to {self.n_features_in_} features; got {X.shape[1]}.",
                source="RandomFeatures",
            )
        return copy.copy(self)

    def fitted_for(self, n_features: int) -> RandomFeatures:
        """Return a map fitted for a number of features. Raises DataError if the map depends on rows."""
        if not self.is_fitted and self.gamma == "rows":
            raise DataError(
                'a map with gamma="rows" must be fitted to rows.',
                source="RandomFeatures",
                hint="fit one feature map first, RandomFeatures(...).fit(X), and pass it to all learners",
            )
        return self.fitted_on(sp.csr_array((1, n_features)))

    is_settled = renamed_attribute("is_fitted", "is_settled")
    quantum = renamed_attribute("step", "quantum")
    settled = renamed_method("fitted_on", "settled")
    settled_for = renamed_method("fitted_for", "settled_for")

    def map_rows(self, X: Any) -> FloatArray:
        """Map validated rows. The result is read-only.

        A batch is often predicted and then learned, so the mapped rows of the last small batch are cached.
        """
        if sp.issparse(X) or not 1 < len(X) <= _MAX_CACHED_ROWS:
            return self.map_.apply(X)
        fitted, last = self.map_, self.__dict__.get("_last_rows")
        if last is not None and last[0] is fitted and np.array_equal(last[1], X):
            known: FloatArray = last[2]
            return known
        mapped = fitted.apply(X)
        mapped.flags.writeable = False
        self._last_rows = fitted, np.array(X), mapped  # a single assignment is thread-safe
        return mapped

    def typical_rows(self) -> FloatArray:
        """Return rows similar to those on which the map was fitted: its landmarks or its center."""
        fitted = self.map_
        if not isinstance(fitted, LandmarkMap):
            return np.asarray(fitted.shift)[None]
        scale = np.where(fitted.scale == 0.0, np.inf, fitted.scale)
        return np.asarray(fitted.landmarks.T / scale + fitted.shift)

    def explain_intermediates(
        self, X: FloatArray, coef: FloatArray, intercept: FloatArray, background: FloatArray
    ) -> Attribution:
        """Return the contributions of features to ``map_.intermediates(X) @ coef.T + intercept``.

        Kernel values of landmarks in more than three features are products over the features, so their
        Shapley values are computed directly. For other maps, the function is evaluated at modified rows.
        """
        fitted = self.map_
        if isinstance(fitted, LandmarkMap) and not fitted.euclidean:
            rows, other = ((part - fitted.shift) * fitted.scale for part in (X, sampled_rows(background)))
            halving = Kernel("laplacian", gamma=math.log(2.0))
            return explain_kernel_sum(
                rows, halving, fitted.landmarks.T, coef * 2.0**KERNEL_BITS, intercept, background=other
            )
        return explain_function(
            lambda rows: fitted.intermediates(rows) @ coef.T + intercept,
            X,
            background.mean(axis=0),
            np.flatnonzero(fitted.scale).tolist(),
        )

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        return {name: value for name, value in state.items() if name != "_last_rows"}

    def same_map(self, other: RandomFeatures | None) -> bool:
        """Return whether two fitted maps are bit-identical."""
        if other is None:
            return False
        mine, theirs = self._get_state(), other._get_state()
        return mine.keys() == theirs.keys() and all(np.array_equal(mine[key], theirs[key]) for key in mine)

    def digest(self) -> str:
        """Return a hash of a fitted map. Bit-identical maps have equal digests."""
        name = blake2b(digest_size=16)
        for key, value in sorted(self._get_state().items()):
            name.update(f"{key}:".encode())
            name.update(value.tobytes() if isinstance(value, np.ndarray) else repr(value).encode())
        return name.hexdigest()

    def __sklearn_is_fitted__(self) -> bool:
        return self.is_fitted

    def __sklearn_clone__(self) -> RandomFeatures:
        # clone() keeps a fitted map, because the map is a parameter that several learners may share.
        return copy.copy(self)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _get_state(self) -> dict[str, Any]:
        if not self.is_fitted:
            return {}
        name = next(name for name, kind in _MAPS.items() if isinstance(self.map_, kind))
        values = {field.name: getattr(self.map_, field.name) for field in fields(self.map_)}
        return {"map": name, "n_features": int(self.n_features_in_), **values}

    def _set_state(self, state: dict[str, Any]) -> None:
        if self.gamma == "auto":  # older files contain "auto" in place of "rows"
            self.gamma = "rows"
        values = dict(state)
        name, self.n_features_in_ = values.pop("map"), int(values.pop("n_features"))
        self.map_ = _legacy_map(name, values) if "mean" in values else _MAPS[name](**values)
        if len(self.map_.shift) != self.n_features_in_:
            raise ValueError("the feature map and the model have different numbers of features")


def _legacy_map(name: str, values: dict[str, Any]) -> FittedMap:
    """Return the map of a version 0.1 file, whose output values were not rounded."""
    if name == "landmarks":
        return LandmarkMap.with_root(**values)
    return FourierMap.make(**values) if name == "fourier" else ReluMap.make(**values, full=False)


def _fit(owner: RandomFeatures, X: Any) -> FittedMap:
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
    if owner.kind in {"relu", "sigmoid"}:
        return _numbered_map(owner, mean, scale, np.ones(1), rng)
    squared = _median_distance(rows, euclidean=True) ** 2
    return _numbered_map(owner, mean, scale, np.array(_WIDTHS) / squared, rng)


def _sample(X: Any, rng: np.random.Generator) -> FloatArray:
    """Return a random sample of at most 2,000 rows."""
    if X.shape[0] > _MAX_SAMPLE_ROWS:
        X = X[np.sort(rng.choice(X.shape[0], size=_MAX_SAMPLE_ROWS, replace=False))]
    rows: FloatArray = X.toarray() if sp.issparse(X) else X
    return rows


def _standardization(rows: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return mean and inverse standard deviation of each feature. The inverse of a constant feature is 0."""
    largest = np.abs(rows).max(axis=0, initial=0.0)
    unit = np.where(largest > _MAX_SQUARED_VALUE, largest, 1.0)  # squares of larger values overflow
    mean, deviation = rows.mean(axis=0), (rows / unit).std(axis=0) * unit
    varies = deviation > 1e-9 * np.maximum(1.0, np.abs(mean))
    return mean, np.divide(1.0, deviation, out=np.zeros_like(deviation), where=varies)


def _numbered_map(
    owner: RandomFeatures, mean: FloatArray, scale: FloatArray, gammas: FloatArray, rng: np.random.Generator
) -> FourierMap | ReluMap | SigmoidMap:
    """Return a map with weights drawn from the spectrum of the kernel, equally many for each width."""
    d, m = len(mean), owner.n_components
    shares = np.resize(np.asarray(gammas, dtype=np.float64), m)
    if owner.kind == "relu":
        weights = rng.normal(size=(d, m)) * np.sqrt(shares)
        return ReluMap.make(mean, scale, weights, rng.normal(size=m), full=owner.gamma == "rows")
    if owner.kind == "sigmoid":
        weights, biases = rng.uniform(-1.0, 1.0, size=(d, m)), rng.uniform(-1.0, 1.0, size=m)
        return SigmoidMap.make(mean, scale, weights * np.sqrt(shares), biases * np.sqrt(shares))
    if owner.kind == "rbf":
        weights = rng.normal(size=(d, m)) * np.sqrt(2.0 * shares)
    else:
        weights = rng.standard_cauchy(size=(d, m)) * shares
    return FourierMap.make(mean, scale, weights, rng.uniform(0.0, 2.0 * np.pi, size=m))


def _landmark_map(
    rows: FloatArray, mean: FloatArray, scale: FloatArray, m: int, rng: np.random.Generator
) -> LandmarkMap:
    euclidean = int(np.count_nonzero(scale)) <= _MAX_EUCLIDEAN_FEATURES
    rate = 1.0 / _median_distance(rows[rng.permutation(len(rows))[:_MAX_DISTANCE_ROWS]], euclidean=euclidean)
    blends = _blend_neighbours(rows, max(m // 2, 1), rng, euclidean=euclidean)
    n_crossed = m - len(blends)
    first, second = rng.integers(0, len(blends), size=(2, n_crossed))
    from_first = rng.random((n_crossed, rows.shape[1])) < 0.5
    crossed = np.where(from_first, blends[first], blends[second])
    landmarks = np.concatenate([blends, crossed])
    return LandmarkMap.make(mean, scale, landmarks, rate, euclidean=euclidean)


def _blend_neighbours(
    rows: FloatArray, max_points: int, rng: np.random.Generator, *, euclidean: bool
) -> FloatArray:
    """Return random points between rows and their three nearest neighbours, up to three per row."""
    n_rows, n_near = len(rows), min(3, len(rows) - 1)
    if n_near == 0:
        return rows
    chosen = np.concatenate([rng.permutation(n_rows) for _ in range(3)])[:max_points]
    numbers = np.arange(len(chosen))
    distances = _distances(rows[chosen], rows, euclidean=euclidean)
    distances[numbers, chosen] = np.inf
    nearest = np.argpartition(distances, n_near - 1, axis=1)[:, :n_near]
    neighbours = rows[nearest[numbers, rng.integers(0, n_near, size=len(chosen))]]
    share = rng.uniform(0.0, 0.5, size=(len(chosen), 1))
    return (1.0 - share) * rows[chosen] + share * neighbours


def _median_distance(rows: FloatArray, *, euclidean: bool) -> float:
    """Return the median of the nonzero distances between rows, or 1 if all rows are equal."""
    sample, of_pairs = rows[:_MAX_DISTANCE_ROWS], [np.empty(0)]
    for begin in range(0, len(sample), _DISTANCE_BLOCK_ROWS):
        block = sample[begin : begin + _DISTANCE_BLOCK_ROWS]
        distances = _distances(block, sample[begin:], euclidean=euclidean)
        n = len(block)
        of_pairs += [distances[:, :n][np.triu_indices(n, 1)], distances[:, n:].ravel()]
    distances = np.concatenate(of_pairs)
    positive = distances[distances > 0.0]
    return float(np.median(positive)) if len(positive) else 1.0


def _distances(A: FloatArray, B: FloatArray, *, euclidean: bool) -> FloatArray:
    """Return the distances of all pairs of rows, summed feature by feature to avoid cancellation."""
    out = np.zeros((len(A), len(B)))
    for begin in range(0, len(A), _DISTANCE_BLOCK_ROWS):
        total = out[begin : begin + _DISTANCE_BLOCK_ROWS]
        for a, b in zip(A[begin : begin + _DISTANCE_BLOCK_ROWS].T, B.T, strict=True):
            difference = a[:, None] - b
            total += np.square(difference) if euclidean else np.abs(difference)
        if euclidean:
            np.sqrt(total, out=total)
    return out
