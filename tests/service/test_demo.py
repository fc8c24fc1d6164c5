"""The demonstration of the service, and observed rates of alarms whose labels arrive later."""

from __future__ import annotations

import numpy as np
from click.testing import CliRunner

from steelyard.cli import main
from steelyard.service import SQLiteStore, Writer, demo
from steelyard.service.client import Client
from steelyard.service.http import make_app
from steelyard.streams import Payments
from tests.service.server import serving


def test_demo_predicts_payments_before_their_labels_and_explains_alarms(monkeypatch, tmp_path):
    monkeypatch.setattr(demo, "_HISTORY_BATCHES", 40)
    monkeypatch.setattr(demo, "_BATCH_SECONDS", 0.0)
    app = make_app(Writer(SQLiteStore(tmp_path / "store.db")))
    with serving(app) as http, Client(str(http.base_url)) as client:
        client.put("payments", demo._SPEC)
        demo._send(client, Payments(3000, chunk=50, seed=0))
        model = client.model("payments")
        alarms = client.explanations("payments")["alarms"]
    assert model["learned"] == 2000
    assert model["waiting_for_labels"] == 1000
    assert alarms
    assert all(alarm["label"] == "fraud" for alarm in alarms)


def test_observed_recall_counts_remembered_predictions(tmp_path):
    rng = np.random.default_rng(0)
    rows = [{"x": float(x), "kind": "fraud" if x > 1.6 else "clean"} for x in rng.normal(size=1200)]
    learner = {"class": "StreamClassifier", "threshold": {"alarms": 0.02}}
    app = make_app(Writer(SQLiteStore(tmp_path / "store.db")))
    with serving(app) as http, Client(str(http.base_url)) as client:
        client.put("m", {"target": "kind", "learner": learner})
        client.learn("m", rows[:600])
        answer = client.predict("m", [{"x": row["x"]} for row in rows[600:]], remember=True)
        truth = [row["kind"] for row in rows[600:]]
        client.label("m", dict(zip(answer["ids"], truth, strict=True)))
        rates = {rate["name"]: rate for rate in client.model("m")["realised_rates"]}
    pairs = list(zip(answer["labels"], truth, strict=True))
    n_found, n_alarms = pairs.count(("fraud", "fraud")), answer["labels"].count("fraud")
    assert rates["recall"]["rows"] == truth.count("fraud")
    assert rates["recall"]["rate"] == n_found / truth.count("fraud")
    assert rates["precision"]["rate"] == n_found / n_alarms


def test_demo_with_keys_raises_an_error(tmp_path):
    result = CliRunner().invoke(main, ["serve", "--demo", "--keys", str(tmp_path / "keys.toml")])
    assert result.exit_code != 0
    assert "leave out --keys" in str(result.exception) + result.output
