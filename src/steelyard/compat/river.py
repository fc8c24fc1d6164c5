"""Learners as river models, and river models as learners (extra ``river``)."""

from __future__ import annotations

import copy
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from river.base import Classifier, Estimator

from steelyard._deprecation import renamed_method
from steelyard._dict_rows import dict_row
from steelyard.base import Label
from steelyard.evaluation.peers import RiverPeer
from steelyard.exceptions import ParameterError
from steelyard.proximal import ProximalSVC
from steelyard.streams.predictions import is_ready

__all__ = ["RiverClassifier", "from_river", "to_river"]

Row = Mapping[Hashable, Any]


class RiverClassifier(Classifier):
    """Adapter of a learner to the interface of river classifiers: rows are dictionaries, learned one by one.

    A feature that is missing in a row counts as zero. Learners with ``grow``, such as
    :class:`~steelyard.ProximalSVC`, add features that appear later, exactly as if they had been zero in all
    earlier rows. Other learners use the features of the first row, or ``features``, and ignore the rest.

    Parameters
    ----------
    learner : Learner
        Initial learner; a copy of it is trained. A clone of this classifier starts from the initial learner.
    features : sequence, optional
        Names of the features in their order. By default those of the fitted learner (0, 1, ... if it was
        fitted on arrays), or the sorted names of the first row.

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
                "a river model learns row by row, which needs partial_fit(); this learner has none.",
                source=type(learner).__name__,
            )
        self.learner = learner
        self.features = features
        self._fitted = copy.deepcopy(learner)
        self._columns = {name: column for column, name in enumerate(self._initial_names())}
        # The learner receives rows as arrays without names; this class maps names to columns.
        self._fitted.__dict__.pop("feature_names_in_", None)

    def _initial_names(self) -> list[Hashable]:
        width = getattr(self._fitted, "n_features_in_", None)
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
        if isinstance(self._fitted, ProximalSVC) and len(self._fitted.__dict__.get("_keys", ())) == width:
            return list(self._fitted._keys)
        named = getattr(self._fitted, "feature_names_in_", None)
        return list(range(width)) if named is None else [str(name) for name in named]

    @property
    def _multiclass(self) -> bool:
        return True

    @classmethod
    def _unit_test_params(cls) -> Iterator[dict[str, Any]]:
        yield {"learner": ProximalSVC()}

    def learn_one(self, x: Row, y: Label) -> None:
        columns = self._columns
        started = hasattr(self._fitted, "n_features_in_")
        if hasattr(self._fitted, "grow") or (not started and self.features is None):
            # Names are sorted, so that sums do not depend on the order of the keys in a row.
            new = sorted((name for name in x if name not in columns), key=str)
            columns = columns | {name: len(columns) + offset for offset, name in enumerate(new)}
        row = dict_row(x, columns, self, "learn_one")
        fitted = self._fitted
        if started and len(columns) > fitted.n_features_in_:
            # A copy of the learner is grown, so that a rejected row adds no feature.
            fitted = copy.deepcopy(fitted).grow(len(columns))
        fitted.partial_fit(row, np.array([y]))
        self._fitted, self._columns = fitted, columns

    def predict_one(self, x: Row, **kwargs: Any) -> Label | None:  # noqa: ARG002  river's signature
        """Return the predicted label of one row, or None before the first row is learned.

        Parameters
        ----------
        x : dict
            Feature values by name.
        **kwargs : dict
            Ignored.

        Returns
        -------
        label or None
        """
        if not is_ready(self._fitted):
            return None
        label: Label = self._fitted.predict(dict_row(x, self._columns, self, "predict_one")).tolist()[0]
        return label

    def predict_proba_one(self, x: Row, **kwargs: Any) -> dict[Label, float]:  # noqa: ARG002
        """Return the probabilities of all labels seen so far; empty before the first row is learned.

        Parameters
        ----------
        x : dict
            Feature values by name.
        **kwargs : dict
            Ignored.

        Returns
        -------
        dict of label to float
        """
        if not hasattr(self._fitted, "predict_proba"):
            raise NotImplementedError(f"{type(self._fitted).__name__} has no predict_proba()")
        if not is_ready(self._fitted):
            return {}
        probabilities = self._fitted.predict_proba(dict_row(x, self._columns, self, "predict_proba_one"))[0]
        return dict(zip(self._fitted.classes_.tolist(), probabilities.tolist(), strict=True))

    def to_learner(self) -> Any:
        """Return a copy of the trained learner with the names of its features.

        Returns
        -------
        Learner
        """
        learner = copy.deepcopy(self._fitted)
        names = list(self._columns)
        if names and hasattr(learner, "n_features_in_"):
            if isinstance(learner, ProximalSVC):
                learner._keys = dict(self._columns)
            elif all(isinstance(name, str) for name in names):
                learner.feature_names_in_ = np.array(names, dtype=object)
        return learner

    taught = renamed_method("to_learner", "taught")


def to_river(learner: Any, features: Sequence[Hashable] | None = None) -> RiverClassifier:
    """Return a learner as a river classifier for river pipelines and evaluations.

    Parameters
    ----------
    learner : Learner
        Any learner with ``partial_fit``; its learned state is copied.
    features : sequence, optional
        Names of the features in their order, for a learner fitted on arrays.

    Returns
    -------
    RiverClassifier
    """
    return RiverClassifier(copy.deepcopy(learner), features)


def from_river(model: Any, *, labels: Sequence[Label] = (), features: Sequence[Hashable] = ()) -> Any:
    """Return a river model as a learner for arrays, or the learner that :func:`to_river` wrapped.

    Parameters
    ----------
    model : river.base.Classifier or river.compose.Pipeline
        The model; it is trained in place, but a wrapped learner is returned as a copy.
    labels : sequence, optional
        Labels that the model has learned already. Predictions of other labels are ignored until rows with
        these labels are learned.
    features : sequence, optional
        Names of the columns, as the model uses them; 0, 1, ... by default.

    Returns
    -------
    RiverPeer or Learner
        It has ``partial_fit``, ``predict`` and ``predict_proba``, and can be evaluated like a learner.

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
        return model.to_learner()
    if not isinstance(model, Estimator) or not hasattr(model, "predict_one"):
        raise ParameterError(
            f"expected a river classifier or pipeline; got {type(model).__name__}.", source="from_river"
        )
    return RiverPeer(model, scale=False, labels=labels, features=features)
