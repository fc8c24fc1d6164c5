"""Measures of the predictions of one model. The positive class can be chosen when the measures are read."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from steelyard._labels import Codes, LabelEncoder
from steelyard._types import FloatArray
from steelyard.evaluation.days import DayLine, DayMeasures
from steelyard.metrics import pmauc_score, score_measures
from steelyard.metrics.blocks import (
    MEASURES,
    BlockConfusion,
    bootstrap_bands,
    measures,
    pad_classes,
    rows_per_block,
)
from steelyard.metrics.score_measures import PROBABILITY_MEASURES, Ranking, ReliabilityBins, ReliabilityCurve
from steelyard.streams.predictions import Predictions

_RANKING_METRICS = ("auc", "average_precision", "precision_at_k", "recall_at_k")
LOSSES = PROBABILITY_MEASURES  # measures for which lower values are better
METRICS = (*MEASURES, "auc", "pmauc", *_RANKING_METRICS[1:], *PROBABILITY_MEASURES)
_N_RESAMPLES = 200
_MIN_FLUSH_ROWS = 8000  # rows are buffered up to this number or two windows, whichever is larger
# Maximum number of classes for PMAUC; with more, all pairs would take longer than learning.
_MAX_PMAUC_CLASSES = 30
# Maximum number of records of a model with few classes; beyond it, every other record is removed.
_MAX_RECORDS = 2000
_MAX_CELLS = 4_000_000  # maximum number of array cells in all records of a model

# Value of a measure if the scored class is positive, and if the other class is positive.
Pair = tuple[float, float]
_NAN_PAIR = math.nan, math.nan


@dataclass(slots=True)
class Record:
    """Counts of the window that ends at one row of the stream, independent of the positive class."""

    row: int
    n_predicted: int  # number of predicted rows up to the end of the window
    rows_per_second: float
    memory_mb: float
    scores: dict[str, Pair]  # measures that are computed from scores, such as auc and pmauc
    # Counts of the window, of shape (n_blocks, 3, n_classes), as soon as its rows are counted.
    blocks: NDArray[np.int32] = field(default_factory=lambda: np.zeros((0, 3, 0), dtype=np.int32))


class Tracker:
    """Counts of the predictions of one model, and the measures that follow from them.

    Rows are buffered and counted together, so many small chunks take little more time than a few large ones.
    All buffered rows are counted before a result is read. ``metrics`` are names out of :data:`METRICS`, and
    ``seed`` is that of the score sample and of the confidence bands. ``scored_class`` is the class whose
    scores are stored; with two classes, the scores of the other class are the negatives.
    """

    def __init__(self, metrics: tuple[str, ...], window: int, seed: int, k: int = 100) -> None:
        self.metrics, self.window = metrics, window
        self.n_scored = 0
        self.scored_class: int | None = None
        self.wants_probabilities = any(name in PROBABILITY_MEASURES for name in metrics)
        self.k, self._seed = k, seed
        self._days = DayMeasures(k)
        self._counter = BlockConfusion(window)
        self._sample = ScoreSample(seed=seed)
        self._bins = ReliabilityBins()
        self._records: list[Record] = []
        # Columns of rows that are not counted yet, all with the same classes and the same scored class.
        self._pending: list[tuple[NDArray[Any], ...]] = []
        self._pending_classes: tuple[int, int | None] = 0, None  # number of classes, scored class
        self._n_complete = 0  # number of records whose windows have been counted
        # Mask of the rows of the last update that have a prediction, or None if all have one.
        self._has_prediction: NDArray[np.bool_] | None = None
        self._draws: dict[int, FloatArray] = {}
        # Rows of the last window, for PMAUC of more than two classes.
        self._score_tables: list[tuple[Codes, Predictions]] = []

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
        self._has_prediction = None
        if predicted.min(initial=0) < 0:
            self._has_prediction = answered = predicted >= 0
            true, predicted, predictions = true[answered], predicted[answered], predictions.take(answered)
            time = None if time is None else time[answered]
        if not len(true):
            return
        n_pending = self.n_scored - self._counter.n_rows
        classes = len(table), scored_class
        if classes != self._pending_classes or n_pending >= max(2 * self.window, _MIN_FLUSH_ROWS):
            self._flush()
            self._pending_classes = classes
        scores = np.zeros(len(true))
        if scored_class is not None:
            self.scored_class = scored_class
            scores = predictions.score_of(table.labels[scored_class] if scored_class < len(table) else None)
            if time is not None and {"precision_at_k", "recall_at_k"} & {*self.metrics}:
                self._days.update(time, true == scored_class, scores)
        columns: tuple[NDArray[Any], ...] = (true, predicted, scores)
        if self.wants_probabilities:
            columns += self._calibration_columns(true, predicted, predictions, table)
        self._pending.append(columns)
        self.n_scored += len(true)
        if "pmauc" in self.metrics and 2 < len(table) <= _MAX_PMAUC_CLASSES:
            self._score_tables.append((true, predictions))
            while sum(len(y) for y, _ in self._score_tables[1:]) >= 2 * self.window:
                self._score_tables.pop(0)

    def _calibration_columns(
        self, true: Codes, predicted: Codes, predictions: Predictions, table: LabelEncoder
    ) -> tuple[FloatArray, ...]:
        """Return probability and occurrence of an event, log-loss and Brier score of each row.

        The event is that the row is of the scored class or, without a scored class, that the prediction is
        correct.
        """
        if predictions.probabilities is None:
            return (np.full(len(true), np.nan),) * 4
        probabilities = predictions.probability_table(table.labels)
        of_true_class = probabilities[np.arange(len(true)), true]
        log_losses = score_measures.log_loss(of_true_class)
        if self.scored_class is not None and self.scored_class < len(table) <= 2:
            probability, event = probabilities[:, self.scored_class], true == self.scored_class
            return probability, event.astype(np.float64), log_losses, score_measures.brier(probability, event)
        briers = score_measures.brier(probabilities, true[:, None] == np.arange(len(table)))
        return probabilities.max(axis=1), (true == predicted).astype(np.float64), log_losses, briers

    def record(
        self, row: int, ago: int, table: LabelEncoder, rows_per_second: float, memory_mb: float
    ) -> bool:
        """Record the window that ends ``ago`` rows before the last row; return whether records were removed.

        The end of the window must be within the rows of the last update.
        """
        if self._has_prediction is not None and ago:
            ago = int(self._has_prediction[-ago:].sum())
        n_rows = self.n_scored - ago
        if not n_rows:
            return False
        scores = {}
        if self._score_tables or len(table) > _MAX_PMAUC_CLASSES:
            scores["pmauc"] = (self._pmauc(table, ago),) * 2
        self._records.append(Record(row, n_rows, rows_per_second, memory_mb, scores))
        n_window = min(n_rows, self.window)
        cells = 3 * len(table) * -(-n_window // rows_per_block(n_window))
        if len(self._records) <= max(100, min(_MAX_RECORDS, _MAX_CELLS // max(cells, 1))):
            return False
        self._flush()
        self._records = self._records[1::2]
        self._n_complete = len(self._records)
        return True

    def _flush(self) -> None:
        """Count the buffered rows and complete the pending records."""
        if self._pending:
            true, predicted, scores, *calibration = map(np.concatenate, zip(*self._pending, strict=True))
            n_classes, scored_class = self._pending_classes
            self._counter.update(true, predicted, n_classes, scores, *calibration)
            if scored_class is not None:
                self._sample.update(true, scores)
            if calibration:
                self._bins.update(calibration[0], calibration[1], losses=calibration[2:])
            self._pending = []
        for record in self._records[self._n_complete :]:
            columns, tallies = self._counter.window(self._counter.n_rows - record.n_predicted)
            values = self._score_values(columns)
            if "pmauc" in self.metrics:
                values["pmauc"] = record.scores.get("pmauc", values["auc"])
            record.scores, record.blocks = values, tallies.astype(np.int32)
        self._n_complete = len(self._records)

    def _score_values(self, columns: list[NDArray[Any]]) -> dict[str, Pair]:
        """Return the measures of scores and probabilities of a window."""
        true, _, scores, *calibration = columns
        values: dict[str, Pair] = {"auc": _NAN_PAIR}
        if self.scored_class is not None and {"pmauc", *_RANKING_METRICS} & {*self.metrics}:
            one = Ranking.of(true == self.scored_class, scores)
            other = one.of_other_class()
            precisions, recalls = zip(one.at_k(self.k), other.at_k(self.k), strict=True)
            values = {
                "auc": (one.auc(),) * 2,
                "average_precision": (one.average_precision(), other.average_precision()),
                "precision_at_k": precisions,
                "recall_at_k": recalls,
            }
        if calibration:
            bins = ReliabilityBins().update(calibration[0], calibration[1], losses=calibration[2:])
            values |= {name: (value,) * 2 for name, value in bins.measures().items()}
        return values

    # -- reading of measures ------------------------------------------------------------------------

    @property
    def counter(self) -> BlockConfusion:
        """Confusion counts of all rows."""
        self._flush()
        return self._counter

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

    @property
    def days(self) -> list[DayLine]:
        """Precision and recall at k of each day, empty if the stream has no times."""
        return self._days.lines()

    def is_mirrored(self, positive: int | None) -> bool:
        """Return whether the positive class is not the scored class but the other of two classes."""
        return positive is not None and positive != self.scored_class

    def window_measures(self, positive: int | None) -> dict[str, FloatArray]:
        """Return the measures of all recorded windows with one array per measure."""
        width = self._width(positive)
        windows = [pad_classes(r.blocks.sum(axis=0, dtype=np.int64), width) for r in self.records]
        values = measures(np.array(windows).reshape(len(windows), 3, width), positive)
        side = int(self.is_mirrored(positive))
        for name in METRICS[len(MEASURES) :]:
            defined = positive is not None or name in {"pmauc", *PROBABILITY_MEASURES}
            pairs = [r.scores.get(name, _NAN_PAIR) if defined else _NAN_PAIR for r in self.records]
            values[name] = np.array([pair[side] for pair in pairs])
        return values

    def total(self, positive: int | None) -> dict[str, float]:
        """Return the measures of all rows with their confidence bands.

        AUC and average precision come from the sample of scores. Precision and recall at k are means over
        the days, or over the windows if the stream has no times.
        """
        found = measures(pad_classes(self.counter.total(), self._width(positive)), positive)
        values = {name: float(found[name]) for name in self.metrics if name in found}
        for name in self.metrics:
            if name in {"auc", "average_precision"}:
                values[name] = self._sampled(name, positive)
            elif name in PROBABILITY_MEASURES:
                values[name] = self._bins.measures()[name]
            elif name in _RANKING_METRICS:
                values[name] = self._mean_at_k(name, positive)
        return {**values, **flat_bands(self.bands(self.counter.blocks()[0], positive), values)}

    def _mean_at_k(self, name: str, positive: int | None) -> float:
        days, side = self.days, int(self.is_mirrored(positive))
        parts = (
            np.array([getattr(day, name)[side] for day in days])
            if days and positive is not None
            else self.window_measures(positive)[name]
        )
        defined = parts[~np.isnan(parts)]
        return float(defined.mean()) if len(defined) else math.nan

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

    def _width(self, positive: int | None) -> int:
        # A positive class that has not occurred yet counts as a class without rows.
        return max(self.counter.n_classes, 0 if positive is None else positive + 1)

    def bands(self, blocks: NDArray[Any], positive: int | None) -> dict[str, tuple[float, float]]:
        """Return the confidence bands of the measures over all rows of some blocks."""
        n = len(blocks)
        if n < 2:
            return {}
        if n not in self._draws:
            rng = np.random.default_rng((self._seed, n))
            self._draws[n] = rng.multinomial(n, np.full(n, 1 / n), size=_N_RESAMPLES).astype(np.float64)
        return bootstrap_bands(pad_classes(blocks, self._width(positive)), self._draws[n], positive)

    def _pmauc(self, table: LabelEncoder, ago: int) -> float:
        if len(table) > _MAX_PMAUC_CLASSES:
            return math.nan
        true = np.concatenate([y for y, _ in self._score_tables])
        last = slice(max(0, len(true) - ago - self.window), len(true) - ago)
        present = np.unique(true[last])
        if len(present) < 2:
            return math.nan
        classes = [table.labels[code] for code in present]
        scores = np.concatenate([part.score_table(classes) for _, part in self._score_tables])[last]
        columns = scores if len(classes) > 2 else scores[:, 1]
        codes = np.searchsorted(present, true[last])
        return float(pmauc_score(codes, columns, labels=list(range(len(present)))))

    def _sampled(self, name: str, positive: int | None) -> float:
        sample = self.sample
        if positive is None or len(sample.labels) < 2 or self.scored_class not in sample.labels:
            return math.nan
        scores, is_positive, weights = sample.against(self.scored_class)
        if self.is_mirrored(positive):
            is_positive, scores = ~is_positive, -scores
        ranking = Ranking.of(is_positive, scores, weights)
        return ranking.auc() if name == "auc" else ranking.average_precision()


def flat_bands(bands: dict[str, tuple[float, float]], values: dict[str, float]) -> dict[str, float]:
    """Return the bands of the measures in ``values`` as ``NAME_low`` and ``NAME_high``.

    The band of a measure that is nan is nan.
    """
    flat = {}
    for name, band in bands.items():
        if name in values:
            low, high = _NAN_PAIR if math.isnan(values[name]) else band
            flat[f"{name}_low"], flat[f"{name}_high"] = low, high
    return flat


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
        self._parts: dict[Any, list[tuple[FloatArray, FloatArray]]] = {}
        self._n_rows: dict[Any, int] = {}
        self._limits: FloatArray = np.zeros(0)  # upper limit of the keys of sampled rows, for each class
        self._rng = np.random.default_rng(seed)

    def update(self, codes: NDArray[np.integer[Any]], scores: FloatArray) -> None:
        """Add rows. The sample does not depend on the division of the rows into batches."""
        keys = self._rng.random(len(codes))
        rows = np.bincount(codes, minlength=len(self._limits))
        if len(rows) > len(self._limits):
            self._limits = np.append(self._limits, np.ones(len(rows) - len(self._limits)))
        staying = np.flatnonzero(keys < self._limits[codes])
        staying_codes = codes[staying]
        for code in np.flatnonzero(rows).tolist():
            self.counts[code] = self.counts.get(code, 0) + int(rows[code])
            of_class = staying[staying_codes == code]
            if len(of_class):
                self._parts.setdefault(code, []).append((keys[of_class], scores[of_class]))
                self._n_rows[code] = self._n_rows.get(code, 0) + len(of_class)
                if self._n_rows[code] > 2 * self.size:
                    self._trim(code)

    def _trim(self, code: Any) -> tuple[FloatArray, FloatArray]:
        """Keep the rows of a class with the smallest random keys, and return them."""
        keys, scores = (np.concatenate(parts) for parts in zip(*self._parts[code], strict=True))
        if len(keys) > self.size:
            smallest = np.sort(np.argpartition(keys, self.size)[: self.size])
            keys, scores = keys[smallest], scores[smallest]
            self._limits[code] = keys.max()
        self._parts[code], self._n_rows[code] = [(keys, scores)], len(keys)
        return keys, scores

    def renamed(self, names: list[Any], sign: float = 1.0) -> Self:
        """Return a copy with the classes renamed and the scores multiplied by ``sign``."""
        other = type(self)(self.size)
        other.counts = {names[code]: n for code, n in self.counts.items()}
        for code in self._parts:
            keys, scores = self._trim(code)
            other._parts[names[code]] = [(keys, sign * scores)]
        return other

    def scores(self, label: Any) -> FloatArray:
        """Return the sampled scores of a class."""
        return self._trim(label)[1] if label in self._parts else np.zeros(0)

    @property
    def labels(self) -> list[Any]:
        """Classes with rows, sorted."""
        return sorted(self._parts)

    def against(self, positive: Any) -> tuple[FloatArray, NDArray[np.bool_], FloatArray]:
        """Return the sampled scores, a mask of the positive rows, and a weight for each sampled row.

        The weight is the number of rows of the class divided by the number of sampled rows of the class.
        """
        parts = [(label, self.scores(label)) for label in self.labels]
        is_positive = [np.full(len(part), label == positive) for label, part in parts]
        weights = [np.full(len(part), self.counts[label] / len(part)) for label, part in parts]
        return (
            np.concatenate([part for _, part in parts]),
            np.concatenate(is_positive),
            np.concatenate(weights),
        )
