"""Causes of a change from class statistics: prior, features, concept, and their columns."""

from __future__ import annotations

import numpy as np
import pytest

from steelyard import ProximalSVC
from steelyard.exceptions import DataError
from steelyard.proximal import ClassStatistics, compare_statistics
from steelyard.proximal.drift_report import compare_moments
from steelyard.proximal.statistics import ClassMoments


def make_rows(seed, n=3000, share=0.1):
    rng = np.random.default_rng(seed)
    y = np.where(rng.random(n) < share, "bad", "ok")
    X = rng.normal(size=(n, 5))
    X[y == "bad", 0] += 1.0
    return X, y


def report_of(before, after):
    models = [ProximalSVC().fit(*rows) for rows in (before, after)]
    return models[1].drift_report(models[0])


def test_drift_report_of_equal_distributions_has_no_cause():
    n_changed = sum(report_of(make_rows(2 * k), make_rows(2 * k + 1)).has_changed for k in range(40))
    assert n_changed <= 1


def test_higher_share_of_rare_class_is_reported_as_prior():
    report = report_of(make_rows(0), make_rows(1, share=0.2))
    assert report.causes == ["prior"]
    assert report.columns == []
    assert report.shares["bad"][1] > 1.5 * report.shares["bad"][0]


@pytest.mark.parametrize("change", [lambda x: x + 0.5, lambda x: 2.0 * x])
def test_change_of_column_in_all_classes_is_reported_as_features(change):
    X, y = make_rows(1)
    X[:, 3] = change(X[:, 3])
    report = report_of(make_rows(0), (X, y))
    assert report.causes[0] == "features"
    assert report.columns_of("features") == ["x3"]


def test_change_of_column_in_one_class_is_reported_as_concept_drift():
    X, y = make_rows(1)
    X[y == "bad", 2] += 1.5
    report = report_of(make_rows(0), (X, y))
    assert report.causes == ["concept"]
    assert report.columns_of("concept") == ["x2"]
    assert report.plane_correlation < 0.9


def test_change_of_correlation_in_one_class_is_reported_as_concept():
    X, y = make_rows(1, n=6000, share=0.3)
    bad = y == "bad"
    X[bad, 4] = 0.8 * X[bad, 1] + 0.6 * X[bad, 4]
    report = report_of(make_rows(0, n=6000, share=0.3), (X, y))
    assert report.causes == ["concept"]
    assert set(report.columns_of("concept")) == {"x1", "x4"}


def test_sum_of_site_statistics_gives_the_drift_report_of_all_rows():
    (X, y), (X2, y2) = make_rows(0), make_rows(1, share=0.2)
    sites = [ClassStatistics(5), ClassStatistics(5)]
    sites[0].add(X[:1000], y[:1000])
    sites[1].add(X[1000:], y[1000:])
    pooled, later = ClassStatistics(5), ClassStatistics(5)
    pooled.add(X, y)
    later.add(X2, y2)
    one, other = (compare_statistics(part, later) for part in (sites[0] + sites[1], pooled))
    assert one.p_values == pytest.approx(other.p_values, rel=1e-3)
    assert one.causes == other.causes


def test_moments_equal_slow_reference():
    X, y = make_rows(0)
    statistics = ClassStatistics(5)
    statistics.add(X, y)
    moments = ClassMoments.of(statistics)
    for label in ("bad", "ok"):
        rows = X[y == label]
        np.testing.assert_allclose(moments.mean(label), rows.mean(axis=0), atol=1e-6)
        np.testing.assert_allclose(moments.covariance(label), np.cov(rows.T, bias=True), atol=1e-5)


def test_constant_columns_and_few_rows_give_finite_report():
    X = np.column_stack([np.ones(60), np.arange(60.0)])
    y = np.repeat([0, 1], 30)
    parts = [ClassMoments.of_rows(rows, y, [0, 1]) for rows in (X, X)]
    report = compare_moments(*parts)
    assert not report.has_changed
    assert all(np.isfinite(p) for p in report.p_values.values())


def test_periods_with_different_columns_raise():
    one, two = ClassStatistics(2), ClassStatistics(3)
    with pytest.raises(DataError, match="same columns"):
        compare_statistics(one, two)


def test_text_html_and_dict_of_report_contain_cause_and_column():
    X, y = make_rows(1)
    X[:, 3] += 1.0
    report = report_of(make_rows(0), (X, y)).renamed(["a", "b", "c", "<d>", "e"])
    assert "<d>" in str(report)
    assert "&lt;d&gt;" in report._repr_html_()
    assert report.as_dict()["columns"][0]["column"] == "<d>"
