"""Target rates, observed rates and explained alarms in results, JSON and report."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from steelyard import AdaptiveThresholdClassifier, ProximalSVC, StreamClassifier
from steelyard.evaluation import prequential
from steelyard.report import render_report
from steelyard.streams import ArrayStream


@pytest.fixture(scope="module")
def result():
    rng = np.random.default_rng(0)
    y = np.where(rng.random(3000) < 0.1, "fraud", "clean")
    X = rng.normal(size=(3000, 4))
    X[:, 2] += 3.0 * (y == "fraud")
    stream = ArrayStream(X, y, chunk=100)
    models = {
        "auto": StreamClassifier(threshold={"alarms": 0.05}),
        "wrapped": AdaptiveThresholdClassifier(ProximalSVC(), threshold={"alarms": 0.05}),
    }
    return prequential(models, stream)


def test_target_rate_and_interval_are_in_json_and_report(result):
    rates = {rate["name"]: rate for rate in result.as_dict()["promises"]["auto"]}
    assert rates["alarms"]["target"] == 0.05
    assert rates["alarms"]["low"] < rates["alarms"]["rate"] < rates["alarms"]["high"]
    assert rates["alarms"]["rate"] == pytest.approx(0.05, abs=20 / rates["alarms"]["n_rows"])
    page = render_report(result)
    assert "Target rates" in page
    assert "<b>5.0%</b>" in page


def test_explanations_of_last_alarms_list_informative_column_first(result):
    for name in ("auto", "wrapped"):
        alarms = result.last_alarms(name)
        assert len(alarms) == 5
        assert all(first["row"] > second["row"] for first, second in pairwise(alarms))
        assert {alarm["columns"][0][0] for alarm in alarms} == {"x2"}
        assert all(0.0 <= alarm["probability"] <= 1.0 for alarm in alarms)
    assert "x2 = " in render_report(result)


def test_report_of_model_without_target_rate_has_no_section_of_target_rates():
    rng = np.random.default_rng(1)
    y = (rng.random(600) < 0.2).astype(int)
    result = prequential(ProximalSVC(), ArrayStream(rng.normal(size=(600, 2)), y, chunk=100))
    assert result.promises("ProximalSVC") == []
    assert "Target rates" not in render_report(result)
