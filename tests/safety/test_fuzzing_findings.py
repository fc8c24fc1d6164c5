"""Regression tests for faults that fuzzing found, each reduced to a minimal case."""

from __future__ import annotations

import io
import json
import struct

import numpy as np
import pyarrow as pa
import pytest
from click.testing import CliRunner

from steelyard import KOIL, AlignedSVC, IncrementalSVC, ProximalSVC, RandomFeatures, StreamClassifier
from steelyard._labels import LabelEncoder
from steelyard.cli.app import main
from steelyard.ensemble.experts.incremental import LinearRule
from steelyard.exceptions import DataError, DataTypeError, FileFormatError, ParameterError, SteelyardError
from steelyard.feature_maps import FourierMap
from steelyard.federated import SiteUpdate, site_update
from steelyard.online import OAM
from steelyard.persistence import from_bytes, to_bytes
from steelyard.proximal import Certificate, ClassStatistics, Quantizer
from steelyard.proximal import serialization as messages_of_statistics
from steelyard.proximal.solver import _solve_definite
from steelyard.service import rows as wire
from steelyard.sql import StatisticsCube
from steelyard.tables.frames import seconds_of
from steelyard.windowing import AdaptiveWindows, SlidingWindow
from tests.safety import documents, fuzz_bodies
from tests.safety.subjects import SUBJECTS, X, Y


def test_label_code_out_of_range_in_file_raises():
    state = IncrementalSVC(gamma=0.4).fit(X[:20], Y[:20])._state
    tree = state.to_tree()
    tree["codes"] = np.array([2**31 - 1, *tree["codes"][1:]], dtype=np.int32)
    with pytest.raises(ValueError, match="a row has an unknown label"):
        type(state).from_tree(state.kernel, tree)


@pytest.mark.parametrize("quantum", [0.0, np.nan, np.inf, -1.0, 0.3])
def test_feature_map_step_must_be_a_power_of_two(quantum):
    made = RandomFeatures(4, kind="rbf", random_state=0).fit(X).map_
    assert isinstance(made, FourierMap)
    with pytest.raises(ValueError, match="power of two"):
        FourierMap(made.shift, made.scale, made.weights, made.starts, quantum, made.height)


@pytest.mark.parametrize("data", [b"\x93STEELYARD\xff", b"{", b"[" * 100_000])
def test_load_invalid_certificate_raises_file_format_error(data):
    with pytest.raises(FileFormatError, match="not JSON"):
        Certificate.from_json(data)


def test_text_label_after_number_labels_raises(tmp_path):
    table = LabelEncoder()
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
def test_load_infeasible_svm_solution_raises(class_weight):
    model = IncrementalSVC(gamma=0.4, class_weight=class_weight).fit(X[:40], np.minimum(Y[:40], 1))
    state = model._get_state()
    problem = state["solution"]["problems"][0]
    middle = (problem["lower"] + problem["upper"]) / 2.0
    problem["z"] = np.where(np.arange(40) < 2, middle, problem["z"])
    with pytest.raises(ValueError, match="the solution is not optimal"):
        IncrementalSVC(gamma=0.4, class_weight=class_weight)._set_state(state)


@pytest.mark.parametrize(
    "change", [{"seen": 20}, {"low": 41}, {"low": -1}, {"held": [38, 39, 40]}, {"high": 41}]
)
def test_load_ensemble_file_with_inconsistent_row_numbers_raises(change):
    state = StreamClassifier().fit(X[:40], Y[:40])._get_state()
    part = state if change.keys() <= {"seen", "low"} else state["experts"][-1]
    part.update(change)
    with pytest.raises(ValueError, match=r"not been seen|not in the buffer"):
        StreamClassifier()._set_state(state)


# -- messages, tables and requests -----------------------------------------------------------------------


def test_arrow_stream_with_offsets_outside_its_buffers_raises():
    table = pa.table({"a": pa.array(["x", "yy", "zzz"]), "y": pa.array([0, 1, 0])})
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    ends = struct.pack("<4i", 0, 1, 3, 6)  # offsets of the strings
    data = sink.getvalue()
    assert data.count(ends) == 1
    spoilt = data.replace(ends, struct.pack("<4i", 0, 1, 3, 2**30))
    with pytest.raises(DataError, match="damaged"):
        wire.from_body(spoilt, "arrow", ["a"])
    assert wire.from_body(data, "arrow", ["a"]).n_rows == 3


