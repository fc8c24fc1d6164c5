"""Label frequency expert: the moving class prior, for streams in which labels come in runs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from steelyard._types import FloatArray, IntArray
from steelyard.ensemble.experts.base import ExpertConfig, Rule, Stream, WindowExpert
from steelyard.ensemble.views import TransformedRows
from steelyard.explanation.attribution import Attribution

__all__ = ["LabelFrequencyExpert", "LabelFrequencyRule"]

_WINDOW_ROWS = 200


class LabelFrequencyExpert(WindowExpert):
    """Exponentially decayed frequencies of the last labels; the features are not used.

    Parameters
    ----------
    config : ExpertConfig
        Name and weight.
    half_life_rows : float
        Number of rows after which the weight of a label has halved.
    """

    uses_features = False

    def __init__(self, config: ExpertConfig, half_life_rows: float) -> None:
        super().__init__(config)
        self._decay = float(np.exp2(-1.0 / half_life_rows))

    def select(self, stream: Stream) -> IntArray:
        return stream.rows.last(_WINDOW_ROWS, low=stream.low)

    def make_rule(self, stream: Stream) -> Rule | None:
        codes = stream.rows.codes_at(self.held)[::-1]
        counts: FloatArray = np.bincount(codes, np.power(self._decay, np.arange(len(codes)))).astype(
            np.float64
        )
        classes = np.flatnonzero(counts)
        return LabelFrequencyRule(classes.tolist(), counts[classes], self._decay) if len(classes) else None


@dataclass(frozen=True)
class LabelFrequencyRule(Rule):
    """Frequency of each class among the last labels; the same score for all rows."""

    classes: list[int]
    counts: FloatArray  # decayed number of labels
    decay: float  # factor by which every row multiplies the counts

    def scores(self, rows: TransformedRows) -> FloatArray:
        shares = self.counts / self.counts.sum()
        shares = shares[1:] if len(self.classes) == 2 else shares
        return np.repeat(shares[None], len(rows), axis=0)

    def attribution(self, rows: TransformedRows, background: TransformedRows) -> Attribution:
        """Return no contributions: the score is the same for all rows and part of the base."""
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
