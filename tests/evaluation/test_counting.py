"""One counter: windows, totals and blocks of any history equal what is counted row by row."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.evaluation.counting import ConfusionCounter, block_tallies
from steelyard.evaluation.measures import MEASURES, measures, widened
from steelyard.evaluation.tracking import Tracker
from steelyard.streams.answers import Answers
from steelyard.streams.labels import LabelTable
from tests.evaluation.reference import measured


def _fed(true, predicted, sizes, window, n_classes):
    counter = ConfusionCounter(window)
    begin = 0
    for size in sizes:
        part = slice(begin, begin + size)
        if len(true[part]):
            counter.update(true[part], predicted[part], np.arange(len(true))[part] * 1.0, n_classes)
        begin += size
    return counter


histories = st.tuples(
    st.lists(st.integers(1, 200), min_size=1, max_size=12), st.integers(1, 130), st.integers(2, 5)
)


@given(histories, st.integers(0, 2**31))
def test_window_and_total_equal_the_rows_whatever_the_chunks(history, seed):
    sizes, window, n_classes = history
    rng = np.random.default_rng(seed)
    true, predicted = rng.integers(0, n_classes, size=(2, sum(sizes)))
    counter = _fed(true, predicted, sizes, window, n_classes)
    expected = np.zeros((n_classes, n_classes), dtype=int)
    np.add.at(expected, (true, predicted), 1)
    np.testing.assert_array_equal(counter.confusion, expected)
    blocks = counter.window_blocks()[0]
    last_true, last_predicted = true[-window:], predicted[-window:]
    whole = block_tallies(last_true, last_predicted, np.zeros(len(last_true), dtype=int), 1, n_classes)[0]
    np.testing.assert_array_equal(blocks.sum(axis=0), whole)
    assert len(blocks) <= 20


@given(histories, st.integers(0, 2**31))
def test_blocks_do_not_depend_on_the_chunks(history, seed):
    sizes, window, n_classes = history
    true, predicted = np.random.default_rng(seed).integers(0, n_classes, size=(2, sum(sizes)))
    cut, whole = (_fed(true, predicted, s, window, n_classes) for s in (sizes, [sum(sizes)]))
    np.testing.assert_array_equal(cut.blocks()[0], whole.blocks()[0])
    assert cut.blocks()[1] == whole.blocks()[1]


def test_a_long_history_keeps_few_blocks_and_loses_no_row():
    rng = np.random.default_rng(0)
    true, predicted = rng.integers(0, 3, size=(2, 90_001))
    counter = _fed(true, predicted, [997] * 91, 100, 3)
    blocks, size = counter.blocks()
    assert 128 <= len(blocks) <= 256
    for number in (0, 57, len(blocks) - 1):
        part = slice(number * size, (number + 1) * size)
        expected = block_tallies(true[part], predicted[part], np.zeros(size, dtype=int), 1, 3)[0]
        np.testing.assert_array_equal(blocks[number], expected)


@pytest.mark.parametrize(
    ("n_classes", "positive"), [(2, None), (2, 0), (2, 1), (3, None), (3, 2), (7, None), (7, 4)]
)
def test_measures_equal_their_definitions(n_classes, positive):
    rng = np.random.default_rng(n_classes)
    for n in (1, 2, 5, 40):
        true, predicted = rng.integers(0, n_classes, size=(2, n))
        tally = block_tallies(true, predicted, np.zeros(n, dtype=int), 1, n_classes)[0]
        expected = measured(true.tolist(), predicted.tolist(), positive)
        found = {name: float(value) for name, value in measures(tally, positive).items()}
        assert found == pytest.approx(expected, nan_ok=True)


def test_many_tallies_are_measured_as_one_by_one():
    rng = np.random.default_rng(3)
    tallies = np.array(
        [
            block_tallies(*rng.integers(0, 4, size=(2, 30)), np.zeros(30, dtype=int), 1, 4)[0]
            for _ in range(50)
        ]
    )
    for positive in (None, 2):
        together = measures(tallies, positive)
        for name in MEASURES:
            alone = [float(measures(tally, positive)[name]) for tally in tallies]
            np.testing.assert_array_equal(together[name], alone)


def test_a_class_without_rows_changes_nothing_but_its_own_measures():
    tally = block_tallies(np.array([0, 0, 1]), np.array([0, 1, 1]), np.zeros(3, dtype=int), 1, 2)[0]
    for positive in (None, 0, 1):
        before, after = measures(tally, positive), measures(widened(tally, 5), positive)
        assert {k: float(v) for k, v in before.items()} == pytest.approx(
            {k: float(v) for k, v in after.items()}, nan_ok=True
        )
    assert np.isnan(measures(widened(tally, 3), 2)["sensitivity"])


@given(histories, st.integers(0, 2**31), st.lists(st.integers(0, 150), min_size=1, max_size=30))
def test_windows_that_ended_earlier_equal_their_rows(history, seed, agos):
    sizes, window, n_classes = history
    rng = np.random.default_rng(seed)
    true, predicted = rng.integers(0, n_classes, size=(2, sum(sizes)))
    counter = _fed(true, predicted, sizes, window, n_classes)
    agos = sorted({ago for ago in agos if ago < sizes[-1]}, reverse=True)
    for ago, blocks in zip(agos, counter.window_blocks(agos), strict=True):
        end = len(true) - ago
        rows = slice(max(0, end - window), end)
        size = -(-len(true[rows]) // 20)
        expected = [
            block_tallies(true[part], predicted[part], np.zeros(len(true[part]), dtype=int), 1, n_classes)[0]
            for part in _blocks_back_from(rows, size)
        ]
        np.testing.assert_array_equal(blocks, expected)


def _blocks_back_from(rows, size):
    ends = range(rows.stop, rows.start, -size)
    return [slice(max(rows.start, end - size), end) for end in ends][::-1]


def test_the_auc_of_windows_is_that_of_all_their_pairs():
    rng = np.random.default_rng(5)
    true = (rng.random(400) < 0.1).astype(int)
    scores = rng.integers(0, 6, size=400) + true * 1.0  # with many ties
    true[100:160] = 0  # a window of one side
    counter = ConfusionCounter(50)
    counter.update(true, true, scores, 2)
    agos = [340, 250, 249, 117, 1, 0]
    for ago, auc in zip(agos, counter.window_aucs(agos, 1), strict=True):
        rows = slice(400 - ago - 50, 400 - ago)
        assert auc == pytest.approx(_auc_of_all_pairs(true[rows], scores[rows]), nan_ok=True, abs=1e-15)
    assert np.isnan(counter.window_aucs([250], 1)[0])


def _auc_of_all_pairs(true, scores):
    pairs = [(p > n) + 0.5 * (p == n) for p in scores[true == 1] for n in scores[true == 0]]
    return np.mean(pairs) if pairs else np.nan


def test_answers_are_counted_alike_whether_somebody_looks_after_every_chunk_or_at_the_end():
    rng = np.random.default_rng(8)
    y = np.concatenate([rng.integers(0, 2, size=700), rng.integers(0, 4, size=1300)])
    said = np.where(rng.random(2000) < 0.7, y, rng.integers(0, 4, size=2000))
    scores = rng.normal(size=(2000, 4))
    scores[np.arange(2000), said] += 3.0
    looked, left = (_tracked(y, said, scores, looks=looks) for looks in (True, False))
    assert [r.row for r in looked.records] == [r.row for r in left.records]
    for one, other in zip(looked.records, left.records, strict=True):
        np.testing.assert_array_equal(one.blocks, other.blocks)
        assert (one.auc, one.pmauc) == pytest.approx((other.auc, other.pmauc), nan_ok=True, abs=0)
    np.testing.assert_array_equal(looked.counter.confusion, left.counter.confusion)
    for label in looked.sample.labels:
        np.testing.assert_array_equal(looked.sample.scores(label), left.sample.scores(label))


def _tracked(y, said, scores, *, looks):
    tracker, table = Tracker(("g_mean", "auc", "pmauc"), 100, 0), LabelTable()
    for begin in range(0, len(y), 40):
        part = slice(begin, begin + 40)
        codes = table.codes(y[part])
        answers = Answers([0, 1, 2, 3], said[part].astype(np.intp), [0, 1, 2, 3], scores[part])
        tracker.update(codes, answers, table, 1)
        for ago in (25, 0):
            tracker.record(begin + 40 - ago, ago, table, 1.0, 1.0)
        if looks:
            assert tracker.counter.n_rows == begin + 40
    return tracker