@pytest.mark.parametrize("kind", ["json", "jsonl"])
def test_request_with_duplicate_field_is_rejected(kind):
    twice = b'{"a": 1, "a": 2, "when": "12:30"}'
    with pytest.raises(DataError, match="'a' occurs twice"):
        wire.from_body(b"[" + twice + b"]" if kind == "json" else twice, kind, [])
    once = b'{"a": 1, "b": 2, "when": "12:30:00"}'
    assert wire.from_body(b"[" + once + b"]" if kind == "json" else once, kind, ["when"]).n_rows == 1


@pytest.mark.parametrize("kind", ["json", "jsonl"])
def test_request_that_is_not_utf8_is_rejected(kind):
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
def test_site_update_with_invalid_content_is_rejected(change):
    data = documents.made()["site_update"].data
    tree, _ = site_update._read(data)
    spoilt = documents.with_header({**tree, **change}, data)
    with pytest.raises(FileFormatError, match="damaged"):
        SiteUpdate.from_bytes(spoilt)


def test_number_of_folds_of_pending_rows_in_file_is_bounded():
    model = ProximalSVC(feature_map=RandomFeatures(6, random_state=0)).fit(X[:40], Y[:40])
    with pytest.raises(ValueError, match="folds"):
        ProximalSVC(feature_map=RandomFeatures(6, random_state=0))._set_state(
            {**model._get_state(), "n_folds": 2**53}
        )


@pytest.mark.parametrize("quantizer", [{"exponents": [1.5]}, {"exponents": [2**40]}, {"exponents": [2000]}])
def test_quantizer_step_outside_float_range_raises(quantizer):
    with pytest.raises(DataError, match="Quantizer"):
        Quantizer(**quantizer)


def test_cube_keeps_label_type_after_rejected_rows():
    frame = documents.frame()
    cube = StatisticsCube(["place"], "y", time="day")
    spoilt = frame.assign(y=frame["y"].map({0: "no", 1: "yes"}), day="NaT")
    with pytest.raises(DataError, match="row 0, column 'day': expected a time; got 'NaT'"):
        cube.add(spoilt)
    assert cube.add(frame).n_rows == len(frame)


def test_timestamp_with_too_many_year_digits_raises():
    for text in ("300000-01-01", "NaT"):
        with pytest.raises(ValueError, match="nvalid"):
            seconds_of(text)


@pytest.mark.parametrize(
    "learner", [KOIL(budget=10**20), OAM(budget=2**31 - 1), AdaptiveWindows(ProximalSVC(), 5)]
)
def test_parameters_beyond_integer_or_float_range_raise(learner):
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
def test_load_online_learner_with_non_numeric_state_raises(name, value):
    model = next(subject for subject in SUBJECTS if subject.name == "AlignedSVC").fitted_copy()
    tree = model._get_state()
    machine = next(machine for machine in tree["machines"] if machine["bumps"])
    (machine if name in machine else machine["bumps"][0])[name] = value
    with pytest.raises((ValueError, TypeError)):
        AlignedSVC(random_state=0)._set_state(tree)


def test_overflowing_sums_raise():
    with pytest.raises(DataError, match="sums of products are not finite"):
        _solve_definite(np.array([[-np.inf, 0.0], [0.0, 1.0]]), np.ones((2, 1)))


def test_arrow_body_with_duplicate_column_names_is_rejected():
    batch = pa.RecordBatch.from_arrays([pa.array([1.0]), pa.array([2.0])], names=["", ""])
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    with pytest.raises(DataError, match="two columns have the name ''"):
        wire.from_body(sink.getvalue(), "arrow", [])


