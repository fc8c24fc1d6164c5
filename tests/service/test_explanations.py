"""Explanations over HTTP: contributions, recent alarms, and their removal by forget requests."""

from __future__ import annotations

import numpy as np
import pytest

from steelyard.service import SQLiteStore, Writer
from steelyard.service.http import make_app
from tests.service.server import serving

MODEL = "/v1/models/payments"


def rows_of(n_rows, *, seed, labelled=True):
    rng = np.random.default_rng(seed)
    rows = []
    for number in range(n_rows):
        amount, hour = float(rng.lognormal(3.0, 1.0)), int(rng.integers(24))
        row = {
            "id": f"{seed}-{number}",
            "amount": amount,
            "hour": hour,
            "country": str(rng.choice(["NZ", "AU"])),
        }
        if labelled:
            row["fraud"] = "yes" if amount > 30.0 and hour < 8 else "no"
        rows.append(row)
    return rows


@pytest.fixture
def http(tmp_path):
    with serving(make_app(Writer(SQLiteStore(tmp_path / "store.db")))) as client:
        spec = {"target": "fraud", "id": "id", "learner": {"class": "StreamClassifier"}}
        client.put(MODEL, json=spec).raise_for_status()
        for seed in range(8):
            client.post(f"{MODEL}/learn", json={"rows": rows_of(100, seed=seed)}).raise_for_status()
        yield client


def test_explain_returns_contributions_that_add_up_to_predicted_scores(http):
    rows = rows_of(20, seed=50, labelled=False)
    scores = http.post(f"{MODEL}/predict", json={"rows": rows}).json()["scores"]
    found = http.post(f"{MODEL}/explain", json={"rows": rows}).raise_for_status().json()["explanations"]
    for row, explained, score in zip(rows, found, scores, strict=True):
        assert explained["contributions"].keys() == {"amount", "hour", "country"}
        assert sum(explained["contributions"].values()) + explained["base"] == pytest.approx(score, abs=1e-9)
        assert explained["values"] == {name: row[name] for name in ("amount", "hour", "country")}
        assert {near["label"] for near in explained["nearest"]} == {"no", "yes"}
        assert all("values" not in near for near in explained["nearest"])  # stored rows stay private


def test_explain_of_too_many_rows_or_untrained_model_is_refused(http):
    many = [{"amount": 1.0, "hour": 1, "country": "NZ"}] * 1001
    assert http.post(f"{MODEL}/explain", json={"rows": many}).status_code == 413
    http.put("/v1/models/new", json={"target": "y"}).raise_for_status()
    problem = http.post("/v1/models/new/explain", json={"rows": [{"a": 1.0}]})
    assert problem.status_code == 422
    assert "cannot explain" in problem.json()["detail"]


def test_service_explains_recent_alarms_and_lists_feature_importance(http):
    rows = [row for row in rows_of(200, seed=60) if row["fraud"] == "yes"][:12]
    for row in rows:
        row.pop("fraud")
    labels = http.post(f"{MODEL}/predict", json={"rows": rows}).json()["labels"]
    found = http.get(f"{MODEL}/explanations").json()
    assert 3 <= len(found["alarms"]) <= min(10, labels.count("yes"))
    assert all(alarm["label"] == "yes" for alarm in found["alarms"])
    assert {line["column"] for line in found["importance"][:2]} == {"amount", "hour"}
    assert sum(line["share"] for line in found["importance"]) == pytest.approx(1.0)
    assert http.get(f"{MODEL}/explanations").json()["alarms"] == found["alarms"]


def test_changes_of_an_alarm_with_a_negative_score_do_not_lead_to_an_alarm(http):
    spec = {
        "target": "fraud",
        "id": "id",
        "learner": {"class": "StreamClassifier", "threshold": {"alarms": 0.9}},
    }
    http.put("/v1/models/many", json=spec).raise_for_status()
    for seed in range(4):
        http.post("/v1/models/many/learn", json={"rows": rows_of(100, seed=seed)}).raise_for_status()
    rows = rows_of(100, seed=70, labelled=False)
    assert http.post("/v1/models/many/predict", json={"rows": rows}).json()["labels"].count("yes") > 70
    alarms = http.get("/v1/models/many/explanations").json()["alarms"]
    assert min(alarm["score"] for alarm in alarms) < 0.0
    assert all(change["label"] == "no" for alarm in alarms for change in alarm["changes"])


def test_missing_column_of_rows_without_columns_is_named(http):
    problem = http.post(f"{MODEL}/explain", json={"rows": [{}]}).json()
    assert problem["detail"].endswith("the column 'amount' is missing; the rows have no columns.")


def test_forget_request_removes_alarms(http):
    alarm = {"amount": 200.0, "hour": 2, "country": "NZ"}
    assert http.post(f"{MODEL}/predict", json={"rows": [alarm]}).json()["labels"] == ["yes"]
    assert http.get(f"{MODEL}/explanations").json()["alarms"]
    http.post(f"{MODEL}/forget", json={"ids": ["3-7"]}).raise_for_status()
    assert not http.get(f"{MODEL}/explanations").json()["alarms"]


def test_alarms_of_deleted_model_are_not_shown_for_new_model_of_the_same_name(http):
    alarm = {"amount": 200.0, "hour": 2, "country": "NZ"}
    assert http.post(f"{MODEL}/predict", json={"rows": [alarm]}).json()["labels"] == ["yes"]
    http.delete(MODEL).raise_for_status()
    http.put(MODEL, json={"target": "fraud", "id": "id"}).raise_for_status()
    http.post(f"{MODEL}/learn", json={"rows": rows_of(50, seed=9)}).raise_for_status()
    assert http.get(f"{MODEL}/explanations").json()["alarms"] == []
