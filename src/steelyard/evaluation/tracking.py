"""What one model answered along a stream, kept so that either class can be read as the positive one."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import UndefinedMetricWarning

from steelyard._types import FloatArray
from steelyard.evaluation.counting import ConfusionCounter, rows_in_a_block
from steelyard.evaluation.measures import MEASURES, bands, measures, widened
from steelyard.evaluation.samples import ScoreSample
from steelyard.metrics import pmauc_score
from steelyard.streams.answers import Answers
from steelyard.streams.labels import Codes, LabelTable

__all__ = ["METRICS", "Record", "Tracker"]

METRICS = (*MEASURES, "auc", "pmauc")
_RESAMPLES = 200
_WINDOWS_AT_ONCE, _LEAST_AT_ONCE = 2, 8000  # windows, or if that is more rows, that are counted together
_MOST_PAIRED = 30  # classes; the AUC of all pairs of more would take longer than learning them
_MAX_RECORDS = 2000  # of a model of few classes; with more, every other one is let go
_MAX_CELLS = 4_000_000  # of the records of a model together


@dataclass(frozen=True, slots=True)
class Record:
    """The last window as it was at one row: counts, so that measures can be read for any positive class."""

    row: int
    blocks: NDArray[np.int32]  # (n_blocks, 3, n_classes): tallies of the window
    auc: float  # the same whichever of two classes is positive
    pmauc: float
    rows_per_second: float
    memory_mb: float


@dataclass(frozen=True, slots=True)
class _Mark:
    """A place where a record is to be: how many answered rows it stands behind."""

    n_rows: int
    row: int
    pmauc: float | None  # None: of two classes, whose one pair is what AUC is of
    rows_per_second: float
    memory_mb: float


class Tracker:
    """Counts what one model answered.

    Rows are taken in at once and counted together, some windows of them at a time or when somebody wants to
    know: many small chunks cost no more than a few large ones.

    Parameters
    ----------
    metrics : sequence of str
        Names out of :data:`METRICS`.
    window : int
        Rows over which the running measures are taken.
    seed : int
        For samples and bands.
    """

    def __init__(self, metrics: tuple[str, ...], window: int, seed: int) -> None:
        self.metrics = metrics
        self.window = window
        self.n_scored = 0  # rows that were answered
        self.speaks_for: int | None = None  # the class that scores are kept for
        self._counter = ConfusionCounter(window)
        self._sample = ScoreSample(seed=seed)
        self._records: list[Record] = []
        self._new: list[
            tuple[Codes, Codes, Any]
        ] = []  # labels, answers and scores of rows that are not counted yet
        self._n_new = 0
        self._marks: list[_Mark] = []  # among them
        self._setting: tuple[int, int | None] = 0, None  # of these rows: classes, and what scores speak for
        self._seed = seed
        self._asks_for_auc = bool({"auc", "pmauc"} & {*metrics})
        self._answered: NDArray[np.bool_] | None = None  # rows of the last update, where some had no answer
        self._draws: dict[int, FloatArray] = {}
        self._tables: list[tuple[Codes, Answers]] = []  # the last window, where there are many classes

    @property
    def counter(self) -> ConfusionCounter:
        """Counts of all rows."""
        self._settle()
        return self._counter

    @property
    def sample(self) -> ScoreSample:
        """A sample of the scores."""
        self._settle()
        return self._sample

    @property
    def records(self) -> list[Record]:
        """The windows that are kept."""
        self._settle()
        return self._records

    def update(self, true: Codes, answers: Answers, table: LabelTable, speaks_for: int | None) -> None:
        """Take in rows with their true labels.

        ``speaks_for`` is the class that scores are kept for: the positive one, or one of two, as the
        scores of two classes are each other's negatives. None where there are more.
        """
        predicted = answers.codes(table)
        self._answered = None
        if predicted.min(initial=0) < 0:  # rows that the model had no answer to
            self._answered = answered = predicted >= 0
            true, predicted, answers = true[answered], predicted[answered], answers.some(answered)
        if not len(true):
            return
        setting = len(table), speaks_for
        if setting != self._setting or self._n_new >= max(_WINDOWS_AT_ONCE * self.window, _LEAST_AT_ONCE):
            self._settle()
        self._setting = setting
        scores = None
        if speaks_for is not None:
            self.speaks_for = speaks_for
            scores = answers.score_of(table.labels[speaks_for] if speaks_for < len(table) else None)
        self._new.append((true, predicted, scores))
        self._n_new += len(true)
        self.n_scored += len(true)
        if "pmauc" in self.metrics and 2 < len(table) <= _MOST_PAIRED:
            self._tables.append((true, answers))
            while sum(len(y) for y, _ in self._tables[1:]) >= 2 * self.window:
                self._tables.pop(0)

    def record(self, row: int, ago: int, table: LabelTable, rows_per_second: float, memory_mb: float) -> bool:
        """Keep the window that ended ``ago`` rows before the last; True when every other had to be let go.

        So many rows must have come with the last update.
        """
        if self._answered is not None and ago:
            ago = int(self._answered[-ago:].sum())
        n_rows = self.n_scored - ago
        if not n_rows:
            return False
        pmauc = self._pmauc(table, ago) if self._tables or len(table) > _MOST_PAIRED else None
        self._marks.append(_Mark(n_rows, row, pmauc, rows_per_second, memory_mb))
        if len(self._records) + len(self._marks) > _most_records(min(n_rows, self.window), len(table)):
            self._settle()
            self._records = self._records[1::2]
            return True
        return False

    def _settle(self) -> None:
        """Count the rows that have come, and make the records that were asked for."""
        if not self._new and not self._marks:
            return
        if self._new:
            n_classes, speaks_for = self._setting
            true = np.concatenate([part[0] for part in self._new])
            predicted = np.concatenate([part[1] for part in self._new])
            scores = None if speaks_for is None else np.concatenate([part[2] for part in self._new])
            self._counter.update(true, predicted, scores, n_classes)
            if scores is not None:
                self._sample.update(true, scores)
            self._new, self._n_new = [], 0
        agos = [self._counter.n_rows - mark.n_rows for mark in self._marks]
        aucs = [math.nan] * len(agos)
        if self._asks_for_auc and self.speaks_for is not None:
            aucs = self._counter.window_aucs(agos, self.speaks_for)
        for mark, blocks, auc in zip(self._marks, self._counter.window_blocks(agos), aucs, strict=True):
            pmauc = math.nan if "pmauc" not in self.metrics else auc if mark.pmauc is None else mark.pmauc
            self._records.append(
                Record(mark.row, blocks.astype(np.int32), auc, pmauc, mark.rows_per_second, mark.memory_mb)
            )
        self._marks = []

    # -- reading ------------------------------------------------------------------------------------

    def window_measures(self, positive: int | None) -> dict[str, FloatArray]:
        """The measures at all records, one array each."""
        width = self._width(positive)
        windows = [widened(r.blocks.sum(axis=0, dtype=np.int64), width) for r in self.records]
        values = measures(np.array(windows).reshape(len(windows), 3, width), positive)
        aucs = [math.nan if positive is None else r.auc for r in self.records]
        values |= {"auc": np.array(aucs), "pmauc": np.array([r.pmauc for r in self.records])}
        return {name: values[name] for name in METRICS}

    def window_bands(self, record: Record, positive: int | None) -> dict[str, tuple[float, float]]:
        """The bands at a record."""
        return self._bands(record.blocks, positive)

    def total(self, positive: int | None) -> dict[str, float]:
        """The measures over all rows, with their bands; AUC from the sample of scores."""
        found = measures(widened(self.counter.total(), self._width(positive)), positive)
        values = {name: float(found[name]) for name in self.metrics if name in found}
        if "auc" in self.metrics:
            values["auc"] = self._sampled_auc(positive)
        return {**values, **flat_bands(self._bands(self.counter.blocks()[0], positive), values)}

    def _width(self, positive: int | None) -> int:
        # A positive class that has not come yet is a class without rows.
        return max(self.counter.n_classes, 0 if positive is None else positive + 1)

    def _bands(self, blocks: NDArray[Any], positive: int | None) -> dict[str, tuple[float, float]]:
        n = len(blocks)
        if n < 2:
            return {}
        if n not in self._draws:
            rng = np.random.default_rng((self._seed, n))
            self._draws[n] = rng.multinomial(n, np.full(n, 1 / n), size=_RESAMPLES).astype(np.float64)
        return bands(widened(blocks, self._width(positive)), self._draws[n], positive)

    def _pmauc(self, table: LabelTable, ago: int) -> float:
        if len(table) > _MOST_PAIRED:
            return math.nan
        true = np.concatenate([y for y, _ in self._tables])
        last = slice(max(0, len(true) - ago - self.window), len(true) - ago)
        true = true[last]
        present = np.unique(true)
        if len(present) < 2:
            return math.nan
        classes = [table.labels[code] for code in present]
        scores = np.concatenate([answers.table(classes) for _, answers in self._tables])[last]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UndefinedMetricWarning)  # nan says it
            codes = range(len(present))
            y = np.searchsorted(present, true)
            return float(pmauc_score(y, scores if len(classes) > 2 else scores[:, 1], labels=[*codes]))

    def _sampled_auc(self, positive: int | None) -> float:
        from sklearn.metrics import roc_auc_score

        if positive is None or self.speaks_for is None or len(self.sample.labels) < 2:
            return math.nan
        if self.speaks_for not in self.sample.labels:
            return math.nan
        scores, is_positive, weights = self.sample.against(self.speaks_for)
        return float(roc_auc_score(is_positive, scores, sample_weight=weights))


def _most_records(n_rows: int, n_classes: int) -> int:
    """How many windows of so many rows are kept."""
    cells = 3 * n_classes * -(-n_rows // rows_in_a_block(n_rows))
    return max(100, min(_MAX_RECORDS, _MAX_CELLS // max(cells, 1)))


def flat_bands(ends: dict[str, tuple[float, float]], values: dict[str, float]) -> dict[str, float]:
    """The ends of the bands of the measures that were asked for; a measure that is nan has no band."""
    flat = {}
    for name, pair in ends.items():
        if name in values:
            low, high = (math.nan, math.nan) if math.isnan(values[name]) else pair
            flat[f"{name}_low"], flat[f"{name}_high"] = low, high
    return flat
