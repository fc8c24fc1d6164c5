"""Scores of predicted rows: each row gets its last scores once.

The delay is the number of rows that were predicted after the newest row whose scores were taken.
"""

from __future__ import annotations

import numpy as np
import pytest

from steelyard.ensemble.mixing import PredictedScores


class _Reference:
    """Slow definition with one dictionary."""

    def __init__(self):
        self.rows, self.n_predicted, self.delay_rows = {}, 0, 0

    def keep(self, keys, scores):
        self.n_predicted += len(set(keys) - set(self.rows))
        for place, (key, score) in enumerate(zip(keys, scores, strict=True)):
            self.rows[key] = (score, self.n_predicted - len(keys) + place)

    def take(self, keys):
        entries = [self.rows.pop(key, None) for key in keys]
        numbers = [entry[1] for entry in entries if entry is not None]
        self.delay_rows = max(0, self.n_predicted - 1 - max(numbers)) if numbers else 0
        return [None if entry is None else entry[0] for entry in entries]


@pytest.mark.parametrize("seed", range(40))
def test_scores_and_delays_of_random_calls_equal_a_dictionary(seed):
    rng = np.random.default_rng(seed)
    ours, reference, begin = PredictedScores(), _Reference(), 0
    for _ in range(40):
        n = int(rng.integers(0, 6))
        kind = rng.choice(["next", "repeated", "any"])
        keys = begin + np.arange(n) if kind != "any" else rng.integers(0, 30, n)
        keys = keys.astype(np.uint64)
        if rng.random() < 0.5:
            scores = rng.normal(size=(n, 2, 1))
            ours.keep(keys, [0, 1], scores)
            reference.keep(keys.tolist(), scores)
        else:
            out = np.zeros((n, 2, 1))
            is_missing = ours.take(keys, [0, 1], out)
            expected = reference.take(keys.tolist())
            assert is_missing.tolist() == [scores is None for scores in expected]
            for row, scores in zip(out, expected, strict=True):
                np.testing.assert_array_equal(row, 0.0 if scores is None else scores)
            if not is_missing.all():
                assert ours.delay_rows == reference.delay_rows
        begin += n if kind == "next" and rng.random() < 0.7 else 0


def test_scores_for_other_classes_are_aligned_also_if_a_whole_batch_is_taken():
    predicted, keys = PredictedScores(), np.arange(3, dtype=np.uint64)
    predicted.keep(keys, [0, 1], np.ones((3, 2, 1)))
    out = np.zeros((3, 2, 1))
    assert not predicted.take(keys, [1, 0], out).any()
    np.testing.assert_array_equal(out, -1.0)
