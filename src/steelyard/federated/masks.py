"""Secure sums: the hub learns the sum over all sites, and nothing of a single one.

Statistics are whole numbers on an agreed grid. Every two sites of a round share a secret stream of numbers;
one of them adds it to its own, the other subtracts it, everything modulo 2**256. Each message by itself is
then as good as random, and in the sum of all the streams cancel, to the last bit.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from steelyard.base import Label
from steelyard.exceptions import DataError, FileFormatError, ParameterError
from steelyard.federated.site_update import Schema, SiteUpdate
from steelyard.federated.vectors import from_numbers, to_numbers, triangle_size
from steelyard.persistence.tree import decode, encode
from steelyard.proximal import ClassStatistics
from steelyard.proximal.state.quantizer import Quantizer

__all__ = ["MaskedSum", "Masker", "RoundKeys", "round_of"]

_FORMAT = "steelyard masked statistics"
_VERSION = 2
_RECEIPT = "steelyard receipt of a masked part"
_BYTES = 32  # of a number: sums are taken modulo 2**256
_LIMBS = 8  # of 32 bits, so that sums of billions of them fit 64
_ROOM = 200  # bits that a site's numbers may have: a sum outside of it shows that something is wrong
_LEAST_SITES = 3  # of two, each knows the other by subtracting itself

Words = NDArray[np.uint64]


@dataclass(frozen=True)
class RoundKeys:
    """What all sites of a round agree on before anything is sent; none of it is secret.

    Whoever compares :attr:`fingerprint` with the other sites, by a way that the hub does not control, knows
    that the keys are those of the sites and not the hub's own.

    Attributes
    ----------
    round : str
        Names the round; never used twice.
    keys : mapping of str to bytes
        The sites that take part, each with its public key (:attr:`Masker.public_key`).
    schema : Schema
        Columns, and the categories of all sites.
    grid : Quantizer
        The steps in which all sites count.
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
            raise DataError("a round needs a name that was never used before.", source=source)
        if len(self.keys) < _LEAST_SITES:
            raise DataError(
                f"a secure sum needs at least {_LEAST_SITES} sites; got {len(self.keys)}.",
                source=source,
                hint="of two, each knows the other's part by subtracting its own from the sum",
            )
        if len({bytes(key) for key in self.keys.values()}) < len(self.keys):
            raise DataError("two sites have the same public key.", source=source)
        if self.quantizer.n_features != self.schema.n_features:
            raise DataError(
                f"the grid has {self.quantizer.n_features} features, the schema {self.schema.n_features}.",
                source=source,
            )
        if not self.labels or len(set(self.labels)) < len(self.labels):
            raise DataError(
                f"labels must be different, and at least one; got {self.labels!r}.", source=source
            )

    @property
    def sites(self) -> list[str]:
        """Who takes part, sorted."""
        return sorted(self.keys)

    @property
    def n_numbers(self) -> int:
        """How many numbers a message holds."""
        return len(self.labels) * triangle_size(self.quantizer.n_features)

    @property
    def fingerprint(self) -> str:
        """A name for all of it: equal only if everything that was agreed on is."""
        columns = self.schema
        tree = {
            "round": self.round,
            "keys": [[site, self.keys[site].hex()] for site in self.sites],
            "target": columns.target,
            "numeric": list(columns.numeric),
            "categorical": list(columns.categorical),
            "categories": [list(pair) for pair in columns.categories],
            "grid": self.quantizer.to_dict(),
            "labels": [[type(label).__name__, str(label)] for label in self.labels],
        }
        return blake2b(
            json.dumps(tree, sort_keys=True).encode(), digest_size=32, person=b"steelyard round"
        ).hexdigest()


