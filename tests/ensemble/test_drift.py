"""The drift detector reports a decrease of the recalls and nothing else."""

from __future__ import annotations

import numpy as np
import pytest

from steelyard import StreamClassifier
from steelyard.ensemble.change_monitor import DriftDetector
from steelyard.persistence import from_bytes, to_bytes


def _detected(rates, shares, n_rows, seed, chunk=50):
    """Return a detector after rows with these class shares and hit rates, both functions of the row."""
    rng = np.random.default_rng(seed)
    detector = DriftDetector()
    for begin in range(0, n_rows, chunk):
        codes = rng.choice(len(shares(0)), p=shares(begin), size=chunk)
        hit = rng.random(chunk) < np.asarray(rates(begin))[codes]
        detector = detector.after(codes, hit, len(shares(0)), begin + chunk)
    return detector


@pytest.mark.parametrize("seed", range(4))
def test_stationary_stream_has_at_most_one_reported_drift(seed):
    detector = _detected(lambda _: [0.9, 0.7], lambda _: [0.9, 0.1], 20_000, seed)
    assert len(detector.drifts) <= 1


@pytest.mark.parametrize("seed", range(4))
def test_drop_in_recall_is_reported_as_drift_within_250_rows(seed):
    detector = _detected(
        lambda row: [0.9, 0.8] if row < 5000 else [0.6, 0.6], lambda _: [0.8, 0.2], 8000, seed
    )
    assert [5000 < row <= 5250 for row in detector.drifts if row > 5000][:1] == [True]
    assert len(detector.drifts) <= 2


def test_class_that_becomes_rare_is_not_reported_as_drift():
    detector = _detected(
        lambda _: [0.95, 0.6], lambda row: [0.5, 0.5] if row < 4000 else [0.97, 0.03], 8000, 1
    )
    assert detector.drifts == ()
    back = _detected(lambda _: [0.95, 0.6], lambda row: [0.97, 0.03] if row < 4000 else [0.3, 0.7], 8000, 1)
    assert len(back.drifts) <= 1


def test_explain_reports_drift_after_save_and_load():
    rng = np.random.default_rng(2)
    X = rng.normal(size=(4000, 3))
    y = (np.where(np.arange(4000) < 2500, X[:, 0], -X[:, 0]) > 0.8).astype(int)
    model = StreamClassifier()
    for begin in range(0, 4000, 100):
        model.partial_fit(X[begin : begin + 100], y[begin : begin + 100])
        if begin == 1000:
            model = from_bytes(to_bytes(model))
    explanation = model.explain()
    assert any(2500 < row <= 2800 for row in explanation.drifts)
    assert all(row > 2500 for row in explanation.drifts)
    assert f"row {explanation.drifts[0]}" in str(explanation)
    assert str(explanation.drifts[0]) in explanation._repr_html_()
