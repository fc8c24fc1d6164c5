"""One counter: windows, totals and blocks of any history equal what is counted row by row."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.evaluation.counting import AnswerCounter, block_tallies
from steelyard.evaluation.measures import MEASURES, measures, widened
from tests.evaluation.reference import measured


def _fed(true, predicted, sizes, window, n_classes):
    counter = AnswerCounter(window)
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
    blocks = counter.window_blocks()
    last_true, last_predicted = true[-window:], predicted[-window:]
    whole = block_tallies(last_true, last_predicted, np.zeros(len(last_true), dtype=int), 1, n_classes)[0]
    np.testing.assert_array_equal(blocks.sum(axis=0), whole)
    assert len(blocks) <= 20
    np.testing.assert_array_equal(counter.window_scores()[1], np.arange(len(true))[-window:])


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
