"""MultiKernelKOIL: KOIL with several kernels and learned kernel weights."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from steelyard._concurrency import synchronized
from steelyard._shared_text import expand_shared_text
from steelyard._threads import num_threads
from steelyard._types import FloatArray
from steelyard.exceptions import ParameterError
from steelyard.kernels import Kernel, SequenceKernel
from steelyard.kernels.sequences import is_sequence_kernel
from steelyard.online.koil import KoilLearner
from steelyard.params import AnyOf, Constraint, Instance, Integer, ListOf, NonNegative, OneOf, Switch
from steelyard.persistence import storable


def default_kernels() -> list[Kernel]:
    """Return the sixteen kernels of the paper: polynomials of degree 1 to 3 and thirteen Gaussian widths.

    >>> len(default_kernels())
    16
    """
    powers = [Kernel("polynomial", gamma=1.0, degree=degree) for degree in (1, 2, 3)]
    return powers + [Kernel("rbf", gamma=0.5 / 4.0**width) for width in range(-6, 7)]


@expand_shared_text
@storable("MultiKernelKOIL")
@dataclass(eq=False, repr=False)
class MultiKernelKOIL(KoilLearner):
    r"""KOIL with multiple kernels (KOIL-MKL): kernels with small losses get large weights and more samples.

    Each kernel has its own buffers of support vectors.

    Parameters
    ----------
    kernels : list of dict, Kernel or sequence kernel, optional
        Kernels, each a :class:`steelyard.kernels.Kernel` or a dictionary of its parameters, for example
        ``[{"kernel": "rbf", "gamma": 0.5}, {"kernel": "linear"}]``. With sequence kernels, which must be of
        one type, ``X`` is a list of sequences. None selects the sixteen kernels of the paper:
        :math:`(x^\top z)^p` for p = 1, 2, 3 and :math:`\exp(-|x - z|^2 / 2 s^2)` for s = 2**-6 ... 2**6.
    combine : {"sign", "score"}, default="sign"
        Combination of the kernels: weighted vote of the signs of the scores, or weighted sum of the scores.
    decay : bool, default=False
        Whether the weights of support vectors decay by `learning_rate` at every sample, as in :class:`KOIL`.
    weight_rate : float, optional
        Rate at which the losses of a kernel reduce its weight. None means ``learning_rate * C``. With a large
        rate, a single kernel soon has all the weight.
    C, budget, n_neighbors, learning_rate, rate_decay, loss, policy, threshold, random_state
        As in :class:`KOIL`, for every kernel.
    select_first, store_all
        As in :class:`KOIL`.
    n_threads : int or None, default=1
        Number of threads for learning; each thread updates some of the kernels. None means all cores. The
        model does not depend on the number of threads. More than one thread pays off with calls of a few
        hundred rows or more.

    Attributes
    ----------
    kernel_weights_ : ndarray of shape (n_kernels,) or (n_classes, n_kernels)
        Normalized kernel weights; they sum to 1. One row per class for more than two classes.
    kernels_ : list of Kernel
        The kernels in use.
    classes_ : ndarray of shape (n_classes,)
        Labels seen, sorted.
    support_vectors_ : ndarray of shape (n_vectors, n_features), or list of sequences
        Support vectors of all kernels without duplicates.
    dual_coef_ : ndarray of shape (n_kernels, n_vectors) or (n_classes, n_kernels, n_vectors)
        Weights of the support vectors for each kernel.
    n_features_in_, feature_names_in_
        As in all learners.

    See Also
    --------
    KOIL : Uses one kernel and is faster.

    Notes
    -----
    Kernel :math:`l` learns a sample with probability :math:`w_l / \max_j w_j`. It then makes the step of
    KOIL, with decay only if `decay` is true, and

    .. math::

        w_l \leftarrow w_l \exp\Bigl(-\rho \sum_{i \in V_l} \ell_i\Bigr)

    (:math:`\ell_i^2` for the smooth loss), with `weight_rate` as :math:`\rho`, in the paper :math:`\eta C`.
    With :math:`q = w / \sum_l w_l` the decision function is :math:`F(x) = \sum_l q_l \,\mathrm{sign} f_l(x)`,
    or :math:`\sum_l q_l f_l(x)`. With one kernel and ``decay=True`` the learner is KOIL. Distances and inner
    products are computed once for all kernels that use them if this is faster. The result is bit-identical.

    The authors' program differs from the formulas of the paper, and the printed results come from the
    program: ``combine="score"``, ``decay=True``, ``weight_rate=learning_rate``, five neighbors, and Gaussians
    :math:`\exp(-\gamma |x - z|^2)` with :math:`\gamma` (not s) from 2**-6 to 2**6.

    References
    ----------
    J. Hu, H. Yang, M. R. Lyu, I. King, A. M.-C. So: Online nonlinear AUC maximization for imbalanced data
    sets. IEEE Transactions on Neural Networks and Learning Systems 29, 2018.

    Examples
    --------
    >>> import numpy as np
    >>> from steelyard import MultiKernelKOIL
    >>> rng = np.random.default_rng(0)
    >>> y = (rng.random(2000) < 0.1).astype(int)
    >>> X = rng.normal(size=(2000, 2)) * np.where(y, 0.4, 1.5)[:, None]
    >>> model = MultiKernelKOIL(random_state=0).partial_fit(X, y)
    >>> model.kernels_[int(np.argmax(model.kernel_weights_))].kernel
    'rbf'
    """

    _constraints: ClassVar[dict[str, Constraint]] = KoilLearner._constraints | {
        "kernels": AnyOf(OneOf(None), ListOf(Instance(Kernel, dict, SequenceKernel))),
        "combine": OneOf("sign", "score"),
        "decay": Switch(),
        "weight_rate": AnyOf(OneOf(None), NonNegative()),
        "n_threads": AnyOf(OneOf(None), Integer(1)),
    }

    kernels: list[Kernel | dict[str, Any] | SequenceKernel] | None = None
    _: KW_ONLY
    combine: str = "sign"
    decay: bool = False
    weight_rate: float | None = None
    n_threads: int | None = 1

    def _kernel_options(self) -> tuple[bool, float, int]:
        n_threads = num_threads() if self.n_threads is None else min(self.n_threads, num_threads())
        weight_rate = self.learning_rate * self.C if self.weight_rate is None else float(self.weight_rate)
        return self.decay, weight_rate, n_threads

    def _make_kernels(self, X: NDArray[Any]) -> list[Kernel]:
        if self.kernels is None:
            return default_kernels()
        kernels = [k if isinstance(k, Kernel) else Kernel.from_tree(k) for k in self.kernels]
        for kernel in kernels:
            if not kernel.is_native and not isinstance(X, list):
                raise ParameterError(
                    f"kernels must be given by name, or all be sequence kernels of one type; got {kernel!r}.",
                    source="MultiKernelKOIL",
                )
        return [kernel.resolve(X) for kernel in kernels]

    def _sequence_kernel(self) -> Any:
        kernels = [k.kernel if isinstance(k, Kernel) else k for k in self.kernels or ()]
        alike = len({type(kernel) for kernel in kernels}) == 1
        return kernels[0] if alike and is_sequence_kernel(kernels[0]) else None

    def _shares(self) -> FloatArray:
        """Return normalized kernel weights of shape (n_targets, n_kernels)."""
        logs = np.array([machine["log_weight"] for machine in self._machines()]).reshape(
            -1, len(self._kernels)
        )
        weights = np.exp(logs - logs.max(axis=1, keepdims=True))
        shares: FloatArray = weights / weights.sum(axis=1, keepdims=True)
        return shares

    def _scoring_rule(self) -> str:
        return self.combine

    def _combine(self, scores: FloatArray) -> FloatArray:
        votes = np.sign(scores) if self.combine == "sign" else scores
        combined: FloatArray = np.einsum("tk,tkn->tn", self._shares(), votes)
        return combined

    @property
    @synchronized
    def kernels_(self) -> list[Kernel]:
        """Kernels in use."""
        self._need("kernels_")
        return list(self._kernels)

    @property
    @synchronized
    def kernel_weights_(self) -> FloatArray:
        """Normalized kernel weights."""
        self._need("kernel_weights_")
        shares = self._shares()
        return shares[0] if len(shares) == 1 else shares[self._class_order()]

    @property
    @synchronized
    def dual_coef_(self) -> FloatArray:
        """Weights of the support vectors for each kernel."""
        self._need("dual_coef_")
        weights = self._by_class(self._coefficients())
        return weights[0] if len(weights) == 1 else weights
