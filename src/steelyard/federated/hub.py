"""Hub, which merges the latest updates of all sites into one model."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any

from steelyard._concurrency import snapshot_read, state_without_lock, transactional
from steelyard.base import check_parameters
from steelyard.exceptions import DataError
from steelyard.federated.site_update import Schema, SiteUpdate
from steelyard.proximal import ClassStatistics, ProximalSVC
from steelyard.proximal.model_selection import compare_with_own_model
from steelyard.tables import TableModel


@dataclass(frozen=True)
class SiteSummary:
    """Summary of a site: its rows, and the errors of the pooled model and of its local model on these rows.

    Attributes
    ----------
    site : str
        Name of the site.
    rows : float
        Number of rows in the update of the site.
    classes : mapping of str to float
        Number of rows of each class.
    held_back : mapping of str to str
        Classes that the site withheld, each with the reason.
    squared_error, local_squared_error, auc, local_auc : float
        Errors of the pooled model and of the site's own model on the rows of the site, computed from the
        statistics. Squared errors are exact; the AUC assumes normal scores. They are nan if a class is
        missing.
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
    """Federated hub: collects site updates and returns the pooled model.

    An update replaces the site's previous one, so duplicated, late or reordered updates do no harm. The
    pooled model always equals a fit on the rows of the latest updates. The hub is thread-safe: threads may
    read it while others deliver updates.

    Parameters
    ----------
    **parameters
        Parameters of :class:`~steelyard.ProximalSVC` for the pooled model.
    """

    __getstate__ = state_without_lock

    def __init__(self, **parameters: Any) -> None:
        self.configure(**parameters)
        self._site_updates: dict[str, SiteUpdate] = {}
        # Epoch and version of the last update of each site, also of dropped sites.
        self._ages: dict[str, tuple[int, int]] = {}
        self._schema: Schema | None = None
        self._total: ClassStatistics | None = None

    @transactional
    def configure(self, /, **parameters: Any) -> None:
        """Change the parameters of the pooled model. Site updates are not affected."""
        check_parameters(ProximalSVC(**parameters))
        self._parameters = parameters

    @snapshot_read
    def copy(self) -> Hub:
        """Return an independent hub with the same site updates."""
        return copy.copy(self)  # attributes are replaced, never changed in place, so copies can share them

    # -- receiving site updates ---------------------------------------------------------------------

    @property
    def sites(self) -> list[str]:
        """Sorted names of the sites in the pooled model."""
        return sorted(self._site_updates)

    @property
    @snapshot_read
    def gone(self) -> dict[str, tuple[int, int]]:
        """Dropped sites with epoch and version of their last update. Only a newer update restores a site."""
        return {site: age for site, age in self._ages.items() if site not in self._site_updates}

    def site_update(self, site: str) -> SiteUpdate:
        """Return the latest update of a site."""
        self._check_known(site, "Hub.site_update")
        return self._site_updates[site]

    def age(self, site: str) -> tuple[int, int] | None:
        """Return epoch and version that the next update of a site must exceed, or None if it is unknown."""
        return self._ages.get(site)

    @transactional
    def receive(self, site_update: SiteUpdate | bytes) -> bool:
        """Apply a site update and return True; return False if it is not newer than the last known update.

        Raises
        ------
        DataError
            If the columns of the update do not match those of the other sites; the hub does not change.
        """
        if not isinstance(site_update, SiteUpdate):
            site_update = SiteUpdate.from_bytes(site_update)
        last = self.age(site_update.site)
        if last is not None and site_update.age <= last:
            return False
        self._replace(self._site_updates.get(site_update.site), site_update)
        self._site_updates = {**self._site_updates, site_update.site: site_update}
        self._ages = {**self._ages, site_update.site: site_update.age}
        return True

    @transactional
    def drop(self, site: str) -> None:
        """Remove a site. The model then equals one fitted without the site."""
        self._check_known(site, "Hub.drop")
        self._replace(self._site_updates[site], None)
        self._site_updates = {name: other for name, other in self._site_updates.items() if name != site}

    def _replace(self, before: SiteUpdate | None, now: SiteUpdate | None) -> None:
        """Recompute schema and total after a site is added, updated or removed."""
        updates = [site_update for site_update in self._site_updates.values() if site_update is not before]
        updates += [] if now is None else [now]
        schema = _united(updates) if updates else None
        # Subtracting an update keeps the quantization steps and columns of this update in the total.
        # The total is therefore correct only if another update has the same steps and columns.
        can_subtract = before is None or any(_is_compatible(before, other) for other in reversed(updates))
        if schema is None:
            total = None
        elif schema == self._schema and self._total is not None and can_subtract:
            total = _changed(self._total, schema, before, now)
        else:
            total = reduce(ClassStatistics.merge, (update.statistics_in(schema) for update in updates))
        self._schema, self._total = schema, total

    @transactional
    def ignore(self, site: str, until: tuple[int, int]) -> None:
        """Reject updates of a site up to the age ``until``; drop the site if its last update is not newer.

        An age is a pair of epoch and version.
        """
        known = self._site_updates.get(site)
        if known is not None and known.age <= until:
            self.drop(site)
        self._ages = {**self._ages, site: max(until, self._ages.get(site, until))}

    def _check_known(self, site: str, source: str) -> None:
        if site not in self._site_updates:
            raise DataError(
                f"there is no site {site!r}; there are {', '.join(map(repr, self.sites)) or 'none'}.",
                source=source,
            )

    # -- reading the pooled model -------------------------------------------------------------------

    @property
    @snapshot_read
    def statistics(self) -> ClassStatistics:
        """Sum of the statistics of all sites."""
        return self._pooled()[1].copy()

    @property
    @snapshot_read
    def schema(self) -> Schema:
        """Schema of the pooled statistics."""
        return self._pooled()[0]

    @snapshot_read
    def digest(self) -> str:
        """Return the digest of the pooled statistics.

        It equals the digest of one estimator that learned all rows with the same quantizer.
        """
        return self._pooled()[1].digest()

    def _pooled(self) -> tuple[Schema, ClassStatistics]:
        if self._schema is None or self._total is None:
            raise DataError("no site has published yet.", source="Hub")
        return self._schema, self._total

    @snapshot_read
    def model(self) -> TableModel:
        """Return the pooled model, which equals a model fitted on the rows of all sites."""
        schema, total = self._pooled()
        estimator = ProximalSVC(**self._parameters).merge(total)
        return TableModel(estimator, schema.encoder(), schema.target).note(
            "pooled", f"{len(self._site_updates)} sites", int(total.n_rows)
        )

    # -- reports on sites ---------------------------------------------------------------------------

    @snapshot_read
    def compare(self) -> list[SiteSummary]:
        """Return a summary of each site, computed only from statistics."""
        schema, total = self._pooled()
        pooled, summaries = ProximalSVC(**self._parameters).merge(total), []
        for site, update in sorted(self._site_updates.items()):
            local = update.statistics_in(schema)
            classes = {str(label): local.count(label) for label in local.classes}
            pair = compare_with_own_model(pooled, local, ProximalSVC(**self._parameters))
            errors = [measures[name] for name in ("squared_error", "auc") for measures in pair]
            summaries.append(SiteSummary(site, local.n_rows, classes, update.held_back, *errors))
        return summaries

    @snapshot_read
    def explain(self) -> str:
        """Return a short text that describes the hub."""
        schema, total = self._pooled()
        counts = ", ".join(f"{label} ({total.count(label):,.0f})" for label in total.classes)
        lines = [f"{len(self._site_updates)} sites, {total.n_rows:,.0f} rows, {schema.n_features} features"]
        lines.append(f"classes: {counts}")
        for name in self.sites:
            update = self._site_updates[name]
            withheld = "".join(f"; {label!r} withheld: {why}" for label, why in update.held_back.items())
            lines.append(
                f"  {name}: version {update.version}, {update.statistics.n_rows:,.0f} rows{withheld}"
            )
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"Hub({len(self._site_updates)} sites)"


