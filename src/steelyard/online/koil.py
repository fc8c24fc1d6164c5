"""KOIL: kernelized online imbalanced learning with two budgets of support vectors."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from steelyard import _native
from steelyard._concurrency import synchronized
from steelyard._shared_text import expand_shared_text
from steelyard._threads import num_threads
from steelyard._types import FloatArray
from steelyard.base import Batch
from steelyard.exceptions import DataError, ParameterError
from steelyard.explanation.attribution import Attribution, explain_kernel_sum
from steelyard.explanation.neighbors import RememberedRows
from steelyard.kernels import Kernel
from steelyard.online.base import Signs
from steelyard.online.kernel_base import KernelLearner, KernelParameters
from steelyard.params import (
    MAX_COUNT,
    AnyOf,
    Constraint,
    Fraction,
    Integer,
    OneOf,
    PairOf,
    Positive,
    RandomSeed,
    Switch,
)
from steelyard.persistence import storable
from steelyard.thresholds import gmean_threshold

_POLICIES = ("reservoir++", "fifo++", "reservoir", "fifo", "unbounded")
Ensemble = _native.KoilEnsemble64 | _native.KoilEnsemble32

# Largest C for float32. Stored weights far exceed C, because they are divided by the accumulated decay.
_MAX_FLOAT32_C = 1e3


@dataclass(eq=False, repr=False, kw_only=True)
class KoilLearner(KernelLearner):
    """Base class of KOIL and MultiKernelKOIL.

    The first rows fix kernels, budget and policy. The other parameters may change at any time.
    """

    _constraints: ClassVar[dict[str, Constraint]] = {
        "C": Positive(),
        "budget": AnyOf(Integer(1, MAX_COUNT), PairOf(Integer(1, MAX_COUNT))),
        "n_neighbors": Integer(1, MAX_COUNT),
        "learning_rate": Fraction(0.0, 1.0, ends=False),
        "rate_decay": Fraction(0.0, 1.0),
        "loss": OneOf("hinge", "smooth"),
        "policy": OneOf(*_POLICIES),
        "select_first": OneOf("violators", "nearest"),
        "store_all": Switch(),
        "threshold": OneOf("gmean", "zero"),
        "random_state": RandomSeed(),
    }

    C: float = 1.0
    budget: int | tuple[int, int] = 100
    n_neighbors: int = 10
    learning_rate: float = 0.01
    rate_decay: float = 0.0
    loss: str = "hinge"
    policy: str = "reservoir++"
    select_first: str = "violators"
    store_all: bool = False
    threshold: str = "gmean"
    random_state: Any = None

    def _stored_rows(self) -> NDArray[Any]:
        return self._ensemble.vectors

    def _kernel_options(self) -> tuple[bool, float, int]:
        """Return whether support vectors decay, the rate of the kernel weights, and the number of threads."""
        return True, self.learning_rate * self.C, 1

    # -- learning ---------------------------------------------------------------------------------------

    def _start(self, batch: Batch) -> None:
        self._budgets = self._resolve_budgets(batch)
        super()._start(batch)

    def _resolve_budgets(self, batch: Batch) -> tuple[int, int]:
        """Return the capacity of the negative and of the positive buffer. 0 means unbounded.

        The positive class of the first binary model is the first label of the stream. The positive class of
        the learner is the second label in sorted order, so the two budgets may have to be exchanged.
        """
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
        counted = batch.codes if batch.weights is None else batch.codes[batch.weights > 0]
        first_is_positive = len(counted) and batch.labels[counted[0]] == sorted(batch.labels)[1]
        return (negative, positive) if first_is_positive else (positive, negative)

    def _check_two_classes(self, batch: Batch) -> None:
        if self._budgets[0] == self._budgets[1]:
            return
        known = {*self._labels, *(batch.labels[code] for code in np.unique(batch.codes))}
        if len(known) > 2:
            raise DataError(
                f"a pair of budgets needs two classes; got {len(known)}. Nothing was changed.",
                source=type(self).__name__,
                hint="pass one number as the budget of all classes",
            )

    def _start_machines(self, X: NDArray[Any]) -> None:
        super()._start_machines(X)
        self._policy = self.policy
        self._set_ensemble(self._ensemble_type(X)(self._width(), self._specs(), self._budgets, self._seed))

    def _set_ensemble(self, ensemble: Ensemble) -> None:
        self._ensemble = ensemble
        # Cached thresholds by _scoring_rule(), with the number of rows seen when they were computed.
        self._thresholds: dict[str, tuple[int, FloatArray]] = {}

    def _ensemble_type(self, rows: Any) -> Any:
        """Return the native ensemble type: float32 if weights and scores stay in the range of float32."""
        if self._items is not None or rows.dtype != np.float32:
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
        vectors, state = self._ensemble.vectors, self._machines_state()
        if self._items is not None:
            self._items = self._items.copy()
        self._set_ensemble(self._build(state, vectors))

    def _learn(self, batch: Batch) -> None:
        self._check_two_classes(batch)
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
            self._ensemble = self._float64_ensemble()
        return X.astype(np.float64, copy=False)

    def _float64_ensemble(self) -> Any:
        """Return a float64 copy of a float32 ensemble. The conversion is exact."""
        return self._build(self._machines_state(), np.asarray(self._ensemble.vectors, dtype=np.float64))

    # -- prediction -------------------------------------------------------------------------------------

    def _machines(self) -> list[Any]:
        """Return the support vector buffers of all binary models, grouped by target."""
        return self._ensemble.machines()

    def _machine_scores(self, X: NDArray[Any]) -> FloatArray:
        """Return decision values of shape (n_targets, n_kernels, n_rows)."""
        if isinstance(X, list):
            return self._sequence_scores(X)
        ensemble: Any = self._ensemble
        if isinstance(ensemble, _native.KoilEnsemble64):
            X = X.astype(np.float64, copy=False)
        elif X.dtype == np.float64:
            ensemble = self._float64_ensemble()
        scores = ensemble.scores(X, num_threads())
        return np.asarray(scores).reshape(-1, len(self._kernels), len(X))

    def _sequence_scores(self, items: list[Any]) -> FloatArray:
        stored, weights = self.support_vectors_, self._coefficients()
        if not len(stored):
            return np.zeros((*weights.shape[:2], len(items)))
        blocks = [kernel.block(items, stored) for kernel in self._kernels]
        return np.stack([weights[:, k] @ block.T for k, block in enumerate(blocks)], axis=1)

    @abstractmethod
    def _combine(self, scores: FloatArray) -> FloatArray:
        """Combine scores of shape (n_targets, n_kernels, n_rows) to shape (n_targets, n_rows)."""

    def _target_scores(self, X: NDArray[Any]) -> FloatArray:
        return self._combine(self._machine_scores(X))

    def _target_thresholds(self) -> FloatArray:
        if self.threshold == "zero":
            return np.zeros(self._n_targets())
        rule, n_seen = self._scoring_rule(), self._ensemble.n_seen
        cached = self._thresholds.get(rule)
        if cached is None or cached[0] != n_seen:
            thresholds = [self._gmean_threshold(target) for target in range(self._n_targets())]
            cached = self._thresholds[rule] = n_seen, np.array(thresholds)
        return cached[1]

    def _scoring_rule(self) -> str:
        """Return the value of the parameter that changes scores even if the buffers stay the same."""
        return ""

    def _gmean_threshold(self, target: int) -> float:
        """Return the threshold with the largest G-mean on the support vectors. Each vector counts once."""
        vectors, sides = self._buffered(target)
        scores = self._target_scores(vectors)[target] if len(vectors) else np.zeros(0)
        return gmean_threshold(scores[sides == 0], scores[sides == 1])

    def _buffered(self, target: int) -> tuple[Any, NDArray[np.int64]]:
        """Return the support vectors of a target, and 0 (negative) or 1 (positive) for each of them."""
        first = target * len(self._kernels)
        machines = self._machines()[first : first + len(self._kernels)]
        ids = [np.unique(np.concatenate([m["sides"][side]["ids"] for m in machines])) for side in (0, 1)]
        rows = np.asarray(self._ensemble.vectors)[np.concatenate(ids)]
        return self._to_samples(rows), np.repeat([0, 1], [len(ids[0]), len(ids[1])])

    @property
    @synchronized
    def support_vectors_(self) -> Any:
        """Distinct support vectors of all buffers, as a list if they are sequences."""
        self._need("support_vectors_")
        return self._to_samples(np.asarray(self._ensemble.vectors))

    def _coefficients(self) -> FloatArray:
        """Return weights of shape (n_targets, n_kernels, n_vectors); the sign of a target may be flipped."""
        vectors, machines = self._ensemble.vectors, self._machines()
        weights = np.zeros((len(machines), len(vectors)))
        for row, machine in zip(weights, machines, strict=True):
            for side in machine["sides"]:
                np.add.at(row, side["ids"], machine["scale"] * side["coef"])
        return weights.reshape(self._n_targets(), len(self._kernels), len(vectors))

    # -- explanation ------------------------------------------------------------------------------------

    def _remembered_rows(self) -> RememberedRows:
        parts = [self._buffered(target) for target in range(self._n_targets())]
        positive, other = self._labels[0], self._labels[-1]
        if len(parts) == 1:
            (rows, sides), n_rows = parts[0], len(parts[0][1])
            labels = [positive if side else other for side in sides.tolist()]
        # Each class is the positive class of its own target, or the negative class if the sign is flipped.
        else:
            own = self._orientation() > 0
            chosen = [rows[sides == own[target]] for target, (rows, sides) in enumerate(parts)]
            rows, n_rows = np.concatenate(chosen), sum(map(len, chosen))
            labels = [label for label, part in zip(self._labels, chosen, strict=True) for _ in part]
        found = np.empty(n_rows, dtype=object)
        found[:] = labels
        return RememberedRows(np.asarray(rows, dtype=np.float64), found)

    # -- persistence ------------------------------------------------------------------------------------

    def _machines_state(self) -> dict[str, Any]:
        vectors = self._ensemble.vectors
        return {
            "kernels": [kernel.to_tree() for kernel in self._kernels],
            "policy": self._policy,
            "budgets": list(self._budgets),
            "n_seen": self._ensemble.n_seen,
            "dtype": vectors.dtype.name,
            "vectors": self._to_samples(vectors),
            "machines": self._machines(),
        }

    def _set_machines_state(self, state: dict[str, Any]) -> None:
        if state["policy"] not in _POLICIES:
            raise ValueError(f"unknown policy {state['policy']!r}")
        if state["dtype"] not in {"float32", "float64"}:
            raise ValueError("support vectors must be float32 or float64")
        self._set_kernels([Kernel.from_tree(kernel) for kernel in state["kernels"]])
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

    def _build(self, state: dict[str, Any], vectors: NDArray[Any]) -> Ensemble:
        kind = self._ensemble_type(vectors)
        rows = vectors if kind is _native.KoilEnsemble32 else vectors.astype(np.float64, copy=False)
        ensemble: Ensemble = kind.from_state(
            self._specs(), self._budgets, self._seed, int(state["n_seen"]), rows, state["machines"]
        )
        return ensemble


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


def _has_float32_values(kernel: Kernel) -> bool:
    """Return whether all kernel values fit in float32. Kernels of distances have values in [0, 1]."""
    return kernel.kernel in {"rbf", "laplacian"} and 1e-30 <= float(kernel.gamma) <= 1e30
