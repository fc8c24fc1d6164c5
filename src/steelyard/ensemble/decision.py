"""Decisions of StreamClassifier and AdaptiveThresholdClassifier: from scores to labels.

This module has the learned state of decisions (positive class, target rate, costs), prediction sets, and the
base class of both classifiers.
"""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import log_softmax

from steelyard._concurrency import shallow_copy
from steelyard._labels import Label, winners
from steelyard._types import FloatArray, IntArray
from steelyard._validation import check_started, checked_times
from steelyard.base import Learner, fitted_property, snapshot_read
from steelyard.ensemble.online_threshold import Combine, Keys, OnlineThreshold, RealisedRate, is_promise
from steelyard.exceptions import DataError, ParameterError
from steelyard.thresholds import alarm_indices

_HALF_LIFE_ROWS = 1000.0  # half-life of the mean costs, in rows of the same class
_SET_HALF_LIFE_ROWS = 200.0  # half-life of the weights of prediction sets, in rows of the same class


def is_prices(goal: object) -> bool:
    """Return whether a goal of ``threshold=`` has costs of misses and false alarms."""
    return isinstance(goal, Mapping) and set(goal) == {"miss", "alarm"}


def _checked_costs(sample_cost: Any, n_rows: int, source: str) -> FloatArray:
    costs = np.asarray(sample_cost, dtype=np.float64)
    expected = f"sample_cost must contain one finite number >= 0 for each of the {n_rows} rows"
    if costs.shape != (n_rows,):
        raise DataError(f"{expected}; got an array of shape {costs.shape}.", source=source)
    is_valid = np.isfinite(costs) & (costs >= 0.0)
    if not is_valid.all():
        row = int(is_valid.argmin())
        raise DataError(f"{expected}; got {costs[row]:g} in row {row}.", source=source)
    return costs


@dataclass(frozen=True)
class RowCosts:
    """Decayed mean of the costs of recent rows of every class; immutable."""

    sums: dict[Any, tuple[float, float]] = field(default_factory=dict)  # decayed sum of costs, and of rows

    def after(self, sample_cost: Any, y: Any, source: str) -> RowCosts:
        """Return the means updated with more rows; raise DataError for invalid costs."""
        labels = np.asarray(y)
        costs, sums = _checked_costs(sample_cost, len(labels), source), dict(self.sums)
        for label in np.unique(labels).tolist():
            own = costs[labels == label]
            total, n = sums.get(label, (0.0, 0.0))
            decay = 0.5 ** (len(own) / _HALF_LIFE_ROWS)
            sums[label] = (decay * total + float(own.sum()), decay * n + len(own))
        return RowCosts(sums)

    def prices(self, prices: Mapping[str, float], positive: Any) -> dict[str, float]:
        """Return the costs of both errors, that of a miss times the mean cost of recent positive rows."""
        total, n = self.sums.get(positive, (0.0, 0.0))
        factor = total / n if n > 0.0 and total > 0.0 else 1.0
        return {"miss": prices["miss"] * factor, "alarm": prices["alarm"]}

    def get_state(self) -> dict[str, Any]:
        """Return the means as plain values."""
        return {"labels": list(self.sums), "sums": [list(pair) for pair in self.sums.values()]}

    @classmethod
    def from_state(cls, state: Mapping[str, Any] | None) -> RowCosts:
        """Restore the means from the result of :meth:`get_state`. With None, there are no means."""
        if state is None:
            return cls()
        pairs = zip(state["labels"], state["sums"], strict=True)
        return cls({label: (float(total), float(n)) for label, (total, n) in pairs})


@dataclass(frozen=True)
class DecisionState:
    """Learned state for decisions. Instances are immutable except for the online threshold."""

    positive: Label | None = None  # the positive class at the last update of the expert weights
    # None if the goal is no target rate; a learning call copies it first.
    online_threshold: OnlineThreshold | None = None
    row_costs: RowCosts = field(default_factory=RowCosts)  # mean costs of recent rows

    def with_goal(self, goal: Any, is_mirrored: bool | None = None) -> DecisionState:
        """Return this state with a copy of its online threshold, or a new one for another goal or class.

        ``is_mirrored`` says whether the first of two classes is the positive one; None means unchanged.
        """
        if not is_promise(goal):
            return self if self.online_threshold is None else replace(self, online_threshold=None)
        current = self.online_threshold or OnlineThreshold(goal)
        sign = current.sign if is_mirrored is None else -1.0 if is_mirrored else 1.0
        is_same = current.goal == dict(goal) and current.sign == sign
        later = shallow_copy(current) if is_same else OnlineThreshold(goal, sign)
        return replace(self, online_threshold=later)

    def goal_for(self, threshold: Any, labels: Sequence[Label]) -> Any:
        """Return the goal for choosing the threshold between the given classes."""
        if is_prices(threshold) and len(labels) == 2:
            return self.row_costs.prices(threshold, labels[0 if self.is_mirrored(labels) else 1])
        promise = self.online_threshold
        if promise is None:
            return threshold
        return promise.per_row if len(labels) > 2 else promise

    def is_mirrored(self, labels: Sequence[Label] | NDArray[Any]) -> bool:
        """Return whether the first of two classes is the positive one."""
        return len(labels) == 2 and bool(labels[0] == self.positive)


