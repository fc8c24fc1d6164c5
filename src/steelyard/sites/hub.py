"""The place that sums: the latest bulletin of every site, and the model of all of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from steelyard._turns import all_or_nothing, of_one_moment
from steelyard.base import check_parameters
from steelyard.exceptions import DataError
from steelyard.proximal import ClassStatistics, ProximalSVC
from steelyard.proximal.rule.validation import measure
from steelyard.sites.bulletin import Bulletin, Schema
from steelyard.tables import TableModel

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
    harm. What the hub holds is always the pooled fit on the rows behind the last bulletins. Any number of
    threads may ask while others bring bulletins.

    Parameters
    ----------
    **parameters
        Of :class:`~steelyard.ProximalSVC`, for the pooled model.
    """

    def __init__(self, **parameters: Any) -> None:
        self.configure(**parameters)
        self._bulletins: dict[str, Bulletin] = {}
        self._gone: dict[str, tuple[int, int]] = {}  # sites that were dropped, and how old their last word is
        self._schema: Schema | None = None
        self._total: ClassStatistics | None = None

    @all_or_nothing
    def configure(self, /, **parameters: Any) -> None:
        """Solve with other parameters from now on; what the sites have published stays."""
        check_parameters(ProximalSVC(**parameters))
        self._parameters = parameters

    @of_one_moment
    def copy(self) -> Hub:
        """Another hub with the same bulletins; from here on they go their own ways."""
        other = Hub(**self._parameters)
        other._bulletins, other._gone = dict(self._bulletins), dict(self._gone)
        other._schema, other._total = self._schema, self._total  # replaced, never changed in place
        return other

    # -- bulletins ----------------------------------------------------------------------------------

    @property
    def sites(self) -> list[str]:
        """Names of the sites that count, sorted."""
        return sorted(self._bulletins)

    @property
    def gone(self) -> dict[str, tuple[int, int]]:
        """Sites that were dropped, each with the age of its last word; what is not newer stays out."""
        return dict(self._gone)

    def bulletin(self, site: str) -> Bulletin:
        """The last word of a site."""
        self._check_there(site, "Hub.bulletin")
        return self._bulletins[site]

    def age(self, site: str) -> tuple[int, int] | None:
        """Epoch and version that a bulletin of this site must exceed to be news; None for a stranger."""
        known = self._bulletins.get(site)
        return self._gone.get(site) if known is None else known.age

    @all_or_nothing
    def receive(self, bulletin: Bulletin | bytes) -> bool:
        """Take in a bulletin; returns whether it was news.

        Raises
        ------
        DataError
            If its columns do not fit those of the other sites; nothing changes.
        """
        if not isinstance(bulletin, Bulletin):
            bulletin = Bulletin.from_bytes(bulletin)
        last = self.age(bulletin.site)
        if last is not None and bulletin.age <= last:
            return False
        self._replace(self._bulletins.get(bulletin.site), bulletin)
        self._bulletins = {**self._bulletins, bulletin.site: bulletin}
        self._gone = {site: age for site, age in self._gone.items() if site != bulletin.site}
        return True

    @all_or_nothing
    def drop(self, site: str) -> None:
        """Leave a site out: the model is as if it had never been there."""
        self._check_there(site, "Hub.drop")
        leaving = self._bulletins[site]
        self._replace(leaving, None)
        self._bulletins = {name: other for name, other in self._bulletins.items() if name != site}
        self._gone = {**self._gone, site: leaving.age}

    def _replace(self, before: Bulletin | None, now: Bulletin | None) -> None:
        """The sum in which one site says something else, or comes, or goes."""
        rest = [bulletin for bulletin in self._bulletins.values() if bulletin is not before]
        rest += [] if now is None else [now]
        schema = _united(rest) if rest else None
        # The steps and columns of a site that leaves stay only if another one has them too.
        follows = before is None or any(_alike(before, other) for other in reversed(rest))
        if schema is None:
            total = None
        elif schema == self._schema and self._total is not None and follows:
            total = _changed(self._total, schema, before, now)
        else:
            total = _summed(rest, schema)
        self._schema, self._total = schema, total

    @all_or_nothing
    def ignore(self, site: str, until: tuple[int, int]) -> None:
        """Take nothing of a site that is not newer than this; a bulletin of it that is there is dropped."""
        known = self._bulletins.get(site)
        if known is not None and known.age <= until:
            self.drop(site)
        if known is None or known.age <= until:
            self._gone = {**self._gone, site: max(until, self._gone.get(site, until))}

    def _check_there(self, site: str, who: str) -> None:
        if site not in self._bulletins:
            raise DataError(
                f"there is no site {site!r}; there are {', '.join(map(repr, self.sites)) or 'none'}.",
                who=who,
            )

    # -- the pooled model ---------------------------------------------------------------------------

    @property
    @of_one_moment
    def statistics(self) -> ClassStatistics:
        """The sum of all bulletins."""
        return self._need()[1].copy()

    @property
    @of_one_moment
    def schema(self) -> Schema:
        """The columns of the sum."""
        return self._need()[0]

    @of_one_moment
    def digest(self) -> str:
        """What stands for the sum: equal to that of one learner on all the rows, on the same grid."""
        return self._need()[1].digest()

    def _need(self) -> tuple[Schema, ClassStatistics]:
        if self._schema is None or self._total is None:
            raise DataError("no site has published yet.", who="Hub")
        return self._schema, self._total

    @of_one_moment
    def model(self) -> TableModel:
        """The pooled model: exactly that of all rows behind the bulletins in one place."""
        schema, total = self._need()
        learner = ProximalSVC(**self._parameters).merge(total)
        return TableModel(learner, schema.encoder(), schema.target).note(
            "pooled", f"{len(self._bulletins)} sites", int(total.n_rows)
        )

    # -- looking at it ------------------------------------------------------------------------------

    @of_one_moment
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

    @of_one_moment
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
    different = {bulletin.schema: bulletin.site for bulletin in reversed(bulletins)}  # few, of many sites
    first = bulletins[0].schema
    for schema, site in different.items():
        same = (schema.target, sorted(schema.numeric), sorted(schema.categorical))
        if same != (first.target, sorted(first.numeric), sorted(first.categorical)):
            raise DataError(
                f"the columns of site {site!r} are not those of {bulletins[0].site!r}: target "
                f"{schema.target!r} with numbers {sorted(schema.numeric)} and categories "
                f"{sorted(schema.categorical)}; expected {first.target!r}, {sorted(first.numeric)} and "
                f"{sorted(first.categorical)}.",
                who="Hub",
                hint="give the columns the same names and kinds at every site",
            )
    categories = sorted({pair for schema in different for pair in schema.categories})
    return Schema(
        first.target, tuple(sorted(first.numeric)), tuple(sorted(first.categorical)), tuple(categories)
    )


