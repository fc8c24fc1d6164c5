"""Rounds of secure aggregation through a folder, and withdrawal of a site."""

from __future__ import annotations

import threading

import pytest

from steelyard import ProximalSVC
from steelyard.exceptions import DataError, FileFormatError
from steelyard.federated import Folder, Hub, Masker, ReleasePolicy, Round, RoundConfig, Site
from steelyard.federated.masks import round_of
from tests.federated.data import OPEN, table

pytest.importorskip("cryptography", reason="secure aggregation needs the extra 'sites'")

NAMES = ("north", "south", "east", "west")
CONFIG = RoundConfig.of(
    NAMES,
    target="ill",
    numbers=["age", "pressure"],
    categories={"country": ["DE", "FR", "NZ"]},
    labels=[0, 1],
)


def rows(name):
    number = NAMES.index(name)
    return table(60 + number, number, ("FR", "NZ") if number == 2 else ("DE",))


def published(name, policy=OPEN):
    site = CONFIG.site(name, policy)
    site.learn(rows(name))
    return site.publish()


@pytest.fixture
def this(tmp_path):
    this = Round(Folder(tmp_path), "2026/week 7.a")
    this.open(CONFIG)
    return this


def all_send(this, names=NAMES, **options):
    """Send the updates of all sites, each in its own thread; return the maskers."""
    maskers, errors = {name: Masker(name) for name in names}, []

    def send(masker):
        try:
            this.send(masker, published(masker.site), **{"wait": 20.0, **options})
        except Exception as error:  # noqa: BLE001  raised again below, in the thread of the test
            errors.append(error)

    threads = [threading.Thread(target=send, args=[masker]) for masker in maskers.values()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return maskers


def open_digest(names):
    hub = Hub()
    for name in names:
        hub.receive(published(name))
    return hub.digest()


def test_round_sum_equals_sum_of_unmasked_updates(this):
    shown = []
    all_send(this, confirm=lambda agreement: shown.append(agreement.fingerprint))
    hub = Hub()
    hub.receive(this.sum().site_update())
    assert hub.digest() == open_digest(NAMES)
    assert len(shown) == 4
    assert len(set(shown)) == 1
    assert hub.schema.categories == (("country", "DE"), ("country", "FR"), ("country", "NZ"))


def test_leaving_a_round_subtracts_update_of_site_exactly(this):
    maskers = all_send(this)
    hub = Hub()
    hub.receive(this.sum().site_update())
    receipt = maskers["south"].receipt(this.name)
    assert round_of(receipt) == this.name
    with pytest.raises(DataError, match="does not belong to site 'north'"):
        this.leave("north", receipt)
    this.leave("south", receipt)
    assert this.sum().left == ["south"]
    assert hub.receive(this.sum().site_update()), "the sum has a newer version"
    assert hub.digest() == open_digest(["north", "east", "west"])
    this.leave("west", maskers["west"].receipt(this.name))
    with pytest.raises(DataError, match="2 of 4 sites remain"):
        this.sum().site_update()


def test_withdraw_foreign_or_forged_receipt_raises_and_keeps_sum(this):
    all_send(this)
    other = Round(this.folder, "other")
    other.open(CONFIG)
    foreign = all_send(other)["south"].receipt("other")
    with pytest.raises(DataError, match="another round"):
        this.sum().withdraw(foreign)
    total = this.sum()
    forged = Masker("south")
    with pytest.raises(DataError, match="nothing was sent"):
        forged.receipt(this.name)
    from steelyard.persistence.tree import decode, encode

    tree = {**decode(foreign), "agreement": total.agreement.fingerprint}
    with pytest.raises(DataError, match="does not match the message of site 'south'"):
        total.withdraw(encode(tree))
    with pytest.raises(FileFormatError, match="damaged"):
        total.withdraw(encode({**tree, "salt": b"short"}))
    assert total.left == []
    assert total.total().digest() == open_digest(NAMES)


def test_update_restored_from_receipt_resumes_the_site(this):
    maskers = all_send(this)
    part = this.part(maskers["east"].receipt(this.name))
    assert part.site == "east"
    assert part.statistics.digest() == published("east").statistics.digest()
    again = CONFIG.site("east", ReleasePolicy())
    again.learn(rows("east"))
    again.learn(table(3, 99))
    with pytest.raises(DataError, match="changed by fewer than 10 rows"):
        again.resume(part).publish()


def test_round_with_missing_keys_or_reused_name_raises(this):
    with pytest.raises(DataError, match="the key is missing from 'east', 'north', 'south', 'west'"):
        this.sum()
    masker = Masker("north")
    with pytest.raises(DataError, match="the key is missing from 'east'"):
        this.send(masker, published("north"), wait=0.1)
    with pytest.raises(DataError, match="has already written a key"):
        this.send(masker, published("north"), wait=0.1)
    with pytest.raises(DataError, match="already open"):
        this.open(CONFIG)
    with pytest.raises(DataError, match="'elsewhere' does not participate"):
        this.send(Masker("elsewhere"), published("north"))
    with pytest.raises(DataError, match="was not opened"):
        _ = Round(this.folder, "never").config


def test_send_without_confirmation_of_keys_writes_no_message(this):
    def refuse(_agreement):
        raise DataError("other fingerprints.")

    with pytest.raises(DataError, match="other fingerprints"):
        all_send(this, confirm=refuse)
    assert not list(this.folder.path.glob("*.masked"))


def test_learn_category_outside_schema_raises_and_keeps_state():
    site = CONFIG.site("north", OPEN)
    site.learn(table(40, 0, ("DE",)))
    before = site.publish().statistics.digest()
    with pytest.raises(DataError, match="'AU' of column 'country' is not in the agreed schema"):
        site.learn(table(40, 1, ("DE", "AU")))
    assert site.publish().statistics.digest() == before


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"format": "steelyard round", "version": 1, "round": "x"}']
)
def test_config_of_invalid_file_raises(tmp_path, text):
    (tmp_path / "x.round").write_text(text)
    with pytest.raises(FileFormatError, match="not the configuration of round 'x'"):
        _ = Round(Folder(tmp_path), "x").config


def test_open_with_two_sites_raises(tmp_path):
    few = RoundConfig.of(["a", "b", "a"], target="ill", numbers=["age"], categories={}, labels=[0, 1])
    with pytest.raises(DataError, match="at least 3 sites; got 2"):
        Round(Folder(tmp_path), "r").open(few)


def test_deprecated_site_parameter_and_round_attribute_warn(this):
    with pytest.warns(FutureWarning, match="'learner' of Site"):
        site = Site("a", "ill", learner=ProximalSVC(C=3.0))
    assert site.model.estimator.C == 3.0
    with pytest.warns(FutureWarning, match="'terms' of Round"):
        assert this.terms == CONFIG
