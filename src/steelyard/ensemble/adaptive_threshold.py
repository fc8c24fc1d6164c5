"""AdaptiveThresholdClassifier: a decision threshold chosen from recent scores, for any classifier."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import KW_ONLY, field, replace
from math import inf, isnan
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import softmax
from sklearn.base import clone

from steelyard import _native
from steelyard._concurrency import VersionedValue, lock_of, shallow_copy, synchronized, transactional
from steelyard._deprecation import renamed_attribute, renamed_parameters
from steelyard._labels import positive_class
from steelyard._types import FloatArray, IntArray
from steelyard._validation import (
    check_finite,
    checked_times,
    validate_plain_rows,
    validate_rows,
)
from steelyard.base import BatchLearner, Label, Traits, fitted_property, sorted_classes
from steelyard.ensemble.decision import DecisionState, RowCosts, ThresholdedClassifier
from steelyard.ensemble.explanation import transformed
from steelyard.ensemble.mixing import EnsembleSnapshot, weigh
from steelyard.ensemble.online_threshold import Combine, Keys, OnlineThreshold, plain_scores
from steelyard.ensemble.scores import ScoreBuffer, align
from steelyard.ensemble.settings import SETTINGS
from steelyard.ensemble.views import Views
from steelyard.exceptions import NotFittedError, ParameterError, SteelyardError
from steelyard.explanation.attribution import Attribution
from steelyard.explanation.neighbors import RememberedRows
from steelyard.params import LabelOrNone, parameter, parametrized, prior_factors
from steelyard.persistence import storable
from steelyard.thresholds import ThresholdChoice, choose_threshold, mirrored_threshold, signed_scores

_FORMER_PARAMETERS = {"classifier": "estimator"}


class _Known(NamedTuple):
    """Recent scores, thresholds, and the state behind the decisions of one version of the classifier."""

    buffer: ScoreBuffer
    thresholds: FloatArray
    decision: DecisionState


@renamed_parameters(**_FORMER_PARAMETERS)
@storable("AdaptiveThresholdClassifier", former_name="MovingCut", former_parameters=_FORMER_PARAMETERS)
@parametrized()
class AdaptiveThresholdClassifier(ThresholdedClassifier):
    """Adaptive decision threshold for any classifier with scores.

    A classifier may rank rows well and still predict badly, because its threshold suits another class balance
    or the balance of last month. This wrapper scores rows before the classifier learns them, keeps the most
    recent scores of every class, and predicts with the threshold that is best for these scores.

    Parameters
    ----------
    estimator : object
        Any classifier with ``partial_fit``, ``classes_`` and ``decision_function`` or ``predict_proba``: from
        this package, from scikit-learn, or from river, wrapped in a
        :class:`~steelyard.evaluation.RiverPeer`.
    threshold : "gmean", "kappa", "f1" or dict, default="gmean"
        Goal for which the threshold is chosen; see :class:`~steelyard.StreamClassifier`.
    positive : label or None, default=None
        The positive class, whose predictions are alarms; see :class:`~steelyard.StreamClassifier`.

    Attributes
    ----------
    estimator_ : object
        The fitted classifier.
    thresholds_ : ndarray of shape (1,) or (n_classes,)
        Threshold on the classifier's scores: one for two classes, otherwise one per class. NaN means that
        there are too few recent rows, so that the classifier's default threshold is used.
    classes_ : ndarray of shape (n_classes,)
        Labels of the classes that the classifier knows.
    positive_ : label or None
        The positive class; None if there are not exactly two classes.

    Notes
    -----
    With two classes ``decision_function`` is the score minus the threshold. With a target rate the threshold
    decides only the sign, so scores of different times can be compared. With more classes every class is
    compared with the rest, and the class with the largest difference is predicted. About 1,000 recent rows
    are used, including at least 100 of each class, if available.

    Calls are atomic, even if interrupted: classifier and threshold change together or not at all. Learners of
    this package guarantee this themselves. Any other classifier is copied in every call of ``partial_fit``,
    which is slow for large models such as forests: pass rows in chunks.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.naive_bayes import GaussianNB
    >>> from steelyard import AdaptiveThresholdClassifier
    >>> rng = np.random.default_rng(0)
    >>> y = (rng.random(2000) < 0.03).astype(int)
    >>> X = rng.normal(size=(2000, 3)) + y[:, None]
    >>> plain, adaptive = GaussianNB(), AdaptiveThresholdClassifier(GaussianNB())
    >>> for begin in range(0, 1000, 100):
    ...     part = slice(begin, begin + 100)
    ...     _ = plain.partial_fit(X[part], y[part], classes=[0, 1])
    ...     _ = adaptive.partial_fit(X[part], y[part], classes=[0, 1])
    >>> rare = y[1000:] == 1
    >>> found = [float(model.predict(X[1000:])[rare].mean()) for model in (plain, adaptive)]
    >>> found[0] < 0.2 < 0.7 < found[1]
    True
    """

    _traits = Traits(
        bounded_memory=False,  # the memory of the classifier is unknown
        exempt={
            "chunk_borders_do_not_matter": (
                "a chunk is scored before it is learned, and the threshold depends on these scores, so the "
                "labels of a row arrive later in a larger chunk"
            ),
            "fit_equals_partial_fit": "fit() learns rows in ten parts, so that nine of them are scored first",
        },
    )
    _finds_nonfinite = True  # this class checks rows before it passes them to the classifier

    estimator: Any
    estimator_: Any = field(init=False)
    # States before and after an update in place. The version of the classifier selects the valid one.
    _known: VersionedValue[_Known] = field(init=False)
    _: KW_ONLY
    threshold: str | dict[str, float] = parameter("gmean", ThresholdChoice())
    positive: Label | None = parameter(None, LabelOrNone())

    classifier_ = renamed_attribute("estimator_", "classifier_")
    cuts_ = renamed_attribute("thresholds_", "cuts_")

    @transactional
    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:  # type: ignore[override]
        """Discard the learned state and learn rows in ten parts, each scored before it is learned.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows, oldest first.
        y : array-like of shape (n_samples,)
            Labels of the rows.

        Returns
        -------
        self
        """
        fresh = type(self)(**self.get_params(deep=False))
        rows, labels = fresh._checked_rows(X, y, "fit")
        for part in np.array_split(np.arange(len(rows)), min(10, max(1, len(rows) // 20))):
            fresh._score_and_learn(rows[part], labels[part], np.unique(labels), fresh)
        self.__dict__.pop("feature_names_in_", None)
        self.__dict__.update(fresh.__dict__)
        return self

    def partial_fit(  # type: ignore[override]  # not every classifier accepts weights
        self,
        X: ArrayLike,
        y: ArrayLike,
        classes: ArrayLike | None = None,
        *,
        time: ArrayLike | None = None,
        sample_cost: ArrayLike | None = None,
    ) -> Self:
        """Score the given rows, adapt the threshold, and let the classifier learn the rows.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows.
        y : array-like of shape (n_samples,)
            Labels of the rows.
        classes : array-like, optional
            All labels, for a classifier that must know them in its first call.
        time : array-like of shape (n_samples,), optional
            Times of the rows in seconds, for ``threshold={"alarms_per_day": ...}``.
        sample_cost : array-like of shape (n_samples,), optional
            Factor by which the cost of a miss is multiplied for each row. The threshold uses the mean factor
            of recent positive rows.

        Returns
        -------
        self
        """
        with lock_of(self):
            later = shallow_copy(self)
            rows, labels = later._checked_rows(X, y, "partial_fit")
            times = None if time is None else checked_times(time, len(rows))
            decision = self._now.decision if self._is_started() else DecisionState()
            if sample_cost is not None:
                costs = decision.row_costs.after(sample_cost, labels, f"{type(self).__name__}.partial_fit")
                decision = replace(decision, row_costs=costs)
            later._score_and_learn(rows, labels, classes, self, times=times, decision=decision)
            self.__dict__ = later.__dict__
        return self

    def _checked_rows(self, X: Any, y: Any, method: str) -> tuple[FloatArray, NDArray[Any]]:
        self._check_params()
        for names in (("partial_fit",), ("decision_function", "predict_proba")):
            if not any(hasattr(self.estimator, name) for name in names):
                kind = type(self.estimator).__name__
                raise ParameterError(
                    f"the estimator must have {' or '.join(names)}(); {kind} does not.",
                    source="AdaptiveThresholdClassifier",
                )
        return validate_plain_rows(self, X, y, method)

    def _score_and_learn(
        self,
        rows: FloatArray,
        labels: NDArray[Any],
        classes: Any,
        published: AdaptiveThresholdClassifier,
        *,
        times: FloatArray | None = None,
        decision: DecisionState | None = None,
    ) -> None:
        """Score rows and then learn them. Meanwhile other threads read the object ``published``."""
        first = "estimator_" not in self.__dict__
        # Updates of a shallow copy also change the original, which counts its versions.
        in_place = not first and isinstance(self.estimator_, BatchLearner) and bool(self.estimator_._in_place)
        if first:
            working = clone(self.estimator, safe=False)
        else:
            working = shallow_copy(self.estimator_) if in_place else deepcopy(self.estimator_)
        before = _Known(ScoreBuffer(1), np.full(1, np.nan), DecisionState()) if first else self._now
        decision = decision or before.decision
        known = _classes(working)
        with np.errstate(divide="ignore"):  # some classifiers compute log(0) for a class without rows
            scores = _scores(working, rows) if len(known) > 1 else None

        def after(now: list[Any]) -> _Known:
            buffer, keys = shallow_copy(before.buffer), _native.row_hashes(rows)
            if len(now) > 2:
                self._warn_without_rate(before.decision.online_threshold, len(buffer.classes), len(now))
            if now != buffer.classes:
                buffer.set_classes(now)
            positive = self._find_positive(buffer, decision.positive)
            updated = decision.with_goal(self.threshold, len(now) == 2 and bool(now[0] == positive))
            promise = updated.online_threshold
            if promise is not None:
                promise.log.note_times(times, predicted=False)
            place_of = {label: place for place, label in enumerate(now)}
            places = np.array([place_of.get(label, -1) for label in labels.tolist()], dtype=np.int64)
            aligned = None if scores is None else align(scores[:, None, :], known, now)
            buffer.push(places, aligned, keys)
            if promise is not None and scores is not None and known == now and len(now) == 2:
                is_positive = places == (0 if promise.sign < 0.0 else 1)
                promise.learn(scores[:, 0], before.thresholds[0], keys, is_positive)
            updated = replace(updated, positive=self._find_positive(buffer, positive))
            return _Known(buffer, self._thresholds(buffer, updated), updated)

        later = None
        if in_place:  # the threshold must change together with the published classifier
            later = after(sorted_classes([*{*known, *labels.tolist()}]).tolist())
            published._known = VersionedValue(working._in_place_version(), before, later)
            try:
                working.update(add=(rows, labels))
            except SteelyardError as error:
                raise error.with_source("AdaptiveThresholdClassifier.partial_fit") from None
        elif classes is not None and not known:
            working.partial_fit(rows, labels, classes=classes)
        else:
            working.partial_fit(rows, labels)
        later = later or after(_classes(working))
        self.estimator_, self._known = working, VersionedValue(None, later, later)

    def _thresholds(self, buffer: ScoreBuffer, decision: DecisionState) -> FloatArray:
        if len(buffer.classes) < 2:
            return np.full(1, np.nan)
        choose = mirrored_threshold if decision.is_mirrored(buffer.classes) else choose_threshold
        goal = decision.goal_for(self.threshold, buffer.classes)
        thresholds = []
        for sides in buffer.sides():
            own, others = (side[~np.isnan(side[:, 0]), 0] for side in sides[:2])
            is_small = min(len(own), len(others)) < SETTINGS.min_threshold_rows
            thresholds.append(np.nan if is_small else choose(own, others, goal, sides.share))
        if isinstance(goal, OnlineThreshold) and not np.isnan(thresholds[0]):
            thresholds = [goal.decision_threshold(plain_scores)]
        return np.array(thresholds)

    def _find_positive(self, buffer: ScoreBuffer, held: Label | None) -> Label | None:
        counts = dict(zip(buffer.classes, buffer.shares().tolist(), strict=True))
        return positive_class(counts, self.positive, held)

    @fitted_property
    @synchronized
    def positive_(self) -> Label | None:
        """The positive class; None if there are not exactly two classes."""
        return self._find_positive(self._now.buffer, self._now.decision.positive)

    # -- predicting ---------------------------------------------------------------------------------

    @property
    def _now(self) -> _Known:
        """Return the recent scores and thresholds of the current version of the classifier."""
        estimator = self.estimator_
        return self._known.at(estimator._in_place_version() if isinstance(estimator, BatchLearner) else None)

    @fitted_property
    @synchronized
    def thresholds_(self) -> FloatArray:
        """Threshold of each score column; NaN where the classifier's default threshold is used."""
        return self._now.thresholds

    def _decision_state(self) -> DecisionState:
        return self._now.decision

    @fitted_property
    def classes_(self) -> NDArray[Any]:
        """Labels of the classes that the classifier knows."""
        return np.asarray(self.estimator_.classes_)

    def _is_started(self) -> bool:
        return "estimator_" in self.__dict__

    # The classifier may be updated in place, so readers wait for the lock.
    decision_function = synchronized(ThresholdedClassifier.decision_function)
    predict = synchronized(ThresholdedClassifier.predict)
    predict_proba = synchronized(ThresholdedClassifier.predict_proba)
    predict_set = synchronized(ThresholdedClassifier.predict_set)
    explain = synchronized(ThresholdedClassifier.explain)

    def _checked_finite(self, X: Any, method: str) -> FloatArray:
        rows = check_finite(self, validate_rows(self, X, method), method)
        return np.ascontiguousarray(rows, dtype=np.float64)

    def _raw_scores(self, X: Any, method: str, *, has_rate: bool = True) -> tuple[FloatArray, Keys]:
        rows = self._checked_finite(X, method)
        keys = _native.row_hashes(rows) if has_rate else np.zeros(0, dtype=np.uint64)
        return _scores(self.estimator_, rows)[:, None], keys

    def _combination(self) -> tuple[Combine, float]:
        return plain_scores, float(self._now.thresholds[0])

    def _explained_scores(self, X: FloatArray) -> tuple[FloatArray, NDArray[Any]]:
        return self._decided(_scores(self.estimator_, self._checked_finite(X, "explain"))[:, None])

    def _decided(self, raw: FloatArray) -> tuple[FloatArray, NDArray[Any]]:
        scores, (_, thresholds, decision) = raw[:, 0], self._now
        promise, is_single = decision.online_threshold, scores.shape[1] == 1
        if is_single:
            own, threshold = _own_threshold(self.estimator_), float(thresholds[0])
            if isnan(threshold):  # a precision needs a tested threshold, without which no row is an alarm
                threshold = own if promise is None or promise.levels is None else promise.sign * inf
            if promise is None:
                scores = scores - threshold
            else:
                scores = signed_scores(scores - own, scores > threshold)
        elif scores.shape[1] == len(thresholds):
            scores = scores - np.where(np.isnan(thresholds), 0.0, thresholds)
        return scores, self.classes_

    def _remembered_rows(self) -> RememberedRows | None:
        estimator = self.estimator_
        return estimator._remembered_rows() if isinstance(estimator, BatchLearner) else None

    def _attribution(self, X: FloatArray, background: FloatArray | None) -> Attribution:
        estimator = self.estimator_
        if not isinstance(estimator, BatchLearner):
            return super()._attribution(X, background)

        def decide(scores: FloatArray) -> FloatArray:
            return self._decided(scores.reshape(-1, 1, len(part.base)))[0].reshape(scores.shape)

        part = estimator._attribution(X, background)
        if self._now.decision.online_threshold is not None and len(part.base) == 1:
            return transformed(part, _scores(estimator, X), decide)
        reference = _scores(estimator, np.zeros((1, X.shape[1])))
        return part.shifted((decide(reference) - reference)[0])

    def _predicted_labels(self, X: Any) -> NDArray[Any]:
        _, thresholds, decision = self._now
        promise = decision.online_threshold
        promises_precision = promise is not None and promise.levels is not None
        if len(self.classes_) > 1 and (promises_precision or not np.isnan(thresholds).any()):
            return super()._predicted_labels(X)
        return np.asarray(self.estimator_.predict(self._checked_finite(X, "predict")))

    def _probabilities(self, X: Any, prior: str | Mapping[Label, float]) -> FloatArray:
        classes, shares = self.classes_.tolist(), self._now.buffer.shares
        factors = prior_factors(prior, classes, shares, f"{type(self).__name__}.predict_proba")
        log_odds, _ = self._log_odds(X, "predict_proba")
        return softmax(log_odds if factors is None else log_odds + np.log(np.maximum(factors, 1e-9)), axis=1)

    def _log_odds(self, X: Any, method: str) -> tuple[FloatArray, tuple[FloatArray, IntArray] | None]:
        rows, buffer = self._checked_finite(X, method), self._now.buffer
        weights = weigh(buffer, "gmean", np.ones(1)) if buffer.classes == _classes(self.estimator_) else None
        if weights is None:
            return np.zeros((len(rows), len(self.classes_))), None
        # The classifier is treated as the only expert of an ensemble.
        snapshot = EnsembleSnapshot(list(buffer.classes), self.classes_, [], weights, Views())
        places, recent = buffer.recent()
        new = _scores(self.estimator_, rows)[:, None]
        recent, new = (snapshot.log_odds(snapshot.decide(scores)) for scores in (recent, new))
        return new, (recent, places)

    # -- saving and loading -------------------------------------------------------------------------

    def __getstate__(self) -> dict[str, Any]:
        with lock_of(self):
            state = super().__getstate__()
            if self._is_started():
                now = self._now
                state |= {"estimator_": deepcopy(self.estimator_), "_known": VersionedValue(None, now, now)}
            return state

    def _get_state(self) -> dict[str, Any]:
        if not self._is_started():
            return {}
        buffer, thresholds, decision = self._now
        promise = decision.online_threshold
        names = {"n_features": int(self.n_features_in_), "names": self.__dict__.get("feature_names_in_")}
        names |= {"positive": decision.positive, "costs": decision.row_costs.get_state()}
        scores = {"evidence": buffer.get_state(), "cuts": thresholds}
        saved = None if promise is None else promise.get_state()
        return {"classifier": self.estimator_, **scores, "promise": saved, **names}

    def _set_state(self, state: dict[str, Any]) -> None:
        if not state:
            return
        self.estimator_ = state["classifier"]
        n_features = state.get("n_features")  # files of version 0.1 store it only in the estimator
        n_features = self.estimator_.n_features_in_ if n_features is None else n_features
        self._set_features({"n_features": n_features, "feature_names": state.get("names")})
        known = _Known(
            ScoreBuffer.from_state(state["evidence"], 1),
            np.asarray(state["cuts"], dtype=np.float64),
            DecisionState(
                state.get("positive"),
                OnlineThreshold.from_state(state.get("promise")),
                row_costs=RowCosts.from_state(state.get("costs")),
            ),
        )
        self._known = VersionedValue(None, known, known)


def _classes(estimator: Any) -> list[Any]:
    """Return the labels that a classifier knows, or an empty list before its first rows."""
    try:
        known: list[Any] = np.asarray(estimator.classes_).tolist()
    except (AttributeError, NotFittedError):
        return []
    return known


def _scores(estimator: Any, X: FloatArray) -> FloatArray:
    """Return one column with the score of the second of two classes, otherwise one column per class."""
    if hasattr(estimator, "decision_function"):
        scores = np.asarray(estimator.decision_function(X), dtype=np.float64)
    else:
        scores = np.asarray(estimator.predict_proba(X), dtype=np.float64)
        if scores.shape[1] == 2:
            scores = scores[:, 1]
    return scores[:, None] if scores.ndim == 1 else scores


def _own_threshold(estimator: Any) -> float:
    """Return the default threshold of a classifier with two classes."""
    return 0.0 if hasattr(estimator, "decision_function") else 0.5
