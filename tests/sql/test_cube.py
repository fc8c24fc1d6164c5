"""Statistics cube: the model of any slice is bitwise equal to a fit on its rows."""

from __future__ import annotations

import io
import json
import threading
from copy import deepcopy

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from steelyard import ProximalSVC, load, save, sql
from steelyard.cli import main
from steelyard.exceptions import DataError, DataTypeError, ParameterError
from steelyard.persistence import from_bytes, to_bytes
from steelyard.report.cube import render_slices
from steelyard.sql import StatisticsCube
from steelyard.tables import TableModel
from tests.safety.threads import switching_often


def shops(n=600, seed=0):
    rng = np.random.default_rng(seed)
    fraud = (rng.random(n) < 0.3).astype(int)
    return pd.DataFrame(
        {
            "country": rng.choice(["DE", "FR", "NZ"], size=n),
            "channel": rng.choice(["web", "shop"], size=n),
            "day": pd.to_datetime("2026-05-01") + pd.to_timedelta(rng.integers(0, 6 * 24, size=n), unit="h"),
            "amount": rng.integers(1, 500, size=n) / 4.0 + 20.0 * fraud,
            "items": rng.integers(1, 9, size=n),
            "card": rng.choice(["gold", "blue"], size=n),
            "fraud": fraud,
        }
    )


def cube(frame, **options):
    return StatisticsCube(["country", "channel"], "fraud", time="day", **options).add(frame)


def fitted(frame, like):
    """Return a model fitted to ``frame``, with the columns and the quantizer of the model ``like``."""
    model = TableModel(ProximalSVC(quantizer=like.estimator.quantizer_), deepcopy(like.encoder), "fraud")
    model.learn(model.open(frame.drop(columns=["country", "channel", "day"]), labelled=True))
    return model


@pytest.mark.parametrize(
    "where",
    [
        {},
        {"country": "DE"},
        {"country": ["DE", "NZ"], "channel": "web"},
        {"since": "2026-05-02", "until": "2026-05-04"},
        {"country": "FR", "since": "2026-05-03"},
    ],
)
def test_model_of_slice_equals_fit_on_its_rows(where):
    frame = shops()
    model = cube(frame).model(**where)
    rows = frame
    for name in ("country", "channel"):
        if name in where:
            values = where[name] if isinstance(where[name], list) else [where[name]]
            rows = rows[rows[name].isin(values)]
    if "since" in where:
        rows = rows[rows["day"] >= where["since"]]
    if "until" in where:
        rows = rows[rows["day"] < where["until"]]
    expected = fitted(rows, model)
    assert model.estimator.statistics_.n_rows == len(rows)
    assert model.estimator.statistics_.digest() == expected.estimator.statistics_.digest()
    np.testing.assert_array_equal(model.estimator.coef_, expected.estimator.coef_)


def test_models_returns_one_model_per_value():
    frame = shops()
    models = cube(frame).models("country")
    assert list(models) == ["DE", "FR", "NZ"]
    for country, model in models.items():
        assert model.estimator.statistics_.n_rows == (frame["country"] == country).sum()
    assert set(cube(frame).models(["country", "channel"])) == set(
        map(tuple, frame[["country", "channel"]].drop_duplicates().to_numpy())
    )


def test_cube_built_by_batches_forget_and_merge_equals_cube_built_at_once():
    frame = shops()
    whole = cube(frame)
    pieces = cube(frame.iloc[:400]).add(frame.iloc[400:])
    more = cube(pd.concat([frame, frame.iloc[:50]])).forget(frame.iloc[:50])
    merged = cube(frame.iloc[:300]).merge(cube(frame.iloc[300:]))
    for other in (pieces, more, merged):
        assert other.n_rows == whole.n_rows
        np.testing.assert_allclose(
            other.model(country="DE").estimator.coef_, whole.model(country="DE").estimator.coef_, rtol=1e-9
        )
    with pytest.raises(DataError, match="forgotten"):
        whole.forget(frame.head(3).assign(amount=1e4))
    assert whole.n_rows == 600


def test_compare_finds_slice_for_which_common_model_is_inaccurate():
    frame = shops(3000)
    turned = frame["country"] == "NZ"
    frame.loc[turned, "amount"] = 200.0 - frame.loc[turned, "amount"]
    standings = {standing.slice[0]: standing for standing in cube(frame).compare("country")}
    assert standings["NZ"].auc < 0.5 < standings["NZ"].own_auc
    assert standings["DE"].auc > 0.5
    assert standings["DE"].own_squared_error <= standings["DE"].squared_error
    assert sum(standings["DE"].shares.values()) == pytest.approx(1.0)


