"""Base classes of all learners, and the contract of every learner.

A learner is a scikit-learn classifier for streams: ``partial_fit`` learns more rows, new labels become new
classes, a call that raises changes nothing, and other threads may predict while one thread learns (see
:mod:`steelyard._concurrency`). A learner that needs all rows at once is a :class:`BatchLearner`; it has no
``partial_fit`` but fulfils the rest of the contract. Mixins (:class:`ForgettingMixin`, :class:`GrowingMixin`,
:class:`MergingMixin`) and ``_traits`` declare further capabilities; :mod:`steelyard.checks` tests them. Input
is validated by the functions of :mod:`steelyard._validation`.
"""

from __future__ import annotations

import operator
from abc import abstractmethod
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import column_or_1d

from steelyard._concurrency import FrozenState, lock_of, snapshot_read, synchronized, transactional
from steelyard._deprecation import former_names, renamed_parameters, warn_renamed
from steelyard._labels import (
    Label,
    numpy_labels,
    sorted_classes,
    winners,
)
from steelyard._memory import check_fits_memory
from steelyard._types import FloatArray
from steelyard._validation import (
    MAX_FEATURE,
    Batch,
    check_finite,
    check_started,
    validate_batch,
    validate_rows,
)
from steelyard.exceptions import DataError
from steelyard.explanation import RowExplanations
from steelyard.explanation.attribution import Attribution, explain_function
from steelyard.explanation.neighbors import RememberedRows
from steelyard.explanation.rows import explain_rows
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
    "snapshot_read",
    "sorted_classes",
    "synchronized",
    "transactional",
    "validate_rows",
]

Method = TypeVar("Method", bound=Callable[..., Any])


@dataclass(frozen=True)
class Traits:
    """Guarantees of a learner in addition to its methods, each tested by :mod:`steelyard.checks`.

    Attributes
    ----------
    exact : bool
        After any sequence of calls the model equals a single fit on the remaining rows, up to rounding.
        Neither the order of the rows nor their division into batches matters.
    rounding : bool
        The division of the rows into batches changes results by rounding errors. Without this trait, results
        are bit-identical for all divisions, because rows are processed one at a time in their order.
    bounded_memory : bool
        The size of the learned state has a bound that does not depend on the number of rows.
    exempt : mapping of str to str
        Names of checks that do not apply to this learner, each with the reason.
    """

    exact: bool = False
    rounding: bool = False
    bounded_memory: bool = True
    exempt: Mapping[str, str] = ()  # type: ignore[assignment]


def estimator_has(name: str) -> Callable[[Method], Method]:
    """Return a decorator for methods that exist only if the wrapped estimator has the method ``name``."""
    has: Callable[[Method], Method] = available_if(lambda self: hasattr(self.estimator, name))
    return has


if TYPE_CHECKING:
    fitted_property = property  # type checkers know the type of a plain property
else:

    def fitted_property(read: Callable[[BatchLearner], Any]) -> property:
        """Return a property that does not exist before rows are learned, as scikit-learn expects."""

        @wraps(read)
        def checked(self: BatchLearner) -> Any:
            if not self._is_started():
                name = type(self).__name__
                raise AttributeError(f"{name} has no {read.__name__} before it has seen rows.")
            return read(self)

        return property(checked)