class ThresholdedClassifier(Learner):
    """Base class of classifiers that predict by a threshold, at a target rate, or by the costs of rows."""

    takes_time = predict_takes_time = True
    threshold: Any

    @property
    def takes_cost(self) -> bool:
        """Whether partial_fit() and predict() use ``sample_cost``, that is, ``threshold`` contains costs."""
        return is_prices(self.threshold)

    @property
    def labels_follow_scores(self) -> bool:  # type: ignore[override]
        """Whether predict() is the sign or argmax of decision_function(); False for a target alarm rate."""
        return not (is_promise(self.threshold) and {"alarms", "alarms_per_day"} & set(self.threshold))

    @snapshot_read
    def predict(
        self, X: ArrayLike, *, time: ArrayLike | None = None, sample_cost: ArrayLike | None = None
    ) -> NDArray[Any]:
        """Return the predicted labels of rows.

        Parameters
        ----------
        X : {array-like, sparse matrix, table} of shape (n_samples, n_features)
            Rows, oldest first; sparse matrices and tables if the classifier learns them.
        time : array-like of shape (n_samples,), optional
            Times of the rows in seconds, for ``threshold={"alarms_per_day": ...}``. Without times the rows
            are assumed to arrive at the recent rate.
        sample_cost : array-like of shape (n_samples,), optional
            Factor by which the cost of a miss is multiplied for each row. A row is an alarm if an alarm has
            the lower expected cost with the probabilities of :meth:`predict_proba`. The parameter
            ``threshold`` must contain costs.

        Returns
        -------
        ndarray of shape (n_samples,)

        Notes
        -----
        With a target rate of alarms every row that is passed to this method counts, in this order, and
        each decision depends on the earlier alarms. Use :meth:`decision_function` to score rows without
        counting them.
        """
        check_started(self, "predict")
        if sample_cost is not None:
            return self._cheapest_labels(X, sample_cost)
        promise = self._decision_state().online_threshold
        if promise is None or not promise.decides_rows or len(self.classes_) != 2:
            return self._predicted_labels(X)
        raw, keys = self._raw_scores(X, "predict")
        times = None if time is None else checked_times(time, len(keys))
        combine, _ = self._combination()
        alarms = promise.alarms(raw, keys, combine, times)
        return self.classes_[alarm_indices(alarms, is_mirrored=promise.sign < 0.0)]

    def _cheapest_labels(self, X: Any, sample_cost: ArrayLike) -> NDArray[Any]:
        """Return the labels with the lowest expected costs of the rows (Elkan 2001)."""
        goal, source, classes = self.threshold, f"{type(self).__name__}.predict", self.classes_
        if not is_prices(goal):
            raise ParameterError(
                f"sample_cost needs costs as the goal of the threshold; got threshold={goal!r}.",
                source=source,
                hint='for example threshold={"miss": 1, "alarm": 5}',
            )
        if len(classes) != 2:
            raise DataError(f"sample_cost needs two classes; there are {len(classes)}.", source=source)
        probabilities, is_mirrored = self.predict_proba(X), self._decision_state().is_mirrored(classes)
        costs = _checked_costs(sample_cost, len(probabilities), source)
        p = probabilities[:, 0 if is_mirrored else 1]
        alarms = p * goal["miss"] * costs > (1.0 - p) * goal["alarm"]
        return classes[alarm_indices(alarms, is_mirrored=is_mirrored)]

    def _scored(self, X: Any, method: str) -> tuple[FloatArray, NDArray[Any]]:
        """Return decisions and classes; with a target recall or precision, the predicted rows are counted."""
        check_started(self, method)
        promise = self._decision_state().online_threshold
        raw, keys = self._raw_scores(X, method, has_rate=promise is not None)
        decisions, classes = self._decided(raw)
        is_counted = method in {"predict", "decision_function"} and len(classes) == 2
        if promise is not None and not promise.decides_rows and is_counted:
            combine, threshold = self._combination()
            promise.record(raw, keys, combine, threshold)
        return decisions, classes

    def _predicted_labels(self, X: Any) -> NDArray[Any]:
        """Return the labels that follow from the scores and the threshold alone."""
        scores, classes = self._scored(X, "predict")
        return classes[winners(scores, len(classes))]

    @snapshot_read
    def predict_proba(self, X: ArrayLike, *, prior: str | Mapping[Label, float] = "observed") -> FloatArray:
        """Return the probabilities of the classes, calibrated on recent out-of-sample scores.

        Parameters
        ----------
        X : {array-like, sparse matrix, table} of shape (n_samples, n_features)
            Rows.
        prior : {"observed", "balanced"} or mapping of label to float, default="observed"
            Assumed class frequencies: those of recent rows, equal ones, or the given proportions.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            While there are too few recent scores, every row has the assumed class frequencies.
        """
        check_started(self, "predict_proba")
        return self._probabilities(X, prior)

    @snapshot_read
    def predict_set(self, X: ArrayLike, *, coverage: float = 0.95) -> NDArray[np.bool_]:
        """Return prediction sets: the classes that cannot be ruled out, for every row.

        Parameters
        ----------
        X : {array-like, sparse matrix, table} of shape (n_samples, n_features)
            Rows.
        coverage : float, default=0.95
            Target probability that the set contains the true class, for every class.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            Whether each class of ``classes_`` belongs to the set. A class with fewer than
            ``1 / (1 - coverage)`` recent rows belongs to all sets.
        """
        check_started(self, "predict_set")
        if isinstance(coverage, bool) or not isinstance(coverage, int | float) or not 0.0 < coverage < 1.0:
            raise ParameterError(
                f"coverage must be a number between 0 and 1; got {coverage!r}.",
                source=f"{type(self).__name__}.predict_set",
            )
        new, recent = self._log_odds(X, "predict_set")
        return np.ones(new.shape, dtype=bool) if recent is None else prediction_sets(*recent, new, coverage)

    @fitted_property
    def realised_rates_(self) -> list[RealisedRate]:
        """Observed rates of alarms, recall and precision; empty unless the threshold has a target rate."""
        promise = self._decision_state().online_threshold
        return [] if promise is None else promise.realised()

    def _continue_predictions(self, predecessor: Any) -> None:
        """Count further predictions in the log of an earlier copy of this model."""
        if isinstance(predecessor, type(self)) and self._is_started() and predecessor._is_started():
            promise, earlier = (model._decision_state().online_threshold for model in (self, predecessor))
            if promise is not None and earlier is not None and promise.goal == earlier.goal:
                promise.log = earlier.log

    def _keep_decisions(self, X: Any, labels: list[Any]) -> None:
        """Keep predictions of another copy, to count them in the observed rates when the labels arrive."""
        promise = self._decision_state().online_threshold
        if promise is None or len(self.classes_) != 2:
            return
        positive = str(self.classes_[0 if promise.sign < 0.0 else 1])
        alarms = np.array([str(label) == positive for label in labels], dtype=np.float64)
        promise.log.record(self._raw_scores(X, "predict")[1], alarms, is_own=False)

    def _warn_without_rate(self, known: OnlineThreshold | None, n_before: int, n_classes: int) -> None:
        """Warn, once for each goal, that there are too many classes for a target rate."""
        goal = self.threshold
        if is_promise(goal) and (known is None or n_before < 3 or known.goal != dict(goal)):
            warnings.warn(
                f"{type(self).__name__}: threshold={goal!r} keeps its rate with two classes only; there are "
                f"{n_classes}, so each class gets the threshold that is best on recent rows, without a "
                "guarantee, and no rate is observed.",
                UserWarning,
                stacklevel=2,
            )

    @abstractmethod
    def _decision_state(self) -> DecisionState:
        """Return the learned state for decisions."""

    @abstractmethod
    def _raw_scores(self, X: Any, method: str, *, has_rate: bool = True) -> tuple[FloatArray, Keys]:
        """Return raw scores, of shape (n_rows, n_experts, n_scores), and for a rate hashes of the rows."""

    @abstractmethod
    def _combination(self) -> tuple[Combine, float]:
        """Return the function that combines raw scores for two classes, and the threshold of its results."""

    @abstractmethod
    def _decided(self, raw: FloatArray) -> tuple[FloatArray, NDArray[Any]]:
        """Return decisions, positive for the second class or largest for the predicted one, and classes."""

    @abstractmethod
    def _probabilities(self, X: Any, prior: str | Mapping[Label, float]) -> FloatArray:
        """Return the probabilities of the classes."""

    @abstractmethod
    def _log_odds(self, X: Any, method: str) -> tuple[FloatArray, tuple[FloatArray, IntArray] | None]:
        """Return log-odds of rows, and of recent rows with their class indices; one column per class."""


def prediction_sets(
    recent: FloatArray, places: IntArray, new: FloatArray, coverage: float
) -> NDArray[np.bool_]:
    """Return the prediction set of every new row, as a boolean matrix over the classes.

    ``recent`` are out-of-sample log-odds of recent rows, oldest first, ``places`` their class indices, and
    ``new`` the log-odds of the new rows, with one column per class; see the page docs/guarantees.md.
    """
    recent, new = log_softmax(recent, axis=1), log_softmax(new, axis=1)
    members = np.ones(new.shape, dtype=bool)
    for k in range(new.shape[1]):
        own = recent[places == k, k]
        weights = 0.5 ** (np.arange(len(own), 0, -1) / _SET_HALF_LIFE_ROWS)
        order = np.argsort(own)
        summed = np.concatenate([[0.0], np.cumsum(weights[order])])
        below = summed[np.searchsorted(own[order], new[:, k], side="right")]
        members[:, k] = below + 1.0 > (1.0 - coverage) * (summed[-1] + 1.0)
    return members
