"""Spark: the result equals a local fit, with a classic session and with Spark Connect."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from steelyard import ProximalSVC, RandomFeatures
from steelyard.distributed import spark as engine
from steelyard.exceptions import DataError, DataTypeError, NotFittedError, ParameterError
from tests.distributed.data import CUTS, SynchronousClient, assert_same_model, one_machine, rows_and_cuts
from tests.distributed.spark_sessions import HAS_CONNECT, MARKS, pa, pd
from tests.proximal.data import imbalanced

NAMES = ["age", "amount", "hour", "place", "days"]
WITHOUT = "pyspark before version 4 does not contain the Spark Connect server"
SESSIONS = ["classic", pytest.param("connect", marks=pytest.mark.skipif(not HAS_CONNECT, reason=WITHOUT))]
pytestmark = MARKS


@pytest.fixture
def spark(sessions):
    return sessions["connect" if HAS_CONNECT else "classic"]


def frame_of(X, y, **more):
    return pd.DataFrame(X, columns=[*NAMES, "f"][: X.shape[1]]).assign(y=y, **more)


def spread(spark, frame, cuts):
    """Return a DataFrame with partitions that end at the given rows, created on the executors."""
    table = pa.Table.from_pandas(frame, preserve_index=False)
    borders = [0, *cuts, len(frame)]
    parts = [table.slice(begin, end - begin) for begin, end in itertools.pairwise(borders)]

    def one_part(batches):
        for batch in batches:
            for number in batch.column("id").to_pylist():
                yield from parts[number].to_batches(max_chunksize=100)

    schema = spark.createDataFrame(frame).schema
    return spark.range(0, len(parts), 1, len(parts)).mapInArrow(one_part, schema)


# -- equality with a local fit --------------------------------------------------------------------------


@pytest.mark.parametrize("session", SESSIONS)
def test_fit_of_spark_dataframe_equals_local_fit_and_keeps_feature_names(rng, sessions, session):
    X, y = imbalanced(rng)
    frame = frame_of(X, np.where(y, "fraud", "ok"))
    df = sessions[session].createDataFrame(frame).repartition(3)
    model = engine.fit(ProximalSVC(C=3.0), df, features=NAMES)
    assert_same_model(model, one_machine(frame[NAMES], frame["y"], C=3.0))
    assert list(model.feature_names_in_) == NAMES


@pytest.mark.parametrize("cut", [cut for cut in CUTS if cut != "one"])
def test_fit_with_any_partitioning_equals_local_fit(rng, spark, cut):
    X, y, cuts = rows_and_cuts(rng, cut)
    df = spread(spark, frame_of(X, y), cuts)
    model = engine.fit(ProximalSVC(), df, features=[*NAMES, "f"])
    assert_same_model(model, one_machine(X, y))


def test_fit_with_many_partitions_sums_on_executors(rng, spark, monkeypatch):
    monkeypatch.setattr(engine, "_PARTITIONS_PER_BUCKET", 2)
    X, y = imbalanced(rng, 200)
    df = spread(spark, frame_of(X, y), [10, 80, 130, 190])
    models = [ProximalSVC(C=0.1), ProximalSVC(C="auto")]
    for model in engine.fit(models, df, features=NAMES):
        assert_same_model(model, one_machine(X, y, **model.get_params()))


def test_fit_with_weights_equals_local_fit(rng, spark):
    X, y = imbalanced(rng)
    weight = rng.integers(0, 4, len(y)).astype(float)
    df = spark.createDataFrame(frame_of(X, y, often=weight))
    model = engine.fit(ProximalSVC(), df, features=NAMES, weight="often")
    assert_same_model(model, ProximalSVC().fit(X, y, weight))


@pytest.mark.parametrize("kind", ["dense", "sparse", "mixed", "array"])
def test_fit_of_vector_column_equals_local_fit(rng, spark, kind):
    from pyspark.ml.linalg import Vectors

    X, y = imbalanced(rng, 120, 8)
    X[rng.random(X.shape) < 0.7] = 0.0
    make = {
        "dense": lambda i, row: Vectors.dense(row),
        "sparse": lambda i, row: Vectors.sparse(8, {int(j): float(row[j]) for j in np.flatnonzero(row)}),
        "array": lambda i, row: row.tolist(),
    }
    make["mixed"] = lambda i, row: make["dense" if i % 3 else "sparse"](i, row)
    rows = [(make[kind](i, row), int(label)) for i, (row, label) in enumerate(zip(X, y, strict=True))]
    df = spark.createDataFrame(rows, ["v", "y"]).repartition(2)
    model = engine.fit(ProximalSVC(), df, features="v")
    assert_same_model(model, one_machine(X, y))
    answers = engine.predict(model, df, features="v").select("prediction", "y").collect()
    assert len(answers) == 120


# -- histories ------------------------------------------------------------------------------------------


def test_partial_fit_and_forget_equal_fit_on_remaining_rows(rng, spark):
    X, y = imbalanced(rng, 900, 5, (0.6, 0.3, 0.1))
    df = spark.createDataFrame(frame_of(X, y, number=np.arange(900)))
    model = engine.fit(ProximalSVC(), df.where("number < 500"), features=NAMES)
    engine.partial_fit(model, df.where("number >= 500"), features=NAMES)
    engine.forget(model, df.where("number >= 200 and number < 400"), features=NAMES)
    kept = np.r_[0:200, 400:900]
    assert_same_model(model, one_machine(X[kept], y[kept]), 1e-9)


# -- adding and forgetting rows in one update -----------------------------------------------------------


@pytest.mark.parametrize("session", SESSIONS)
@pytest.mark.parametrize("C", [1.0, "auto"])
def test_update_equals_local_update(rng, sessions, session, C):
    X, y = imbalanced(rng, 440)
    frame = frame_of(X, y)
    new, gone = frame[300:], frame[:100]
    model = one_machine(frame[:300][NAMES], y[:300], C=C)
    engine.update(
        model,
        add=spread(sessions[session], new, [30, 60, 90]),  # more partitions to add than to forget
        forget=spread(sessions[session], gone, [50]),
        features=NAMES,
    )
    fresh = ProximalSVC(C=C, quantizer=model.quantizer_).fit(frame[100:][NAMES], y[100:])
    assert model.digest() == fresh.digest()
    assert_same_model(model, fresh)


def test_update_sends_one_message_per_partition(rng, spark, monkeypatch):
    X, y = imbalanced(rng, 300)
    frame = frame_of(X, y)
    model = one_machine(frame[:200][NAMES], y[:200])
    sent = []
    whole = engine.reduce

    def counted(function, sides):
        messages = whole(function, sides)
        sent.extend(row["position"] for row in messages.collect())
        return messages

    monkeypatch.setattr(engine, "reduce", counted)
    engine.update(
        model,
        add=spread(spark, frame[200:], [20, 50]),
        forget=spread(spark, frame[:60], [10]),
        features=NAMES,
    )
    assert sorted(sent) == [0, 0, 0, 1, 1]
    assert_same_model(model, one_machine(frame[60:][NAMES], y[60:]))


@pytest.mark.parametrize("side", ["add", "forget"])
def test_update_of_several_models_with_only_add_or_only_forget_equals_local_update(rng, spark, side):
    X, y = imbalanced(rng, 300)
    frame = frame_of(X, y)
    models = [one_machine(frame[:200][NAMES], y[:200], C=C) for C in (1.0, "auto")]
    rows = frame[200:] if side == "add" else frame[150:200]
    engine.update(models, **{side: spread(spark, rows, [20])}, features=NAMES)
    end = 300 if side == "add" else 150
    for model in models:
        assert_same_model(model, one_machine(frame[:end][NAMES], y[:end], C=model.C))


def test_failed_update_keeps_all_models(rng, spark):
    X, y = imbalanced(rng, 300)
    frame = frame_of(X, y)
    model = one_machine(frame[:200][NAMES], y[:200])
    before = model.statistics_.to_bytes()
    good = spread(spark, frame[200:], [])
    strangers = frame[:50].assign(age=frame["age"] + 50.0)
    with pytest.raises(DataError, match=r"update: some rows of class .* never learned"):
        engine.update(model, add=good, forget=spread(spark, strangers, []), features=NAMES)
    bad = frame[:50].copy()
    bad.loc[3, "amount"] = np.nan
    with pytest.raises(DataError, match=r"update \(forget\): partition \d+: X has NaN in row 3, column 1"):
        engine.update(model, add=good, forget=spread(spark, bad, []), features=NAMES)
    with pytest.raises(ParameterError, match="rows to add, rows to forget, or both"):
        engine.update(model, features=NAMES)
    with pytest.raises(NotFittedError, match="update"):
        engine.update(ProximalSVC(), add=good, features=NAMES)
    assert model.statistics_.to_bytes() == before


@pytest.mark.parametrize("parameters", [{}, {"C": "auto"}, {"feature_map": RandomFeatures(20, gamma=0.1)}])
def test_dask_spark_files_and_local_fit_have_equal_digests_after_every_update(rng, spark, parameters):
    """Digests are compared for several partitionings, and again after rows are added and forgotten."""
    dask = pytest.importorskip("dask", reason="Dask is not installed")
    from steelyard.distributed import dask as dask_engine

    X, y = imbalanced(rng, 900, 5, (0.6, 0.3, 0.1))
    X[:, 1] = np.round(100 * X[:, 1])  # integers
    X[400:, 2] = 0.0  # zero in later rows, so no rounding error may remain
    frame = frame_of(X, np.where(y, "fraud", "ok"))
    kept, new, gone = frame[:600], frame[600:], frame[:400]

    def parts(rows, cuts):
        pieces = np.split(np.arange(len(rows)), cuts)
        return [dask.delayed((rows[NAMES].iloc[piece], rows["y"].iloc[piece])) for piece in pieces]

    alone = ProximalSVC(**parameters).fit(kept[NAMES], kept["y"])
    on_dask = dask_engine.fit(ProximalSVC(**parameters), parts(kept, [300, 310]), client=SynchronousClient())
    on_spark = engine.fit(ProximalSVC(**parameters), spread(spark, kept, [40, 500]), features=NAMES)
    assert on_dask.digest() == on_spark.digest() == alone.digest()

    alone.update(add=(new[NAMES], new["y"]), forget=(gone[NAMES], gone["y"]))
    dask_engine.update(
        on_dask, add=(parts(new, [7]), None), forget=(parts(gone, [250]), None), client=SynchronousClient()
    )
    engine.update(
        on_spark, add=spread(spark, new, [100]), forget=spread(spark, gone, [1, 399]), features=NAMES
    )
    never = ProximalSVC(
        **{"quantizer": alone.quantizer_, **parameters} if "feature_map" not in parameters else parameters
    )
    never.fit(frame[400:][NAMES], frame["y"][400:])
    assert on_dask.digest() == on_spark.digest() == alone.digest() == never.digest()
    far = 10.0 * rng.normal(size=(50, 5))  # far from the training data
    for model in (on_dask, on_spark):
        np.testing.assert_array_equal(
            model.decision_function(pd.DataFrame(far, columns=NAMES)),
            never.decision_function(pd.DataFrame(far, columns=NAMES)),
        )


# -- errors ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("missing", [np.nan, None])
def test_fit_with_nan_raises_with_partition_and_column_and_keeps_model(rng, spark, missing):
    X, y = imbalanced(rng)
    model = one_machine(frame_of(X, y)[NAMES], y)
    before = model.statistics_.to_bytes()
    bad = frame_of(X, y).astype({"amount": object if missing is None else float})
    bad.loc[270, "amount"] = missing
    df = spread(spark, bad, [20, 50])  # partition 2 is read in batches of 100 rows
    with pytest.raises(
        DataError,
        match=r"fit: partition 2, after its first 200 rows: X has NaN in row 20, column 1 \('amount'\)",
    ):
        engine.fit(model, df, features=NAMES)
    assert model.statistics_.to_bytes() == before


def test_fit_with_missing_label_raises_with_partition(rng, spark):
    X, y = imbalanced(rng)
    frame = frame_of(X, np.where(y, "fraud", "ok").astype(object))
    frame.loc[10, "y"] = None
    with pytest.raises(DataError, match="partition 0: the label column 'y' has 1 missing values"):
        engine.fit(ProximalSVC(), spread(spark, frame, [60]), features=NAMES)


def test_fit_with_text_column_raises_with_partition(rng, spark):
    X, y = imbalanced(rng, 50)
    frame = frame_of(X, y).assign(hour="noon")
    with pytest.raises(DataError, match="partition 0: column 'hour' of type string is not numeric"):
        engine.fit(ProximalSVC(), spread(spark, frame, []), features=NAMES)


def test_fit_of_empty_dataframe_raises(rng, spark):
    df = spark.createDataFrame(frame_of(*imbalanced(rng))).where("age > 1e9")
    with pytest.raises(DataError, match="all partitions are empty"):
        engine.fit(ProximalSVC(), df, features=NAMES)


def test_fit_unknown_column_raises_with_name(rng, spark):
    df = spark.createDataFrame(frame_of(*imbalanced(rng)))
    with pytest.raises(DataError, match="no column 'colour'; it has age, amount"):
        engine.fit(ProximalSVC(), df, features=["age", "colour"])


def test_fit_of_object_that_is_not_a_dataframe_raises(rng):
    with pytest.raises(DataTypeError, match="expected a Spark DataFrame; got ndarray"):
        engine.fit(ProximalSVC(), imbalanced(rng)[0], features=NAMES)


# -- predictions ----------------------------------------------------------------------------------------


def test_predict_keeps_all_columns_and_equals_local_predict(rng, spark):
    X, y = imbalanced(rng)
    frame = frame_of(X, np.where(y, "fraud", "ok"), number=np.arange(300))
    model = one_machine(frame[NAMES], frame["y"])
    df = engine.predict(model, spark.createDataFrame(frame).repartition(3), features=NAMES)
    answers = df.toPandas().sort_values("number")
    assert list(answers.columns) == [*frame.columns, "prediction"]
    np.testing.assert_array_equal(answers["prediction"].to_numpy(), model.predict(frame[NAMES]))


def test_predict_with_existing_output_column_raises(rng, spark):
    X, y = imbalanced(rng, 50)
    with pytest.raises(ParameterError, match="already has a column 'age'"):
        engine.predict(
            one_machine(frame_of(X, y)[NAMES], y),
            spark.createDataFrame(frame_of(X, y)),
            features=NAMES,
            output="age",
        )


def test_predict_before_fit_raises(rng, spark):
    with pytest.raises(NotFittedError, match="predict"):
        engine.predict(ProximalSVC(), spark.createDataFrame(frame_of(*imbalanced(rng))), features=NAMES)


def test_cross_validate_is_independent_of_partitions(rng, spark):
    frame = frame_of(*imbalanced(rng, 600))
    once, many = (
        engine.cross_validate(ProximalSVC(), spread(spark, frame, cuts), features=NAMES, folds=2)
        for cuts in ([], [5, 300])
    )
    for name, values in once.items():
        np.testing.assert_allclose(many[name], values, rtol=1e-9)


def test_cube_of_partitions_equals_cube_of_all_rows(spark):
    from steelyard.sql import StatisticsCube

    rng = np.random.default_rng(0)
    rows = pd.DataFrame(
        {"shop": rng.choice(["A", "B"], 600), "x": rng.normal(size=600), "y": rng.integers(0, 2, 600)}
    )
    cube = StatisticsCube(["shop"], "y").add(spark.createDataFrame(rows).repartition(3))
    whole = StatisticsCube(["shop"], "y").add(rows)
    assert cube.cells == whole.cells
    quantizer = cube.model().estimator.quantizer_
    for shop, model in cube.models("shop").items():
        part = rows[rows["shop"] == shop]
        fresh = ProximalSVC(quantizer=quantizer).fit(part[["x"]].to_numpy(), part["y"].to_numpy())
        assert model.estimator.digest() == fresh.digest()
