"""Recent out-of-sample scores of the experts with their labels, and a correction of the expert weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from steelyard import _native
from steelyard._types import FloatArray, IntArray
from steelyard.base import Label
from steelyard.ensemble.settings import SETTINGS

_CORRECTION_STEPS = 5  # few steps, starting from 0, keep the correction small


class TwoSides(NamedTuple):
    """Recent scores of the rows of one class and of all other rows, oldest first, one column per expert."""

    positive: FloatArray
    negative: FloatArray
    share: float  # share of positive rows among recent rows


class ScoreLog(NamedTuple):
    """Scores, class indices and row hashes in stream order; the first ``n`` stored rows are valid.

    Logs share their storage: appending writes behind the last valid row, so earlier logs stay valid.
    """

    store: tuple[FloatArray, IntArray, NDArray[np.uint64]]
    n: int

    @classmethod
    def empty(cls, n_experts: int, n_planes: int, n_rows: int = 0) -> ScoreLog:
        scores = np.empty((n_rows, n_experts, n_planes))
        return cls((scores, np.empty(n_rows, dtype=np.int64), np.empty(n_rows, dtype=np.uint64)), 0)

    @property
    def rows(self) -> tuple[FloatArray, IntArray, NDArray[np.uint64]]:
        scores, places, keys = self.store
        return scores[: self.n], places[: self.n], keys[: self.n]

    def append(self, scores: FloatArray, places: IntArray, keys: NDArray[np.uint64]) -> ScoreLog:
        n, store = self.n + len(places), self.store
        if n > len(store[1]):
            _, n_experts, n_columns = store[0].shape
            store = ScoreLog.empty(n_experts, n_columns, 2 * n + 64).store
            for column, values in zip(store, self.rows, strict=True):
                column[: self.n] = values
        for column, values in zip(store, (scores, places, keys), strict=True):
            column[self.n : n] = values
        return ScoreLog(store, n)

    def take(self, rows: Any) -> ScoreLog:
        scores, places, keys = (column[rows] for column in self.rows)
        return ScoreLog((scores, places, keys), len(places))

    def without(self, place: int, keys: NDArray[np.uint64]) -> ScoreLog:
        """Return the log without the oldest row of a class for each hash in ``keys``.

        ``place`` is the index of the class.
        """
        _, places, known = self.rows
        of_class = np.flatnonzero(places == place)
        keep = np.ones(self.n, dtype=bool)
        for key in keys:
            keep[of_class[keep[of_class] & (known[of_class] == key)][:1]] = False
        return self if keep.all() else self.take(keep)


class ScoreBuffer:
    """Recent scores of every expert, given before the labels were known.

    The last rows of every class are kept, about 1,000 in total and at least 100 of each class (fewer with
    more than ten classes, at least 20). If one of two classes has a share below 2 %, the total is 20 divided
    by this share, at most 4,000. With two classes a row has one score, positive for the second class; with
    more it has one score per class. The score is NaN for a class that an expert did not know. Attributes are
    replaced, never changed in place, so a shallow copy can be changed without the original; only one of the
    two may be appended to.
    """

    def __init__(self, n_experts: int) -> None:
        self.n_experts = n_experts
        self.classes: list[Label] = []  # labels, or in StreamClassifier the class codes of the labels
        self._log = ScoreLog.empty(n_experts, 1)
        self._counts: FloatArray = np.zeros(0)  # decayed number of rows of each class

    def set_classes(self, classes: Sequence[Label]) -> None:
        """Rearrange the scores for other classes."""
        old, self.classes = self.classes, list(classes)
        place_of = {label: place for place, label in enumerate(self.classes)}
        moved = np.array([place_of.get(label, -1) for label in old], dtype=np.int64)
        counts, self._counts = self._counts, np.zeros(len(place_of))
        self._counts[moved[moved >= 0]] = counts[moved >= 0]
        log, self._log = self._log, ScoreLog.empty(self.n_experts, n_planes(len(place_of)))
        if log.n:
            scores, places, keys = log.take(moved[log.rows[1]] >= 0).rows
            self._log = self._log.append(align(scores, old, self.classes), moved[places], keys)

    def push(
        self,
        places: IntArray,
        scores: FloatArray | None,
        keys: NDArray[np.uint64],
        weights: FloatArray | None = None,
    ) -> None:
        """Add rows whose labels have arrived. Rows without scores only count for the class shares.

        ``places`` are indices into :attr:`classes`, or -1 for a class that is not in this list.
        """
        weights = np.ones(len(places)) if weights is None else weights
        if (places < 0).any():
            known = places >= 0
            scores = None if scores is None else scores[known]
            places, keys, weights = places[known], keys[known], weights[known]
        decay = 0.5 ** (weights.sum() / SETTINGS.share_half_life_rows)
        self._counts = self._counts * decay + np.bincount(places, weights, minlength=len(self.classes))
        if scores is None:
            return
        self._log = self._log.append(scores, places, keys)
        limit = 1.0 + SETTINGS.slack
        if self._log.n > limit * SETTINGS.score_rows:
            wanted = self._wanted_rows()
            if self._log.n > limit * len(wanted):
                self._log = self._log.take(wanted)

    def shorten(self) -> None:
        """Keep only the newest rows, because scores before a drift are misleading."""
        self._log = self._log.take(_native.last_rows(self._log.rows[1], *SETTINGS.score_rows_after_drift))

    def drop(self, label: Label, keys: NDArray[np.uint64]) -> None:
        """Remove the scores of forgotten rows of a class; ``label`` is one of :attr:`classes`."""
        if label not in self.classes:
            return
        place = self.classes.index(label)
        n_before = int(np.count_nonzero(self._log.rows[1] == place))
        self._log = self._log.without(place, keys)
        # Only the recent rows are subtracted from the decayed number of rows of the class.
        n_kept = int(np.count_nonzero(self._log.rows[1] == place))
        count = self._counts[place] - (n_before - n_kept)
        if count <= 0.0 and n_kept:
            count = self._counts[place] * n_kept / n_before
        self._counts = self._counts.copy()
        self._counts[place] = max(0.0, count)

    def shares(self, extra_rows: float = 0.0) -> FloatArray:
        """Return the share of each class among recent rows.

        ``extra_rows`` are added, divided evenly among the classes.
        """
        n = max(len(self._counts), 1)
        counts = self._counts + extra_rows / n
        total = counts.sum()
        return counts / total if total > 0.0 else np.full(len(counts), 1.0 / n)

    def _wanted_rows(self) -> IntArray:
        """Return the indices of the last rows of every class, in proportion to its share, oldest first.

        If one of two classes is very rare, more rows of the other one show how rare false alarms are.
        """
        shares, n_rows, (lowest, highest) = self.shares(), SETTINGS.score_rows, SETTINGS.score_rows_of_class
        minimum = min(max(n_rows // max(len(self.classes), 1), lowest), highest)
        if len(shares) == 2 and shares.min() > 0.0:
            n_rows = min(max(int(lowest / shares.min()), n_rows), SETTINGS.max_score_rows)
        wanted = np.clip(np.rint(n_rows * shares), minimum, n_rows)
        return _native.last_rows(self._log.rows[1], 0, wanted.astype(np.int64))

    def recent(self) -> tuple[IntArray, FloatArray]:
        """Return class indices and scores (n_rows, n_experts, n_planes) of recent rows, oldest first."""
        rows, (scores, places, _) = self._wanted_rows(), self._log.rows
        return places[rows], scores[rows]

    def sides(self) -> list[TwoSides]:
        """Return the recent scores of each class and of the rest; for two classes, one such pair."""
        places, scores = self.recent()
        shares = self.shares()
        positives = [1] if len(self.classes) == 2 else range(len(self.classes))
        return [
            TwoSides(scores[places == p, :, plane], scores[places != p, :, plane], float(shares[p]))
            for plane, p in enumerate(positives)
        ]

    def get_state(self) -> dict[str, Any]:
        """Return the buffer as arrays and plain values."""
        scores, places, keys = self._log.rows
        counts = self._counts.tolist()
        return {
            "classes": list(self.classes),
            "counts": counts,
            "places": places,
            "scores": scores,
            "keys": keys,
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any], n_experts: int) -> Self:
        """Restore the buffer from the result of :meth:`get_state`; raise ValueError if it is inconsistent."""
        buffer = cls(n_experts)
        buffer.set_classes(state["classes"])
        scores, keys = state["scores"], state["keys"]
        if isinstance(keys, list):  # version 0.2.0 stored the rows class by class
            places = np.repeat(np.arange(len(keys)), [len(part) for part in keys])
            scores, keys = (np.concatenate(parts) if parts else np.zeros(0) for parts in (scores, keys))
        else:
            places = np.asarray(state["places"], dtype=np.int64)
        if len(keys):
            scores = with_new_experts(scores, n_experts, np.nan, axis=1)
            shape = (len(keys), n_experts, n_planes(len(buffer.classes)))
            if scores.shape != shape or places.shape != keys.shape or keys.dtype != np.uint64:
                raise ValueError(
                    f"recent scores must have shape {shape}, with one class and uint64 key per row"
                )
            if places.min() < 0 or places.max() >= len(buffer.classes):
                raise ValueError("the recent scores belong to unknown classes")
            buffer._log = buffer._log.append(scores, places, keys)
        buffer._counts = np.asarray(state["counts"], dtype=np.float64)
        if buffer._counts.shape != (len(buffer.classes),):
            raise ValueError("expected one number of rows for each class of the recent scores")
        return buffer


@dataclass(frozen=True)
class LabelRun:
    """Run of the last rows that were predicted without a new label in between.

    A label frequency expert gives the same score to all rows of a run. The recent scores of a rare class come
    from more runs than those of a frequent class, so a comparison of the classes would depend on chance.
    Scores of long runs are therefore not recorded, and after a long run the label frequency experts get no
    weight.
    """

    n_rows: int = 0  # length of the run
    # Scores that the label frequency experts give to the rows of the run.
    scores: FloatArray = field(default_factory=lambda: np.zeros(0))

    @property
    def is_long(self) -> bool:
        """Whether the run is too long to be used for the weights of the label frequency experts."""
        return self.n_rows > SETTINGS.max_label_run_rows

    def after(self, scores: FloatArray) -> tuple[LabelRun, NDArray[np.bool_]]:
        """Return the run after more rows, and a mask of the rows that belong to long runs.

        ``scores`` are the scores of the label frequency experts for these rows, of shape (n_rows, ...).
        """
        scores = scores.reshape(len(scores), -1)
        scores = np.where(np.isnan(scores), 0.0, scores)
        continues = scores.shape[1:] == self.scores.shape and bool((scores[0] == self.scores).all())
        starts = np.flatnonzero((scores[1:] != scores[:-1]).any(axis=1)) + 1
        borders = np.concatenate([[0], starts, [len(scores)]])
        in_rows = borders[1:] - borders[:-1]  # lengths of the runs in these rows
        lengths = in_rows.copy()
        lengths[0] += self.n_rows if continues else 0
        run = LabelRun(int(lengths[-1]), scores[-1])
        return run, np.repeat(lengths > SETTINGS.max_label_run_rows, in_rows)

    def get_state(self) -> dict[str, Any]:
        """Return the run as arrays and plain values."""
        return {"n_rows": self.n_rows, "scores": self.scores}

    @classmethod
    def from_state(cls, state: Mapping[str, Any] | None) -> LabelRun:
        """Restore a run from :meth:`get_state`, or return an empty run if the state is None."""
        return cls() if state is None else cls(int(state["n_rows"]), np.asarray(state["scores"], np.float64))


@dataclass(frozen=True)
class WeightCorrection:
    """Correction that is added to the expert weights for two classes; immutable.

    The uncorrected weights depend on the quality of each expert alone. The correction also depends on their
    correlation: it favours experts that err on different rows over experts with similar scores. It is a ridge
    logistic regression of the labels on the out-of-sample log-odds of the experts, for the observed class
    shares; the penalty shrinks the result towards the uncorrected weights. The last 5,000 rows and the last
    100 rows of each class are remembered.
    """

    values: FloatArray  # the correction, shape (n_experts,)
    log: ScoreLog  # calibrated log-odds of recent rows for equally frequent classes, class indices and hashes

    @classmethod
    def none(cls, n_experts: int) -> WeightCorrection:
        """Return a correction of 0 without remembered rows."""
        return cls(np.zeros(n_experts), ScoreLog.empty(n_experts, 1))

    def after(self, log_odds: FloatArray, places: IntArray, keys: NDArray[np.uint64]) -> WeightCorrection:
        """Return the correction with more remembered rows, whose class indices are ``places``."""
        rounded = log_odds.astype(np.float32).astype(np.float64)  # files store 32-bit numbers
        log, n_rows = self.log.append(rounded[:, :, None], places, keys), SETTINGS.correction_rows
        if log.n > (1.0 + SETTINGS.slack) * n_rows:
            per_class = SETTINGS.score_rows_of_class[1]
            log = log.take(_native.last_rows(log.rows[1], n_rows, per_class))
        return WeightCorrection(self.values, log)

    def without(self, place: int, keys: NDArray[np.uint64]) -> WeightCorrection:
        """Return the correction without the rows of a class that have the given hashes.

        ``place`` is the index of the class. If a row was found, the correction is 0 until it is solved again.
        """
        log = self.log.without(place, keys)
        if log.n == self.log.n:
            return self
        return WeightCorrection(np.zeros(len(self.values)), log)

    def solved(self, weights: FloatArray, share: float) -> WeightCorrection:
        """Return the correction for the given weights; ``share`` is the share of the positive class.

        Each step minimizes a quadratic upper bound of the log-loss (with curvature 1/4), so the steps cannot
        diverge.
        """
        log_odds, places, _ = self.log.rows
        counts = np.bincount(places, minlength=2)
        if counts.min() < SETTINGS.min_scored_rows or len(places) < SETTINGS.min_correction_rows:
            return WeightCorrection(np.zeros(len(weights)), self.log)
        values = _native.solve_correction(
            log_odds[:, :, 0], places, weights, share, SETTINGS.correction_ridge, _CORRECTION_STEPS
        )
        return WeightCorrection(values, self.log)

    def apply(self, weights: FloatArray, judged: Any) -> FloatArray:
        """Return corrected, nonnegative weights with sum 1; experts not in ``judged`` get 0."""
        corrected = np.zeros(len(weights))
        corrected[judged] = np.maximum(weights[judged] + self.values[judged], 0.0)
        total = corrected.sum()
        return corrected / total if total > 0.0 else weights

    def get_state(self) -> dict[str, Any]:
        """Return the state as a dictionary of arrays and plain values, for saving."""
        log_odds, places, keys = self.log.rows
        log_odds, places = log_odds[:, :, 0].astype(np.float32), places.astype(np.int8)
        return {"values": self.values, "log_odds": log_odds, "places": places, "keys": keys}

    @classmethod
    def from_state(cls, state: Mapping[str, Any], n_experts: int) -> WeightCorrection:
        """Restore the correction from the result of :meth:`get_state`; raise ValueError if inconsistent.

        Experts that are not in the file have a correction of 0.
        """
        correction = cls.none(n_experts)
        if not state:
            return correction
        values = with_new_experts(state["values"], n_experts, 0.0)
        log_odds = with_new_experts(state["log_odds"], n_experts, 0.0, axis=1)
        places, keys = np.asarray(state["places"]), np.asarray(state["keys"])
        has_shape = values.shape == (n_experts,) and log_odds.shape == (len(keys), n_experts)
        if not has_shape or places.shape != keys.shape or not np.isin(places, (0, 1)).all():
            raise ValueError("the correction of the weights does not have the shape of the experts")
        if not (np.isfinite(values).all() and np.isfinite(log_odds).all()):
            raise ValueError("the correction of the weights must be finite numbers")
        log = correction.log.append(log_odds[:, :, None], places.astype(np.int64), keys)
        return cls(values, log)


def with_new_experts(values: Any, n_experts: int, fill: float, axis: int = 0) -> NDArray[Any]:
    """Return values per expert from a file, padded with ``fill`` for experts that are not in the file."""
    values = np.asarray(values, dtype=np.float64)
    missing = n_experts - values.shape[axis] if values.ndim > axis else 0
    widths = [(0, max(missing, 0) if dim == axis else 0) for dim in range(values.ndim)]
    return np.pad(values, widths, constant_values=fill)


def align(scores: FloatArray, known: Sequence[Label], classes: Sequence[Label]) -> FloatArray:
    """Rearrange the columns of scores for the classes ``known`` into columns for the classes ``classes``.

    The last axis of ``scores`` has one column per known class, or a single one for two classes. A class that
    was not known gets NaN; scores for fewer than two classes give NaN everywhere.
    """
    if known == classes and len(classes) >= 2:
        return scores
    known, classes = list(known), list(classes)
    out = np.full((*scores.shape[:-1], n_planes(len(classes))), np.nan)
    if len(known) < 2:
        return out
    columns = {known[0]: -scores[..., 0], known[1]: scores[..., 0]} if len(known) == 2 else {}
    columns = columns or {label: scores[..., column] for column, label in enumerate(known)}
    if len(classes) == 2:
        if classes[1] in columns and classes[0] in columns:
            out[..., 0] = columns[classes[1]]
        return out
    for column, label in enumerate(classes):
        if label in columns:
            out[..., column] = columns[label]
    return out


def n_planes(n_classes: int) -> int:
    """Return the number of scores per row: one for two classes, else one per class."""
    return n_classes if n_classes > 2 else 1
