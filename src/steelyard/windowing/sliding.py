"""Sliding window over the rows that an estimator has learned."""

from __future__ import annotations

import contextlib
import re
from datetime import timedelta
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone

from steelyard._concurrency import FrozenState, VersionedValue, lock_of, shallow_copy, synchronized
from steelyard._deprecation import renamed_parameters
from steelyard._types import FloatArray
from steelyard._validation import check_ascending, checked_times, validate_plain_rows
from steelyard.base import BatchLearner, fitted_property
from steelyard.exceptions import DataError, ParameterError, SteelyardError
from steelyard.explanation.neighbors import RememberedRows
from steelyard.params import Integer, parametrized
from steelyard.persistence import storable
from steelyard.windowing.base import WindowRows, WindowWrapper

Rows = tuple[FloatArray, NDArray[Any]]

_UNIT_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


def window_size(
    size: int | str | timedelta, name: str = "size", source: str = "SlidingWindow"
) -> int | timedelta:
    """Return a window as a number of rows or as a duration, parsed from text such as "5000", "30d" or "12h".

    Error messages contain ``name``, the name of the parameter, and ``source``, the name of its class.

    >>> window_size("30d")
    datetime.timedelta(days=30)
    """
    if isinstance(size, str):
        match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smhdw]?)", size.strip())
        if match is not None and match[2]:
            with contextlib.suppress(OverflowError):  # the duration exceeds the largest timedelta
                size = timedelta(seconds=float(match[1]) * _UNIT_SECONDS[match[2]])
        elif match is not None and match[1].isdigit():
            size = int(match[1])
    if isinstance(size, timedelta) and size > timedelta():
        return size
    if Integer(1).accepts(size):
        return int(size)  # type: ignore[arg-type]
    raise ParameterError(
        f"{name} must be a whole number of rows, a timedelta, or text such as '30d' (units s, m, "
        f"h, d, w); got {size!r}.",
        source=source,
    )


