"""Online kernel learners with which KOIL is compared: NORMA, RBP, Forgetron and Projectron."""

from __future__ import annotations

from dataclasses import KW_ONLY
from typing import Any

import numpy as np
from numpy.typing import NDArray

from steelyard import _native
from steelyard._concurrency import synchronized
from steelyard._threads import num_threads
from steelyard._types import FloatArray
from steelyard.base import Batch, Traits, fitted_property
from steelyard.exceptions import ParameterError
from steelyard.explanation.attribution import Attribution, explain_kernel_sum
from steelyard.explanation.neighbors import RememberedRows
from steelyard.online.base import KernelLearner, KernelParameters, Signs
from steelyard.params import (
    MAX_COUNT,
    AnyOf,
    Fraction,
    Integer,
    NonNegative,
    OneOf,
    Positive,
    RandomSeed,
    Switch,
    parameter,
    parametrized,
)
from steelyard.persistence import storable

_NUMBERS = ("bias", "margin", "deviation", "mistakes", "seen")


class KernelExpansionLearner(KernelParameters, KernelLearner):
    """Base class of NORMA, RBP, Forgetron and Projectron, whose update rule is ``_learn_rows``."""

    _expansions: list[Any]  # native KernelExpansion64 or KernelExpansion32 objects, one for each target
    _dtype: np.dtype[Any]

    def _stored_rows(self) -> NDArray[Any]:
        return np.concatenate([expansion.vectors for expansion in self._expansions])

    def _start(self, batch: Batch) -> None:
        super()._start(batch)
        self._expansions = []
        self._dtype = np.dtype(np.float64) if self._store is not None else batch.X.dtype

    def _add_target(self) -> None:
        self._expansions.append(_expansion_type(self._dtype)(self._specs()[0], self._width()))

    def _copy_target(self) -> None:
        self._expansions += self._copied()[:1]

    def _copy_machines(self) -> None:
        if self._store is not None:
            self._store = self._store.copy()
        self._expansions = self._copied()

    def _copied(self, dtype: np.dtype[Any] | None = None) -> list[Any]:
        return [self._build(_describe(expansion), dtype) for expansion in self._expansions]

    def _convert_rows(self, X: NDArray[Any]) -> NDArray[Any]:
        if self._dtype == np.float32 and X.dtype == np.float64:
            self._dtype = X.dtype
            self._expansions = self._copied()
        return X.astype(self._dtype, copy=False)

    def _target_scores(self, X: NDArray[Any]) -> FloatArray:
        if isinstance(X, list):
            blocks = [self._kernels[0].block(X, self._vectors(e)) for e in self._expansions]
            return np.array([b @ e.coef + e.bias for b, e in zip(blocks, self._expansions, strict=True)])
        dtype = np.promote_types(self._dtype, X.dtype)
        expansions = self._expansions if dtype == self._dtype else self._copied(dtype)
        rows = X.astype(dtype, copy=False)
        return np.array([expansion.scores(rows, num_threads()) for expansion in expansions])

    def _vectors(self, expansion: Any) -> Any:
        """Return the support vectors of an expansion in the format of the caller."""
        return self._to_samples(np.asarray(expansion.vectors))

    @fitted_property
    @synchronized
    def support_vectors_(self) -> Any:
        """Support vectors: an array for two classes, a list with one array per class for more classes.

        With a sequence kernel, each array is a list of sequences instead.
        """
        vectors = [self._vectors(expansion) for expansion in self._expansions]
        return vectors[0] if len(vectors) == 1 else [vectors[i] for i in self._class_order()]

    @fitted_property
    @synchronized
    def dual_coef_(self) -> list[FloatArray] | FloatArray:
        """Weights of the support vectors, in the same form as ``support_vectors_``."""
        if len(self._expansions) == 1:
            return self._by_class(np.asarray(self._expansions[0].coef)[None])[0]
        oriented = zip(self._expansions, self._orientation(), strict=True)
        weights = [np.asarray(expansion.coef) * sign for expansion, sign in oriented]
        return [weights[i] for i in self._class_order()]

    def _remembered_rows(self) -> RememberedRows:
        rows = np.asarray(self._stored_rows(), dtype=np.float64)
        if len(self._expansions) > 1 or len(self._labels) < 2:
            return RememberedRows(rows)
        # The sign of the weight of a support vector is its class.
        labels = [self._labels[int(weight <= 0.0)] for weight in self._expansions[0].coef]
        return RememberedRows(rows, np.array(labels, dtype=object))

    def _attribution(self, X: FloatArray, background: FloatArray | None) -> Attribution:
        parts = [
            explain_kernel_sum(
                X,
                self._kernels[0],
                np.asarray(e.vectors),
                np.asarray(e.coef)[None],
                np.array([e.bias]),
                background=background,
            )
            for e in self._expansions
        ]
        contributions = self._by_class(np.stack([part.contributions[:, :, 0] for part in parts]))
        base = self._by_class(np.concatenate([part.base for part in parts]) - self._target_thresholds())
        return Attribution(np.ascontiguousarray(contributions.transpose(1, 2, 0)), base)

    def _machines_state(self) -> dict[str, Any]:
        return {
            "kernel": self._kernels[0].to_tree(),
            "dtype": self._dtype.name,
            "lists": [_describe(e) | {"vectors": self._vectors(e)} for e in self._expansions],
        }

    def _set_machines_state(self, state: dict[str, Any]) -> None:
        self._restore_kernels([state["kernel"]], state["dtype"])
        self._dtype = np.dtype(state["dtype"])
        self._expansions = [
            self._build(description | {"vectors": self._to_rows(description["vectors"])})
            for description in state["lists"]
        ]
        widths = {expansion.n_features for expansion in self._expansions}
        if len(self._expansions) != self._n_targets() or widths != {self._width()}:
            raise ValueError("the kernel expansions do not match the labels or the features")

    def _build(self, description: dict[str, Any], dtype: np.dtype[Any] | None = None) -> Any:
        dtype = self._dtype if dtype is None else dtype
        arrays = {
            "vectors": np.ascontiguousarray(description["vectors"], dtype=dtype),
            "coef": np.ascontiguousarray(description["coef"], dtype=np.float64),
            "times": np.ascontiguousarray(description["times"], dtype=np.uint64),
        }
        numbers = {name: description[name] for name in _NUMBERS}
        if not all(np.isfinite(values).all() for values in (*arrays.values(), *numbers.values())):
            raise ValueError("a kernel expansion contains values that are not finite")
        return _expansion_type(dtype).from_state(self._specs()[0], **arrays, **numbers)


