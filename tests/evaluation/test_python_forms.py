"""Input types of prequential() and representations of its result."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.model_selection import GridSearchCV, cross_val_score

from steelyard import KOIL, ProximalSVC
from steelyard.evaluation import BoundaryDisplay, ForgetDisplay, PrequentialDisplay, prequential
from steelyard.exceptions import DataError, DataTypeError, ParameterError, SteelyardError
from steelyard.metrics import g_mean_score, get_scorer, get_scorer_names, make_scorer
from steelyard.streams import ArrayStream, Gaussians
from steelyard.tables import TableModel, open_stream

matplotlib = pytest.importorskip("matplotlib", reason="plots need matplotlib")
matplotlib.use("Agg")


@pytest.fixture
def rows():
    rng = np.random.default_rng(0)
    y = (rng.random(1200) < 0.2).astype(int)
    return rng.normal(size=(1200, 2)) + 2.0 * y[:, None], y


@pytest.fixture(autouse=True)
def _no_figure_stays_open():
    yield
    import matplotlib.pyplot as plt

    plt.close("all")


def _summary(*arguments, **options):
    line = prequential(ProximalSVC(), *arguments, **options).summary()[0]
    return {name: value for name, value in line.items() if name != "rows_per_second"}


def test_prequential_measures_are_equal_for_arrays_frames_and_files(rows, tmp_path):
    X, y = rows
    frame = pd.DataFrame(X, columns=["a", "b"])
    labelled = frame.assign(y=y)
    labelled.to_csv(tmp_path / "t.csv", index=False)
    expected = _summary(ArrayStream(X, y, chunk=100))
    for found in (
        _summary(X, y),
        _summary(X.tolist(), y.tolist()),
        _summary(frame, y),
        _summary(labelled, target="y"),
        _summary(pl.from_pandas(labelled), target="y"),
        _summary(tmp_path / "t.csv", target="y"),
        _summary(str(tmp_path / "t.csv"), target="y"),
        _summary(list(ArrayStream(X, y, chunk=100))),
    ):
        assert found == pytest.approx(expected)


def test_prequential_accepts_pairs_of_record_and_label(rows):
    X, y = rows
    pairs = [({"a": a, 1: b}, bool(label)) for (a, b), label in zip(X.tolist(), y.tolist(), strict=True)]
    assert _summary(iter(pairs)) == pytest.approx(_summary(X, y))
    kinds = [({"n": i % 7, "kind": "xyz"[i % 3]}, "no" if i % 3 else "yes") for i in range(600)]
    result = prequential(ProximalSVC(), kinds, chunk=50)
    assert result.feature_names == ["n", "kind=x", "kind=y", "kind=z"]
    assert result.summary()[0]["g_mean"] > 0.95


def test_river_dataset_is_accepted():
    river = pytest.importorskip("river.datasets", reason="river is an optional peer and is not installed")
    result = prequential(ProximalSVC(), river.Phishing())
    assert result.n_rows == 1250
    assert result.stream_name == "Phishing"
    assert result.summary()[0]["g_mean"] > 0.8


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda X, y: _summary(X), DataTypeError, "pairs of a mapping and a label"),
        (lambda X, y: _summary(pd.DataFrame(X)), ParameterError, "needs target"),
        (lambda X, y: _summary("rows.csv"), ParameterError, "needs target"),
        (lambda X, y: _summary(X, y, target="y"), ParameterError, "got both"),
        (lambda X, y: _summary(7), DataTypeError, "got int"),
        (lambda X, y: _summary(ArrayStream(X, y), chunk=5), ParameterError, "its own chunk size"),
        (lambda X, y: _summary(pd.DataFrame({"label": y}), y), DataError, "must not have a column 'label'"),
        (lambda X, y: _summary([({}, 1)]), DataError, "no rows"),
    ],
)
def test_prequential_with_invalid_data_raises(rows, call, error, message):
    with pytest.raises(error, match=message):
        call(*rows)


def test_result_has_text_and_html_representation(rows, tmp_path):
    result = prequential({"<b>": ProximalSVC(), "plain": ProximalSVC(class_weight=None)}, *rows)
    text = repr(result)
    assert text.splitlines()[0] == "PrequentialResult: 1,200 rows of arrays, positive class 1"
    assert f"{result.summary()[0]['g_mean']:.3f}" in text
    page = result._repr_html_()
    assert "<td>&lt;b&gt;</td>" in page
    assert "<b>1</b>" in page
    assert result.report(tmp_path / "r.html").read_text(encoding="utf-8").startswith("<!doctype html>")
    assert len(result.to_pandas()) == len(result.table)


def test_leading_measure_of_many_classes_is_mean_recall():
    result = prequential(ProximalSVC(), Gaussians(3000, n_classes=4))
    assert "macro_recall" in repr(result)
    assert "sensitivity" not in repr(result)


def test_prequential_display_plots_the_values_of_the_result(rows):
    result = prequential({"one": ProximalSVC(), "two": ProximalSVC(C=0.01)}, *rows, window=200)
    display = result.plot("sensitivity")
    assert isinstance(display, PrequentialDisplay)
    for line, model in zip(display.lines_, result.models, strict=True):
        expected = [record["sensitivity"] for record in result.records(model)]
        np.testing.assert_array_equal(line.get_ydata(), expected)
        np.testing.assert_array_equal(line.get_xdata(), [record["row"] for record in result.records(model)])
    again = PrequentialDisplay.from_result(result, ax=display.ax_)
    assert again.measure == "g_mean"
    assert again.figure_ is display.figure_
    with pytest.raises(ParameterError, match="got 'luck'"):
        result.plot("luck")


def test_boundary_display_shows_regions_of_predictions(rows):
    X, y = rows
    model = ProximalSVC().fit(X, y)
    display = BoundaryDisplay.from_estimator(model, X, y, resolution=40)
    grid = np.column_stack([display.xx.ravel(), display.yy.ravel()])
    np.testing.assert_array_equal(display.response.ravel(), model.predict(grid))
    with pytest.raises(DataError, match="two features"):
        BoundaryDisplay.from_estimator(model, X[:, :1])


def test_forget_display_does_not_change_the_estimator(rows):
    X, y = rows
    model = ProximalSVC().fit(X, y)
    before = model.coef_.copy()
    chosen = np.flatnonzero(y)[:100]
    display = ForgetDisplay.from_estimator(model, X, y, chosen, resolution=40)
    np.testing.assert_array_equal(model.coef_, before)
    kept = np.delete(np.arange(len(y)), chosen)
    fresh = ProximalSVC().fit(X[kept], y[kept])
    grid = np.column_stack([display.after.xx.ravel(), display.after.yy.ravel()])
    np.testing.assert_array_equal(display.after.response.ravel(), fresh.predict(grid))
    assert (display.after.response != display.before.response).any()
    with pytest.raises(ParameterError, match="cannot forget"):
        ForgetDisplay.from_estimator(KOIL().fit(X, y), X, y, chosen)


@pytest.mark.parametrize("name", get_scorer_names())
def test_all_scorers_work_in_cross_validation(rows, name):
    X, y = rows
    scores = cross_val_score(ProximalSVC(), X, y, scoring=get_scorer(name), cv=3)
    assert np.isfinite(scores).all()
    assert (scores > (-0.5 if name.startswith("neg_") else 0.3 if name == "recall_at_k" else 0.5)).all()


def test_scorer_equals_its_measure_with_options(rows):
    X, y = rows
    model = ProximalSVC().fit(X, y)
    assert get_scorer("g_mean")(model, X, y) == g_mean_score(y, model.predict(X))
    named = [make_scorer("sensitivity", pos_label=label)(model, X, y) for label in (0, 1)]
    assert named[0] != named[1]
    search = GridSearchCV(ProximalSVC(), {"C": [0.01, 1.0]}, scoring=get_scorer("g_mean"), cv=2).fit(X, y)
    assert search.best_score_ > 0.7
    with pytest.raises(ParameterError, match="got 'luck'"):
        get_scorer("luck")


# -- tables -------------------------------------------------------------------------------------------


def _frame(n=400, seed=0):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({"a": rng.normal(size=n), "kind": rng.choice(["x", "y", "z"], size=n)})
    return frame, np.where((frame["a"] > 0.5) | (frame["kind"] == "z"), "bad", "ok")


def test_table_model_encodes_categories_in_fit_and_predict():
    frame, y = _frame()
    model = TableModel(ProximalSVC()).fit(frame, y)
    coded = pd.get_dummies(frame, columns=["kind"], dtype=float)
    coded = coded[["a", *(f"kind_{value}" for value in dict.fromkeys(frame["kind"]))]].to_numpy()
    plain = ProximalSVC().fit(coded, y)
    np.testing.assert_array_equal(model.predict(frame), plain.predict(coded))
    np.testing.assert_allclose(model.decision_function(frame), plain.decision_function(coded), rtol=1e-9)
    np.testing.assert_allclose(model.predict_proba(frame), plain.predict_proba(coded), rtol=1e-9)
    assert model.score(frame, y) > 0.8
    turned = model.predict(frame[["kind", "a"]])
    np.testing.assert_array_equal(turned, model.predict(frame))


def test_table_model_partial_fit_equals_fit():
    frame, y = _frame()
    whole = TableModel(ProximalSVC()).fit(frame, y)
    parts = TableModel(ProximalSVC()).fit(frame[:3], y[:3])
    parts.partial_fit(frame[3:], y[3:])
    np.testing.assert_allclose(parts.decision_function(frame), whole.decision_function(frame), rtol=1e-7)
    assert parts.fit(frame[:100], y[:100]).estimator.class_count_.sum() == 100


def test_failing_partial_fit_leaves_table_model_unchanged():
    frame, y = _frame()
    model = TableModel(ProximalSVC()).fit(frame, y)
    before = model.decision_function(frame)
    bad = pd.DataFrame({"a": [1.0, np.inf], "kind": ["new", "x"]})
    for call in (lambda: model.partial_fit(bad, ["ok", "bad"]), lambda: model.fit(bad, ["ok", "bad"])):
        with pytest.raises(SteelyardError):
            call()
        np.testing.assert_array_equal(model.decision_function(frame), before)
    assert "kind=new" not in model.feature_names


def test_table_model_reads_labels_from_target_column():
    frame, y = _frame()
    model = TableModel(ProximalSVC(), target="what").fit(frame.assign(what=y))
    assert model.classes_.tolist() == ["bad", "ok"]
    stream = open_stream(frame.assign(what=y), "what", chunk=400)
    assert sum(len(chunk) for chunk in stream) == 400
    assert model.feature_names == stream.feature_names
