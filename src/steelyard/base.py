"""The contract that every learner keeps.

A learner is a scikit-learn classifier that streams: ``partial_fit`` learns more rows, labels never seen
before simply become classes, a call that raises leaves everything as it was, and threads may ask while one
learns (:mod:`steelyard._concurrency` says how). One that needs all rows at once is a :class:`BatchLearner` and
keeps the rest of the contract. What else a learner can do it declares by its mixins
(:class:`ForgettingMixin`, :class:`GrowingMixin`, :class:`MergingMixin`) and by ``_traits``;
:mod:`steelyard.checks` holds it to that. Rows and labels come in by one path, :mod:`steelyard._validation`.
"""

from __future__ import annotations

import operator
from abc import abstractmethod
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import (
    column_or_1d,
)

from steelyard._concurrency import FrozenState, lock_of, snapshot_read, synchronized, transactional
from steelyard._deprecation import renamed_parameters
from steelyard._labels import (
    Label,
    encode_labels,
    numpy_labels,
    sorted_classes,
    winners,
)
from steelyard._types import FloatArray
from steelyard._validation import Batch, Door
from steelyard.exceptions import DataError
from steelyard.params import Constraint, check_params

__all__ = [
    "Batch",
    "BatchLearner",
    "ForgettingMixin",
    "GrowingMixin",
    "Label",
    "Learner",
    "MergingMixin",
    "Traits",
    "check_parameters",
    "check_same_features",
    "encode_labels",
    "snapshot_read",
    "sorted_classes",
    "synchronized",
    "traits_of",
    "transactional",
]


@dataclass(frozen=True)
class Traits:
    """What a learner promises beyond its methods; the contract suite checks each promise.

    Attributes
    ----------
    exact : bool
        After any history the model equals training once on the rows that remain; order and chunk
        borders do not matter (up to rounding). Otherwise rows are taken in their order, one by one,
        and chunk borders still do not matter.
    bounded_memory : bool
        The learned state stops growing however many rows come.
    exempt : mapping of str to str
        Checks that do not apply to this learner, each with the reason in words.
    """

    exact: bool = False
    bounded_memory: bool = True
    exempt: Mapping[str, str] = ()  # type: ignore[assignment]


