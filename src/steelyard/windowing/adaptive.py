"""Adaptive windows: several window lengths in parallel, of which the most accurate one predicts."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from steelyard._concurrency import shallow_copy
from steelyard._deprecation import renamed_parameters
from steelyard._labels import winners
from steelyard._types import FloatArray
from steelyard.base import Learner, Traits, fitted_property
from steelyard.exceptions import DataError, ParameterError
from steelyard.explanation.attribution import Attribution
from steelyard.params import Fraction, Integer, OneOf, Positive, Switch, parameter, parametrized
from steelyard.persistence import storable
from steelyard.proximal import ClassStatistics
from steelyard.windowing.base import WindowRows, WindowWrapper

_BLEND_SHARPNESS = 20.0  # a window with a G-mean higher by 0.05 has e times the weight


@dataclass(frozen=True)
class _Window:
    """Window with its estimator and decayed counts of rows and hits by class, for its recent recalls."""

    total: Any = None  # estimator that has learned all blocks; None before the first full block
    n_blocks: int = 0
    rows: Mapping[Any, float] = field(default_factory=dict)
    hits: Mapping[Any, float] = field(default_factory=dict)

    def after_prediction(self, labels: NDArray[Any], predicted: NDArray[Any], decay: float) -> _Window:
        """Return the window with updated counts."""
        rows = {label: decay * n for label, n in self.rows.items()}
        hits = {label: decay * n for label, n in self.hits.items()}
        for label in np.unique(labels).tolist():
            of_class = labels == label
            rows[label] = rows.get(label, 0.0) + float(of_class.sum())
            hits[label] = hits.get(label, 0.0) + float((predicted[of_class] == label).sum())
        return replace(self, rows=rows, hits=hits)

    def score(self) -> tuple[float, float]:
        """Return the G-mean and the mean recall, which breaks ties if several G-means are zero."""
        recalls = np.array([self.hits[label] / n for label, n in self.rows.items() if n >= 1.0])
        if not len(recalls):
            return 0.0, 0.0
        return float(np.prod(recalls) ** (1.0 / len(recalls))), float(recalls.mean())

    def uncertainty(self, confidence: float) -> float:
        """Return Hoeffding's bound of the error of the mean recall, as in ADWIN."""
        rows = [n for n in self.rows.values() if n >= 1.0]
        spread = sum(1.0 / n for n in rows) / max(len(rows), 1) ** 2
        return math.sqrt(0.5 * spread * math.log(2.0 / confidence))


