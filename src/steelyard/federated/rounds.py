"""Secure aggregation through a folder with write-once files: configuration, public keys and messages.

The organizer of a round writes its configuration. Every site then writes its public key, waits for the keys
of the other sites, and writes its masked message. Private keys stay in the memory of their process.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from steelyard._deprecation import renamed_attribute, renamed_parameters
from steelyard.base import Label
from steelyard.exceptions import DataError, FileFormatError
from steelyard.federated.exchange import Folder
from steelyard.federated.masks import MaskedSum, Masker, RoundKeys, check_enough_sites
from steelyard.federated.site import ReleasePolicy, Site
from steelyard.federated.site_update import Schema, SiteUpdate
from steelyard.proximal import ProximalSVC
from steelyard.proximal.quantizer import Quantizer

_FORMAT = "steelyard round"
_VERSION = 1
_FIELDS = ("sites", "target", "numbers", "categories", "labels", "step")
_POLL_SECONDS = 0.05
_MAX_FILE_NAME_CHARS = 240  # limit of the length of a file name without its suffix


@dataclass(frozen=True)
class RoundConfig:
    """Configuration of a round: the public parameters that all sites use.

    Attributes
    ----------
    sites : tuple of str
        Names of the participating sites, at least three.
    schema : Schema
        Columns and categories of all sites.
    labels : tuple of label
        All classes.
    step : int
        Exponent of the quantization step, which is ``2.0**step``.
    """

    sites: tuple[str, ...]
    schema: Schema
    labels: tuple[Label, ...]
    step: int = -30

    @property
    def quantizer(self) -> Quantizer:
        """Quantizer of all sites."""
        return Quantizer.uniform(self.schema.n_features, 2.0**self.step)

    def site(self, name: str, policy: ReleasePolicy | None = None) -> Site:
        """Return a new site with the agreed schema and quantizer."""
        estimator = ProximalSVC(quantizer=self.quantizer)
        return Site(name, self.schema.target, policy=policy, estimator=estimator, schema=self.schema)

    def to_json(self, name: str) -> bytes:
        """Return the configuration as indented JSON."""
        schema = self.schema
        values = {column: [v for c, v in schema.categories if c == column] for column in schema.categorical}
        fields = self.sites, schema.target, schema.numeric, values, self.labels, self.step
        head = {"format": _FORMAT, "version": _VERSION, "round": name}
        tree = {**head, **dict(zip(_FIELDS, fields, strict=True))}
        return json.dumps(tree, indent=1, ensure_ascii=False).encode()

    @classmethod
    def from_json(cls, data: bytes, name: str) -> RoundConfig:
        """Return the configuration that ``data`` contains as JSON; raise FileFormatError if it is invalid."""
        try:
            tree: Any = json.loads(data)
            head = tree["format"], tree["version"], tree["round"]
            config = cls.of(**{field: tree[field] for field in _FIELDS})
            config.to_json(name)  # raises an error if the values cannot be written again
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
            raise FileFormatError(f"this is not the configuration of round {name!r} ({error}).") from error
        if head != (_FORMAT, _VERSION, name):
            raise FileFormatError(f"this is not the configuration of round {name!r}: {head}.")
        return config

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
        """Return a configuration from plain values. Names are sorted, so their order does not matter."""
        pairs = sorted((str(c), str(v)) for c, values in categories.items() for v in values)
        schema = Schema.of(target, sorted(map(str, numbers)), sorted(map(str, categories)), pairs)
        if not -60 <= int(step) <= 60 or schema.n_features > 10_000:
            raise ValueError(
                f"at most 10,000 features and a step exponent of -60 to 60 are allowed; got "
                f"{schema.n_features} and {step}"
            )
        if not all(isinstance(label, str | int) for label in labels):
            raise TypeError("labels must be strings or integers")
        return cls(tuple(sorted(set(map(str, sites)))), schema, tuple(labels), int(step))


class Round:
    """Round of secure aggregation in a folder.

    Parameters
    ----------
    folder : Folder
        Folder shared by sites and hub.
    name : str
        Name of the round. A name must never be reused.
    """

    def __init__(self, folder: Folder, name: str) -> None:
        self.folder, self.name = folder, name
        self._source = f"round {name!r}"

    @renamed_parameters(terms="config")
    def open(self, config: RoundConfig) -> None:
        """Write the configuration of the round; a round can be opened only once."""
        if self._read("round") is not None:
            raise DataError(
                "this round is already open.", source=self._source, hint="use a new name for every round"
            )
        check_enough_sites(len(config.sites), self._source)
        self.folder.write(self._name("round"), config.to_json(self.name))

    @property
    def config(self) -> RoundConfig:
        """Configuration of the round."""
        data = self._read("round")
        if data is None:
            raise DataError(
                f"this round was not opened in {self.folder.path}.",
                source=self._source,
                hint="steelyard hub open",
            )
        return RoundConfig.from_json(data, self.name)

    terms = renamed_attribute("config", "terms")

    # -- methods of a site -------------------------------------------------------------------------------

    def send(
        self,
        masker: Masker,
        site_update: SiteUpdate,
        *,
        wait: float = 600.0,
        confirm: Callable[[RoundKeys], None] = lambda _: None,
    ) -> tuple[RoundKeys, bytes]:
        """Write the public key, wait for the keys of the other sites, then write the masked update.

        Parameters
        ----------
        masker : Masker
            Masker of the site.
        site_update : SiteUpdate
            The update to be summed.
        wait : float, default=600.0
            Seconds to wait for the keys of the other sites.
        confirm : callable, optional
            Called with the round keys before the update is masked. If it raises, no update is written.

        Returns
        -------
        RoundKeys, bytes
            The keys of the round and the masked message.
        """
        if masker.site not in self.config.sites:
            raise DataError(f"site {masker.site!r} does not participate.", source=self._source)
        if self._read("key", masker.site) is not None:
            raise DataError(
                f"site {masker.site!r} has already written a key, and its private key is not stored.",
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
        """Return the update of a site in this round from its receipt, as :meth:`Site.resume` needs it."""
        total = MaskedSum(self.agreement())
        site, statistics = total.part(receipt)
        return SiteUpdate(site, 0, 1, self.config.schema, statistics)

    def leave(self, site: str, receipt: bytes) -> None:
        """Withdraw the contribution of a site, so that later sums do not contain it."""
        total = self.sum()
        if total.withdraw(receipt) != site:
            raise DataError(f"this receipt does not belong to site {site!r}.", source=self._source)
        self.folder.write(self._name("left", site), receipt)

    # -- methods of the hub ------------------------------------------------------------------------------

    def agreement(self, wait: float = 0.0) -> RoundKeys:
        """Return the keys of the round; raise DataError if any are missing after ``wait`` seconds."""
        config = self.config
        keys = self._read_all("key", config.sites, wait)
        try:
            public = {site: bytes.fromhex(key.decode("ascii")) for site, key in keys.items()}
        except ValueError as error:
            raise FileFormatError(
                f"a key file of this round holds no public key ({error}).", source=self._source
            ) from error
        return RoundKeys(self.name, public, config.schema, config.quantizer, config.labels)

    def sum(self, wait: float = 0.0) -> MaskedSum:
        """Return the sum over all sites that have not withdrawn."""
        total = MaskedSum(self.agreement(wait))
        for site, message in self._read_all("masked", self.config.sites, wait).items():
            if total.receive(message) != site:
                raise FileFormatError(
                    f"the message file of site {site!r} belongs to another site.", source=self._source
                )
        for site in self.config.sites:
            receipt = self._read("left", site)
            if receipt is not None:
                total.withdraw(receipt)
        return total

    # -- files in the folder --------------------------------------------------------------------------

    def _name(self, kind: str, site: str | None = None) -> str:
        names = [self.name] if site is None else [self.name, site]
        name = ".".join(quote(text, safe="").replace(".", "%2E") for text in names)
        if not self.name or len(name) > _MAX_FILE_NAME_CHARS:
            raise DataError(f"the name of round {self.name[:40]!r} is empty or too long for a file name.")
        return f"{name}.{kind}"

    def _read(self, kind: str, site: str | None = None) -> bytes | None:
        return self.folder.read(self._name(kind, site))

    def _read_all(self, kind: str, sites: Sequence[str], wait: float) -> dict[str, bytes]:
        """Wait for the files of all sites and return them; raise DataError after ``wait`` seconds."""
        deadline = time.monotonic() + wait
        while True:
            found = {site: self._read(kind, site) for site in sites}
            missing = [site for site, data in found.items() if data is None]
            if not missing:
                return {site: data for site, data in found.items() if data is not None}
            if time.monotonic() >= deadline:
                what = "key" if kind == "key" else "message"
                raise DataError(
                    f"the {what} is missing from {', '.join(map(repr, missing))}.",
                    source=self._source,
                    hint="wait longer, or open a new round without these sites",
                )
            time.sleep(_POLL_SECONDS)
