"""Learners in river's pipelines, and river's models as learners here (extra ``river``)."""

from __future__ import annotations

import copy
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from river.base import Classifier, Estimator

from steelyard._types import FloatArray
from steelyard.base import Label
from steelyard.evaluation.peers import RiverPeer
from steelyard.exceptions import DataError, ParameterError
from steelyard.proximal import ProximalSVC
from steelyard.streams.predictions import is_ready

__all__ = ["RiverClassifier", "from_river", "to_river"]

Row = Mapping[Hashable, Any]


class RiverClassifier(Classifier):
    """A learner as river has its classifiers: rows are dictionaries that come one by one.

    A name that is missing in a row stands for zero. A name that comes later makes a learner grow that can
    (those with ``grow``, such as :class:`~steelyard.ProximalSVC`), exactly as if all rows before had had a
    zero there; other learners keep to the names of the first row, or to ``features``, and pass over the rest.

    Parameters
    ----------
    learner : Learner
        Where to start; what is taught is a copy, and a clone starts here again.
    features : sequence, optional
        Names of the features in their order. By default those that the learner has learned (0, 1, ... where
        it has learned arrays), or the names of the first row, sorted.

    Examples
    --------
    >>> from river import datasets, evaluate, metrics
    >>> from steelyard import ProximalSVC
    >>> from steelyard.compat.river import to_river
    >>> evaluate.progressive_val_score(datasets.Phishing(), to_river(ProximalSVC()), metrics.GeometricMean())
    GeometricMean: 89.70%
    """

    def __init__(self, learner: Any, features: Sequence[Hashable] | None = None) -> None:
        if not hasattr(learner, "partial_fit"):
            raise ParameterError(
                "river's models learn row by row, which needs partial_fit(); this learner has none.",
                source=type(learner).__name__,
            )
        self.learner = learner
        self.features = features
        self._taught = copy.deepcopy(learner)
        self._places = {name: place for place, name in enumerate(self._first_names())}
        # Rows go in as arrays, whose order is kept here.
        self._taught.__dict__.pop("feature_names_in_", None)

    def _first_names(self) -> list[Hashable]:
        width = getattr(self._taught, "n_features_in_", None)
        if self.features is not None:
            names = list(self.features)
            if len(set(names)) != len(names) or width not in {None, len(names)}:
                raise ParameterError(
                    f"features must be {'distinct' if width is None else f'{width} distinct'} names; "
                    f"got {names!r}.",
                    source="to_river",
                )
            return names
        if width is None:
            return []
        if isinstance(self._taught, ProximalSVC) and len(self._taught.__dict__.get("_keys", ())) == width:
            return list(self._taught._keys)
        named = getattr(self._taught, "feature_names_in_", None)
        return list(range(width)) if named is None else [str(name) for name in named]

    @property
    def _multiclass(self) -> bool:
        return True

    @classmethod
    def _unit_test_params(cls) -> Iterator[dict[str, Any]]:
        yield {"learner": ProximalSVC()}

    def learn_one(self, x: Row, y: Label) -> None:
        """Learn one row.

        Parameters
        ----------
        x : dict
            Numbers by name.
        y : label
            The label of the row.
        """
        places = self._places
        started = hasattr(self._taught, "n_features_in_")
        if hasattr(self._taught, "grow") or (not started and self.features is None):
            # Sorted: sums then run in one order, however a row's names were ordered.
            new = sorted((name for name in x if name not in places), key=str)
            places = places | {name: len(places) + place for place, name in enumerate(new)}
        row = _row(x, places, "learn_one")
        taught = self._taught
        if started and len(places) > taught.n_features_in_:
            taught = copy.deepcopy(taught).grow(len(places))  # a row that is refused must not widen it
        taught.partial_fit(row, np.array([y]))
        self._taught, self._places = taught, places

    def predict_one(self, x: Row, **kwargs: Any) -> Label | None:  # noqa: ARG002  river's signature
        """The label of one row; None before anything was learned.

        Parameters
        ----------
        x : dict
            Numbers by name.
        **kwargs : dict
            Passed over.

        Returns
        -------
        label or None
        """
        if not is_ready(self._taught):
            return None
        label: Label = self._taught.predict(_row(x, self._places, "predict_one")).tolist()[0]
        return label

    def predict_proba_one(self, x: Row, **kwargs: Any) -> dict[Label, float]:  # noqa: ARG002
        """Probabilities of the labels seen so far; none before anything was learned.

        Parameters
        ----------
        x : dict
            Numbers by name.
        **kwargs : dict
            Passed over.

        Returns
        -------
        dict of label to float
        """
        if not hasattr(self._taught, "predict_proba"):
            raise NotImplementedError(f"{type(self._taught).__name__} gives labels, no probabilities")
        if not is_ready(self._taught):
            return {}
        chances = self._taught.predict_proba(_row(x, self._places, "predict_proba_one"))[0]
        return dict(zip(self._taught.classes_.tolist(), chances.tolist(), strict=True))

    def taught(self) -> Any:
        """A copy of the learner with all that it has learned, and with the names of its features.

        Returns
        -------
        Learner
        """
        learner = copy.deepcopy(self._taught)
        names = list(self._places)
        if names and hasattr(learner, "n_features_in_"):
            if isinstance(learner, ProximalSVC):
                learner._keys = dict(self._places)
            elif all(isinstance(name, str) for name in names):
                learner.feature_names_in_ = np.array(names, dtype=object)
        return learner


