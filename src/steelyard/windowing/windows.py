"""Learners that let go of the past: a sliding window, and a memory that fades."""

from __future__ import annotations

import contextlib
import re
from datetime import timedelta
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone

from steelyard._concurrency import VersionedValue, lock_of, shallow_copy, synchronized
from steelyard._types import FloatArray
from steelyard.base import BatchLearner
from steelyard.exceptions import DataError, ParameterError, SteelyardError
from steelyard.params import Integer, Positive
from steelyard.persistence import storable
from steelyard.streams.chunks import padded
from steelyard.windowing.wrappers import Wrapper

__all__ = ["ExponentialDecay", "SlidingWindow", "window_size"]


Rows = tuple[FloatArray, NDArray[Any]]
Held = tuple[FloatArray, NDArray[Any], FloatArray]

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_DROP_BELOW = 1e-9  # rows; a class that has faded so far is gone


def window_size(size: int | str | timedelta) -> int | timedelta:
    """A window as a number of rows or a length of time; text such as "5000", "30d" or "12h" is read.

    >>> window_size("30d")
    datetime.timedelta(days=30)
    """
    if isinstance(size, str):
        parts = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smhdw]?)", size.strip())
        if parts is not None and parts[2]:
            with contextlib.suppress(OverflowError):  # longer than time is counted
                size = timedelta(seconds=float(parts[1]) * _SECONDS[parts[2]])
        elif parts is not None and parts[1].isdigit():
            size = int(parts[1])
    if isinstance(size, timedelta) and size > timedelta():
        return size
    if Integer(1).accepts(size):
        return int(size)  # type: ignore[arg-type]
    raise ParameterError(
        "size must be a whole number of rows, a timedelta, or text such as '30d' (units s, m, "
        f"h, d, w); got {size!r}.",
        source="SlidingWindow",
    )


@storable("SlidingWindow")
class SlidingWindow(Wrapper):
    """Learns what comes and forgets what leaves: at every moment as if fitted on the window alone.

    Parameters
    ----------
    learner : Learner
        Any learner that has ``forget``.
    size : int, timedelta or str, default=10000
        How many rows, or how long, the window is; text such as "30d" is a length of time. A window of
        time needs the times of the rows.

    Attributes
    ----------
    learner_ : Learner
        The learner at work.
    n_rows_ : int
        Rows in the window now.
    n_rebuilt_ : int
        How often the learner refused to forget rows that it had learned and was fitted anew on the window.

    Notes
    -----
    The rows of the window are kept, as they are needed to be forgotten.

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
    >>> fresh = ProximalSVC().fit(X[-100:], y[-100:])
    >>> bool(np.allclose(window.learner_.coef_, fresh.coef_))
    True
    """

    takes_time = True
    n_rebuilt_ = 0
    _window: VersionedValue[Held]  # rows, labels and times in the window, by the version of the learner

    def __init__(self, learner: Any, size: int | str | timedelta = 10_000) -> None:
        self.learner = learner
        self.size = size

    def partial_fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        classes: ArrayLike | None = None,  # noqa: ARG002  one call serves all learners
        *,
        time: ArrayLike | None = None,
    ) -> Self:
        """Learn these rows and forget those that leave the window; both or neither.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows, oldest first.
        y : array-like of shape (n_samples,)
            Their labels.
        classes : ignored
            Here so that one call serves all learners.
        time : array-like of shape (n_samples,), optional
            When the rows happened, in seconds and in order; needed for a window of time.

        Returns
        -------
        self
        """
        self._need_methods("forget")
        with lock_of(self):
            later = shallow_copy(self)
            later._slide(X, y, time, self)
            self.__dict__ = later.__dict__
        return self

    def _slide(self, X: ArrayLike, y: ArrayLike, time: ArrayLike | None, shown: SlidingWindow) -> None:
        """Learn and forget; ``shown`` is the window as others see it meanwhile."""
        size = window_size(self.size)
        first = not self._is_started()
        rows, labels = self._check_plainly(X, y, "partial_fit")
        before = (rows[:0], labels[:0], np.zeros(0)) if first else self._held
        times = self._checked_times(time, len(labels), size, before[2][-1:])
        n_leaving = self._n_leaving(size, np.concatenate([before[2], times]))
        n_old, n_skipped = min(n_leaving, len(before[1])), max(0, n_leaving - len(before[1]))
        rows, labels, times = rows[n_skipped:], labels[n_skipped:], times[n_skipped:]
        held_X, held_y = padded(before[0], rows.shape[1]), before[1]
        after = (
            np.concatenate([held_X[n_old:], rows]),
            np.concatenate([held_y[n_old:], labels]),
            np.concatenate([before[2][n_old:], times]),
        )
        if first or n_old == len(held_y):
            self.learner_ = clone(self.learner).fit(rows, labels)
        else:
            learner = shallow_copy(self.learner_)
            # A learner that is changed in place changes what is shown, and the rows must change with it.
            shown._window = VersionedValue(_version(learner), before, after)
            forget = (held_X[:n_old], held_y[:n_old]) if n_old else None
            self.learner_ = self._updated(learner, (rows, labels), forget, after)
        self._window = VersionedValue(None, after, after)

    def _updated(self, learner: Any, add: Rows, forget: Rows | None, after: Held) -> Any:
        """The learner after the new rows and without the oldest; one that refuses is made anew.

        The window knows which rows it taught, so a learner that will not give them back (one whose sums
        were rounded, say) is wrong about its past; one fitted on the rows that stay is right by definition.
        """
        try:
            return learner.update(add=add, forget=forget)
        except DataError as refusal:
            if forget is None:
                raise
            try:
                fresh = clone(self.learner).fit(after[0], after[1])
            except SteelyardError:
                raise refusal from None  # it was the new rows that could not be used
            self.n_rebuilt_ += 1
            return fresh

    @property
    def _held(self) -> Held:
        """Rows, labels and times in the window."""
        return self._window.at(_version(self.learner_))

    @property
    @synchronized
    def n_rows_(self) -> int:
        """Rows in the window now."""
        self._need("n_rows_")
        return len(self._held[1])

    @staticmethod
    def _checked_times(
        time: ArrayLike | None, n_rows: int, size: int | timedelta, latest: FloatArray
    ) -> FloatArray:
        if not isinstance(size, timedelta):
            return np.zeros(n_rows)
        if time is None:
            raise DataError(
                "a window of time needs the times of the rows; got none.",
                source="SlidingWindow",
                hint="name the column that holds them, or give the window as a number of rows",
            )
        times = np.asarray(time, dtype=np.float64)
        if times.shape != (n_rows,) or not np.isfinite(times).all():
            raise DataError(
                f"expected one finite time for each of {n_rows} rows; got {times.shape}.",
                source="SlidingWindow",
            )
        if (np.diff(np.concatenate([latest, times])) < 0).any():
            raise DataError(
                "the times of the rows must not go back; nothing was changed.", source="SlidingWindow"
            )
        return times

    @staticmethod
    def _n_leaving(size: int | timedelta, times: FloatArray) -> int:
        if isinstance(size, timedelta):
            return int(np.searchsorted(times, times[-1] - size.total_seconds(), side="right"))
        return max(0, len(times) - size)

    def _get_state(self) -> dict[str, Any]:
        state = super()._get_state()
        return state and state | dict(zip(("X", "y", "time"), self._held, strict=True))

    def _set_state(self, state: dict[str, Any]) -> None:
        super()._set_state(state)
        X, y, time = (np.asarray(state[name]) for name in ("X", "y", "time"))
        if X.ndim != 2 or X.dtype != np.float64 or X.shape[1] > self.n_features_in_ or y.ndim != 1:
            raise ValueError("the rows of the window must be a table of numbers, with a label each")
        if time.dtype != np.float64 or not 0 < len(X) == len(y) == len(time) or time.ndim != 1:
            raise ValueError("rows, labels and times must be of one length")
        held = (X, y, time)
        self._window = VersionedValue(None, held, held)


