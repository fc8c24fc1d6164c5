"""KOIL: kernelized online imbalanced learning with two budgets of support vectors."""

from __future__ import annotations

from typing import Any, ClassVar

from numpy.typing import NDArray

from steelyard._concurrency import synchronized
from steelyard._shared_text import expand_shared_text
from steelyard._types import FloatArray
from steelyard.base import Traits
from steelyard.kernels import Kernel, SequenceKernel
from steelyard.online.kernel_parameters import KERNEL_CONSTRAINTS, settled_gamma, settled_kernel
from steelyard.online.koil_machines import KoilLearner
from steelyard.params import Constraint
from steelyard.persistence import storable

__all__ = ["KOIL"]


@expand_shared_text
@storable("KOIL")
class KOIL(KoilLearner):
    r"""Kernel classifier that ranks a rare class above a frequent one, from a stream, in bounded memory.

    Each class has a buffer of support vectors of its own, so the frequent class cannot crowd out the rare
    one. A new sample is compared with the support vectors of the other class; where the order of the scores
    is wrong or too close, a gradient step on the pairwise loss (a bound on 1 - AUC) pushes the sample and its
    nearest offenders apart.

    Parameters
    ----------
    C : float, default=1.0
        Weight of the losses against the decay of old weights.
    budget : int or pair of int, default=100
        Support vectors kept of each class, or of the positive and of the negative one, (n_positive,
        n_negative). A pair is for two classes, of which the second in sorted order is the positive one; the
        rows of the first call must have both.
    n_neighbors : int, default=10
        Most support vectors of the other class that one sample acts on, the most similar first.
    learning_rate : float, default=0.01
        Size of a step, and share by which all weights decay at every sample. Between 0 and 1.
    rate_decay : float, default=0.0
        How fast that falls with the trials: the t-th sample has ``learning_rate / t**rate_decay``. 0 keeps it
        constant, as in all experiments of the thesis; 0.5 is what its regret bound asks for.
    loss : {"hinge", "smooth"}, default="hinge"
        Pairwise hinge loss, or its square.
    policy : {"reservoir++", "fifo++", "reservoir", "fifo", "unbounded"}, default="reservoir++"
        Who leaves a full buffer: a uniform sample of all rows of the class stays ("reservoir"), or the
        newest stay ("fifo"). With "++" the weight of whoever leaves goes to the most similar one that
        stays. "unbounded" keeps all.
    kernel : {"rbf", "linear", "polynomial", "laplacian", "sigmoid"} or sequence kernel, default="rbf"
        Kernel function, see :class:`steelyard.kernels.Kernel`. With a sequence kernel, such as
        :class:`~steelyard.kernels.GlobalAlignmentKernel`, ``X`` is a list of sequences everywhere.
    gamma : float or {"scale", "median"}, default=1.0
        Of the kernel. "median" is 1 / median distance between the rows of the first call, squared for "rbf",
        so that call should bring more than a few; "scale" as in :class:`steelyard.kernels.Kernel`.
    degree : int, default=3
        Of the polynomial kernel.
    coef0 : float, default=0.0
        Of the polynomial and sigmoid kernels.
    threshold : {"gmean", "zero"}, default="gmean"
        Where scores are cut into labels: where the geometric mean of both hit rates on the support
        vectors is largest, or at zero. It is found when a label is asked for. Ranking does not depend on it.
    random_state : int, RandomState or Generator, optional
        For the reservoirs.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Labels seen, sorted.
    support_vectors_ : ndarray of shape (n_vectors, n_features), or list of sequences
        Vectors in the buffers.
    dual_coef_ : ndarray of shape (1 or n_classes, n_vectors)
        Their weights; positive for the second class, or one row a class when there are more than two.
    intercept_ : ndarray of shape (1 or n_classes,)
        Minus the cut: ``kernel(X, support_vectors_) @ dual_coef_.T + intercept_`` is the decision function.
    n_features_in_, feature_names_in_
        As in all learners.

    See Also
    --------
    MultiKernelKOIL : Learns which of many kernels to use.
    ProximalSVC : With random features often the better ranking, and exact forgetting.

    Notes
    -----
    For a sample :math:`(x, y)`, with :math:`S` the buffer of the other class,

    .. math::

        \ell_i = \max\bigl(0,\; 1 - y (f(x) - f(s_i))\bigr), \qquad
        V = \{\text{the } k \text{ most similar } s_i \in S \text{ with } \ell_i > 0\} .

    All weights decay, :math:`a \leftarrow (1 - \eta) a`. Then, for the hinge loss,
    :math:`a_i \leftarrow a_i - \eta C y` for :math:`i \in V`, and the sample enters its buffer with weight
    :math:`\eta C y |V|`; for the smooth loss the steps are :math:`2 \eta C y \ell_i`. A sample without
    offenders is not stored, except that while a buffer is empty the first samples enter with weight
    :math:`\eta C y`. In the code: ``learning_rate`` is :math:`\eta`, ``n_neighbors`` is :math:`k`.

    The scores of the support vectors are kept up to date instead of being computed for every sample, and
    refreshed now and then so that rounding cannot build up. With more than two classes each is learned
    against the rest, from its first row on; kernel values are shared. A row of weight k is learned k times.
    ``kernel`` and its numbers, ``budget`` and ``policy`` are settled by the first rows; the other parameters
    may be changed at any time with :meth:`set_params`.

    Rows that come as float32 are kept in float32, and so are kernel values, weights and scores: that is
    faster, the more so the wider the rows and the larger the budgets. Scores agree with those of float64 to
    the rounding of float32 until one rounding decides whether a vector offends or who leaves; from there on
    the two are different learners that rank alike. Kernels of products, whose values have no bound, and a
    large ``C`` are learned in float64, whatever comes, and so is everything from the first row of doubles on.

    References
    ----------
    J. Hu, H. Yang, I. King, M. R. Lyu, A. M.-C. So: Kernelized online imbalanced learning with fixed
    budgets. AAAI 2015.

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

    _constraints: ClassVar[dict[str, Constraint]] = KoilLearner._constraints | KERNEL_CONSTRAINTS
    _traits = Traits(exact=False, bounded_memory=True)

    def __init__(
        self,
        C: float = 1.0,
        *,
        budget: int | tuple[int, int] = 100,
        n_neighbors: int = 10,
        learning_rate: float = 0.01,
        rate_decay: float = 0.0,
        loss: str = "hinge",
        policy: str = "reservoir++",
        kernel: str | SequenceKernel = "rbf",
        gamma: float | str = 1.0,
        degree: int = 3,
        coef0: float = 0.0,
        threshold: str = "gmean",
        random_state: Any = None,
    ) -> None:
        self.C = C
        self.budget = budget
        self.n_neighbors = n_neighbors
        self.learning_rate = learning_rate
        self.rate_decay = rate_decay
        self.loss = loss
        self.policy = policy
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.threshold = threshold
        self.random_state = random_state

    def _make_kernels(self, X: NDArray[Any]) -> list[Kernel]:
        return [settled_kernel(self.kernel, self.gamma, self.degree, self.coef0, X)]

    def _set_machines_state(self, state: dict[str, Any]) -> None:
        self.gamma = settled_gamma(self.gamma)
        super()._set_machines_state(state)

    def _combine(self, scores: FloatArray) -> FloatArray:
        return scores[:, 0]

    @property
    @synchronized
    def dual_coef_(self) -> FloatArray:
        """Weights of the support vectors."""
        self._need("dual_coef_")
        return self._by_class(self._coefficients()[:, 0])

    @property
    @synchronized
    def intercept_(self) -> FloatArray:
        """Minus the cuts."""
        self._need("intercept_")
        return self._by_class(-self._target_cuts())