@renamed_parameters(learner="estimator")
@storable("AdaptiveWindows", former_name="DriftWindows", former_parameters={"learner": "estimator"})
@parametrized()
class AdaptiveWindows(WindowWrapper):
    """Adaptive windows: several window lengths in parallel; the one with the best recent G-mean predicts.

    After a sudden concept drift a short window is accurate and a long one is not; without drift it is the
    other way round. All windows predict every block of rows before they learn it. A block that leaves a
    window is subtracted from its statistics. The statistics of blocks are kept, not their rows.

    Parameters
    ----------
    estimator : ProximalSVC
        The learner of every window.
    lengths : sequence of int or None, default=(1000, 5000, 25000, None)
        Number of rows in each window, in increasing order; None means all rows.
    block : int, default=250
        Number of rows that are predicted and learned together. Every window is a whole number of blocks.
    half_life : float, default=1000
        Number of rows after which the weight of a prediction in the recent recall of a window is halved.
    rule : {"best", "blend"}, default="best"
        Whether the best window predicts alone, or scores are averaged with larger weights for better windows.
        Averaged scores give no probabilities.
    shrink : bool, default=True
        Whether a longer window is replaced by a shorter one that has become significantly better. Otherwise
        the rows of the old concept leave a long window only gradually.
    confidence : float, default=0.002
        Probability that a window is replaced at a block although there is no drift.

    Attributes
    ----------
    best_ : int
        Index of the window that predicts.
    drifts_ : list of int
        Row numbers at which windows were replaced.
    scores_ : list of float
        Recent G-mean of each window.
    """

    estimator: Any
    lengths: tuple[int | None, ...] = (1000, 5000, 25_000, None)
    _: KW_ONLY
    block: int = parameter(250, Integer(1))
    half_life: float = parameter(1000.0, Positive())
    rule: str = parameter("best", OneOf("best", "blend"))
    shrink: bool = parameter(True, Switch())
    confidence: float = parameter(0.002, Fraction(ends=False))

    @property
    def _traits(self) -> Traits:  # type: ignore[override]
        traits = super()._traits
        reason = "new rows are learned when their block is full"
        return replace(traits, exempt={**traits.exempt, "long_run_of_one_class": reason})

    @property
    def _full_after_rows(self) -> int | None:  # type: ignore[override]
        return max([length for length in self.lengths if length is not None], default=0) + self.block

    def _check_params(self) -> None:
        super()._check_params()
        self._check_methods("merge", "grow")

    def _initialize(self, n_features: int) -> None:
        lengths = list(self.lengths) if isinstance(self.lengths, list | tuple) else []
        finite = [length for length in lengths if length is not None]
        are_lengths = all(Integer(1).accepts(length) for length in finite)
        if not lengths or not are_lengths or finite != sorted(finite) or None in lengths[:-1]:
            raise ParameterError(
                "lengths must be increasing numbers of rows, where None (all rows) may be the last; got "
                f"{self.lengths!r}.",
                source="AdaptiveWindows",
            )
        self._max_blocks = [None if n is None else max(1, int(n) // int(self.block)) for n in lengths]
        self._windows = [_Window() for _ in self.lengths]
        n_kept = max((n for n in self._max_blocks if n), default=1) + 1
        self._blocks: deque[Any] = deque(maxlen=n_kept)  # estimators, each fitted on one block
        self._pending = WindowRows.empty(n_features)  # rows of a block that is not full yet
        self._n_seen = 0
        self.best_, self.drifts_ = len(self.lengths) - 1, list[int]()

    def _learn_rows(self, rows: FloatArray, labels: NDArray[Any], *, is_first: bool) -> None:
        """Predict and then learn every full block; keep the remaining rows until their block is full."""
        ClassStatistics(rows.shape[1]).add(rows, labels)  # raises an error for invalid values
        if is_first:
            self._initialize(rows.shape[1])
        pending = self._pending.append(rows, labels)
        n_complete = len(pending) // self.block * self.block
        for begin in range(0, n_complete, self.block):
            block = slice(begin, begin + self.block)
            self._learn_block(pending.X[block], pending.y[block])
        self._pending = pending.without_oldest(n_complete)
        if n_complete:
            self.estimator_ = self._windows[self.best_].total
        elif not self._has_blocks:  # until the first block is full, an estimator of the pending rows predicts
            self.estimator_ = clone(self.estimator).fit(self._pending.X, self._pending.y)

    @property
    def _has_blocks(self) -> bool:
        """Whether the first block has been learned."""
        return self._windows[0].total is not None

    def _grow(self, n_features: int) -> None:
        self._blocks = deque(
            (shallow_copy(block).grow(n_features) for block in self._blocks), maxlen=self._blocks.maxlen
        )
        if self._has_blocks:
            self._windows = [
                replace(window, total=shallow_copy(window.total).grow(n_features)) for window in self._windows
            ]
            self.estimator_ = self._windows[self.best_].total
        else:
            super()._grow(n_features)

    @fitted_property
    def scores_(self) -> list[float]:
        return [window.score()[0] for window in self._windows]

    def _result(self, estimator: Any, method: str, rows: Any) -> NDArray[Any]:
        """Return the result of the best window, or of the weighted average of the scores of all windows."""
        classes = estimator.classes_
        if self.rule == "best" or not self._has_blocks or (method == "predict" and len(classes) == 1):
            return super()._result(estimator, method, rows)
        totals = [window.total for window in self._windows]
        has_same_classes = [np.array_equal(total.classes_, classes) for total in totals]
        weights = np.exp(np.array(self.scores_) * _BLEND_SHARPNESS) * has_same_classes
        scores = sum(
            weight * total.decision_function(rows)
            for weight, total in zip(weights / weights.sum(), totals, strict=True)
            if weight > 0.0
        )
        return np.asarray(scores if method != "predict" else classes[winners(scores, len(classes))])

    def _attribution(self, X: FloatArray, background: FloatArray | None) -> Attribution:
        if self.rule == "best" or not self._has_blocks:
            return super()._attribution(X, background)
        return Learner._attribution(self, X, background)

    def _can_delegate(self, attributes: dict[str, Any], X: object) -> bool:
        return attributes["rule"] == "best" and super()._can_delegate(attributes, X)

    def _has_probabilities(self) -> bool:
        return self.rule == "best" and super()._has_probabilities()

    # -- blocks of rows -----------------------------------------------------------------------------

    def _learn_block(self, rows: FloatArray, labels: NDArray[Any]) -> None:
        decay, windows = 2.0 ** (-self.block / self.half_life), self._windows
        if self._has_blocks:
            windows = [
                window.after_prediction(labels, window.total.predict(rows), decay) for window in windows
            ]
        self._n_seen += len(labels)
        block, longest = self._new_estimator(rows), windows[-1].total
        if longest is not None and self._map is None and longest.statistics_.is_frozen:
            block.set_params(quantizer=longest.quantizer_)  # subtraction requires equal quantizers
        block.fit(rows, labels)
        self._blocks = deque([*self._blocks, block], maxlen=self._blocks.maxlen)
        limits = zip(windows, self._max_blocks, strict=True)
        self._windows = [self._moved(window, limit, block) for window, limit in limits]
        if self.shrink:
            self._replace_outdated()
        # Of equally good windows the longest one is selected, because it has learned the most rows.
        self.best_ = max(range(len(windows)), key=lambda k: (*self._windows[k].score(), k))

    def _moved(self, window: _Window, limit: int | None, block: Any) -> _Window:
        """Return the window with a new block, and without the oldest one if there are more than ``limit``."""
        n_blocks = window.n_blocks + 1
        if window.total is None:
            return replace(window, total=block, n_blocks=n_blocks)
        total = self._merged([window.total, block])
        if limit is not None and n_blocks > limit:
            n_blocks = limit
            try:
                total.subtract(self._blocks[-limit - 1])
            # Rounding errors prevent subtraction, so the remaining blocks are merged instead.
            except DataError:
                total = self._merged(list(self._blocks)[-limit:])
        return replace(window, total=total, n_blocks=n_blocks)

    def _merged(self, parts: list[Any]) -> Any:
        """Return an estimator that has learned the rows of several estimators."""
        total = clone(self.estimator)
        for part in parts:
            total.merge(part)
        return total

    def _replace_outdated(self) -> None:
        """Replace longer windows by a shorter window whose mean recall is significantly higher."""
        for place in range(len(self._windows) - 1):
            short = self._windows[place]
            mean, bound = short.score()[1], short.uncertainty(self.confidence)
            is_outdated = [
                window.n_blocks > short.n_blocks and mean - window.score()[1] > bound
                for window in self._windows[place + 1 :]
            ]
            if any(is_outdated):
                longer = zip(self._windows[place + 1 :], is_outdated, strict=True)
                kept = [short if replaced else window for window, replaced in longer]
                self._windows = [*self._windows[: place + 1], *kept]
                self.drifts_ = [*self.drifts_, self._n_seen]

    # -- saving and loading -------------------------------------------------------------------------

    def _get_state(self) -> dict[str, Any]:
        if not self._is_started():
            return {}
        return {
            **super()._get_state(),
            "totals": [_state_without_map(w.total) for w in self._windows if w.total is not None],
            "blocks": [_state_without_map(block) for block in self._blocks],
            "held": [w.n_blocks for w in self._windows],
            "records": [
                {"labels": list(w.rows), "rows": list(w.rows.values()), "hits": list(w.hits.values())}
                for w in self._windows
            ],
            "waiting": [self._pending.X, self._pending.y],
            "seen": self._n_seen,
            "best": self.best_,
            "drifts": list(self.drifts_),
        }

    def _set_state(self, state: dict[str, Any]) -> None:
        super()._set_state(state)
        X, y = state["waiting"]
        pending = WindowRows.from_arrays(X, y, np.zeros(len(y)), self.n_features_in_)
        self._initialize(pending.X.shape[1])
        self._pending = pending
        self._blocks.extend(map(self._estimator_with_map, state["blocks"]))
        totals = list(map(self._estimator_with_map, state["totals"]))
        self._n_seen = int(state["seen"])
        self.best_, self.drifts_ = int(state["best"]), [int(row) for row in state["drifts"]]
        n_windows = len(self.lengths)
        if len(totals) not in {0, n_windows} or {len(state["held"]), len(state["records"])} != {n_windows}:
            raise ValueError("every field needs one entry per window")
        parts = zip(totals or [None] * n_windows, state["held"], state["records"], strict=True)
        self._windows = [
            _Window(
                total,
                int(n_blocks),
                dict(zip(record["labels"], record["rows"], strict=True)),
                dict(zip(record["labels"], record["hits"], strict=True)),
            )
            for total, n_blocks, record in parts
        ]
        if totals:
            self.estimator_ = totals[self.best_]

    def _estimator_with_map(self, state: dict[str, Any]) -> Any:
        """Restore an estimator from the result of ``_state_without_map``."""
        # The row is a broadcast view of one number, so wide rows need no memory.
        row = np.broadcast_to(0.0, (1, int(state["n_features"])))
        estimator = self._new_estimator(row)
        estimator._set_state({**state, "map": self._map})
        return estimator


def _state_without_map(estimator: Any) -> dict[str, Any]:
    """Return the state of an estimator without the feature map, which all estimators share."""
    return {**estimator._get_state(), "map": None}