def _version(learner: Any) -> Any:
    return learner._in_place_version() if isinstance(learner, BatchLearner) else None


@storable("ExponentialDecay", former_name="Fading")
class ExponentialDecay(Wrapper):
    r"""ProximalSVC with a memory that fades: after ``half_life`` rows a row counts half.

    Parameters
    ----------
    learner : ProximalSVC
        Any learner that has ``fade``.
    half_life : float, default=10000
        A number of rows.

    Attributes
    ----------
    learner_ : ProximalSVC
        The learner at work.

    Notes
    -----
    A row of age :math:`a`, the newest having age 0, weighs :math:`2^{-a/\text{half\_life}}`. The statistics
    are exactly those of these weights, whatever the chunks. Balanced class weights look at shares only, so
    a class that stops coming is not outvoted; it is forgotten when its rows together weigh less than 1e-9.

    Examples
    --------
    >>> import numpy as np
    >>> from steelyard import ProximalSVC
    >>> from steelyard.windowing import ExponentialDecay
    >>> rng = np.random.default_rng(0)
    >>> X, y = rng.normal(size=(300, 2)), rng.integers(0, 2, size=300)
    >>> fading = (
    ...     ExponentialDecay(ProximalSVC(), half_life=50)
    ...     .partial_fit(X[:90], y[:90])
    ...     .partial_fit(X[90:], y[90:])
    ... )
    >>> weights = 0.5 ** (np.arange(299, -1, -1) / 50)
    >>> fresh = ProximalSVC().fit(X, y, sample_weight=weights)
    >>> bool(np.allclose(fading.learner_.coef_, fresh.coef_))
    True
    """

    def __init__(self, learner: Any, half_life: float = 10_000) -> None:
        self.learner = learner
        self.half_life = half_life

    def _check_params(self) -> None:
        self._need_methods("fade", "merge")
        if not Positive().accepts(self.half_life):
            raise ParameterError(
                f"half_life must be {Positive().description}; got {self.half_life!r}.",
                source="ExponentialDecay",
            )

    def _take_in(self, rows: FloatArray, labels: NDArray[Any], *, is_first: bool) -> None:
        """Let the past fade, then learn these rows."""
        ages = np.arange(len(labels) - 1, -1, -1)
        weights = np.exp2(-ages / self.half_life)
        learnable = weights >= _DROP_BELOW * 1e-3
        fresh = self._fresh_learner(rows).fit(
            rows[learnable], labels[learnable], sample_weight=weights[learnable]
        )
        if not is_first:
            faded = shallow_copy(
                self.learner_
            )  # the learner at work stays as it is: what follows may be refused
            faded.decay(float(np.exp2(-len(labels) / self.half_life)), drop_below=_DROP_BELOW)
            fresh.merge(faded)
        self.learner_ = fresh