@pytest.mark.parametrize("as_of", [-1, -(2**63) - 1, 10**30])
def test_request_for_version_beyond_64_bits_returns_not_found(as_of):
    served = fuzz_bodies.Served()
    body = json.dumps({"rows": [{"amount": 1.0, "country": "NZ"}], "as_of": as_of}).encode()
    target = "/v1/models/plain/predict"
    status, told, _ = served.ask("POST", target, {"content-type": "application/json"}, body)
    served.close()
    assert status == 404
    assert b"latest version of" in told


@pytest.mark.parametrize(("width", "labels"), [(0, np.zeros((0, 2))), (0, np.zeros(5)), (220, np.zeros(0))])
def test_load_pending_rows_without_one_label_each_raises(width, labels):
    model = next(subject for subject in SUBJECTS if subject.name == "AdaptiveWindows").fitted_copy()
    tree = model._get_state()
    tree["waiting"] = (np.zeros((0, model.n_features_in_ + width)), labels)
    with pytest.raises(ValueError, match=r"rows? of a window"):
        model._set_state(tree)


@pytest.mark.parametrize("max_bytes", ["1e6", 0, -5, 1.5, True])
def test_cube_max_bytes_must_be_an_integer(max_bytes):
    with pytest.raises(ParameterError, match="max_bytes must be None or a whole number of at least 1"):
        StatisticsCube(["shop"], "fraud", max_bytes=max_bytes)


def test_statistics_message_with_partial_folds_raises():
    state = messages_of_statistics.get_state(ProximalSVC().fit(X, Y).statistics_)
    state["classes"][0]["fold"] = 1
    with pytest.raises(ValueError, match="some classes have folds"):
        messages_of_statistics.from_state(state, ClassStatistics)


def test_feature_map_height_and_step_must_be_scalars():
    made = RandomFeatures(4, kind="rbf", random_state=0).fit(X).map_
    assert isinstance(made, FourierMap)
    parts = (made.shift, made.scale, made.weights, made.starts)
    for numbers in ((made.quantum, [made.height]), ([made.quantum], made.height)):
        with pytest.raises(ValueError, match="a list in place of a number"):
            FourierMap(*parts, *numbers)
    with pytest.raises(ValueError, match="one array entry per feature"):
        FourierMap(made.shift[:, None], made.scale[:, None], *parts[2:], made.quantum, made.height)


def test_load_expert_with_invalid_row_list_raises():
    model = next(subject for subject in SUBJECTS if subject.name == "StreamClassifier").fitted_copy()
    expert = next(expert for expert in model._ensemble.experts if len(getattr(expert, "held", ())) > 1)
    state = expert.get_state()
    state["held"] = state["held"][None]
    with pytest.raises(ValueError, match="not in the buffer or not in order"):
        expert.set_state(state, model._ensemble.stream())


@pytest.mark.parametrize("classes", [[0, [1]], [0, 0], [0, "1"]])
def test_load_planes_with_duplicate_classes_raises(classes):
    state = {"classes": classes, "coef": np.ones((1, 3)), "intercept": np.zeros(1)}
    with pytest.raises(ValueError, match="different numbers"):
        LinearRule.from_state(state)


def test_load_checks_parameters_before_state():
    model = next(subject for subject in SUBJECTS if subject.name == "MultiKernelKOIL").fitted_copy()
    model.combine = []
    with pytest.raises(FileFormatError, match="combine must be"):
        from_bytes(to_bytes(model))


def test_load_aligned_svc_with_invalid_classes_raises():
    model = next(subject for subject in SUBJECTS if subject.name == "AlignedSVC").fitted_copy()
    state = model._get_state()
    state["classes"] = [state["classes"]]
    with pytest.raises(ValueError, match="the classes are not a one-dimensional array"):
        model._set_state(state)


@pytest.mark.parametrize("name", ["X", "weights"])
def test_load_ensemble_with_nonfinite_rows_raises(name):
    model = next(subject for subject in SUBJECTS if subject.name == "StreamClassifier").fitted_copy()
    state = model._ensemble.rows.get_state()
    state[name] = np.where(np.arange(state[name].size).reshape(state[name].shape) == 1, np.inf, state[name])
    with pytest.raises(ValueError, match="finite numbers"):
        type(model._ensemble.rows).from_state(state)
