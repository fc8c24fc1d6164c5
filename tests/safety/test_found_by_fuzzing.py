"""Faults that random trials found, each as the plain case that it came down to."""

from __future__ import annotations

import io
import json
import struct

import numpy as np
import pyarrow as pa
import pytest
from click.testing import CliRunner

from steelyard import KOIL, AlignedSVC, IncrementalSVC, ProximalSVC, RandomFeatures, StreamClassifier
from steelyard.cli.app import main
from steelyard.ensemble.experts.linear import LinearRule
from steelyard.exceptions import DataError, DataTypeError, FileFormatError, ParameterError, SteelyardError
from steelyard.feature_maps import FourierMap
from steelyard.federated import SiteUpdate, messages
from steelyard.online import OAM
from steelyard.persistence import from_bytes, to_bytes
from steelyard.proximal import Certificate, ClassStatistics, Quantizer
from steelyard.proximal.rule.solver import _solve_definite
from steelyard.proximal.state import messages as messages_of_statistics
from steelyard.service import rows as wire
from steelyard.sql import StatisticsCube
from steelyard.streams.labels import LabelTable
from steelyard.tables.table_stream import seconds_of
from steelyard.windowing import AdaptiveWindows, SlidingWindow
from tests.safety import documents, fuzz_bodies
from tests.safety.subjects import SUBJECTS, X, Y


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
    with pytest.raises(ValueError, match=r"not been seen|not in the buffer"):
        StreamClassifier()._set_state(state)


# -- messages, tables and requests -----------------------------------------------------------------------


def test_an_arrow_stream_that_leads_out_of_its_buffers_is_refused_before_it_is_followed():
    table = pa.table({"a": pa.array(["x", "yy", "zzz"]), "y": pa.array([0, 1, 0])})
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    ends = struct.pack("<4i", 0, 1, 3, 6)  # where the texts begin and end
    data = sink.getvalue()
    assert data.count(ends) == 1
    spoilt = data.replace(ends, struct.pack("<4i", 0, 1, 3, 2**30))
    with pytest.raises(DataError, match="damaged"):
        wire.from_body(spoilt, "arrow", ["a"])
    assert wire.from_body(data, "arrow", ["a"]).n_rows == 3


@pytest.mark.parametrize("kind", ["json", "jsonl"])
def test_a_request_in_which_a_field_stands_twice_is_refused(kind):
    twice = b'{"a": 1, "a": 2, "when": "12:30"}'
    with pytest.raises(DataError, match="'a' stands twice"):
        wire.from_body(b"[" + twice + b"]" if kind == "json" else twice, kind, [])
    once = b'{"a": 1, "b": 2, "when": "12:30:00"}'
    assert wire.from_body(b"[" + once + b"]" if kind == "json" else once, kind, ["when"]).n_rows == 1


@pytest.mark.parametrize("kind", ["json", "jsonl"])
def test_a_request_that_is_no_text_gets_a_sentence(kind):
    with pytest.raises(DataError, match="not JSON"):
        wire.from_body(b'{"\xe9": 1}', kind, [])


@pytest.mark.parametrize(
    "change",
    [
        {"age": [float("inf"), 1]},
        {"age": [-1, 1]},
        {"numeric": ["a", "a"]},
        {"categories": [["no such column", "red"], ["b", "blue"], ["b", "grün"]]},
        {"labels": ["0", 1]},
        {"site": "\ud800"},
    ],
)
def test_a_bulletin_of_what_cannot_be_is_refused(change):
    data = documents.made()["bulletin"].data
    tree, _ = messages.from_bytes(data)
    spoilt = documents.with_header({**tree, **change}, data)
    with pytest.raises(FileFormatError, match="damaged"):
        SiteUpdate.from_bytes(spoilt)


def test_the_folds_of_rows_that_wait_for_a_map_are_bounded():
    model = ProximalSVC(feature_map=RandomFeatures(6, random_state=0)).fit(X[:40], Y[:40])
    with pytest.raises(ValueError, match="folds"):
        ProximalSVC(feature_map=RandomFeatures(6, random_state=0))._set_state(
            {**model._get_state(), "n_folds": 2**53}
        )


@pytest.mark.parametrize("quantizer", [{"exponents": [1.5]}, {"exponents": [2**40]}, {"exponents": [2000]}])
def test_a_grid_has_steps_that_a_double_can_have(quantizer):
    with pytest.raises(DataError, match="Quantizer"):
        Quantizer(**quantizer)


def test_a_cube_that_refuses_rows_has_not_seen_their_labels():
    frame = documents.frame()
    cube = StatisticsCube(["place"], "y", time="day")
    spoilt = frame.assign(y=frame["y"].map({0: "no", 1: "yes"}), day="NaT")
    with pytest.raises(DataError, match="expected a time in row 1"):
        cube.add(spoilt)
    assert cube.add(frame).n_rows == len(frame)


def test_a_year_of_many_digits_is_no_time():
    for text in ("300000-01-01", "NaT"):
        with pytest.raises(ValueError, match="nvalid"):
            seconds_of(text)


