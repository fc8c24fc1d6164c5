"""Faults that random trials found, each as the plain case that it came down to."""

from __future__ import annotations

import numpy as np
import pytest
from click.testing import CliRunner

from steelyard import IncrementalSVC, RandomFeatures, StreamClassifier
from steelyard.cli.app import main
from steelyard.exceptions import DataTypeError, FileFormatError
from steelyard.feature_maps import FourierMap
from steelyard.proximal import Certificate
from steelyard.streams.labels import LabelTable
from tests.safety.subjects import X, Y


def test_a_row_with_a_label_that_is_not_there_is_refused_before_labels_are_counted():
    state = IncrementalSVC(gamma=0.4).fit(X[:20], Y[:20])._state
    tree = state.to_tree()
    tree["codes"] = np.array([2**31 - 1, *tree["codes"][1:]], dtype=np.int32)
    with pytest.raises(ValueError, match="a label that is not there"):
        type(state).from_tree(state.kernel, tree)


@pytest.mark.parametrize("quantum", [0.0, np.nan, np.inf, -1.0, 0.3])
def test_a_map_has_a_power_of_two_as_its_least_step(quantum):
    made = RandomFeatures(4, kind="rbf", random_state=0).fit(X)._map
    assert isinstance(made, FourierMap)
    with pytest.raises(ValueError, match="power of two"):
        FourierMap(made.shift, made.scale, made.weights, made.starts, quantum, made.height)


@pytest.mark.parametrize("data", [b"\x93STEELYARD\xff", b"{", b"[" * 100_000])
def test_a_file_that_is_no_certificate_gets_a_sentence(data):
    with pytest.raises(FileFormatError, match="not JSON"):
        Certificate.from_json(data)


def test_text_among_labels_that_are_numbers_gets_a_sentence(tmp_path):
    table = LabelTable()
    table.codes(np.array([0, 1]))
    with pytest.raises(DataTypeError, match="all numbers or all strings"):
        table.codes(np.array(["0", "x"]))
    assert table.labels == [0, 1]

    numbers, mixed, model = (str(tmp_path / name) for name in ("a.csv", "b.csv", "model"))
    for path, label in ((numbers, "1"), (mixed, "x")):
        rows = "".join(f"{i * 0.3},{label if i == 5 else i % 2}\n" for i in range(20))
        (tmp_path / path).write_text("a,y\n" + rows, encoding="utf-8")
    runner = CliRunner()
    fitted = runner.invoke(main, ["fit", numbers, "--target", "y", "--model", "proximal", "-o", model])
    assert fitted.exit_code == 0
    result = runner.invoke(main, ["evaluate", model, mixed])
    assert result.exit_code == 1
    assert "all numbers or all strings" in result.output


@pytest.mark.parametrize("class_weight", [None, "balanced"])
def test_a_solution_from_a_file_that_is_none_is_refused(class_weight):
    model = IncrementalSVC(gamma=0.4, class_weight=class_weight).fit(X[:40], np.minimum(Y[:40], 1))
    state = model._get_state()
    problem = state["solution"]["problems"][0]
    middle = (problem["lower"] + problem["upper"]) / 2.0
    problem["z"] = np.where(np.arange(40) < 2, middle, problem["z"])
    with pytest.raises(ValueError, match="its conditions hold only to"):
        IncrementalSVC(gamma=0.4, class_weight=class_weight)._set_state(state)


@pytest.mark.parametrize(
    "change", [{"seen": 20}, {"low": 41}, {"low": -1}, {"held": [38, 39, 40]}, {"high": 41}]
)
def test_a_committee_from_a_file_remembers_rows_that_it_has_seen(change):
    state = StreamClassifier().fit(X[:40], Y[:40])._get_state()
    part = state if change.keys() <= {"seen", "low"} else state["experts"][-1]
    part.update(change)
    with pytest.raises(ValueError, match=r"not been seen|cannot be"):
        StreamClassifier()._set_state(state)