def _placed(bulletin: Bulletin, schema: Schema) -> ClassStatistics:
    """Statistics of a site with the features of all."""
    return bulletin.statistics.rearranged(bulletin.schema.places_in(schema), schema.n_features)


def _alike(one: Bulletin, other: Bulletin) -> bool:
    """Whether two bulletins count the same columns in the same steps."""
    exact = not (one.statistics.from_floats or other.statistics.from_floats)
    return exact and one.schema == other.schema and one.statistics.grid == other.statistics.grid


def _changed(
    total: ClassStatistics, schema: Schema, before: Bulletin | None, now: Bulletin | None
) -> ClassStatistics:
    """Only the difference is added: sums of whole numbers do not mind the order."""
    total = total.copy()
    if before is None:
        assert now is not None
        return total.merge(_placed(now, schema))
    gone = _placed(before, schema)
    # What the hub added itself need not be checked for having been there: noisy sums would not pass.
    total.merge((gone.empty() if now is None else _placed(now, schema)) - gone)
    for label in total.classes:
        if total.count(label) == 0 and not total.gram(label).any():
            total.forget_class(label)  # all its rows have left
    return total


def _summed(bulletins: list[Bulletin], schema: Schema) -> ClassStatistics:
    total = _placed(bulletins[0], schema)
    for bulletin in bulletins[1:]:
        total.merge(_placed(bulletin, schema))
    return total
