"""Measures of the predictions of one model. The positive class can be chosen when the measures are read.

A tally is an array of shape (..., 3, n_classes): hits, true rows and predicted rows of each class.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from steelyard._labels import Codes, LabelEncoder
from steelyard._types import FloatArray
from steelyard.metrics import formulas, pmauc_score
from steelyard.metrics.formulas import (
    PROBABILITY_MEASURES,
    BoolArray,
    ReliabilityBins,
    ReliabilityCurve,
    ranking_measures,
    row_losses,
)
from steelyard.streams.predictions import Predictions

Tallies = NDArray[np.int64]
Pair = tuple[float, float]  # value if the scored class is positive, and if the other class is positive

COUNT_METRICS = (
    "sensitivity", "specificity", "g_mean", "f1", "rs", "accuracy", "imbalance_ratio", "macro_recall",
    "cohen_kappa",
)  # fmt: skip
# Formulas of the measures of a positive class.
_ONE_VS_REST = {
    "sensitivity": "sensitivity", "specificity": "specificity", "g_mean": "g_mean", "f1": "f_beta",
    "rs": "relative_sensitivity",
}  # fmt: skip
_AT_K = ("precision_at_k", "recall_at_k")
_RANKING_METRICS = ("auc", "average_precision", *_AT_K)
LOSSES = PROBABILITY_MEASURES  # measures for which lower values are better
METRICS = (*COUNT_METRICS, "auc", "pmauc", *_RANKING_METRICS[1:], *PROBABILITY_MEASURES)
_BANDED = ("sensitivity", "specificity", "g_mean", "f1", "macro_recall")
_CONFIDENCE = 0.95
_N_RESAMPLES = 200
_BLOCKS_PER_WINDOW = 20
_MAX_STREAM_BLOCKS = 256  # maximum number of blocks; beyond it, adjacent blocks are merged
_MIN_FLUSH_ROWS = 8000  # rows are buffered up to this number or two windows, whichever is larger
_MAX_PENDING_CELLS = 1_000_000  # maximum number of buffered probabilities, a limit with many classes
# Maximum number of classes for PMAUC; with more, all pairs would take longer than learning.
_MAX_PMAUC_CLASSES = 30
# Maximum number of records of a model with few classes; beyond it, every other record is removed.
_MAX_RECORDS = 2000
_MAX_CELLS = 4_000_000  # maximum number of array cells in all records of a model
DAY_SECONDS = 86_400.0
_MAX_DAYS = 4000  # maximum number of days; older days are dropped
_NAN_PAIR = math.nan, math.nan
# Days since 1970-01-01 (UTC), numbers of rows of both classes, and measures of a day.
_Day = tuple[int, tuple[int, int], dict[str, Pair]]


@dataclass(slots=True)
class Record:
    """Counts of the window that ends at one row of the stream, independent of the positive class."""

    row: int
    n_predicted: int  # number of rows with a prediction up to this row
    rows_per_second: float
    memory_mb: float
    scores: dict[str, Pair]  # measures that are computed from scores, such as auc and pmauc
    # Counts of the window, of shape (n_blocks, 3, n_classes), as soon as its rows are counted.
    blocks: NDArray[np.int32] = field(default_factory=lambda: np.zeros((0, 3, 0), dtype=np.int32))


class Tracker:
    """Counts of the predictions of one model, and the measures that follow from them.

    Rows are buffered and counted together, so many small chunks take little more time than a few large ones.
    All buffered rows are counted before a result is read. Counts of earlier rows are stored for blocks of
    rows, and adjacent blocks are merged if there are too many, so memory is bounded. With two classes, the
    scores of the class that is not ``scored_class`` are the negatives of the stored scores.
    """

    def __init__(self, metrics: tuple[str, ...], window: int, seed: int, k: int = 100) -> None:
        self.metrics, self.window, self.k = metrics, window, k
        self.n_scored = 0
        self.scored_class: int | None = None
        self.wants_probabilities = any(name in PROBABILITY_MEASURES for name in metrics)
        self.days = DayMeasures(k)  # empty if the stream has no times
        self._seed = seed
        self._draws: dict[int, FloatArray] = {}  # draws of the bootstrap by number of blocks
        # Columns of rows that are not counted yet, all with the same classes and the same scored class.
        self._pending: list[tuple[NDArray[Any], ...]] = []
        self._pending_classes: tuple[int, int | None] = 0, None  # number of classes, scored class
        # Rows of the last window, for PMAUC of more than two classes.
        self._score_tables: list[tuple[Codes, Predictions]] = []
        # Counted rows: columns of the last counted rows and of the window before them, counts by true and
        # predicted class, and counts of blocks of consecutive rows.
        self._n_counted = 0
        self._recent: list[NDArray[Any]] = []
        self._confusion: Tallies = np.zeros((0, 0), dtype=np.int64)
        self._blocks: Tallies = np.zeros((0, 3, 0), dtype=np.int64)
        self._block_rows = max(1, window // _BLOCKS_PER_WINDOW)
        self._sample = ScoreSample(seed=seed)
        self._bins = ReliabilityBins(np.zeros((3, 10)), np.zeros(2))
        self._records: list[Record] = []
        self._n_complete = 0  # number of records whose windows have been counted

    def update(
        self,
        true: Codes,
        predictions: Predictions,
        table: LabelEncoder,
        scored_class: int | None,
        time: FloatArray | None = None,
    ) -> None:
        """Add predicted rows with their true labels, and their times if the stream has times.

        ``scored_class`` is the class whose scores are stored: the positive class or one of two classes. It is
        None if there are more classes and none is positive.
        """
        predicted = predictions.codes(table)
        if predicted.min(initial=0) < 0:
            answered = predicted >= 0
            true, predicted, predictions = true[answered], predicted[answered], predictions.take(answered)
            time = None if time is None else time[answered]
        if not len(true):
            return
        n_pending = self.n_scored - self._n_counted
        classes = len(table), scored_class
        max_pending = min(max(2 * self.window, _MIN_FLUSH_ROWS), _MAX_PENDING_CELLS // len(table))
        if classes != self._pending_classes or n_pending >= max_pending:
            self._flush()
            self._pending_classes = classes
        scores = np.zeros(len(true))
        if scored_class is not None:
            self.scored_class = scored_class
            scores = predictions.score_of(table.labels[scored_class] if scored_class < len(table) else None)
            if time is not None and {*_AT_K} & {*self.metrics}:
                self.days.update(time, true == scored_class, scores)
        columns: tuple[NDArray[Any], ...] = (true, predicted, scores)
        if self.wants_probabilities:
            columns += (predictions.by_label(predictions.probabilities, table.labels, 0.0),)
        self._pending.append(columns)
        self.n_scored += len(true)
        if "pmauc" in self.metrics and 2 < len(table) <= _MAX_PMAUC_CLASSES:
            self._score_tables.append((true, predictions))
            while sum(len(y) for y, _ in self._score_tables[1:]) >= self.window:
                self._score_tables.pop(0)

    def record(self, row: int, table: LabelEncoder, rows_per_second: float, memory_mb: float) -> bool:
        """Record the window that ends at the last row; return whether records were removed."""
        scores = {}
        if self._score_tables or len(table) > _MAX_PMAUC_CLASSES:
            scores["pmauc"] = (self._pmauc(table),) * 2
        self._records.append(Record(row, self.n_scored, rows_per_second, memory_mb, scores))
        n_window = min(self.n_scored, self.window)
        n_blocks = -(-n_window // -(-n_window // _BLOCKS_PER_WINDOW))
        if len(self._records) <= max(100, min(_MAX_RECORDS, _MAX_CELLS // (3 * len(table) * n_blocks))):
            return False
        self._flush()
        self._records = self._records[1::2]
        self._n_complete = len(self._records)
        return True

    def _flush(self) -> None:
        """Count the buffered rows and complete the pending records."""
        if self._pending:
            columns = [np.concatenate(parts) for parts in zip(*self._pending, strict=True)]
            n_classes, scored_class = self._pending_classes
            true, predicted, scores = columns[:3]
            if len(columns) > 3:
                columns[3:] = _calibration_columns(true, predicted, columns[3], scored_class)
            old = self._recent or [column[:0] for column in columns]
            self._recent = [np.concatenate([a[-self.window :], b]) for a, b in zip(old, columns, strict=True)]
            cells = np.bincount(true * n_classes + predicted, minlength=n_classes**2)
            n_new = n_classes - len(self._confusion)
            self._confusion = np.pad(self._confusion, (0, n_new)) + cells.reshape(n_classes, n_classes)
            first = self._n_counted // self._block_rows  # the first rows may belong to the last block
            numbers = np.arange(self._n_counted, self._n_counted + len(true)) // self._block_rows - first
            n_blocks = first + int(numbers[-1]) + 1 - len(self._blocks)
            self._blocks = np.pad(self._blocks, ((0, n_blocks), (0, 0), (0, n_new)))
            self._blocks[first:] += block_tallies(true, predicted, numbers, n_classes)
            while len(self._blocks) > _MAX_STREAM_BLOCKS:
                self._blocks = np.add.reduceat(self._blocks, np.arange(0, len(self._blocks), 2))
                self._block_rows *= 2
            if scored_class is not None:
                self._sample.update(true, scores)
            if len(columns) > 3:
                self._bins = ReliabilityBins(*map(np.add, self._bins, ReliabilityBins.of(*columns[3:])))
            self._n_counted += len(true)
            self._pending = []
        for record in self._records[self._n_complete :]:
            self._complete(record)
        self._n_complete = len(self._records)

    def _complete(self, record: Record) -> None:
        """Compute the counts and the measures of scores of a recorded window, whose rows are all counted."""
        end = len(self._recent[0]) - (self._n_counted - record.n_predicted)
        rows = slice(max(end - self.window, 0), end)
        true, predicted, scores, *calibration = (column[rows] for column in self._recent)
        # At most 20 blocks, counted from the end of the window; the first may be shorter.
        numbers = np.arange(-len(true), 0) // -(-len(true) // _BLOCKS_PER_WINDOW)
        blocks = block_tallies(true, predicted, numbers - numbers[0], len(self._confusion))
        values: dict[str, Pair] = {"auc": _NAN_PAIR}
        if self.scored_class is not None and {"pmauc", *_RANKING_METRICS} & {*self.metrics}:
            values = ranking_measures(true == self.scored_class, scores, k=self.k)
            values["auc"] = values.pop("roc_auc")
        if calibration:
            measured = ReliabilityBins.of(*calibration).measures()
            values |= {name: (value, value) for name, value in measured.items()}
        if "pmauc" in self.metrics:
            values["pmauc"] = record.scores.get("pmauc", values["auc"])
        record.scores, record.blocks = values, blocks.astype(np.int32)

    # -- reading of measures ------------------------------------------------------------------------

    @property
    def confusion(self) -> Tallies:
        """Number of rows by true and predicted class."""
        self._flush()
        return self._confusion

    @property
    def sample(self) -> ScoreSample:
        """Sample of the scores of all rows."""
        self._flush()
        return self._sample

    @property
    def records(self) -> list[Record]:
        """Recorded windows, oldest first."""
        self._flush()
        return self._records

    def blocks(self) -> tuple[Tallies, int]:
        """Return the tallies of the full blocks, oldest first, and the number of rows per block."""
        self._flush()
        return self._blocks[: self._n_counted // self._block_rows], self._block_rows

    def is_mirrored(self, positive: int | None) -> bool:
        """Return whether the positive class is not the scored class but the other of two classes."""
        return positive is not None and positive != self.scored_class

    def window_measures(self, positive: int | None) -> dict[str, FloatArray]:
        """Return the measures of all recorded windows with one array per measure."""
        n_classes = len(self.confusion)
        windows = [pad_classes(r.blocks.sum(axis=0, dtype=np.int64), n_classes) for r in self._records]
        values = measures(np.array(windows).reshape(len(windows), 3, n_classes), positive)
        side = int(self.is_mirrored(positive))
        for name in METRICS[len(COUNT_METRICS) :]:
            defined = positive is not None or name in {"pmauc", *PROBABILITY_MEASURES}
            pairs = [r.scores.get(name, _NAN_PAIR) if defined else _NAN_PAIR for r in self._records]
            values[name] = np.array([pair[side] for pair in pairs])
        return values

    def total(self, positive: int | None) -> dict[str, float]:
        """Return the measures of all rows with their confidence bands.

        AUC and average precision come from the sample of scores. Precision and recall at k are means over
        the days, or over the windows if the stream has no times.
        """
        counts = self.confusion
        tally = np.stack([counts.diagonal(), counts.sum(axis=1), counts.sum(axis=0)])
        found = {name: float(value) for name, value in measures(tally, positive).items()}
        found |= self._bins.measures() | self._sampled(positive) | self._means_at_k(positive)
        names = sorted(self.metrics, key=lambda name: name not in COUNT_METRICS)
        values = {name: found[name] for name in names if name in found}
        return {**values, **self.bands(self.blocks()[0], positive, values)}

    def _means_at_k(self, positive: int | None) -> dict[str, float]:
        windows = self.window_measures(positive)
        days = self.days.lines(self.is_mirrored(positive)) if positive is not None else []
        means = {}
        for name in _AT_K:
            parts = np.array([day[name] for day in days]) if days else windows[name]
            defined = parts[~np.isnan(parts)]
            means[name] = float(defined.mean()) if len(defined) else math.nan
        return means

    def _sampled(self, positive: int | None) -> dict[str, float]:
        sample = self._sample
        if positive is None or len(sample.labels) < 2 or self.scored_class not in sample.labels:
            return {"auc": math.nan, "average_precision": math.nan}
        scores, is_positive, weights = sample.against(self.scored_class)
        if self.is_mirrored(positive):
            is_positive, scores = ~is_positive, -scores
        found = ranking_measures(is_positive, scores, weights)
        return {"auc": found["roc_auc"][0], "average_precision": found["average_precision"][0]}

    def _pmauc(self, table: LabelEncoder) -> float:
        """Return the PMAUC of the last window; the score of an unknown class is the lowest of the row."""
        if len(table) > _MAX_PMAUC_CLASSES:
            return math.nan
        true = np.concatenate([codes for codes, _ in self._score_tables])[-self.window :]
        present = np.unique(true)
        if len(present) < 2:
            return math.nan
        classes = [table.labels[code] for code in present]
        tables = [
            part.by_label(part.scores, classes, part.scores.min(axis=1, initial=0.0) - 1.0)
            for _, part in self._score_tables
        ]
        scores = np.concatenate(tables)[-self.window :]
        columns = scores if len(classes) > 2 else scores[:, 1]
        return float(pmauc_score(np.searchsorted(present, true), columns, labels=list(range(len(present)))))

    def reliability(self, positive: int | None) -> ReliabilityCurve | None:
        """Return the reliability curve of all rows, or None if there are no probabilities."""
        self._flush()
        if not self._bins.sums.any():
            return None
        curve = self._bins.curve()
        if not self.is_mirrored(positive):
            return curve
        return ReliabilityCurve(
            1.0 - curve.mean_probability[::-1], 1.0 - curve.positive_rate[::-1], curve.n_rows[::-1]
        )

    def bands(self, blocks: NDArray[Any], positive: int | None, values: dict[str, float]) -> dict[str, float]:
        """Return the confidence bands of the measures in ``values`` as ``NAME_low`` and ``NAME_high``.

        The measures are those of all rows of some blocks; the band of a measure that is nan is nan.
        """
        n = len(blocks)
        if n < 2:
            return {}
        if n not in self._draws:
            rng = np.random.default_rng((self._seed, n))
            self._draws[n] = rng.multinomial(n, np.full(n, 1 / n), size=_N_RESAMPLES).astype(np.float64)
        bands = bootstrap_bands(pad_classes(blocks, len(self.confusion)), self._draws[n], positive)
        flat = {}
        for name in _BANDED:
            if name not in values:
                continue
            low, high = _NAN_PAIR if math.isnan(values[name]) else bands[name]
            flat[f"{name}_low"], flat[f"{name}_high"] = low, high
        return flat


# -- measures of tallies ----------------------------------------------------------------------------


def block_tallies(true: Codes, predicted: Codes, blocks: Codes, n_classes: int) -> Tallies:
    """Return the tallies of rows by the number of their block, in increasing order from 0."""
    first, n_blocks = blocks * n_classes, int(blocks[-1]) + 1
    cells = ((first + true)[true == predicted], first + true, first + predicted)
    counts = [np.bincount(cell, minlength=n_blocks * n_classes) for cell in cells]
    return np.stack([count.reshape(n_blocks, n_classes) for count in counts], axis=1)


def pad_classes(tallies: NDArray[Any], n_classes: int) -> NDArray[Any]:
    """Append zero counts for classes that appeared later, up to ``n_classes`` classes."""
    missing = n_classes - tallies.shape[-1]
    return np.pad(tallies, [(0, 0)] * (tallies.ndim - 1) + [(0, missing)]) if missing > 0 else tallies


def measures(tallies: NDArray[Any], positive: int | None) -> dict[str, FloatArray]:
    """Return the measures of one or several tallies by name, or nan if a denominator is zero.

    Without a positive class all classes count equally: sensitivity is the mean recall, f1 is the mean F1 of
    all classes, and specificity and rs are nan. A positive class that has not occurred yet counts as a class
    without rows.
    """
    tallies = np.asarray(tallies, dtype=np.float64)
    tallies = tallies if positive is None else pad_classes(tallies, positive + 1)
    counts = formulas.ClassCounts(*np.moveaxis(tallies, -2, 0))
    names = {name: name for name in ("accuracy", "imbalance_ratio", "macro_recall", "cohen_kappa")}
    if positive is None:
        names |= {"sensitivity": "macro_recall", "g_mean": "g_mean", "f1": "macro_f1"}
    values = {name: getattr(counts, formula)() for name, formula in names.items()}
    if positive is not None:
        binary = counts.one_vs_rest(positive)
        values |= {name: getattr(binary, formula)() for name, formula in _ONE_VS_REST.items()}
    undefined = np.full(counts.true.shape[:-1], np.nan)
    return {name: values.get(name, undefined) for name in COUNT_METRICS}


def bootstrap_bands(
    blocks: NDArray[Any], draws: FloatArray, positive: int | None
) -> dict[str, tuple[float, float]]:
    """Return the central 95 % interval of the bootstrap values of each measure.

    The bootstrap draws whole blocks of consecutive rows, because neighbouring rows are correlated; with
    single rows the bands would be too narrow. ``draws[r, b]`` is how often resample r contains block b.
    """
    drawn = (draws @ blocks.reshape(len(blocks), -1)).reshape(len(draws), *blocks.shape[1:])
    values = measures(drawn, positive)
    bands = {}
    for name in _BANDED:
        sample = np.sort(values[name])  # nan values are sorted to the end
        n = int(np.isfinite(sample).sum())
        tail = int((1 - _CONFIDENCE) / 2 * n)
        bands[name] = (float(sample[tail]), float(sample[n - 1 - tail])) if n else _NAN_PAIR
    return bands


# -- scores and probabilities -----------------------------------------------------------------------


def _calibration_columns(
    true: NDArray[Any], predicted: NDArray[Any], probabilities: FloatArray, scored_class: int | None
) -> tuple[FloatArray, NDArray[np.bool_], FloatArray, FloatArray]:
    """Return the probability of an event, whether it occurred, the log-loss and the Brier score of each row.

    The event is that the row belongs to the scored class of two classes, or else that the prediction is
    correct.
    """
    if scored_class is not None and scored_class < probabilities.shape[1] <= 2:
        losses = row_losses(probabilities, true, scored_class)
        return probabilities[:, scored_class], true == scored_class, *losses
    return probabilities.max(axis=1), true == predicted, *row_losses(probabilities, true)


class ScoreSample:
    """Reservoir sample of the scores of each class, in bounded memory.

    Each row of a class is in the sample with the same probability. Classes are sampled separately, so the
    sample contains all rows of a class with at most ``size`` rows; ``counts`` is the true number of rows of
    each class, ``size`` the maximum number of sampled rows of a class.
    """

    def __init__(self, size: int = 4000, seed: int = 0) -> None:
        self.size = size
        self.counts: dict[Any, int] = {}
        # Random keys and scores of the sampled rows of each class.
        self._rows: dict[Any, tuple[FloatArray, FloatArray]] = {}
        self._rng = np.random.default_rng(seed)

    def update(self, codes: NDArray[np.integer[Any]], scores: FloatArray) -> None:
        """Add rows. The sample does not depend on the division of the rows into batches."""
        random = self._rng.random(len(codes))
        for code in np.unique(codes).tolist():
            of_class = codes == code
            self.counts[code] = self.counts.get(code, 0) + int(of_class.sum())
            earlier = self._rows.get(code, (np.zeros(0), np.zeros(0)))
            keys, kept = np.append(earlier[0], random[of_class]), np.append(earlier[1], scores[of_class])
            if len(keys) > self.size:  # the rows with the smallest keys stay, in the order of the stream
                smallest = np.sort(np.argpartition(keys, self.size)[: self.size])
                keys, kept = keys[smallest], kept[smallest]
            self._rows[code] = keys, kept

    def renamed(self, names: list[Any], sign: float = 1.0) -> Self:
        """Return a copy with the classes renamed and the scores multiplied by ``sign``."""
        other = type(self)(self.size)
        other.counts = {names[code]: n for code, n in self.counts.items()}
        other._rows = {names[code]: (keys, sign * scores) for code, (keys, scores) in self._rows.items()}
        return other

    def scores(self, label: Any) -> FloatArray:
        """Return the sampled scores of a class."""
        return self._rows[label][1] if label in self._rows else np.zeros(0)

    @property
    def labels(self) -> list[Any]:
        """Classes with rows, sorted."""
        return sorted(self._rows)

    def against(self, positive: Any) -> tuple[FloatArray, NDArray[np.bool_], FloatArray]:
        """Return the sampled scores, a mask of the positive rows, and the rows that each represents."""
        parts = [self.scores(label) for label in self.labels]
        sizes = [len(part) for part in parts]
        weights = [self.counts[label] / size for label, size in zip(self.labels, sizes, strict=True)]
        is_positive = [label == positive for label in self.labels]
        return np.concatenate(parts), np.repeat(is_positive, sizes), np.repeat(weights, sizes)


class DayMeasures:
    """Precision and recall of the ``k`` highest scores of each day.

    Only the rows of the current day are stored. Late rows of an earlier day produce a second entry for that
    day.
    """

    def __init__(self, k: int) -> None:
        self.k = k
        self._closed: deque[_Day] = deque(maxlen=_MAX_DAYS)
        self._day: int | None = None
        self._parts: list[tuple[BoolArray, FloatArray]] = []

    def update(self, time: FloatArray, is_positive: BoolArray, scores: FloatArray) -> None:
        """Add rows with their times in seconds since 1970."""
        days: NDArray[np.int64] = np.floor(time / DAY_SECONDS).astype(np.int64)
        borders = [0, *(np.flatnonzero(np.diff(days)) + 1).tolist(), len(days)]
        for begin, end in pairwise(borders):
            if begin == end:
                continue
            if self._day != days[begin] and self._parts:
                self._closed.append(self._current())
                self._parts = []
            self._day = int(days[begin])
            self._parts.append((is_positive[begin:end].copy(), scores[begin:end].copy()))

    def lines(self, is_mirrored: bool) -> list[dict[str, Any]]:
        """Return the measures of each day for the scored class or, mirrored, for the other class."""
        days = [*self._closed, self._current()] if self._parts else self._closed
        side = int(is_mirrored)
        return [
            {
                "day": str(np.datetime64(day, "D")),
                "rows": sum(n_rows),
                "positive_rows": n_rows[side],
                **{name: measures[name][side] for name in _AT_K},
            }
            for day, n_rows, measures in days
        ]

    def _current(self) -> _Day:
        is_positive, scores = (np.concatenate(parts) for parts in zip(*self._parts, strict=True))
        n_positive = int(is_positive.sum())
        assert self._day is not None  # set by update()
        found = ranking_measures(is_positive, scores, k=self.k)
        return self._day, (n_positive, len(scores) - n_positive), found