class BatchLearner(ClassifierMixin, BaseEstimator):
    """Base of all learners, and direct base of learners that need all rows at once.

    A subclass declares its parameters (see :mod:`steelyard.params`) and defines ``_traits``, ``_start``
    (create an empty state), ``_learn`` (learn a validated batch), ``_scored`` (compute scores), and
    ``_get_state`` / ``_set_state`` for saving.
    """

    _constraints: ClassVar[Mapping[str, Constraint]] = {}
    _traits: ClassVar[Traits] = Traits()
    # Whether predict() is the sign or argmax of decision_function().
    labels_follow_scores: ClassVar[bool] = True
    # Attributes that native calls modify in place. All other attributes are only reassigned.
    _in_place: ClassVar[tuple[str, ...]] = ()
    _accepts_sparse: ClassVar[bool] = False
    # Whether the learner itself detects NaN and infinity, so that validation can skip this check.
    _finds_nonfinite: ClassVar[bool] = False
    _max_feature: ClassVar[float] = MAX_FEATURE  # largest absolute value of a feature

    n_features_in_: int
    feature_names_in_: NDArray[Any]
    _label_type: type  # type of the first label in the previous call

    @transactional
    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Discard the learned state and learn the given rows.

        Parameters
        ----------
        X : {array-like, sparse matrix, table} of shape (n_samples, n_features), or a list of sequences
            Rows to learn; sequences if the kernel of the learner compares sequences.
        y : array-like of shape (n_samples,)
            Labels of the rows.
        sample_weight : array-like of shape (n_samples,), optional
            Weight of each row; 1 if not given.

        Returns
        -------
        self
        """
        self._check_params()
        batch = validate_batch(self, X, y, sample_weight, "fit", reset=True)
        self._start(batch)
        self._learn(batch)
        return self

    @abstractmethod
    def _start(self, batch: Batch) -> None:
        """Create an empty state for rows with the features of ``batch``."""

    def _start_stream(self, batch: Batch) -> None:
        """Create an empty state for a stream that begins with ``batch``."""
        self._start(batch)

    @abstractmethod
    def _learn(self, batch: Batch) -> None:
        """Learn a validated batch."""

    @abstractmethod
    def _get_state(self) -> dict[str, Any]:
        """Return the learned state as arrays and plain values, or an empty dict before learning."""

    @abstractmethod
    def _set_state(self, state: dict[str, Any]) -> None:
        """Restore a state that ``_get_state`` returned; raise ValueError if it is invalid."""

    # -- prediction ---------------------------------------------------------------------------------

    @snapshot_read
    def decision_function(self, X: ArrayLike) -> FloatArray:
        """Return scores: positive for the second of two classes, or one column per class for more classes.

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
        """Return the predicted labels of rows.

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
        """Return scores with one column per decision function, and the sorted classes."""

    # -- explanation --------------------------------------------------------------------------------

    @snapshot_read
    def explain(
        self, X: ArrayLike, *, background: ArrayLike | None = None, changes: bool | None = None
    ) -> RowExplanations:
        """Explain the predictions of rows by the contribution of each column to the score.

        Contributions are Shapley values: the average change of the score when the value of the row replaces
        the reference value of a column. They add up to the score:
        ``contributions.sum(axis=1) + base == decision_function(X)``.

        Parameters
        ----------
        X : {array-like, sparse matrix, table} of shape (n_samples, n_features)
            Rows to explain.
        background : array-like of shape (n_background, n_features), optional
            Rows to compare with. By default these are the rows or means that the learner remembers. A learner
            that remembers neither compares with a row of zeros.
        changes : bool, optional
            Whether to search for changes that lead to another prediction. By default the search takes place
            if ``X`` has at most 20 rows.

        Returns
        -------
        RowExplanations
            Contributions, nearest remembered rows and changes. The object prints as text, is shown as a table
            in a notebook, and draws a row with ``plot()``.
        """
        check_started(self, "explain")
        return explain_rows(self, X, background, changes)

    def _explained_rows(self, X: Any) -> FloatArray:
        """Return validated (finite, dense) rows of float64."""
        rows = validate_rows(self, X, "explain")
        if isinstance(rows, list) or self.__dict__.get("kernel") == "precomputed":
            raise DataError(
                "explain() needs rows with columns; this learner takes sequences or precomputed kernel "
                "values.",
                source=f"{type(self).__name__}.explain",
            )
        rows = check_finite(self, rows, "explain")
        if sp.issparse(rows):
            check_fits_memory(
                24 * rows.shape[0] * rows.shape[1],
                f"the contributions of {rows.shape[0]:,} x {rows.shape[1]:,} values",
                "explain fewer rows at a time",
            )
            rows = rows.toarray()
        return np.ascontiguousarray(rows, dtype=np.float64)

    def _explained_names(self, n_columns: int) -> list[str]:
        """Return the column names that the learner has seen, or x0, x1, ... if there were none."""
        names = getattr(self, "feature_names_in_", None)
        return [f"x{k}" for k in range(n_columns)] if names is None else [str(name) for name in names]

    def _explained_scores(self, X: FloatArray) -> tuple[FloatArray, NDArray[Any]]:
        """Return scores (one column per decision function) and classes without recording a prediction."""
        return self._scored(X, "explain")

    def _remembered_rows(self) -> RememberedRows | None:
        """Return rows that the learner remembers for comparison, or None if it remembers no rows."""
        return None

    def _attribution(self, X: FloatArray, background: FloatArray | None) -> Attribution:
        """Return the contributions of columns to the scores of rows, relative to background rows."""
        reference = np.zeros(X.shape[1]) if background is None else background.mean(axis=0)
        return explain_function(lambda rows: self._explained_scores(rows)[0], X, reference)

    # -- locking and copies -------------------------------------------------------------------------

    def set_params(self, **params: Any) -> Self:
        """Set parameters; the call waits while another thread learns.

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
        """Return a consistent state for pickling and copying, without the lock."""
        with lock_of(self):
            state = dict(super().__getstate__())
            del state["_lock"]
            return state | {name: FrozenState(state[name]) for name in self._in_place if name in state}

    def _in_place_version(self) -> tuple[Any, ...]:
        """Return the versions of the objects that are changed in place, even by interrupted calls."""
        return tuple(getattr(self.__dict__.get(name), "version", None) for name in self._in_place)

    def __copy__(self) -> Self:
        return deepcopy(self)  # a copy must not share state that is changed in place

    # -- validation --------------------------------------------------------------------------------------

    def _is_started(self) -> bool:
        return "n_features_in_" in self.__dict__

    def __sklearn_is_fitted__(self) -> bool:
        return self._is_started()

    def _sequence_kernel(self) -> Any:
        """Return the kernel if it compares sequences, which are passed as a list, or else None."""
        kernel = self.__dict__.get("kernel")
        return kernel if getattr(kernel, "takes_collections", False) else None

    def _check_params(self) -> None:
        # Parameters rarely change between calls, and comparing them is cheaper than checking them again.
        values = list(map(self.__dict__.__getitem__, self._constraints))
        checked = self.__dict__.get("_checked_params")
        if checked is not None and all(map(operator.is_, checked, values)):
            return
        check_params(self, self._constraints)
        self._checked_params = values

    # -- number and names of features ---------------------------------------------------------------

    def _encode_table(self, X: Any, source: str, *, reset: bool, learn: bool) -> FloatArray | None:  # noqa: ARG002
        """Return a table as numbers, or None if the learner accepts only arrays of numbers."""
        return None

    def _features(self) -> dict[str, Any]:
        """Return the number and the names of the features."""
        return {
            "n_features": int(self.n_features_in_),
            "feature_names": self.__dict__.get("feature_names_in_"),
        }

    def _set_features(self, features: Mapping[str, Any]) -> None:
        """Set the number and the names of the features as returned by ``_features``."""
        self.n_features_in_ = int(features["n_features"])
        if features["feature_names"] is not None:
            self.feature_names_in_ = features["feature_names"]

    def _check_same_features(self, other: BatchLearner, method: str) -> None:
        """Raise DataError if another learner has different features."""
        check_same_features(self._features(), other._features(), f"{type(self).__name__}.{method}")

    def _check_rows(self, X: Any, method: str) -> Any:
        """Validate rows (kept until 0.4, because the documentation of 0.2 recommended this method)."""
        warn_renamed("BatchLearner._check_rows()", "validate_rows(self, X, method)")
        return validate_rows(self, X, method)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = self._accepts_sparse
        return tags