def _united(site_updates: list[SiteUpdate]) -> Schema:
    """Return the common schema of all updates. Names are sorted, so the order of arrival does not matter."""
    # Many sites usually have the same schema, so only distinct schemas are compared.
    distinct = {site_update.schema: site_update.site for site_update in reversed(site_updates)}
    first = site_updates[0].schema
    for schema, site in distinct.items():
        same = (schema.target, sorted(schema.numeric), sorted(schema.categorical))
        if same != (first.target, sorted(first.numeric), sorted(first.categorical)):
            raise DataError(
                f"the columns of site {site!r} differ from those of site {site_updates[0].site!r}: target "
                f"{schema.target!r}, numeric {sorted(schema.numeric)} and categorical "
                f"{sorted(schema.categorical)}; expected {first.target!r}, {sorted(first.numeric)} and "
                f"{sorted(first.categorical)}.",
                source="Hub",
                hint="give the columns the same names and kinds at every site",
            )
    categories = sorted({pair for schema in distinct for pair in schema.categories})
    return Schema(
        first.target, tuple(sorted(first.numeric)), tuple(sorted(first.categorical)), tuple(categories)
    )


def _is_compatible(one: SiteUpdate, other: SiteUpdate) -> bool:
    """Return whether two updates have the same schema and the same quantizer."""
    exact = not (one.statistics.from_floats or other.statistics.from_floats)
    return exact and one.schema == other.schema and one.statistics.quantizer == other.statistics.quantizer


def _changed(
    total: ClassStatistics, schema: Schema, before: SiteUpdate | None, now: SiteUpdate | None
) -> ClassStatistics:
    """Return ``total`` plus the difference of two updates of a site, or None; integer sums are exact."""
    total = total.copy()
    if before is None:
        assert now is not None
        return total.merge(now.statistics_in(schema))
    old = before.statistics_in(schema)
    # subtract() is not used, because it checks that the rows are present, which fails for noisy sums.
    # No check is needed, because the hub added these sums itself.
    total.merge((old.empty() if now is None else now.statistics_in(schema)) - old)
    for label in total.classes:
        if total.count(label) == 0 and not total.gram(label).any():
            total.forget_class(label)  # all rows of the class are removed
    return total
