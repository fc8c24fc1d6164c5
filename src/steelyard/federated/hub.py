"""The place that sums: the latest bulletin of every site, and the model of all of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from steelyard._concurrency import snapshot_read, state_without_lock, transactional
from steelyard.base import check_parameters
from steelyard.exceptions import DataError
from steelyard.federated.site_update import Schema, SiteUpdate
from steelyard.proximal import ClassStatistics, ProximalSVC
from steelyard.proximal.rule.validation import measure
from steelyard.tables import TableModel

__all__ = ["Hub", "SiteSummary"]


@dataclass(frozen=True)
class SiteSummary:
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

    __getstate__ = state_without_lock

    def __init__(self, **parameters: Any) -> None:
        self.configure(**parameters)
        self._site_updates: dict[str, SiteUpdate] = {}
        self._gone: dict[str, tuple[int, int]] = {}  # sites that were dropped, and how old their last word is
        self._schema: Schema | None = None
        self._total: ClassStatistics | None = None

    @transactional
    def configure(self, /, **parameters: Any) -> None:
        """Solve with other parameters from now on; what the sites have published stays."""
        check_parameters(ProximalSVC(**parameters))
        self._parameters = parameters

    @snapshot_read
    def copy(self) -> Hub:
        """Another hub with the same bulletins; from here on they go their own ways."""
        other = Hub(**self._parameters)
        other._site_updates, other._gone = dict(self._site_updates), dict(self._gone)
        other._schema, other._total = self._schema, self._total  # replaced, never changed in place
        return other

    # -- bulletins ----------------------------------------------------------------------------------

    @property
    def sites(self) -> list[str]:
        """Names of the sites that count, sorted."""
        return sorted(self._site_updates)

    @property
    def gone(self) -> dict[str, tuple[int, int]]:
        """Sites that were dropped, each with the age of its last word; what is not newer stays out."""
        return dict(self._gone)

    def site_update(self, site: str) -> SiteUpdate:
        """The last word of a site."""
        self._check_there(site, "Hub.bulletin")
        return self._site_updates[site]

    def age(self, site: str) -> tuple[int, int] | None:
        """Epoch and version that a bulletin of this site must exceed to be news; None for a stranger."""
        known = self._site_updates.get(site)
        return self._gone.get(site) if known is None else known.age

    @transactional
    def receive(self, site_update: SiteUpdate | bytes) -> bool:
        """Take in a bulletin; returns whether it was news.

        Raises
        ------
        DataError
            If its columns do not fit those of the other sites; nothing changes.
        """
        if not isinstance(site_update, SiteUpdate):
            site_update = SiteUpdate.from_bytes(site_update)
        last = self.age(site_update.site)
        if last is not None and site_update.age <= last:
            return False
        self._replace(self._site_updates.get(site_update.site), site_update)
        self._site_updates = {**self._site_updates, site_update.site: site_update}
        self._gone = {site: age for site, age in self._gone.items() if site != site_update.site}
        return True

    @transactional
    def drop(self, site: str) -> None:
        """Leave a site out: the model is as if it had never been there."""
        self._check_there(site, "Hub.drop")
        leaving = self._site_updates[site]
        self._replace(leaving, None)
        self._site_updates = {name: other for name, other in self._site_updates.items() if name != site}
        self._gone = {**self._gone, site: leaving.age}

    def _replace(self, before: SiteUpdate | None, now: SiteUpdate | None) -> None:
        """The sum in which one site says something else, or comes, or goes."""
        rest = [site_update for site_update in self._site_updates.values() if site_update is not before]
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

    @transactional
    def ignore(self, site: str, until: tuple[int, int]) -> None:
        """Take nothing of a site that is not newer than this; a bulletin of it that is there is dropped."""
        known = self._site_updates.get(site)
        if known is not None and known.age <= until:
            self.drop(site)
        if known is None or known.age <= until:
            self._gone = {**self._gone, site: max(until, self._gone.get(site, until))}

    def _check_there(self, site: str, source: str) -> None:
        if site not in self._site_updates:
            raise DataError(
                f"there is no site {site!r}; there are {', '.join(map(repr, self.sites)) or 'none'}.",
                source=source,
            )

    # -- the pooled model ---------------------------------------------------------------------------

    @property
    @snapshot_read
    def statistics(self) -> ClassStatistics:
        """The sum of all bulletins."""
        return self._need()[1].copy()

    @property
    @snapshot_read
    def schema(self) -> Schema:
        """The columns of the sum."""
        return self._need()[0]

    @snapshot_read
    def digest(self) -> str:
        """What stands for the sum: equal to that of one learner on all the rows, on the same grid."""
        return self._need()[1].digest()

    def _need(self) -> tuple[Schema, ClassStatistics]:
        if self._schema is None or self._total is None:
            raise DataError("no site has published yet.", source="Hub")
        return self._schema, self._total

    @snapshot_read
    def model(self) -> TableModel:
        """The pooled model: exactly that of all rows behind the bulletins in one place."""
        schema, total = self._need()
        learner = ProximalSVC(**self._parameters).merge(total)
        return TableModel(learner, schema.encoder(), schema.target).note(
            "pooled", f"{len(self._site_updates)} sites", int(total.n_rows)
        )

    # -- looking at it ------------------------------------------------------------------------------

    @snapshot_read
    def compare(self) -> list[SiteSummary]:
        """What each site brings, and what the pooled model does for it, without a row."""
        schema, total = self._need()
        pooled = ProximalSVC(**self._parameters).merge(total)
        return [
            self._standing(site_update, schema, pooled)
            for _, site_update in sorted(self._site_updates.items())
        ]

    def _standing(self, site_update: SiteUpdate, schema: Schema, pooled: ProximalSVC) -> SiteSummary:
        own = _placed(site_update, schema)
        classes = {str(label): own.count(label) for label in own.classes}
        together = measure(pooled, own)
        alone = {"squared_error": np.nan, "auc": np.nan}
        if len(own.classes) > 1:
            alone = measure(ProximalSVC(**self._parameters).merge(own), own)
        return SiteSummary(
            site_update.site,
            own.n_rows,
            classes,
            site_update.held_back,
            together["squared_error"],
            alone["squared_error"],
            together["auc"],
            alone["auc"],
        )

    @snapshot_read
    def explain(self) -> str:
        """The state of the hub in a few lines."""
        schema, total = self._need()
        counts = ", ".join(f"{label} ({total.count(label):,.0f})" for label in total.classes)
        lines = [f"{len(self._site_updates)} sites, {total.n_rows:,.0f} rows, {schema.n_features} features"]
        lines.append(f"classes: {counts}")
        for name in self.sites:
            site_update = self._site_updates[name]
            held = "".join(f"; {label!r} held back: {why}" for label, why in site_update.held_back.items())
            lines.append(
                f"  {name}: version {site_update.version}, {site_update.statistics.n_rows:,.0f} rows{held}"
            )
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"Hub({len(self._site_updates)} sites)"


def _united(site_updates: list[SiteUpdate]) -> Schema:
    """The columns of all; categories in one order, whoever came first."""
    different = {
        site_update.schema: site_update.site for site_update in reversed(site_updates)
    }  # few, of many sites
    first = site_updates[0].schema
    for schema, site in different.items():
        same = (schema.target, sorted(schema.numeric), sorted(schema.categorical))
        if same != (first.target, sorted(first.numeric), sorted(first.categorical)):
            raise DataError(
                f"the columns of site {site!r} are not those of {site_updates[0].site!r}: target "
                f"{schema.target!r} with numbers {sorted(schema.numeric)} and categories "
                f"{sorted(schema.categorical)}; expected {first.target!r}, {sorted(first.numeric)} and "
                f"{sorted(first.categorical)}.",
                source="Hub",
                hint="give the columns the same names and kinds at every site",
            )
    categories = sorted({pair for schema in different for pair in schema.categories})
    return Schema(
        first.target, tuple(sorted(first.numeric)), tuple(sorted(first.categorical)), tuple(categories)
    )


def _placed(site_update: SiteUpdate, schema: Schema) -> ClassStatistics:
    """Statistics of a site with the features of all."""
    return site_update.statistics.permute_features(site_update.schema.places_in(schema), schema.n_features)


def _alike(one: SiteUpdate, other: SiteUpdate) -> bool:
    """Whether two bulletins count the same columns in the same steps."""
    exact = not (one.statistics.from_floats or other.statistics.from_floats)
    return exact and one.schema == other.schema and one.statistics.quantizer == other.statistics.quantizer


def _changed(
    total: ClassStatistics, schema: Schema, before: SiteUpdate | None, now: SiteUpdate | None
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


def _summed(site_updates: list[SiteUpdate], schema: Schema) -> ClassStatistics:
    total = _placed(site_updates[0], schema)
    for site_update in site_updates[1:]:
        total.merge(_placed(site_update, schema))
    return total
