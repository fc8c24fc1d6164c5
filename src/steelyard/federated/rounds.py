"""A secure sum through a folder: terms, public keys and masked messages, each a file that is written once.

Whoever opens a round writes down what all agree on. Every site then puts its public key there, waits for
those of the others, and puts its masked message. Secrets stay in the memory of the process that made them.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from steelyard.base import Label
from steelyard.exceptions import DataError, FileAccessError, FileFormatError
from steelyard.federated.exchange import Folder
from steelyard.federated.masks import MaskedSum, Masker, RoundKeys
from steelyard.federated.release import ReleasePolicy
from steelyard.federated.site import Site
from steelyard.federated.site_update import Schema, SiteUpdate
from steelyard.proximal import ProximalSVC
from steelyard.proximal.state.quantizer import Quantizer

__all__ = ["Round", "RoundConfig"]

_FORMAT = "steelyard round"
_VERSION = 1
_PAUSE = 0.05  # seconds between two looks at the folder


@dataclass(frozen=True)
class RoundConfig:
    """What everybody agrees on before keys are known; nothing of it is secret.

    Attributes
    ----------
    sites : tuple of str
        Who takes part: at least three.
    schema : Schema
        Columns and categories of all.
    labels : tuple of label
        All classes.
    step : int
        Values are counted in steps of ``2.0**step``.
    """

    sites: tuple[str, ...]
    schema: Schema
    labels: tuple[Label, ...]
    step: int = -30

    @property
    def quantizer(self) -> Quantizer:
        """The steps in which all sites count."""
        return Quantizer.uniform(self.schema.n_features, 2.0**self.step)

    def site(self, name: str, policy: ReleasePolicy | None = None) -> Site:
        """A site that counts the agreed columns in the agreed steps."""
        learner = ProximalSVC(quantizer=self.quantizer)
        return Site(name, self.schema.target, policy=policy, learner=learner, schema=self.schema)

    def to_json(self, name: str) -> bytes:
        """The terms of a round, to be read by people as well."""
        schema = self.schema
        values = {column: [v for c, v in schema.categories if c == column] for column in schema.categorical}
        tree = {
            "format": _FORMAT,
            "version": _VERSION,
            "round": name,
            "sites": list(self.sites),
            "target": schema.target,
            "numbers": list(schema.numeric),
            "categories": values,
            "labels": list(self.labels),
            "step": self.step,
        }
        return json.dumps(tree, indent=1, ensure_ascii=False).encode()

    @classmethod
    def from_json(cls, data: bytes, name: str) -> RoundConfig:
        """The terms in a file; anything else is refused with a sentence."""
        try:
            tree: Any = json.loads(data)
            head = tree["format"], tree["version"], tree["round"]
            terms = cls.of(
                tree["sites"],
                target=tree["target"],
                numbers=tree["numbers"],
                categories=tree["categories"],
                labels=tree["labels"],
                step=tree["step"],
            )
            terms.to_json(name)  # what cannot be written down again
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
            raise FileFormatError(f"these are not the terms of round {name!r} ({error}).") from error
        if head != (_FORMAT, _VERSION, name):
            raise FileFormatError(f"these are not the terms of round {name!r}: {head}.")
        return terms

    @classmethod
    def of(
        cls,
        sites: Sequence[str],
        *,
        target: str,
        numbers: Sequence[str],
        categories: Mapping[str, Sequence[str]],
        labels: Sequence[Label],
        step: int = -30,
    ) -> RoundConfig:
        """RoundConfig from plain values, in one order whoever names them."""
        pairs = sorted((str(c), str(v)) for c, values in categories.items() for v in values)
        schema = Schema(
            str(target), tuple(sorted(map(str, numbers))), tuple(sorted(map(str, categories))), tuple(pairs)
        )
        if not -60 <= int(step) <= 60 or schema.n_features > 10_000:
            raise ValueError(f"{schema.n_features} features in steps of 2**{step}")
        if not all(isinstance(label, str | int) for label in labels):
            raise TypeError("labels are texts or whole numbers")
        schema.check()
        return cls(tuple(sorted(set(map(str, sites)))), schema, tuple(labels), int(step))


class Round:
    """One secure sum in a folder.

    Parameters
    ----------
    folder : Folder
        What sites and hub share.
    name : str
        Names the round; never used twice.
    """

    def __init__(self, folder: Folder, name: str) -> None:
        self.folder, self.name = folder, name
        self._source = f"round {name!r}"

    def open(self, terms: RoundConfig) -> None:
        """Write the terms down; a round is opened once."""
        if self._read("round") is not None:
            raise DataError("this round was opened before.", source=self._source, hint="a round is used once")
        if len(terms.sites) < 3:
            raise DataError(
                f"a secure sum needs at least 3 sites; got {len(terms.sites)}.",
                source=self._source,
                hint="of two, each knows the other's part by subtracting its own from the sum",
            )
        self.folder.write(self._name("round"), terms.to_json(self.name))

    @property
    def terms(self) -> RoundConfig:
        """What all agree on."""
        data = self._read("round")
        if data is None:
            raise DataError(
                f"it was not opened in {self.folder.path}.", source=self._source, hint="steelyard hub open"
            )
        return RoundConfig.from_json(data, self.name)

    # -- a site ---------------------------------------------------------------------------------------

    def send(
        self,
        masker: Masker,
        site_update: SiteUpdate,
        *,
        wait: float = 600.0,
        confirm: Callable[[RoundKeys], None] = lambda _: None,
    ) -> tuple[RoundKeys, bytes]:
        """Give the public key, wait for those of the others, then give the masked bulletin.

        Parameters
        ----------
        masker : Masker
            Of the site.
        bulletin : SiteUpdate
            What is to be summed.
        wait : float, default=600.0
            Seconds to wait for the keys of the others.
        confirm : callable, optional
            Sees the agreement before anything is masked; whatever it raises stops the site here.

        Returns
        -------
        RoundKeys, bytes
            What was agreed on, and the message.
        """
        if masker.site not in self.terms.sites:
            raise DataError(f"{masker.site!r} does not take part.", source=self._source)
        if self._read("key", masker.site) is not None:
            raise DataError(
                f"{masker.site!r} has given a key before, and a secret lives as long as its process.",
                source=self._source,
                hint="open a new round",
            )
        self.folder.write(self._name("key", masker.site), masker.public_key.hex().encode())
        agreement = self.agreement(wait)
        confirm(agreement)
        message = masker.mask(site_update, agreement)
        self.folder.write(self._name("masked", masker.site), message)
        return agreement, message

    def part(self, receipt: bytes) -> SiteUpdate:
        """What the site of a receipt has sent in this round: for itself alone, to go on after it."""
        total = MaskedSum(self.agreement())
        site, statistics = total.part(receipt)
        return SiteUpdate(site, 0, 1, self.terms.schema, statistics)

    def leave(self, site: str, receipt: bytes) -> None:
        """Take a part out again: whoever sums from now on leaves it out."""
        total = self.sum()
        if total.withdraw(receipt) != site:
            raise DataError(f"this receipt is not one of {site!r}.", source=self._source)
        self.folder.write(self._name("left", site), receipt)

    # -- the hub --------------------------------------------------------------------------------------

    def agreement(self, wait: float = 0.0) -> RoundKeys:
        """What was agreed on, when the keys of all sites are there."""
        terms = self.terms
        keys = self._all("key", terms.sites, wait)
        try:
            public = {site: bytes.fromhex(key.decode("ascii")) for site, key in keys.items()}
        except ValueError as error:
            raise FileFormatError(
                f"a file of this round is no public key ({error}).", source=self._source
            ) from error
        return RoundKeys(self.name, public, terms.schema, terms.quantizer, terms.labels)

    def sum(self, wait: float = 0.0) -> MaskedSum:
        """The sum of all sites that have not left."""
        total = MaskedSum(self.agreement(wait))
        for site, message in self._all("masked", self.terms.sites, wait).items():
            if total.receive(message) != site:
                raise FileFormatError(
                    f"the message under the name of {site!r} is another's.", source=self._source
                )
        for site in self.terms.sites:
            receipt = self._read("left", site)
            if receipt is not None:
                total.withdraw(receipt)
        return total

    # -- files ----------------------------------------------------------------------------------------

    def _name(self, kind: str, site: str | None = None) -> str:
        parts = [self.name] if site is None else [self.name, site]
        name = ".".join(quote(part, safe="").replace(".", "%2E") for part in parts)
        if not self.name or len(name) > 240:
            raise DataError(f"a round {self.name[:40]!r} has no room in a file's name.")
        return f"{name}.{kind}"

    def _read(self, kind: str, site: str | None = None) -> bytes | None:
        path = Path(self.folder.path / self._name(kind, site))
        try:
            return path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise FileAccessError(f"cannot be read: {error.strerror or error}.", source=str(path)) from error

    def _all(self, kind: str, sites: Sequence[str], wait: float) -> dict[str, bytes]:
        """The files of all sites, as soon as they are there."""
        until = time.monotonic() + wait
        while True:
            found = {site: self._read(kind, site) for site in sites}
            missing = [site for site, data in found.items() if data is None]
            if not missing:
                return {site: data for site, data in found.items() if data is not None}
            if time.monotonic() >= until:
                what = "key" if kind == "key" else "message"
                raise DataError(
                    f"no {what} came from {', '.join(map(repr, missing))}.",
                    source=self._source,
                    hint="wait longer, or open a new round of those that are there",
                )
            time.sleep(_PAUSE)
