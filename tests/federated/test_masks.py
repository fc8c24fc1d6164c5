"""Secure aggregation: the sum is exact and single messages reveal nothing."""

from __future__ import annotations

import copy
import dataclasses
import pickle

import numpy as np
import pandas as pd
import pytest
from scipy.stats import chi2

from steelyard import ProximalSVC
from steelyard.exceptions import DataError, FileFormatError
from steelyard.federated import Hub, MaskedSum, Masker, ReleasePolicy, RoundKeys, Site
from steelyard.federated.packing import from_numbers, to_numbers
from steelyard.federated.site_update import Schema
from steelyard.persistence.tree import decode, encode
from steelyard.proximal import ClassStatistics, Quantizer

pytest.importorskip("cryptography", reason="secure aggregation needs the extra 'sites'")

QUANTIZER = Quantizer.uniform(2, 2.0**-30)
SCHEMA = Schema("ill", ("age", "pressure"))
NAMES = ("a", "b", "c", "d")


def update_of(name, seed, n=60, quantizer=QUANTIZER):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, size=n)
    rows = pd.DataFrame({"age": rng.integers(20, 90, n) / 1.0, "pressure": rng.normal(size=n) + y, "ill": y})
    site = Site(name, "ill", policy=ReleasePolicy.open(), estimator=ProximalSVC(quantizer=quantizer))
    site.learn(rows)
    return site.publish()


@pytest.fixture
def site_updates():
    return {name: update_of(name, seed) for seed, name in enumerate(NAMES)}


@pytest.fixture
def maskers():
    return {name: Masker(name) for name in NAMES}


def agreement_of(maskers, round_name="first", **changes):
    keys = {name: masker.public_key for name, masker in maskers.items()}
    parts = {"round": round_name, "keys": keys, "schema": SCHEMA, "quantizer": QUANTIZER, "labels": (0, 1)}
    return RoundKeys(**{**parts, **changes})


def numbers_of(message):
    return decode(message)["numbers"]


def changed(message, **parts):
    """Return a message with changed fields and a valid checksum."""
    return encode({**decode(message), **parts})


def reference_numbers(X, y, labels, quantizer):
    """Return counts, sums and products, computed by loops over rows in Python integers."""
    numbers = []
    for label in labels:
        rows = [
            [*(int(np.floor(v / q + 0.5)) for v, q in zip(row, quantizer.steps, strict=True)), 1]
            for row, own in zip(X, y, strict=True)
            if own == label
        ]
        numbers += [
            sum(row[a] * row[b] for row in rows) << 20
            for a in range(quantizer.n_features + 1)
            for b in range(a + 1)
        ]
    return numbers


def test_to_numbers_equals_reference_implementation_and_round_trips():
    rng = np.random.default_rng(3)
    X, y = rng.normal(size=(40, 3)) * [1, 1e6, 1e-3], rng.integers(0, 2, 40)
    quantizer = Quantizer.uniform(3, 2.0**-20)
    statistics = ClassStatistics(3, quantizer=quantizer)
    statistics.add(X, y)
    numbers = to_numbers(statistics, (0, 1, 5), quantizer, "test")
    assert numbers == reference_numbers(X, y, (0, 1, 5), quantizer)
    back = from_numbers(numbers, (0, 1, 5), quantizer)
    assert back.digest() == statistics.digest()
    assert back.classes == [0, 1]


def test_to_numbers_with_fractional_weights_round_trips():
    quantizer = Quantizer.uniform(1, 0.5)
    statistics = ClassStatistics(1, quantizer=quantizer)
    statistics.add([[1.0], [2.5], [3.0]], [0, 0, 1], sample_weight=[0.25, 1.0, 2.0])
    assert (
        from_numbers(to_numbers(statistics, (0, 1), quantizer, "t"), (0, 1), quantizer).digest()
        == statistics.digest()
    )


def test_masked_total_equals_hub_digest(site_updates, maskers):
    agreement, hub = agreement_of(maskers), Hub()
    masked = MaskedSum(agreement)
    for name, site_update in site_updates.items():
        masked.receive(maskers[name].mask(site_update, agreement))
        hub.receive(site_update)
    assert masked.total().digest() == hub.digest()
    again = Hub()
    again.receive(masked.site_update())
    for part in ("coef_", "intercept_"):
        np.testing.assert_array_equal(
            getattr(again.model().estimator, part), getattr(hub.model().estimator, part)
        )


