"""Invalid labels and JSON values are rejected with an error message."""

from __future__ import annotations

import numpy as np
import pytest

from steelyard import EnclosingClassifier, ProximalSVC
from steelyard.exceptions import DataError, DataTypeError
from steelyard.proximal import ClassStatistics
from steelyard.tables import open_stream
from steelyard.windowing import AdaptiveWindows, ExponentialDecay, SlidingWindow

X = np.random.default_rng(0).normal(size=(4, 2))


@pytest.mark.parametrize("as_array", [list, lambda labels: np.array(labels, dtype=object)])
def test_label_with_trailing_nul_raises(as_array):
    labels = as_array(["a", "a\0", "a", "b"])
    for learn in (
        ProximalSVC().fit,
        EnclosingClassifier().partial_fit,
        AdaptiveWindows(ProximalSVC()).fit,
        ClassStatistics(2).add,
    ):
        with pytest.raises(DataError, match=r"the label 'a\\x00' ends with the character NUL"):
            learn(X, labels)
    assert ProximalSVC().fit(X, ["a\0b", "a", "a", "a"]).classes_.tolist() == ["a", "a\0b"]


@pytest.mark.parametrize("wrapper", [AdaptiveWindows, ExponentialDecay, SlidingWindow])
@pytest.mark.parametrize("labels", [[1.5, 2.0, 1.0, 1.0], [b"a", b"b", b"a", b"a"], [[1], [0, 2], [], [1]]])
def test_wrappers_reject_the_same_labels_as_learners(wrapper, labels):
    with pytest.raises((DataError, DataTypeError)):
        ProximalSVC().fit(X, labels)
    with pytest.raises((DataError, DataTypeError)):
        wrapper(ProximalSVC()).fit(X, labels)


@pytest.mark.parametrize("wrapper", [AdaptiveWindows, ExponentialDecay, SlidingWindow])
def test_wrappers_reject_labels_that_cannot_be_sorted_with_earlier_labels(wrapper):
    model = wrapper(ProximalSVC()).fit(X, [0, 1, 0, 1])
    with pytest.raises(DataTypeError, match="must be of one sortable type"):
        model.partial_fit(X, ["0", "1", "0", "1"])


def test_decay_keeps_weights_when_rows_are_rejected():
    rng = np.random.default_rng(0)
    rows, labels = rng.normal(size=(136, 2)), np.array([0, 1] * 68)
    model = ExponentialDecay(ProximalSVC(), half_life=10).fit(rows, labels)
    before = model.estimator_.class_count_.tolist()
    for bad in (
        (rows[:, :1], labels),
        (rows * np.nan, labels),
        (rows, labels.astype(str)),
        (rows * 1e301, labels),
    ):
        with pytest.raises((DataError, DataTypeError)):
            model.partial_fit(*bad)
    assert model.estimator_.class_count_.tolist() == before


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"a": 1, "a": 2, "y": 0}', "the field 'a' occurs twice"),
        ('{"a": [1, 2], "y": 0}', "the value of 'a' is a list"),
        ('{"a": {"b": 1}, "y": 0}', "the value of 'a' is an object"),
    ],
)
@pytest.mark.parametrize("at_once", [True, False])
def test_json_rows_with_nested_values_are_rejected(tmp_path, line, message, at_once):
    path = tmp_path / "rows.jsonl"
    good = ['{"a": 1, "y": 0}', '{"a": 2, "y": 1}'] * (1 if at_once else 3000)
    path.write_text("\n".join([*good, line]) + "\n")
    with pytest.raises(DataError, match=message):
        for _ in open_stream(path, "y"):
            pass
