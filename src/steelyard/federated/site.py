"""Federated site, which learns its own rows and publishes their statistics, and its release policy."""

from __future__ import annotations

import copy
import math
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from steelyard._concurrency import state_without_lock, transactional
from steelyard._deprecation import renamed_parameters
from steelyard._types import FloatArray
from steelyard.exceptions import DataError, ParameterError
from steelyard.federated.site_update import Schema, SiteUpdate
from steelyard.proximal import ClassStatistics, ProximalSVC, Quantizer
from steelyard.proximal.quantizer import QUANTIZER_ROWS
from steelyard.proximal.serialization import get_state
from steelyard.streams.chunks import Chunk, padded
from steelyard.streams.predictions import learn_chunk
from steelyard.tables import TableEncoder, TableModel

# Number of rows from which a site chooses a quantizer. One row later the estimator would choose its own.
_N_CALIBRATION_ROWS = QUANTIZER_ROWS - 1

_STEP_BITS = 25  # minimum number of quantization steps (as a power of two) of a typical deviation
_TAIL_DEVIATIONS = 32  # a column has a long tail if a value exceeds this many typical deviations


@dataclass(frozen=True)
class ReleasePolicy:
    """Conditions under which a site publishes, and the classes that it withholds.

    The statistics of a class with few rows reveal these rows. The difference of two updates reveals the rows
    learned between them, possibly those of one person. Therefore classes with fewer than ``least_rows`` rows
    are withheld, and an update is published only if every class in it is unchanged or has changed by at least
    ``least_change`` rows.

    Parameters
    ----------
    least_rows : int, default=20
        Minimum number of rows of a published class. Unless it is 1, at least twice as many rows as features
        are also needed: with fewer rows than features, the statistics determine the rows up to a rotation.
    least_change : int, default=10
        Minimum number of rows by which a changed class must differ from the last update.
    """

    least_rows: int = 20
    least_change: int = 10

    def __post_init__(self) -> None:
        if self.least_rows < 1 or self.least_change < 0:
            raise ParameterError(
                f"least_rows must be at least 1 and least_change not negative; got {self.least_rows} and "
                f"{self.least_change}.",
                source="ReleasePolicy",
            )

    @classmethod
    def open(cls) -> ReleasePolicy:
        """Return a policy that publishes everything, for public data and experiments."""
        return cls(least_rows=1, least_change=0)

    def held_back(self, statistics: ClassStatistics) -> dict[str, str]:
        """Return the withheld classes and the reason for each."""
        min_rows = self.least_rows
        if min_rows > 1:
            min_rows = max(min_rows, 2 * statistics.n_features)
        return {
            str(label): f"fewer than {min_rows} rows"
            for label in statistics.classes
            if statistics.count(label) < min_rows
        }

    def refusal(
        self, before: ClassStatistics | None, now: ClassStatistics, n_changed: dict[str, float]
    ) -> str | None:
        """Return the reason why nothing may be published yet, or None if publishing is allowed.

        Parameters
        ----------
        before, now : ClassStatistics
            The published statistics, and the statistics to be published.
        n_changed : dict of str to float
            For each class, the number of rows learned or forgotten since the last update.
        """
        if before is None:
            return None if now.classes else "no class has enough rows yet"
        for label in sorted({*map(str, before.classes), *map(str, now.classes)}):
            changed = n_changed.get(label, 0.0)
            if 0 < changed < self.least_change:
                return f"class {label!r} has changed by fewer than {self.least_change} rows"
        return None