@storable("NORMA")
@parametrized()
class NORMA(KernelExpansionLearner):
    r"""NORMA: stochastic gradient descent on the soft margin loss with a kernel, in the nu parametrization.

    Parameters
    ----------
    learning_rate : float, default=0.1
        Step size.
    regularization : float, default=0.01
        Decay of old weights; its product with ``learning_rate`` must be below 1.
    nu : float, default=0.1
        Target fraction of samples inside the margin, between 0 and 1.
    memory : int, optional
        Number of samples after which a support vector is dropped. None keeps all, so the memory use grows.
    kernel, gamma, degree, coef0
        As in all online kernel learners.

    Attributes
    ----------
    classes_, support_vectors_, dual_coef_, n_features_in_, feature_names_in_
        As in all online kernel learners.

    Notes
    -----
    With learning rate :math:`\eta`, regularization :math:`\lambda` and margin :math:`\rho` (0 at first), at
    every sample :math:`\sigma = 1` if :math:`y (f(x) + b) \le \rho`, else 0. Then

    .. math::

        a_i \leftarrow (1 - \eta \lambda) a_i, \quad a_{new} = \eta \sigma y, \quad
        b \leftarrow b + \eta \sigma y, \quad \rho \leftarrow \rho + \eta (\nu - \sigma) ,

    and samples with :math:`\sigma = 0` are not stored. ``memory`` keeps only the terms of the last ``memory``
    samples.

    References
    ----------
    J. Kivinen, A. J. Smola, R. C. Williamson: Online learning with kernels. IEEE Transactions on Signal
    Processing 52, 2004.

    Examples
    --------
    rows X of two classes y
        As in all examples of online learners.
    >>> bool(online.NORMA().partial_fit(X, y).score(X, y) > 0.9)
    True
    """

    _traits = Traits(bounded_memory=False)

    learning_rate: float = parameter(0.1, Positive())
    regularization: float = parameter(0.01, NonNegative())
    _: KW_ONLY
    nu: float = parameter(0.1, Fraction())
    memory: int | None = parameter(None, AnyOf(OneOf(None), Integer(1, MAX_COUNT)))

    def _check_params(self) -> None:
        super()._check_params()
        if self.learning_rate * self.regularization >= 1.0:
            raise ParameterError(
                "learning_rate * regularization must be below 1, otherwise old weights change sign; "
                f"got {self.learning_rate!r} * {self.regularization!r}.",
                source="NORMA",
            )

    def _learn_rows(self, rows: Any, signs: Signs) -> None:
        _native.norma_sweep(
            self._expansions,
            rows,
            signs,
            learning_rate=float(self.learning_rate),
            regularization=float(self.regularization),
            nu=float(self.nu),
            memory=0 if self.memory is None else int(self.memory),
        )


