"""Precision and recall at k per day, and their totals."""

from __future__ import annotations

import math

import numpy as np
import pytest

from steelyard import ProximalSVC
from steelyard.evaluation import prequential
from steelyard.evaluation.results import label_order_warning
from steelyard.evaluation.tracking import DAY_SECONDS, DayMeasures
from steelyard.metrics import precision_at_k_score, recall_at_k_score
from steelyard.streams import ArrayStream


@pytest.mark.parametrize("chunk", [1, 37, 1000])
def test_day_measures_equal_batch_measures_of_each_day(chunk):
    rng = np.random.default_rng(0)
    days = np.repeat([3, 4, 9], [120, 80, 100])
    y, scores = rng.random(300) < 0.2, rng.normal(size=300).round(1)
    measures = DayMeasures(15)
    for begin in range(0, 300, chunk):
        part = slice(begin, begin + chunk)
        measures.update((days[part] + 0.3) * DAY_SECONDS, y[part], scores[part])
    for is_mirrored, true, value in ((False, y, scores), (True, ~y, -scores)):
        lines = measures.lines(is_mirrored)
        assert [line["day"] for line in lines] == ["1970-01-04", "1970-01-05", "1970-01-10"]
        assert [line["rows"] for line in lines] == [120, 80, 100]
        for day, line in zip((3, 4, 9), lines, strict=True):
            rows = days == day
            assert line["positive_rows"] == true[rows].sum()
            assert line["precision_at_k"] == pytest.approx(
                precision_at_k_score(true[rows], value[rows], k=15)
            )
            assert line["recall_at_k"] == pytest.approx(recall_at_k_score(true[rows], value[rows], k=15))


def test_day_without_positive_rows_has_no_recall():
    measures = DayMeasures(2)
    measures.update(np.zeros(3), np.zeros(3, dtype=bool), np.arange(3.0))
    (line,) = measures.lines(is_mirrored=False)
    assert line["precision_at_k"] == 0.0
    assert math.isnan(line["recall_at_k"])


def test_totals_of_stream_with_times_are_means_over_days():
    rng = np.random.default_rng(1)
    y = (rng.random(2000) < 0.1).astype(int)
    X = rng.normal(size=(2000, 3)) + y[:, None]
    time = np.arange(2000) * 900.0  # 96 rows per day
    result = prequential(ProximalSVC(), ArrayStream(X, y, chunk=50, time=time), k=5)
    days = result.days("ProximalSVC")
    assert days[0]["day"] == "1970-01-01"
    assert sum(day["rows"] for day in days) == result.summary()[0]["tested"]
    for name in ("precision_at_k", "recall_at_k"):
        known = [day[name] for day in days if not math.isnan(day[name])]
        assert result.totals("ProximalSVC")[name] == pytest.approx(np.mean(known))
    assert result.as_dict()["days"]["ProximalSVC"][3] == days[3]
    without_times = prequential(ProximalSVC(), X, y, k=5)
    assert without_times.days("ProximalSVC") == []


@pytest.mark.parametrize("chunk", [1, 7, 400])
def test_label_order_warning_with_counts_is_given_for_sorted_rows_only(chunk):
    codes = np.repeat([0, 1, 0], [200, 100, 100])
    rng = np.random.default_rng(0)
    X, shuffled = rng.normal(size=(400, 2)), rng.permutation(codes)
    ordered, mixed = (prequential(ProximalSVC(), X, y, chunk=chunk).order_notices for y in (codes, shuffled))
    assert "the label changes 2 times in 400 rows, and about 150 times in random order" in ordered[0]
    assert mixed == []
    assert label_order_warning(np.zeros(0, dtype=int), 0) is None


def test_result_of_sorted_rows_shows_the_warning():
    rng = np.random.default_rng(0)
    result = prequential(ProximalSVC(), rng.normal(size=(500, 2)), np.repeat([0, 1], 250))
    assert "note: the rows are sorted by label" in repr(result)