class Masker:
    """A site's side: keeps a secret key and masks bulletins.

    The secret lives in memory alone and belongs to this object; a site that starts anew has a new key and
    needs a new agreement. One round masks one bulletin: two under the same masks would show their difference.

    Parameters
    ----------
    site : str
        The name of the site.

    Attributes
    ----------
    public_key : bytes
        To be given to all others.
    """

    def __init__(self, site: str) -> None:
        x25519 = _cryptography()[0]
        self.site = site
        self._secret = x25519.X25519PrivateKey.generate()
        self.public_key: bytes = self._secret.public_key().public_bytes_raw()
        self._receipts: dict[str, bytes] = {}  # of the rounds that were used

    def mask(self, site_update: SiteUpdate, agreement: RoundKeys) -> bytes:
        """The message of a round: what the bulletin holds, hidden by the masks of all pairs.

        Raises
        ------
        DataError
            If the round was used before, the bulletin is not this site's or does not fit the agreement; then
            the round is not used up.
        """
        source = f"Masker {self.site!r}"
        self._check(site_update, agreement, source)
        numbers = to_numbers(
            _placed(site_update, agreement.schema, source), agreement.labels, agreement.quantizer, source
        )
        if max(number.bit_length() for number in numbers) > _ROOM:
            raise DataError(
                f"sums of more than {_ROOM} bits do not fit a secure sum.",
                source=source,
                hint="use a coarser grid",
            )
        own = _words(numbers)
        plus: list[Words] = [own]
        minus: list[Words] = []
        for other in agreement.sites:
            if other != self.site:
                (plus if self.site < other else minus).append(self._stream(other, agreement, source))
        masked = _difference(_sum(plus), _sum(minus))
        salt = secrets.token_bytes(32)
        head = {"version": _VERSION, "site": self.site, "agreement": agreement.fingerprint}
        receipt = encode(
            {**head, "format": _RECEIPT, "round": agreement.round, "salt": salt, "numbers": _flat(own)}
        )
        message = encode(
            {**head, "format": _FORMAT, "commitment": _commitment(salt, own), "numbers": _flat(masked)}
        )
        self._receipts[agreement.round] = receipt
        return message

    def receipt(self, round_name: str) -> bytes:
        """What takes this site's part out of the sum of a round again (:meth:`MaskedSum.withdraw`).

        It holds the part unmasked: it stays here until the site leaves.
        """
        if round_name not in self._receipts:
            raise DataError(f"nothing was sent in round {round_name!r}.", source=f"Masker {self.site!r}")
        return self._receipts[round_name]

    def _check(self, site_update: SiteUpdate, agreement: RoundKeys, source: str) -> None:
        if site_update.site != self.site:
            raise DataError(f"this is a bulletin of {site_update.site!r}.", source=source)
        if agreement.keys.get(self.site) != self.public_key:
            raise DataError(
                "the agreement does not hold the present public key of this site.",
                source=source,
                hint="someone else's key, or one of before a restart: agree anew, under a new round",
            )
        if agreement.round in self._receipts:
            raise DataError(
                f"round {agreement.round!r} was used before; two messages under the same masks would show "
                "their difference.",
                source=source,
                hint="send the message of that round again, or agree on a new round",
            )

    def _stream(self, other: str, agreement: RoundKeys, source: str) -> Words:
        """The numbers that this site and another share in this round, and nobody else knows."""
        x25519, hashes, hkdf, ciphers = _cryptography()
        try:
            shared = self._secret.exchange(x25519.X25519PublicKey.from_public_bytes(agreement.keys[other]))
        except ValueError as error:
            raise DataError(f"the public key of {other!r} is none ({error}).", source=source) from error
        pair = json.dumps(sorted([self.site, other])).encode()
        info = b"steelyard masks 1" + bytes.fromhex(agreement.fingerprint) + pair
        key = hkdf.HKDF(algorithm=hashes.SHA256(), length=32, salt=None, info=info).derive(shared)
        # A key is of one pair and one round, so that the nonce may be the same for all.
        cipher = ciphers.Cipher(ciphers.algorithms.ChaCha20(key, bytes(16)), mode=None)
        stream = cipher.encryptor().update(bytes(_BYTES * agreement.n_numbers))
        return np.frombuffer(stream, dtype="<u4").reshape(-1, _LIMBS).astype(np.uint64)

    def __repr__(self) -> str:
        return f"Masker({self.site!r})"  # the secret stays one

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError("the secret key of a site is not copied or saved")