def _row(x: Row, places: Mapping[Hashable, int], method: str) -> FloatArray:
    row = np.zeros((1, len(places)))
    for name, value in x.items():
        place = places.get(name)
        if place is None:
            continue
        try:
            row[0, place] = value
        except (TypeError, ValueError):
            raise DataError(
                f"expected a number for {name!r}; got {value!r}.",
                source=f"RiverClassifier.{method}",
                hint="put river's preprocessing.OneHotEncoder() in front of categories",
            ) from None
    return row


def to_river(learner: Any, features: Sequence[Hashable] | None = None) -> RiverClassifier:
    """A learner for river's pipelines and evaluation.

    Parameters
    ----------
    learner : Learner
        Any learner with ``partial_fit``; what it has learned is kept, and it is left as it is.
    features : sequence, optional
        Names of the features in their order, for a learner that has learned arrays.

    Returns
    -------
    RiverClassifier
    """
    return RiverClassifier(copy.deepcopy(learner), features)


def from_river(model: Any, *, labels: Sequence[Label] = (), features: Sequence[Hashable] = ()) -> Any:
    """A model of river as a learner of arrays, or the learner that :func:`to_river` has wrapped.

    Parameters
    ----------
    model : river.base.Classifier or river.compose.Pipeline
        The model; it is taught in place, except that a wrapped learner is given back as a copy.
    labels : sequence, optional
        Labels that the model knows already: its answers mean nothing here before they are named or learned.
    features : sequence, optional
        Names that the columns have in the model; 0, 1, ... by default.

    Returns
    -------
    RiverPeer or Learner
        Has ``partial_fit``, ``predict`` and ``predict_proba``, and can enter a race.

    Examples
    --------
    >>> import numpy as np
    >>> from river import naive_bayes
    >>> from steelyard.compat.river import from_river
    >>> peer = from_river(naive_bayes.GaussianNB())
    >>> X = np.array([[0.0], [0.2], [4.0], [4.1]])
    >>> peer.partial_fit(X, np.array(["low", "low", "high", "high"])).predict(X).tolist()
    ['low', 'low', 'high', 'high']
    """
    if isinstance(model, RiverClassifier):
        return model.taught()
    if not isinstance(model, Estimator) or not hasattr(model, "predict_one"):
        raise ParameterError(
            f"expected a classifier or pipeline of river; got {type(model).__name__}.",
            source="from_river",
        )
    return RiverPeer(model, scale=False, labels=labels, features=features)
