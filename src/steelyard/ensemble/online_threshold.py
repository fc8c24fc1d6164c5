"""Thresholds that keep a target rate: alarms, alarms per day, recall or precision.

The page docs/guarantees.md has the formulas and the guarantees, with proofs. The *balance* is the number of
events (alarms, or missed positives) minus the target number.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit

from steelyard import _native
from steelyard._concurrency import lock_of, state_without_lock
from steelyard._types import FloatArray
from steelyard.ensemble.mixing import OnlineCalibration, PredictedScores
from steelyard.exceptions import DataError
from steelyard.metrics.formulas import rate_interval
from steelyard.thresholds import choose_threshold

Keys = NDArray[np.uint64]
Flags = NDArray[np.bool_]
Combine = Callable[[FloatArray], FloatArray]  # combines the scores of the experts

_ALARM_TOLERANCE = 9.5  # allowed deviation in alarms; 2 * 9.5 + 1 = 20 is one percent of 2,000 rows
_MISS_TOLERANCE = 8.0  # allowed deviation in missed positives
_DAILY_TOLERANCE = (2.0, 0.1)  # allowed deviation: minimum in alarms, and fraction of the alarms per day
_SECONDS_PER_DAY = 86_400.0
_NO_ALARM_FACTOR = 1e6  # the threshold for no alarms is this multiple of the largest score
_IDLE_BALANCE = -0.7  # lowest balance after a period without rows, in multiples of the tolerance
_RECENT_ROWS = 2000  # number of predicted rows whose scores are kept
_MIN_RECENT_ROWS = 200  # with fewer predicted rows, labelled rows are used instead
_EXPECTED_ROWS = 1000  # number of predicted rows among which the expected recall is computed
_MIN_SHARE = 1e-6  # smallest share of positives in the prior log-odds
_REFRESH_ROWS = 50  # number of new rows after which the recent scores are sorted again
_GAP_HALF_LIFE_ROWS = 5000.0  # half-life of the decayed mean time between rows
# Maximum number of entries of AlarmLog._excess; beyond it, every second entry is dropped.
_MAX_EXCESS_ENTRIES = 1000
# Attributes of both classes in files.
_LOG_NUMBERS = ("n_rows", "n_alarms", "balance", "last_time", "seconds_per_row")
_NUMBERS = ("n_positives", "n_found", "n_labelled_alarms", "balance", "delay")

LEVELS: FloatArray = 0.5 ** np.arange(11, 0, -1.0)  # shares of the rows that would raise alarms
ERROR = 0.05  # maximum probability of ever accepting a level with a precision below the target
_ACCEPTING_WEALTH = len(LEVELS) / ERROR
_BETS: FloatArray = np.array([0.2, 0.5, 0.9])  # bets as fractions of the largest possible bet
_MAX_EXCESS = np.exp(2.0)  # limit of the wealth, as a multiple of the wealth at which a level is accepted


def is_promise(goal: object) -> bool:
    """Return whether a goal of ``threshold=`` is a target rate."""
    return isinstance(goal, Mapping) and bool({"alarms", "alarms_per_day", "recall", "precision"} & set(goal))


@dataclass(frozen=True)
class RealisedRate:
    """Rate of alarms, recall or precision, observed since the model was created.

    Attributes
    ----------
    name : {"alarms", "recall", "precision"}
        Alarms per predicted row, recall of labelled positives, or precision of labelled alarms.
    n_events, n_rows : int
        Number of events, and number of rows among which events were counted.
    target : float or None
        The target rate, or None for rates without a target.
    """

    name: str
    n_events: int
    n_rows: int
    target: float | None = None

    @property
    def rate(self) -> float:
        """The observed rate; NaN without rows."""
        return self.n_events / self.n_rows if self.n_rows else float("nan")

    @property
    def interval(self) -> tuple[float, float]:
        """Anytime-valid 95 % confidence interval of the mean rate."""
        return rate_interval(self.n_events, self.n_rows)

    def as_dict(self) -> dict[str, Any]:
        """Return name, counts, rate, interval and target as plain values."""
        low, high = self.interval
        return {**asdict(self), "rate": self.rate, "low": low, "high": high}

    def __str__(self) -> str:
        promised = "" if self.target is None else f", target {self.target:.4g}"
        if not self.n_rows:
            return f"Observed {self.name}: no rows yet{promised}."
        low, high = self.interval
        return (
            f"Observed {self.name}: {self.rate:.4f} ({self.n_events} of {self.n_rows}; "
            f"95 % interval at any time {low:.4f} to {high:.4f}){promised}."
        )


def event_level(balance: float, target: float, tolerance: float) -> float:
    """Return the share of recent scores that count as events; 0 or 1 if the balance is at the tolerance."""
    if abs(balance) >= tolerance:
        return 0.0 if balance > 0.0 else 1.0
    with np.errstate(divide="ignore"):
        return float(expit(logit(target) - np.tan(0.5 * np.pi * balance / tolerance)))


def balance_limits(tails: FloatArray, target: float, tolerance: float) -> FloatArray:
    """Return the balance whose :func:`event_level` is the share of recent scores at least as extreme."""
    with np.errstate(divide="ignore"):
        size = np.maximum(logit(target), -1e300) - logit(tails)
    return np.asarray(tolerance * (2.0 / np.pi) * np.arctan(size))


@dataclass(frozen=True)
class ExpectedRecall:
    """Calibrated probabilities of scores, and the threshold with a given expected recall; immutable."""

    # Calibration of the log-odds of :meth:`_log_odds`.
    calibration: OnlineCalibration = field(default_factory=OnlineCalibration)
    # The log-odds slope * (score - centre) / scale + bias are fitted to recent labelled scores.
    centre: float = 0.0
    scale: float = 1.0
    slope: float = 1.0
    bias: float = 0.0

    def fitted(self, positive: FloatArray, negative: FloatArray, share: float) -> ExpectedRecall:
        """Return the state for new recent scores of both classes and a share of positives."""
        scores = np.concatenate([positive, negative])
        centre, scale = float(scores.mean()), float(scores.std()) or 1.0
        slope, bias = _native.platt_scaling((scores - centre) / scale, len(positive))
        bias += float(logit(np.clip(share, _MIN_SHARE, 1.0 - _MIN_SHARE)))
        return replace(self, centre=centre, scale=scale, slope=slope, bias=bias)

    def _log_odds(self, scores: FloatArray) -> FloatArray:
        return np.asarray(self.slope * (scores - self.centre) / self.scale + self.bias)

    def after(self, scores: FloatArray, is_positive: Any) -> ExpectedRecall:
        """Return the state updated with labelled rows and their out-of-sample scores."""
        return replace(self, calibration=self.calibration.after(self._log_odds(scores), is_positive))

    def probabilities(self, scores: FloatArray) -> FloatArray:
        """Return the calibrated probabilities that rows with these scores are positive."""
        return np.asarray(expit(self.calibration.log_odds(self._log_odds(scores))))

    @staticmethod
    def threshold(scores: FloatArray, probabilities: FloatArray, miss_share: float) -> float:
        """Return the largest threshold that misses at most ``miss_share``; inf with few predicted rows."""
        if len(scores) < _MIN_RECENT_ROWS:
            return np.inf
        scores, probabilities = scores[-_EXPECTED_ROWS:], probabilities[-_EXPECTED_ROWS:]
        order = np.argsort(scores)
        missed = np.cumsum(probabilities[order])
        n_missed = int(np.searchsorted(missed, miss_share * missed[-1], side="right"))
        return float(np.nextafter(scores[order[min(n_missed, len(order) - 1)]], -np.inf))

    @classmethod
    def from_state(cls, calibration: Mapping[str, Any] | None, sides: Any) -> ExpectedRecall:
        """Restore the state from the state of the calibration and the recent scores, if there are any."""
        made = cls(OnlineCalibration.from_state(calibration))
        return made if sides is None else made.fitted(*sides)


@dataclass(frozen=True)
class PrecisionLevels:
    """Betting tests for several levels: is the precision of the top share of the rows above the target?

    The wealth is a supermartingale if the precision is at most the target, so it rarely exceeds the accepting
    wealth (Ville's inequality). A limit of the wealth lets a few false alarms revoke the acceptance.
    """

    target: float  # the target precision
    wealth: FloatArray = field(default_factory=lambda: np.ones((len(LEVELS), len(_BETS))))

    def __post_init__(self) -> None:
        if self.wealth.shape != (len(LEVELS), len(_BETS)) or not (self.wealth >= 0.0).all():
            raise ValueError("corrupt precision levels: expected one wealth for each level and bet")

    def after(self, tails: FloatArray, is_positive: NDArray[np.bool_]) -> PrecisionLevels:
        """Return the tests updated with labelled rows. ``tails`` are shares of rows with higher scores."""
        wealth, limit = self.wealth.copy(), _MAX_EXCESS * _ACCEPTING_WEALTH
        bets = _BETS / max(self.target, 1e-9)  # every bet is below 1 / target, so the wealth stays positive
        factors = {flag: 1.0 + bets * (float(flag) - self.target) for flag in (False, True)}
        first = np.searchsorted(LEVELS, tails, side="left")  # index of the first level that contains the row
        for begin, flag in zip(first.tolist(), is_positive.tolist(), strict=True):
            if begin < len(LEVELS):
                wealth[begin:] = np.minimum(wealth[begin:] * factors[flag], limit)
        return PrecisionLevels(self.target, wealth)

    def largest(self) -> float | None:
        """Return the largest accepted level, or None if no level is accepted."""
        accepted = np.flatnonzero(self.wealth.mean(axis=1) >= _ACCEPTING_WEALTH)
        return float(LEVELS[accepted[-1]]) if len(accepted) else None


class AlarmLog:
    """Numbers of predicted rows and alarms of a model, and scores of recent rows, behind a lock of its own.

    All snapshots of a model share one log, because the target rate counts the alarms of all snapshots.
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

    def record(
        self, keys: Keys, alarms: FloatArray, tails: FloatArray | None = None, *, is_own: bool = True
    ) -> None:
        """Keep decisions until the labels of the rows arrive; count those of this copy of the model."""
        unknown = np.full(len(keys), np.nan)
        with lock_of(self):
            numbers = self.n_rows + np.arange(len(keys), dtype=np.float64) if is_own else unknown
            decided = np.stack([alarms, numbers, unknown if tails is None else tails], axis=1)
            self.decided.keep(keys, [0, 1], decided[:, :, None])
            if is_own:
                self.n_rows += len(keys)
                self.n_alarms += int(np.nansum(alarms))

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

    def tails(self, scores: FloatArray, combine: Combine, default: Any, sign: float) -> FloatArray:
        """Return the share of recently predicted rows with at least each score; scores are times ``sign``."""
        if self.raw is None or len(self.raw) < _MIN_RECENT_ROWS:
            return np.asarray(default(scores))
        cached, key = self._sorted, getattr(combine, "__self__", combine)
        if cached is None or cached[0] is not key or self.n_rows - cached[1] >= _REFRESH_ROWS:
            cached = self._sorted = (key, self.n_rows, np.sort(sign * combine(self.raw)))
        ascending = cached[2]
        n_as_high = len(ascending) - np.searchsorted(ascending, scores, side="left")
        return np.asarray((n_as_high + 1.0) / (len(ascending) + 1.0))

    def decide(self, limits: FloatArray, due: FloatArray, tolerance: float) -> FloatArray:
        """Process rows in order; raise an alarm for a row if the balance is then at most the row's limit.

        ``due`` is the number of alarms that each row adds to the target.
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


class OnlineThreshold:
    """Decision threshold that keeps a target rate, for two classes.

    The log changes when rows are predicted and is shared by all snapshots of a model; the other attributes
    change when labels arrive, and learners copy them first. The sign is -1 if the first of two classes is the
    positive one: scores passed to the methods are high for the second class; :meth:`choose` and
    :meth:`threshold` use scores times ``sign``.
    """

    def __init__(self, goal: Mapping[str, float], sign: float = 1.0) -> None:
        self.goal = dict(goal)
        ((self.name, self.target),) = goal.items()
        self.sign = sign
        self.log = AlarmLog()
        self.n_positives = self.n_found = self.n_labelled_alarms = 0
        self.balance = 0.0  # missed positives minus their target number
        self.delay = 0.0  # number of rows that were predicted after the rows with the latest labels
        self._excess = 0.0  # expected rate of misses at the current threshold, minus the target rate
        self.levels = PrecisionLevels(self.target) if self.name == "precision" else None
        self.expected = ExpectedRecall() if self.name == "recall" else None
        # Recent scores of labelled positives and negatives, and the share of positives.
        self._sides: tuple[FloatArray, FloatArray, float] | None = None

    @property
    def decides_rows(self) -> bool:
        """Whether alarms depend on earlier rows, so that labels cannot be derived from scores alone."""
        return self.name in {"alarms", "alarms_per_day"}

    @property
    def per_row(self) -> str | dict[str, float]:
        """Goal in the form that :func:`choose_threshold` accepts, or "gmean" without times of rows."""
        if self.name != "alarms_per_day":
            return {self.name: self.target}
        return "gmean" if np.isnan(self.log.seconds_per_row) else {"alarms": self._alarm_share()}

    def _alarm_share(self) -> float:
        if self.name == "alarms":
            return self.target
        seconds = self.log.seconds_per_row
        if np.isnan(seconds):
            raise DataError(
                "a goal of alarms per day needs the times of the rows; got none.",
                hint="pass time= to partial_fit() and predict(), or use a share of rows: {'alarms': 0.01}",
            )
        return float(np.clip(self.target * seconds / _SECONDS_PER_DAY, 1e-9, 0.5))

    def alarms(self, raw: FloatArray, keys: Keys, combine: Combine, time: FloatArray | None = None) -> Flags:
        """Decide row by row whether to raise an alarm, count the alarms, and return them as a mask.

        ``raw`` are the scores of the experts, which ``combine`` combines; ``keys`` are hashes of the rows.
        """
        log, scores, tolerance = self.log, self.sign * combine(raw), _ALARM_TOLERANCE
        with lock_of(log):
            gaps = log.note_times(time, predicted=True)
            share = self._alarm_share()
            due = np.full(len(scores), share)
            if self.name == "alarms_per_day":
                least, fraction = _DAILY_TOLERANCE
                tolerance = max(least, fraction * self.target)
                due = due if gaps is None else self.target * gaps / _SECONDS_PER_DAY
            tails = log.tails(scores, combine, self._labelled_tails, self.sign)
            alarms = log.decide(balance_limits(tails, share, tolerance), due, tolerance)
            log.append(raw, keys)
            log.record(keys, alarms, tails)
        return np.asarray(alarms > 0.0)

    def _labelled_tails(self, scores: FloatArray) -> FloatArray:
        """Return the share of recent labelled rows with an equal or higher score, or 0.5 without any rows."""
        if self._sides is None:
            return np.full(len(scores), 0.5)
        positive, negative, share = self._sides
        tails = np.zeros(len(scores))
        for side, part in ((positive, share), (negative, 1.0 - share)):
            n_as_high = len(side) - np.searchsorted(side, scores, side="left")
            tails += part * (n_as_high + 0.5) / (len(side) + 1.0)
        return tails

    def record(self, raw: FloatArray, keys: Keys, combine: Combine, threshold: float) -> None:
        """Count the decisions that the threshold of a snapshot makes about predicted rows."""
        log, scores, tails = self.log, combine(raw), None
        alarms = self._is_alarm(scores, threshold)
        with lock_of(log):
            if self.levels is not None:
                tails = self._top_tails(self.sign * scores, combine)
                log.append(raw, keys)
            elif self.expected is not None and self._sides is not None:
                log.append(raw, keys, self.expected.probabilities(self.sign * scores))
            log.record(keys, alarms, tails)
            log.note_excess(self._excess)

    def _top_tails(self, scores: FloatArray, combine: Combine) -> FloatArray:
        """Return the share of labelled or of predicted rows, if larger, with an equal or higher score."""
        tails = self._labelled_tails(scores)
        return np.maximum(tails, self.log.tails(scores, combine, lambda _: tails, self.sign))

    def learn(self, scores: FloatArray, threshold: float, keys: Keys, is_positive: Flags) -> None:
        """Update the state with labels and combined out-of-sample scores of rows."""
        decided, numbers, tails = self.log.take(keys).T
        is_new = np.isnan(numbers)  # rows that were not predicted, or only by another copy of the model
        now = self._is_alarm(scores, threshold)  # decides about new rows
        if not self.decides_rows or not np.isnan(decided).all():
            realised = np.where(np.isnan(decided) & is_new, now, decided)
            n_positives, n_found, n_alarms = _count(realised, is_positive)
            self.n_positives += n_positives
            self.n_found += n_found
            self.n_labelled_alarms += n_alarms
        if self.name == "recall":
            n_positives, n_found, _ = _count(np.where(is_new, now, decided), is_positive)
            self.balance += (n_positives - n_found) - (1.0 - self.target) * n_positives
            if not is_new.all():
                # The last of n rows in a block is (n - 1) / 2 rows closer to the present than the mean row.
                behind = self.log.n_rows - 1.0 - numbers[~is_new]
                self.delay = max(0.0, float(behind.mean()) - 0.5 * (len(behind) - 1.0))
            if self.expected is not None and self._sides is not None:
                self.expected = self.expected.after(self.sign * scores, is_positive)
        elif self.levels is not None:
            tails = np.where(np.isnan(tails), self._labelled_tails(self.sign * scores), tails)
            if self._sides is not None:
                self.levels = self.levels.after(tails, is_positive)

    def choose(self, positive: FloatArray, negative: FloatArray, share: float) -> float:
        """Return the threshold for new recent scores of labelled rows."""
        self._sides = np.sort(positive), np.sort(negative), share
        if self.expected is not None:
            self.expected = self.expected.fitted(*self._sides)
        return self.threshold()

    def decision_threshold(self, combine: Combine) -> float:
        """Return the threshold above which the second class is predicted; see :meth:`threshold`."""
        best = self.threshold(combine)
        # A row whose score equals ``best`` is no alarm, so it belongs to the class that is not positive.
        return best if self.sign > 0.0 else float(np.nextafter(-best, -np.inf))

    def _is_alarm(self, scores: FloatArray, threshold: float) -> FloatArray:
        """Return 1 for rows that are alarms under ``threshold``, else 0; NaN if ``threshold`` is NaN."""
        if np.isnan(threshold):
            return np.full(len(scores), np.nan)
        return ((scores > threshold) == (self.sign > 0.0)).astype(np.float64)

    def threshold(self, combine: Combine | None = None) -> float:
        """Return the threshold for the current state; NaN or, for a precision, inf before recent scores."""
        if self._sides is None:
            return float("nan" if self.levels is None else "inf")
        positive, negative, share = self._sides
        if self.decides_rows:
            return choose_threshold(positive, negative, self.per_row, share)
        highest = max(abs(float(side[at])) for side in (positive, negative) for at in (0, -1))
        far = _NO_ALARM_FACTOR * (1.0 + highest)
        if self.levels is not None:
            level = self.levels.largest()
            return far if level is None else self._top_threshold(level, far, combine)
        with lock_of(self.log):
            raw, probabilities = self.log.raw, self.log.probabilities
            # Thresholds chosen since the last labels have not shown their effect yet (Smith predictor).
            balance = self.balance + share * self.log.last_excess(self.delay)
        level = event_level(balance, 1.0 - self.target, _MISS_TOLERANCE)
        self._excess = level - (1.0 - self.target)
        best = _below_quantile(positive, level)
        # If labels are late, labelled positives are old. Predicted rows show how the scores have changed.
        if combine is None or raw is None or probabilities is None or self.expected is None or level >= 1.0:
            return max(-far, best)
        return max(-far, min(best, self.expected.threshold(self.sign * combine(raw), probabilities, level)))

    def _top_threshold(self, level: float, far: float, combine: Combine | None) -> float:
        """Return the lowest threshold for which all rows above it are in the top share ``level``."""
        assert self._sides is not None
        scores = np.unique(np.concatenate(self._sides[:2]))
        tails = self._labelled_tails(scores)
        if combine is not None and self.log.raw is not None:
            with lock_of(self.log):
                scores = np.unique(np.concatenate([scores, self.sign * combine(self.log.raw)]))
                tails = self._top_tails(scores, combine)
        n_below = int(np.count_nonzero(tails > level))  # tails decrease with the score
        return far if n_below == len(scores) else float(scores[max(n_below - 1, 0)])

    def realised(self) -> list[RealisedRate]:
        """Return the observed rates of alarms, recall and precision."""
        with lock_of(self.log):
            n_rows, n_alarms = self.log.n_rows, self.log.n_alarms
        target = {self.name: self.target}
        if self.name == "alarms_per_day" and not np.isnan(self.log.seconds_per_row):
            target = {"alarms": self._alarm_share()}
        parts = {
            "alarms": (n_alarms, n_rows),
            "recall": (self.n_found, self.n_positives),
            "precision": (self.n_found, self.n_labelled_alarms),
        }
        return [RealisedRate(name, *counts, target.get(name)) for name, counts in parts.items()]

    def get_state(self) -> dict[str, Any]:
        """Return the state as arrays and plain values."""
        return {
            "goal": self.goal,
            "sign": self.sign,
            "log": self.log.get_state(),
            **{name: getattr(self, name) for name in _NUMBERS},
            "wealth": None if self.levels is None else self.levels.wealth,
            "calibration": None if self.expected is None else self.expected.calibration.get_state(),
            "sides": None if self._sides is None else list(self._sides),
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any] | None) -> OnlineThreshold | None:
        """Restore a threshold from the result of :meth:`get_state`; raise ValueError if inconsistent."""
        if state is None:
            return None
        if not is_promise(state["goal"]) or len(state["goal"]) != 1:
            raise ValueError("corrupt threshold: unknown goal")
        made = cls(state["goal"], float(state["sign"]))
        made.log = AlarmLog.from_state(state["log"])
        for name in _NUMBERS:
            # Files of earlier versions contain no delay.
            setattr(made, name, type(getattr(made, name))(state.get(name, 0)))
        if made.levels is not None:
            made.levels = PrecisionLevels(made.target, np.asarray(state["wealth"], dtype=np.float64))
        if state["sides"] is not None:
            positive, negative, share = state["sides"]
            made._sides = np.asarray(positive, np.float64), np.asarray(negative, np.float64), float(share)
            if not len(made._sides[0]) or not len(made._sides[1]):
                raise ValueError("corrupt threshold: a class has no recent scores")
        if made.expected is not None:
            made.expected = ExpectedRecall.from_state(state.get("calibration"), made._sides)
        return made


def plain_scores(raw: FloatArray) -> FloatArray:
    """Return the scores of a single classifier from its raw scores of shape (n_rows, 1, 1)."""
    return raw[:, 0, 0]


def _count(alarms: FloatArray, is_positive: Flags) -> tuple[int, int, int]:
    """Return the numbers of positives, of found positives and of alarms; NaN is an unknown decision."""
    alarm, positive = alarms == 1.0, is_positive & ~np.isnan(alarms)
    return int(positive.sum()), int((positive & alarm).sum()), int(alarm.sum())


def _below_quantile(ascending: FloatArray, level: float) -> float:
    """Return a threshold that the next score falls below with probability at most ``level``."""
    # As in split conformal prediction, n scores are treated as n + 1. Below the lowest score the distribution
    # is extrapolated with an exponential tail.
    rank = level * (len(ascending) + 1.0)
    if rank >= 1.0:
        return float(np.nextafter(ascending[min(int(rank), len(ascending)) - 1], -np.inf))
    if level <= 0.0:
        return -np.inf
    n_tail = max(2, len(ascending) // 10)
    scale = float(np.mean(ascending[:n_tail]) - ascending[0])
    return float(np.nextafter(ascending[0] + scale * np.log(rank), -np.inf))
