"""AdaptiveThresholdClassifier: the cut from recent out-of-sample scores, around any classifier that has scores."""

from __future__ import annotations

from copy import deepcopy
from inspect import unwrap
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone

from steelyard._concurrency import VersionedValue, lock_of, shallow_copy, synchronized, transactional
from steelyard._types import FloatArray
from steelyard._validation import check_finite, check_started, validate_plain_rows, validate_rows
from steelyard.base import BatchLearner, Learner, Traits, sorted_classes
from steelyard.ensemble.cuts import ThresholdChoice, choose_cut
from steelyard.ensemble.evidence import Evidence, align
from steelyard.ensemble.views import row_keys
from steelyard.exceptions import NotFittedError, ParameterError, SteelyardError
from steelyard.params import Constraint
from steelyard.persistence import storable

__all__ = ["AdaptiveThresholdClassifier"]

_labels_by_scores = unwrap(Learner.predict)  # for whoever holds the lock, who needs no view of the learner
_ENOUGH = 5  # rows of each side below which the classifier cuts for itself


@storable("AdaptiveThresholdClassifier", former_name="MovingCut")
class AdaptiveThresholdClassifier(Learner):
    """Any classifier with scores, cut where its recent scores say it should be.

    A classifier may rank rows well and still answer badly, because its scores are cut at a place that suits
    another class balance, or the balance of last month. Before rows are learned they are scored; of every
    class the last such scores are kept, and the cut is the one that would have been best on them.

    Parameters
    ----------
    classifier : object
        Anything with ``partial_fit``, ``classes_`` and ``decision_function`` or ``predict_proba``: a learner
        of this package, one of scikit-learn's, or one of river's as
        :class:`~steelyard.evaluation.RiverPeer`.
    threshold : "gmean" or dict, default="gmean"
        What the cut aims at, as for :class:`~steelyard.StreamClassifier`.

    Attributes
    ----------
    classifier_ : object
        The classifier at work.
    cuts_ : ndarray of shape (n_planes,)
        The cut of each plane, in units of the classifier's scores; NaN where there are too few rows to tell,
        and the classifier's own answer stands.
    classes_ : ndarray of shape (n_classes,)
        Labels of the classes that the classifier knows.

    Notes
    -----
    Two classes have one plane and one cut; more have one each, every class against the rest, and the class
    that is furthest above its cut wins. About 1,000 recent rows are looked at, and at least 100 of each
    class that has had so many.

    What interrupts a call finds both, classifier and cut, before it or after it. ProximalSVC and
    IncrementalSVC see to that themselves; any other classifier is copied for every call that learns, which
    a forest of many trees feels: teach it in chunks.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.naive_bayes import GaussianNB
    >>> from steelyard import AdaptiveThresholdClassifier
    >>> rng = np.random.default_rng(0)
    >>> y = (rng.random(2000) < 0.03).astype(int)
    >>> X = rng.normal(size=(2000, 3)) + y[:, None]
    >>> plain, moved = GaussianNB(), AdaptiveThresholdClassifier(GaussianNB())
    >>> for begin in range(0, 1000, 100):
    ...     part = slice(begin, begin + 100)
    ...     _ = plain.partial_fit(X[part], y[part], classes=[0, 1])
    ...     _ = moved.partial_fit(X[part], y[part], classes=[0, 1])
    >>> rare = y[1000:] == 1
    >>> found = [float(model.predict(X[1000:])[rare].mean()) for model in (plain, moved)]
    >>> found[0] < 0.2 < 0.7 < found[1]
    True
    """

    _constraints: ClassVar[dict[str, Constraint]] = {"threshold": ThresholdChoice()}
    _traits = Traits(
        bounded_memory=False,  # who knows what the classifier keeps
        exempt={
            "chunk_borders_do_not_matter": (
                "a chunk is scored before it is learned, and the cut rests on these scores; so the size of "
                "the chunks is how late labels come"
            ),
            "fit_equals_partial_fit": "fit() takes rows in ten parts, so that nine of them are scored first",
        },
    )
    _finds_nonfinite = True  # before the classifier sees the rows

    classifier_: Any
    _known: VersionedValue[tuple[Evidence, FloatArray]]  # with the cuts, by the version of the classifier

    def __init__(self, classifier: Any, *, threshold: str | dict[str, float] = "gmean") -> None:
        self.classifier = classifier
        self.threshold = threshold

    @transactional
    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:  # type: ignore[override]
        """Forget all, then learn these rows, in ten parts so that nine of them are scored first.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows, oldest first.
        y : array-like of shape (n_samples,)
            Their labels.

        Returns
        -------
        self
        """
        fresh = type(self)(**self.get_params(deep=False))
        rows, labels = fresh._checked_rows(X, y, "fit")
        for part in np.array_split(np.arange(len(rows)), min(10, max(1, len(rows) // 20))):
            fresh._take_in(rows[part], labels[part], np.unique(labels), fresh)
        self.__dict__.pop("feature_names_in_", None)
        self.__dict__.update(fresh.__dict__)
        return self

    def partial_fit(  # type: ignore[override]  # not every classifier takes weights
        self, X: ArrayLike, y: ArrayLike, classes: ArrayLike | None = None
    ) -> Self:
        """Score these rows, move the cut by how that went, then let the classifier learn them.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows.
        y : array-like of shape (n_samples,)
            Their labels.
        classes : array-like, optional
            Passed on to a classifier that must know all labels at its first rows.

        Returns
        -------
        self
        """
        with lock_of(self):
            later = shallow_copy(self)
            later._take_in(*later._checked_rows(X, y, "partial_fit"), classes, self)
            self.__dict__ = later.__dict__
        return self

    def _checked_rows(self, X: Any, y: Any, method: str) -> tuple[FloatArray, NDArray[Any]]:
        self._check_params()
        self._check_classifier()
        return validate_plain_rows(self, X, y, method)

    def _take_in(
        self, rows: FloatArray, labels: NDArray[Any], classes: Any, shown: AdaptiveThresholdClassifier
    ) -> None:
        """Score, then learn; ``shown`` is what others see meanwhile."""
        first = "classifier_" not in self.__dict__
        working = clone(self.classifier, safe=False) if first else _twin(self.classifier_)
        before = (Evidence(1), np.full(1, np.nan)) if first else self._now
        known = _classes(working)
        with np.errstate(divide="ignore"):  # logarithms of the share of a class that has no rows yet
            scores = _scores(working, rows) if len(known) > 1 else None

        def after(now: list[Any]) -> tuple[Evidence, FloatArray]:
            evidence = before[0].copy()
            evidence.know(now)
            places = {label: place for place, label in enumerate(now)}
            codes = np.array([places.get(label, -1) for label in labels.tolist()], dtype=np.int64)
            aligned = None if scores is None else align(scores[:, None, :], known, now)
            evidence.push(codes, aligned, row_keys(rows))
            return evidence, self._chosen(evidence)

        later = None
        if _is_changed_in_place(working) and not first:
            # It changes what is shown, and the cut must change with it.
            later = after(sorted_classes([*{*known, *labels.tolist()}]).tolist())
            shown._known = VersionedValue(working._in_place_version(), before, later)
            try:
                working.update(add=(rows, labels))
            except SteelyardError as error:
                raise error.with_source("AdaptiveThresholdClassifier.partial_fit") from None
        elif classes is not None and not known:
            working.partial_fit(rows, labels, classes=classes)
        else:
            working.partial_fit(rows, labels)
        later = later or after(_classes(working))
        self.classifier_, self._known = working, VersionedValue(None, later, later)

    def _check_classifier(self) -> None:
        for names in (("partial_fit",), ("decision_function", "predict_proba")):
            if not any(hasattr(self.classifier, name) for name in names):
                raise ParameterError(
                    f"the classifier must have {' or '.join(names)}(); {type(self.classifier).__name__} has "
                    "not.",
                    source="AdaptiveThresholdClassifier",
                )

    def _chosen(self, evidence: Evidence) -> FloatArray:
        if len(evidence.classes) < 2:
            return np.full(1, np.nan)
        cuts = []
        for sides in evidence.sides():
            positive, negative = (side[~np.isnan(side[:, 0]), 0] for side in (sides.positive, sides.negative))
            enough = min(len(positive), len(negative)) >= _ENOUGH
            cuts.append(choose_cut(positive, negative, self.threshold, sides.share) if enough else np.nan)
        return np.array(cuts)

    # -- answering ----------------------------------------------------------------------------------

    @property
    def _now(self) -> tuple[Evidence, FloatArray]:
        """Evidence and cuts that belong to the classifier as it is now."""
        classifier = self.classifier_
        return self._known.at(
            classifier._in_place_version() if isinstance(classifier, BatchLearner) else None
        )

    @property
    @synchronized
    def cuts_(self) -> FloatArray:
        """The cut of each plane; NaN where the classifier's own answer stands."""
        self._need("cuts_")
        return self._now[1]

    @property
    def classes_(self) -> NDArray[Any]:
        """Labels of the classes that the classifier knows."""
        self._need("classes_")
        return np.asarray(self.classifier_.classes_)

    def _is_started(self) -> bool:
        return "classifier_" in self.__dict__

    # The classifier may be changed in place, and keeps no answer.
    decision_function = synchronized(Learner.decision_function)

    def _checked_questions(self, X: Any, method: str) -> FloatArray:
        rows = check_finite(self, validate_rows(self, X, method), method)
        return np.ascontiguousarray(rows, dtype=np.float64)

    def _scored(self, X: Any, method: str) -> tuple[FloatArray, NDArray[Any]]:
        """The classifier's scores, less the cut where there is one."""
        rows = self._checked_questions(X, method)
        scores, cuts = _scores(self.classifier_, rows), self._now[1]
        own = _own_cut(self.classifier_) if scores.shape[1] == 1 else 0.0
        if scores.shape[1] == len(cuts):
            scores = scores - np.where(np.isnan(cuts), own, cuts)
        return scores, self.classes_

    @synchronized
    def predict(self, X: ArrayLike) -> NDArray[Any]:
        check_started(self, "predict")
        if len(self.classes_) > 1 and not np.isnan(self._now[1]).any():
            return _labels_by_scores(self, X)
        return np.asarray(self.classifier_.predict(self._checked_questions(X, "predict")))

    # -- files --------------------------------------------------------------------------------------

    def __getstate__(self) -> dict[str, Any]:
        with lock_of(self):
            state = super().__getstate__()
            if self._is_started():
                now = self._now
                state |= {"classifier_": deepcopy(self.classifier_), "_known": VersionedValue(None, now, now)}
            return state

    def _get_state(self) -> dict[str, Any]:
        if not self._is_started():
            return {}
        evidence, cuts = self._now
        names = {"n_features": int(self.n_features_in_), "names": self.__dict__.get("feature_names_in_")}
        return {"classifier": self.classifier_, "evidence": evidence.get_state(), "cuts": cuts, **names}

    def _set_state(self, state: dict[str, Any]) -> None:
        if not state:
            return
        self.classifier_ = state["classifier"]
        n_features = state.get("n_features")  # files of earlier versions have it in the classifier alone
        n_features = self.classifier_.n_features_in_ if n_features is None else n_features
        self._set_features({"n_features": n_features, "feature_names": state.get("names")})
        known = Evidence.from_state(state["evidence"], 1), np.asarray(state["cuts"], dtype=np.float64)
        self._known = VersionedValue(None, known, known)


def _is_changed_in_place(classifier: Any) -> bool:
    """Whether a learner of this package changes what others see, by one native call."""
    return isinstance(classifier, BatchLearner) and bool(classifier._in_place)


def _twin(classifier: Any) -> Any:
    """A classifier that learns without the other noticing, or changes it at one moment that can be told."""
    return shallow_copy(classifier) if _is_changed_in_place(classifier) else deepcopy(classifier)


def _classes(classifier: Any) -> list[Any]:
    """Labels that a classifier knows; none before its first rows."""
    try:
        known: list[Any] = np.asarray(classifier.classes_).tolist()
    except (AttributeError, NotFittedError):
        return []
    return known


def _scores(classifier: Any, X: FloatArray) -> FloatArray:
    """One column for two classes, the score of the second; otherwise one a class."""
    if hasattr(classifier, "decision_function"):
        scores = np.asarray(classifier.decision_function(X), dtype=np.float64)
    else:
        scores = np.asarray(classifier.predict_proba(X), dtype=np.float64)
        if scores.shape[1] == 2:
            scores = scores[:, 1]
    return scores[:, None] if scores.ndim == 1 else scores


def _own_cut(classifier: Any) -> float:
    """Where a classifier of two classes cuts by itself."""
    return 0.0 if hasattr(classifier, "decision_function") else 0.5
