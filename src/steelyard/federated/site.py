"""One of several places: it keeps its rows and publishes what may be known of them."""

from __future__ import annotations

import copy
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, Self

import numpy as np

from steelyard._concurrency import state_without_lock, transactional
from steelyard.exceptions import DataError, ParameterError
from steelyard.federated import resolution
from steelyard.federated.release import ReleasePolicy
from steelyard.federated.site_update import Schema, SiteUpdate
from steelyard.proximal import ClassStatistics, ProximalSVC
from steelyard.streams.answers import teach
from steelyard.streams.chunks import Chunk, padded
from steelyard.tables import TableEncoder, TableModel

__all__ = ["Site"]


class Site:
    """A place that keeps its rows.

    Parameters
    ----------
    name : str
        What the hub calls it.
    target : str
        The column of labels.
    policy : ReleasePolicy, optional
        What may leave; safe by default.
    learner : ProximalSVC, optional
        The learner; only its statistics leave. Sites that agree on a ``grid`` get the same bits wherever
        their rows lie; without one, the first 255 rows settle 2**25 to 2**29 steps to a typical deviation,
        fewer for long tails, so that a bulletin stays short.
    schema : Schema, optional
        Columns and categories that were agreed on, in this order; without it they are what the rows have.
    clock : callable, default=time.time_ns
        What numbers the lives of the site.

    Attributes
    ----------
    held_back : dict of str to str
        What the last bulletin left out, and why.

    Examples
    --------
    >>> import pandas as pd
    >>> from steelyard.federated import Hub, ReleasePolicy, Site
    >>> hub = Hub()
    >>> for name, shift in (("north", 0.0), ("south", 1.0)):
    ...     rows = pd.DataFrame({"x": [shift + k % 7 for k in range(60)], "ill": [k % 2 for k in range(60)]})
    ...     site = Site(name, "ill")
    ...     _ = site.learn(rows)
    ...     _ = hub.receive(site.publish())
    >>> hub.model().learner.statistics_.n_rows
    120.0
    """

    __getstate__ = state_without_lock

    def __init__(
        self,
        name: str,
        target: str,
        *,
        policy: ReleasePolicy | None = None,
        learner: ProximalSVC | None = None,
        schema: Schema | None = None,
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        if not name:
            raise ParameterError("a site needs a name.", source="Site")
        if learner is not None and (learner.feature_map is not None or learner.C == "auto"):
            raise ParameterError(
                "statistics of folds and of mapped rows are not published; use a learner without "
                "feature_map and with a number for C.",
                source="Site",
            )
        self.name = name
        self.policy = policy or ReleasePolicy()
        encoder = TableEncoder() if schema is None else schema.encoder()
        self.model = TableModel(learner or ProximalSVC(), encoder, target)
        self._agreed = schema
        self.epoch = clock()
        self.version = 0
        self.held_back: dict[str, str] = {}
        self._published: ClassStatistics | None = None
        self._moved: Counter[str] = Counter()

    # -- rows ---------------------------------------------------------------------------------------

    @transactional
    def learn(self, /, source: Any, **options: Any) -> int:
        """Learn the rows of a table or file, all or none; returns their number.

        Parameters
        ----------
        source : table or path
            As for :func:`steelyard.tables.open_stream`.
        **options
            As for :func:`steelyard.tables.open_stream`.
        """
        n_rows = 0
        self.model, self._moved = copy.deepcopy(self.model), self._moved.copy()
        for chunk in self.model.open(source, labelled=True, **options):
            self._check_categories()
            self._teach(chunk)
            self._count(chunk.y)
            n_rows += len(chunk)
        return n_rows

    def _teach(self, chunk: Chunk) -> None:
        """Learn the rows; the first of them settle in which steps, if nobody has agreed on any."""
        if resolution.is_open(self.model.learner):
            n_known = self._n_known()
            first = chunk.take(0, resolution.ENOUGH - n_known)
            teach(self.model.learner, first)
            chunk = chunk.take(len(first), len(chunk))
            if n_known + len(first) == resolution.ENOUGH:
                self.model.learner = resolution.settle(self.model.learner)
        if len(chunk):
            teach(self.model.learner, chunk)

    def _n_known(self) -> int:
        learner = self.model.learner
        return int(learner.statistics_.n_rows) if hasattr(learner, "classes_") else 0

    def _check_categories(self) -> None:
        if self._agreed is None:
            return
        strange = [pair for pair in self.model.encoder.categories_ if pair not in self._agreed.categories]
        if strange:
            column, value = strange[0]
            raise DataError(
                f"category {value!r} of column {column!r} is none of those agreed on; nothing was learned.",
                source=f"Site {self.name!r}",
            )

    @transactional
    def forget(self, source: Any) -> int:
        """Unlearn the rows of a table or file, all or none; returns their number."""
        self.model, self._moved = copy.deepcopy(self.model), self._moved.copy()
        stream = self.model.open(source, labelled=True)
        stream.learning = False
        chunks = list(stream)
        width = self.model.learner.n_features_in_
        X = np.concatenate([padded(chunk.rows_for(self.model.learner), width) for chunk in chunks])
        y = np.concatenate([chunk.y for chunk in chunks])
        self.model.learner.forget(X, y)
        self._count(y)
        return len(y)

    def _count(self, y: Any) -> None:
        labels, counts = np.unique(y, return_counts=True)
        self._moved.update({str(label): int(n) for label, n in zip(labels, counts, strict=True)})

    # -- what leaves --------------------------------------------------------------------------------

    @transactional
    def publish(self) -> SiteUpdate:
        """A bulletin of what may be known now.

        Raises
        ------
        DataError
            If the policy does not allow a bulletin yet; the sentence says why.
        """
        statistics = self._statistics()
        held_back = self.policy.held_back(statistics)
        for label in list(statistics.classes):
            if str(label) in held_back:
                statistics.forget_class(label)
        refusal = self.policy.refusal(self._published, statistics, dict(self._moved))
        if refusal is not None:
            raise DataError(
                f"nothing is published: {refusal}.",
                source=f"Site {self.name!r}",
                hint="wait for more rows; the hub goes on with the last bulletin",
            )
        self.version += 1
        self.held_back, self._published = held_back, statistics.copy()
        self._moved = Counter()
        return SiteUpdate(self.name, self.epoch, self.version, self._schema(), statistics, held_back)

    @transactional
    def resume(self, site_update: SiteUpdate) -> Self:
        """Go on after an earlier bulletin of this site, as when all rows were read anew.

        What has changed since is not known row by row: a class whose statistics differ counts as changed by
        the difference of its counts alone, which holds back too much rather than too little.
        """
        if site_update.site != self.name:
            raise DataError(f"this is a bulletin of {site_update.site!r}.", source=f"Site {self.name!r}")
        now, before = self._statistics(), site_update.statistics
        self.epoch, self.version, self._published = site_update.epoch, site_update.version, before.copy()
        self._moved = Counter()
        for label in {*now.classes, *before.classes}:
            known = label in now.classes and label in before.classes
            same = known and now.n_features == before.n_features and _same_class(now, before, label)
            if not same:
                self._moved[str(label)] = max(1, int(abs(now.count(label) - before.count(label))))
        return self

    def _statistics(self) -> ClassStatistics:
        if "columns_" not in vars(self.model.encoder):
            raise DataError("this site has learned no rows yet.", source=f"Site {self.name!r}")
        statistics = (
            resolution.settled(self.model.learner.statistics_).copy().fold()
        )  # no row leaves as it is
        width = len(self.model.encoder.feature_names)
        return statistics.grow(width) if statistics.n_features < width else statistics

    def _schema(self) -> Schema:
        encoder = self.model.encoder
        return Schema(
            self.model.target,
            tuple(encoder.numeric_),
            tuple(encoder.categorical_),
            tuple(encoder.categories_),
        )

    def adopt(self, model: TableModel) -> Self:
        """Take over the pooled model that the hub published back, to answer with it.

        Own rows stay in the site's own statistics: the pooled model is kept beside them.
        """
        self.pooled = model
        return self


def _same_class(now: ClassStatistics, before: ClassStatistics, label: Any) -> bool:
    only = {label: label}
    return now.regrouped(only).digest() == before.regrouped(only).digest()
