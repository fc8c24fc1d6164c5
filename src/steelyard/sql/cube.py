"""A cube of statistics: every slice's model, without a second look at any row."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from steelyard._memory import check_fits_memory
from steelyard._types import FloatArray
from steelyard.base import Batch
from steelyard.exceptions import DataError, ParameterError
from steelyard.memory.windows import window_size
from steelyard.persistence import storable
from steelyard.proximal import ClassStatistics, ProximalSVC
from steelyard.proximal.rule.validation import measure
from steelyard.tables import TableEncoder, TableModel
from steelyard.tables.columns import ColumnBatch, Columns, Place, as_texts
from steelyard.tables.labels import LabelReader
from steelyard.tables.table_stream import open_source, seconds_of

__all__ = ["SliceStanding", "StatisticsCube"]

_MAX_CLASSES = 500
_WHO = "StatisticsCube"


@dataclass(frozen=True)
class SliceStanding:
    """How the common model fares on a slice, beside the slice's own.

    Attributes
    ----------
    slice : tuple of str
        The values that it has in the columns asked for.
    rows : float
        Its rows.
    shares : mapping of str to float
        The share of each class.
    squared_error, own_squared_error : float
        Of the common and of the slice's own model on its rows; exact.
    auc, own_auc, gmean, own_gmean : float
        The same by the exact means and variances of the scores, taken as normal; nan without two classes.
    """

    slice: tuple[str, ...]
    rows: float
    shares: Mapping[str, float]
    squared_error: float
    own_squared_error: float
    auc: float
    own_auc: float
    gmean: float
    own_gmean: float


@storable("StatisticsCube")
class StatisticsCube:
    """Statistics of every cell: the values of some columns, and a bucket of time.

    The model of any slice is the sum of its cells and one small solve, exactly that of a fit on its rows.

    Parameters
    ----------
    by : sequence of str
        Columns whose values cut the rows into cells; they are no features.
    target : str
        The column of labels.
    time : str, optional
        The column that says when a row happened.
    bucket : str, default="1d"
        The length of a bucket of time: "1h", "1d", "4w".
    missing : {"refuse", "mean", "zero"}, default="refuse"
        What to do with missing values.

    Examples
    --------
    >>> import pandas as pd
    >>> from steelyard.sql import StatisticsCube
    >>> amounts, frauds = [k % 13 for k in range(200)], [k // 3 % 2 for k in range(200)]
    >>> shops = pd.DataFrame({"shop": ["A", "B"] * 100, "amount": amounts, "fraud": frauds})
    >>> cube = StatisticsCube(["shop"], "fraud").add(shops)
    >>> cube.n_rows, len(cube.cells)
    (200.0, 2)
    >>> cube.model(shop="A").learner.statistics_.n_rows
    100.0
    """

    def __init__(
        self,
        by: Sequence[str],
        target: str,
        *,
        time: str | None = None,
        bucket: str = "1d",
        missing: str = "refuse",
    ) -> None:
        self.by = [by] if isinstance(by, str) else list(by)
        self.target, self.time, self.bucket, self.missing = target, time, bucket, missing
        if len(set(self.by)) < len(self.by) or target in self.by or time in self.by:
            raise ParameterError("by, target and time must be different columns.", who=_WHO)
        if not isinstance(window_size(bucket), timedelta):
            raise ParameterError(f"bucket must be a length of time such as '1d'; got {bucket!r}.", who=_WHO)
        self._encoder = TableEncoder(missing)
        self._statistics: ClassStatistics | None = None
        self._labels = LabelReader(target, _MAX_CLASSES)

    # -- rows ---------------------------------------------------------------------------------------

    def add(self, source: Any, *, features: Sequence[str] | None = None, drop: Sequence[str] = ()) -> Self:
        """Take in the rows of a table; on error nothing of the batch at fault is taken.

        Parameters
        ----------
        source : table, path or address
            As for :func:`steelyard.tables.open_stream`.
        features, drop : sequences of str
            Columns to use or to leave out; settled by the first table.
        """
        for batch in self._read(source, features, drop):
            X, labels, codes = self._cut(batch, learn=True)
            statistics = self._grown(X.shape[1])
            self._check_memory(statistics, labels)
            statistics.add_batch(Batch(X, labels, codes, None))
            self._statistics = statistics
        return self

    def forget(self, source: Any) -> Self:
        """Take out rows that were added before, all or none of a table."""
        if self._statistics is None:
            raise DataError("no rows have been added yet.", who=_WHO)
        statistics = self._statistics.copy()
        for batch in self._read(source, None, ()):
            X, labels, codes = self._cut(batch, learn=False)
            statistics.remove_batch(Batch(X, labels, codes, None), f"{_WHO}.forget")
        self._statistics = statistics
        return self

    def merge(self, other: StatisticsCube) -> Self:
        """Add the cells of another cube of the same kind."""
        same = (self.by, self.target, self.time, self.bucket)
        if (
            not isinstance(other, StatisticsCube)
            or (other.by, other.target, other.time, other.bucket) != same
        ):
            raise DataError("cubes of the same columns and buckets can be merged.", who=_WHO)
        if other._statistics is None:
            return self
        if self._statistics is None:
            self._encoder, self._statistics = other._encoder, other._statistics.copy()
            return self
        order = self._encoder.adopt(other._encoder)
        width = len(self._encoder.feature_names)
        self._statistics = self._grown(width).merge(other._statistics.rearranged(order, width))
        return self

    def _read(
        self, source: Any, features: Sequence[str] | None, drop: Sequence[str]
    ) -> Iterable[ColumnBatch]:
        reader = open_source(source)
        settled = "columns_" in vars(self._encoder)
        chosen = list(self._encoder.columns_) if settled else features
        columns = Columns(
            self.target,
            self.time,
            None if chosen is None else tuple(chosen),
            () if settled else (*self.by, *drop),
            (*self.by, *(self._encoder.categorical_ if settled else ())),
        )
        try:
            names = columns.chosen(reader.names, reader.place.source, getattr(reader, "index_names", ()))
            wanted = [*columns.wanted(names), *self.by]
            for batch in reader.batches(wanted, reader.kinds(columns, wanted)):
                if "columns_" not in vars(self._encoder):
                    self._encoder.settle(batch, names, ())
                yield batch
        finally:
            reader.close()

    def _cut(self, batch: ColumnBatch, *, learn: bool) -> tuple[FloatArray, list[str], NDArray[np.int32]]:
        """Features, and for each row the cell and class that it belongs to."""
        place = Place(_WHO)
        y = self._labels.read(batch.columns[self.target], place, 0)
        buckets = self._buckets(batch)
        X, _ = self._encoder.encode(batch, place, 0, learn=learn)
        if self._statistics is not None and X.shape[1] < self._statistics.n_features:
            X = np.pad(X, ((0, 0), (0, self._statistics.n_features - X.shape[1])))
        columns = [as_texts(batch.columns[name]) for name in self.by]
        keys = list(zip(*columns, buckets, y.tolist(), strict=True))
        names: dict[tuple[Any, ...], int] = {}
        codes = np.fromiter((names.setdefault(key, len(names)) for key in keys), np.int32, len(keys))
        return np.ascontiguousarray(X), [json.dumps(key) for key in names], codes

    def _buckets(self, batch: ColumnBatch) -> list[int]:
        if self.time is None:
            return [0] * batch.n_rows
        values = batch.columns[self.time]
        seconds = np.array(
            [seconds_of(value) for value in values] if values.dtype == object else values, dtype=np.float64
        )
        if not np.isfinite(seconds).all():
            row = int(np.flatnonzero(~np.isfinite(seconds))[0])
            raise DataError(f"the time is missing in row {row + 1:,}, column {self.time!r}.", who=_WHO)
        whole: list[int] = np.floor(seconds / self._length).astype(np.int64).tolist()
        return whole

    @property
    def _length(self) -> float:
        length = window_size(self.bucket)
        assert isinstance(length, timedelta)
        return length.total_seconds()

    def _grown(self, width: int) -> ClassStatistics:
        if self._statistics is None:
            return ClassStatistics(width)
        statistics = self._statistics.copy()
        return statistics.grow(width) if statistics.n_features < width else statistics

    def _check_memory(self, statistics: ClassStatistics, labels: list[str]) -> None:
        known = set(statistics.classes)
        n_new = sum(label not in known for label in labels)
        size = 16 * (statistics.n_features + 1) * (statistics.n_features + 2) // 2
        check_fits_memory(
            n_new * size,
            f"{n_new:,} new cells and classes of {statistics.n_features:,} features",
            "cut by fewer columns, or take longer buckets of time",
        )

    # -- slices -------------------------------------------------------------------------------------

    @property
    def n_rows(self) -> float:
        """Rows in all cells."""
        return 0.0 if self._statistics is None else self._statistics.n_rows

    @property
    def cells(self) -> list[tuple[Any, ...]]:
        """Values and bucket of every cell that has rows."""
        return sorted({key[:-1] for key in self._keys().values()})

    def _keys(self) -> dict[str, tuple[Any, ...]]:
        if self._statistics is None:
            raise DataError("no rows have been added yet.", who=_WHO)
        return {str(label): tuple(json.loads(str(label))) for label in self._statistics.classes}

    def statistics(
        self, *, since: str | float | None = None, until: str | float | None = None, **where: Any
    ) -> ClassStatistics:
        """The statistics of a slice.

        Parameters
        ----------
        since, until : time, optional
            From the first, up to and without the second; both at the border of a bucket.
        **where
            A column and its value, or a list of values.
        """
        chosen = self._chosen(since, until, where)
        if not chosen:
            raise DataError("no row is in this slice.", who=_WHO, hint="cells lists the values there are")
        assert self._statistics is not None
        return self._statistics.regrouped(chosen)

    def _chosen(
        self, since: str | float | None, until: str | float | None, where: Mapping[str, Any]
    ) -> dict[Any, Any]:
        strange = [name for name in where if name not in self.by]
        if strange:
            raise ParameterError(
                f"{strange[0]!r} is none of the columns that the cube is cut by: {', '.join(self.by)}.",
                who=_WHO,
            )
        allowed = {
            self.by.index(name): {
                str(v) for v in (value if isinstance(value, list | tuple | set) else [value])
            }
            for name, value in where.items()
        }
        low, high = self._border(since), self._border(until)
        return {
            label: key[-1]
            for label, key in self._keys().items()
            if all(key[place] in values for place, values in allowed.items())
            and (low is None or key[-2] >= low)
            and (high is None or key[-2] < high)
        }

    def _border(self, moment: str | float | None) -> int | None:
        if moment is None:
            return None
        if self.time is None:
            raise ParameterError("this cube has no buckets of time.", who=_WHO, hint="make it with time=")
        seconds = float(moment) if isinstance(moment, int | float) else seconds_of(str(moment))
        if isinstance(moment, datetime):
            seconds = moment.timestamp()
        bucket, rest = divmod(seconds, self._length)
        if rest:
            raise ParameterError(
                f"{moment!r} is not at the border of a bucket of {self.bucket}.",
                who=_WHO,
                hint="smaller buckets can be asked for finer spans",
            )
        return int(bucket)

    def model(
        self,
        *,
        since: str | float | None = None,
        until: str | float | None = None,
        borrow: float = 0.0,
        learner: ProximalSVC | None = None,
        **where: Any,
    ) -> TableModel:
        """The model of a slice, exactly that of a fit on its rows.

        Parameters
        ----------
        since, until, **where
            As for :meth:`statistics`.
        borrow : float, default=0.0
            A slice with few rows may borrow: all rows of the cube are added with so much weight together as
            this many rows of the slice would have.
        learner : ProximalSVC, optional
            Whose parameters are used.
        """
        own = self.statistics(since=since, until=until, **where)
        if borrow > 0.0:
            everything = self.statistics()
            own.merge(everything.scale(min(1.0, borrow / everything.n_rows)))
        return self._table_model(own, learner)

    def models(self, by: str | Sequence[str], learner: ProximalSVC | None = None) -> dict[Any, TableModel]:
        """One model for each value of a column, or for each combination of several."""
        return {key: self._table_model(part, learner) for key, part in self._slices(by).items()}

    def _slices(self, by: str | Sequence[str]) -> dict[Any, ClassStatistics]:
        names = [by] if isinstance(by, str) else list(by)
        strange = [name for name in names if name not in self.by]
        if strange:
            raise ParameterError(
                f"{strange[0]!r} is none of the columns that the cube is cut by: {', '.join(self.by)}.",
                who=_WHO,
            )
        places = [self.by.index(name) for name in names]
        groups: dict[Any, dict[Any, Any]] = {}
        for label, key in self._keys().items():
            chosen = tuple(key[place] for place in places)
            groups.setdefault(chosen[0] if isinstance(by, str) else chosen, {})[label] = key[-1]
        assert self._statistics is not None
        return {key: self._statistics.regrouped(labels) for key, labels in sorted(groups.items())}

    def _table_model(self, statistics: ClassStatistics, learner: ProximalSVC | None) -> TableModel:
        parameters = {} if learner is None else learner.get_params(deep=False)
        model = ProximalSVC(**parameters).merge(statistics)
        return TableModel(model, self._encoder, self.target)

    def compare(self, by: str | Sequence[str], learner: ProximalSVC | None = None) -> list[SliceStanding]:
        """Where the common model fails, and by how much: largest slices first."""
        parameters = {} if learner is None else learner.get_params(deep=False)
        common = ProximalSVC(**parameters).merge(self.statistics())
        standings = []
        for key, part in self._slices(by).items():
            together = measure(common, part)
            alone = dict.fromkeys(("squared_error", "auc", "gmean"), float("nan"))
            if len(part.classes) > 1:
                alone = measure(ProximalSVC(**parameters).merge(part), part)
            standings.append(
                SliceStanding(
                    key if isinstance(key, tuple) else (key,),
                    part.n_rows,
                    {str(label): part.count(label) / part.n_rows for label in part.classes},
                    together["squared_error"],
                    alone["squared_error"],
                    together["auc"],
                    alone["auc"],
                    together["gmean"],
                    alone["gmean"],
                )
            )
        return sorted(standings, key=lambda standing: -standing.rows)

    # -- files --------------------------------------------------------------------------------------

    def get_params(self, deep: bool = True) -> dict[str, Any]:  # noqa: ARG002  as scikit-learn asks
        """What it was made with."""
        return {
            "by": self.by,
            "target": self.target,
            "time": self.time,
            "bucket": self.bucket,
            "missing": self.missing,
        }

    def _get_state(self) -> dict[str, Any]:
        if self._statistics is None:
            return {}
        return {"encoder": self._encoder, "statistics": self._statistics.to_bytes()}

    def _set_state(self, state: dict[str, Any]) -> None:
        self._encoder = state["encoder"]
        self._statistics = ClassStatistics.from_bytes(state["statistics"])

    def __repr__(self) -> str:
        return f"StatisticsCube(by={self.by!r}, {self.n_rows:,.0f} rows)"