@storable("RBP")
@parametrized()
class RBP(KernelExpansionLearner):
    r"""Randomized budget perceptron: removes a random support vector when the budget is exceeded.

    Parameters
    ----------
    budget : int, default=100
        Maximum number of support vectors.
    kernel, gamma, degree, coef0
        As in all online kernel learners.
    random_state : int, RandomState or Generator, optional
        Seed of the random removals.

    Attributes
    ----------
    classes_, support_vectors_, dual_coef_, n_features_in_, feature_names_in_
        As in all online kernel learners.

    Notes
    -----
    On a mistake, :math:`y f(x) \le 0`, the sample is stored with weight :math:`y`; if the budget is full, a
    support vector drawn uniformly is removed first. Nothing else changes.

    References
    ----------
    G. Cavallanti, N. Cesa-Bianchi, C. Gentile: Tracking the best hyperplane with a simple budget perceptron.
    Machine Learning 69, 2007.

    Examples
    --------
    rows X of two classes y
        As in all examples of online learners.
    >>> bool(online.RBP(random_state=0).partial_fit(X, y).score(X, y) > 0.9)
    True
    """

    budget: int = parameter(100, Integer(1, MAX_COUNT))
    _: KW_ONLY
    random_state: Any = parameter(None, RandomSeed())

    def _learn_rows(self, rows: Any, signs: Signs) -> None:
        _native.random_budget_sweep(self._expansions, rows, signs, budget=int(self.budget), seed=self._seed)


