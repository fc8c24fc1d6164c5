"""Spark Structured Streaming: every micro-batch is learned once, also by queries that fail or are killed."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from copy import deepcopy
from pathlib import Path

import numpy as np
import pytest

from steelyard import KeyedClassifier, ProximalSVC, StreamClassifier
from steelyard.distributed import spark as engine
from steelyard.distributed.spark_streaming import ModelCheckpoint
from steelyard.exceptions import DataError, DataTypeError, FileFormatError, ParameterError
from steelyard.persistence import from_bytes, to_bytes
from steelyard.proximal import Quantizer
from tests.distributed.spark_sessions import MARKS, pd
from tests.service.processes import until

pytestmark = MARKS
FEATURES = ["a", "b"]
SCHEMA = "customer string, a double, b double, y long"
ONCE = {"availableNow": True}
MODELS = {
    "ProximalSVC": lambda: ProximalSVC(quantizer=Quantizer([-20, -20])),
    "KeyedClassifier": lambda: KeyedClassifier("customer", quantizer=Quantizer([-10, -10])),
    "StreamClassifier": lambda: StreamClassifier(random_state=0),
}


@pytest.fixture
def spark(sessions):
    return sessions["classic"]


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    """Return a folder with three files of rows, and all rows as one data frame."""
    rng = np.random.default_rng(0)
    y = (rng.random(600) < 0.1).astype(int)
    X = rng.normal(size=(600, 2)) + 2.0 * y[:, None]
    customers = [f"c{k}" for k in rng.integers(0, 9, 600)]
    frame = pd.DataFrame({"customer": customers, "a": X[:, 0], "b": X[:, 1], "y": y})
    folder = tmp_path_factory.mktemp("rows")
    for number in range(3):
        path = folder / f"{number}.parquet"
        frame[200 * number : 200 * number + 200].to_parquet(path)
        os.utime(path, (number, number))  # Spark reads the oldest file first
    return folder, frame


def run(spark, model, folder, checkpoint, **options):
    df = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(folder))
    query = engine.stream(model, df, features=FEATURES, checkpoint=str(checkpoint), trigger=ONCE, **options)
    query.awaitTermination()
    return model


def state(model):
    return to_bytes(model) if isinstance(model, StreamClassifier) else model.digest()


@pytest.mark.parametrize("name", MODELS)
def test_stream_that_fails_twice_equals_batch_job(spark, rows, tmp_path, monkeypatch, name):
    folder, frame = rows
    columns = ["customer", *FEATURES] if name == "KeyedClassifier" else FEATURES
    whole = MODELS[name]()
    for begin in range(0, 600, 200):
        part = frame[begin : begin + 200]
        whole = from_bytes(to_bytes(whole.partial_fit(part[columns], part["y"])))  # saved as by the stream

    failures = iter([(1, "before"), (2, "after")])
    pending = [next(failures)]
    save = ModelCheckpoint.save

    def failing(self):
        number, moment = pending[0]
        if self.batch_id == number and moment == "before":
            pending[0] = next(failures)
            raise OSError("the disk is full")
        save(self)
        if self.batch_id == number:
            pending[0] = (-1, "")
            raise OSError("killed before the commit of Spark")

    monkeypatch.setattr(ModelCheckpoint, "save", failing)
    for _ in range(2):
        with pytest.raises(Exception, match=r"disk is full|killed before"):
            run(spark, MODELS[name](), folder, tmp_path)
    model = run(spark, MODELS[name](), folder, tmp_path)
    assert pending == [(-1, "")]
    assert state(model) == state(whole) == state(engine.load_stream(str(tmp_path)))


def test_killed_driver_continues_with_digest_of_uninterrupted_stream(spark, rows, tmp_path):
    folder, frame = rows
    script = (
        "import os, signal, sys\n"
        "from pathlib import Path\n"
        "from tests.distributed import spark_sessions, test_spark_streaming as t\n"
        "save = t.ModelCheckpoint.save\n"
        "def dying(self):\n"
        "    save(self)\n"
        "    if self.batch_id == 1:\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "t.ModelCheckpoint.save = dying\n"
        "spark = spark_sessions.classic_session()\n"
        "t.run(spark, t.MODELS['ProximalSVC'](), Path(sys.argv[1]), Path(sys.argv[2]))\n"
    )
    root = Path(__file__).parents[2]
    arguments = [sys.executable, "-c", script, str(folder), str(tmp_path)]
    none = subprocess.DEVNULL  # the Java process of Spark would keep a pipe open
    killed = subprocess.run(arguments, cwd=root, check=False, stdout=none, stderr=none, timeout=400)
    assert killed.returncode == -signal.SIGKILL
    assert engine.load_stream(str(tmp_path)).class_count_.sum() == 400
    model = run(spark, MODELS["ProximalSVC"](), folder, tmp_path)
    batch = engine.fit(MODELS["ProximalSVC"](), spark.createDataFrame(frame), features=FEATURES)
    assert model.digest() == batch.digest()


def test_stream_classifier_learns_all_rare_rows_and_a_weighted_sample_of_others(spark, rows, tmp_path):
    frame = rows[1]
    seen = []

    class Recorder(StreamClassifier):
        def partial_fit(self, X, y, classes=None, sample_weight=None, *, time=None):
            seen.append((X, y, sample_weight))
            return super().partial_fit(X, y, classes, sample_weight)

    df = spark.createDataFrame(frame)
    target = ModelCheckpoint(tmp_path, Recorder())
    from steelyard.distributed.spark_rows import SparkColumns
    from steelyard.distributed.spark_streaming import learn_sample

    learn_sample(target, df, SparkColumns(tuple(FEATURES), "y"), max_rows=100)
    X, y, weights = seen[0]
    assert list(X.columns) == FEATURES
    assert (y == 1).sum() == frame["y"].sum()
    assert 60 < (y == 0).sum() < 140
    np.testing.assert_allclose(weights[y == 0], (frame["y"] == 0).sum() / 100)
    np.testing.assert_array_equal(weights[y == 1], 1.0)


def test_rate_source_is_scored_as_streaming_dataframe(spark):
    X, y = np.arange(20.0)[:, None], (np.arange(20) > 9).astype(int)
    model = ProximalSVC().fit(pd.DataFrame(X, columns=["a"]), y)
    df = spark.readStream.format("rate").option("rowsPerSecond", 200).load()
    df = df.selectExpr("value", "cast(value % 20 as double) as a")
    scored = engine.predict(model, df, features=["a"], score="score")
    assert scored.isStreaming
    query = scored.writeStream.format("memory").queryName("scored").start()
    try:  # processAllAvailable() may never return, because the source never ends
        until(lambda: spark.table("scored").count() >= 50, 120.0)
    finally:
        query.stop()
    found = spark.table("scored").toPandas()
    assert len(found) >= 50
    np.testing.assert_array_equal(found["prediction"], model.predict(found[["a"]]))
    np.testing.assert_array_equal(found["score"], model.decision_function(found[["a"]]))


def test_keyed_classifier_fitted_on_partitions_equals_local_fit(spark, rows):
    frame = rows[1]
    df = spark.createDataFrame(frame).repartition(3)
    model = engine.partial_fit(KeyedClassifier("customer"), df, features=FEATURES)
    local = KeyedClassifier("customer", quantizer=model.quantizer_).fit(
        frame[["customer", *FEATURES]], frame["y"]
    )
    assert model.digest() == local.digest()
    others = frame[frame["customer"] != "c3"]
    never = KeyedClassifier("customer", quantizer=model.quantizer_)
    never.fit(others[["customer", *FEATURES]], others["y"])
    assert deepcopy(model).forget_key("c3").digest() == never.digest()
    scored = engine.predict(model, df, features=FEATURES, score="s").toPandas()
    np.testing.assert_array_equal(scored["s"], local.decision_function(scored[["customer", *FEATURES]]))
    with pytest.raises(ParameterError, match="name of its key column"):
        engine.partial_fit(KeyedClassifier(0), df, features=FEATURES)
    bad = df.selectExpr("customer", "a", "double('nan') as b", "y")
    with pytest.raises(DataError, match=r"partition \d+: X has NaN"):
        engine.partial_fit(model, bad, features=FEATURES)
    assert model.digest() == local.digest()


def test_worker_with_other_python_raises_error_that_names_pyspark_python(spark, rows, tmp_path, monkeypatch):
    """Instead of a second Python, a script runs the workers with a changed version number."""
    python = tmp_path / "python"
    python.write_text(
        f"#!{sys.executable}\n"
        "import runpy, sys\n"
        "import pyspark.worker_util\n"
        "class OtherPython:\n"
        "    version_info = (3, 7)\n"
        "    def __getattr__(self, name):\n"
        "        return getattr(sys, name)\n"
        "pyspark.worker_util.sys = OtherPython()\n"
        "module = sys.argv[2]\n"
        "del sys.argv[1:3]\n"
        "runpy.run_module(module, run_name='__main__', alter_sys=True)\n"
    )
    python.chmod(0o755)
    monkeypatch.setattr(spark.sparkContext, "pythonExec", str(python))
    message = r"another version of Python \(3.7\)[\s\S]*PYSPARK_PYTHON"
    with pytest.raises(ParameterError, match=message) as found:
        engine.fit(ProximalSVC(), spark.createDataFrame(rows[1]), features=FEATURES)
    assert len(str(found.value)) < 500
    with pytest.raises(ParameterError, match="PYSPARK_PYTHON"):
        run(spark, ProximalSVC(), rows[0], tmp_path / "checkpoint")


def test_stream_with_invalid_arguments_raises(spark, rows, tmp_path):
    folder, frame = rows
    df = spark.readStream.schema(SCHEMA).parquet(str(folder))
    arguments = {"features": FEATURES, "checkpoint": str(tmp_path)}
    with pytest.raises(DataTypeError, match="expected a streaming DataFrame"):
        engine.stream(ProximalSVC(), spark.createDataFrame(frame), **arguments)
    with pytest.raises(DataTypeError, match="expected one of ProximalSVC"):
        engine.stream(object(), df, **arguments)
    with pytest.raises(ParameterError, match="folder that the driver can write to"):
        engine.stream(ProximalSVC(), df, features=FEATURES, checkpoint="s3://bucket/checkpoint")
    with pytest.raises(ParameterError, match="max_rows"):
        engine.stream(StreamClassifier(), df, **arguments, max_rows=0)
    with pytest.raises(ParameterError, match="no model in the checkpoint"):
        engine.load_stream(str(tmp_path))
    ModelCheckpoint(tmp_path / "steelyard" / "model", ProximalSVC(), 3).save()
    with pytest.raises(ParameterError, match="contains a ProximalSVC; got a StreamClassifier"):
        engine.stream(StreamClassifier(), df, **arguments)
    with pytest.raises(ParameterError, match="no positions of Spark"):
        engine.stream(ProximalSVC(), df, **arguments)
    (tmp_path / "steelyard" / "model").write_bytes(b"other")
    with pytest.raises(FileFormatError):
        engine.load_stream(str(tmp_path))


def test_code_of_spark_documentation_page_runs(spark, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page = Path(__file__).parents[2] / "docs" / "spark.md"
    blocks = re.findall(r"^```python\n(.*?)^```$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert len(blocks) == 4
    exec(compile("\n".join(blocks), "spark.md", "exec"), {})
