"""Confusion counts of a stream equal the batch functions on the counted rows."""

import json
import math
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.exceptions import UndefinedMetricWarning

from steelyard.exceptions import DataError, FileFormatError, ParameterError
from steelyard.metrics import (
    CumulativeConfusion,
    FadingConfusion,
    WindowConfusion,
    f_beta_score,
    g_mean_score,
    imbalance_ratio,
    imbalance_report,
    relative_sensitivity_score,
    sensitivity_score,
    specificity_score,
    streaming_metric,
)

BATCH = {
    "sensitivity": sensitivity_score,
    "specificity": specificity_score,
    "g_mean": g_mean_score,
    "relative_sensitivity": relative_sensitivity_score,
    "f_beta": f_beta_score,
}
FORMS = {
    "cumulative": CumulativeConfusion,
    "window": lambda **options: WindowConfusion(7, **options),
    "fading": lambda **options: FadingConfusion(0.9, **options),
    "fading fast": lambda **options: FadingConfusion(half_life=0.1, **options),
}
labels = st.sampled_from(["a", "b", "c"])
weights = st.floats(0.01, 100.0)
streams = st.lists(st.tuples(labels, labels, weights), min_size=1, max_size=60)


@pytest.fixture(params=FORMS.values(), ids=FORMS.keys())
def form(request):
    return request.param


def state_bytes(metric):
    """Return the complete state in a form that can be compared exactly."""
    return [
        (key, value.tobytes() if isinstance(value, np.ndarray) else value)
        for key, value in sorted(metric.to_state().items())
    ]


def random_stream(seed, n=300, labels=(0, 1)):
    rng = np.random.default_rng(seed)
    y_true = rng.choice(labels, n, p=np.r_[0.7, np.full(len(labels) - 1, 0.3 / (len(labels) - 1))])
    return y_true, np.where(rng.random(n) < 0.8, y_true, rng.choice(labels, n)), rng.random(n) + 0.1


@pytest.mark.parametrize("measure", BATCH)
def test_cumulative_confusion_equals_batch_score_of_all_rows(measure):
    y_true, y_pred, w = random_stream(0)
    stream = CumulativeConfusion(measure).update(y_true, y_pred, sample_weight=w)
    assert stream.get() == pytest.approx(BATCH[measure](y_true, y_pred, sample_weight=w), rel=1e-13)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("window", [1, 2, 10, 100, 1000])
def test_window_confusion_equals_batch_score_of_last_rows(window, weighted):
    y_true, y_pred, w = random_stream(window)
    if not weighted:
        w = np.ones_like(w)
    w[:50] = 1.0  # rows with other weights enter the window late and leave it again
    w[200:] = 1.0
    stream = WindowConfusion(window, pos_label=1)
    for end in range(1, len(y_true) + 1):
        stream.update(y_true[end - 1], y_pred[end - 1], sample_weight=w[end - 1])
        last = slice(max(0, end - window), end)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UndefinedMetricWarning)
            found = [stream.get(measure) for measure in BATCH]
            expected = [
                score(y_true[last], y_pred[last], sample_weight=w[last], pos_label=1)
                for score in BATCH.values()
            ]
        np.testing.assert_array_equal(found, expected)  # NaN values are compared too


@pytest.mark.parametrize("factor", [0.3, 0.9, 0.999, 1.0])
def test_fading_confusion_equals_batch_score_with_decayed_weights(factor):
    y_true, y_pred, w = random_stream(3, n=1500)
    stream = FadingConfusion(factor).update(y_true, y_pred, sample_weight=w)
    faded = w * factor ** np.arange(len(w))[::-1]
    for measure, score in BATCH.items():
        assert stream.get(measure) == pytest.approx(score(y_true, y_pred, sample_weight=faded), rel=1e-10)
    assert stream.confusion()[1].sum() == pytest.approx(faded.sum(), rel=1e-12)