@storable("Forgetron")
@parametrized()
class Forgetron(KernelExpansionLearner):
    r"""Forgetron: kernel perceptron that shrinks its weights before it removes the oldest support vector.

    Parameters
    ----------
    budget : int, default=100
        Maximum number of support vectors.
    kernel, gamma, degree, coef0
        As in all online kernel learners.

    Attributes
    ----------
    classes_, support_vectors_, dual_coef_, n_features_in_, feature_names_in_
        As in all online kernel learners.

    Notes
    -----
    This is the self-tuned form. On a mistake, :math:`y f(x) \le 0`, the sample is stored with weight
    :math:`y`. If this exceeds the budget, let :math:`\sigma` be the absolute weight of the oldest support
    vector, :math:`\mu = y_r f(x_r)` its margin and :math:`M` the number of mistakes so far. All weights are
    multiplied by the largest :math:`\phi \in (0, 1]` with

    .. math::

        Q + \Psi(\sigma \phi, \mu \phi) \le \tfrac{15}{32} M, \qquad
        \Psi(\lambda, \mu) = \lambda^2 + 2\lambda - 2\lambda\mu ,

    :math:`Q` grows by :math:`\Psi(\sigma \phi, \mu \phi)`, and the oldest support vector is removed.

    References
    ----------
    O. Dekel, S. Shalev-Shwartz, Y. Singer: The Forgetron: a kernel-based perceptron on a budget. SIAM Journal
    on Computing 37, 2008.

    Examples
    --------
    rows X of two classes y
        As in all examples of online learners.
    >>> bool(online.Forgetron().partial_fit(X, y).score(X, y) > 0.9)
    True
    """

    budget: int = parameter(100, Integer(1, MAX_COUNT))

    def _learn_rows(self, rows: Any, signs: Signs) -> None:
        _native.forgetron_sweep(self._expansions, rows, signs, budget=int(self.budget))


@storable("Projectron")
@parametrized()
class Projectron(KernelExpansionLearner):
    r"""Projectron: kernel perceptron that projects samples onto the span of its support vectors.

    Parameters
    ----------
    threshold : float, default=0.1
        Largest distance of a sample to the span of the support vectors, in feature space, at which it is
        projected instead of stored.
    margin : bool, default=False
        Whether to update also on correct samples with a margin below 1; True is Projectron++.
    kernel, gamma, degree, coef0
        As in all online kernel learners.

    Attributes
    ----------
    classes_, support_vectors_, dual_coef_, n_features_in_, feature_names_in_
        As in all online kernel learners.

    Notes
    -----
    Let :math:`P` project onto the span of the support vectors and :math:`\delta` be the distance of
    :math:`k(x, \cdot)` to it. On a mistake, :math:`y f(x) \le 0`: if :math:`\delta` is at most the threshold
    :math:`\theta`, then :math:`f \leftarrow f + y P k(x, \cdot)`; otherwise the sample is stored with weight
    :math:`y`. Projectron++ also updates when :math:`0 < y f(x) < 1`: with :math:`\ell = 1 - y f(x)`, if
    :math:`\ell > \delta / \theta`, then :math:`f \leftarrow f + y \tau P k(x, \cdot)` with

    .. math::

        \tau = \min\Bigl(\frac{\ell}{\lVert P k(x, \cdot) \rVert^2},
        \; \frac{2 (\ell - \delta / \theta)}{\lVert P k(x, \cdot) \rVert^2}, \; 1\Bigr) .

    The kernel matrix of the support vectors is stored as its Cholesky factor, which grows by one row per
    support vector. The first sample is always stored. The number of support vectors stays finite if the rows
    are bounded.

    References
    ----------
    F. Orabona, J. Keshet, B. Caputo: Bounded kernel-based online learning. Journal of Machine Learning
    Research 10, 2009.

    Examples
    --------
    rows X of two classes y
        As in all examples of online learners.
    >>> bool(online.Projectron().partial_fit(X, y).score(X, y) > 0.9)
    True
    """

    _traits = Traits(bounded_memory=False)

    threshold: float = parameter(0.1, Positive())
    _: KW_ONLY
    margin: bool = parameter(False, Switch())

    def _learn_rows(self, rows: Any, signs: Signs) -> None:
        _native.projectron_sweep(
            self._expansions, rows, signs, threshold=float(self.threshold), margin=bool(self.margin)
        )


def _expansion_type(dtype: np.dtype[Any]) -> Any:
    return _native.KernelExpansion32 if dtype == np.float32 else _native.KernelExpansion64


def _describe(expansion: Any) -> dict[str, Any]:
    arrays = {"vectors": expansion.vectors, "coef": expansion.coef, "times": expansion.times}
    return arrays | {name: getattr(expansion, name) for name in _NUMBERS}
