"""Default quantizer of a site, which makes updates short with a negligible loss of precision."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from steelyard import ProximalSVC
from steelyard.federated import Hub, ReleasePolicy, Site
from steelyard.proximal import ClassStatistics, Quantizer


def frame(n, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, n)
    columns = {
        "normal": rng.normal(y, 1.0),
        "far": rng.normal(1e6, 1.0, n),
        "tail": rng.standard_cauchy(n),
        "count": rng.integers(0, 9, n).astype(float),
        "half": rng.integers(0, 2, n) / 2.0,
        "one": np.full(n, 3.7),
    }
    return pd.DataFrame(columns).assign(y=y)


def fitted_site(rows, batch_ends=(), **options):
    site = Site("s", "y", policy=ReleasePolicy.open(), **options)
    for begin, end in zip((0, *batch_ends), (*batch_ends, len(rows)), strict=True):
        site.learn(rows.iloc[begin:end])
    return site


def typical(values):
    values = np.unique(values)
    middle = values[(len(values) - 1) // 2]
    return np.median(np.abs(values[values != middle] - middle))


def test_default_quantizer_has_fine_steps_for_reals_and_exact_steps_for_integers():
    rows = frame(3_000)
    quantizer = fitted_site(rows).publish().statistics.quantizer
    steps = dict(zip(rows.columns, 1.0 / quantizer.steps, strict=False))
    for name in ("normal", "far"):
        assert 2**24.5 <= typical(rows[name][:255]) * steps[name] <= 2**29.5
    assert 2**20.5 <= typical(rows["tail"][:255]) * steps["tail"] <= 2**25.5
    assert steps["count"] == 1.0
    assert steps["half"] == 2.0
    np.testing.assert_array_equal(quantizer.rounds, [True, True, True, False, False, False])


@pytest.mark.parametrize("batch_ends", [(1,), (100, 255), (254,), (255,), (256,), (10, 20, 300, 900)])
def test_default_quantizer_is_independent_of_batches(batch_ends):
    rows = frame(1_000)
    whole, cut = fitted_site(rows).publish().statistics, fitted_site(rows, batch_ends).publish().statistics
    assert cut.digest() == whole.digest()
    assert cut.quantizer == whole.quantizer


@pytest.mark.parametrize("n", [2, 40, 254, 255, 256, 1_000])
def test_published_sums_equal_statistics_with_same_quantizer(n):
    rows = frame(n)
    published = fitted_site(rows).publish().statistics
    expected = ClassStatistics(6, quantizer=published.quantizer)
    expected.add(rows.drop(columns="y").to_numpy(), rows["y"].to_numpy())
    assert published.digest() == expected.digest()


def test_pooled_model_equals_fit_on_all_rows_to_eight_digits():
    parts = [frame(2_000, seed) for seed in range(3)]
    hub = Hub()
    for k, rows in enumerate(parts):
        site = Site(f"s{k}", "y")
        site.learn(rows)
        hub.receive(site.publish())
    rows = pd.concat(parts)[list(hub.schema.numeric)].to_numpy()
    expected = ProximalSVC().fit(rows, pd.concat(parts)["y"].to_numpy())
    scores = expected.decision_function(rows)
    ours = hub.model().estimator.decision_function(rows)
    np.testing.assert_allclose(ours, scores, rtol=0, atol=1e-8 * np.abs(scores).max())


def test_quantizer_given_by_the_user_is_used_unchanged():
    quantizer = Quantizer.uniform(6, 2.0**-40)
    site = fitted_site(frame(600), estimator=ProximalSVC(quantizer=quantizer))
    assert (site.publish().statistics.quantizer.exponents == -40).all()


def test_forget_is_exact_for_rows_before_and_after_quantizer_choice():
    rows = frame(600)
    site = fitted_site(rows, (100,))
    site.forget(rows.iloc[50:450])
    kept = pd.concat([rows.iloc[:50], rows.iloc[450:]])
    expected = ClassStatistics(6, quantizer=site.publish().statistics.quantizer)
    expected.add(kept.drop(columns="y").to_numpy(), kept["y"].to_numpy())
    assert site.publish().statistics.digest() == expected.digest()


def test_category_that_appears_late_has_quantizer_step_one():
    rows = frame(600).assign(town=["a"] * 300 + ["b", "c"] * 150)
    site = fitted_site(rows, (280,))
    published = site.publish()
    assert published.statistics.quantizer.exponents[-3:].tolist() == [0, 0, 0]
    assert published.statistics.n_rows == 600


def test_failed_learn_does_not_choose_a_quantizer():
    rows = frame(600)
    site = fitted_site(rows.iloc[:100])
    bad = rows.iloc[100:].copy()
    bad.loc[590, "normal"] = np.inf
    with pytest.raises(ValueError, match="inf"):
        site.learn(bad)
    site.learn(rows.iloc[100:])
    assert site.publish().statistics.digest() == fitted_site(rows).publish().statistics.digest()