class Site:
    """Federated site: keeps its rows and publishes their statistics.

    Parameters
    ----------
    name : str
        Name of the site at the hub.
    target : str
        The column of labels.
    policy : ReleasePolicy, optional
        Conditions for publishing. The default withholds small classes and small changes.
    estimator : ProximalSVC, optional
        The estimator; only its statistics are published. If all sites use the same ``quantizer``, the pooled
        statistics are bit-identical, however the rows are distributed over the sites. Without a quantizer,
        the first 255 rows determine it: 2**25 to 2**29 steps per typical deviation, fewer for long tails,
        which keeps site updates short.
    schema : Schema, optional
        Agreed columns and categories, in the agreed order. By default the rows determine them.
    clock : callable, default=time.time_ns
        Source of the epoch number. After a restart of the site it must return a larger number.

    Attributes
    ----------
    held_back : dict of str to str
        Classes withheld from the last site update, each with the reason.

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
    >>> hub.model().estimator.statistics_.n_rows
    120.0
    """

    __getstate__ = state_without_lock

    @renamed_parameters(learner="estimator")
    def __init__(
        self,
        name: str,
        target: str,
        *,
        policy: ReleasePolicy | None = None,
        estimator: ProximalSVC | None = None,
        schema: Schema | None = None,
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        if not name:
            raise ParameterError("a site needs a name.", source="Site")
        if estimator is not None and (estimator.feature_map is not None or estimator.C == "auto"):
            raise ParameterError(
                "statistics of folds and of mapped rows cannot be published; use an estimator without "
                "feature_map and with a number for C.",
                source="Site",
            )
        self.name = name
        self.policy = policy or ReleasePolicy()
        encoder = TableEncoder("refuse") if schema is None else schema.encoder()
        self.model = TableModel(estimator or ProximalSVC(), encoder, target)
        self._agreed_schema = schema
        self.epoch = clock()
        self.version = 0
        self.held_back: dict[str, str] = {}
        self._published: ClassStatistics | None = None
        self._n_changed: Counter[str] = Counter()

    # -- learning and forgetting -------------------------------------------------------------------------

    @transactional
    def learn(self, /, source: Any, **options: Any) -> int:
        """Learn the rows of a table or file and return their number. A failing call learns no row.

        Parameters
        ----------
        source : table or path
            As for :func:`steelyard.tables.open_stream`.
        **options
            As for :func:`steelyard.tables.open_stream`.
        """
        n_rows = 0
        self.model, self._n_changed = copy.deepcopy(self.model), self._n_changed.copy()
        for chunk in self.model.open(source, labelled=True, **options):
            self._check_categories()
            self._teach(chunk)
            self._count(chunk.y)
            n_rows += len(chunk)
        return n_rows

    def _teach(self, chunk: Chunk) -> None:
        """Learn rows. Without an agreed quantizer, the first 255 rows of the site determine one."""
        estimator = self.model.estimator
        known = estimator.statistics_ if hasattr(estimator, "classes_") else None
        if estimator.quantizer is None and not (known is not None and known.is_frozen):
            n_known = 0 if known is None else int(known.n_rows)
            first = chunk.take(0, _N_CALIBRATION_ROWS - n_known)
            learn_chunk(estimator, first)
            chunk = chunk.take(len(first), len(chunk))
            if n_known + len(first) == _N_CALIBRATION_ROWS:
                self.model.estimator = _with_quantizer(estimator)
        if len(chunk):
            learn_chunk(self.model.estimator, chunk)

    def _check_categories(self) -> None:
        if self._agreed_schema is None:
            return
        agreed = self._agreed_schema.categories
        unknown = [pair for pair in self.model.encoder.categories_ if pair not in agreed]
        if unknown:
            column, value = unknown[0]
            raise DataError(
                f"category {value!r} of column {column!r} is not in the agreed schema; nothing was learned.",
                source=f"Site {self.name!r}",
            )

    @transactional
    def forget(self, source: Any) -> int:
        """Forget the rows of a table or file and return their number. A failing call forgets no row."""
        self.model, self._n_changed = copy.deepcopy(self.model), self._n_changed.copy()
        stream = self.model.open(source, labelled=True)
        stream.learning = False
        chunks = list(stream)
        width = self.model.estimator.n_features_in_
        X = np.concatenate([padded(chunk.rows_for(self.model.estimator), width) for chunk in chunks])
        y = np.concatenate([chunk.y for chunk in chunks])
        self.model.estimator.forget(X, y)
        self._count(y)
        return len(y)

    def _count(self, y: Any) -> None:
        labels, counts = np.unique(y, return_counts=True)
        self._n_changed.update({str(label): int(n) for label, n in zip(labels, counts, strict=True)})

    # -- publishing ---------------------------------------------------------------------------------

    @transactional
    def publish(self) -> SiteUpdate:
        """Return an update with the statistics that the policy allows to publish.

        Raises
        ------
        DataError
            If the policy does not allow an update yet; the message gives the reason.
        """
        statistics = self._statistics()
        held_back = self.policy.held_back(statistics)
        for label in list(statistics.classes):
            if str(label) in held_back:
                statistics.forget_class(label)
        refusal = self.policy.refusal(self._published, statistics, dict(self._n_changed))
        if refusal is not None:
            raise DataError(
                f"nothing is published: {refusal}.",
                source=f"Site {self.name!r}",
                hint="wait for more rows; the hub keeps using the previous update",
            )
        self.version += 1
        self.held_back, self._published = held_back, statistics.copy()
        self._n_changed = Counter()
        return SiteUpdate(self.name, self.epoch, self.version, self._schema(), statistics, held_back)

    @transactional
    def resume(self, site_update: SiteUpdate) -> Self:
        """Continue from an earlier update of this site, for example after a restart.

        The number of rows learned or forgotten since ``site_update`` is unknown. The difference of the row
        counts of each class is used instead. It is a lower bound, so the policy may withhold too much but
        never too little.
        """
        if site_update.site != self.name:
            raise DataError(
                f"this update belongs to site {site_update.site!r}.", source=f"Site {self.name!r}"
            )
        now, before = self._statistics(), site_update.statistics
        self.epoch, self.version, self._published = site_update.epoch, site_update.version, before.copy()
        self._n_changed = Counter()
        both = {*now.classes} & {*before.classes} if now.n_features == before.n_features else set()
        for label in {*now.classes, *before.classes}:
            only = {label: label}
            if label not in both or now.regrouped(only).digest() != before.regrouped(only).digest():
                self._n_changed[str(label)] = max(1, int(abs(now.count(label) - before.count(label))))
        return self

    def _statistics(self) -> ClassStatistics:
        if "columns_" not in vars(self.model.encoder):
            raise DataError("this site has learned no rows yet.", source=f"Site {self.name!r}")
        statistics = quantized(self.model.estimator.statistics_).copy()
        statistics.fold()  # adds buffered rows to the sums, so that no single row is published
        width = len(self.model.encoder.feature_names)
        return statistics.grow(width) if statistics.n_features < width else statistics

    def _schema(self) -> Schema:
        encoder = self.model.encoder
        numeric, categorical = tuple(encoder.numeric_), tuple(encoder.categorical_)
        return Schema(self.model.target, numeric, categorical, tuple(encoder.categories_))

    def adopt(self, model: TableModel) -> Self:
        """Store the pooled model of the hub in :attr:`pooled`.

        The site's own model and statistics do not change.
        """
        self.pooled = model
        return self


# -- default quantizer of a site, if the sites have not agreed on one --------------------------------
#
# The quantization step determines the length of a site update. ProximalSVC chooses 2**33 to 2**37 steps per
# typical deviation; sites use 2**25 to 2**29. A column with long tails has 16 times fewer steps.


def _with_quantizer(estimator: ProximalSVC) -> ProximalSVC:
    """Return an estimator with the default quantizer of a site, fitted on the same rows."""
    rows, labels, weights = _buffered_rows(estimator.statistics_)
    quantizer = _coarser(estimator.statistics_.quantizer, rows)
    fresh: ProximalSVC = clone(estimator).set_params(quantizer=quantizer)
    return fresh.partial_fit(rows, labels, sample_weight=weights)


def quantized(statistics: ClassStatistics) -> ClassStatistics:
    """Return statistics with a quantizer: their own, or the default quantizer of a site."""
    if statistics.is_frozen:
        return statistics
    rows, labels, weights = _buffered_rows(statistics)
    fresh = ClassStatistics(statistics.n_features, quantizer=_coarser(statistics.quantizer, rows))
    if len(rows):
        fresh.add(rows, labels, sample_weight=weights)
    return fresh


def _coarser(quantizer: Quantizer, rows: FloatArray) -> Quantizer:
    """Return a quantizer whose steps are at least as coarse as the default steps of a site."""
    chosen = [
        max(int(e), _step_exponent(column, int(e)))
        for e, column in zip(quantizer.exponents, rows.T, strict=True)
    ]
    exponents = np.array(chosen, dtype=np.int32)
    shifts = exponents - quantizer.exponents
    origins = np.round(np.ldexp(quantizer.origins, -shifts))
    return Quantizer(exponents, origins, quantizer.rounds | (shifts > 0), quantizer.mixed)


def _step_exponent(column: FloatArray, finest: int) -> int:
    """Return the step exponent of a column, a multiple of four so that similar sites have equal steps."""
    values = np.unique(column)
    if len(values) < 2:
        return finest  # any step represents a constant column exactly
    middle = values[(len(values) - 1) // 2]
    with np.errstate(over="ignore"):
        deviations = np.sort(np.abs(values[values != middle] - middle))
    typical = deviations[len(deviations) // 2]
    if not math.isfinite(typical):
        return finest
    tail = 4 if deviations[-1] > _TAIL_DEVIATIONS * typical else 0
    return (math.frexp(typical)[1] - 1 - _STEP_BITS) // 4 * 4 + tail


def _buffered_rows(statistics: ClassStatistics) -> tuple[FloatArray, NDArray[Any], FloatArray]:
    """Return the rows that were learned before the quantizer was fixed, with labels and weights."""
    state = get_state(statistics)
    early, names = state["early"], [entry["label"] for entry in state["classes"]]
    labels = np.array([names[index] for index in early["classes"]])
    weights = np.ldexp(early["weights"].astype(np.float64), state["weight_exponent"])
    return early["rows"].reshape(-1, statistics.n_features), labels, weights
