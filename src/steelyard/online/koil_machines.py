"""What KOIL and MultiKernelKOIL share: buffers kept natively, and what they show of them."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from steelyard import _native
from steelyard._concurrency import synchronized
from steelyard._threads import num_threads
from steelyard._types import FloatArray
from steelyard.base import Batch
from steelyard.exceptions import DataError, ParameterError
from steelyard.kernels import Kernel
from steelyard.online.kernel_learners import KernelLearner
from steelyard.online.targets import Signs, draw_seed
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
)
from steelyard.thresholds import gmean_threshold

__all__ = ["KoilLearner"]

Ensemble = _native.KoilEnsemble64 | _native.KoilEnsemble32

_LARGEST_SINGLE_C = 1e3  # in units of their decay weights are far larger


class KoilLearner(KernelLearner):
    """Base of KOIL and MultiKernelKOIL.

    Kernels, budget and policy are settled by the first rows; the other parameters may change at any time.
    """

    _constraints: ClassVar[dict[str, Constraint]] = {
        "C": Positive(),
        "budget": AnyOf(Integer(1, MAX_COUNT), PairOf(Integer(1, MAX_COUNT))),
        "n_neighbors": Integer(1, MAX_COUNT),
        "learning_rate": Fraction(0.0, 1.0, ends=False),
        "rate_decay": Fraction(0.0, 1.0),
        "loss": OneOf("hinge", "smooth"),
        "policy": OneOf("reservoir++", "fifo++", "reservoir", "fifo", "unbounded"),
        "threshold": OneOf("gmean", "zero"),
        "random_state": RandomSeed(),
    }
    # Found when first asked for after a change, by scoring rule; with the number of rows seen then.
    _cuts: dict[str, tuple[int, FloatArray]]

    C: float
    budget: int | tuple[int, int]
    n_neighbors: int
    learning_rate: float
    rate_decay: float
    loss: str
    policy: str
    threshold: str
    random_state: Any

    @abstractmethod
    def _make_kernels(self, X: NDArray[Any]) -> list[Kernel]:
        """The kernels, settled on the first rows."""

    def _used_kernels(self) -> list[Kernel]:
        return self._kernels

    def _kept_rows(self) -> NDArray[Any]:
        return self._ensemble.vectors

    def _decays(self) -> bool:
        """Whether the weights of support vectors shrink at every sample."""
        return True

    def _weight_rate(self) -> float:
        """How fast the losses of one kernel among several lower its weight."""
        return self.learning_rate * self.C

    def _n_threads(self) -> int:
        return num_threads()

    def _learning_threads(self) -> int:
        return 1

    # -- learning ---------------------------------------------------------------------------------------

    def _start(self, batch: Batch) -> None:
        self._budgets = self._settled_budgets(batch)
        super()._start(batch)

    def _settled_budgets(self, batch: Batch) -> tuple[int, int]:
        """Room on the negative and the positive side of the machines; 0 for no bound.

        A machine's positive side is the class that comes first; that of the learner is the second of the
        sorted labels.
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
                f"budget={self.budget!r} is for two classes, and the first rows must have both; got "
                f"{len(batch.labels)}.",
                source=type(self).__name__,
                hint="begin with more rows, or give one number for all classes",
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
                f"a pair of budgets is for two classes, and {len(known)} have come; nothing was changed.",
                source=type(self).__name__,
                hint="give one number as the budget of all classes",
            )

    def _start_machines(self, X: NDArray[Any]) -> None:
        self._kernels = self._make_kernels(X)
        self._open_items()
        self._policy, self._cuts = self.policy, {}
        self._seed = draw_seed(self.random_state)
        single = self._items is None and self._fits_single(X.dtype)
        kind = _native.KoilEnsemble32 if single else _native.KoilEnsemble64
        self._ensemble: Ensemble = kind(self._width(), self._specs(), self._budgets, self._seed)

    def _fits_single(self, dtype: np.dtype[Any]) -> bool:
        """Whether float32 rows are learned as they are: weights and scores stay in the range of float32."""
        # Steps on squared losses can swing up, in doubles too, but these have farther to go.
        bounded = self.loss == "hinge" or self.learning_rate * self.C * self.n_neighbors <= 0.5
        fits = bounded and self.C <= _LARGEST_SINGLE_C
        return dtype == np.float32 and fits and all(map(_has_single_values, self._kernels))

    def _add_target(self) -> None:
        self._ensemble.add_target()

    def _copy_target(self) -> None:
        self._ensemble.copy_target(0)

    def _separate_machines(self) -> None:
        vectors, state = self._ensemble.vectors, self._machines_state()
        if self._items is not None:
            self._items = self._items.copy()
        self._ensemble, self._cuts = self._build(state, vectors), {}

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
            n_threads=self._learning_threads(),
        )

    def _like_vectors(self, X: NDArray[Any]) -> Any:
        if isinstance(self._ensemble, _native.KoilEnsemble32):
            if self._fits_single(X.dtype):
                return X
            wide = np.asarray(self._ensemble.vectors, dtype=np.float64)
            self._ensemble = self._build(self._machines_state(), wide)
        return X.astype(np.float64, copy=False)

    # -- answering --------------------------------------------------------------------------------------

    def _machines(self) -> list[Any]:
        """The buffers of every machine, target by target and kernel by kernel."""
        return self._ensemble.machines()

    def _machine_scores(self, X: NDArray[Any]) -> FloatArray:
        """Decision functions of shape (n_targets, n_kernels, n_rows)."""
        if isinstance(X, list):
            return self._sequence_scores(X)
        if isinstance(self._ensemble, _native.KoilEnsemble32) and X.dtype == np.float64:
            wide = np.asarray(self._ensemble.vectors, dtype=np.float64)
            twin = self._build(self._machines_state(), wide)
            scores = twin.scores(X, self._n_threads())
        elif isinstance(self._ensemble, _native.KoilEnsemble32):
            scores = self._ensemble.scores(X, self._n_threads())
        else:
            scores = self._ensemble.scores(X.astype(np.float64, copy=False), self._n_threads())
        return np.asarray(scores).reshape(-1, len(self._kernels), len(X))

    def _sequence_scores(self, items: list[Any]) -> FloatArray:
        stored, weights = self.support_vectors_, self._coefficients()
        if not len(stored):
            return np.zeros((*weights.shape[:2], len(items)))
        blocks = [kernel.block(items, stored) for kernel in self._kernels]
        return np.stack([weights[:, k] @ block.T for k, block in enumerate(blocks)], axis=1)

    @abstractmethod
    def _combine(self, scores: FloatArray) -> FloatArray:
        """Scores of the targets, (n_targets, n), from those of their machines, (n_targets, n_kernels, n)."""

    def _target_scores(self, X: NDArray[Any]) -> FloatArray:
        return self._combine(self._machine_scores(X))

    def _target_cuts(self) -> FloatArray:
        if self.threshold == "zero":
            return np.zeros(self._n_targets())
        rule, n_seen = self._scoring_rule(), self._ensemble.n_seen
        kept = self._cuts.get(rule)
        if kept is None or kept[0] != n_seen:
            kept = n_seen, np.array([self._gmean_cut(target) for target in range(self._n_targets())])
            self._cuts[rule] = kept
        return kept[1]

    def _scoring_rule(self) -> str:
        """What besides the buffers scores depend on."""
        return ""

    def _gmean_cut(self, target: int) -> float:
        """The cut that is best on the support vectors, each counted once."""
        vectors, sides = self._buffered(target)
        scores = self._target_scores(vectors)[target] if len(vectors) else np.zeros(0)
        return gmean_threshold(scores[sides == 0], scores[sides == 1])

    def _buffered(self, target: int) -> tuple[Any, NDArray[np.int64]]:
        """The vectors that the machines of a target hold, and their sides."""
        vectors, machines = self._ensemble.vectors, self._machines()
        mine = machines[target * len(self._kernels) : (target + 1) * len(self._kernels)]
        ids = [
            np.unique(np.concatenate([machine["sides"][side]["ids"] for machine in mine])) for side in (0, 1)
        ]
        rows = np.asarray(vectors)[np.concatenate(ids)]
        return self._samples(rows), np.repeat([0, 1], [len(ids[0]), len(ids[1])])

    @property
    @synchronized
    def support_vectors_(self) -> Any:
        """Vectors in the buffers, each once; a list if they are sequences."""
        self._need("support_vectors_")
        return self._samples(np.asarray(self._ensemble.vectors))

    def _coefficients(self) -> FloatArray:
        """Weights of the support vectors, (n_targets, n_kernels, n_vectors), in the machines' orientation."""
        vectors, machines = self._ensemble.vectors, self._machines()
        weights = np.zeros((len(machines), len(vectors)))
        for row, machine in zip(weights, machines, strict=True):
            for side in machine["sides"]:
                np.add.at(row, side["ids"], machine["scale"] * side["coef"])
        return weights.reshape(self._n_targets(), len(self._kernels), len(vectors))

    # -- saving -----------------------------------------------------------------------------------------

    def _machines_state(self) -> dict[str, Any]:
        vectors = self._ensemble.vectors
        return {
            "kernels": [kernel.to_tree() for kernel in self._kernels],
            "policy": self._policy,
            "budgets": list(self._budgets),
            "seed": self._seed,
            "n_seen": self._ensemble.n_seen,
            "dtype": vectors.dtype.name,
            "vectors": self._samples(vectors),
            "machines": self._machines(),
        }

    def _set_machines_state(self, state: dict[str, Any]) -> None:
        if state["policy"] not in {"reservoir++", "fifo++", "reservoir", "fifo", "unbounded"}:
            raise ValueError("there is no such policy")
        self._kernels = [Kernel.from_tree(kernel) for kernel in state["kernels"]]
        self._open_items()
        self._policy, self._seed = state["policy"], int(state["seed"])
        self._budgets = _stored_budgets(state)
        ensemble = self._build(state, self._vectors_of(state))
        if ensemble.n_features != self._width() or ensemble.n_targets != self._n_targets():
            raise ValueError("the machines do not fit the features or the labels")
        self._ensemble, self._cuts = ensemble, {}

    def _vectors_of(self, state: dict[str, Any]) -> NDArray[Any]:
        if state["dtype"] not in {"float32", "float64"}:
            raise ValueError("vectors are float32 or float64")
        vectors = np.ascontiguousarray(self._rows_of(state["vectors"]), dtype=state["dtype"])
        if not np.isfinite(vectors).all():
            raise ValueError("a support vector is not finite")
        return vectors

    def _build(self, state: dict[str, Any], vectors: NDArray[Any]) -> Ensemble:
        single = self._items is None and self._fits_single(vectors.dtype)
        kind: Any = _native.KoilEnsemble32 if single else _native.KoilEnsemble64
        rows = vectors if single else vectors.astype(np.float64, copy=False)
        ensemble: Ensemble = kind.from_state(
            self._specs(), self._budgets, self._seed, int(state["n_seen"]), rows, state["machines"]
        )
        return ensemble


def _has_single_values(kernel: Kernel) -> bool:
    """Whether float32 holds all values of a kernel, whatever the rows: of distances they are 0 to 1."""
    return kernel.kernel in {"rbf", "laplacian"} and 1e-30 <= float(kernel.gamma) <= 1e30


def _stored_budgets(state: dict[str, Any]) -> tuple[int, int]:
    """Both budgets; files from before have one number for both."""
    first, second = state["budgets"] if "budgets" in state else (state["budget"], state["budget"])
    return int(first), int(second)