class MaskedSum:
    """The hub's side of one round: takes the message of every site and gives the sum.

    Parameters
    ----------
    agreement : RoundKeys
        What the sites agreed on.
    """

    def __init__(self, agreement: RoundKeys) -> None:
        self.agreement = agreement
        self._messages: dict[str, Words] = {}
        self._commitments: dict[str, bytes] = {}
        self._left: dict[str, Words] = {}

    @property
    def missing(self) -> list[str]:
        """Sites whose message has not come."""
        return [site for site in self.agreement.sites if site not in self._messages]

    @property
    def left(self) -> list[str]:
        """Sites whose part was taken out again."""
        return sorted(self._left)

    def receive(self, message: bytes) -> str:
        """Take in the message of a site and return its name; one that does not fit is refused."""
        source = "MaskedSum.receive"
        site, numbers, commitment = self._opened(message, _FORMAT, "commitment", source)
        known = self._messages.get(site)
        if known is not None and not np.array_equal(known, numbers):
            raise DataError(f"site {site!r} has sent another message in this round before.", source=source)
        self._messages[site], self._commitments[site] = numbers, commitment
        return site

    def withdraw(self, receipt: bytes) -> str:
        """Take the part of a site out again, exactly, and return its name.

        The receipt shows that part, as the difference of the sums with and without it would; that it is the
        part that was sent is checked.
        """
        source = "MaskedSum.withdraw"
        site, numbers, salt = self._opened(receipt, _RECEIPT, "salt", source)
        if site not in self._messages:
            raise DataError(f"there is no message of {site!r} that could be taken out.", source=source)
        if _commitment(salt, numbers) != self._commitments[site]:
            raise DataError(
                f"this is not what {site!r} has sent in this round; nothing was changed.", source=source
            )
        self._left[site] = numbers
        return site

    def part(self, receipt: bytes) -> tuple[str, ClassStatistics]:
        """The site of a receipt and its part alone: for the site itself."""
        site, numbers, _ = self._opened(receipt, _RECEIPT, "salt", "MaskedSum.part")
        return site, from_numbers(_signed(numbers), self.agreement.labels, self.agreement.quantizer)

    def _opened(self, message: bytes, form: str, mark: str, source: str) -> tuple[str, Words, bytes]:
        """Site, numbers and mark of a message of this round."""
        tree = _read(message, form, mark, source)
        site, numbers = tree["site"], tree["numbers"]
        if site not in self.agreement.keys:
            raise DataError(
                f"site {site!r} does not take part in round {self.agreement.round!r}.", source=source
            )
        if tree["agreement"] != self.agreement.fingerprint:
            raise DataError(
                f"the message of {site!r} belongs to another round or another agreement.",
                source=source,
                hint="all sites must agree on round, keys, columns, grid and labels",
            )
        words = np.frombuffer(numbers.tobytes(), dtype="<u4").reshape(-1, _LIMBS).astype(np.uint64)
        if len(words) != self.agreement.n_numbers:
            raise DataError(
                f"the message of {site!r} has {len(words)} numbers; {self.agreement.n_numbers} were "
                "expected.",
                source=source,
            )
        return site, words, tree[mark]

    def total(self) -> ClassStatistics:
        """The statistics of all sites that have not left, exactly.

        Raises
        ------
        DataError
            If a site is missing, with its name, or if the masks do not cancel: a number that was changed
            blindly is of 256 random bits, and only sums of at most 200 and a few are taken.
        """
        source = "MaskedSum.total"
        agreement = self.agreement
        if self.missing:
            raise DataError(
                f"round {agreement.round!r} has no message of {', '.join(map(repr, self.missing))}; without "
                "all messages the masks do not cancel.",
                source=source,
                hint="wait, or agree on a new round of those that are left",
            )
        n_sites = len(agreement.keys) - len(self._left)
        if n_sites < _LEAST_SITES:
            raise DataError(
                f"{n_sites} of {len(agreement.keys)} sites are left, and a sum of fewer than {_LEAST_SITES} "
                "would show them to each other.",
                source=source,
                hint="agree on a new round with more sites, or forget this one",
            )
        numbers = _signed(_difference(_sum(self._messages.values()), _sum(self._left.values())))
        if max(number.bit_length() for number in numbers) > _ROOM + len(agreement.keys).bit_length():
            raise DataError(
                "the masks do not cancel: a message was changed or masked otherwise.", source=source
            )
        return from_numbers(numbers, agreement.labels, agreement.quantizer)

    def site_update(self, *, epoch: int = 0) -> SiteUpdate:
        """The sum as one bulletin, for a :class:`Hub`; a newer version when a site has left."""
        name, version = f"the sum of round {self.agreement.round}", 1 + len(self._left)
        return SiteUpdate(name, epoch, version, self.agreement.schema, self.total())

    def __repr__(self) -> str:
        there = len(self._messages)
        return f"MaskedSum({self.agreement.round!r}, {there} of {len(self.agreement.keys)} sites)"