def test_masking_aligns_features_of_site_without_some_categories():
    schema = Schema("ill", ("age",), ("land",), (("land", "DE"), ("land", "FR"), ("land", "NZ")))
    quantizer, hub = Quantizer.uniform(4, 2.0**-10), Hub()
    maskers = {name: Masker(name) for name in "abc"}
    agreement = agreement_of(maskers, schema=schema, quantizer=quantizer)
    masked = MaskedSum(agreement)
    for seed, (name, land) in enumerate(zip("abc", ("DE", "FR", "NZ"), strict=True)):
        ages = np.random.default_rng(seed).integers(20, 90, 30)
        site = Site(name, "ill", policy=ReleasePolicy.open())
        site.learn(pd.DataFrame({"age": ages, "land": [land] * 30, "ill": ages % 2}))
        site_update = site.publish()
        hub.receive(site_update)
        masked.receive(maskers[name].mask(site_update, agreement))
    assert masked.total().digest() == hub.digest()


def bytes_look_uniform(data):
    counts = np.bincount(data, minlength=256)
    expected = len(data) / 256
    return bool(((counts - expected) ** 2 / expected).sum() < chi2.ppf(1 - 1e-9, 255))


def test_masked_message_bytes_are_uniform_and_differ_between_rounds():
    d = 12
    schema, quantizer = Schema("y", tuple(f"x{k:02}" for k in range(d))), Quantizer.uniform(d, 2.0**-30)
    maskers = {name: Masker(name) for name in "abc"}
    rng = np.random.default_rng(0)
    site = Site("a", "y", policy=ReleasePolicy.open(), estimator=ProximalSVC(quantizer=quantizer))
    site.learn(pd.DataFrame(rng.normal(size=(50, d)), columns=schema.numeric).assign(y=np.arange(50) % 2))
    site_update = site.publish()
    first, second = (
        numbers_of(
            maskers["a"].mask(site_update, agreement_of(maskers, name, schema=schema, quantizer=quantizer))
        )
        for name in ("first", "second")
    )
    assert bytes_look_uniform(first)
    assert bytes_look_uniform(first - second), "shared masks would show in the difference"
    plain = b"".join(
        number.to_bytes(32, "little", signed=True)
        for number in to_numbers(site_update.statistics, (0, 1), quantizer, "t")
    )
    assert not bytes_look_uniform(np.frombuffer(plain, np.uint8)), "control: unmasked numbers fail the test"


def test_total_with_missing_message_raises(site_updates, maskers):
    masked = MaskedSum(agreement := agreement_of(maskers))
    for name in "abd":
        masked.receive(maskers[name].mask(site_updates[name], agreement))
    with pytest.raises(DataError, match="no message of 'c'"):
        masked.total()


def test_mask_twice_in_one_round_raises(site_updates, maskers):
    agreement = agreement_of(maskers)
    maskers["a"].mask(site_updates["a"], agreement)
    with pytest.raises(DataError, match="round 'first' was used before"):
        maskers["a"].mask(site_updates["a"], agreement)
    fewer = {name: maskers[name] for name in "abc"}
    with pytest.raises(DataError, match="used before"):
        maskers["a"].mask(site_updates["a"], agreement_of(fewer))


def test_mask_incompatible_update_raises_and_keeps_round_usable(site_updates, maskers):
    agreement = agreement_of(maskers, labels=(0,))
    with pytest.raises(DataError, match="class 1 is not among the agreed labels"):
        maskers["a"].mask(site_updates["a"], agreement)
    assert maskers["a"].mask(site_updates["a"], agreement_of(maskers))