class Learner(BatchLearner):
    """Base class of stream learners, in which ``_learn`` adds rows to the learned state."""

    @transactional
    def partial_fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        classes: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Learn more rows.

        Parameters
        ----------
        X : {array-like, sparse matrix, table} of shape (n_samples, n_features)
            Rows to learn.
        y : array-like of shape (n_samples,)
            Labels of the rows; a new label becomes a new class.
        classes : array-like, optional
            Labels that may occur, as in scikit-learn; a label in ``y`` that is not listed raises an error.
            The parameter is never required.
        sample_weight : array-like of shape (n_samples,), optional
            Weight of each row; 1 if not given.

        Returns
        -------
        self
        """
        self._check_params()
        is_first = not self._is_started()
        batch = validate_batch(self, X, y, sample_weight, "partial_fit", reset=is_first)
        if classes is not None:
            self._check_known(batch.labels, classes)
        if is_first:
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
                hint="leave `classes` out: new labels become new classes",
            )


class GrowingMixin(BatchLearner):
    """Mixin for learners that accept additional features later. Subclasses define ``_grow``."""

    @abstractmethod
    def _grow(self, n_features: int) -> None:
        """Widen the learned state; the new features of earlier rows are zero. Runs on a shallow copy."""

    @transactional
    def grow(self, n_features: int) -> Self:
        """Append features, exactly as if they had been zero in all earlier rows.

        Parameters
        ----------
        n_features : int
            The new number of features.

        Returns
        -------
        self
        """
        check_started(self, "grow")
        self._grow(n_features)
        self.n_features_in_ = int(n_features)
        self.__dict__.pop("feature_names_in_", None)  # the new features have no names
        return self


class ForgettingMixin(Learner):
    """Mixin for learners that forget rows as if they had never been learned. Subclasses define ``_apply``."""

    def forget(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Forget rows, so that the model is as if these rows had never been learned.

        Parameters
        ----------
        X : {array-like, sparse matrix, table} of shape (n_samples, n_features), or a list of sequences
            Rows with exactly the values that were learned.
        y : array-like of shape (n_samples,)
            Labels of the rows.
        sample_weight : array-like of shape (n_samples,), optional
            The weights that were learned.

        Returns
        -------
        self

        Raises
        ------
        DataError
            If the learner detects that a row was never learned, or was learned fewer times than it is to be
            forgotten. Nothing changes.
        """
        return self._change(None, (X, y, sample_weight), "forget")

    @renamed_parameters(retire="forget")
    def update(
        self,
        add: tuple[ArrayLike, ArrayLike] | None = None,
        forget: tuple[ArrayLike, ArrayLike] | None = None,
    ) -> Self:
        """Learn some rows and forget others atomically.

        Parameters
        ----------
        add : tuple (X, y), optional
            Rows to learn and their labels; weights may follow as a third item.
        forget : tuple (X, y), optional
            Rows to forget and their labels, optionally with weights. They may be among the rows to learn.

        Returns
        -------
        self
        """
        return self._change(add, forget, "update")

    @transactional
    def _change(self, add: Any, forget: Any, method: str) -> Self:
        self._check_params()
        added = forgotten = None
        if add is not None:
            is_first = not self._is_started()
            added = validate_batch(self, *self._triple(add, method), method, reset=is_first)
            if is_first:
                self._start_stream(added)
        if forget is not None:
            check_started(self, method)
            forgotten = validate_batch(self, *self._triple(forget, method), method, forget=True)
        if added is not None or forgotten is not None:
            self._apply(added, forgotten, method)
        return self

    def _triple(self, rows: Any, method: str) -> tuple[Any, Any, Any]:
        """Return (X, y) or (X, y, sample_weight) as a triple."""
        if not isinstance(rows, tuple) or len(rows) not in {2, 3}:
            raise DataError(
                f"expected a tuple (X, y) or (X, y, sample_weight); got {type(rows).__name__}.",
                source=f"{type(self).__name__}.{method}",
            )
        return rows if len(rows) == 3 else (*rows, None)

    @abstractmethod
    def _apply(self, add: Batch | None, forget: Batch | None, method: str) -> None:
        """Learn one validated batch and forget another atomically; either may be None."""


