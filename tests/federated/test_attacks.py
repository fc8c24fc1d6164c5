"""Attacks on published statistics: they succeed without protection and fail with it."""

from __future__ import annotations

import numpy as np
import pytest

from steelyard.exceptions import DataError
from steelyard.federated import MaskedSum, Masker, ReleasePolicy, RoundKeys, Site
from tests.federated.data import OPEN, agreed_site, numbers, table

SECRET = {"age": 77.0, "country": "FR", "pressure": 1.84375, "ill": 1}


def row_between(before, after, label):
    """Return the row learned between two updates, which is the difference of their sums."""
    names = [*after.schema.numeric, *after.schema.categories]
    difference = after.statistics.gram(label) - before.statistics.gram(label)
    values = dict(zip(names, -difference[-1, :-1], strict=True))
    row = {name: values[name] for name in after.schema.numeric}
    for column in after.schema.categorical:
        row[column] = max((pair for pair in names if pair[0] == column), key=values.get)[1]
    return row


def with_secret(site):
    frame = table(100, 0).iloc[[5]].assign(**SECRET)
    site.learn(frame)
    return site


def test_two_updates_with_open_policy_reveal_the_row_added_between_them():
    site = Site("a", "ill", policy=OPEN)
    site.learn(table(100, 0))
    before = site.publish()
    after = with_secret(site).publish()
    found = row_between(before, after, 1)
    assert found == {name: pytest.approx(SECRET[name]) if name != "country" else "FR" for name in found}
    assert set(found) == {"age", "country", "pressure"}


def test_publish_with_policy_raises_until_enough_rows_have_changed():
    site = Site("a", "ill")
    site.learn(table(100, 0))
    before = site.publish()
    with_secret(site)
    with pytest.raises(DataError, match="changed by fewer than 10 rows"):
        site.publish()
    site.learn(table(60, 1))
    found = row_between(before, site.publish(), 1)
    assert abs(found["age"] - SECRET["age"]) > 100, "the difference is a sum over many rows"


def test_single_row_class_is_revealed_by_open_policy_and_withheld_by_default():
    frame = table(100, 0)
    frame.loc[3, list(SECRET)] = list(SECRET.values())
    frame.loc[3, "ill"] = 9
    open_site, safe = Site("a", "ill", policy=OPEN), Site("a", "ill", policy=ReleasePolicy())
    for site in (open_site, safe):
        site.learn(frame.astype({"ill": int}))
    assert -open_site.publish().statistics.gram(9)[0, -1] == pytest.approx(77.0)
    assert 9 not in safe.publish().statistics.classes


def test_attacker_with_all_other_rows_recovers_last_row_despite_policy():
    """Documented limitation: the policy only counts rows. Noise protects against background knowledge."""
    site = Site("a", "ill")
    site.learn(table(100, 0))
    before = site.publish()
    with_secret(site)
    known = table(60, 1)
    site.learn(known)
    difference = row_between(before, site.publish(), 1)
    ages = known.loc[known["ill"] == 1, "age"].sum()
    assert difference["age"] - ages == pytest.approx(77.0)


@pytest.fixture
def round_of_three():
    pytest.importorskip("cryptography", reason="secure aggregation needs the extra 'sites'")
    sites = {name: agreed_site(name, numbers(60, seed)) for seed, name in enumerate("abc")}
    site_updates = {name: site.publish() for name, site in sites.items()}
    maskers = {name: Masker(name) for name in sites}
    keys = {name: masker.public_key for name, masker in maskers.items()}
    first = site_updates["a"]
    agreement = RoundKeys("r", keys, first.schema, first.statistics.quantizer, (0, 1))
    messages = {name: masker.mask(site_updates[name], agreement) for name, masker in maskers.items()}
    return site_updates, agreement, messages


def test_masked_sum_reveals_site_only_if_all_other_sites_collude(round_of_three):
    site_updates, agreement, messages = round_of_three
    total = MaskedSum(agreement)
    for message in messages.values():
        total.receive(message)
    alone = total.total() - site_updates["b"].statistics - site_updates["c"].statistics
    secret = site_updates["a"].statistics
    np.testing.assert_array_equal(alone.gram(1), secret.gram(1))
    pair = total.total() - site_updates["b"].statistics
    together = secret + site_updates["c"].statistics
    np.testing.assert_array_equal(pair.gram(1), together.gram(1))
    assert not np.array_equal(pair.gram(1), secret.gram(1)), "only the sum of two sites is revealed"
