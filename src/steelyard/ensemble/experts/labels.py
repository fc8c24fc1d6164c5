"""Label frequency expert: the moving class prior, for streams in which labels come in runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from steelyard._types import FloatArray, IntArray
from steelyard.ensemble.experts.base import ExpertConfig, Rule, Stream, WindowExpert
from steelyard.ensemble.row_buffer import last_rows
from steelyard.ensemble.settings import SETTINGS
from steelyard.ensemble.views import TransformedRows
from steelyard.explanation.attribution import Attribution

__all__ = ["LabelFrequencyExpert", "LabelFrequencyRule", "LabelRun"]

_WINDOW_ROWS = 200


class LabelFrequencyExpert(WindowExpert):
    """Decayed frequencies of the last labels, whose weights halve after ``half_life_rows`` rows.

    The features are not used.
    """

    uses_features = False

    def __init__(self, config: ExpertConfig, half_life_rows: float) -> None:
        super().__init__(config)
        self._decay = float(np.exp2(-1.0 / half_life_rows))

    def select(self, stream: Stream) -> IntArray:
        rows = stream.rows
        return last_rows(rows.numbers, rows.codes, _WINDOW_ROWS, window_start=stream.window_start)

    def make_rule(self, stream: Stream) -> Rule | None:
        codes = stream.rows.codes_at(self.held)[::-1]
        counts: FloatArray = np.bincount(codes, _powers(self._decay, len(codes))).astype(np.float64)
        classes = np.flatnonzero(counts)
        return LabelFrequencyRule(classes.tolist(), counts[classes], self._decay) if len(classes) else None


@lru_cache(maxsize=16)
def _powers(decay: float, n: int) -> FloatArray:
    return np.power(decay, np.arange(n))


@dataclass(frozen=True)
class LabelFrequencyRule(Rule):
    """Frequency of each class among the last labels, which is the same score for all rows."""

    classes: list[int]
    counts: FloatArray  # decayed number of labels of each class
    decay: float  # factor by which the counts are multiplied at each new label

    def scores(self, rows: TransformedRows) -> FloatArray:
        counts = self.counts[1:] if len(self.classes) == 2 else self.counts
        scores = np.empty((len(rows.X), len(counts)))
        scores[:] = counts / self.counts.sum()
        return scores

    def constant(self, classes: list[int]) -> float:
        if classes == self.classes:
            first, second = self.counts.tolist()
            return second / (first + second)
        if not set(classes) <= set(self.classes):
            return float("nan")
        return float(self.counts[self.classes.index(classes[1])] / self.counts.sum())

    def attribution(self, rows: TransformedRows, background: TransformedRows) -> Attribution:
        """Return zero contributions, because the score is the same for all rows and belongs to the base."""
        base = self.scores(background)[0]
        return Attribution(np.zeros((*rows.X.shape, len(base))), base)

    def after_labels(self, codes: list[int]) -> LabelFrequencyRule:
        classes, counts = self.classes, self.counts
        for code in codes:
            counts = counts * self.decay
            if code not in classes:
                place = int(np.searchsorted(classes, code))
                classes = [*classes[:place], code, *classes[place:]]
                counts = np.insert(counts, place, 0.0)
            counts[classes.index(code)] += 1.0
        return LabelFrequencyRule(classes, counts, self.decay)


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
