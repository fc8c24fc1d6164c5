"""The place that sums: the latest bulletin of every site, and the model of all of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from steelyard.base import check_parameters
from steelyard.exceptions import DataError
from steelyard.proximal import ClassStatistics, ProximalSVC
from steelyard.proximal.rule.validation import measure
from steelyard.sites.bulletin import Bulletin, Schema
from steelyard.tables import TableEncoder, TableModel
from steelyard.tables.columns import ColumnBatch

__all__ = ["Hub", "Standing"]


@dataclass(frozen=True)
class Standing:
    """How a site stands: what it brings, and what the pooled model does for it.

    Attributes
    ----------
    site : str
        Its name.
    rows : float
        Rows behind its bulletin.
    classes : mapping of str to float
        Of each class.
    held_back : mapping of str to str
        What it did not publish, and why.
    squared_error, local_squared_error, auc, local_auc : float
        Of the pooled and of the site's own model on the rows of the site, from their statistics: squared
        errors are exact, AUC takes scores as normal. nan where a side is missing.
    """

    site: str
    rows: float
    classes: Mapping[str, float]
    held_back: Mapping[str, str]
    squared_error: float = float("nan")
    local_squared_error: float = float("nan")
    auc: float = float("nan")
    local_auc: float = float("nan")


class Hub:
    """Collects bulletins and gives the pooled model.

    A bulletin replaces the site's earlier one, so that one that comes twice, late or out of order does no
    harm. What the hub holds is always the pooled fit on the rows behind the last bulletins.

    Parameters
    ----------
    **parameters
        Of :class:`~steelyard.ProximalSVC`, for the pooled model.
    """

    def __init__(self, **parameters: Any) -> None:
        self._parameters = parameters
        check_parameters(ProximalSVC(**parameters))
        self._bulletins: dict[str, Bulletin] = {}
        self._gone: dict[str, tuple[int, int]] = {}  # sites that were dropped, and how old their last word is
        self._schema: Schema | None = None
        self._total: ClassStatistics | None = None

    # -- bulletins ----------------------------------------------------------------------------------

    @property
    def sites(self) -> list[str]:
        """Names of the sites that count, sorted."""
        return sorted(self._bulletins)

    def receive(self, bulletin: Bulletin | bytes) -> bool:
        """Take in a bulletin; returns whether it was news.

        Raises
        ------
        DataError
            If its columns do not fit those of the other sites; nothing changes.
        """
        if not isinstance(bulletin, Bulletin):
            bulletin = Bulletin.from_bytes(bulletin)
        known = self._bulletins.get(bulletin.site)
        if (known is not None and bulletin.age <= known.age) or bulletin.age <= self._gone.get(
            bulletin.site, (-1, -1)
        ):
            return False
        others = [other for name, other in self._bulletins.items() if name != bulletin.site]
        schema = _united([*others, bulletin])
        if schema == self._schema and self._total is not None and known is not None:
            self._replace(known, bulletin, schema)
        elif schema == self._schema and self._total is not None:
            self._total.merge(_placed(bulletin, schema))
        else:
            self._total = _summed([*others, bulletin], schema)
        self._schema = schema
        self._bulletins[bulletin.site] = bulletin
        return True

    def _replace(self, known: Bulletin, bulletin: Bulletin, schema: Schema) -> None:
        """Only the difference is added: sums of whole numbers do not mind the order."""
        assert self._total is not None
        # What the hub added itself need not be checked for having been there: noisy sums would not pass.
        total = self._total.copy()
        total.merge(_placed(bulletin, schema) - _placed(known, schema))
        for label in total.classes:
            if total.count(label) == 0 and not total.gram(label).any():
                total.forget_class(label)  # all its rows have left
        self._total = total

    def drop(self, site: str) -> None:
        """Leave a site out: the model is as if it had never been there."""
        if site not in self._bulletins:
            raise DataError(
                f"there is no site {site!r}; there are {', '.join(map(repr, self.sites)) or 'none'}.",
                who="Hub.drop",
            )
        gone = self._bulletins.pop(site)
        self._gone[site] = gone.age
        rest = list(self._bulletins.values())
        self._schema = _united(rest) if rest else None
        self._total = None if self._schema is None else _summed(rest, self._schema)

    # -- the pooled model ---------------------------------------------------------------------------

    @property
    def statistics(self) -> ClassStatistics:
        """The sum of all bulletins."""
        return self._need()[1].copy()

    @property
    def schema(self) -> Schema:
        """The columns of the sum."""
        return self._need()[0]

    def digest(self) -> str:
        """What stands for the sum: equal to that of one learner on all the rows, on the same grid."""
        return self._need()[1].digest()

    def _need(self) -> tuple[Schema, ClassStatistics]:
        if self._schema is None or self._total is None:
            raise DataError("no site has published yet.", who="Hub")
        return self._schema, self._total

    def model(self) -> TableModel:
        """The pooled model: exactly that of all rows behind the bulletins in one place."""
        schema, total = self._need()
        learner = ProximalSVC(**self._parameters).merge(total)
        return TableModel(learner, _encoder(schema), schema.target).note(
            "pooled", f"{len(self._bulletins)} sites", int(total.n_rows)
        )

    # -- looking at it ------------------------------------------------------------------------------

    def compare(self) -> list[Standing]:
        """What each site brings, and what the pooled model does for it, without a row."""
        schema, total = self._need()
        pooled = ProximalSVC(**self._parameters).merge(total)
        return [self._standing(bulletin, schema, pooled) for _, bulletin in sorted(self._bulletins.items())]

    def _standing(self, bulletin: Bulletin, schema: Schema, pooled: ProximalSVC) -> Standing:
        own = _placed(bulletin, schema)
        classes = {str(label): own.count(label) for label in own.classes}
        together = measure(pooled, own)
        alone = {"squared_error": np.nan, "auc": np.nan}
        if len(own.classes) > 1:
            alone = measure(ProximalSVC(**self._parameters).merge(own), own)
        return Standing(
            bulletin.site,
            own.n_rows,
            classes,
            bulletin.held_back,
            together["squared_error"],
            alone["squared_error"],
            together["auc"],
            alone["auc"],
        )

    def explain(self) -> str:
        """The state of the hub in a few lines."""
        schema, total = self._need()
        counts = ", ".join(f"{label} ({total.count(label):,.0f})" for label in total.classes)
        lines = [f"{len(self._bulletins)} sites, {total.n_rows:,.0f} rows, {schema.n_features} features"]
        lines.append(f"classes: {counts}")
        for name in self.sites:
            bulletin = self._bulletins[name]
            held = "".join(f"; {label!r} held back: {why}" for label, why in bulletin.held_back.items())
            lines.append(
                f"  {name}: version {bulletin.version}, {bulletin.statistics.n_rows:,.0f} rows{held}"
            )
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"Hub({len(self._bulletins)} sites)"


def _united(bulletins: list[Bulletin]) -> Schema:
    """The columns of all; categories in one order, whoever came first."""
    first = bulletins[0].schema
    for bulletin in bulletins[1:]:
        schema = bulletin.schema
        same = (schema.target, sorted(schema.numeric), sorted(schema.categorical))
        if same != (first.target, sorted(first.numeric), sorted(first.categorical)):
            raise DataError(
                f"the columns of site {bulletin.site!r} are not those of {bulletins[0].site!r}: target "
                f"{schema.target!r} with numbers {sorted(schema.numeric)} and categories "
                f"{sorted(schema.categorical)}; expected {first.target!r}, {sorted(first.numeric)} and "
                f"{sorted(first.categorical)}.",
                who="Hub",
                hint="give the columns the same names and kinds at every site",
            )
    categories = sorted({pair for bulletin in bulletins for pair in bulletin.schema.categories})
    return Schema(
        first.target, tuple(sorted(first.numeric)), tuple(sorted(first.categorical)), tuple(categories)
    )


def _placed(bulletin: Bulletin, schema: Schema) -> ClassStatistics:
    """Statistics of a site with the features of all."""
    return bulletin.statistics.rearranged(bulletin.schema.places_in(schema), schema.n_features)


def _summed(bulletins: list[Bulletin], schema: Schema) -> ClassStatistics:
    total = _placed(bulletins[0], schema)
    for bulletin in bulletins[1:]:
        total.merge(_placed(bulletin, schema))
    return total


def _encoder(schema: Schema) -> TableEncoder:
    """An encoder that makes these features of columns."""
    encoder = TableEncoder()
    names = [*schema.numeric, *schema.categorical]
    texts = set(schema.categorical)
    empty = {name: np.empty(0, dtype=object if name in texts else np.float64) for name in names}
    encoder.settle(ColumnBatch(empty, 0), names, ())
    encoder.know(schema.categories)
    return encoder
