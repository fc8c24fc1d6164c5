"""Monitoring: metrics, alert rules, the Grafana dashboard, activity, columns, logs and systemd."""

from __future__ import annotations

import json
import logging
import re
import socket
from pathlib import Path

import numpy as np
import pytest
import yaml

from steelyard.service import SQLiteStore, Writer
from steelyard.service import rows as wire
from steelyard.service.commands import Forget, Learn, Put
from steelyard.service.errors import Unavailable
from steelyard.service.http import make_app
from steelyard.service.http.metrics import Activity, Metrics
from steelyard.service.monitor import RecentRows, column_statistics
from steelyard.service.system import JsonFormatter, notify, watchdog_seconds
from tests.service.data import SPEC, Clock, records, spec
from tests.service.server import serving
from tests.service.sessions import ModelSession, batch
from tests.service.test_wire import MODEL

DEPLOY = Path(__file__).parents[2] / "deploy"


@pytest.fixture
def http(tmp_path):
    with serving(make_app(Writer(SQLiteStore(tmp_path / "store.db")))) as client:
        client.put(MODEL, json={**SPEC, "ranges": {"amount": [-99, 99]}, "violations": "quarantine"})
        rows = records(40)
        rows[0]["amount"] = 1e9
        for part in (rows[:20], rows[20:]):
            client.post(f"{MODEL}/learn", json={"rows": part}).raise_for_status()
        answer = client.post(
            f"{MODEL}/predict",
            json={"rows": [{"amount": 1.0, "country": "DE", "customer": "c1"}], "remember": True},
        )
        client.post(f"{MODEL}/labels", json={"labels": {answer.json()["ids"][0]: 1}})
        client.post(f"{MODEL}/forget", json={"ids": ["r5"]})  # writes a snapshot
        client.get("/v1/models/unknown")
        yield client


def value(text, name):
    return float(re.search(rf"^{re.escape(name)} (\S+)$", text, re.MULTILINE).group(1))


def test_metrics_cover_process_writer_store_and_models(http):
    text = http.get("/metrics").text
    assert value(text, "steelyard_leader") == value(text, "steelyard_writer_alive") == 1
    assert value(text, "steelyard_store_up") == 1
    assert value(text, "steelyard_store_bytes") > 10_000
    assert value(text, "steelyard_disk_free_bytes") > 0
    assert value(text, "steelyard_follower_lag_seconds") == 0
    assert value(text, "steelyard_commit_seconds_count") >= 5
    assert value(text, 'steelyard_labels_waiting{model="payments"}') == 0
    assert value(text, 'steelyard_rows_quarantined{model="payments"}') == 1
    assert value(text, 'steelyard_label_delay_seconds_count{model="payments"}') == 1
    assert 0 <= value(text, 'steelyard_snapshot_age_seconds{model="payments"}') < 60
    assert value(text, "process_resident_memory_bytes") > 1e6
    assert 'store="sqlite"' in text


def test_observed_rates_are_reported_in_metrics_and_model_description(http):
    model = "/v1/models/promised"
    learner = {"class": "StreamClassifier", "threshold": {"alarms": 0.1}}
    http.put(model, json={**SPEC, "learner": learner}).raise_for_status()
    for first in range(0, 400, 100):
        rows = records(100, seed=first, first=1_000 + first)
        http.post(f"{model}/learn", json={"rows": rows}).raise_for_status()
    rates = {rate["name"]: rate for rate in http.get(model).json()["realised_rates"]}
    assert list(rates) == ["alarms", "recall", "precision"]
    assert rates["alarms"]["promised"] == 0.1
    assert rates["alarms"]["rows"] == 300  # the first rows were learned before the model could predict
    text = http.get("/metrics").text
    for name, rate in rates.items():
        labels = f'{{model="promised",rate="{name}"}}'
        found = [value(text, f"steelyard_model_realised_rate{end}{labels}") for end in ("", "_low", "_high")]
        assert found == [rate["rate"], *rate["interval"]]
        assert found[1] <= found[0] <= found[2]
    assert value(text, 'steelyard_model_promised_rate{model="promised",rate="alarms"}') == 0.1
    assert http.get(MODEL).json()["realised_rates"] == []


