"""Site update: the versioned statistics of a site and the schema of their columns."""

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


@dataclass(frozen=True)
class Schema:
    """Schema of statistics: the features are the numeric columns, followed by one feature for each category.

    Attributes
    ----------
    target : str
        The column of labels.
    numeric : tuple of str
        Numeric columns, in the order of their features.
    categorical : tuple of str
        Categorical columns.
    categories : tuple of (str, str)
        Column and value of each one-hot feature.
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
        """Raise ValueError if a name occurs twice or a category has no column."""
        columns = [self.target, *self.numeric, *self.categorical]
        if len({*columns}) < len(columns) or len({*self.categories}) < len(self.categories):
            raise ValueError("a column or a category occurs twice")
        if not {column for column, _ in self.categories} <= {*self.categorical}:
            raise ValueError("a category does not belong to any column")

    def encoder(self) -> TableEncoder:
        """Return an encoder that maps columns to the features of this schema."""
        encoder = TableEncoder("refuse")
        names = [*self.numeric, *self.categorical]
        texts = set(self.categorical)
        empty = {name: np.empty(0, dtype=object if name in texts else np.float64) for name in names}
        encoder.fit_columns(ColumnBatch(empty, 0), names, ())
        encoder.add_categories(self.categories)
        return encoder

    def places_in(self, other: Schema) -> list[int]:
        """Return the index of each feature of this schema in another schema."""
        numeric = {name: index for index, name in enumerate(other.numeric)}
        one_hot = {pair: len(other.numeric) + index for index, pair in enumerate(other.categories)}
        return [*(numeric[name] for name in self.numeric), *(one_hot[pair] for pair in self.categories)]


@dataclass(frozen=True)
class SiteUpdate:
    """Current statistics of a site.

    A newer update replaces an older one, so duplicated, late or lost updates do no harm.

    Attributes
    ----------
    site : str
        Name of the publishing site.
    epoch : int
        Number of the site's run. A site that lost its state starts a new epoch with a larger number.
    version : int
        Number of the update within its epoch.
    schema : Schema
        Columns of the features.
    statistics : ClassStatistics
        Statistics of the rows.
    held_back : mapping of str to str
        Labels of the withheld classes, each with the reason.
    """

    site: str
    epoch: int
    version: int
    schema: Schema
    statistics: ClassStatistics
    held_back: Mapping[str, str] = field(default_factory=dict)

    @property
    def age(self) -> tuple[int, int]:
        """Epoch and version, which give the order of the updates of a site."""
        return self.epoch, self.version

    def to_bytes(self) -> bytes:
        """Return the update in a binary format with a checksum.

        Reading the bytes executes no code. They contain sums only, no single row.
        """
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
        """Return the update that ``data`` contains; raise FileFormatError for other or damaged data."""
        source = "SiteUpdate.from_bytes"
        try:
            tree, statistics = messages.from_bytes(data)
            site_update = _from_tree(tree, statistics)
        except FileFormatError:
            raise
        except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError) as error:
            raise FileFormatError(f"the site update is damaged ({error}).", source=source) from error
        if statistics.n_features != site_update.schema.n_features:
            raise FileFormatError(
                "the columns of the site update do not match its statistics.", source=source
            )
        return site_update


def _from_tree(tree: Mapping[str, Any], statistics: ClassStatistics) -> SiteUpdate:
    epoch, version = tree["age"]
    if type(epoch) is not int or type(version) is not int or min(epoch, version) < 0:
        raise ValueError("the age of a site update must be two integers: epoch and version")
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
        text.encode()  # raises an error for a lone surrogate, which could not be written again
    return site_update
