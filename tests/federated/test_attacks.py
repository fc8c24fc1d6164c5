"""What a curious party can find out, tried: without protection it works, with it it does not."""

from __future__ import annotations

import numpy as np
import pytest

from steelyard.exceptions import DataError
from steelyard.federated import MaskedSum, Masker, ReleasePolicy, RoundKeys, Site
from tests.federated.data import OPEN, agreed_site, numbers, table

SECRET = {"age": 77.0, "country": "FR", "pressure": 1.84375, "ill": 1}


def row_between(before, after, label):
    """The row that came between two bulletins: the difference of sums over one row is that row."""
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


def test_two_open_bulletins_give_the_whole_row_that_came_between():
    site = Site("a", "ill", policy=OPEN)
    site.learn(table(100, 0))
    before = site.publish()
    after = with_secret(site).publish()
    found = row_between(before, after, 1)
    assert found == {name: pytest.approx(SECRET[name]) if name != "country" else "FR" for name in found}
    assert set(found) == {"age", "country", "pressure"}


def test_the_policy_refuses_the_second_bulletin_until_enough_has_changed():
    site = Site("a", "ill")
    site.learn(table(100, 0))
    before = site.publish()
    with_secret(site)
    with pytest.raises(DataError, match="changed by fewer than 10 rows"):
        site.publish()
    site.learn(table(60, 1))
    found = row_between(before, site.publish(), 1)
    assert abs(found["age"] - SECRET["age"]) > 100, "a sum over many rows, not a row"


def test_a_class_of_one_row_is_that_row_and_the_policy_holds_it_back():
    frame = table(100, 0)
    frame.loc[3, list(SECRET)] = list(SECRET.values())
    frame.loc[3, "ill"] = 9
    open_one, safe = Site("a", "ill", policy=OPEN), Site("a", "ill", policy=ReleasePolicy())
    for site in (open_one, safe):
        site.learn(frame.astype({"ill": int}))
    assert -open_one.publish().statistics.gram(9)[0, -1] == pytest.approx(77.0)
    assert 9 not in safe.publish().statistics.classes


def test_who_knows_all_other_rows_of_a_change_knows_the_last_one_also_with_the_policy():
    """Said on the page: the policy counts rows, it does not know what others know. Noise is for that."""
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
    pytest.importorskip("cryptography", reason="secure sums need the extra 'sites'")
    sites = {name: agreed_site(name, numbers(60, seed)) for seed, name in enumerate("abc")}
    site_updates = {name: site.publish() for name, site in sites.items()}
    maskers = {name: Masker(name) for name in sites}
    keys = {name: masker.public_key for name, masker in maskers.items()}
    first = site_updates["a"]
    agreement = RoundKeys("r", keys, first.schema, first.statistics.quantizer, (0, 1))
    messages = {name: masker.mask(site_updates[name], agreement) for name, masker in maskers.items()}
    return site_updates, agreement, messages


def test_hub_and_all_other_sites_together_know_the_last_one_and_fewer_do_not(round_of_three):
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
    assert not np.array_equal(pair.gram(1), secret.gram(1)), "the sum of two, and no more"
