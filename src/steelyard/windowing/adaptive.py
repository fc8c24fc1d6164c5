"""Several memories at once: the one that predicts best lately answers."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone
from sklearn.utils.metaestimators import available_if

from steelyard._concurrency import shallow_copy
from steelyard._labels import winners
from steelyard._types import FloatArray
from steelyard.exceptions import DataError, ParameterError
from steelyard.params import Constraint, Fraction, Integer, OneOf, Positive, Switch
from steelyard.persistence import storable
from steelyard.proximal import ClassStatistics
from steelyard.streams.chunks import padded
from steelyard.windowing.wrappers import Wrapper

__all__ = ["AdaptiveWindows"]


_SHARPNESS = 20.0  # of the blend: a window that is 0.05 better counts e times as much


@dataclass
class _Record:
    """How well a window predicted lately: fading hits and rows of each class."""

    rows: dict[Any, float] = field(default_factory=dict)
    hits: dict[Any, float] = field(default_factory=dict)

    def copy(self) -> _Record:
        return _Record(dict(self.rows), dict(self.hits))

    def count(self, labels: NDArray[Any], predicted: NDArray[Any], fading: float) -> None:
        for label in self.rows:
            self.rows[label] *= fading
            self.hits[label] *= fading
        for label in np.unique(labels).tolist():
            mine = labels == label
            self.rows[label] = self.rows.get(label, 0.0) + float(mine.sum())
            self.hits[label] = self.hits.get(label, 0.0) + float((predicted[mine] == label).sum())

    def recalls(self) -> FloatArray:
        return np.array([self.hits[label] / n for label, n in self.rows.items() if n >= 1.0])

    def score(self) -> tuple[float, float]:
        """G-mean, and the mean recall where that is zero."""
        recalls = self.recalls()
        if not len(recalls):
            return 0.0, 0.0
        return float(np.prod(recalls) ** (1.0 / len(recalls))), float(recalls.mean())

    def uncertainty(self, confidence: float) -> float:
        """How far chance may move the mean recall (Hoeffding's bound, as ADWIN uses it)."""
        rows = [n for n in self.rows.values() if n >= 1.0]
        spread = sum(1.0 / n for n in rows) / max(len(rows), 1) ** 2
        return math.sqrt(0.5 * spread * math.log(2.0 / confidence))


def _has_probabilities(model: AdaptiveWindows) -> bool:
    return model.rule == "best" and hasattr(model.learner, "predict_proba")


@storable("AdaptiveWindows", former_name="DriftWindows")
class AdaptiveWindows(Wrapper):
    """A few windows of different lengths, kept as statistics; the best lately answers.

    After a sudden change a short window is right and a long one wrong; in quiet times it is the other way
    round. Every block of rows is first predicted by all windows and then added to each; what leaves a
    window is subtracted. No rows are kept, only the statistics of blocks.

    Parameters
    ----------
    learner : ProximalSVC
        The learner that every window has.
    lengths : sequence of int or None, default=(1000, 5000, 25000, None)
        Rows in each window, from short to long; None: all rows.
    block : int, default=250
        Rows that are judged and learned together. A window is a whole number of blocks.
    half_life : float, default=1000
        How long, in rows, a prediction counts in the judgement.
    rule : {"best", "blend"}, default="best"
        Whether the best window answers alone, or scores are averaged with weights that favour the better.
    shrink : bool, default=True
        Whether longer windows are cut down to a shorter one that has become significantly better, so that
        they need not wait until the old concept has left them.
    confidence : float, default=0.002
        Chance of cutting although nothing has changed, at each look.

    Attributes
    ----------
    best_ : int
        Position of the window that answers.
    drifts_ : list of int
        Rows at which windows were cut.
    scores_ : list of float
        Recent G-mean of each window.
    """

    _constraints: ClassVar[dict[str, Constraint]] = {
        "block": Integer(1),
        "half_life": Positive(),
        "rule": OneOf("best", "blend"),
        "shrink": Switch(),
        "confidence": Fraction(ends=False),
    }

    _waiting: tuple[FloatArray, NDArray[Any]]  # rows of a block that is not full yet
    _blocks: deque[Any]  # learners, each of the rows of one block
    _totals: list[Any]  # learners, one a window; none before the first block
    _records: list[_Record]
    _held: list[int]
    best_: int
    drifts_: list[int]

    def __init__(
        self,
        learner: Any,
        lengths: tuple[int | None, ...] = (1000, 5000, 25_000, None),
        *,
        block: int = 250,
        half_life: float = 1000.0,
        rule: str = "best",
        shrink: bool = True,
        confidence: float = 0.002,
    ) -> None:
        self.learner = learner
        self.lengths = lengths
        self.block = block
        self.half_life = half_life
        self.rule = rule
        self.shrink = shrink
        self.confidence = confidence

    def _check_params(self) -> None:
        super()._check_params()
        self._need_methods("merge", "grow")

    def _take_in(self, rows: FloatArray, labels: NDArray[Any], *, is_first: bool) -> None:
        """Judge all windows on these rows, then learn them; rows wait until a block is full."""
        ClassStatistics(rows.shape[1]).add(rows, labels)  # whatever else is wrong with the rows shows here
        if is_first:
            self._begin(rows.shape[1])
        else:
            self._separate()
        waiting_X, waiting_y = self._waiting
        rows = np.concatenate([padded(waiting_X, rows.shape[1]), rows])
        labels = labels if not len(waiting_y) else np.concatenate([waiting_y, labels])
        n_whole = len(labels) // self.block * self.block
        for begin in range(0, n_whole, self.block):
            self._take_block(rows[begin : begin + self.block], labels[begin : begin + self.block])
        self._waiting = rows[n_whole:].copy(), labels[n_whole:].copy()
        if n_whole:
            self.learner_ = self._totals[self.best_]
        elif not self._totals:  # until the first block is full, what there is answers
            self.learner_ = clone(self.learner).fit(*self._waiting)

    def _grow(self, n_features: int) -> None:
        self._separate()
        self._totals = [shallow_copy(learner).grow(n_features) for learner in self._totals]
        self._blocks = deque(
            (shallow_copy(block).grow(n_features) for block in self._blocks), maxlen=self._blocks.maxlen
        )
        self.learner_ = (
            self._totals[self.best_] if self._totals else shallow_copy(self.learner_).grow(n_features)
        )

    def _separate(self) -> None:
        """Go on with copies of what is changed in place."""
        self._totals, self._held, self.drifts_ = list(self._totals), list(self._held), list(self.drifts_)
        self._records = [record.copy() for record in self._records]
        self._blocks = self._blocks.copy()

    @property
    def scores_(self) -> list[float]:
        """Recent G-mean of each window."""
        self._need("scores_")
        return [record.score()[0] for record in self._records]

    def _scores_of(self, best: Any, X: Any) -> FloatArray:
        """Of the best window, or averaged over the windows."""
        if self.rule == "best" or not self._totals:
            return np.asarray(best.decision_function(X))
        alike = [np.array_equal(learner.classes_, best.classes_) for learner in self._totals]
        weights = np.exp(np.array(self.scores_) * _SHARPNESS) * alike
        scores = sum(
            weight * learner.decision_function(X)
            for weight, learner in zip(weights / weights.sum(), self._totals, strict=True)
            if weight > 0.0
        )
        return np.asarray(scores)

    def _hands_on(self, attributes: dict[str, Any], X: object) -> bool:
        return attributes["rule"] == "best" and super()._hands_on(attributes, X)

    def _labels_of(self, best: Any, X: Any) -> NDArray[Any]:
        classes = best.classes_
        if self.rule == "best" or len(classes) == 1:
            return np.asarray(best.predict(X))
        return np.asarray(classes[winners(self._scores_of(best, X), len(classes))])

    @available_if(_has_probabilities)  # type: ignore[untyped-decorator]
    def predict_proba(self, X: ArrayLike) -> FloatArray:
        """Probabilities of the classes, of the best window; averaged scores have none that would fit them.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
        """
        return super().predict_proba(X)

    # -- blocks -------------------------------------------------------------------------------------

    def _begin(self, width: int) -> None:
        lengths = list(self.lengths) if isinstance(self.lengths, list | tuple) else []
        finite = [length for length in lengths if length is not None]
        are_lengths = all(Integer(1).accepts(length) for length in finite)
        if not lengths or not are_lengths or finite != sorted(finite) or None in lengths[:-1]:
            raise ParameterError(
                "lengths must be numbers of rows from short to long, None (all rows) last; got "
                f"{self.lengths!r}.",
                source="AdaptiveWindows",
            )
        self._limits = [None if n is None else max(1, int(n) // int(self.block)) for n in lengths]
        self._totals = []
        self._held = [0] * len(self.lengths)  # blocks in each window
        self._records = [_Record() for _ in self.lengths]
        self._blocks = deque(maxlen=max((n for n in self._limits if n), default=1) + 1)
        self._waiting = np.zeros((0, width)), np.zeros(0, dtype=np.int64)
        self._n_seen = 0
        self.best_, self.drifts_ = len(self.lengths) - 1, []

    def _take_block(self, rows: FloatArray, labels: NDArray[Any]) -> None:
        fading = 2.0 ** (-self.block / self.half_life)
        for learner, record in zip(self._totals, self._records, strict=bool(self._totals)):
            record.count(labels, learner.predict(rows), fading)
        self._n_seen += len(labels)
        block = self._fresh_learner(rows)
        whole = self._totals[-1] if self._totals else None
        if whole is not None and self._map is None and whole.statistics_.is_settled:
            block.set_params(
                quantizer=whole.quantizer_
            )  # blocks are cut from what one grid holds, once there is one
        block.fit(rows, labels)
        self._blocks.append(block)
        self._totals = [self._moved(window, block) for window in range(len(self.lengths))]
        if self.shrink:
            self._cut_outdated()
        # The longest of equally good windows: it knows most.
        self.best_ = max(range(len(self._records)), key=lambda k: (*self._records[k].score(), k))

    def _moved(self, window: int, block: Any) -> Any:
        """The learner of a window with a new block, and without the one that leaves."""
        limit = self._limits[window]
        self._held[window] += 1
        if not self._totals:
            return block
        total = self._joined([self._totals[window], block])
        if limit is not None and self._held[window] > limit:
            self._held[window] = limit
            try:
                total.subtract(self._blocks[-limit - 1])
            except DataError:  # sums that rounding has worn out are made anew, of the blocks that stay
                total = self._joined(list(self._blocks)[-limit:])
        return total

    def _joined(self, parts: list[Any]) -> Any:
        """A learner that has learned what several have."""
        total = clone(self.learner)
        for part in parts:
            total.merge(part)
        return total

    def _cut_outdated(self) -> None:
        """Cut longer windows down to a shorter one that is better by more than chance allows."""
        for short, record in enumerate(self._records[:-1]):
            mean, chance = record.score()[1], record.uncertainty(self.confidence)
            outdated = [
                long
                for long in range(short + 1, len(self._records))
                if self._held[long] > self._held[short] and mean - self._records[long].score()[1] > chance
            ]
            for long in outdated:
                self._totals[long], self._held[long] = self._totals[short], self._held[short]
                self._records[long] = record.copy()
            if outdated:
                self.drifts_.append(self._n_seen)

    # -- files --------------------------------------------------------------------------------------

    def _get_state(self) -> dict[str, Any]:
        if not self._is_started():
            return {}
        return {
            **super()._get_state(),
            "totals": [_without_map(total) for total in self._totals],
            "blocks": [_without_map(block) for block in self._blocks],
            "held": list(self._held),
            "records": [
                {"labels": list(r.rows), "rows": list(r.rows.values()), "hits": list(r.hits.values())}
                for r in self._records
            ],
            "waiting": list(self._waiting),
            "seen": self._n_seen,
            "best": self.best_,
            "drifts": list(self.drifts_),
        }

    def _set_state(self, state: dict[str, Any]) -> None:
        super()._set_state(state)
        X, y = (np.asarray(part) for part in state["waiting"])
        if X.ndim != 2 or X.shape[1] > self.n_features_in_ or y.shape != X.shape[:1]:
            raise ValueError("rows that wait must be a table of numbers, with a label each")
        self._begin(X.shape[1])
        self._totals = [self._with_map(learned) for learned in state["totals"]]
        self._blocks.extend(self._with_map(learned) for learned in state["blocks"])
        self._held = [int(n) for n in state["held"]]
        self._records = [
            _Record(
                dict(zip(r["labels"], r["rows"], strict=True)), dict(zip(r["labels"], r["hits"], strict=True))
            )
            for r in state["records"]
        ]
        self._waiting, self._n_seen = (X, y), int(state["seen"])
        self.best_, self.drifts_ = int(state["best"]), [int(row) for row in state["drifts"]]
        n_windows = len(self.lengths)
        if len(self._totals) not in {0, n_windows} or not len(self._held) == len(self._records) == n_windows:
            raise ValueError("there must be one of everything for each window")
        if self._totals:
            self.learner_ = self._totals[self.best_]

    def _with_map(self, learned: dict[str, Any]) -> Any:
        """A learner as ``_without_map`` told it."""
        row = np.broadcast_to(0.0, (1, int(learned["n_features"])))  # takes no memory, whatever a file says
        learner = self._fresh_learner(row)
        learner._set_state({**learned, "map": self._map})
        return learner


def _without_map(learner: Any) -> dict[str, Any]:
    """What a learner has learned; the map that all of them share is told once."""
    return {**learner._get_state(), "map": None}
