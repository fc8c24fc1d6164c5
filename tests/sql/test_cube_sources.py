"""Sources of cubes (tables, databases, Dask), shrinkage of small slices, and memory limits."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

from steelyard import ProximalSVC, load, save
from steelyard.exceptions import DataError, MemoryLimitError, ParameterError
from steelyard.proximal import ClassStatistics
from steelyard.sql import StatisticsCube
from steelyard.sql.learning import source
from tests.sql.engines import ENGINES, fill, opened
from tests.sql.test_cube import fitted, shops


def without_time(n=900):
    return shops(n).drop(columns="day")


def assert_same(one, other, by="country"):
    assert one.cells == other.cells
    expected_models = other.models(by)
    for key, model in one.models(by).items():
        assert model.feature_names == expected_models[key].feature_names
        assert model.estimator.digest() == expected_models[key].estimator.digest()


@pytest.mark.parametrize("engine", ENGINES)
def test_cube_by_pushdown_equals_streamed_cube(engine, request):
    frame = without_time()
    frame.loc[:30, "channel"] = None
    address = request.getfixturevalue("postgres") if engine == "postgres" else None
    with opened(engine, address) as connection:
        fill(connection, "pay", frame)
        pushed = StatisticsCube(["country", "channel"], "fraud").add(source(connection, "pay"), how="pushed")
        streamed = StatisticsCube(["country", "channel"], "fraud").add(source(connection, "pay"))
        assert_same(pushed, streamed)
        assert ("DE", None, 0) in pushed.cells
        twice = pushed.add(source(connection, "pay"), how="pushed")
        assert_same(twice, streamed.add(source(connection, "pay")))
    model = streamed.model(country="DE")
    rows = pd.concat([frame, frame])
    expected = fitted(rows[rows["country"] == "DE"].assign(day=0), model)
    assert model.estimator.digest() == expected.estimator.digest()


def test_pushdown_with_time_or_folds_raises():
    with opened("duckdb") as connection:
        fill(connection, "pay", shops())
        for options in ({"time": "day"}, {"folds": 5}):
            cube = StatisticsCube(["country"], "fraud", **options)
            with pytest.raises(DataError, match="cannot be computed by push-down"):
                cube.add(source(connection, "pay"), how="pushed")
            assert (
                cube.add(source(connection, "pay"), drop=() if "time" in options else ["day"]).n_rows == 600
            )


def test_cube_of_dask_partitions_equals_cube_of_table():
    dd = pytest.importorskip("dask.dataframe", reason="dask is not installed")
    frame = without_time()
    cube = StatisticsCube(["country", "channel"], "fraud").add(dd.from_pandas(frame, npartitions=3))
    expected = StatisticsCube(["country", "channel"], "fraud").add(frame)
    assert_same(cube, expected)
    assert_same(cube.add(dd.from_pandas(frame, npartitions=2)), expected.add(frame))


def test_borrow_auto_selects_best_shrinkage_by_cross_validation():
    frame = shops(3000, seed=1).drop(columns="day")
    keep = (frame["country"] != "NZ") | (np.arange(3000) % 40 == 0)
    frame = frame[keep].reset_index(drop=True)
    cube = StatisticsCube(["country"], "fraud", folds=5).add(frame)
    alone, helped = cube.model(country="NZ").estimator, cube.model(country="NZ", borrow="auto").estimator
    rng_rows = shops(4000, seed=9)
    test = rng_rows[rng_rows["country"] == "NZ"]
    X = cube.model().rows(test.drop(columns=["country", "day"]), chunk=10_000)
    (chunk,) = list(X)
    signs = np.where(chunk.y == 1, 1.0, -1.0)
    errors = [np.mean((model.decision_function(chunk.X) - signs) ** 2) for model in (alone, helped)]
    assert errors[1] < errors[0]
    with pytest.raises(ParameterError, match="needs folds"):
        StatisticsCube(["country"], "fraud").add(frame).model(country="NZ", borrow="auto")
    with pytest.raises(ParameterError, match="borrow must be"):
        cube.model(country="NZ", borrow="much")


def test_cube_with_folds_keeps_models_and_can_be_saved(tmp_path):
    frame = without_time()
    plain = StatisticsCube(["country"], "fraud").add(frame)
    folded = StatisticsCube(["country"], "fraud", folds=5).add(frame)
    assert_same(plain, folded)
    save(folded, tmp_path / "cube")
    again = load(tmp_path / "cube")
    assert (
        again.model(country="DE", borrow="auto").estimator.digest()
        == folded.model(country="DE", borrow="auto").estimator.digest()
    )
    with pytest.raises(DataError, match="can be merged"):
        plain.merge(folded)


def test_add_beyond_max_bytes_raises_with_size():
    frame = without_time()
    cube = StatisticsCube(["country", "channel"], "fraud", max_bytes=5_000)
    with pytest.raises(
        MemoryLimitError, match=r"12 pairs of cell and class with 4 features would take .* bytes"
    ):
        cube.add(frame)
    assert cube.n_rows == 0


def test_ten_thousand_cells_take_less_than_100_megabytes():
    rng = np.random.default_rng(0)
    n = 4000
    frame = pd.DataFrame(rng.normal(size=(n, 20)), columns=[f"x{k}" for k in range(20)])
    frame["shop"], frame["y"] = [f"s{k % 500}" for k in range(n)], np.arange(n) // 500 % 2
    cube = StatisticsCube(["shop"], "y").add(frame)
    assert len(cube.cells) == 500
    assert cube.nbytes * 20 <= 100e6


def test_add_failing_halfway_keeps_state():
    frame = without_time()
    cube = StatisticsCube(["country"], "fraud").add(frame)
    before = cube.model().estimator.digest()
    bad = frame.copy()
    bad.loc[800, "amount"] = np.inf
    with pytest.raises(DataError, match="infinite"):
        cube.add(bad)
    assert cube.model().estimator.digest() == before


def test_cell_keys_contain_column_values_as_text():
    frame = without_time(300)
    frame["shop"] = np.arange(300) % 3
    cube = StatisticsCube(["shop"], "fraud").add(frame.drop(columns=["country", "channel"]))
    assert [cell[0] for cell in cube.cells] == ["0", "1", "2"]
    assert cube.model(shop=1).estimator.statistics_.n_rows == 100
    assert isinstance(cube.statistics(shop=[0, 2]), ClassStatistics)
    with pytest.raises(ParameterError, match="did you mean 'shop'"):
        cube.model(shopp=1)
    assert json.dumps(cube.cells)
    assert ProximalSVC().merge(cube.statistics()).digest() == cube.model().estimator.digest()