def _placed(site_update: SiteUpdate, schema: Schema, source: str) -> ClassStatistics:
    try:
        places = site_update.schema.places_in(schema)
    except KeyError as error:
        raise DataError(f"column or category {error} is none of those agreed on.", source=source) from error
    if site_update.schema.target != schema.target or len(site_update.schema.numeric) != len(schema.numeric):
        raise DataError("the columns of the bulletin are not those agreed on.", source=source)
    return site_update.statistics.permute_features(places, schema.n_features)


def _read(message: bytes, form: str, mark: str, source: str) -> dict[str, Any]:
    tree: Any = decode(message)
    if not isinstance(tree, Mapping) or tree.get("format") != form:
        what = "a masked message" if form == _FORMAT else "a receipt"
        raise FileFormatError(f"these bytes are not {what}.", source=source)
    if tree.get("version") != _VERSION:
        raise FileFormatError(
            f"the message has version {tree.get('version')!r}; this library reads version {_VERSION}.",
            source=source,
            hint="update the library on this side",
        )
    numbers = tree.get("numbers")
    right = isinstance(numbers, np.ndarray) and numbers.dtype == np.uint8 and numbers.size % _BYTES == 0
    texts = all(isinstance(tree.get(name), str) for name in ("site", "agreement"))
    marked = isinstance(tree.get(mark), bytes) and len(tree[mark]) == _BYTES
    if not (right and texts and marked):
        raise FileFormatError("the masked message is damaged.", source=source)
    return dict(tree)


def round_of(receipt: bytes) -> str:
    """The round that a receipt is of."""
    return str(_read(receipt, _RECEIPT, "salt", "the receipt").get("round"))


def _commitment(salt: bytes, numbers: Words) -> bytes:
    """Binds a site to its part and, for the salt is random, tells nothing of it."""
    content = numbers.astype("<u4").tobytes()
    return blake2b(content, key=salt, digest_size=32, person=b"steelyard part").digest()


def _flat(numbers: Words) -> NDArray[np.uint8]:
    return np.frombuffer(numbers.astype("<u4").tobytes(), dtype=np.uint8)


# -- whole numbers modulo 2**256, as rows of eight limbs ---------------------------------------------


def _words(numbers: Iterable[int]) -> Words:
    data = b"".join((number % (1 << 8 * _BYTES)).to_bytes(_BYTES, "little") for number in numbers)
    return np.frombuffer(data, dtype="<u4").reshape(-1, _LIMBS).astype(np.uint64)


def _signed(words: Words) -> list[int]:
    data = words.astype("<u4").tobytes()
    return [
        int.from_bytes(data[at : at + _BYTES], "little", signed=True) for at in range(0, len(data), _BYTES)
    ]


def _sum(parts: Iterable[Words]) -> Words:
    """The sum, limbs brought below 2**32 again; what goes beyond the last limb is a multiple of 2**256."""
    total: Words = np.sum(list(parts), axis=0, dtype=np.uint64)
    if total.ndim == 0:  # of nothing
        return np.zeros((1, _LIMBS), np.uint64)
    for limb in range(_LIMBS - 1):
        total[:, limb + 1] += total[:, limb] >> np.uint64(32)
    return total & np.uint64(0xFFFFFFFF)


def _difference(one: Words, other: Words) -> Words:
    """One minus the other: the complement of a number, plus one, is its negative."""
    complement = other ^ np.uint64(0xFFFFFFFF)
    unit = np.zeros((1, _LIMBS), np.uint64)
    unit[0, 0] = 1
    return _sum([np.broadcast_to(part, one.shape) for part in (one, complement, unit)])


def _cryptography() -> tuple[Any, Any, Any, Any]:
    try:
        from cryptography.hazmat.primitives import ciphers, hashes
        from cryptography.hazmat.primitives.asymmetric import x25519
        from cryptography.hazmat.primitives.kdf import hkdf
    except ImportError as error:
        raise ParameterError(
            "secure sums need the package cryptography.",
            source="Masker",
            hint='pip install "steelyard[sites]"',
        ) from error
    return x25519, hashes, hkdf, ciphers