class BatchLearner(Door):
    """Base of all learners; on its own, of those that need all rows at once.

    A subclass gives ``_constraints``, ``_traits``, ``_start`` (an empty state), ``_learn`` (take in a
    checked batch), ``_scored`` (what the state says of rows), and ``_get_state`` / ``_set_state`` for saving.
    """

    _constraints: ClassVar[Mapping[str, Constraint]] = {}
    _traits: ClassVar[Traits] = Traits()
    # What predict() says is what decision_function() says: the side of zero, or the largest column. Who has
    # the scores need not ask for the labels.
    labels_follow_scores: ClassVar[bool] = True
    # Attributes whose objects native calls change in place; all others are replaced, never changed.
    _in_place: ClassVar[tuple[str, ...]] = ()

    @transactional
    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Forget all, then learn these rows.

        Parameters
        ----------
        X : {array-like, sparse matrix, table} of shape (n_samples, n_features), or a list of sequences
            Rows to learn; sequences for a learner whose kernel compares them.
        y : array-like of shape (n_samples,)
            Their labels.
        sample_weight : array-like of shape (n_samples,), optional
            How often each row counts; 1 when not given.

        Returns
        -------
        self
        """
        self._check_params()
        batch = self._check_batch(X, y, sample_weight, "fit", reset=True)
        self._start(batch)
        self._learn(batch)
        return self

    @abstractmethod
    def _start(self, batch: Batch) -> None:
        """Make an empty state for rows like these."""

    def _start_stream(self, batch: Batch) -> None:
        """Make an empty state for a stream whose first rows are these."""
        self._start(batch)

    @abstractmethod
    def _learn(self, batch: Batch) -> None:
        """Take in a checked batch."""

    @abstractmethod
    def _get_state(self) -> dict[str, Any]:
        """Everything learned, as arrays and plain values; empty when nothing was learned yet."""

    @abstractmethod
    def _set_state(self, state: dict[str, Any]) -> None:
        """Become what ``_get_state`` described; raise ValueError if the description makes no sense."""

    # -- answering ----------------------------------------------------------------------------------

    @snapshot_read
    def decision_function(self, X: ArrayLike) -> FloatArray:
        """Scores of rows: positive for the second class, or one column a class when there are more.

        Parameters
        ----------
        X : {array-like, sparse matrix, table} of shape (n_samples, n_features), or a list of sequences
            Rows.

        Returns
        -------
        ndarray of shape (n_samples,) or (n_samples, n_classes)
        """
        scores, _ = self._scored(X, "decision_function")
        return scores[:, 0] if scores.shape[1] == 1 else scores

    @snapshot_read
    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Labels of rows.

        Parameters
        ----------
        X : {array-like, sparse matrix, table} of shape (n_samples, n_features), or a list of sequences
            Rows.

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        scores, classes = self._scored(X, "predict")
        return classes[winners(scores, len(classes))]

    @abstractmethod
    def _scored(self, X: Any, method: str) -> tuple[FloatArray, NDArray[Any]]:
        """Scores of rows that ``method`` was given, one column a plane, and the classes, sorted."""

    # -- turns and copies ---------------------------------------------------------------------------

    def set_params(self, **params: Any) -> Self:
        """Set parameters, when no call is learning.

        Parameters
        ----------
        **params : dict
            Parameters by name, as in scikit-learn.

        Returns
        -------
        self
        """
        with lock_of(self):
            return super().set_params(**params)

    def __getstate__(self) -> dict[str, Any]:
        """For pickling and copying: the learner at one moment, without its lock."""
        with lock_of(self):
            state = dict(super().__getstate__())
            del state["_lock"]
            return state | {name: FrozenState(state[name]) for name in self._in_place if name in state}

    def _in_place_version(self) -> tuple[Any, ...]:
        """Tells apart what has been changed in place, also by a call that did not come to its end."""
        return tuple(getattr(self.__dict__.get(name), "version", None) for name in self._in_place)

    def __copy__(self) -> Self:
        return deepcopy(self)  # two learners never share a state that is changed in place

    # -- checks -------------------------------------------------------------------------------------

    def __sklearn_is_fitted__(self) -> bool:
        return self._is_started()

    def _need(self, attribute: str) -> None:
        # scikit-learn asks hasattr(): an attribute of a learner that has seen nothing does not exist.
        if not self._is_started():
            raise AttributeError(f"{type(self).__name__} has no {attribute} before it has seen rows.")

    def _check_params(self) -> None:
        # Parameters rarely change between calls, and a stream of single rows pays for every call.
        values = list(map(self.__dict__.__getitem__, self._constraints))
        checked = self.__dict__.get("_checked_params")
        if checked is not None and all(map(operator.is_, checked, values)):
            return
        check_params(self, self._constraints)
        self._checked_params = values

    # -- features -----------------------------------------------------------------------------------

    def _features(self) -> dict[str, Any]:
        """Number and names of the features, as ``_get_state`` gives them."""
        return {
            "n_features": int(self.n_features_in_),
            "feature_names": self.__dict__.get("feature_names_in_"),
        }

    def _set_features(self, features: Mapping[str, Any]) -> None:
        """Take over number and names of features, as ``_features`` gives them."""
        self.n_features_in_ = int(features["n_features"])
        if features["feature_names"] is not None:
            self.feature_names_in_ = features["feature_names"]

    def _check_same_features(self, other: BatchLearner, method: str) -> None:
        """Refuse a learner of other features."""
        check_same_features(self._features(), other._features(), f"{type(self).__name__}.{method}")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = self._accepts_sparse
        return tags


class Learner(BatchLearner):
    """Base of learners that stream: whatever ``_learn`` takes in adds to what is there."""

    @transactional
    def partial_fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        classes: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Learn these rows too.

        Parameters
        ----------
        X : {array-like, sparse matrix, table} of shape (n_samples, n_features)
            Rows to learn.
        y : array-like of shape (n_samples,)
            Their labels; a label never seen before simply becomes a class.
        classes : array-like, optional
            Labels that may occur, as in scikit-learn. When given, any other label in ``y`` is refused.
            It is never needed.
        sample_weight : array-like of shape (n_samples,), optional
            How often each row counts; 1 when not given.

        Returns
        -------
        self
        """
        self._check_params()
        first = not self._is_started()
        batch = self._check_batch(X, y, sample_weight, "partial_fit", reset=first)
        if classes is not None:
            self._check_known(batch.labels, classes)
        if first:
            self._start_stream(batch)
        self._learn(batch)
        return self

    def _check_known(self, labels: list[Label], classes: ArrayLike) -> None:
        try:
            allowed = set(column_or_1d(numpy_labels(classes)).tolist())
        except (ValueError, TypeError) as error:
            raise DataError(
                f"`classes` must be a flat list of labels; got {classes!r}.",
                source=f"{type(self).__name__}.partial_fit",
            ) from error
        unknown = [label for label in labels if label not in allowed]
        if unknown:
            raise DataError(
                f"y has labels not listed in `classes`: {unknown[:5]!r}.",
                source=f"{type(self).__name__}.partial_fit",
                hint="leave `classes` out: labels never seen before become classes by themselves",
            )


