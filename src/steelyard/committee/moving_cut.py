"""MovingCut: the cut from recent out-of-sample scores, around any classifier that has scores."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, clone

from steelyard._labels import encode_labels, numpy_labels
from steelyard._types import FloatArray
from steelyard.committee.cuts import ThresholdChoice, choose_cut
from steelyard.committee.evidence import Evidence, align
from steelyard.committee.views import row_keys
from steelyard.exceptions import DataError, NotFittedError, ParameterError
from steelyard.params import Constraint, check_params
from steelyard.persistence import storable

__all__ = ["MovingCut"]

_ENOUGH = 5  # rows of each side below which the classifier cuts for itself


@storable("MovingCut")
class MovingCut(ClassifierMixin, BaseEstimator):
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

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.naive_bayes import GaussianNB
    >>> from steelyard import MovingCut
    >>> rng = np.random.default_rng(0)
    >>> y = (rng.random(2000) < 0.03).astype(int)
    >>> X = rng.normal(size=(2000, 3)) + y[:, None]
    >>> plain, moved = GaussianNB(), MovingCut(GaussianNB())
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

    classifier_: Any
    cuts_: FloatArray

    def __init__(self, classifier: Any, *, threshold: str | dict[str, float] = "gmean") -> None:
        self.classifier = classifier
        self.threshold = threshold

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
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
        rows, labels = np.asarray(X), numpy_labels(y)
        fresh = clone(self)
        for part in np.array_split(np.arange(len(rows)), min(10, max(1, len(rows) // 20))):
            fresh.partial_fit(rows[part], labels[part], classes=np.unique(labels))
        self.__dict__.update(fresh.__dict__)
        return self

    def partial_fit(self, X: ArrayLike, y: ArrayLike, classes: ArrayLike | None = None) -> Self:
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
        check_params(self, self._constraints)
        working, evidence = self._working()
        rows = np.ascontiguousarray(X, dtype=np.float64)
        labels = numpy_labels(y)
        if rows.ndim != 2 or labels.shape != (len(rows),):
            raise DataError(
                f"expected a table and one label for each row; got shapes {rows.shape} and {labels.shape}.",
                who="MovingCut.partial_fit",
            )
        known = _classes(working)
        scores = _scores(working, rows) if len(known) > 1 and len(rows) else None
        if classes is not None and not known:
            working.partial_fit(rows, labels, classes=classes)
        else:
            working.partial_fit(rows, labels)
        # The classifier has taken the rows: from here on nothing fails because of what came.
        names, codes = encode_labels(labels)
        now = _classes(working)
        evidence.know(now)
        places = np.array([now.index(name) if name in now else -1 for name in names], dtype=np.int32)
        aligned = None if scores is None else align(scores[:, None, :], known, now)
        evidence.push(now, places[codes], aligned, row_keys(rows))
        self.classifier_, self._evidence = working, evidence
        self.cuts_ = self._chosen(evidence)
        return self

    def _working(self) -> tuple[Any, Evidence]:
        """The classifier at work and what is known of its answers; fresh ones at the first rows."""
        if "classifier_" in self.__dict__:
            return self.classifier_, self._evidence.copy()
        for method in ("partial_fit", ("decision_function", "predict_proba")):
            names = (method,) if isinstance(method, str) else method
            if not any(hasattr(self.classifier, name) for name in names):
                raise ParameterError(
                    f"the classifier must have {' or '.join(names)}(); {type(self.classifier).__name__} has "
                    "not.",
                    who="MovingCut",
                )
        return clone(self.classifier, safe=False), Evidence(1)

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

    def _answering(self) -> Any:
        if "classifier_" not in self.__dict__:
            raise NotFittedError(
                "this classifier is not fitted yet, it has seen no rows.",
                who="MovingCut",
                hint="call fit() or partial_fit() first",
            )
        return self.classifier_

    @property
    def classes_(self) -> NDArray[Any]:
        """Labels of the classes that the classifier knows."""
        return np.asarray(self._answering().classes_)

    @property
    def n_features_in_(self) -> int:
        """Number of features."""
        return int(self._answering().n_features_in_)

    def __sklearn_is_fitted__(self) -> bool:
        return "classifier_" in self.__dict__

    def decision_function(self, X: ArrayLike) -> FloatArray:
        """The classifier's scores, less the cut where there is one.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        ndarray of shape (n_samples,) or (n_samples, n_classes)
        """
        classifier = self._answering()
        scores = _scores(classifier, np.ascontiguousarray(X, dtype=np.float64))
        own = _own_cut(classifier) if scores.shape[1] == 1 else 0.0
        if scores.shape[1] == len(self.cuts_):
            scores = scores - np.where(np.isnan(self.cuts_), own, self.cuts_)
        return scores[:, 0] if scores.shape[1] == 1 else scores

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Labels of rows.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        classes = self.classes_
        if len(classes) < 2 or np.isnan(self.cuts_).any():
            return np.asarray(self._answering().predict(np.ascontiguousarray(X, dtype=np.float64)))
        scores = self.decision_function(X)
        return np.asarray(classes[scores.argmax(axis=1) if scores.ndim == 2 else (scores > 0.0).astype(int)])

    # -- files --------------------------------------------------------------------------------------

    def _get_state(self) -> dict[str, Any]:
        if "classifier_" not in self.__dict__:
            return {}
        return {"classifier": self.classifier_, "evidence": self._evidence.get_state(), "cuts": self.cuts_}

    def _set_state(self, state: dict[str, Any]) -> None:
        self.classifier_ = state["classifier"]
        self._evidence = Evidence.from_state(state["evidence"], 1)
        self.cuts_ = np.asarray(state["cuts"], dtype=np.float64)


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
