"""Periodic refitting, which turns any classifier with ``fit`` into a stream learner."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone

from steelyard._labels import sorted_classes
from steelyard._types import FloatArray
from steelyard._validation import validate_batch
from steelyard.base import BatchLearner, GrowingMixin, Traits, fitted_property
from steelyard.exceptions import DataError, NotFittedError, ParameterError
from steelyard.explanation.attribution import Attribution
from steelyard.explanation.neighbors import RememberedRows
from steelyard.params import Integer, parametrized
from steelyard.streams.chunks import padded
from steelyard.windowing.base import WindowRows, WindowWrapper
from steelyard.windowing.sliding import n_leaving, validated_times, window_size

_MIN_ROWS = 100  # number of rows before the first fit, and minimum number between fits if `every` is a share


@parametrized()
class Refit(WindowWrapper):
    """Periodic refitting: a classifier is fitted again on the newest rows at regular intervals.

    It turns any classifier with ``fit`` into a stream learner: LightGBM, XGBoost, scikit-learn's forests,
    pipelines. :func:`~steelyard.evaluation.prequential` then compares it with learners that learn row by row.

    Parameters
    ----------
    estimator : object
        Any classifier with ``fit`` and ``predict``; it is cloned for every fit. It is fitted on class
        numbers 0, 1, ..., because XGBoost accepts no other labels; the labels of a ``class_weight``
        dictionary are translated.
    every : int or float, default=500
        Number of new rows after which the estimator is fitted again. A float is a share of the rows in the
        window, such as 0.1; then at least 100 new rows are required.
    window : int, str, timedelta or None, default=5000
        The newest rows, to which the estimator is fitted: a number of rows, or a duration such as "30d", for
        which the times of the rows are required. None keeps all rows.

    Attributes
    ----------
    estimator_ : object
        The estimator of the last fit; it predicts class numbers.
    classes_ : ndarray of shape (n_classes,)
        Labels of the last fit, sorted.
    n_fits_ : int
        Number of fits so far.
    n_rows_until_fit_ : int
        Number of rows until the estimator is fitted again.

    Notes
    -----
    The first fit needs 100 rows (or ``every``, if that is less) and two classes; before the first fit,
    ``predict`` raises ``NotFittedError``. At first the estimator is fitted again whenever the number of rows
    has doubled, later after ``every`` new rows. If all rows of the window have one class, the previous fit is
    kept. NaN and infinite values are passed to the estimator. A ``Refit`` cannot be saved with
    :func:`steelyard.save`, because files contain no objects of other packages.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.ensemble import RandomForestClassifier
    >>> from steelyard.windowing import Refit
    >>> rng = np.random.default_rng(0)
    >>> X, y = rng.normal(size=(900, 2)), rng.integers(0, 2, size=900)
    >>> model = Refit(RandomForestClassifier(5, random_state=0), every=300, window=400)
    >>> for begin in range(0, 900, 50):
    ...     _ = model.partial_fit(X[begin : begin + 50], y[begin : begin + 50])
    >>> model.n_fits_, model.n_rows_until_fit_
    (4, 100)
    """

    takes_time = True
    n_fits_ = 0
    _removed_by_fit: ClassVar[frozenset[str]] = frozenset(
        {"_lock", "feature_names_in_", "estimator_", "n_fits_", "_fitted_classes", "_n_fitted", "_n_new"}
    )
    _n_fitted = 0  # number of rows in the last fit
    _n_new = 0  # number of rows since the last fit
    _rows = tuple[WindowRows, ...]()  # row buffers, oldest first, which are joined at every fit

    estimator: Any
    every: float = 500
    window: int | str | timedelta | None = 5000

    @property
    def _traits(self) -> Traits:  # type: ignore[override]
        return Traits(bounded_memory=False)  # the memory of the estimator is unknown

    def _check_params(self) -> None:
        self._check_methods("fit", "predict")
        if not Integer(1).accepts(self.every) and not (isinstance(self.every, float) and 0 < self.every < 1):
            raise ParameterError(
                "every must be a whole number of at least 1, or a share between 0 and 1; got "
                f"{self.every!r}.",
                source="Refit",
            )
        self._size()

    def _slide(self, X: ArrayLike, y: ArrayLike, time: ArrayLike | None, *, published: Any) -> None:  # noqa: ARG002
        """Add rows to the window, and refit the estimator if a fit is due."""
        self._check_params()
        batch = validate_batch(self, X, y, None, "partial_fit", reset=not self._is_started())
        rows = np.ascontiguousarray(batch.X, dtype=np.float64)
        latest = self._rows[-1].time[-1:] if self._rows else np.zeros(0)
        times = validated_times(time, len(rows), self._size(), latest, "Refit")
        # The rows are copied, because the caller may change its array before the next fit.
        copied = rows.copy() if np.shares_memory(rows, X) else rows
        self._rows = (*self._rows, WindowRows(copied, sorted_classes(batch.labels)[batch.codes], times))
        self._n_new += len(rows)
        if self.n_rows_until_fit_ <= 0:
            self._refit()

    def _size(self) -> int | timedelta | None:
        return None if self.window is None else window_size(self.window, "window", "Refit")

    @fitted_property
    def n_rows_until_fit_(self) -> int:
        every = self.every
        if isinstance(every, float):
            every = max(_MIN_ROWS, int(every * self._n_fitted))
        return max(0, min(int(every), max(_MIN_ROWS, self._n_fitted)) - self._n_new)

    def _refit(self) -> None:
        joined = self._rows[0]
        if len(self._rows) > 1:
            X = np.concatenate([padded(part.X, self.n_features_in_) for part in self._rows])
            y = np.concatenate([part.y for part in self._rows])
            joined = WindowRows(X, y, np.concatenate([part.time for part in self._rows]))
        size = self._size()
        joined = joined if size is None else joined.without_oldest(n_leaving(size, joined.time))
        self._rows = (joined,)
        labels, codes = np.unique(joined.y, return_inverse=True)
        if len(labels) < 2:
            return  # keeps the previous fit
        estimator = _with_class_numbers(clone(self.estimator), labels.tolist())
        try:
            self.estimator_ = estimator.fit(joined.X, codes)
        except Exception as error:
            raise DataError(
                f"the estimator could not be fitted on {len(joined):,} rows: {error}",
                source=f"Refit({type(self.estimator).__name__})",
            ) from error
        self._fitted_classes, self._n_fitted, self._n_new = labels, len(joined), 0
        self.n_fits_ += 1

    # -- prediction ---------------------------------------------------------------------------------

    @property
    def classes_(self) -> NDArray[Any]:
        if "_fitted_classes" not in self.__dict__:
            raise AttributeError("Refit has no classes_ before its first fit.")
        return self._fitted_classes

    grow = GrowingMixin.grow

    def _grow(self, n_features: int) -> None:
        """Do nothing: stored rows are padded at the next fit; until then, new features are ignored."""

    def _fitted_estimator(self, method: str) -> Any:
        if "estimator_" not in self.__dict__:
            raise NotFittedError(
                f"{method}() needs a fitted estimator, and the first fit needs {_MIN_ROWS} rows "
                f"(or `every`, if that is less) of two classes; there are {self._n_new:,} rows.",
                source="Refit",
            )
        return self.estimator_

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        return self._predict(X)

    def _result(self, estimator: Any, method: str, rows: Any) -> NDArray[Any]:
        result = super()._result(estimator, method, self._known_features(rows))
        return self._fitted_classes[result.astype(np.intp).reshape(-1)] if method == "predict" else result

    def _scored(self, X: Any, method: str) -> tuple[FloatArray, NDArray[Any]]:
        scores, _ = super()._scored(X, method)
        return scores, self._fitted_classes  # the classes of the estimator are numbers

    def _remembered_rows(self) -> RememberedRows | None:
        found = super()._remembered_rows()
        if found is None:
            return None
        if found.labels is not None:
            found = replace(found, labels=self._fitted_classes[found.labels.astype(np.intp)])
        compare = found.compare
        return replace(
            found,
            X=padded(found.X, self.n_features_in_) if found.has_values else found.X,
            compare=None if compare is None else lambda rows: compare(self._known_features(rows)),
        )

    def _attribution(self, X: FloatArray, background: FloatArray | None) -> Attribution:
        if not isinstance(self.estimator_, BatchLearner):
            return super()._attribution(X, background)
        # Features that were added after the last fit contribute nothing.
        known = self._known_features(X)
        others = None if background is None else self._known_features(background)
        found, n_new = super()._attribution(known, others), X.shape[1] - known.shape[1]
        return replace(found, contributions=np.pad(found.contributions, ((0, 0), (0, n_new), (0, 0))))

    def _known_features(self, rows: Any) -> Any:
        """Return the rows without the features that were added after the last fit."""
        return rows[:, : self._rows[0].X.shape[1]]


def _with_class_numbers(estimator: Any, labels: list[Any]) -> Any:
    """Return the estimator with class numbers in place of labels in ``class_weight`` dictionaries."""
    number_of = {label: number for number, label in enumerate(labels)}
    translated = {
        name: {number_of[label]: weight for label, weight in value.items() if label in number_of}
        for name, value in estimator.get_params(deep=True).items()
        if name.rpartition("__")[2] == "class_weight" and isinstance(value, dict)
    }
    return estimator.set_params(**translated) if translated else estimator
