"""Secure sums through a folder, and how a site leaves one."""

from __future__ import annotations

import threading

import pytest

from steelyard.exceptions import DataError, FileFormatError
from steelyard.federated import Folder, Hub, Masker, ReleasePolicy, Round, RoundConfig
from steelyard.federated.masks import round_of
from tests.federated.data import OPEN, table

pytest.importorskip("cryptography", reason="secure sums need the extra 'sites'")

NAMES = ("north", "south", "east", "west")
TERMS = RoundConfig.of(
    NAMES,
    target="ill",
    numbers=["age", "pressure"],
    categories={"country": ["DE", "FR", "NZ"]},
    labels=[0, 1],
)


def rows(name):
    number = NAMES.index(name)
    return table(60 + number, number, ("FR", "NZ") if number == 2 else ("DE",))


def open_bulletin(name, policy=OPEN):
    site = TERMS.site(name, policy)
    site.learn(rows(name))
    return site.publish()


@pytest.fixture
def this(tmp_path):
    this = Round(Folder(tmp_path), "2026/week 7.a")
    this.open(TERMS)
    return this


def all_send(this, names=NAMES, **options):
    """All at once, each in its own thread; gives the maskers."""
    maskers, trouble = {name: Masker(name) for name in names}, []

    def send(masker):
        try:
            this.send(masker, open_bulletin(masker.site), **{"wait": 20.0, **options})
        except Exception as error:  # noqa: BLE001  raised again below, in the thread of the test
            trouble.append(error)

    threads = [threading.Thread(target=send, args=[masker]) for masker in maskers.values()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if trouble:
        raise trouble[0]
    return maskers


def open_digest(names):
    hub = Hub()
    for name in names:
        hub.receive(open_bulletin(name))
    return hub.digest()


def test_the_sum_of_a_round_has_the_bits_of_open_bulletins(this):
    shown = []
    all_send(this, confirm=lambda agreement: shown.append(agreement.fingerprint))
    hub = Hub()
    hub.receive(this.sum().site_update())
    assert hub.digest() == open_digest(NAMES)
    assert len(shown) == 4
    assert len(set(shown)) == 1
    assert hub.schema.categories == (("country", "DE"), ("country", "FR"), ("country", "NZ"))


def test_a_site_that_leaves_subtracts_itself_to_the_last_bit(this):
    maskers = all_send(this)
    hub = Hub()
    hub.receive(this.sum().site_update())
    receipt = maskers["south"].receipt(this.name)
    assert round_of(receipt) == this.name
    with pytest.raises(DataError, match="not one of 'north'"):
        this.leave("north", receipt)
    this.leave("south", receipt)
    assert this.sum().left == ["south"]
    assert hub.receive(this.sum().site_update()), "a newer version of the same sum"
    assert hub.digest() == open_digest(["north", "east", "west"])
    this.leave("west", maskers["west"].receipt(this.name))
    with pytest.raises(DataError, match="2 of 4 sites are left"):
        this.sum().site_update()


def test_what_was_not_sent_cannot_be_taken_out(this):
    all_send(this)
    other = Round(this.folder, "other")
    other.open(TERMS)
    strange = all_send(other)["south"].receipt("other")
    with pytest.raises(DataError, match="another round"):
        this.sum().withdraw(strange)
    total = this.sum()
    forged = Masker("south")
    with pytest.raises(DataError, match="nothing was sent"):
        forged.receipt(this.name)
    from steelyard.persistence.tree import decode, encode

    tree = {**decode(strange), "agreement": total.agreement.fingerprint}
    with pytest.raises(DataError, match="not what 'south' has sent"):
        total.withdraw(encode(tree))
    with pytest.raises(FileFormatError, match="damaged"):
        total.withdraw(encode({**tree, "salt": b"short"}))
    assert total.left == []
    assert total.total().digest() == open_digest(NAMES)


def test_a_site_knows_its_own_part_again(this):
    maskers = all_send(this)
    part = this.part(maskers["east"].receipt(this.name))
    assert part.site == "east"
    assert part.statistics.digest() == open_bulletin("east").statistics.digest()
    again = TERMS.site("east", ReleasePolicy())
    again.learn(rows("east"))
    again.learn(table(3, 99))
    with pytest.raises(DataError, match="changed by fewer than 10 rows"):
        again.resume(part).publish()


def test_who_is_missing_is_named_and_a_round_is_opened_once(this):
    with pytest.raises(DataError, match="no key came from 'east', 'north', 'south', 'west'"):
        this.sum()
    masker = Masker("north")
    with pytest.raises(DataError, match="no key came from 'east'"):
        this.send(masker, open_bulletin("north"), wait=0.1)
    with pytest.raises(DataError, match="has given a key before"):
        this.send(masker, open_bulletin("north"), wait=0.1)
    with pytest.raises(DataError, match="opened before"):
        this.open(TERMS)
    with pytest.raises(DataError, match="'elsewhere' does not take part"):
        this.send(Masker("elsewhere"), open_bulletin("north"))
    with pytest.raises(DataError, match="was not opened"):
        _ = Round(this.folder, "never").terms


def test_a_site_that_does_not_confirm_sends_nothing(this):
    def refuse(_agreement):
        raise DataError("other fingerprints.")

    with pytest.raises(DataError, match="other fingerprints"):
        all_send(this, confirm=refuse)
    assert not list(this.folder.path.glob("*.masked"))


def test_a_category_that_was_not_agreed_on_is_refused_and_nothing_is_learned():
    site = TERMS.site("north", OPEN)
    site.learn(table(40, 0, ("DE",)))
    before = site.publish().statistics.digest()
    with pytest.raises(DataError, match="'AU' of column 'country' is none of those agreed on"):
        site.learn(table(40, 1, ("DE", "AU")))
    assert site.publish().statistics.digest() == before


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"format": "steelyard round", "version": 1, "round": "x"}']
)
def test_terms_that_are_none_are_refused(tmp_path, text):
    (tmp_path / "x.round").write_text(text)
    with pytest.raises(FileFormatError, match="not the terms of round 'x'"):
        _ = Round(Folder(tmp_path), "x").terms


def test_two_sites_are_too_few(tmp_path):
    few = RoundConfig.of(["a", "b", "a"], target="ill", numbers=["age"], categories={}, labels=[0, 1])
    with pytest.raises(DataError, match="at least 3 sites; got 2"):
        Round(Folder(tmp_path), "r").open(few)
