"""Block counts and tracked measures equal those counted row by row."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard._labels import LabelEncoder
from steelyard.evaluation.tracking import COUNT_METRICS, Tracker, block_tallies, measures, pad_classes
from steelyard.metrics.formulas import ranking_measures
from steelyard.streams.predictions import Predictions
from tests.evaluation.reference import measured


def _counted(true, predicted, sizes, window, n_classes, *, rows_after=(0,)):
    """Return a tracker whose counts are read after every chunk.

    Windows are recorded so that the given numbers of rows come after them, all in the last chunk.
    """
    tracker, table = Tracker(("g_mean",), window, 0), LabelEncoder(range(n_classes))
    recorded = {len(true) - n_rows for n_rows in rows_after}
    read = np.minimum(np.cumsum(sizes), len(true)).tolist()
    for begin, end in pairwise(sorted({0, *read, *recorded})):
        part = slice(begin, end)
        rows = Predictions(table.labels, predicted[part], table.labels, None)
        tracker.update(true[part], rows, table, None)
        if end in recorded:
            tracker.record(end, table, 1.0, 1.0)
        if end in read:
            assert tracker.confusion.sum() == end
    return tracker


def _tally(true, predicted, n_classes):
    return block_tallies(true, predicted, np.zeros(len(true), dtype=int), n_classes)[0]


histories = st.tuples(
    st.lists(st.integers(1, 200), min_size=1, max_size=12), st.integers(1, 130), st.integers(2, 5)
)


@given(histories, st.integers(0, 2**31))
def test_window_and_total_counts_do_not_depend_on_chunks(history, seed):
    sizes, window, n_classes = history
    rng = np.random.default_rng(seed)
    true, predicted = rng.integers(0, n_classes, size=(2, sum(sizes)))
    tracker = _counted(true, predicted, sizes, window, n_classes)
    expected = np.zeros((n_classes, n_classes), dtype=int)
    np.add.at(expected, (true, predicted), 1)
    np.testing.assert_array_equal(tracker.confusion, expected)
    (record,) = tracker.records
    blocks, expected = record.blocks, _tally(true[-window:], predicted[-window:], n_classes)
    np.testing.assert_array_equal(blocks.sum(axis=0), expected)
    assert len(blocks) <= 20


@given(histories, st.integers(0, 2**31))
def test_blocks_of_counts_do_not_depend_on_chunks(history, seed):
    sizes, window, n_classes = history
    true, predicted = np.random.default_rng(seed).integers(0, n_classes, size=(2, sum(sizes)))
    cut, whole = (_counted(true, predicted, s, window, n_classes) for s in (sizes, [sum(sizes)]))
    np.testing.assert_array_equal(cut.blocks()[0], whole.blocks()[0])
    assert cut.blocks()[1] == whole.blocks()[1]


def test_number_of_count_blocks_of_long_stream_is_bounded():
    rng = np.random.default_rng(0)
    true, predicted = rng.integers(0, 3, size=(2, 90_001))
    blocks, size = _counted(true, predicted, [997] * 91, 100, 3).blocks()
    assert 128 <= len(blocks) <= 256
    for number in (0, 57, len(blocks) - 1):
        part = slice(number * size, (number + 1) * size)
        expected = _tally(true[part], predicted[part], 3)
        np.testing.assert_array_equal(blocks[number], expected)


@pytest.mark.parametrize(
    ("n_classes", "positive"), [(2, None), (2, 0), (2, 1), (3, None), (3, 2), (7, None), (7, 4)]
)
def test_measures_equal_reference_implementation(n_classes, positive):
    rng = np.random.default_rng(n_classes)
    for n in (1, 2, 5, 40):
        true, predicted = rng.integers(0, n_classes, size=(2, n))
        tally = _tally(true, predicted, n_classes)
        expected = measured(true.tolist(), predicted.tolist(), positive)
        found = {name: float(value) for name, value in measures(tally, positive).items()}
        assert found == pytest.approx(expected, nan_ok=True)


def test_measures_of_stacked_tallies_equal_measures_of_each_tally():
    rng = np.random.default_rng(3)
    tallies = np.array([_tally(*rng.integers(0, 4, size=(2, 30)), 4) for _ in range(50)])
    for positive in (None, 2):
        together = measures(tallies, positive)
        for name in COUNT_METRICS:
            alone = [float(measures(tally, positive)[name]) for tally in tallies]
            np.testing.assert_array_equal(together[name], alone)


def test_class_without_rows_does_not_change_other_measures():
    tally = _tally(np.array([0, 0, 1]), np.array([0, 1, 1]), 2)
    for positive in (None, 0, 1):
        before, after = measures(tally, positive), measures(pad_classes(tally, 5), positive)
        assert {k: float(v) for k, v in before.items()} == pytest.approx(
            {k: float(v) for k, v in after.items()}, nan_ok=True
        )
    for unseen in (tally, pad_classes(tally, 3)):
        assert np.isnan(measures(unseen, 2)["sensitivity"])


@given(histories, st.integers(0, 2**31), st.lists(st.integers(0, 150), min_size=1, max_size=30))
def test_counts_of_earlier_windows_equal_counts_of_their_rows(history, seed, rows_after):
    sizes, window, n_classes = history
    rng = np.random.default_rng(seed)
    true, predicted = rng.integers(0, n_classes, size=(2, sum(sizes)))
    rows_after = sorted({n_rows for n_rows in rows_after if n_rows < sizes[-1]}, reverse=True)
    records = _counted(true, predicted, sizes, window, n_classes, rows_after=rows_after).records
    for n_rows, record in zip(rows_after, records, strict=True):
        end = len(true) - n_rows
        rows = slice(max(0, end - window), end)
        size = -(-len(true[rows]) // 20)
        expected = [_tally(true[part], predicted[part], n_classes) for part in _blocks_back_from(rows, size)]
        np.testing.assert_array_equal(record.blocks, expected)


def _blocks_back_from(rows, size):
    ends = range(rows.stop, rows.start, -size)
    return [slice(max(rows.start, end - size), end) for end in ends][::-1]


def test_auc_of_both_rankings_equals_counting_all_pairs():
    rng = np.random.default_rng(5)
    true = (rng.random(400) < 0.1).astype(int)
    scores = rng.integers(0, 6, size=400) + true * 1.0  # with many ties
    true[100:160] = 0  # a window with only one class
    for end in (60, 150, 151, 283, 399, 400):
        rows = slice(end - 50, end)
        expected = _auc_of_all_pairs(true[rows], scores[rows])
        pair = ranking_measures(true[rows] == 1, scores[rows])["roc_auc"]
        assert pair == pytest.approx((expected, expected), nan_ok=True, abs=1e-15)
    assert np.isnan(ranking_measures(true[100:150] == 1, scores[100:150])["roc_auc"]).all()


@pytest.mark.parametrize("n", [0, 1, 2, 50])
def test_ranking_measures_of_other_class_equal_measures_of_negated_scores(n):
    rng = np.random.default_rng(6)
    is_positive, scores = rng.random(n) < 0.3, rng.integers(0, 8, size=n) * 1.0
    found, expected = (
        ranking_measures(*rows, k=7) for rows in ((is_positive, scores), (~is_positive, -scores))
    )
    for name in ("average_precision", "precision_at_k", "recall_at_k"):
        np.testing.assert_array_equal(found[name], expected[name][::-1])
    assert found["roc_auc"] == pytest.approx(expected["roc_auc"], nan_ok=True, abs=1e-15)


def _auc_of_all_pairs(true, scores):
    pairs = [(p > n) + 0.5 * (p == n) for p in scores[true == 1] for n in scores[true == 0]]
    return np.mean(pairs) if pairs else np.nan


def test_reading_counts_after_every_chunk_does_not_change_them():
    rng = np.random.default_rng(8)
    y = np.concatenate([rng.integers(0, 2, size=700), rng.integers(0, 4, size=1300)])
    predicted = np.where(rng.random(2000) < 0.7, y, rng.integers(0, 4, size=2000))
    scores = rng.normal(size=(2000, 4))
    scores[np.arange(2000), predicted] += 3.0
    often, once = (_tracked(y, predicted, scores, reads=reads) for reads in (True, False))
    assert [r.row for r in often.records] == [r.row for r in once.records]
    for one, other in zip(often.records, once.records, strict=True):
        np.testing.assert_array_equal(one.blocks, other.blocks)
        assert one.scores.keys() == other.scores.keys()
        for name, pair in one.scores.items():
            assert pair == pytest.approx(other.scores[name], nan_ok=True, abs=0)
    np.testing.assert_array_equal(often.confusion, once.confusion)
    for label in often.sample.labels:
        np.testing.assert_array_equal(often.sample.scores(label), once.sample.scores(label))


def _tracked(y, predicted, scores, *, reads):
    tracker, table = Tracker(("g_mean", "auc", "pmauc", "average_precision"), 100, 0), LabelEncoder()
    ends = [*range(15, len(y) + 1, 40), *range(40, len(y) + 1, 40)]
    for begin, end in pairwise([0, *sorted(ends)]):
        part = slice(begin, end)
        codes = table.codes(y[part])
        rows = Predictions([0, 1, 2, 3], predicted[part].astype(np.intp), [0, 1, 2, 3], scores[part])
        tracker.update(codes, rows, table, 1)
        tracker.record(end, table, 1.0, 1.0)
        if reads:
            assert tracker.confusion.sum() == end
    return tracker
