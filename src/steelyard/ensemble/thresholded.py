"""Base class of classifiers whose decision threshold follows recent scores and a goal."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import log_softmax

from steelyard._labels import Label, winners
from steelyard._types import FloatArray, IntArray
from steelyard._validation import check_started, checked_times
from steelyard.base import Learner, snapshot_read
from steelyard.ensemble.decision import cost_alarms, is_prices
from steelyard.ensemble.online_threshold import OnlineThreshold, RealisedRate, is_promise
from steelyard.exceptions import ParameterError
from steelyard.thresholds import alarm_indices

_HALF_LIFE_ROWS = 200.0  # half-life of the weights of recent rows, in rows of the same class


class ThresholdedClassifier(Learner):
    """Base class of classifiers that predict by a threshold, at a target rate, or by the costs of rows.

    A subclass has the parameters ``threshold`` and ``positive`` and defines how it scores rows.
    """

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
            source, is_mirrored = f"{type(self).__name__}.predict", self._is_mirrored()
            probabilities = self.predict_proba(X)
            alarms = cost_alarms(probabilities, sample_cost, self.threshold, source, is_mirrored=is_mirrored)
            return self.classes_[alarm_indices(alarms, is_mirrored=is_mirrored)]
        promise = self._promise()
        if promise is None or not promise.decides_rows or len(self.classes_) != 2:
            return self._predicted_labels(X)
        scores, raw, keys, combine = self._scores_for_alarms(X)
        times = None if time is None else checked_times(time, len(keys))
        alarms = promise.alarms(scores, raw, keys, combine, times)
        return self.classes_[alarm_indices(alarms, is_mirrored=promise.sign < 0.0)]

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

    @property
    def realised_rates_(self) -> list[RealisedRate]:
        """Observed rates of alarms, recall and precision; empty unless the threshold has a target rate."""
        self._need("realised_rates_")
        promise = self._promise()
        return [] if promise is None else promise.realised()

    def _continue_predictions(self, predecessor: Any) -> None:
        """Count further predictions in the log of an earlier copy of this model."""
        if isinstance(predecessor, type(self)) and self._is_started() and predecessor._is_started():
            promise, earlier = self._promise(), predecessor._promise()
            if promise is not None and earlier is not None and promise.goal == earlier.goal:
                promise.log = earlier.log

    def _keep_decisions(self, X: Any, labels: list[Any]) -> None:
        """Keep predictions of another copy, to count them in the observed rates when the labels arrive."""
        promise = self._promise()
        if promise is None or len(self.classes_) != 2:
            return
        positive = str(self.classes_[0 if promise.sign < 0.0 else 1])
        alarms = np.array([str(label) == positive for label in labels], dtype=np.float64)
        promise.log.record(self._scores_for_alarms(X)[2], alarms, is_own=False)

    def _warn_without_rate(self, known: OnlineThreshold | None, n_before: int, n_classes: int) -> None:
        """Warn, once for each goal, if there are too many classes for a target rate.

        ``known`` is the online threshold before the new rows, when there were ``n_before`` classes.
        """
        goal = self.threshold
        if not is_promise(goal) or n_classes < 3:
            return
        if known is None or n_before < 3 or known.goal != dict(goal):
            warnings.warn(
                f"{type(self).__name__}: threshold={goal!r} keeps its rate with two classes only; there are "
                f"{n_classes}, so each class gets the threshold that is best on recent rows, without a "
                "guarantee, and no rate is observed.",
                UserWarning,
                stacklevel=2,
            )

    @abstractmethod
    def _promise(self) -> OnlineThreshold | None:
        """Return the threshold that keeps a target rate, or None if the goal is not a rate."""

    @abstractmethod
    def _is_mirrored(self) -> bool:
        """Return whether the first of two classes is the positive one."""

    @abstractmethod
    def _scores_for_alarms(
        self, X: Any
    ) -> tuple[FloatArray, FloatArray, NDArray[np.uint64], Callable[[FloatArray], FloatArray]]:
        """Return the first four arguments of :meth:`OnlineThreshold.alarms` for rows of two classes."""

    @abstractmethod
    def _probabilities(self, X: Any, prior: str | Mapping[Label, float]) -> FloatArray:
        """Return the probabilities of the classes."""

    @abstractmethod
    def _log_odds(self, X: Any, method: str) -> tuple[FloatArray, tuple[FloatArray, IntArray] | None]:
        """Return the log-odds of rows, and a pair of log-odds and class indices of recent rows.

        Log-odds have one column per class. The pair is None if there are no recent scores of the current
        classes.
        """


def prediction_sets(
    recent: FloatArray, places: IntArray, new: FloatArray, coverage: float
) -> NDArray[np.bool_]:
    """Return the prediction set of every new row, as a boolean matrix over the classes.

    A class belongs to the set unless the row's probability of this class is among the lowest
    ``1 - coverage`` of recent out-of-sample probabilities of rows of this class. Newer rows have larger
    weights. If the rows of a class are exchangeable and the weights equal, the set of a row of this class
    contains it with probability ``coverage`` or more (Vovk 2012). With drift and decaying weights, the loss
    of coverage is at most the weighted distance between the past and the current distributions (Barber,
    Candes, Ramdas, Tibshirani 2023).

    ``recent`` are out-of-sample log-odds of recent rows, oldest first, ``places`` their class indices, and
    ``new`` the log-odds of the new rows, with one column per class.
    """
    recent, new = log_softmax(recent, axis=1), log_softmax(new, axis=1)
    members = np.ones(new.shape, dtype=bool)
    for k in range(new.shape[1]):
        own = recent[places == k, k]
        weights = 0.5 ** (np.arange(len(own), 0, -1) / _HALF_LIFE_ROWS)
        order = np.argsort(own)
        summed = np.concatenate([[0.0], np.cumsum(weights[order])])
        below = summed[np.searchsorted(own[order], new[:, k], side="right")]
        members[:, k] = below + 1.0 > (1.0 - coverage) * (summed[-1] + 1.0)
    return members
