"""The demonstration: payments are predicted, labelled later and explained on the page."""

from __future__ import annotations

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


def test_demo_with_keys_raises_an_error(tmp_path):
    result = CliRunner().invoke(main, ["serve", "--demo", "--keys", str(tmp_path / "keys.toml")])
    assert result.exit_code != 0
    assert "leave out --keys" in str(result.exception) + result.output