@renamed_parameters(learner="estimator")
@storable("SlidingWindow", former_parameters={"learner": "estimator"})
@parametrized()
class SlidingWindow(WindowWrapper):
    """Sliding window: the estimator always equals one that is fitted only on the newest rows.

    Parameters
    ----------
    estimator : Learner
        Any learner that has ``forget``.
    size : int, timedelta or str, default=10000
        Length of the window in rows or as a duration; text such as "30d" is a duration. A duration requires
        the times of the rows.

    Attributes
    ----------
    estimator_ : Learner
        The fitted estimator.
    n_rows_ : int
        Number of rows in the window.
    n_rebuilt_ : int
        Number of times that the estimator refused to forget rows and was fitted again on the window.

    Notes
    -----
    The rows of the window are stored, because ``forget`` needs their values.

    Examples
    --------
    >>> import numpy as np
    >>> from steelyard import ProximalSVC
    >>> from steelyard.windowing import SlidingWindow
    >>> rng = np.random.default_rng(0)
    >>> X, y = rng.normal(size=(500, 2)), rng.integers(0, 2, size=500)
    >>> window = SlidingWindow(ProximalSVC(), size=100)
    >>> for begin in range(0, 500, 50):
    ...     _ = window.partial_fit(X[begin : begin + 50], y[begin : begin + 50])
    >>> expected = ProximalSVC().fit(X[-100:], y[-100:])
    >>> bool(np.allclose(window.estimator_.coef_, expected.coef_))
    True
    """

    takes_time = True
    n_rebuilt_ = 0

    estimator: Any
    size: int | timedelta | str = 10_000

    @property
    def _full_after_rows(self) -> int | None:  # type: ignore[override]
        size = window_size(self.size)
        return size if isinstance(size, int) else None

    def _slide(self, X: ArrayLike, y: ArrayLike, time: ArrayLike | None, *, published: SlidingWindow) -> None:
        self._check_methods("forget")
        size = window_size(self.size)
        is_first = not self._is_started()
        rows, labels = validate_plain_rows(self, X, y, "partial_fit")
        before = WindowRows.empty(rows.shape[1]) if is_first else self._rows
        times = validated_times(time, len(labels), size, before.time[-1:], "SlidingWindow")
        joined = before.append(rows, labels, times)
        n_old = n_leaving(size, joined.time)
        after = joined.without_oldest(n_old)
        if n_old >= len(before):  # no earlier row remains, or there was none
            self.estimator_ = clone(self.estimator).fit(after.X, after.y)
        else:
            estimator = shallow_copy(self.estimator_)
            # An estimator that is changed in place is changed for other threads before this call ends. Its
            # version says which rows belong to it; everything else that must change with it belongs here too.
            published._window = VersionedValue(_version(estimator), before, after)
            leaving = (joined.X[:n_old], joined.y[:n_old]) if n_old else None
            self.estimator_ = self._updated(estimator, (rows, labels), leaving, after)
        # Rows by version of the estimator, see _version().
        self._window: VersionedValue[WindowRows] = VersionedValue.constant(after)

    def _updated(self, estimator: Any, new: Rows, leaving: Rows | None, after: WindowRows) -> Any:
        """Return the updated estimator, or a new one if the estimator refuses to forget the leaving rows."""
        try:
            return estimator.update(add=new, forget=leaving)
        except DataError as refusal:
            if leaving is None:
                raise
            # All leaving rows were learned, so the estimator is inconsistent, for example by rounding errors.
            try:
                fitted = clone(self.estimator).fit(after.X, after.y)
            except SteelyardError:
                raise refusal from None  # the new rows are invalid
            self.n_rebuilt_ += 1
            return fitted

    @property
    def _rows(self) -> WindowRows:
        return self._window.at(_version(self.estimator_))

    def _remembered_rows(self) -> RememberedRows:
        rows = self._rows
        return RememberedRows(np.asarray(rows.X, dtype=np.float64), np.asarray(rows.y))

    @fitted_property
    @synchronized
    def n_rows_(self) -> int:
        return len(self._rows)

    def __getstate__(self) -> dict[str, Any]:
        with lock_of(self):
            state = super().__getstate__()
            if self._is_started():
                # The version counter of a copied estimator restarts, so the rows are selected here.
                # The lock prevents changes of the estimator during the copy.
                state["_window"] = VersionedValue.constant(self._rows)
                state["estimator_"] = FrozenState(self.estimator_)
            return state

    def _get_state(self) -> dict[str, Any]:
        state = super()._get_state()
        return state and state | {"X": self._rows.X, "y": self._rows.y, "time": self._rows.time}

    def _set_state(self, state: dict[str, Any]) -> None:
        super()._set_state(state)
        rows = WindowRows.from_arrays(state["X"], state["y"], state["time"], self.n_features_in_)
        if not len(rows):
            raise ValueError("the window of a fitted estimator must not be empty")
        self._window = VersionedValue.constant(rows)


def _version(estimator: Any) -> Any:
    """Return the number of changes in place of the estimator; the same value if it is never so changed."""
    return estimator._in_place_version() if isinstance(estimator, BatchLearner) else None


def validated_times(
    time: ArrayLike | None, n_rows: int, size: int | timedelta | None, latest: FloatArray, source: str
) -> FloatArray:
    """Return the validated times of new rows, or zeros if the window is not a duration."""
    if not isinstance(size, timedelta):
        return np.zeros(n_rows)
    if time is None:
        raise DataError(
            "a window of time needs the times of the rows; got none.",
            source=source,
            hint="name the column with the times, or give the window as a number of rows",
        )
    try:
        times = checked_times(time, n_rows)
        check_ascending(times, latest)
    except DataError as error:
        raise error.with_source(source) from None
    return times


def n_leaving(size: int | timedelta, times: FloatArray) -> int:
    """Return the number of oldest rows that are outside the window."""
    if isinstance(size, timedelta):
        return int(np.searchsorted(times, times[-1] - size.total_seconds(), side="right"))
    return max(0, len(times) - size)
