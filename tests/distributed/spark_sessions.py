"""Spark sessions for all tests of a process: a classic session, and one over its Spark Connect server."""

from __future__ import annotations

import os
import shutil
import socket
import sys
from pathlib import Path

import pytest

pyspark = pytest.importorskip("pyspark", reason="Spark is not installed")
pd = pytest.importorskip("pandas", reason="the extra tables is not installed")
pa = pytest.importorskip("pyarrow", reason="the extra tables is not installed")
if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
    pytest.skip("Spark needs Java, which is not installed", allow_module_level=True)

HAS_CONNECT = any((Path(pyspark.__file__).parent / "jars").glob("spark-connect_*.jar"))
# Spark warns about versions of other packages that are newer than the versions it was tested with.
MARKS = [
    pytest.mark.xdist_group("spark"),
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support:FutureWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:pyspark"),
]
# The jobs of the tests are small. Code generation, adaptive query execution and the optimizing compiler of
# Java would take more time than they save.
_JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.log.level": "OFF",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "100",
}


def classic_session(**settings):
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["JDK_JAVA_OPTIONS"] = _JAVA_OPTIONS
    builder = SparkSession.builder.master("local[2]")
    for name, value in {**_SETTINGS, **settings}.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def start():
    """Return the sessions by kind."""
    if not HAS_CONNECT:
        return {"classic": classic_session()}
    from pyspark.sql.connect.session import SparkSession as ConnectSession

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    plugin = "org.apache.spark.sql.connect.SparkConnectPlugin"
    classic = classic_session(**{"spark.plugins": plugin, "spark.connect.grpc.binding.port": str(port)})
    connect = ConnectSession.builder.remote(f"sc://127.0.0.1:{port}").getOrCreate()
    return {"classic": classic, "connect": connect}


def stop(sessions):
    if "connect" in sessions:
        sessions["connect"].client.close()
    sessions["classic"].stop()