def names_of(expressions):
    return {name for e in expressions for name in re.findall(r"\b(?:steelyard|process)_\w+", e)}


def test_every_metric_used_by_alerts_and_dashboard_exists(http):
    rules = yaml.safe_load((DEPLOY / "alerts.yml").read_text())["groups"][0]["rules"]
    board = json.loads((DEPLOY / "grafana.json").read_text())
    used = names_of(rule["expr"] for rule in rules)
    used |= names_of(target["expr"] for panel in board["panels"] for target in panel["targets"])
    used |= names_of(variable["query"] for variable in board["templating"]["list"])
    text = http.get("/metrics").text
    served = set(re.findall(r"^(\w+)[ {]", text, re.MULTILINE))
    assert len(used) > 20
    assert used <= served
    assert len({rule["alert"] for rule in rules}) == len(rules)


def test_every_metric_of_the_service_is_documented(http):
    text = http.get("/metrics").text
    families = set(re.findall(r"^# HELP (steelyard_\w+)", text, re.MULTILINE))
    documented = (DEPLOY.parent / "docs" / "operations.md").read_text()
    missing = [name for name in families if f"`{name}`" not in documented and not name.endswith("_created")]
    assert missing == []


def test_failed_write_is_counted_by_reason(tmp_path, monkeypatch):
    session = ModelSession(tmp_path / "s.db")
    metrics = Metrics(session.writer)
    session.do(Put("m", spec()))
    with monkeypatch.context() as broken:
        broken.setattr(session.store, "append", _full_disk)
        with pytest.raises(Unavailable):
            session.do(Learn("m", batch(records(5))))
    assert value(metrics.text().decode(), 'steelyard_write_failures_total{reason="OSError"}') == 1


def _full_disk(*_args):
    raise OSError(28, "no space left")


# -- activity ---------------------------------------------------------------------------------------


def test_activity_counts_requests_latency_errors_and_label_delays():
    clock = Clock(600_000.0)
    activity = Activity(clock)
    for k in range(100):
        activity.request("m", "predict", 200, 0.001 if k < 98 else 1.0)
    activity.request("m", "learn", 503, 1.0)
    activity.request("m", "learn", 422, 1.0)
    activity.labels("m", [50.0, 70.0, 80.0])
    clock.now += 61.0
    activity.request("m", "learn", 200, 0.003)
    points = activity.points("m", clock.now - 600.0)
    assert points["seconds"] == 60
    first, last = points["points"][-2:]
    assert (first["predict"], first["errors"], first["refused"], first["labels"]) == (100, 1, 1, 3)
    assert (first["predict_ms"], first["learn_ms"], first["label_delay"]) == (1024.0, None, 600.0)
    assert (last["learn"], last["learn_ms"], last["label_delay"]) == (1, 4.0, None)
    assert activity.points("m", clock.now - 86_400.0)["seconds"] == 60  # no older values exist
    clock.now += 20_000.0
    coarse = activity.points("m", clock.now - 86_400.0)
    assert (coarse["seconds"], sum(p["predict"] for p in coarse["points"])) == (900, 100)
    assert activity.latency("m")["learn"] == {"median": 3.0, "p99": 3.0}
    activity.forget("m")
    assert activity.points("m", clock.now - 600.0)["points"][-1]["learn"] == 0
    assert activity.latency("m") == {}


def test_activity_keeps_a_limited_number_of_intervals_and_ignores_unknown_models(http):
    clock = Clock(0.0)
    activity = Activity(clock)
    for k in range(400):
        clock.now = 60.0 * k
        activity.request("m", "learn", 200, 0.001)
    assert len(activity.points("m", clock.now - 10_000.0)["points"]) <= 180
    answer = http.get(f"{MODEL}/activity").json()
    assert sum(point["learn"] for point in answer["points"]) == 2
    assert http.get("/v1/models/unknown/activity").status_code == 404