def test_half_life_halves_the_weight_of_a_row():
    stream = FadingConfusion(half_life=10).update("a", "a").update(["b"] * 10, ["b"] * 10)
    assert stream.confusion()[1][0, 0] == pytest.approx(0.5)


@given(streams, st.lists(st.integers(1, 9), max_size=20), st.sampled_from(list(FORMS)))
@settings(max_examples=150, deadline=None)
def test_counts_do_not_depend_on_batch_boundaries(rows, sizes, name):
    y_true, y_pred, w = (list(column) for column in zip(*rows, strict=True))
    whole, pieces = FORMS[name](), FORMS[name]()
    whole.update(y_true, y_pred, sample_weight=w)
    begin = 0
    for size in [*sizes, len(rows)]:
        chunk = slice(begin, begin + size)
        pieces.update(y_true[chunk], y_pred[chunk], sample_weight=w[chunk])
        begin += size
    for found, expected in zip(pieces.confusion(), whole.confusion(), strict=True):
        np.testing.assert_array_equal(found, expected)


@given(streams, st.integers(0, 60), st.sampled_from(list(FORMS)))
@settings(max_examples=60, deadline=None)
def test_restored_state_continues_identically(rows, cut, name):
    y_true, y_pred, w = (list(column) for column in zip(*rows, strict=True))
    stream = FORMS[name]().update(y_true[:cut], y_pred[:cut], sample_weight=w[:cut])
    again = type(stream).from_state(stream.to_state())
    for each in (stream, again):
        each.update(y_true[cut:], y_pred[cut:], sample_weight=w[cut:])
    assert state_bytes(again) == state_bytes(stream)


def test_state_contains_only_arrays_and_json_values(form):
    state = form(pos_label="b").update(["a", "b"], ["a", "a"]).to_state()
    json.dumps({key: value for key, value in state.items() if not isinstance(value, np.ndarray)})
    assert all(value.dtype != object for value in state.values() if isinstance(value, np.ndarray))


def test_later_updates_do_not_change_a_saved_state(form):
    stream = form().update(["a", "b"], ["a", "a"])
    state = stream.to_state()
    stream.update(["a", "b"], ["b", "b"])
    assert state_bytes(type(stream).from_state(state)) == state_bytes(form().update(["a", "b"], ["a", "a"]))


@pytest.mark.parametrize(
    "damage",
    [
        {"kind": "Other"},
        {"labels": ["a", "a"]},
        {"labels": ["a"]},
        {"labels": ["a", 1]},
        {"parameters": {"window": -1}},
        {"parameters": {"nonsense": 1}},
        {"cells": np.zeros((2, 9), dtype=np.int32)},
        {"cells": np.full((2, 2), 5, dtype=np.int32)},
        {"weights": np.array(["x", "y"])},
    ],
)
def test_from_state_with_damaged_state_raises(damage):
    state = WindowConfusion(5).update(["a", "b"], ["a", "a"]).to_state()
    with pytest.raises(FileFormatError, match="WindowConfusion: "):
        WindowConfusion.from_state(state | damage)


def test_to_state_with_tuple_labels_raises():
    pairs = np.empty(2, dtype=object)
    pairs[:] = [("x", 1), ("y", 2)]
    stream = CumulativeConfusion().update(pairs, pairs)
    assert stream.get() == 1.0
    with pytest.raises(DataError, match="strings or numbers to be saved"):
        stream.to_state()


def test_label_that_appears_late_is_counted(form):
    stream = form().update([1, 1, 2], [1, 2, 2])
    stream.update([0], [0])
    assert stream.confusion()[0] == [0, 1, 2]
    assert stream.recalls()[0] == 1.0


def test_label_without_rows_in_the_window_is_removed():
    stream = WindowConfusion(2).update(["c", "a", "b"], ["c", "a", "b"])
    assert stream.confusion()[0] == ["a", "b"]


def test_row_with_huge_weight_leaves_no_rounding_error_after_leaving_the_window():
    stream = WindowConfusion(2).update([0, 0, 1], [1, 0, 1], sample_weight=[1e30, 0.1, 0.2])
    np.testing.assert_array_equal(stream.confusion()[1], [[0.1, 0], [0, 0.2]])


