"""Log of the predictions of a model whose threshold keeps a target rate."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from steelyard._concurrency import lock_of, state_without_lock
from steelyard._types import FloatArray
from steelyard.ensemble.snapshot import PredictedScores

Keys = NDArray[np.uint64]

_IDLE_BALANCE = -0.7  # lowest balance after a period without rows, in multiples of the tolerance
_RECENT_ROWS = 2000  # number of predicted rows whose scores are kept
_MIN_RECENT_ROWS = 200  # with fewer predicted rows, labelled rows are used instead
_REFRESH_ROWS = 50  # number of new rows after which the recent scores are sorted again
_GAP_HALF_LIFE_ROWS = 5000.0  # half-life of the decayed mean time between rows
# Maximum number of entries of AlarmLog._excess; beyond it, every second entry is dropped.
_MAX_EXCESS_ENTRIES = 1000
_LOG_NUMBERS = ("n_rows", "n_alarms", "balance", "last_time", "seconds_per_row")


class AlarmLog:
    """Predictions of a model since it was created: number of rows and alarms, and the scores of recent rows.

    Predictions append to the log under its own lock. All snapshots of a model share one log, because the
    target rate counts the alarms of all snapshots.
    """

    def __init__(self) -> None:
        self.n_rows = self.n_alarms = 0
        self.balance = 0.0  # number of alarms minus their target number
        self.last_time = self.seconds_per_row = float("nan")
        self.raw: FloatArray | None = None  # raw scores of recent rows, oldest first
        self.keys: Keys = np.zeros(0, dtype=np.uint64)
        self.probabilities: FloatArray | None = None  # probabilities of the rows in ``raw``, or None
        # Alarm, row number and result of tails() for each predicted row whose label has not arrived yet.
        # The alarm is 1, 0, or NaN if there was no threshold.
        self.decided = PredictedScores()
        # Number of predicted rows and cumulative excess after each call of note_excess().
        self._excess: list[tuple[int, float]] = [(0, 0.0)]
        # Cache of tails(): the combining function, the number of rows, and the sorted scores.
        self._sorted: tuple[object, int, FloatArray] | None = None

    def note_times(self, time: FloatArray | None, *, predicted: bool) -> FloatArray | None:
        """Update the mean time between rows; return the seconds between each row and the previous one."""
        if time is None or not len(time):
            return None
        with lock_of(self):
            before = self.last_time if predicted else float("nan")
            gaps = np.diff(time, prepend=time[0] if np.isnan(before) else before)
            gaps = np.maximum(gaps, 0.0)
            known = gaps if not np.isnan(before) else gaps[1:]
            if len(known):
                mean, decay = float(known.mean()), 0.5 ** (len(known) / _GAP_HALF_LIFE_ROWS)
                old = self.seconds_per_row
                self.seconds_per_row = mean if np.isnan(old) else decay * old + (1.0 - decay) * mean
            if predicted:
                self.last_time = float(time[-1])
        return gaps

    def record(self, keys: Keys, alarms: FloatArray, tails: FloatArray | None = None) -> None:
        """Count decisions, and keep them until the labels of the rows arrive."""
        with lock_of(self):
            numbers = self.n_rows + np.arange(len(keys), dtype=np.float64)
            tails = np.full(len(keys), np.nan) if tails is None else tails
            self.decided.keep(keys, [0, 1], np.stack([alarms, numbers, tails], axis=1)[:, :, None])
            self.n_rows += len(keys)
            self.n_alarms += int(np.nansum(alarms))

    def keep_decisions(self, keys: Keys, alarms: FloatArray) -> None:
        """Keep decisions of another copy of the model. The rows have no number here and are not counted."""
        unknown = np.full(len(keys), np.nan)
        with lock_of(self):
            self.decided.keep(keys, [0, 1], np.stack([alarms, unknown, unknown], axis=1)[:, :, None])

    def note_excess(self, excess: float) -> None:
        """Add ``excess``, the expected minus the target miss rate, for every row since the last call."""
        n_rows, total = self._excess[-1]
        if self.n_rows > n_rows:
            self._excess.append((self.n_rows, total + excess * (self.n_rows - n_rows)))
        if len(self._excess) > _MAX_EXCESS_ENTRIES:
            self._excess = [*self._excess[1::2], self._excess[-1]]

    def last_excess(self, n_rows: float) -> float:
        """Return the sum of the recorded excesses over the last ``n_rows`` predicted rows."""
        if n_rows <= 0.0:
            return 0.0
        rows, sums = zip(*self._excess, strict=True)
        return float(sums[-1] - np.interp(self.n_rows - n_rows, rows, sums))

    def take(self, keys: Keys) -> FloatArray:
        """Remove and return alarm, row number and tail share of rows, or NaN if a row was never predicted."""
        found = np.full((len(keys), 3, 1), np.nan)
        self.decided.take(keys, [0, 1], found)
        return found[:, :, 0]

    def tails(
        self, scores: FloatArray, combine: Callable[[FloatArray], FloatArray], default: Any, sign: float
    ) -> FloatArray:
        """Return, for each score, the share of recently predicted rows with at least this score.

        ``scores`` are combined scores times ``sign``.
        """
        if self.raw is None or len(self.raw) < _MIN_RECENT_ROWS:
            return np.asarray(default(scores))
        cached, key = self._sorted, getattr(combine, "__self__", combine)
        if cached is None or cached[0] is not key or self.n_rows - cached[1] >= _REFRESH_ROWS:
            cached = self._sorted = (key, self.n_rows, np.sort(sign * combine(self.raw)))
        ascending = cached[2]
        n_as_high = len(ascending) - np.searchsorted(ascending, scores, side="left")
        return np.asarray((n_as_high + 1.0) / (len(ascending) + 1.0))

    def decide(self, limits: FloatArray, due: FloatArray, tolerance: float) -> FloatArray:
        """Decide row by row whether to raise an alarm, and update the balance.

        A row is an alarm if the balance is at most its entry in ``limits``. ``due`` is the number of alarms
        that each row adds to the target.
        """
        balance, alarms = self.balance, []
        for limit, allowance in zip(limits.tolist(), due.tolist(), strict=True):
            is_alarm = balance <= limit
            alarms.append(is_alarm)
            # A period without rows must not be followed by a burst of the alarms that were not raised.
            lowest = -tolerance - 1.0 if allowance <= 1.0 else min(balance, _IDLE_BALANCE * tolerance)
            balance = max(balance + is_alarm - allowance, lowest)
        self.balance = balance
        return np.array(alarms, dtype=np.float64)

    def append(self, raw: FloatArray, keys: Keys, probabilities: FloatArray | None = None) -> None:
        """Append the raw scores of predicted rows, and the probabilities that they are positive."""
        if self.raw is not None and self.raw.shape[1:] == raw.shape[1:]:
            raw, keys = np.concatenate([self.raw, raw]), np.concatenate([self.keys, keys])
            if probabilities is not None and self.probabilities is not None:
                probabilities = np.concatenate([self.probabilities, probabilities])
        self.raw, self.keys = raw[-_RECENT_ROWS:], keys[-_RECENT_ROWS:]
        self.probabilities = None if probabilities is None else probabilities[-_RECENT_ROWS:]

    def drop(self, keys: Keys) -> None:
        """Remove the scores of forgotten rows."""
        with lock_of(self):
            self.take(keys)
            if self.raw is not None:
                keep = ~np.isin(self.keys, keys)
                self.raw, self.keys, self._sorted = self.raw[keep], self.keys[keep], None
                if self.probabilities is not None:
                    self.probabilities = self.probabilities[keep]

    def __getstate__(self) -> dict[str, Any]:
        return {**state_without_lock(self), "_sorted": None}

    def get_state(self) -> dict[str, Any]:
        """Return the log as arrays and plain values, without the decisions on unlabelled rows."""
        with lock_of(self):
            numbers = {name: getattr(self, name) for name in _LOG_NUMBERS}
            return {**numbers, "raw": self.raw, "keys": self.keys, "probabilities": self.probabilities}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Self:
        """Restore a log from the result of :meth:`get_state`; raise ValueError if it is inconsistent."""
        log = cls()
        for name in _LOG_NUMBERS:
            setattr(log, name, type(getattr(log, name))(state[name]))
        log._excess = [(log.n_rows, 0.0)]
        if state["raw"] is not None:
            log.raw = np.asarray(state["raw"], dtype=np.float64)
            log.keys = np.asarray(state["keys"], dtype=np.uint64)
            if log.raw.ndim != 3 or log.keys.shape != log.raw.shape[:1]:
                raise ValueError("corrupt alarm log: expected one row of scores for each key")
            if state.get("probabilities") is not None:  # files of earlier versions do not contain them
                log.probabilities = np.asarray(state["probabilities"], dtype=np.float64)
                if log.probabilities.shape != log.keys.shape:
                    raise ValueError("corrupt alarm log: expected one probability for each key")
        if not 0 <= log.n_alarms <= log.n_rows or not np.isfinite(log.balance):
            raise ValueError("corrupt alarm log: impossible number of alarms")
        return log
