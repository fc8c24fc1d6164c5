"""Forgetron: a kernel perceptron that forgets its oldest support vector gently."""

from __future__ import annotations

from typing import Any, ClassVar

from steelyard import _native
from steelyard.base import Traits
from steelyard.kernels import SequenceKernel
from steelyard.online.kernel_machines import KernelListLearner
from steelyard.online.targets import Signs
from steelyard.params import Constraint, Integer
from steelyard.persistence import storable

__all__ = ["Forgetron"]


@storable("Forgetron")
class Forgetron(KernelListLearner):
    r"""Kernel perceptron on a budget whose weights shrink before the oldest support vector is given up.

    Parameters
    ----------
    budget : int, default=100
        Support vectors kept.
    kernel : {"rbf", "linear", "polynomial", "laplacian", "sigmoid"} or sequence kernel, default="rbf"
        Kernel function, see :class:`steelyard.kernels.Kernel`; settled, with its numbers, by the first rows.
        With a sequence kernel ``X`` is a list of sequences everywhere.
    gamma : float or {"scale", "median"}, default=1.0
        Of the kernel. "median" is 1 / median distance between the first rows, "scale" as in
        :class:`steelyard.kernels.Kernel`.
    degree : int, default=3
        Of the polynomial kernel.
    coef0 : float, default=0.0
        Of the polynomial and sigmoid kernels.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Labels seen, sorted. More than two are learned one against the rest.
    support_vectors_ : ndarray of shape (n_vectors, n_features), or list of them
        Vectors kept; one array a class when there are more than two classes.
    dual_coef_ : ndarray of shape (n_vectors,), or list of them
        Their weights, positive for the second class (for the array's own class).
    n_features_in_ : int
        Number of features seen.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the features, when all names are strings.

    Notes
    -----
    This is the self-tuned form. On a mistake, :math:`y f(x) \le 0`, the sample is stored with weight
    :math:`y`. If that is one too many, let :math:`\sigma` be the size of the oldest one's weight,
    :math:`\mu = y_r f(x_r)` its margin and :math:`M` the number of mistakes so far. All weights are
    multiplied by the largest :math:`\phi \in (0, 1]` with

    .. math::

        Q + \Psi(\sigma \phi, \mu \phi) \le \tfrac{15}{32} M, \qquad
        \Psi(\lambda, \mu) = \lambda^2 + 2\lambda - 2\lambda\mu ,

    :math:`Q` grows by :math:`\Psi(\sigma \phi, \mu \phi)`, and the oldest leaves.

    References
    ----------
    O. Dekel, S. Shalev-Shwartz, Y. Singer: The Forgetron: a kernel-based perceptron on a budget. SIAM Journal
    on Computing 37, 2008.

    Examples
    --------
    >>> import numpy as np
    >>> from steelyard.online import Forgetron
    >>> rng = np.random.default_rng(0)
    >>> y = (rng.random(500) < 0.3).astype(int)
    >>> X = rng.normal(size=(500, 2)) + 3.0 * y[:, None]
    >>> bool(Forgetron().partial_fit(X, y).score(X, y) > 0.9)
    True
    """

    _constraints: ClassVar[dict[str, Constraint]] = KernelListLearner._constraints | {
        "budget": Integer(1),
    }
    _traits = Traits(exact=False, bounded_memory=True)

    def __init__(
        self,
        budget: int = 100,
        *,
        kernel: str | SequenceKernel = "rbf",
        gamma: float | str = 1.0,
        degree: int = 3,
        coef0: float = 0.0,
    ) -> None:
        self.budget = budget
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0

    def _learn_lists(self, X: Any, signs: Signs) -> None:
        _native.forgetron_sweep(self._lists, X, signs, budget=int(self.budget))
