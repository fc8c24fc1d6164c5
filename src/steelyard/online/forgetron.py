"""Forgetron: a kernel perceptron that forgets its oldest support vector gently."""

from __future__ import annotations

from typing import Any, ClassVar

from steelyard import _native
from steelyard._shared_text import expand_shared_text
from steelyard.base import Traits
from steelyard.kernels import SequenceKernel
from steelyard.online.kernel_machines import KernelListLearner
from steelyard.online.targets import Signs
from steelyard.params import MAX_COUNT, Constraint, Integer
from steelyard.persistence import storable

__all__ = ["Forgetron"]


@expand_shared_text
@storable("Forgetron")
class Forgetron(KernelListLearner):
    r"""Kernel perceptron on a budget whose weights shrink before the oldest support vector is given up.

    Parameters
    ----------
    budget : int, default=100
        Support vectors kept.
    kernel, gamma, degree, coef0
        As in all online kernel learners.

    Attributes
    ----------
    classes_, support_vectors_, dual_coef_
        As in all online kernel learners.
    n_features_in_, feature_names_in_
        As in all learners.

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
        "budget": Integer(1, MAX_COUNT),
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

    def _learn_rows(self, rows: Any, signs: Signs) -> None:
        _native.forgetron_sweep(self._lists, rows, signs, budget=int(self.budget))