class MergingMixin:
    """Mixin for learners that can be merged with learners of the same class."""

    @abstractmethod
    def merge(self, other: Self) -> Self:
        """Add everything that ``other`` has learned. ``other`` does not change."""


def traits_of(learner: object) -> Traits:
    """Return the traits of a learner, or traits without guarantees for other estimators."""
    return learner._traits if isinstance(learner, BatchLearner) else Traits(bounded_memory=False)


def forgetting_scope(learner: object) -> tuple[bool, str]:
    """Return whether no trace of forgotten rows remains in a learner, and an explanation for users.

    The command line and the service show this explanation. A wrapper forgets as its estimator does.
    """
    inner = getattr(learner, "estimator_", learner)
    if traits_of(inner).exact:
        return True, "The model equals one that has learned only the remaining rows."
    return False, (
        "The rows were removed from all rows, experts and recent scores that the model keeps. Its weights "
        "and thresholds may still depend on how these rows were scored when they arrived, so digests cannot "
        "prove the removal to a third party. Digests of a ProximalSVC can."
    )


def check_parameters(learner: object) -> None:
    """Raise ParameterError if a parameter of a learner is invalid."""
    if isinstance(learner, BatchLearner):
        learner._check_params()


def check_same_features(
    features: Mapping[str, Any], other: Mapping[str, Any], source: str, hint: str | None = None
) -> None:
    """Raise DataError if features differ. Names are compared only if both learners have names."""
    if features["n_features"] != other["n_features"]:
        raise DataError(
            f"both learners must have the same features; this one has "
            f"{features['n_features']}, the other {other['n_features']}; nothing was changed.",
            source=source,
            hint=hint,
        )
    names, other_names = features["feature_names"], other["feature_names"]
    if names is not None and other_names is not None and list(names) != list(other_names):
        raise DataError(
            "the two learners name their features differently; nothing was changed.", source=source
        )


__getattr__ = former_names(
    __name__,
    all_or_nothing="transactional",
    encode_labels="steelyard._labels.encode_labels",
    in_turn="synchronized",
    of_one_moment="snapshot_read",
)
