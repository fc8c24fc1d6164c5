"""AUC and PMAUC of a sliding window equal the batch values of its rows."""

import copy
import math
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.exceptions import UndefinedMetricWarning
from sklearn.metrics import roc_auc_score

from steelyard import _native
from steelyard.exceptions import DataError, FileFormatError, ParameterError
from steelyard.metrics import WindowAUC, WindowPMAUC, pmauc_score

from . import reference

scored_rows = st.lists(st.tuples(st.booleans(), st.integers(-3, 3)), max_size=120)


def quiet_get(metric):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UndefinedMetricWarning)
        return metric.get()


def columns(rows):
    return [label for label, _ in rows], [float(score) for _, score in rows]


def state_bytes(metric):
    return [
        (key, value.tobytes() if isinstance(value, np.ndarray) else value)
        for key, value in sorted(metric.to_state().items())
    ]


@given(scored_rows, st.integers(1, 200))
@settings(max_examples=80, deadline=None)
def test_window_auc_equals_counting_all_pairs_at_every_row(rows, window):
    y_true, scores = columns(rows)
    stream = WindowAUC(window, pos_label=True)
    for end in range(1, len(rows) + 1):
        stream.update(y_true[end - 1], y_score=scores[end - 1])
        last = slice(max(0, end - window), end)
        assert quiet_get(stream) == pytest.approx(reference.auc(y_true[last], scores[last]), nan_ok=True)


@pytest.mark.parametrize("decimals", [0, 1, 12])
@pytest.mark.parametrize("window", [1, 2, 31, 32, 33, 100, 200, 1500])
def test_window_auc_of_drifting_stream_equals_scikit_learn(window, decimals):
    rng = np.random.default_rng(window)
    n = 4000
    y_true = (rng.random(n) < 0.2).astype(int)
    # A drifting level empties one end of the tree while it fills the other.
    level = np.r_[np.linspace(0, 50, n // 2), np.linspace(50, -50, n // 4), np.full(n // 4, 7.0)]
    scores = np.round(rng.normal(size=n) + y_true + level, decimals)
    stream = WindowAUC(window)
    begin = 0
    while begin < n:
        end = begin + int(rng.integers(1, 60))
        stream.update(y_true[begin:end], y_score=scores[begin:end])
        begin = end
        last = slice(max(0, min(end, n) - window), min(end, n))
        if len(np.unique(y_true[last])) == 2:
            assert stream.get() == pytest.approx(roc_auc_score(y_true[last], scores[last]), abs=1e-12)


@given(scored_rows, st.lists(st.integers(1, 30), max_size=20), st.integers(1, 50))
@settings(max_examples=100, deadline=None)
def test_window_auc_does_not_depend_on_batch_boundaries(rows, sizes, window):
    y_true, scores = columns(rows)
    whole = WindowAUC(window).update(y_true, y_score=scores)
    pieces = WindowAUC(window)
    begin = 0
    for size in [*sizes, len(rows)]:
        pieces.update(y_true[begin : begin + size], y_score=scores[begin : begin + size])
        begin += size
    assert sorted(pieces._labels) == sorted(whole._labels)
    np.testing.assert_equal(quiet_get(pieces), quiet_get(whole))


@given(scored_rows, st.integers(0, 120), st.integers(1, 50))
@settings(max_examples=60, deadline=None)
def test_restored_state_continues_identically(rows, cut, window):
    y_true, scores = columns(rows)
    stream = WindowAUC(window).update(y_true[:cut], y_score=scores[:cut])
    again = WindowAUC.from_state(stream.to_state())
    for each in (stream, again):
        each.update(y_true[cut:], y_score=scores[cut:])
    assert state_bytes(again) == state_bytes(stream)
    np.testing.assert_equal(quiet_get(again), quiet_get(stream))


def test_deepcopy_of_window_auc_is_independent_of_original():
    stream = WindowAUC(4).update([0, 1], y_score=[0, 1])
    copied = copy.deepcopy(stream).update([0, 1], y_score=[3, 2])
    assert stream.get() == 1.0
    assert copied.get() == 0.5


def test_auc_of_tied_scores_is_one_half():
    assert WindowAUC(100).update([0, 1] * 40, y_score=np.zeros(80)).get() == 0.5


def test_positive_and_negative_zero_are_tied():
    assert WindowAUC(2).update([0, 1], y_score=[0.0, -0.0]).get() == 0.5


@pytest.mark.parametrize("order", [["no", "yes"], ["yes", "no"]])
def test_default_pos_label_is_the_larger_label_in_any_order_of_appearance(order):
    scores = [1.0 if label == "yes" else 0.0 for label in order]
    assert WindowAUC(5).update(order, y_score=scores).get() == 1.0


def test_pos_label_is_compared_with_all_other_labels():
    stream = WindowAUC(5, pos_label="b").update(["a", "b", "c", "b"], y_score=[0, 3, 2, 1])
    assert stream.get() == 0.75


@pytest.mark.parametrize("y_true", [[], [1], [0, 0, 0]])
def test_auc_of_fewer_than_two_classes_is_nan(y_true):
    stream = WindowAUC(3).update(y_true, y_score=np.zeros(len(y_true)))
    with pytest.warns(UndefinedMetricWarning, match="fewer than two classes"):
        assert math.isnan(stream.get())


def test_auc_is_nan_after_a_class_leaves_the_window():
    stream = WindowAUC(2).update([1, 0, 0], y_score=[1, 0, 0])
    with pytest.warns(UndefinedMetricWarning):
        assert math.isnan(stream.get())


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"y_true": [0, 1], "y_score": [0.5, math.nan]}, r"finite number; got \[nan\] in row 1"),
        ({"y_true": [0, 1], "y_score": [0.5, math.inf]}, "finite number"),
        ({"y_true": [0, 1]}, "y_score is required"),
        ({"y_true": [0, 1], "y_score": [0.5]}, r"must have shape \(2,\); got \(1,\)"),
        ({"y_true": [0, 1], "y_score": ["x", "y"]}, "must contain numbers"),
        ({"y_true": [0, 2], "y_score": [0.5, 0.5]}, "two labels, 0 and 1; got 2 as well"),
        ({"y_true": [0, None], "y_score": [0.5, 0.5]}, "needs a label"),
        ({"y_true": [0, 1], "y_score": [0.5, 0.5], "sample_weight": [1, 2]}, "has weight 1"),
    ],
)
def test_failing_update_leaves_metric_unchanged(bad, message):
    stream = WindowAUC(4).update([0, 1, 0], y_score=[0.1, 0.2, 0.3])
    before = state_bytes(stream)
    with pytest.raises(DataError, match=message):
        stream.update(**bad)
    assert state_bytes(stream) == before


