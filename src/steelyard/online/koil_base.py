"""Base class of KOIL and MultiKernelKOIL: native support vector buffers and their attributes."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from steelyard import _native
from steelyard._concurrency import synchronized
from steelyard._threads import num_threads
from steelyard._types import FloatArray
from steelyard.base import Batch
from steelyard.exceptions import DataError, ParameterError
from steelyard.explanation.neighbors import RememberedRows
from steelyard.kernels import Kernel
from steelyard.online.base import OnlineLearner, Signs, draw_seed
from steelyard.online.kernel_base import KernelRowsMixin
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
from steelyard.thresholds import gmean_threshold

_POLICIES = ("reservoir++", "fifo++", "reservoir", "fifo", "unbounded")
Ensemble = _native.KoilEnsemble64 | _native.KoilEnsemble32

_MAX_FLOAT32_C = (
    # Largest C for float32. Stored weights far exceed C, because they are divided by the accumulated decay.
    1e3
)


@dataclass(eq=False, repr=False, kw_only=True)
class KoilLearner(KernelRowsMixin, OnlineLearner):
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

    @abstractmethod
    def _make_kernels(self, X: NDArray[Any]) -> list[Kernel]:
        """Return the kernels. If their gamma is not a number, it is computed from ``X``, the first rows."""

    def _used_kernels(self) -> list[Kernel]:
        return self._kernels

    def _stored_rows(self) -> NDArray[Any]:
        return self._ensemble.vectors

    def _decays(self) -> bool:
        """Return whether the weights of support vectors decay at every sample."""
        return True

    def _weight_rate(self) -> float:
        """Return the rate at which the losses of a kernel reduce its weight."""
        return self.learning_rate * self.C

    def _learning_threads(self) -> int:
        return 1

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
        self._kernels = self._make_kernels(X)
        self._create_item_table()
        self._policy, self._seed = self.policy, draw_seed(self.random_state)
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
        self._ensemble.learn(
            rows,
            signs,
            C=float(self.C),
            learning_rate=float(self.learning_rate),
            n_neighbors=int(min(self.n_neighbors, 2**32)),
            smooth=self.loss == "smooth",
            decay=self._decays(),
            policy=self._policy,
            weight_rate=self._weight_rate(),
            rate_decay=float(self.rate_decay),
            nearest_first=self.select_first == "nearest",
            store_all=bool(self.store_all),
            n_threads=self._learning_threads(),
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
        self._kernels = [Kernel.from_tree(kernel) for kernel in state["kernels"]]
        self._create_item_table()
        self._policy, self._budgets = state["policy"], _stored_budgets(state)
        ensemble = self._build(state, self._stored_vectors(state))
        if ensemble.n_features != self._width() or ensemble.n_targets != self._n_targets():
            raise ValueError("the binary models do not match the features or the labels")
        self._set_ensemble(ensemble)

    def _stored_vectors(self, state: dict[str, Any]) -> NDArray[Any]:
        if state["dtype"] not in {"float32", "float64"}:
            raise ValueError("support vectors must be float32 or float64")
        vectors = np.ascontiguousarray(self._to_rows(state["vectors"]), dtype=state["dtype"])
        if not np.isfinite(vectors).all():
            raise ValueError("a support vector is not finite")
        return vectors

    def _build(self, state: dict[str, Any], vectors: NDArray[Any]) -> Ensemble:
        kind = self._ensemble_type(vectors)
        rows = vectors if kind is _native.KoilEnsemble32 else vectors.astype(np.float64, copy=False)
        ensemble: Ensemble = kind.from_state(
            self._specs(), self._budgets, self._seed, int(state["n_seen"]), rows, state["machines"]
        )
        return ensemble


def _has_float32_values(kernel: Kernel) -> bool:
    """Return whether all kernel values fit in float32. Kernels of distances have values in [0, 1]."""
    return kernel.kernel in {"rbf", "laplacian"} and 1e-30 <= float(kernel.gamma) <= 1e30


def _stored_budgets(state: dict[str, Any]) -> tuple[int, int]:
    """Return the budgets of both classes from a file. Files of version 0.1 store one number for both."""
    first, second = state["budgets"] if "budgets" in state else (state["budget"], state["budget"])
    return int(first), int(second)
