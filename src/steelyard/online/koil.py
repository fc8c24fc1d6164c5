"""KOIL and MultiKernelKOIL: kernelized online imbalanced learning with two budgets of support vectors."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import KW_ONLY
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from steelyard import _native
from steelyard._concurrency import synchronized
from steelyard._threads import num_threads
from steelyard._types import FloatArray
from steelyard.base import Batch, fitted_property
from steelyard.exceptions import DataError, ParameterError
from steelyard.explanation.attribution import Attribution, explain_kernel_sum
from steelyard.explanation.neighbors import RememberedRows
from steelyard.kernels import Kernel, SequenceKernel
from steelyard.kernels.sequences import is_sequence_kernel
from steelyard.online.base import KernelLearner, KernelParameters, Signs
from steelyard.params import (
    MAX_COUNT,
    AnyOf,
    Fraction,
    Instance,
    Integer,
    ListOf,
    NonNegative,
    OneOf,
    PairOf,
    Positive,
    RandomSeed,
    Switch,
    parameter,
    parametrized,
)
from steelyard.persistence import storable
from steelyard.thresholds import gmean_threshold

_POLICIES = ("reservoir++", "fifo++", "reservoir", "fifo", "unbounded")

# Largest C for float32. Stored weights far exceed C, because they are divided by the accumulated decay.
_MAX_FLOAT32_C = 1e3


@parametrized(kw_only=True)
class KoilLearner(KernelLearner):
    """Base class of KOIL and MultiKernelKOIL. The first rows fix kernels, budget and policy."""

    C: float = parameter(1.0, Positive())
    budget: int | tuple[int, int] = parameter(
        100, AnyOf(Integer(1, MAX_COUNT), PairOf(Integer(1, MAX_COUNT)))
    )
    n_neighbors: int = parameter(10, Integer(1, MAX_COUNT))
    learning_rate: float = parameter(0.01, Fraction(0.0, 1.0, ends=False))
    rate_decay: float = parameter(0.0, Fraction(0.0, 1.0))
    loss: str = parameter("hinge", OneOf("hinge", "smooth"))
    policy: str = parameter("reservoir++", OneOf(*_POLICIES))
    select_first: str = parameter("violators", OneOf("violators", "nearest"))
    store_all: bool = parameter(False, Switch())
    threshold: str = parameter("gmean", OneOf("gmean", "zero"))
    random_state: Any = parameter(None, RandomSeed())

    def _stored_rows(self) -> NDArray[Any]:
        return self._ensemble.vectors

    def _kernel_options(self) -> tuple[bool, float, int]:
        """Return whether support vectors decay, the rate of the kernel weights, and the number of threads."""
        return True, self.learning_rate * self.C, 1

    def _start(self, batch: Batch) -> None:
        self._budgets = self._resolve_budgets(batch)
        super()._start(batch)
        self._policy = self.policy
        kind = self._ensemble_type(batch.X)
        self._set_ensemble(kind(self._width(), self._specs(), self._budgets, self._seed))

    def _resolve_budgets(self, batch: Batch) -> tuple[int, int]:
        """Return the capacity of the negative and of the positive buffer. 0 means unbounded."""
        if self.policy == "unbounded":
            return 0, 0
        if not isinstance(self.budget, list | tuple):
            return int(self.budget), int(self.budget)
        positive, negative = map(int, self.budget)
        if positive == negative:
            return positive, negative
        if len(batch.labels) != 2:
            raise ParameterError(
                f"budget={self.budget!r} needs two classes in the first rows; got {len(batch.labels)}.",
                source=type(self).__name__,
                hint="start with more rows, or pass one number for all classes",
            )
        # The positive class of the first binary model is the first label of the stream. The positive class of
        # the learner is the second label in sorted order, which has the code 1.
        counted = batch.codes if batch.weights is None else batch.codes[batch.weights > 0]
        return (negative, positive) if len(counted) and counted[0] == 1 else (positive, negative)

    def _set_ensemble(self, ensemble: Any) -> None:
        self._ensemble = ensemble  # a native KoilEnsemble64 or KoilEnsemble32
        self._thresholds: dict[Any, FloatArray] = {}  # at most one entry, the cached thresholds

    def _ensemble_type(self, rows: Any) -> Any:
        """Return the native ensemble type: float32 if weights and scores stay in the range of float32."""
        if self._store is not None or rows.dtype != np.float32:
            return _native.KoilEnsemble64
        # Gradient steps on squared losses can diverge, and float32 would overflow earlier than float64.
        stable = self.loss == "hinge" or self.learning_rate * self.C * self.n_neighbors <= 0.5
        fits = stable and self.C <= _MAX_FLOAT32_C and all(map(_has_float32_values, self._kernels))
        return _native.KoilEnsemble32 if fits else _native.KoilEnsemble64

    def _add_target(self) -> None:
        self._ensemble.add_target()

    def _copy_target(self) -> None:
        self._ensemble.copy_target(0)

    def _copy_machines(self) -> None:
        if self._store is not None:
            self._store = self._store.copy()
        self._set_ensemble(self._copied(self._ensemble.vectors.dtype))

    def _learn(self, batch: Batch) -> None:
        if self._budgets[0] != self._budgets[1]:
            known = {*self._labels, *(batch.labels[code] for code in np.unique(batch.codes))}
            if len(known) > 2:
                raise DataError(
                    f"a pair of budgets needs two classes; got {len(known)}. Nothing was changed.",
                    source=type(self).__name__,
                    hint="pass one number as the budget of all classes",
                )
        super()._learn(batch)

    def _learn_rows(self, rows: Any, signs: Signs) -> None:
        decay, weight_rate, n_threads = self._kernel_options()
        self._ensemble.learn(
            rows,
            signs,
            C=float(self.C),
            learning_rate=float(self.learning_rate),
            n_neighbors=int(min(self.n_neighbors, 2**32)),
            smooth=self.loss == "smooth",
            decay=decay,
            policy=self._policy,
            weight_rate=weight_rate,
            rate_decay=float(self.rate_decay),
            nearest_first=self.select_first == "nearest",
            store_all=bool(self.store_all),
            n_threads=n_threads,
        )

    def _convert_rows(self, X: NDArray[Any]) -> Any:
        if isinstance(self._ensemble, _native.KoilEnsemble32):
            if self._ensemble_type(X) is _native.KoilEnsemble32:
                return X
            self._ensemble = self._copied(np.float64)
        return X.astype(np.float64, copy=False)

    def _copied(self, dtype: DTypeLike) -> Any:
        """Return a copy of the ensemble. The conversion from float32 to float64 is exact."""
        return self._build(self._machines_state(), np.asarray(self._ensemble.vectors, dtype=dtype))

    # -- prediction -------------------------------------------------------------------------------------

    def _target_scores(self, X: NDArray[Any]) -> FloatArray:
        if isinstance(X, list):
            stored, weights = self.support_vectors_, self._coefficients()
            blocks = [kernel.block(X, stored) for kernel in self._kernels]
            return self._combine(np.stack([weights[:, k] @ b.T for k, b in enumerate(blocks)], axis=1))
        ensemble = self._ensemble
        if isinstance(ensemble, _native.KoilEnsemble64):
            X = X.astype(np.float64, copy=False)
        elif X.dtype == np.float64:
            ensemble = self._copied(np.float64)
        scores = np.asarray(ensemble.scores(X, num_threads()))
        return self._combine(scores.reshape(-1, len(self._kernels), len(X)))

    @abstractmethod
    def _combine(self, scores: FloatArray) -> FloatArray:
        """Combine scores of shape (n_targets, n_kernels, n_rows) to shape (n_targets, n_rows)."""

    def _target_thresholds(self) -> FloatArray:
        if self.threshold == "zero":
            return np.zeros(self._n_targets())
        key = self._ensemble.n_seen, self.__dict__.get("combine")  # everything that changes the scores
        if key not in self._thresholds:
            thresholds = []
            for target in range(self._n_targets()):
                vectors, sides = self._buffered(target)  # each support vector counts once
                scores = self._target_scores(vectors)[target] if len(vectors) else np.zeros(0)
                thresholds.append(gmean_threshold(scores[sides == 0], scores[sides == 1]))
            self._thresholds.clear()
            self._thresholds[key] = np.array(thresholds)
        return self._thresholds[key]

    def _buffered(self, target: int) -> tuple[Any, NDArray[np.int64]]:
        """Return the support vectors of a target, and 0 (negative) or 1 (positive) for each of them."""
        first = target * len(self._kernels)
        machines = self._ensemble.machines()[first : first + len(self._kernels)]
        ids = [np.unique(np.concatenate([m["sides"][side]["ids"] for m in machines])) for side in (0, 1)]
        rows = np.asarray(self._ensemble.vectors)[np.concatenate(ids)]
        return self._to_samples(rows), np.repeat([0, 1], [len(ids[0]), len(ids[1])])

    @fitted_property
    @synchronized
    def support_vectors_(self) -> Any:
        """Distinct support vectors of all buffers, as a list if they are sequences."""
        return self._to_samples(np.asarray(self._ensemble.vectors))

    def _coefficients(self) -> FloatArray:
        """Return weights of shape (n_targets, n_kernels, n_vectors); the sign of a target may be flipped."""
        vectors, machines = self._ensemble.vectors, self._ensemble.machines()
        weights = np.zeros((len(machines), len(vectors)))
        for row, machine in zip(weights, machines, strict=True):
            for side in machine["sides"]:
                np.add.at(row, side["ids"], machine["scale"] * side["coef"])
        return weights.reshape(self._n_targets(), len(self._kernels), len(vectors))

    def _remembered_rows(self) -> RememberedRows:
        parts = [self._buffered(target) for target in range(self._n_targets())]
        if len(parts) == 1:
            rows, sides = parts[0]
            chosen = [(rows[sides == 0], self._labels[-1]), (rows[sides == 1], self._labels[0])]
        else:
            # Each class is the positive class of its own target, or the negative one if the sign is flipped.
            own = zip(parts, self._orientation() > 0, self._labels, strict=True)
            chosen = [(rows[sides == side], label) for (rows, sides), side, label in own]
        labels = np.array([label for rows, label in chosen for _ in rows], dtype=object)
        rows = np.concatenate([rows for rows, _ in chosen])
        return RememberedRows(np.asarray(rows, dtype=np.float64), labels)

    def _machines_state(self) -> dict[str, Any]:
        vectors = self._ensemble.vectors
        return {
            "kernels": [kernel.to_tree() for kernel in self._kernels],
            "policy": self._policy,
            "budgets": list(self._budgets),
            "n_seen": self._ensemble.n_seen,
            "dtype": vectors.dtype.name,
            "vectors": self._to_samples(vectors),
            "machines": self._ensemble.machines(),
        }

    def _set_machines_state(self, state: dict[str, Any]) -> None:
        if state["policy"] not in _POLICIES:
            raise ValueError(f"unknown policy {state['policy']!r}")
        self._restore_kernels(state["kernels"], state["dtype"])
        # Files of version 0.1 store one budget for both classes.
        first, second = state["budgets"] if "budgets" in state else (state["budget"], state["budget"])
        self._policy, self._budgets = state["policy"], (int(first), int(second))
        vectors = np.ascontiguousarray(self._to_rows(state["vectors"]), dtype=state["dtype"])
        if not np.isfinite(vectors).all():
            raise ValueError("a support vector is not finite")
        ensemble = self._build(state, vectors)
        if ensemble.n_features != self._width() or ensemble.n_targets != self._n_targets():
            raise ValueError("the binary models do not match the features or the labels")
        self._set_ensemble(ensemble)

    def _build(self, state: dict[str, Any], vectors: NDArray[Any]) -> Any:
        kind = self._ensemble_type(vectors)
        rows = vectors if kind is _native.KoilEnsemble32 else vectors.astype(np.float64, copy=False)
        return kind.from_state(
            self._specs(), self._budgets, self._seed, int(state["n_seen"]), rows, state["machines"]
        )


@storable("KOIL")
@parametrized()
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

    C: float = 1.0

    def _attribution(self, X: FloatArray, background: FloatArray | None) -> Attribution:
        vectors = np.asarray(self._ensemble.vectors, dtype=np.float64)
        coef = self._by_class(self._coefficients()[:, 0])
        intercept = self._by_class(-self._target_thresholds())
        return explain_kernel_sum(X, self._kernels[0], vectors, coef, intercept, background=background)

    def _combine(self, scores: FloatArray) -> FloatArray:
        return scores[:, 0]

    @fitted_property
    @synchronized
    def dual_coef_(self) -> FloatArray:
        """Weights of the support vectors, one row per target."""
        return self._by_class(self._coefficients()[:, 0])

    @fitted_property
    @synchronized
    def intercept_(self) -> FloatArray:
        """Negative decision thresholds."""
        return self._by_class(-self._target_thresholds())


@storable("MultiKernelKOIL")
@parametrized()
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

    kernels: list[Kernel | dict[str, Any] | SequenceKernel] | None = parameter(
        None, AnyOf(OneOf(None), ListOf(Instance(Kernel, dict, SequenceKernel)))
    )
    _: KW_ONLY
    combine: str = parameter("sign", OneOf("sign", "score"))
    decay: bool = parameter(False, Switch())
    weight_rate: float | None = parameter(None, AnyOf(OneOf(None), NonNegative()))
    n_threads: int | None = parameter(1, AnyOf(OneOf(None), Integer(1)))

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
        logs = np.array([machine["log_weight"] for machine in self._ensemble.machines()]).reshape(
            -1, len(self._kernels)
        )
        weights = np.exp(logs - logs.max(axis=1, keepdims=True))
        shares: FloatArray = weights / weights.sum(axis=1, keepdims=True)
        return shares

    def _combine(self, scores: FloatArray) -> FloatArray:
        votes = np.sign(scores) if self.combine == "sign" else scores
        combined: FloatArray = np.einsum("tk,tkn->tn", self._shares(), votes)
        return combined

    @fitted_property
    @synchronized
    def kernels_(self) -> list[Kernel]:
        """Kernels in use."""
        return list(self._kernels)

    @fitted_property
    @synchronized
    def kernel_weights_(self) -> FloatArray:
        """Normalized kernel weights."""
        shares = self._shares()
        return shares[0] if len(shares) == 1 else shares[self._class_order()]

    @fitted_property
    @synchronized
    def dual_coef_(self) -> FloatArray:
        """Weights of the support vectors for each kernel."""
        weights = self._by_class(self._coefficients())
        return weights[0] if len(weights) == 1 else weights


def default_kernels() -> list[Kernel]:
    """Return the sixteen kernels of the paper: polynomials of degree 1 to 3 and thirteen Gaussian widths.

    >>> len(default_kernels())
    16
    """
    powers = [Kernel("polynomial", gamma=1.0, degree=degree) for degree in (1, 2, 3)]
    return powers + [Kernel("rbf", gamma=0.5 / 4.0**width) for width in range(-6, 7)]


def _has_float32_values(kernel: Kernel) -> bool:
    """Return whether all kernel values fit in float32. Kernels of distances have values in [0, 1]."""
    return kernel.kernel in {"rbf", "laplacian"} and 1e-30 <= float(kernel.gamma) <= 1e30