def test_recalls_equal_imbalance_report():
    y_true, y_pred, _ = random_stream(5, labels=("a", "b", "c"))
    stream = CumulativeConfusion().update(y_true, y_pred)
    report = imbalance_report(y_true, y_pred)
    assert np.mean(list(stream.recalls().values())) == pytest.approx(report.macro_recall)
    for name in ("accuracy", "macro_f1", "macro_precision", "g_mean"):
        assert stream.get(name) == getattr(report, name)
    assert stream.get("imbalance_ratio") == imbalance_ratio(y_true)


@pytest.mark.parametrize("measure", ["g_mean", "sensitivity", "accuracy", "macro_f1", "imbalance_ratio"])
def test_measures_without_rows_are_nan(form, measure):
    stream = form(measure=measure).update([], [])
    with pytest.warns(UndefinedMetricWarning):
        assert math.isnan(stream.get())


def test_g_mean_of_one_class_is_nan(form):
    stream = form().update([0, 0, 0], [0, 0, 0])
    with pytest.warns(UndefinedMetricWarning):
        assert math.isnan(stream.get())
    assert stream.get("specificity") == 1.0


def test_get_with_three_classes_without_pos_label_raises(form):
    with pytest.raises(ParameterError, match="pos_label must say which one is positive"):
        form(measure="sensitivity").update([0, 1, 2], [0, 1, 2]).get()


def test_reset_removes_all_state(form):
    stream = form().update(["a", "b"], ["a", "a"], sample_weight=[2, 3]).reset()
    assert state_bytes(stream) == state_bytes(form())
    stream.update([0, 1], [0, 1])
    assert stream.get() == 1.0


@pytest.mark.parametrize(
    "bad",
    [
        {"y_true": [0, 1], "y_pred": None},
        {"y_true": [0, 1], "y_pred": [0]},
        {"y_true": [0, 9], "y_pred": [0, math.nan]},
        {"y_true": [0, 9], "y_pred": ["x", "y"]},
        {"y_true": [0, 9], "y_pred": [0, 9], "sample_weight": [1, -1]},
        {"y_true": ["x", "y"], "y_pred": ["x", "y"]},
    ],
)
def test_failing_update_leaves_metric_unchanged(form, bad):
    stream = form().update([0, 1, 1], [0, 1, 0])
    before = state_bytes(stream)
    with pytest.raises(DataError):
        stream.update(**bad)
    assert state_bytes(stream) == before


@pytest.mark.parametrize(
    "make",
    [
        lambda: WindowConfusion(0),
        lambda: WindowConfusion(2.5),
        FadingConfusion,
        lambda: FadingConfusion(0.5, half_life=3),
        lambda: FadingConfusion(1.5),
        lambda: FadingConfusion(half_life=-1),
        lambda: CumulativeConfusion("nonsense"),
        lambda: CumulativeConfusion().get("nonsense"),
        lambda: CumulativeConfusion("f_beta", beta=0),
        lambda: streaming_metric("g_mean", window=5, factor=0.5),
        lambda: streaming_metric("roc_auc"),
        lambda: streaming_metric("pmauc", window=5),
    ],
)
def test_invalid_parameters_raise(make):
    with pytest.raises(ParameterError, match=r"; got "):
        make()


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        ({"measure": "g_mean"}, "CumulativeConfusion"),
        ({"measure": "f_beta", "window": 3}, "WindowConfusion"),
        ({"measure": "accuracy", "half_life": 3}, "FadingConfusion"),
        ({"measure": "roc_auc", "window": 3}, "WindowAUC"),
        ({"measure": "pmauc", "window": 3, "labels": [0, 1]}, "WindowPMAUC"),
    ],
)
def test_streaming_metric_returns_class_by_measure(options, kind):
    assert type(streaming_metric(**options)).__name__ == kind