def test_receive_refuses_messages_with_wrong_round_site_or_content(site_updates, maskers):
    agreement, other = agreement_of(maskers), agreement_of(maskers, "second")
    masked = MaskedSum(agreement)
    message, late = (maskers["a"].mask(site_updates["a"], keys) for keys in (agreement, other))
    assert masked.receive(message) == "a"
    assert masked.receive(message) == "a", "receiving a message twice is idempotent"
    with pytest.raises(DataError, match="another round or another agreement"):
        masked.receive(late)
    with pytest.raises(DataError, match="'x' does not participate"):
        masked.receive(changed(message, site="x"))
    with pytest.raises(DataError, match="already sent a different message"):
        masked.receive(changed(message, numbers=numbers_of(message) ^ np.uint8(1)))
    with pytest.raises(DataError, match="11 numbers; 12 were expected"):
        masked.receive(changed(message, numbers=numbers_of(message)[32:].copy()))
    assert masked.missing == ["b", "c", "d"]


@pytest.mark.parametrize("index", [0, 100, -1])
def test_receive_damaged_bytes_raises(site_updates, maskers, index):
    agreement = agreement_of(maskers)
    message = bytearray(maskers["a"].mask(site_updates["a"], agreement))
    message[index] ^= 1
    with pytest.raises(FileFormatError):
        MaskedSum(agreement).receive(bytes(message))
    with pytest.raises(FileFormatError):  # another type of message
        MaskedSum(agreement).receive(site_updates["a"].to_bytes())


@pytest.mark.parametrize("number", [0, 5, 11])
def test_total_with_changed_number_and_valid_checksum_raises(site_updates, maskers, number):
    masked = MaskedSum(agreement := agreement_of(maskers))
    for name, site_update in site_updates.items():
        message = maskers[name].mask(site_update, agreement)
        if name == "b":
            numbers = numbers_of(message).copy()
            numbers[32 * number : 32 * number + 32] = np.random.default_rng(number).bytes(32)[0]
            message = changed(message, numbers=numbers)
        masked.receive(message)
    with pytest.raises(DataError, match="masks do not cancel"):
        masked.total()


def test_masking_an_update_with_another_quantizer_raises(maskers):
    finer = update_of("a", 0, quantizer=Quantizer.uniform(2, 2.0**-40))
    coarser = update_of("a", 0, quantizer=Quantizer.uniform(2, 2.0**-4))
    for site_update in (finer, coarser):
        with pytest.raises(DataError, match="not learned with the agreed quantizer"):
            maskers["a"].mask(site_update, agreement_of(maskers))


def test_mask_with_foreign_key_or_update_raises(site_updates, maskers):
    foreign = agreement_of({**maskers, "a": Masker("a")})
    with pytest.raises(DataError, match="current public key"):
        maskers["a"].mask(site_updates["a"], foreign)
    with pytest.raises(DataError, match="belongs to site 'b'"):
        maskers["a"].mask(site_updates["b"], agreement_of(maskers))
    weak = agreement_of(maskers)
    weak = dataclasses.replace(weak, keys={**weak.keys, "b": bytes(32)})
    with pytest.raises(DataError, match="public key of site 'b'"):
        maskers["a"].mask(site_updates["a"], weak)


def test_round_keys_with_two_sites_or_equal_keys_raise(maskers):
    two = {name: maskers[name] for name in "ab"}
    with pytest.raises(DataError, match="at least 3 sites"):
        agreement_of(two)
    keys = dict.fromkeys("abc", maskers["a"].public_key)
    with pytest.raises(DataError, match="same public key"):
        agreement_of(maskers, keys=keys)


def test_fingerprint_depends_on_every_field(maskers):
    plain = agreement_of(maskers)
    others = [
        agreement_of(maskers, "second"),
        agreement_of(maskers, labels=(1, 0)),
        agreement_of(maskers, labels=("0", "1")),
        agreement_of(maskers, quantizer=Quantizer.uniform(2, 2.0**-29)),
        agreement_of(maskers, schema=Schema("ill", ("age", "weight"))),
        agreement_of({**maskers, "d": Masker("d")}),
    ]
    assert len({each.fingerprint for each in [plain, *others]}) == 7
    assert agreement_of(maskers).fingerprint == plain.fingerprint


def test_masker_private_key_is_neither_printed_nor_copied(maskers):
    masker = maskers["a"]
    assert repr(masker) == "Masker('a')"
    assert masker._secret.private_bytes_raw().hex() not in str(vars(masker))
    for leak in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="cannot be copied or saved"):
            leak(masker)
