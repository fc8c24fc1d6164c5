"""Online linear learners: AROW, and the KOIL baselines OnlinePerceptron, OAM and OPAUC."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import KW_ONLY
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from steelyard import _native
from steelyard._concurrency import synchronized
from steelyard._memory import check_fits_memory
from steelyard._types import FloatArray
from steelyard._validation import check_magnitude
from steelyard.base import Batch, fitted_property
from steelyard.explanation.attribution import Attribution, explain_linear
from steelyard.online.base import OnlineLearner, Signs
from steelyard.params import MAX_COUNT, Integer, NonNegative, Positive, RandomSeed, parameter, parametrized
from steelyard.persistence import storable
from steelyard.thresholds import gmean_threshold

Arrays = dict[str, NDArray[Any]]
Shapes = dict[str, tuple[tuple[int, ...], type]]


class LinearLearner(OnlineLearner):
    """Base class of OnlinePerceptron, OAM, OPAUC and AROW.

    A subclass defines the arrays of a target in ``_shapes`` (one is named "weights") and the update rule in
    ``_learn_arrays``.
    """

    _targets: list[Arrays]

    @abstractmethod
    def _shapes(self, n_features: int) -> Shapes:
        """Return shape and dtype of each state array of a target."""

    @abstractmethod
    def _learn_arrays(self, arrays: dict[str, list[NDArray[Any]]], X: Any, signs: Signs) -> None:
        """Learn rows and change ``arrays`` in place. Each name has a list with one array per target."""

    def _start(self, batch: Batch) -> None:
        super()._start(batch)
        self._targets = []

    def _add_target(self) -> None:
        shapes = self._shapes(self.n_features_in_)
        n_values = sum(math.prod(shape) for shape, _ in shapes.values())
        check_fits_memory(
            8 * n_values, f"{type(self).__name__} with these parameters", "use a smaller budget"
        )
        self._targets.append({name: np.zeros(shape, dtype) for name, (shape, dtype) in shapes.items()})

    def _copy_target(self) -> None:
        self._targets += _copied(self._targets[:1])

    def _copy_machines(self) -> None:
        self._targets = _copied(self._targets)

    def _learn(self, batch: Batch) -> None:
        check_magnitude(batch.X, type(self).__name__)
        super()._learn(batch)

    def _sweep(self, X: NDArray[Any], signs: Signs) -> None:
        arrays = {name: [target[name] for target in self._targets] for name in self._targets[0]}
        self._learn_arrays(arrays, X, signs)

    def _target_scores(self, X: NDArray[Any]) -> FloatArray:
        if sp.issparse(X):
            return np.array([X @ arrays["weights"] for arrays in self._targets])
        # einsum is used because the rounding of BLAS results depends on the number of rows in the call.
        rows = X.astype(np.float64, copy=False)
        return np.array([np.einsum("ij,j->i", rows, arrays["weights"]) for arrays in self._targets])

    def _target_thresholds(self) -> FloatArray:
        return np.array([self._threshold(arrays) for arrays in self._targets])

    def _threshold(self, arrays: Arrays) -> float:
        """Return the decision threshold of a target."""
        return -float(arrays["bias"][0])

    @fitted_property
    @synchronized
    def coef_(self) -> FloatArray:
        """Feature weights: one row for two classes, else one row per class."""
        return self._by_class(np.array([arrays["weights"] for arrays in self._targets]))

    @fitted_property
    @synchronized
    def intercept_(self) -> FloatArray:
        """Negative thresholds, one per row of ``coef_``."""
        return self._by_class(-self._target_thresholds())

    def _attribution(self, X: FloatArray, background: FloatArray | None) -> Attribution:
        mean = None if background is None else background.mean(axis=0)
        return explain_linear(X, self.coef_, self.intercept_, mean)

    def _machines_state(self) -> dict[str, Any]:
        return {"targets": _copied(self._targets)}

    def _set_machines_state(self, state: dict[str, Any]) -> None:
        self._targets = [self._checked(arrays) for arrays in state["targets"]]
        if len(self._targets) != self._n_targets():
            raise ValueError("the number of targets does not match the number of labels")

    def _checked(self, arrays: Arrays) -> Arrays:
        shapes = self._shapes(self.n_features_in_)
        if arrays.keys() != shapes.keys():
            raise ValueError("the arrays of a target do not match those of this learner")
        for name, (shape, dtype) in shapes.items():
            values = arrays[name]
            if values.shape != shape or values.dtype != dtype or not np.isfinite(values).all():
                raise ValueError(
                    f"the array {name!r} has the wrong shape or dtype, or contains values that are not finite"
                )
        return {name: np.ascontiguousarray(values) for name, values in arrays.items()}


@storable("OnlinePerceptron")
@parametrized()
class OnlinePerceptron(LinearLearner):
    r"""Perceptron: linear classifier with Rosenblatt's update rule.

    Attributes
    ----------
    classes_, coef_, intercept_, n_features_in_, feature_names_in_
        As in all online linear learners.

    Notes
    -----
    On a mistake, :math:`y (w^\top x + b) \le 0`, :math:`w \leftarrow w + y x` and
    :math:`b \leftarrow b + y`. There is no step size, because it would only scale :math:`w` and :math:`b`.

    References
    ----------
    F. Rosenblatt: The perceptron: a probabilistic model for information storage and organization in the
    brain. Psychological Review 65, 1958.

    Examples
    --------
    rows X of two classes y
        As in all examples of online learners.
    >>> bool(online.OnlinePerceptron().partial_fit(X, y).score(X, y) > 0.9)
    True
    """

    def _shapes(self, n_features: int) -> Shapes:
        return {"weights": ((n_features,), np.float64), "bias": ((1,), np.float64)}

    def _learn_arrays(self, arrays: dict[str, Any], X: NDArray[Any], signs: Signs) -> None:
        _native.perceptron_sweep(X, signs, **arrays)


@storable("OAM")
@parametrized()
class OAM(LinearLearner):
    r"""Online AUC maximization (OAM): passive-aggressive steps on pairs with a reservoir of the other class.

    Parameters
    ----------
    C : float, default=1.0
        Maximum step size.
    budget : int, default=100
        Size of the reservoir of each class. It cannot change after the first rows.
    random_state : int, RandomState or Generator, optional
        Seed of the reservoir sampling.

    Attributes
    ----------
    classes_, coef_, intercept_, n_features_in_, feature_names_in_
        As in all online linear learners.

    Notes
    -----
    This is the sequential form. A sample :math:`(x, y)` enters the reservoir of its class; then for every row
    :math:`z` in the reservoir of the other class, one after the other,

    .. math::

        \ell = \max\bigl(0, 1 - y w^\top (x - z)\bigr), \qquad
        w \leftarrow w + y \min\Bigl(C_t, \frac{\ell}{\lVert x - z \rVert^2}\Bigr) (x - z), \qquad
        C_t = C \max\Bigl(1, \frac{\text{rows of the other class seen}}{\text{budget}}\Bigr) .

    AUC needs no intercept. The decision threshold maximizes the geometric mean of both recalls on the
    reservoirs.

    References
    ----------
    P. Zhao, S. C. H. Hoi, R. Jin, T. Yang: Online AUC maximization. ICML 2011.

    Examples
    --------
    rows X of two classes y
        As in all examples of online learners.
    >>> bool(online.OAM(random_state=0).partial_fit(X, y).score(X, y) > 0.9)
    True
    """

    C: float = parameter(1.0, Positive())
    _: KW_ONLY
    budget: int = parameter(100, Integer(1, MAX_COUNT))
    random_state: Any = parameter(None, RandomSeed())

    def _start(self, batch: Batch) -> None:
        super()._start(batch)
        self._budget = int(self.budget)

    def _shapes(self, n_features: int) -> Shapes:
        return {
            "weights": ((n_features,), np.float64),
            "buffers": ((2, self._budget, n_features), np.float64),
            "stored": ((2,), np.uint64),
            "seen": ((2,), np.uint64),
        }

    def _learn_arrays(self, arrays: dict[str, Any], X: NDArray[Any], signs: Signs) -> None:
        _native.oam_sweep(X, signs, **arrays, C=float(self.C), seed=self._seed)

    def _threshold(self, arrays: Arrays) -> float:
        stored = zip(arrays["buffers"], arrays["stored"], strict=True)
        negative, positive = (buffer[: int(n)] @ arrays["weights"] for buffer, n in stored)
        return gmean_threshold(negative, positive)

    def _machines_state(self) -> dict[str, Any]:
        return super()._machines_state() | {"budget": self._budget}

    def _set_machines_state(self, state: dict[str, Any]) -> None:
        self._budget = int(state["budget"])
        super()._set_machines_state(state)
        if any((arrays["stored"] > self._budget).any() for arrays in self._targets):
            raise ValueError("a reservoir contains more rows than its budget")


@storable("OPAUC")
@parametrized()
class OPAUC(LinearLearner):
    r"""One-pass AUC optimization (OPAUC): gradient steps on the squared pairwise loss from class statistics.

    Parameters
    ----------
    learning_rate : float, default=0.001
        Step size. Features of large magnitude need a smaller step size, otherwise the weights diverge.
    regularization : float, default=0.0001
        Weight of the squared norm.

    Attributes
    ----------
    classes_, coef_, intercept_, n_features_in_, feature_names_in_
        As in all online linear learners.

    See Also
    --------
    steelyard.ProximalSVC : ``objective="auc"`` computes the exact minimizer of the same loss.

    Notes
    -----
    For a sample :math:`(x, y)`, with :math:`c` and :math:`S` the mean and covariance of the other class,

    .. math::

        w \leftarrow w - \eta \bigl(\lambda w - y (x - c) + (x - c)(x - c)^\top w + S w\bigr) .

    There is no update while the other class has no rows. For a class that appears late, all earlier rows
    form the other class. AUC needs no intercept. The decision threshold is the mean of the scores of both
    class means.

    References
    ----------
    W. Gao, R. Jin, S. Zhu, Z.-H. Zhou: One-pass AUC optimization. ICML 2013.

    Examples
    --------
    rows X of two classes y
        As in all examples of online learners.
    >>> bool(online.OPAUC().partial_fit(X, y).score(X, y) > 0.9)
    True
    """

    learning_rate: float = parameter(0.001, Positive())
    regularization: float = parameter(0.0001, NonNegative())

    def _shapes(self, n_features: int) -> Shapes:
        return {
            "weights": ((n_features,), np.float64),
            "means": ((2, n_features), np.float64),
            "covariances": ((2, n_features, n_features), np.float64),
            "seen": ((2,), np.uint64),
        }

    def _add_target(self) -> None:
        """Append a target. All earlier rows are negative for this target, so their statistics are merged."""
        super()._add_target()
        if len(self._targets) == 1:
            return
        new, first = self._targets[-1], self._targets[0]
        shares = first["seen"] / first["seen"].sum()
        mean = shares @ first["means"]
        deviations = first["means"] - mean
        new["means"][0] = mean
        new["covariances"][0] = (
            np.einsum("c,cij->ij", shares, first["covariances"]) + (deviations.T * shares) @ deviations
        )
        new["seen"][0] = first["seen"].sum()

    def _learn_arrays(self, arrays: dict[str, Any], X: NDArray[Any], signs: Signs) -> None:
        _native.opauc_sweep(
            X,
            signs,
            **arrays,
            learning_rate=float(self.learning_rate),
            regularization=float(self.regularization),
        )

    def _threshold(self, arrays: Arrays) -> float:
        if not arrays["seen"].all():
            return 0.0
        return float(arrays["means"].mean(axis=0) @ arrays["weights"])


@storable("AROW")
@parametrized()
class AROW(LinearLearner):
    r"""Adaptive regularization of weights (AROW): linear classifier for many columns and sparse rows.

    The time per row is proportional to its number of nonzero values, so sparse rows with 20,000 columns of
    text are fast. Both classes have the same influence, however rare one of them is.

    Parameters
    ----------
    regularization : float, default=1.0
        Larger values give smaller steps.

    Attributes
    ----------
    classes_, coef_, intercept_, n_features_in_, feature_names_in_
        As in all online linear learners.

    See Also
    --------
    steelyard.StreamClassifier : Uses AROW for rows with many columns, with forgetting and other experts.

    Notes
    -----
    Every weight has a variance :math:`\sigma_j`, 1 at first. If :math:`\ell = 1 - y (w^\top x + b) > 0`,

    .. math::

        \beta = \frac{1}{\sum_j \sigma_j x_j^2 + r}, \qquad
        w_j \leftarrow w_j + y \ell \beta \sigma_j x_j, \qquad
        \sigma_j \leftarrow \sigma_j - \beta \sigma_j^2 x_j^2,

    and the same for the intercept :math:`b`, the weight of a column of ones. A column with rare values keeps
    a large variance, so its weight is learned in large steps. Here :math:`r` is ``regularization`` times
    twice the share of the class of the row among all rows so far. Columns should have similar scales.

    References
    ----------
    K. Crammer, A. Kulesza, M. Dredze: Adaptive regularization of weight vectors. NIPS 2009.

    Examples
    --------
    >>> import numpy as np
    >>> import scipy.sparse as sp
    >>> from steelyard.online import AROW
    >>> rng = np.random.default_rng(0)
    >>> y = (rng.random(500) < 0.2).astype(int)
    >>> words = np.where(
    ...     rng.random((500, 20)) < 0.2,
    ...     rng.integers(50, size=(500, 20)) + 50 * y[:, None],
    ...     rng.integers(5000, size=(500, 20)),
    ... )
    >>> X = sp.csr_matrix((np.ones(10_000), (np.repeat(np.arange(500), 20), words.ravel())), (500, 5000))
    >>> bool(AROW().partial_fit(X[:400], y[:400]).score(X[400:], y[400:]) > 0.9)
    True
    """

    _accepts_sparse = True

    regularization: float = parameter(1.0, Positive())

    def _shapes(self, n_features: int) -> Shapes:
        return {
            "weights": ((n_features,), np.float64),
            "variances": ((n_features,), np.float64),
            "bias": ((2,), np.float64),
            "seen": ((2,), np.float64),
        }

    def _add_target(self) -> None:
        super()._add_target()
        new = self._targets[-1]
        new["variances"][:] = 1.0
        new["bias"][1] = 1.0
        if len(self._targets) > 1:  # all earlier rows are negative for the new target
            new["seen"][0] = self._targets[0]["seen"].sum()

    def _learn_arrays(self, arrays: dict[str, Any], X: Any, signs: Signs) -> None:
        rest = {**arrays, "regularization": float(self.regularization)}
        if sp.issparse(X):
            _native.sparse_arow_sweep(*sparse_arrays(X), signs, **rest)
        else:
            _native.arow_sweep(X.astype(np.float64, copy=False), signs, **rest)


def sparse_arrays(X: Any) -> tuple[FloatArray, NDArray[np.int32], NDArray[np.int64]]:
    """Return values, columns and row pointers of a CSR matrix with the dtypes that native loops expect."""
    return (
        X.data.astype(np.float64, copy=False),
        X.indices.astype(np.int32, copy=False),
        X.indptr.astype(np.int64, copy=False),
    )


def _copied(targets: list[Arrays]) -> list[Arrays]:
    return [{name: values.copy() for name, values in arrays.items()} for arrays in targets]
