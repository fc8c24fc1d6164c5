"""Masks compared with published test vectors of the primitives and with a slow reference implementation."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("cryptography", reason="secure sums need the package cryptography")

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from steelyard.federated import Masker
from steelyard.federated.packing import to_numbers
from tests.federated import reference_masks as reference
from tests.federated.test_masks import agreement_of, numbers_of, update_of

# Expected results of the masking scheme. They change only with the version of the protocol.
FINGERPRINT = "18f4c7baca2c061786f970f6b10eec111618302b4b399e4413c9bd4ce1410c34"
FIRST_NUMBER = "0x910f892df6d8e22c488a85d3769772f01b485513eead0dbd1802497a31920169"
SECRETS = {name: bytes([k + 1]) * 32 for k, name in enumerate("abc")}


def test_reference_x25519_matches_vectors_of_rfc_7748():
    scalar = bytes.fromhex("a546e36bf0527c9d3b16154b82465edd62144c0ac1fc5a18506a2244ba449ac4")
    point = bytes.fromhex("e6db6867583030db3594c1a424b15f7c726624ec26b3353b10a903a6d0ab1c4c")
    shared = "c3da55379de9c6908e94ea4df28d084f32eccf03491c71f754b4075577a28552"
    assert reference.x25519(scalar, point).hex() == shared


def test_reference_hkdf_matches_vector_of_rfc_5869():
    info, salt = bytes.fromhex("f0f1f2f3f4f5f6f7f8f9"), bytes.fromhex("000102030405060708090a0b0c")
    expected = "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865"
    assert reference.hkdf(bytes([11] * 22), info, 42, salt).hex() == expected


def test_reference_chacha20_matches_vector_of_rfc_8439():
    start = (1).to_bytes(4, "little") + bytes.fromhex("000000090000004a00000000")
    block = reference.chacha20(bytes(range(32)), start, 64).hex()
    assert block.startswith("10f1e7e4d13b5915500fdd1fa32071c4c7d1f4c733c068030422aa9ac3d46c4e")


def masker_with_key(name):
    masker = Masker(name)
    masker._secret = X25519PrivateKey.from_private_bytes(SECRETS[name])
    masker.public_key = masker._secret.public_key().public_bytes_raw()
    return masker


def reference_stream(one, other, agreement):
    """Return the numbers that two sites share, from the formula of the scheme."""
    public = reference.x25519(SECRETS[other], (9).to_bytes(32, "little"))
    shared = reference.x25519(SECRETS[one], public)
    pair = json.dumps(sorted([one, other])).encode()
    info = b"steelyard masks 1" + bytes.fromhex(agreement.fingerprint) + pair
    stream = reference.chacha20(reference.hkdf(shared, info, 32), bytes(16), 32 * agreement.n_numbers)
    return [int.from_bytes(stream[k : k + 32], "little") for k in range(0, len(stream), 32)]


def test_masked_message_equals_reference_implementation():
    maskers = {name: masker_with_key(name) for name in SECRETS}
    agreement = agreement_of(maskers, round_name="vectors")
    updates = {name: update_of(name, seed) for seed, name in enumerate(SECRETS)}
    for name, masker in maskers.items():
        numbers = to_numbers(updates[name].statistics, agreement.labels, agreement.quantizer, "test")
        for other in SECRETS:
            if other != name:
                sign = 1 if name < other else -1
                stream = reference_stream(name, other, agreement)
                numbers = [n + sign * mask for n, mask in zip(numbers, stream, strict=True)]
        expected = b"".join((n % 2**256).to_bytes(32, "little") for n in numbers)
        assert numbers_of(masker.mask(updates[name], agreement)).tobytes() == expected


def test_masks_of_fixed_keys_do_not_change_between_versions():
    maskers = {name: masker_with_key(name) for name in SECRETS}
    agreement = agreement_of(maskers, round_name="vectors")
    assert agreement.fingerprint == FINGERPRINT
    assert hex(reference_stream("a", "b", agreement)[0]) == FIRST_NUMBER