def test_borrow_shrinks_model_of_small_slice_to_common_model():
    frame = shops()
    built = cube(frame)
    alone = built.model(country="DE", channel="web").estimator
    helped = built.model(country="DE", channel="web", borrow=1e6).estimator
    everything = built.model().estimator
    assert np.abs(helped.coef_ - everything.coef_).max() < np.abs(alone.coef_ - everything.coef_).max()


def test_saved_cube_loads_and_accepts_rows(tmp_path):
    frame = shops()
    built = cube(frame.iloc[:300])
    save(built, tmp_path / "cube.steelyard")
    again = load(tmp_path / "cube.steelyard").add(frame.iloc[300:])
    assert again.model(country="NZ").estimator.statistics_.n_rows == (frame["country"] == "NZ").sum()
    file = io.BytesIO()
    save(StatisticsCube(["a"], "y"), file)


def test_cube_with_invalid_arguments_raises():
    built = cube(shops())
    with pytest.raises(ParameterError, match="is not in by="):
        built.model(colour="red")
    with pytest.raises(DataError, match="no rows in this slice"):
        built.model(country="XX")
    with pytest.raises(ParameterError, match="not a boundary of the buckets"):
        built.model(since="2026-05-02T05:00:00")
    with pytest.raises(ParameterError, match="different columns"):
        StatisticsCube(["fraud"], "fraud")
    with pytest.raises(DataError, match="no rows have been added"):
        StatisticsCube(["a"], "y").model()


def test_cube_distinguishes_missing_value_from_text_none(tmp_path):
    frame = shops().drop(columns="day")
    frame["channel"] = frame["channel"].map({"web": None, "shop": "(none)"})
    made = StatisticsCube(["channel"], "fraud").add(frame)
    assert made.cells == [("(none)", 0), (None, 0)]
    assert made.statistics(channel=None).n_rows == frame["channel"].isna().sum()
    assert made.statistics(channel="(none)").n_rows == frame["channel"].notna().sum()
    assert list(made.models("channel")) == ["(none)", None]
    assert {summary.name for summary in made.compare("channel")} == {"(none)", "no value"}
    save(made, tmp_path / "cube")
    assert load(tmp_path / "cube").cells == made.cells
    page = render_slices(made.compare("channel"), ["channel"])
    assert page.count("no value") >= 3  # two maps and a line
    runner = CliRunner()
    words = ["cube", "ask", str(tmp_path / "cube"), "--where", "channel=", "--json"]
    told = json.loads(runner.invoke(main, words).stdout)
    assert told["digest"] == made.model(channel=None).estimator.digest()


def test_cube_read_while_another_thread_adds_is_consistent():
    frame = shops(120)
    made = cube(frame)
    known = {made.model(country="DE").estimator.digest()}
    after = deepcopy(made).add(frame)
    known.add(after.model(country="DE").estimator.digest())
    done = threading.Event()

    def change():
        for _ in range(15):
            made.add(frame)
            made.forget(frame)
        done.set()

    thread = threading.Thread(target=change)
    with switching_often():
        thread.start()
        seen = set()
        while not done.is_set():
            seen.add(made.model(country="DE").estimator.digest())
            assert len(made.cells) == len(after.cells)
        thread.join()
    assert seen <= known


def test_deprecated_names_of_cube_warn():
    with pytest.warns(FutureWarning, match="SliceSummary"):
        assert sql.SliceStanding is sql.SliceSummary
    with pytest.warns(FutureWarning, match="'learner'"):
        model = cube(shops()).model(learner=ProximalSVC(C=3.0))
    assert model.estimator.C == 3.0


def test_labels_of_another_type_raise_also_after_loading():
    cube = StatisticsCube(["shop"], "y").add(pd.DataFrame({"shop": ["A", "B"], "a": [1.0, 2.0], "y": [0, 1]}))
    rows = pd.DataFrame({"shop": ["A", "B"], "a": [1.0, 2.0], "y": ["no", "yes"]})
    for each in (cube, from_bytes(to_bytes(cube))):
        with pytest.raises(DataTypeError, match="labels"):
            each.add(rows)
        assert each.n_rows == 2