class GrowingMixin(BatchLearner):
    """A learner that can take features that come later.

    A subclass gives ``_grow``: widen all that is kept, on a twin of this learner.
    """

    @abstractmethod
    def _grow(self, n_features: int) -> None:
        """Widen what is kept, with zeros for the rows so far."""

    @transactional
    def grow(self, n_features: int) -> Self:
        """Widen to more features at the end, exactly as if all rows so far had had zeros there.

        Parameters
        ----------
        n_features : int
            The new number of features.

        Returns
        -------
        self
        """
        self._check_started("grow")
        self._grow(n_features)
        self.n_features_in_ = int(n_features)
        self.__dict__.pop("feature_names_in_", None)  # names of the new ones are not known
        return self


class ForgettingMixin(Learner):
    """A learner that can unlearn rows: afterwards it is as if they had never come.

    A subclass gives ``_apply``: learn a checked batch, unlearn another one, both or neither.
    """

    def forget(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Unlearn rows that were learned before: the model is as if they had never come.

        Parameters
        ----------
        X : {array-like, sparse matrix, table} of shape (n_samples, n_features), or a list of sequences
            Rows with exactly the values with which they were learned.
        y : array-like of shape (n_samples,)
            Their labels.
        sample_weight : array-like of shape (n_samples,), optional
            The weights with which they were learned.

        Returns
        -------
        self

        Raises
        ------
        DataError
            If it shows that some of the rows were never learned, or not as often. Nothing changes.
        """
        return self._change(None, (X, y, sample_weight), "forget")

    @renamed_parameters(retire="forget")
    def update(
        self,
        add: tuple[ArrayLike, ArrayLike] | None = None,
        forget: tuple[ArrayLike, ArrayLike] | None = None,
    ) -> Self:
        """Learn some rows and unlearn others at once, both or neither.

        Parameters
        ----------
        add : tuple (X, y), optional
            Rows to learn and their labels; weights may follow as a third item.
        retire : tuple (X, y), optional
            Rows to unlearn, likewise. They may be among those to learn.

        Returns
        -------
        self
        """
        return self._change(add, forget, "update")

    @transactional
    def _change(self, add: Any, forget: Any, method: str) -> Self:
        self._check_params()
        added = retired = None
        if add is not None:
            first = not self._is_started()
            added = self._check_batch(*self._triple(add, method), method, reset=first)
            if first:
                self._start_stream(added)
        if forget is not None:
            self._check_started(method)
            retired = self._check_batch(*self._triple(forget, method), method)
        if added is not None or retired is not None:
            self._apply(added, retired, method)
        return self

    def _triple(self, rows: Any, method: str) -> tuple[Any, Any, Any]:
        """(X, y) or (X, y, weights) as three items."""
        if not isinstance(rows, tuple) or len(rows) not in {2, 3}:
            raise DataError(
                f"expected a tuple (X, y) or (X, y, sample_weight); got {type(rows).__name__}.",
                source=f"{type(self).__name__}.{method}",
            )
        return rows if len(rows) == 3 else (*rows, None)

    @abstractmethod
    def _apply(self, add: Batch | None, forget: Batch | None, method: str) -> None:
        """Learn a checked batch and unlearn another one; one of them may be missing."""


class MergingMixin:
    """A learner that can take in what another one has learned."""

    @abstractmethod
    def merge(self, other: Self) -> Self:
        """Learn what ``other`` has learned; ``other`` is left as it is."""


def traits_of(learner: object) -> Traits:
    """What a learner promises; of one that promises nothing, the least is taken."""
    return learner._traits if isinstance(learner, BatchLearner) else Traits(bounded_memory=False)


def check_parameters(learner: object) -> None:
    """Refuse parameters that the learner cannot have, before it is asked to do anything."""
    if isinstance(learner, BatchLearner):
        learner._check_params()


def check_same_features(mine: Mapping[str, Any], theirs: Mapping[str, Any], source: str) -> None:
    """Refuse other features; where one of the two sides knows no names, numbers must do."""
    if mine["n_features"] != theirs["n_features"]:
        raise DataError(
            f"both learners must have the same features; this one has "
            f"{mine['n_features']}, the other {theirs['n_features']}; nothing was changed.",
            source=source,
        )
    names, other_names = mine["feature_names"], theirs["feature_names"]
    if names is not None and other_names is not None and list(names) != list(other_names):
        raise DataError(
            "the two learners name their features differently; nothing was changed.", source=source
        )
