"""KOIL: kernelized online imbalanced learning with two budgets of support vectors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from steelyard._concurrency import synchronized
from steelyard._shared_text import expand_shared_text
from steelyard._types import FloatArray
from steelyard.explanation.attribution import Attribution, explain_kernel_sum
from steelyard.kernels import Kernel
from steelyard.online.kernel_base import KernelParameters
from steelyard.online.koil_base import KoilLearner
from steelyard.params import Constraint
from steelyard.persistence import storable


@expand_shared_text
@storable("KOIL")
@dataclass(eq=False, repr=False)
class KOIL(KernelParameters, KoilLearner):
    r"""Kernelized online imbalanced learning (KOIL): online AUC maximization with a kernel in bounded memory.

    Each class has its own buffer of support vectors, so the frequent class cannot displace the rare one. A
    new sample is compared with the support vectors of the other class. Where the order of two scores is wrong
    or their margin is below 1, a gradient step on the pairwise loss (an upper bound on 1 - AUC) increases
    the margin between the sample and its most similar violating support vectors.

    Parameters
    ----------
    C : float, default=1.0
        Weight of the losses against the decay of old weights.
    budget : int or pair of int, default=100
        Maximum number of support vectors per class, or a pair (n_positive, n_negative). A pair needs two
        classes, of which the second in sorted order is the positive one; the first call must contain both.
    n_neighbors : int, default=10
        Maximum number of support vectors of the other class whose weights one sample changes: the
        most similar ones with a positive loss.
    learning_rate : float, default=0.01
        Step size, and fraction by which all weights decay at every sample. Between 0 and 1.
    rate_decay : float, default=0.0
        Exponent of the step size schedule: the t-th sample uses ``learning_rate / t**rate_decay``. 0 is a
        constant step size, as in all experiments of the thesis. The regret bound of the thesis assumes 0.5.
    loss : {"hinge", "smooth"}, default="hinge"
        Pairwise hinge loss, or its square.
    policy : {"reservoir++", "fifo++", "reservoir", "fifo", "unbounded"}, default="reservoir++"
        Replacement policy of a full buffer: reservoir sampling, or first in, first out. With "++" the weight
        of a removed support vector is added to the most similar remaining one. "unbounded" removes none.
    kernel, gamma, degree, coef0
        As in all online kernel learners.
    select_first : {"violators", "nearest"}, default="violators"
        Selection of the support vectors whose weights a sample changes. "violators": among the support
        vectors with a positive loss, the ``n_neighbors`` most similar ones (algorithm 2 of the thesis).
        "nearest": among the ``n_neighbors`` most similar support vectors, those with a positive loss
        (equation 3.9).
    store_all : bool, default=False
        Whether samples of weight 0 enter the buffers too (algorithm 3 of the thesis as printed). If
        True, the first samples have weight 0.
    threshold : {"gmean", "zero"}, default="gmean"
        Decision threshold: the score with the largest geometric mean of both recalls on the support vectors,
        or zero. It is computed at prediction time. AUC does not depend on it.
    random_state : int, RandomState or Generator, optional
        Seed of the reservoir sampling.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Labels seen, sorted.
    support_vectors_ : ndarray of shape (n_vectors, n_features), or list of sequences
        Support vectors of all buffers.
    dual_coef_ : ndarray of shape (1 or n_classes, n_vectors)
        Weights of the support vectors, positive for the second class; one row per class for more than two.
    intercept_ : ndarray of shape (1 or n_classes,)
        Negated threshold; the decision function is
        ``kernel(X, support_vectors_) @ dual_coef_.T + intercept_``.
    n_features_in_, feature_names_in_
        As in all learners.

    See Also
    --------
    MultiKernelKOIL : Learns weights of several kernels.
    ProximalSVC : Often a higher AUC with random features, and exact forgetting.

    Notes
    -----
    For a sample :math:`(x, y)`, with :math:`S` the buffer of the other class,

    .. math::

        \ell_i = \max\bigl(0,\; 1 - y (f(x) - f(s_i))\bigr), \qquad
        V = \{\text{the } k \text{ most similar } s_i \in S \text{ with } \ell_i > 0\} .

    All weights decay, :math:`a \leftarrow (1 - \eta) a`. Then, for the hinge loss,
    :math:`a_i \leftarrow a_i - \eta C y` for :math:`i \in V`, and the sample enters its buffer with weight
    :math:`\eta C y |V|`; for the smooth loss the steps are :math:`2 \eta C y \ell_i`. A sample with an empty
    :math:`V` is not stored, except that while a buffer is empty the first samples enter with weight
    :math:`\eta C y`. In the code: ``learning_rate`` is :math:`\eta`, ``n_neighbors`` is :math:`k`.

    The scores of the support vectors are updated incrementally and recomputed at intervals, so rounding
    errors do not accumulate. More than two classes are learned one-vs-rest, each from its first row on, with
    shared kernel values. A row of weight k is learned k times. The first rows fix ``kernel`` and its
    parameters, ``budget`` and ``policy``; :meth:`set_params` can change the other parameters at any time.

    Float32 rows are learned in float32, which is faster for wide rows and large budgets. Scores agree with
    those of float64 up to float32 rounding until a rounding difference changes :math:`V` or the removed
    support vector; from then on the two models differ, with a similar AUC. Unbounded kernels (linear,
    polynomial, sigmoid) and a large ``C`` always use float64. A float64 row converts the learner to float64.

    References
    ----------
    J. Hu, H. Yang, I. King, M. R. Lyu, A. M.-C. So: Kernelized online imbalanced learning with fixed
    budgets. AAAI 2015. The paper names the policies RS, RS++, FIFO, FIFO++ and infinity.

    Examples
    --------
    >>> import numpy as np
    >>> from steelyard import KOIL
    >>> rng = np.random.default_rng(0)
    >>> y = (rng.random(3000) < 0.05).astype(int)
    >>> X = rng.normal(size=(3000, 2)) * np.where(y, 0.4, 1.5)[:, None]
    >>> model = KOIL(random_state=0).partial_fit(X[:2000], y[:2000])
    >>> from sklearn.metrics import roc_auc_score
    >>> bool(roc_auc_score(y[2000:], model.decision_function(X[2000:])) > 0.85)
    True
    """

    _constraints: ClassVar[dict[str, Constraint]] = KoilLearner._constraints | KernelParameters._constraints

    C: float = 1.0

    def _make_kernels(self, X: NDArray[Any]) -> list[Kernel]:
        return [self._resolved_kernel(X)]

    def _set_machines_state(self, state: dict[str, Any]) -> None:
        self._convert_former_gamma()
        super()._set_machines_state(state)

    def _attribution(self, X: FloatArray, background: FloatArray | None) -> Attribution:
        vectors = np.asarray(self._ensemble.vectors, dtype=np.float64)
        coef = self._by_class(self._coefficients()[:, 0])
        intercept = self._by_class(-self._target_thresholds())
        return explain_kernel_sum(X, self._kernels[0], vectors, coef, intercept, background=background)

    def _combine(self, scores: FloatArray) -> FloatArray:
        return scores[:, 0]

    @property
    @synchronized
    def dual_coef_(self) -> FloatArray:
        """Weights of the support vectors, one row per target."""
        self._need("dual_coef_")
        return self._by_class(self._coefficients()[:, 0])

    @property
    @synchronized
    def intercept_(self) -> FloatArray:
        """Negative decision thresholds."""
        self._need("intercept_")
        return self._by_class(-self._target_thresholds())
