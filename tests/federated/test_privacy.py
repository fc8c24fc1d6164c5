"""Differential privacy: noise scale, accountant, and accuracy of the noisy model."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard import ProximalSVC
from steelyard.exceptions import DataError, ParameterError
from steelyard.federated import (
    FeatureBounds,
    Hub,
    MaskedSum,
    Masker,
    PrivacyAccountant,
    PrivateSite,
    RoundKeys,
    SiteUpdate,
    repaired,
)
from steelyard.federated.packing import to_numbers
from steelyard.federated.privacy import SENSITIVITY, delta_of, epsilon_of, multiplier_for
from steelyard.proximal import ClassStatistics

COLUMNS = ("age", "pressure")
UNITS = FeatureBounds({"age": 50.0, "pressure": 0.0}, {"age": 20.0, "pressure": 1.0}, norm=2.0)


def table(n, seed):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, size=n)
    return pd.DataFrame(
        {"age": rng.integers(20, 90, n) / 1.0, "pressure": rng.normal(size=n) + 2 * y, "ill": y}
    )


def private_site(name="a", seed=0, epsilon=1.0, limit=1.0, **options):
    return PrivateSite(
        name,
        "ill",
        units=UNITS,
        labels=[0, 1],
        epsilon=epsilon,
        account=PrivacyAccountant(limit),
        randomness=np.random.default_rng(seed).bytes,
        **options,
    )


def exact(frame):
    statistics = ClassStatistics(2, quantizer=UNITS.quantizer)
    clipped = UNITS.clip(frame)
    statistics.add(clipped[list(COLUMNS)].to_numpy(), clipped["ill"].to_numpy())
    return statistics


# -- the accountant, compared with dp-accounting ------------------------------------------------------


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0, 10.0])
@pytest.mark.parametrize("delta", [1e-3, 1e-5, 1e-8])
def test_multiplier_for_matches_dp_accounting(epsilon, delta):
    accounting = pytest.importorskip("dp_accounting", reason="the check needs the package dp-accounting")
    expected = accounting.get_sigma_gaussian(epsilon, delta, tol=1e-9)
    assert multiplier_for(epsilon, delta) == pytest.approx(expected, rel=1e-6)


def test_accountant_composition_matches_dp_accounting():
    accounting = pytest.importorskip("dp_accounting", reason="the check needs the package dp-accounting")
    pld = pytest.importorskip("dp_accounting.pld", reason="the check needs the package dp-accounting")
    account, reference = PrivacyAccountant(50.0, delta=1e-5), pld.PLDAccountant()
    for multiplier in (4.0, 3.0, 3.0, 1.5):
        account.charge(multiplier)
        reference.compose(accounting.GaussianDpEvent(multiplier))
    assert account.spent == pytest.approx(reference.get_epsilon(1e-5), rel=1e-3)
    assert account.releases == 4


@given(st.floats(0.01, 30.0), st.sampled_from([1e-3, 1e-6, 1e-9]))
@settings(max_examples=60, deadline=None)
def test_multiplier_for_is_inverse_of_epsilon_of(epsilon, delta):
    multiplier = multiplier_for(epsilon, delta)
    assert epsilon_of(multiplier, delta) == pytest.approx(epsilon, rel=1e-6)
    assert delta_of(epsilon, multiplier * 0.99) > delta, "less noise is not private enough"


def test_publish_beyond_budget_raises_and_charges_nothing():
    site = private_site(epsilon=1.0, limit=1.4)
    site.learn(table(50, 0))
    first = site.publish()
    spent = site.account.spent
    with pytest.raises(
        DataError, match=r"epsilon to 1\.47 at delta 1e-05; the budget is 1\.4, of which 1 is spent"
    ):
        site.publish()
    assert (site.account.spent, site.account.releases, first.version) == (spent, 1, 1)
    site.account.epsilon = 3.0
    assert site.publish().version == 2


@pytest.mark.parametrize("bad", [{"epsilon": 0.0}, {"epsilon": math.inf}, {"epsilon": 1.0, "delta": 0.0}])
def test_accountant_with_invalid_parameters_raises(bad):
    with pytest.raises(ParameterError):
        PrivacyAccountant(**bad)


# -- clipping and noise -------------------------------------------------------------------------------


@given(
    st.floats(-1e9, 1e9),
    st.floats(-1e9, 1e9),
    st.integers(0, 1),
)
@settings(max_examples=100, deadline=None)
def test_single_row_changes_numbers_by_at_most_the_sensitivity(age, pressure, ill):
    frame = pd.DataFrame({"age": [age], "pressure": [pressure], "ill": [ill]})
    numbers = to_numbers(exact(frame), (0, 1), UNITS.quantizer, "test")
    powers = np.tile([60, 60, 60, 30, 30, 0], 2) + 20  # xx, yx, yy, sum x, sum y, count
    assert np.linalg.norm(np.ldexp(np.array(numbers, dtype=float), -powers)) <= SENSITIVITY


def test_clipped_row_changes_numbers_by_the_full_sensitivity():
    frame = pd.DataFrame({"age": [1e6], "pressure": [0.0], "ill": [1]})
    numbers = to_numbers(exact(frame), (0, 1), UNITS.quantizer, "test")[6:]
    norm = np.linalg.norm(np.ldexp(np.array(numbers, dtype=float), -np.array([80, 80, 80, 50, 50, 20])))
    assert norm == pytest.approx(SENSITIVITY, rel=1e-8)


def test_clip_rows_only_rescales_and_does_not_modify_input():
    frame = table(30, 0)
    before = frame.copy()
    clipped = UNITS.clip(frame)
    rows = (frame[list(COLUMNS)].to_numpy() - [50.0, 0.0]) / [20.0, 1.0] / 2.0
    inside = np.linalg.norm(rows, axis=1) < 0.999
    assert 3 < inside.sum() < 30
    np.testing.assert_allclose(clipped[list(COLUMNS)].to_numpy()[inside], rows[inside], rtol=1e-12)
    assert (np.linalg.norm(clipped[list(COLUMNS)].to_numpy(), axis=1) < 1.0).all()
    pd.testing.assert_frame_equal(frame, before)


def test_published_noise_has_stated_standard_deviation():
    frame, seen = table(80, 0), []
    powers = np.tile([60, 60, 60, 30, 30, 0], 2) + 20
    before = np.array(to_numbers(exact(frame), (0, 1), UNITS.quantizer, "t"), dtype=float)
    for seed in range(150):
        site = private_site(seed=seed)
        site.learn(frame)
        noisy = to_numbers(site.publish().statistics, (0, 1), UNITS.quantizer, "t")
        seen.append(np.ldexp(np.array(noisy, dtype=float) - before, -powers) / site.sigma)
    seen = np.array(seen)
    assert seen.std() == pytest.approx(1.0, abs=4 / math.sqrt(2 * seen.size))
    np.testing.assert_allclose(seen.std(axis=0), 1.0, atol=4.5 / math.sqrt(2 * 150))
    np.testing.assert_allclose(seen.mean(axis=0), 0.0, atol=4.5 / math.sqrt(150))
    correlation = np.corrcoef(seen.T) - np.eye(12)
    assert np.abs(correlation).max() < 4.5 / math.sqrt(150), "the noise of different numbers is independent"


def test_publish_twice_draws_new_noise():
    site = PrivateSite("a", "ill", units=UNITS, labels=[0, 1], epsilon=1.0, account=PrivacyAccountant(5.0))
    site.learn(table(40, 0))
    assert site.publish().statistics.digest() != site.publish().statistics.digest()


def test_learn_unknown_class_missing_column_or_nan_raises_and_keeps_state():
    site = private_site()
    with pytest.raises(DataError, match="class 7 is not among the agreed labels"):
        site.learn(table(10, 0).assign(ill=7))
    with pytest.raises(DataError, match="no column 'age'"):
        site.learn(table(10, 0).drop(columns="age"))
    with pytest.raises(DataError, match="no missing values"):
        site.learn(table(10, 0).assign(age=np.nan))
    with pytest.raises(DataError, match="no rows yet"):
        site.publish()
    assert site.account.releases == 0


def test_row_added_between_two_updates_is_revealed_only_without_noise():
    rows, one = table(60, 0), pd.DataFrame({"age": [61.0], "pressure": [0.5], "ill": [1]})
    truth = UNITS.clip(one)[list(COLUMNS)].to_numpy()[0]

    def sums(statistics):
        return -statistics.gram(1)[-1, :2]

    both = pd.concat([rows, one], ignore_index=True)
    np.testing.assert_allclose(sums(exact(both)) - sums(exact(rows)), truth, atol=1e-8)
    errors = []
    for seed in range(20):
        site = private_site(seed=seed, limit=2.0)
        site.learn(rows)
        before = sums(site.publish().statistics)
        site.learn(one)
        errors.append(np.linalg.norm(sums(site.publish().statistics) - before - truth))
    assert np.median(errors) > 2.0, "the error exceeds the largest distance of two clipped rows"


# -- the model ----------------------------------------------------------------------------------------


def model_of(hub, sigma):
    clean = Hub()
    clean.receive(SiteUpdate("all", 0, 1, hub.schema, repaired(hub.statistics, sigma)))
    return clean.model()


def accuracy(model, frame):
    clipped = UNITS.clip(frame)
    answers = [answer.labels for _, answer in model.predictions(clipped.drop(columns="ill"))]
    return float((np.concatenate(answers) == frame["ill"]).mean())


def test_noisy_model_with_many_rows_is_as_accurate_as_exact_model():
    hub = Hub()
    for seed, name in enumerate("abc"):
        site = private_site(name, seed)
        site.learn(table(2_000, seed))
        hub.receive(site.publish())
    test = table(3_000, 9)
    exact_model = ProximalSVC().merge(exact(pd.concat([table(2_000, seed) for seed in range(3)])))
    rows = UNITS.clip(test)[list(COLUMNS)].to_numpy()
    best = float((exact_model.predict(rows) == test["ill"]).mean())
    assert accuracy(model_of(hub, site.sigma * math.sqrt(3)), test) > best - 0.01


@pytest.mark.parametrize("seed", range(5))
def test_repaired_statistics_with_noise_larger_than_data_give_finite_model(seed):
    site, hub = private_site(seed=seed, epsilon=0.05), Hub()
    site.learn(table(8, 0))
    hub.receive(site.publish())
    assert np.isfinite(model_of(hub, site.sigma).estimator.coef_).all()


def test_receive_noisy_update_replaces_previous_one():
    hub, sites = Hub(), [private_site(name, seed, epsilon=0.2) for seed, name in enumerate("abc")]
    for seed, site in enumerate(sites):
        site.learn(table(20, seed))
        hub.receive(site.publish())
    sites[0].account.epsilon = 5.0
    latest = sites[0].publish()
    assert hub.receive(latest)
    fresh = Hub()
    fresh.receive(latest)
    for site_update in (hub._site_updates["b"], hub._site_updates["c"]):
        fresh.receive(site_update)
    assert hub.digest() == fresh.digest()


def test_private_sites_with_secure_aggregation_share_noise():
    pytest.importorskip("cryptography", reason="secure aggregation needs the extra 'sites'")
    maskers, hub = {name: Masker(name) for name in "abcd"}, Hub()
    sites = [private_site(name, seed, share=1 / 4) for seed, name in enumerate("abcd")]
    masked = None
    for seed, site in enumerate(sites):
        site.learn(table(30, seed))
        site_update = site.publish()
        keys = {name: masker.public_key for name, masker in maskers.items()}
        agreement = RoundKeys("r", keys, site_update.schema, UNITS.quantizer, (0, 1))
        masked = masked or MaskedSum(agreement)
        masked.receive(maskers[site.name].mask(site_update, agreement))
        hub.receive(site_update)
    assert masked.total().digest() == hub.digest()
    total_sigma = math.sqrt(sum(site.sigma**2 for site in sites))
    assert total_sigma == pytest.approx(SENSITIVITY * multiplier_for(1.0, 1e-5))