def test_labels_of_failed_first_update_are_discarded():
    stream = WindowAUC(4)
    with pytest.raises(DataError):
        stream.update(["a", 1], y_score=[0, 1])
    assert stream.update([0, 1], y_score=[0, 1]).get() == 1.0


def test_reset_removes_all_state():
    stream = WindowAUC(4).update(["a", "b"], y_score=[0, 1]).reset()
    assert state_bytes(stream) == state_bytes(WindowAUC(4))
    assert stream.update([0, 1], y_score=[1, 0]).get() == 0.0


@pytest.mark.parametrize(
    "damage",
    [
        {"labels": [0]},
        {"labels": [0, 1, 2]},
        {"codes": np.array([0, 7], dtype=np.int32)},
        {"codes": np.array([0], dtype=np.int32)},
        {"scores": np.array([[0.0], [math.nan]])},
        {"parameters": {"window": 0}},
    ],
)
def test_from_state_with_damaged_state_raises(damage):
    state = WindowAUC(4).update([0, 1], y_score=[0, 1]).to_state()
    with pytest.raises(FileFormatError, match="the state is damaged"):
        WindowAUC.from_state(state | damage)


@pytest.mark.parametrize("window", [0, -1, 1.5, True, "10", 2**40])
def test_invalid_window_raises(window):
    with pytest.raises(ParameterError, match="window must be a whole number"):
        WindowAUC(window)


def test_huge_window_allocates_memory_on_demand():
    assert WindowAUC(2**31 - 1).update([0, 1], y_score=[0, 1]).get() == 1.0


@pytest.mark.parametrize("n_classes", [2, 3, 5])
@pytest.mark.parametrize("window", [1, 7, 60])
def test_window_pmauc_equals_batch_score_of_the_window(n_classes, window):
    rng = np.random.default_rng(window)
    labels = list("edcba"[:n_classes])
    y_true = rng.choice(labels, 200)
    scores = rng.integers(0, 6, (200, n_classes)).astype(float)
    stream = WindowPMAUC(window, labels=labels)
    for end in range(1, 201):
        stream.update(y_true[end - 1], y_score=scores[end - 1])
        if end % 9 == 0:
            last = slice(max(0, end - window), end)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UndefinedMetricWarning)
                expected = pmauc_score(y_true[last], scores[last], labels=labels)
            assert quiet_get(stream) == pytest.approx(expected, nan_ok=True)


def test_window_pmauc_continues_from_its_state():
    rng = np.random.default_rng(0)
    y_true, scores = rng.integers(0, 3, 90), rng.random((90, 3))
    stream = WindowPMAUC(40, labels=[0, 1, 2]).update(y_true[:60], y_score=scores[:60])
    again = WindowPMAUC.from_state(stream.to_state())
    for each in (stream, again):
        each.update(y_true[60:], y_score=scores[60:])
    assert again.get() == stream.get() == pytest.approx(pmauc_score(y_true[50:], scores[50:]))


def test_window_pmauc_with_unknown_label_raises():
    stream = WindowPMAUC(5, labels=["a", "b"])
    with pytest.raises(DataError, match="must be one of"):
        stream.update(["a", "c"], y_score=np.zeros((2, 2)))
    assert len(stream.to_state()["codes"]) == 0


@pytest.mark.parametrize("labels", [[], ["a"], ["a", "a"]])
def test_window_pmauc_without_two_distinct_labels_raises(labels):
    with pytest.raises(ParameterError, match="distinct labels"):
        WindowPMAUC(5, labels=labels)


@pytest.mark.parametrize(
    ("codes", "scores"),
    [([0, 2], [[0.0], [0.0]]), ([-1], [[0.0]]), ([0], [[math.nan]]), ([0], [[0.0, 1.0]]), ([0, 1], [[0.0]])],
)
def test_native_window_with_invalid_rows_raises(codes, scores):
    with pytest.raises(ValueError, match=r"AucWindow\.push: "):
        _native.AucWindow(3).push(np.array(codes, dtype=np.int32), np.array(scores))
