"""Projectron and Projectron++: a kernel perceptron that projects instead of storing."""

from __future__ import annotations

from typing import Any, ClassVar

from steelyard import _native
from steelyard._shared_text import expand_shared_text
from steelyard.base import Traits
from steelyard.kernels import SequenceKernel
from steelyard.online.kernel_machines import KernelListLearner
from steelyard.online.targets import Signs
from steelyard.params import Constraint, Positive, Switch
from steelyard.persistence import storable

__all__ = ["Projectron"]


@expand_shared_text
@storable("Projectron")
class Projectron(KernelListLearner):
    r"""Kernel perceptron with a short list of support vectors: samples close to their span are projected.

    Parameters
    ----------
    threshold : float, default=0.1
        Largest distance of a sample to the span of the support vectors, in feature space, at which it is
        projected instead of stored.
    margin : bool, default=False
        Whether to act also on correct samples with a margin below 1; True is Projectron++.
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
    Let :math:`P` project onto the span of the support vectors and :math:`\delta` be the distance of
    :math:`k(x, \cdot)` to it. On a mistake, :math:`y f(x) \le 0`: if :math:`\delta` is at most the threshold
    :math:`\theta`, then :math:`f \leftarrow f + y P k(x, \cdot)`; otherwise the sample is stored with weight
    :math:`y`. Projectron++ also acts when :math:`0 < y f(x) < 1`: with :math:`\ell = 1 - y f(x)`, if
    :math:`\ell > \delta / \theta`, then :math:`f \leftarrow f + y \tau P k(x, \cdot)` with

    .. math::

        \tau = \min\Bigl(\frac{\ell}{\lVert P k(x, \cdot) \rVert^2},
        \; \frac{2 (\ell - \delta / \theta)}{\lVert P k(x, \cdot) \rVert^2}, \; 1\Bigr) .

    The kernel matrix of the support vectors is kept as its Cholesky factor, which grows by a row for each of
    them. The first sample is always stored. The list cannot grow without end where the rows are bounded.

    References
    ----------
    F. Orabona, J. Keshet, B. Caputo: Bounded kernel-based online learning. Journal of Machine Learning
    Research 10, 2009.

    Examples
    --------
    >>> import numpy as np
    >>> from steelyard.online import Projectron
    >>> rng = np.random.default_rng(0)
    >>> y = (rng.random(500) < 0.3).astype(int)
    >>> X = rng.normal(size=(500, 2)) + 3.0 * y[:, None]
    >>> bool(Projectron().partial_fit(X, y).score(X, y) > 0.9)
    True
    """

    _constraints: ClassVar[dict[str, Constraint]] = KernelListLearner._constraints | {
        "threshold": Positive(),
        "margin": Switch(),
    }
    _traits = Traits(exact=False, bounded_memory=False)

    def __init__(
        self,
        threshold: float = 0.1,
        *,
        margin: bool = False,
        kernel: str | SequenceKernel = "rbf",
        gamma: float | str = 1.0,
        degree: int = 3,
        coef0: float = 0.0,
    ) -> None:
        self.threshold = threshold
        self.margin = margin
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0

    def _learn_rows(self, rows: Any, signs: Signs) -> None:
        _native.projectron_sweep(
            self._lists, rows, signs, threshold=float(self.threshold), margin=bool(self.margin)
        )
