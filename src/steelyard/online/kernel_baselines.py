"""Online kernel learners with which KOIL is compared: NORMA, RBP, Forgetron and Projectron."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

from steelyard import _native
from steelyard._shared_text import expand_shared_text
from steelyard.base import Traits
from steelyard.exceptions import ParameterError
from steelyard.online.base import Signs
from steelyard.online.kernel_base import KernelExpansionLearner
from steelyard.params import (
    MAX_COUNT,
    AnyOf,
    Constraint,
    Fraction,
    Integer,
    NonNegative,
    OneOf,
    Positive,
    RandomSeed,
    Switch,
)
from steelyard.persistence import storable


@expand_shared_text
@storable("NORMA")
@dataclass(eq=False, repr=False)
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

    _constraints: ClassVar[dict[str, Constraint]] = KernelExpansionLearner._constraints | {
        "learning_rate": Positive(),
        "regularization": NonNegative(),
        "nu": Fraction(),
        "memory": AnyOf(OneOf(None), Integer(1, MAX_COUNT)),
    }
    _traits = Traits(bounded_memory=False)

    learning_rate: float = 0.1
    regularization: float = 0.01
    _: KW_ONLY
    nu: float = 0.1
    memory: int | None = None

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


@expand_shared_text
@storable("RBP")
@dataclass(eq=False, repr=False)
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

    _constraints: ClassVar[dict[str, Constraint]] = KernelExpansionLearner._constraints | {
        "budget": Integer(1, MAX_COUNT),
        "random_state": RandomSeed(),
    }

    budget: int = 100
    _: KW_ONLY
    random_state: Any = None

    def _learn_rows(self, rows: Any, signs: Signs) -> None:
        _native.random_budget_sweep(self._expansions, rows, signs, budget=int(self.budget), seed=self._seed)


@expand_shared_text
@storable("Forgetron")
@dataclass(eq=False, repr=False)
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

    _constraints: ClassVar[dict[str, Constraint]] = KernelExpansionLearner._constraints | {
        "budget": Integer(1, MAX_COUNT),
    }

    budget: int = 100

    def _learn_rows(self, rows: Any, signs: Signs) -> None:
        _native.forgetron_sweep(self._expansions, rows, signs, budget=int(self.budget))


@expand_shared_text
@storable("Projectron")
@dataclass(eq=False, repr=False)
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

    _constraints: ClassVar[dict[str, Constraint]] = KernelExpansionLearner._constraints | {
        "threshold": Positive(),
        "margin": Switch(),
    }
    _traits = Traits(bounded_memory=False)

    threshold: float = 0.1
    _: KW_ONLY
    margin: bool = False

    def _learn_rows(self, rows: Any, signs: Signs) -> None:
        _native.projectron_sweep(
            self._expansions, rows, signs, threshold=float(self.threshold), margin=bool(self.margin)
        )