# -- columns ----------------------------------------------------------------------------------------


def columns(n, shift=0.0, seed=0):
    rng = np.random.default_rng(seed)
    return wire.from_records(
        [
            {
                "a": float(rng.normal() + shift),
                "b": None if k % 4 == 0 else float(rng.normal()),
                "c": "x" if rng.random() < (0.9 if shift else 0.1) else "y",
            }
            for k in range(n)
        ],
        ["c"],
    )


def test_column_statistics_show_missing_values_drift_and_importance():
    rows = RecentRows()
    kinds = {"a": "number", "b": "number", "c": "category"}
    for k in range(10):
        rows.add(columns(100, seed=k))
    before = column_statistics(rows, kinds, lambda batch: batch.columns["a"])
    assert before["rows"] == 1_000
    assert [column["drift"] for column in before["columns"]] == [None] * 3
    for k in range(20):
        rows.add(columns(100, shift=2.0, seed=k))
    found = {c["name"]: c for c in column_statistics(rows, kinds, lambda b: b.columns["a"])["columns"]}
    assert found["b"]["missing"] == 0.25
    assert found["a"]["missing"] == found["c"]["missing"] == 0.0
    assert found["a"]["drift"] > 0.6
    assert found["b"]["drift"] < 0.1
    assert 0.7 < found["c"]["drift"] < 0.9
    assert found["a"]["importance"] > 0.5
    assert found["b"]["importance"] == found["c"]["importance"] == 0.0
    rows.clear()
    assert column_statistics(rows, kinds, lambda b: b.columns["a"]) == {"rows": 0, "columns": []}


def test_recent_rows_are_limited_and_cleared_by_forget(tmp_path):
    session = ModelSession(tmp_path / "s.db")
    session.do(Put("m", spec()))
    for begin in range(0, 3_000, 500):
        session.do(Learn("m", batch(records(500, seed=begin, first=begin))))
    statistics = session.model().column_statistics()
    assert statistics["rows"] == 1_000
    assert {column["name"] for column in statistics["columns"]} == {"amount", "country"}
    session.do(Forget("m", ids=["r2990"]))
    assert session.model().column_statistics() == {"rows": 0, "columns": []}


# -- logs and systemd -------------------------------------------------------------------------------


def test_json_log_has_level_message_and_request_id():
    formatter = JsonFormatter()
    record = logging.LogRecord("s", logging.ERROR, "", 0, "failure %s\nwhere", ("x",), None)
    record.request_id = "abc"
    line = json.loads(formatter.format(record))
    assert (line["level"], line["message"], line["details"]) == ("error", "failure x", "where")
    assert line["request_id"] == "abc"
    request = logging.LogRecord("s", logging.INFO, "", 0, '{"status": 200}', None, None)
    assert formatter.format(request) == '{"status": 200}'


def test_systemd_receives_ready_watchdog_and_stopping_notifications(tmp_path, monkeypatch):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
        channel.bind(str(tmp_path / "notify"))
        channel.settimeout(120)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        monkeypatch.setenv("WATCHDOG_USEC", "2000000")
        with serving(make_app(Writer(SQLiteStore(tmp_path / "s.db")))):
            assert channel.recv(100) == b"READY=1"
            assert channel.recv(100) == b"WATCHDOG=1"
        assert channel.recv(100) == b"STOPPING=1"


def test_no_notification_is_sent_without_systemd(monkeypatch):
    for name in ("NOTIFY_SOCKET", "WATCHDOG_USEC"):
        monkeypatch.delenv(name, raising=False)
    assert not notify("READY=1")
    assert watchdog_seconds() is None
    monkeypatch.setenv("NOTIFY_SOCKET", "/nonexistent/socket")
    assert not notify("READY=1")
