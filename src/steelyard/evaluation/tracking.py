"""Measures of one model along a stream: of the last window, and of all rows."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import UndefinedMetricWarning

from steelyard.base import encode_labels
from steelyard.evaluation.bands import BlockCounts
from steelyard.evaluation.samples import ScoreSample
from steelyard.metrics import CumulativeConfusion, WindowAUC, WindowConfusion, pmauc_score
from steelyard.metrics.confusion import ConfusionStream
from steelyard.streams.answers import Answers

__all__ = ["METRICS", "Tracker"]

# Name in the table -> (measure with a positive class, measure of all classes alike)
_CONFUSION_MEASURES: dict[str, tuple[str, str | None]] = {
    "sensitivity": ("sensitivity", "macro_recall"),
    "specificity": ("specificity", None),
    "g_mean": ("g_mean", "g_mean"),
    "f1": ("f_beta", "macro_f1"),
    "rs": ("relative_sensitivity", None),
    "accuracy": ("accuracy", "accuracy"),
    "imbalance_ratio": ("imbalance_ratio", "imbalance_ratio"),
}
METRICS = (*_CONFUSION_MEASURES, "auc", "pmauc")


class Tracker:
    """Counts what one model answered.

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
        self.positive: Any = None
        self.n_scored = 0
        self.recent = WindowConfusion(window)
        self.overall = CumulativeConfusion()
        self.blocks = BlockCounts(window, seed)
        self.sample = ScoreSample(seed=seed)
        self._codes: dict[Any, int] = {}
        self._auc: WindowAUC | None = None
        self._tables: list[tuple[NDArray[Any], Answers]] = []  # the last window, where there are many classes

    def update(self, labels: NDArray[Any], answers: Answers, positive: Any) -> None:
        """Take in rows with their true labels; ``positive=None`` when all classes count alike."""
        if positive != self.positive or self.n_scored == 0:
            self._change_positive(positive)
        self.n_scored += len(labels)
        self.recent.update(labels, answers.labels)
        self.overall.update(labels, answers.labels)
        self.blocks.update(self._coded(labels), self._coded(answers.labels), len(self._codes))
        if positive is not None:
            scores = answers.score_of(positive)
            self.sample.update(labels, scores)
            if self._auc is not None:
                self._auc.update(labels, y_score=scores)
        if "pmauc" in self.metrics and len(self._codes) > 2:
            self._tables.append((labels, answers))
            while sum(len(y) for y, _ in self._tables[1:]) >= self.window:
                self._tables.pop(0)

    def _change_positive(self, positive: Any) -> None:
        self.positive = self.recent.pos_label = self.overall.pos_label = positive
        with_auc = positive is not None and "auc" in self.metrics
        self._auc = WindowAUC(self.window, pos_label=positive) if with_auc else None

    def _coded(self, labels: NDArray[Any]) -> NDArray[np.intp]:
        distinct, positions = encode_labels(labels)
        codes = [self._codes.setdefault(label, len(self._codes)) for label in distinct]
        return np.array(codes, dtype=np.intp)[positions]

    # -- reading ------------------------------------------------------------------------------------

    def running(self) -> dict[str, float]:
        """The measures over the last window, with their bands."""
        values = {name: self._value(name, self.recent) for name in self.metrics}
        return {**values, **_flat(self.blocks.recent_bands(self._positive_code()), values)}

    def total(self) -> dict[str, float]:
        """The measures over all rows, with their bands; AUC from the sample of scores."""
        values = {
            name: self._value(name, self.overall) for name in self.metrics if name not in {"auc", "pmauc"}
        }
        if "auc" in self.metrics:
            values["auc"] = self._sampled_auc()
        return {**values, **_flat(self.blocks.overall_bands(self._positive_code()), values)}

    def window_counts(self) -> dict[Any, int]:
        """Rows of each class in the last window."""
        labels, counts = self.recent.confusion()
        return {label: int(n) for label, n in zip(labels, counts.sum(axis=1), strict=True)}

    def _positive_code(self) -> int | None:
        return None if self.positive is None else self._codes.get(self.positive)

    def _value(self, name: str, confusion: ConfusionStream) -> float:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UndefinedMetricWarning)  # nan says it
            if name == "auc":
                return math.nan if self._auc is None else self._auc.get()
            if name == "pmauc":
                return self._pmauc()
            measure = _CONFUSION_MEASURES[name][self.positive is None]
            return math.nan if measure is None else confusion.get(measure)

    def _pmauc(self) -> float:
        if not self._tables:  # of two classes there is one pair
            return math.nan if self._auc is None else self._auc.get()
        labels = np.concatenate([y for y, _ in self._tables])[-self.window :]
        classes = sorted(set(labels.tolist()))
        if len(classes) < 2:
            return math.nan
        scores = np.concatenate([answers.table(classes) for _, answers in self._tables])[-self.window :]
        return float(pmauc_score(labels, scores if len(classes) > 2 else scores[:, 1], labels=classes))

    def _sampled_auc(self) -> float:
        from sklearn.metrics import roc_auc_score

        if self.positive is None or len(self.sample.labels) < 2 or self.positive not in self.sample.labels:
            return math.nan
        scores, is_positive, weights = self.sample.against(self.positive)
        return float(roc_auc_score(is_positive, scores, sample_weight=weights))


def _flat(bands: dict[str, tuple[float, float]], values: dict[str, float]) -> dict[str, float]:
    """The ends of the bands of the measures that were asked for; a measure that is nan has no band."""
    flat = {}
    for name, ends in bands.items():
        if name in values:
            low, high = (math.nan, math.nan) if math.isnan(values[name]) else ends
            flat[f"{name}_low"], flat[f"{name}_high"] = low, high
    return flat
