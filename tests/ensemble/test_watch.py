"""The watch notices when answers become worse, and nothing else."""

from __future__ import annotations

import numpy as np
import pytest

from steelyard import StreamClassifier
from steelyard.ensemble.watch import Watch
from steelyard.persistence import from_bytes, to_bytes


def _watched(rates, shares, n_rows, seed, chunk=50):
    """Rows of classes with some shares, hit with some rates; both may be functions of the row."""
    rng = np.random.default_rng(seed)
    watch = Watch()
    for begin in range(0, n_rows, chunk):
        codes = rng.choice(len(shares(0)), p=shares(begin), size=chunk)
        hit = rng.random(chunk) < np.asarray(rates(begin))[codes]
        watch = watch.after(codes, hit, len(shares(0)), begin + chunk)
    return watch


@pytest.mark.parametrize("seed", range(4))
def test_a_still_stream_has_no_drift(seed):
    watch = _watched(lambda _: [0.9, 0.7], lambda _: [0.9, 0.1], 20_000, seed)
    assert len(watch.drifts) <= 1


@pytest.mark.parametrize("seed", range(4))
def test_a_fall_is_noticed_soon_and_once(seed):
    watch = _watched(lambda row: [0.9, 0.8] if row < 5000 else [0.6, 0.6], lambda _: [0.8, 0.2], 8000, seed)
    assert [5000 < row <= 5250 for row in watch.drifts if row > 5000][:1] == [True]
    assert len(watch.drifts) <= 2


def test_a_class_that_becomes_rare_is_no_drift():
    watch = _watched(lambda _: [0.95, 0.6], lambda row: [0.5, 0.5] if row < 4000 else [0.97, 0.03], 8000, 1)
    assert watch.drifts == ()
    back = _watched(lambda _: [0.95, 0.6], lambda row: [0.97, 0.03] if row < 4000 else [0.3, 0.7], 8000, 1)
    assert len(back.drifts) <= 1


def test_explain_names_the_row_of_a_drift_also_after_a_stop():
    rng = np.random.default_rng(2)
    X = rng.normal(size=(4000, 3))
    y = (np.where(np.arange(4000) < 2500, X[:, 0], -X[:, 0]) > 0.8).astype(int)
    model = StreamClassifier()
    for begin in range(0, 4000, 100):
        model.partial_fit(X[begin : begin + 100], y[begin : begin + 100])
        if begin == 1000:
            model = from_bytes(to_bytes(model))
    told = model.explain()
    assert any(2500 < row <= 2800 for row in told.drifts)
    assert all(row > 2500 for row in told.drifts)
    assert f"row {told.drifts[0]}" in str(told)
    assert str(told.drifts[0]) in told._repr_html_()