@pytest.mark.parametrize(
    "learner", [KOIL(budget=10**20), OAM(budget=2**31 - 1), AdaptiveWindows(ProximalSVC(), 5)]
)
def test_parameters_that_no_machine_can_have_get_a_sentence(learner):
    with pytest.raises(SteelyardError):
        learner.fit(X, Y)
    with pytest.raises(ParameterError, match="size must be"):
        SlidingWindow(ProximalSVC(), size="9" * 30 + "d").fit(X, Y)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("intercept", "0.5"),
        ("sign", "x"),
        ("shift", None),
        ("floor", "y"),
        ("scale", True),
        ("beta", "1"),
        ("lengths", np.zeros(0)),
        ("widths", np.array(["a"])),
        ("combine", "other"),
    ],
)
def test_a_machine_of_a_file_has_numbers_where_numbers_belong(name, value):
    model = next(subject for subject in SUBJECTS if subject.name == "AlignedSVC").taught_copy()
    tree = model._get_state()
    machine = next(machine for machine in tree["machines"] if machine["bumps"])
    (machine if name in machine else machine["bumps"][0])[name] = value
    with pytest.raises((ValueError, TypeError)):
        AlignedSVC(random_state=0)._set_state(tree)


def test_sums_beyond_all_numbers_get_a_sentence():
    with pytest.raises(DataError, match="beyond all numbers"):
        _solve_definite(np.array([[-np.inf, 0.0], [0.0, 1.0]]), np.ones((2, 1)))


def test_columns_of_an_arrow_body_have_different_names():
    batch = pa.RecordBatch.from_arrays([pa.array([1.0]), pa.array([2.0])], names=["", ""])
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    with pytest.raises(DataError, match="two columns are called ''"):
        wire.from_body(sink.getvalue(), "arrow", [])


@pytest.mark.parametrize("as_of", [-1, -(2**63) - 1, 10**30])
def test_a_version_that_no_model_can_have_is_not_looked_for(as_of):
    served = fuzz_bodies.Served()
    body = json.dumps({"rows": [{"amount": 1.0, "country": "NZ"}], "as_of": as_of}).encode()
    target = "/v1/models/plain/predict"
    status, told, _ = served.ask("POST", target, {"content-type": "application/json"}, body)
    served.close()
    assert status == 404
    assert b"has come to version" in told


@pytest.mark.parametrize(("width", "labels"), [(0, np.zeros((0, 2))), (0, np.zeros(5)), (220, np.zeros(0))])
def test_every_row_that_waits_in_a_file_has_one_label(width, labels):
    model = next(subject for subject in SUBJECTS if subject.name == "AdaptiveWindows").taught_copy()
    tree = model._get_state()
    tree["waiting"] = (np.zeros((0, model.n_features_in_ + width)), labels)
    with pytest.raises(ValueError, match="a label each"):
        model._set_state(tree)


@pytest.mark.parametrize("max_bytes", ["1e6", 0, -5, 1.5, True])
def test_the_room_of_a_cube_is_a_number_of_bytes(max_bytes):
    with pytest.raises(ParameterError, match="max_bytes must be None or a number of bytes"):
        StatisticsCube(["shop"], "fraud", max_bytes=max_bytes)


def test_all_classes_of_a_message_are_in_folds_or_none():
    state = messages_of_statistics.get_state(ProximalSVC().fit(X, Y).statistics_)
    state["classes"][0]["fold"] = 1
    with pytest.raises(ValueError, match="some classes are in folds"):
        messages_of_statistics.from_state(state, ClassStatistics)


def test_a_map_has_one_height_and_one_least_step():
    made = RandomFeatures(4, kind="rbf", random_state=0).fit(X)._map
    assert isinstance(made, FourierMap)
    parts = (made.shift, made.scale, made.weights, made.starts)
    for numbers in ((made.quantum, [made.height]), ([made.quantum], made.height)):
        with pytest.raises(ValueError, match="a list where one number must be"):
            FourierMap(*parts, *numbers)
    with pytest.raises(ValueError, match="must be lists"):
        FourierMap(made.shift[:, None], made.scale[:, None], *parts[2:], made.quantum, made.height)


def test_the_rows_that_an_expert_remembers_are_a_list():
    model = next(subject for subject in SUBJECTS if subject.name == "StreamClassifier").taught_copy()
    expert = next(expert for expert in model._experts if len(getattr(expert, "held", ())) > 1)
    state = expert.get_state()
    state["held"] = state["held"][None]
    with pytest.raises(ValueError, match="not in the buffer or not in order"):
        expert.set_state(state, model._stream())


@pytest.mark.parametrize("classes", [[0, [1]], [0, 0], [0, "1"]])
def test_the_classes_of_planes_are_different_numbers(classes):
    state = {"classes": classes, "coef": np.ones((1, 3)), "intercept": np.zeros(1)}
    with pytest.raises(ValueError, match="different numbers"):
        LinearRule.from_state(state)


def test_parameters_of_a_file_are_checked_before_what_was_learned_is_used():
    model = next(subject for subject in SUBJECTS if subject.name == "MultiKernelKOIL").taught_copy()
    model.combine = []
    with pytest.raises(FileFormatError, match="combine must be"):
        from_bytes(to_bytes(model))


def test_the_classes_of_an_aligned_svm_are_a_list_of_labels():
    model = next(subject for subject in SUBJECTS if subject.name == "AlignedSVC").taught_copy()
    state = model._get_state()
    state["classes"] = [state["classes"]]
    with pytest.raises(ValueError, match="a list of labels"):
        model._set_state(state)


@pytest.mark.parametrize("name", ["X", "weights"])
def test_rows_that_a_committee_keeps_are_finite(name):
    model = next(subject for subject in SUBJECTS if subject.name == "StreamClassifier").taught_copy()
    state = model._rows.get_state()
    state[name] = np.where(np.arange(state[name].size).reshape(state[name].shape) == 1, np.nan, state[name])
    with pytest.raises(ValueError, match="finite numbers"):
        type(model._rows).from_state(state)
