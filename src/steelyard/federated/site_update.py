"""What a site publishes: its statistics as of a version, with the columns they speak of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from steelyard.exceptions import FileFormatError
from steelyard.federated import messages
from steelyard.proximal import ClassStatistics
from steelyard.tables import TableEncoder
from steelyard.tables.columns import ColumnBatch

__all__ = ["Schema", "SiteUpdate"]


@dataclass(frozen=True)
class Schema:
    """The columns of statistics: numbers first, then one feature for each category.

    Attributes
    ----------
    target : str
        The column of labels.
    numeric : tuple of str
        Columns of numbers, in the order of their features.
    categorical : tuple of str
        Columns of categories.
    categories : tuple of (str, str)
        Column and value of each feature that stands for a category.
    """

    target: str
    numeric: tuple[str, ...]
    categorical: tuple[str, ...] = ()
    categories: tuple[tuple[str, str], ...] = ()

    @property
    def n_features(self) -> int:
        """Number of features."""
        return len(self.numeric) + len(self.categories)

    def check(self) -> None:
        """ValueError where the columns could not be those of a table."""
        columns = [self.target, *self.numeric, *self.categorical]
        if len({*columns}) < len(columns) or len({*self.categories}) < len(self.categories):
            raise ValueError("a column or a category comes twice")
        if not {column for column, _ in self.categories} <= {*self.categorical}:
            raise ValueError("a category belongs to no column")

    def encoder(self) -> TableEncoder:
        """An encoder that makes these features of columns."""
        encoder = TableEncoder()
        names = [*self.numeric, *self.categorical]
        texts = set(self.categorical)
        empty = {name: np.empty(0, dtype=object if name in texts else np.float64) for name in names}
        encoder.fit_columns(ColumnBatch(empty, 0), names, ())
        encoder.add_categories(self.categories)
        return encoder

    def places_in(self, other: Schema) -> list[int]:
        """For each feature here, its place among the features of another schema."""
        numbers = {name: place for place, name in enumerate(other.numeric)}
        rest = {pair: len(other.numeric) + place for place, pair in enumerate(other.categories)}
        return [*(numbers[name] for name in self.numeric), *(rest[pair] for pair in self.categories)]


@dataclass(frozen=True)
class SiteUpdate:
    """The current statistics of a site; a later one replaces it, so that it may come twice, late or never.

    Attributes
    ----------
    site : str
        Who publishes.
    epoch : int
        The life of the site: one that lost its memory begins a new one, with a larger number.
    version : int
        Grows with every bulletin of an epoch.
    schema : Schema
        What the features are.
    statistics : ClassStatistics
        What is known of the rows.
    held_back : mapping of str to str
        Labels of classes that the site did not publish, each with the reason in words.
    """

    site: str
    epoch: int
    version: int
    schema: Schema
    statistics: ClassStatistics
    held_back: Mapping[str, str] = field(default_factory=dict)

    @property
    def age(self) -> tuple[int, int]:
        """What orders the bulletins of a site."""
        return self.epoch, self.version

    def to_bytes(self) -> bytes:
        """A message with a checksum; nothing in it is ever executed, and no row is in it as it came."""
        head = {
            "site": self.site,
            "age": [self.epoch, self.version],
            "target": self.schema.target,
            "numeric": list(self.schema.numeric),
            "categorical": list(self.schema.categorical),
            "categories": [list(pair) for pair in self.schema.categories],
            "held_back": dict(self.held_back),
        }
        return messages.to_bytes(head, self.statistics)

    @classmethod
    def from_bytes(cls, data: bytes) -> SiteUpdate:
        """The bulletin of a message; anything else is refused with a sentence."""
        source = "SiteUpdate.from_bytes"
        tree, statistics = messages.from_bytes(data)
        try:
            site_update = _restored(tree, statistics)
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise FileFormatError(f"the bulletin is damaged ({error}).", source=source) from error
        if statistics.n_features != site_update.schema.n_features:
            raise FileFormatError("the bulletin's columns and statistics do not fit together.", source=source)
        return site_update


def _restored(tree: Mapping[str, Any], statistics: ClassStatistics) -> SiteUpdate:
    epoch, version = tree["age"]
    if type(epoch) is not int or type(version) is not int or min(epoch, version) < 0:
        raise ValueError("its age is no pair of whole numbers")
    schema = Schema(
        str(tree["target"]),
        tuple(map(str, tree["numeric"])),
        tuple(map(str, tree["categorical"])),
        tuple((str(column), str(value)) for column, value in tree["categories"]),
    )
    schema.check()
    held_back = {str(label): str(reason) for label, reason in tree["held_back"].items()}
    site_update = SiteUpdate(str(tree["site"]), epoch, version, schema, statistics, held_back)
    for text in (
        site_update.site,
        schema.target,
        *schema.numeric,
        *map("".join, schema.categories),
        *held_back,
    ):
        text.encode()  # half a character could not be published again
    return site_update
