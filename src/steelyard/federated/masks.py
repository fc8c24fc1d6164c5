"""Secure aggregation by pairwise masks: the hub learns the sum over all sites and nothing about one site.

Statistics are integers in the steps of an agreed quantizer. Every pair of sites in a round shares a secret
pseudorandom stream. One site adds it to its numbers, the other subtracts it, modulo 2**256. A single message
is then indistinguishable from random numbers, and in the sum of all messages the masks cancel exactly.

This is the pairwise masking of Bonawitz et al., "Practical Secure Aggregation for Privacy-Preserving Machine
Learning" (CCS 2017), without recovery from dropouts. It is experimental and has not been reviewed externally.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import numpy as np

from steelyard.base import Label
from steelyard.exceptions import DataError, FileFormatError, ParameterError
from steelyard.federated.packing import from_numbers, to_numbers
from steelyard.federated.site_update import Schema, SiteUpdate
from steelyard.persistence.tree import decode, encode
from steelyard.proximal import ClassStatistics
from steelyard.proximal.quantizer import Quantizer
from steelyard.proximal.serialization import check_format, triangle_size, unpack_integers

_FORMAT = "steelyard masked statistics"
_VERSION = 2
_RECEIPT = "steelyard receipt of a masked part"
_NUMBER_BYTES = 32  # numbers are added modulo 2**256
_LIMBS = 8  # number of 32-bit limbs per number; a 64-bit integer can hold the sum of billions of limbs
_MAX_NUMBER_BITS = 200  # limit for the numbers of one site; much longer sums mean that masks did not cancel
_MIN_SITES = 3  # with two sites, each could subtract its own numbers from the sum


@dataclass(frozen=True)
class RoundKeys:
    """Public keys and parameters of a round, which all sites know before they send messages.

    Sites that compare :attr:`fingerprint` over a channel that the hub does not control can be sure that the
    hub has not replaced their keys by its own.

    Attributes
    ----------
    round : str
        Name of the round. A name must never be reused.
    keys : mapping of str to bytes
        Public key (:attr:`Masker.public_key`) of each participating site.
    schema : Schema
        Columns, and the categories of all sites.
    quantizer : Quantizer
        Quantizer of all sites.
    labels : sequence of label
        All classes, in order.
    """

    round: str
    keys: Mapping[str, bytes]
    schema: Schema
    quantizer: Quantizer
    labels: Sequence[Label]

    def __post_init__(self) -> None:
        source = "RoundKeys"
        if not self.round:
            raise DataError("a round needs a name.", source=source)
        check_enough_sites(len(self.keys), source)
        if len({bytes(key) for key in self.keys.values()}) < len(self.keys):
            raise DataError("two sites have the same public key.", source=source)
        if self.quantizer.n_features != self.schema.n_features:
            raise DataError(
                f"the quantizer has {self.quantizer.n_features} features, the schema has "
                f"{self.schema.n_features}.",
                source=source,
            )
        if not self.labels or len(set(self.labels)) < len(self.labels):
            raise DataError(f"labels must be distinct and not empty; got {self.labels!r}.", source=source)

    @property
    def sites(self) -> list[str]:
        """Sorted names of the participating sites."""
        return sorted(self.keys)

    @property
    def n_numbers(self) -> int:
        """Number of integers in a message."""
        return len(self.labels) * triangle_size(self.quantizer.n_features)

    @property
    def fingerprint(self) -> str:
        """Hash of all fields."""
        tree = {
            "round": self.round,
            "keys": [[site, self.keys[site].hex()] for site in self.sites],
            **self.schema.to_dict(),
            "grid": self.quantizer.to_dict(),
            "labels": [[type(label).__name__, str(label)] for label in self.labels],
        }
        return blake2b(
            json.dumps(tree, sort_keys=True).encode(), digest_size=32, person=b"steelyard round"
        ).hexdigest()


class Masker:
    """Site side of secure aggregation: holds a private key and masks site updates.

    The private key exists only in the memory of this object. A restarted site has a new key and needs a new
    round. Only one update can be masked per round, because two messages with the same masks would reveal
    their difference.

    Parameters
    ----------
    site : str
        The name of the site.

    Attributes
    ----------
    public_key : bytes
        Public key, to be sent to all other sites.
    """

    def __init__(self, site: str) -> None:
        x25519 = _cryptography()[0]
        self.site = site
        self._secret = x25519.X25519PrivateKey.generate()
        self.public_key: bytes = self._secret.public_key().public_bytes_raw()
        self._receipts: dict[str, bytes] = {}  # receipts by the name of the round

    def mask(self, site_update: SiteUpdate, agreement: RoundKeys) -> bytes:
        """Return the message of a round: the numbers of the update plus the masks of all pairs.

        Raises
        ------
        DataError
            If the round was used before, or the update belongs to another site or does not match the
            agreement. A failing call does not use up the round.
        """
        source = f"Masker {self.site!r}"
        self._check(site_update, agreement, source)
        statistics = _statistics_in(site_update, agreement.schema, source)
        numbers = to_numbers(statistics, agreement.labels, agreement.quantizer, source)
        if max(number.bit_length() for number in numbers) > _MAX_NUMBER_BITS:
            raise DataError(
                f"numbers of more than {_MAX_NUMBER_BITS} bits cannot be masked.",
                source=source,
                hint="use a coarser quantizer",
            )
        own = b"".join((n % (1 << 8 * _NUMBER_BYTES)).to_bytes(_NUMBER_BYTES, "little") for n in numbers)
        plus: list[bytes] = [own]
        minus: list[bytes] = []
        for other in agreement.sites:
            if other != self.site:
                (plus if self.site < other else minus).append(self._stream(other, agreement, source))
        masked = _sum(plus, minus)
        salt = secrets.token_bytes(32)
        head = {"version": _VERSION, "site": self.site, "agreement": agreement.fingerprint}
        private = {"round": agreement.round, "salt": salt, "numbers": np.frombuffer(own, np.uint8)}
        receipt = encode({**head, "format": _RECEIPT, **private})
        public = {"commitment": _commitment(salt, own), "numbers": np.frombuffer(masked, np.uint8)}
        message = encode({**head, "format": _FORMAT, **public})
        self._receipts[agreement.round] = receipt
        return message

    def receipt(self, round_name: str) -> bytes:
        """Return the receipt that :meth:`MaskedSum.withdraw` needs to subtract this site from a round.

        The receipt contains the unmasked numbers. Keep it secret until the site withdraws.
        """
        if round_name not in self._receipts:
            raise DataError(f"nothing was sent in round {round_name!r}.", source=f"Masker {self.site!r}")
        return self._receipts[round_name]

    def _check(self, site_update: SiteUpdate, agreement: RoundKeys, source: str) -> None:
        if site_update.site != self.site:
            raise DataError(f"this update belongs to site {site_update.site!r}.", source=source)
        if agreement.keys.get(self.site) != self.public_key:
            raise DataError(
                "the agreement does not contain the current public key of this site.",
                source=source,
                hint="the key was replaced, or the site was restarted: open a new round",
            )
        if agreement.round in self._receipts:
            raise DataError(
                f"round {agreement.round!r} was used before; two messages with the same masks would "
                "reveal their difference.",
                source=source,
                hint="send the message of that round again, or open a new round",
            )

    def _stream(self, other: str, agreement: RoundKeys, source: str) -> bytes:
        """Return the secret pseudorandom numbers that this site shares with one other site in a round."""
        x25519, hashes, hkdf, ciphers = _cryptography()
        try:
            shared = self._secret.exchange(x25519.X25519PublicKey.from_public_bytes(agreement.keys[other]))
        except ValueError as error:
            raise DataError(
                f"the public key of site {other!r} is invalid ({error}).", source=source
            ) from error
        pair = json.dumps(sorted([self.site, other])).encode()
        info = b"steelyard masks 1" + bytes.fromhex(agreement.fingerprint) + pair
        key = hkdf.HKDF(algorithm=hashes.SHA256(), length=32, salt=None, info=info).derive(shared)
        # The nonce can be constant, because every key is used for one pair of sites and one round only.
        cipher = ciphers.Cipher(ciphers.algorithms.ChaCha20(key, bytes(16)), mode=None)
        return bytes(cipher.encryptor().update(bytes(_NUMBER_BYTES * agreement.n_numbers)))

    def __repr__(self) -> str:
        return f"Masker({self.site!r})"  # the private key is not shown

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError("the private key of a site cannot be copied or saved")


class MaskedSum:
    """Hub side of secure aggregation: receives the message of every site and returns the sum.

    Parameters
    ----------
    agreement : RoundKeys
        Keys and parameters of the round.
    """

    def __init__(self, agreement: RoundKeys) -> None:
        self.agreement = agreement
        self._messages: dict[str, bytes] = {}
        self._commitments: dict[str, bytes] = {}
        self._withdrawn: dict[str, bytes] = {}

    @property
    def missing(self) -> list[str]:
        """Names of the sites whose message has not been received."""
        return [site for site in self.agreement.sites if site not in self._messages]

    @property
    def left(self) -> list[str]:
        """Names of the sites that have withdrawn."""
        return sorted(self._withdrawn)

    def receive(self, message: bytes) -> str:
        """Add the message of a site and return the name of the site; raise an error for another round."""
        source = "MaskedSum.receive"
        site, numbers, commitment = self._decoded(message, _FORMAT, "commitment", source)
        if self._messages.get(site, numbers) != numbers:
            raise DataError(
                f"site {site!r} has already sent a different message in this round.", source=source
            )
        self._messages[site], self._commitments[site] = numbers, commitment
        return site

    def withdraw(self, receipt: bytes) -> str:
        """Subtract the numbers of a site exactly and return the name of the site.

        The receipt reveals the numbers of the site. So does the difference between the sums with and without
        the site. The commitment in the message proves that the receipt contains the numbers that were sent.
        """
        source = "MaskedSum.withdraw"
        site, numbers, salt = self._decoded(receipt, _RECEIPT, "salt", source)
        if site not in self._messages:
            raise DataError(f"there is no message of site {site!r} to withdraw.", source=source)
        if _commitment(salt, numbers) != self._commitments[site]:
            raise DataError(
                f"the receipt does not match the message of site {site!r}; nothing was changed.",
                source=source,
            )
        self._withdrawn[site] = numbers
        return site

    def part(self, receipt: bytes) -> tuple[str, ClassStatistics]:
        """Return the site name and the statistics in a receipt, for use by the site itself."""
        site, numbers, _ = self._decoded(receipt, _RECEIPT, "salt", "MaskedSum.part")
        return site, from_numbers(
            unpack_integers(numbers, _NUMBER_BYTES), self.agreement.labels, self.agreement.quantizer
        )

    def _decoded(self, message: bytes, form: str, proof: str, source: str) -> tuple[str, bytes, bytes]:
        """Return site, numbers and the field ``proof`` (a commitment or a salt) of a message or receipt."""
        tree = _read(message, form, proof, source)
        site, numbers = tree["site"], tree["numbers"].tobytes()
        if site not in self.agreement.keys:
            raise DataError(
                f"site {site!r} does not participate in round {self.agreement.round!r}.", source=source
            )
        if tree["agreement"] != self.agreement.fingerprint:
            raise DataError(
                f"the message of {site!r} belongs to another round or another agreement.",
                source=source,
                hint="all sites must use the same round, keys, columns, quantizer and labels",
            )
        n_numbers = len(numbers) // _NUMBER_BYTES
        if n_numbers != self.agreement.n_numbers:
            raise DataError(
                f"the message of {site!r} has {n_numbers} numbers; {self.agreement.n_numbers} were expected.",
                source=source,
            )
        return site, numbers, tree[proof]

    def total(self) -> ClassStatistics:
        """Return the exact sum of the statistics of all sites that have not withdrawn.

        Raises
        ------
        DataError
            If a message is missing or the masks do not cancel. A modified message leaves numbers of 256
            random bits, while a valid sum has at most 200 bits plus the bits of the number of sites.
        """
        source, agreement = "MaskedSum.total", self.agreement
        if self.missing:
            raise DataError(
                f"round {agreement.round!r} has no message of {', '.join(map(repr, self.missing))}; without "
                "all messages the masks do not cancel.",
                source=source,
                hint="wait, or open a new round without these sites",
            )
        n_sites = len(agreement.keys) - len(self._withdrawn)
        if n_sites < _MIN_SITES:
            raise DataError(
                f"{n_sites} of {len(agreement.keys)} sites remain, and a sum of fewer than {_MIN_SITES} "
                "would reveal their numbers to each other.",
                source=source,
                hint="open a new round with more sites",
            )
        total = _sum(self._messages.values(), [*self._withdrawn.values()])
        numbers = unpack_integers(total, _NUMBER_BYTES)
        max_bits = _MAX_NUMBER_BITS + len(agreement.keys).bit_length()
        if max(number.bit_length() for number in numbers) > max_bits:
            raise DataError(
                "the masks do not cancel: a message was modified or used other masks.", source=source
            )
        return from_numbers(numbers, agreement.labels, agreement.quantizer)

    def site_update(self, *, epoch: int = 0) -> SiteUpdate:
        """Return the sum as one update for a :class:`Hub`. Its version grows with each withdrawn site."""
        name, version = f"the sum of round {self.agreement.round}", 1 + len(self._withdrawn)
        return SiteUpdate(name, epoch, version, self.agreement.schema, self.total())

    def __repr__(self) -> str:
        n_received = len(self._messages)
        return f"MaskedSum({self.agreement.round!r}, {n_received} of {len(self.agreement.keys)} sites)"


def check_enough_sites(n_sites: int, source: str) -> None:
    """Raise DataError if a round has so few sites that its sum would reveal their numbers to each other."""
    if n_sites < _MIN_SITES:
        raise DataError(
            f"a secure sum needs at least {_MIN_SITES} sites; got {n_sites}.",
            source=source,
            hint="with two sites, each could subtract its own numbers from the sum",
        )


def _statistics_in(site_update: SiteUpdate, schema: Schema, source: str) -> ClassStatistics:
    try:
        statistics = site_update.statistics_in(schema)
    except KeyError as error:
        raise DataError(f"column or category {error} is not in the agreed schema.", source=source) from error
    if site_update.schema.target != schema.target or len(site_update.schema.numeric) != len(schema.numeric):
        raise DataError("the columns of the site update do not match the agreed schema.", source=source)
    return statistics


def _read(message: bytes, form: str, proof: str, source: str) -> dict[str, Any]:
    tree: Any = decode(message)
    check_format(tree, "a masked message" if form == _FORMAT else "a receipt", form, (_VERSION,), source)
    numbers = tree.get("numbers")
    is_valid = (
        isinstance(numbers, np.ndarray) and numbers.dtype == np.uint8 and numbers.size % _NUMBER_BYTES == 0
    )
    has_names = all(isinstance(tree.get(name), str) for name in ("site", "agreement"))
    has_proof = isinstance(tree.get(proof), bytes) and len(tree[proof]) == _NUMBER_BYTES
    if not (is_valid and has_names and has_proof):
        raise FileFormatError("the masked message is damaged.", source=source)
    return dict(tree)


def round_of(receipt: bytes) -> str:
    """Return the name of the round to which a receipt belongs."""
    return str(_read(receipt, _RECEIPT, "salt", "the receipt").get("round"))


def _commitment(salt: bytes, numbers: bytes) -> bytes:
    """Return a commitment to the numbers of a site. The random salt hides the numbers."""
    return blake2b(numbers, key=salt, digest_size=32, person=b"steelyard part").digest()


def _sum(plus: Iterable[bytes], minus: Sequence[bytes]) -> bytes:
    """Return for each number the sum over ``plus`` minus the sum over ``minus``, modulo 2**256."""
    total = np.zeros(1, np.uint64)
    for limbs in plus:
        total = total + np.frombuffer(limbs, "<u4")
    for limbs in minus:
        total = total + ~np.frombuffer(limbs, "<u4")  # the two's complement, without the 1 added below
    numbers = total.reshape(-1, _LIMBS)
    numbers[:, 0] += np.uint64(len(minus))
    for limb in range(_LIMBS - 1):
        numbers[:, limb + 1] += numbers[:, limb] >> np.uint64(32)
    return numbers.astype("<u4").tobytes()  # drops the carries, also that of the last limb


def _cryptography() -> tuple[Any, Any, Any, Any]:
    try:
        from cryptography.hazmat.primitives import ciphers, hashes
        from cryptography.hazmat.primitives.asymmetric import x25519
        from cryptography.hazmat.primitives.kdf import hkdf
    except ImportError as error:
        raise ParameterError(
            "secure aggregation needs the package cryptography.",
            source="Masker",
            hint='pip install "steelyard[sites]"',
        ) from error
    return x25519, hashes, hkdf, ciphers
