"""Push-down: sums computed in a database are bitwise equal to those of streamed rows."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard import ProximalSVC, sql
from steelyard.exceptions import DataError
from steelyard.proximal import Quantizer
from steelyard.tables import TableEncoder, TableModel
from tests.sql.engines import ENGINES, fill, opened, payments


@pytest.fixture(params=ENGINES)
def database(request):
    """Yield an empty database of each engine."""
    address = request.getfixturevalue("postgres") if request.param == "postgres" else None
    with opened(request.param, address) as connection:
        connection_engine = request.param
        yield connection, connection_engine


def both(connection, table, learner=None, **options):
    """Return the model fitted by push-down and the model fitted by streaming."""
    options = {"target": "kind", **options}
    return [
        sql.fit(learner or ProximalSVC(), connection, table, how=how, **options)
        for how in ("pushed", "streamed")
    ]


def assert_same(pushed, streamed):
    assert (pushed.history[-1]["how"], streamed.history[-1]["how"]) == ("pushed", "streamed")
    assert pushed.feature_names == streamed.feature_names
    assert pushed.estimator.quantizer_ == streamed.estimator.quantizer_
    assert pushed.estimator.digest() == streamed.estimator.digest()
    assert pushed.estimator.classes_.tolist() == streamed.estimator.classes_.tolist()
    assert type(pushed.estimator.classes_.tolist()[0]) is type(streamed.estimator.classes_.tolist()[0])
    np.testing.assert_array_equal(pushed.estimator.class_count_, streamed.estimator.class_count_)
    np.testing.assert_array_equal(pushed.estimator.coef_, streamed.estimator.coef_)
    np.testing.assert_array_equal(pushed.estimator.intercept_, streamed.estimator.intercept_)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_pushdown_of_all_column_types_equals_streaming(database, n_classes):
    frame = payments(n_classes=n_classes)
    connection = fill(database[0], "pay", frame)
    pushed, streamed = both(connection, "pay")
    assert_same(pushed, streamed)
    in_memory = TableModel(ProximalSVC(), TableEncoder(), "kind")
    in_memory.learn(in_memory.open(frame, labelled=True))
    assert pushed.estimator.digest() == in_memory.estimator.digest()


def test_pushdown_partial_fit_and_forget_equal_streaming(database):
    frame = payments(1500)
    connection = fill(database[0], "pay", frame)
    mark = "%s" if database[1] == "postgres" else "?"
    condition = {"where": f'"n items" < {mark}', "parameters": [5]}
    rest = {"where": f'"n items" >= {mark}', "parameters": [5]}
    models = both(connection, "pay", **condition)
    for model, how in zip(models, ("pushed", "streamed"), strict=True):
        sql.partial_fit(model, connection, "pay", how=how, **rest)
    assert_same(*models)
    for model, how in zip(models, ("pushed", "streamed"), strict=True):
        sql.forget(model, connection, "pay", how=how, **rest)
    assert_same(*models)
    fresh = sql.fit(
        ProximalSVC(quantizer=models[0].estimator.quantizer_), connection, "pay", target="kind", **condition
    )
    assert models[0].estimator.digest() == fresh.estimator.digest()


@pytest.mark.parametrize("whole", [True, False])
def test_pushdown_with_weights_equals_streaming(database, whole):
    frame = payments()
    rng = np.random.default_rng(1)
    frame["w"] = rng.integers(0, 4, size=len(frame)) * 1.0 if whole else rng.random(len(frame)) * 3
    connection = fill(database[0], "pay", frame)
    pushed, streamed = both(connection, "pay", weight="w")
    assert_same(pushed, streamed)
    assert "w" not in pushed.feature_names
    for model, how in ((pushed, "pushed"), (streamed, "streamed")):
        sql.partial_fit(model, connection, "pay", weight="w", how=how)
        sql.forget(model, connection, "pay", weight="w", how=how)
    assert_same(pushed, streamed)


def test_pushdown_row_with_weight_k_equals_k_equal_rows(database):
    frame = payments()
    frame["w"] = np.arange(len(frame)) % 3
    connection = fill(database[0], "pay", frame)
    fill(connection, "often", frame.loc[frame.index.repeat(frame["w"])].drop(columns="w"))
    pushed = sql.fit(ProximalSVC(), connection, "pay", target="kind", weight="w", how="pushed")
    learner = ProximalSVC(quantizer=pushed.estimator.quantizer_)
    often = TableModel(learner, pushed.encoder, "kind")
    sql.partial_fit(often, connection, "often", how="streamed")
    assert pushed.estimator.digest() == often.estimator.digest()


def test_pushdown_with_missing_zero_equals_streaming(database):
    frame = payments()
    frame.loc[::7, "amount"] = np.nan
    frame.loc[::5, "country"] = None
    connection = fill(database[0], "pay", frame)
    assert_same(*both(connection, "pay", missing="zero"))


def test_nan_in_database_is_treated_as_missing_value(database):
    if database[1] == "sqlite":
        pytest.skip("SQLite keeps NaN as NULL")
    connection = fill(database[0], "pay", payments())
    connection.execute("UPDATE pay SET amount = 'NaN' WHERE \"n items\" = 3")
    assert_same(*both(connection, "pay", missing="zero"))
    for how in ("pushed", "streamed"):
        with pytest.raises(DataError, match="missing"):
            sql.fit(ProximalSVC(), connection, "pay", target="kind", how=how)


def test_pushdown_with_given_quantizer_rounds_halves_up(database):
    values = [-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 0.49999999999999994, -0.49999999999999994, 2.0**51 + 0.5]
    frame = pd.DataFrame({"x": values * 40, "kind": ["a", "b", "b"] * 120})
    connection = fill(database[0], "pay", frame)
    assert_same(*both(connection, "pay", ProximalSVC(quantizer=Quantizer([0]))))


def test_pushdown_refines_quantizer_like_streaming(database):
    x = np.arange(900.0) % 7
    x[300::50] += 0.25
    y = np.arange(900.0) % 5
    y[600::30] += 0.1
    frame = pd.DataFrame({"x": x, "y": y, "kind": np.arange(900) % 2})
    connection = fill(database[0], "pay", frame)
    pushed, streamed = both(connection, "pay")
    assert_same(pushed, streamed)
    assert pushed.estimator.quantizer_.exponents[0] == -2
    assert pushed.estimator.quantizer_.rounds.tolist() == [False, True]


def test_pushdown_orders_late_categories_by_first_row(database):
    frame = pd.DataFrame(
        {
            "a": ["x"] * 300 + ["late", "y"] * 150,
            "b": ["p"] * 299 + ["very late"] + ["later", "q"] * 150,
            "kind": np.arange(600) % 2,
        }
    )
    connection = fill(database[0], "pay", frame)
    pushed, streamed = both(connection, "pay")
    assert_same(pushed, streamed)
    assert pushed.feature_names[:4] == ["a=x", "b=p", "b=very late", "a=late"]


def test_pushdown_of_decimal_and_real_columns_equals_streaming(database):
    frame = payments()
    frame["price"] = [Decimal(k % 997) / 100 for k in range(len(frame))]
    frame["single"] = (np.arange(len(frame)) % 89) / np.float64(7)
    frame.loc[0, "single"] = 0.1
    if database[1] == "sqlite":
        frame["price"] = frame["price"].astype(float)
    connection = fill(database[0], "pay", frame, {"price": "DECIMAL(12, 2)", "single": "REAL"})
    assert_same(*both(connection, "pay"))


@pytest.mark.parametrize("values", [[0, 1], [True, False], ["no", "ja"], [-7, 2**50]])
def test_pushdown_labels_equal_streamed_labels(database, values):
    frame = payments()
    frame["kind"] = [values[k] for k in np.arange(len(frame)) % 2]
    connection = fill(database[0], "pay", frame)
    assert_same(*both(connection, "pay"))


@settings(max_examples=8)
@given(st.integers(0, 2**32 - 1), st.integers(-40, 40), st.booleans())
@pytest.mark.parametrize("engine", ["sqlite", "duckdb"])
def test_pushdown_of_any_scale_and_spread_equals_streaming(engine, seed, exponent, heavy):
    rng = np.random.default_rng(seed)
    x = (rng.standard_cauchy(400) if heavy else rng.normal(size=400)) * 2.0**exponent
    frame = pd.DataFrame({"x": x, "z": rng.normal(1e6, 1e-3, size=400), "kind": rng.integers(0, 2, 400)})
    with opened(engine) as connection:
        fill(connection, "pay", frame)
        pushed, streamed = both(connection, "pay")
        assert_same(pushed, streamed)


def test_unsupported_query_is_streamed_in_auto_mode_and_raises_in_pushed_mode(database):
    frame = payments()
    connection = fill(database[0], "pay", frame)
    for learner in (ProximalSVC(C="auto"), ProximalSVC(track_rows=True)):
        model = sql.fit(learner, connection, "pay", target="kind")
        assert model.history[-1]["how"] == "streamed"
        with pytest.raises(DataError, match="push-down is not possible"):
            sql.fit(learner, connection, "pay", target="kind", how="pushed")
    frame.loc[500, "amount"] = 1e60
    fill(connection, "far", frame)
    assert sql.fit(ProximalSVC(), connection, "far", target="kind").history[-1]["how"] == "streamed"
    with pytest.raises(DataError, match=r"outliers beyond 2\*\*53"):
        sql.fit(ProximalSVC(), connection, "far", target="kind", how="pushed")


def test_auto_uses_pushdown_for_few_columns_and_streaming_for_many(database):
    frame = payments(400)
    for k in range(20):
        frame[f"x{k}"] = np.arange(400.0) * k
    connection = fill(database[0], "pay", frame)
    few = sql.fit(ProximalSVC(), connection, "pay", target="kind", features=["n items"])
    many = sql.fit(ProximalSVC(), connection, "pay", target="kind")
    shrink = database[1] == "duckdb"  # DuckDB transfers rows faster than it sums them
    assert (few.history[-1]["how"], many.history[-1]["how"]) == (
        "streamed" if shrink else "pushed",
        "streamed",
    )


def test_pushdown_with_many_columns_uses_several_selects(database):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.integers(0, 9, size=(300, 50)), columns=[f"x{k}" for k in range(50)])
    frame["kind"] = rng.integers(0, 2, size=300)
    connection = fill(database[0], "pay", frame)
    assert len(sql.queries(connection, "pay", target="kind")) == 2
    assert_same(*both(connection, "pay"))


@pytest.mark.parametrize("scale", [1e-300, 1e200])
def test_pushdown_of_very_large_or_small_values_raises_and_auto_mode_streams_them(database, scale):
    frame = payments(400)[["amount", "kind"]].assign(amount=lambda pay: pay["amount"] * scale)
    connection = fill(database[0], "pay", frame)
    auto = sql.fit(ProximalSVC(), connection, "pay", target="kind")
    learned = ProximalSVC().fit(frame[["amount"]].to_numpy(), frame["kind"])
    assert (auto.history[-1]["how"], auto.estimator.digest()) == ("streamed", learned.digest())
    with pytest.raises(DataError, match=r"column 'amount' has steps of 2\*\*"):
        sql.fit(ProximalSVC(), connection, "pay", target="kind", how="pushed")


def test_pushdown_with_long_column_names_equals_streaming(database):
    rng = np.random.default_rng(0)
    names = [f"{'very ' * 11}long{k}" for k in range(3)]
    frame = pd.DataFrame(rng.normal(size=(300, 3)), columns=names).assign(kind=rng.integers(0, 2, size=300))
    assert_same(*both(fill(database[0], "pay", frame), "pay"))
