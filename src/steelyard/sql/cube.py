"""A cube of statistics: every slice's model, without a second look at any row."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from datetime import datetime, timedelta
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from steelyard._concurrency import snapshot_read, snapshot_view, state_without_lock, transactional
from steelyard._labels import check_label_types, check_sortable
from steelyard._memory import check_fits_memory
from steelyard._types import FloatArray
from steelyard.base import Batch
from steelyard.exceptions import DataError, MemoryLimitError, ParameterError
from steelyard.params import Integer
from steelyard.persistence import storable
from steelyard.proximal import ClassStatistics, ProximalSVC
from steelyard.proximal.state.batches import fold_numbers
from steelyard.sql import engines
from steelyard.sql.cells import (
    FARTHEST,
    buckets_of,
    gathered,
    key_of,
    missing_last,
    named,
    numbered,
    seconds,
)
from steelyard.sql.shrinkage import Cells, select_shrinkage, shrink
from steelyard.sql.standings import SliceStanding, standings
from steelyard.tables import TableEncoder, TableModel
from steelyard.tables.columns import ColumnBatch, Columns, Place, near
from steelyard.tables.databases import DatabaseSource, is_address, open_database
from steelyard.tables.labels import LabelReader
from steelyard.tables.table_stream import open_source
from steelyard.windowing.sliding import window_size

__all__ = ["StatisticsCube"]

_MAX_CLASSES = 500
_MOST_FOLDS = 100
_MOST_WAITING = 1 << 26  # bytes of rows that are gathered before they are added
_LITTLE = 1 << 25  # bytes that are not worth the time to save some
_CELL_BYTES = 400  # what a cell and class takes beside its sums
_WHO = "StatisticsCube"


@storable("StatisticsCube")
class StatisticsCube:
    """Statistics of every cell: the values of some columns, and a bucket of time.

    The model of any slice is the sum of its cells and one small solve, exactly that of a fit on its rows.

    Parameters
    ----------
    by : sequence of str
        Columns whose values cut the rows into cells; they are no features. Rows without a value are a cell,
        too, whose value is None.
    target : str
        The column of labels.
    time : str, optional
        The column that says when a row happened.
    bucket : str, default="1d"
        The length of a bucket of time: "1h", "1d", "4w".
    missing : {"refuse", "mean", "zero"}, default="refuse"
        What to do with missing values.
    folds : int, default=0
        Into how many folds the rows of a cell are put by their values, for ``borrow="auto"``; each takes the
        memory of a cell. 0 keeps none.
    max_bytes : int, optional
        How much memory cells may take; more are refused with what they would take. By default what is free.

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

    __getstate__ = state_without_lock

    def __init__(
        self,
        by: Sequence[str],
        target: str,
        *,
        time: str | None = None,
        bucket: str = "1d",
        missing: str = "refuse",
        folds: int = 0,
        max_bytes: int | None = None,
    ) -> None:
        self.by = [by] if isinstance(by, str) else list(by)
        self.target, self.time, self.bucket, self.missing = target, time, bucket, missing
        self.folds, self.max_bytes = folds, max_bytes
        if not Integer(0).accepts(folds) or folds == 1 or folds > _MOST_FOLDS:
            raise ParameterError(f"folds must be 0, or from 2 to {_MOST_FOLDS}; got {folds!r}.", source=_WHO)
        if max_bytes is not None and not Integer(1).accepts(max_bytes):
            raise ParameterError(
                f"max_bytes must be None or a number of bytes; got {max_bytes!r}.", source=_WHO
            )
        if not all(isinstance(name, str) for name in (*self.by, target, "" if time is None else time)):
            raise ParameterError("by, target and time must be names of columns.", source=_WHO)
        if len(set(self.by)) < len(self.by) or target in self.by or time in self.by:
            raise ParameterError("by, target and time must be different columns.", source=_WHO)
        if not isinstance(window_size(bucket), timedelta):
            raise ParameterError(
                f"bucket must be a length of time such as '1d'; got {bucket!r}.", source=_WHO
            )
        self._encoder = TableEncoder(missing)
        self._statistics: ClassStatistics | None = None
        self._labels = LabelReader(target, _MAX_CLASSES)

    # -- rows ---------------------------------------------------------------------------------------

    @transactional
    def add(
        self,
        source: Any,
        *,
        features: Sequence[str] | None = None,
        drop: Sequence[str] = (),
        how: str = "auto",
    ) -> Self:
        """Take in the rows of a table, all or none.

        Parameters
        ----------
        source : table, stream, path, address or data frame of Dask or Spark
            As for :func:`steelyard.tables.open_stream`, or :func:`steelyard.sql.source`.
        features, drop : sequences of str
            Columns to use or to leave out; settled by the first table.
        how : {"auto", "pushed", "streamed"}
            Of a database: whether it takes the sums of all cells itself (``GROUP BY``) or gives its rows.
        """
        self._take_apart()
        engine = type(source).__module__.partition(".")[0]
        if engine in ("dask", "dask_expr", "pyspark"):
            engines.add_partitions(self, source, engine, features, drop)
            return self
        if is_address(source):
            source = open_database(source)
        if isinstance(source, DatabaseSource) and how == "pushed":
            engines.add_sums(self, source, features, drop)
            return self
        for batch in gathered(self._read(source, features, drop), self._wide_batch):
            X, labels, codes = self._cut(batch, learn=True)
            if self._statistics is None:
                self._statistics = ClassStatistics(X.shape[1])
            self._statistics.grow(X.shape[1])
            self._check_memory(labels)
            self._statistics.add_batch(Batch(X, labels, codes, None))
        self._compact()
        return self

    def _wide_batch(self) -> int:
        """How many rows are worth a visit to every cell, within bounds of memory."""
        if self._statistics is None:
            return 0
        row_bytes = 8 * (self._statistics.n_features + 1)
        return min(128 * len(self._statistics.classes), _MOST_WAITING // row_bytes)

    def _compact(self) -> None:
        """Bring rows that wait into the sums of their cells, where these take less room."""
        statistics = self._statistics
        if statistics is None or not statistics.is_settled:
            return
        d = statistics.n_features
        if statistics.nbytes > max(9 * (d + 1) * (d + 2) * len(statistics.classes), _LITTLE):
            # Written and read, as vectors that were emptied keep their room.
            self._statistics = ClassStatistics.from_bytes(statistics.fold().to_bytes())

    def _take_apart(self) -> None:
        """Copies of all that a call changes, so that it shows at one moment."""
        self._encoder, self._labels = deepcopy(self._encoder), deepcopy(self._labels)
        self._statistics = None if self._statistics is None else self._statistics.copy()

    @snapshot_read
    def empty(self) -> StatisticsCube:
        """A cube of the same columns and grid without any rows: what workers fill and give back to merge."""
        other = StatisticsCube(**self.get_params())
        other._encoder, other._labels = deepcopy(self._encoder), deepcopy(self._labels)
        if self._statistics is not None:
            other._statistics = ClassStatistics(
                self._statistics.n_features, quantizer=self._statistics.quantizer
            )
        return other

    @transactional
    def forget(self, source: Any) -> Self:
        """Take out rows that were added before, all or none of a table."""
        self._keys()  # says so where nothing was added
        self._take_apart()
        assert self._statistics is not None
        for batch in self._read(source, None, ()):
            X, labels, codes = self._cut(batch, learn=False)
            self._statistics.remove_batch(Batch(X, labels, codes, None), f"{_WHO}.forget")
        return self

    @transactional
    def merge(self, other: StatisticsCube) -> Self:
        """Add the cells of another cube of the same kind."""
        if not isinstance(other, StatisticsCube) or other._kind != self._kind:
            raise DataError("cubes of the same columns, buckets and folds can be merged.", source=_WHO)
        self._take_apart()
        self._take_in(snapshot_view(other))
        return self

    def _take_in(self, other: StatisticsCube) -> None:
        if other._statistics is None:
            return
        if self._statistics is None:
            self._encoder, self._statistics, self._labels = other._encoder, other._statistics, other._labels
            self._take_apart()
            return
        order = self._encoder.adopt(other._encoder)
        width = len(self._encoder.feature_names)
        self._statistics.grow(width).merge(other._statistics.permute_features(order, width))

    @property
    def _kind(self) -> tuple[Any, ...]:
        return tuple(self.by), self.target, self.time, self.bucket, self.folds

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
        _, classes = self._labels.numbered(batch.columns[self.target], place, 0)
        X, _ = self._encoder.encode(batch, place, 0, learn=learn)
        if self._statistics is not None and X.shape[1] < self._statistics.n_features:
            X = np.pad(X, ((0, 0), (0, self._statistics.n_features - X.shape[1])))
        X = np.ascontiguousarray(X)
        parts = [batch.numbered(name) for name in self.by]
        parts.append(buckets_of(batch, self.time, self._length, _WHO))
        if self.folds:
            parts.append(numbered(fold_numbers(X, self.folds).astype(np.int64)))
        parts.append((self._labels.table.labels, np.asarray(classes, dtype=np.int64)))
        return X, *named(parts)

    @property
    def _length(self) -> float:
        length = window_size(self.bucket)
        assert isinstance(length, timedelta)
        return length.total_seconds()

    def _check_memory(self, labels: Sequence[str]) -> None:
        """Refuse more cells than there is room for, before they take any."""
        assert self._statistics is not None
        self._check_room(labels, self._statistics.n_features)

    def _check_memory_of(self, statistics: ClassStatistics) -> None:
        self._check_room([str(label) for label in statistics.classes], statistics.n_features)

    def _check_room(self, labels: Sequence[str], d: int) -> None:
        known = set() if self._statistics is None else set(self._statistics.classes)
        n_new = len(set(labels) - known)
        size = 8 * (d + 1) * (d + 2) + _CELL_BYTES  # sums of 16 bytes, and what stands around them
        what = f"{len(known) + n_new:,} cells and classes of {d:,} features"
        hint = "cut by fewer columns, or take longer buckets of time"
        total = (len(known) + n_new) * size
        if self.max_bytes is not None and total > self.max_bytes:
            raise MemoryLimitError(
                f"{what} would take {total:,} bytes; at most {self.max_bytes:,} are allowed; nothing was "
                "added.",
                source=_WHO,
                hint=hint,
            )
        check_fits_memory(n_new * size, what, hint)

    # -- slices -------------------------------------------------------------------------------------

    @property
    def n_rows(self) -> float:
        """Rows in all cells."""
        return 0.0 if self._statistics is None else self._statistics.n_rows

    @property
    def nbytes(self) -> int:
        """Bytes that the cells take."""
        return 0 if self._statistics is None else self._statistics.nbytes

    @property
    def cells(self) -> list[tuple[Any, ...]]:
        """Values and bucket of every cell that has rows; those without a value last."""
        return sorted({key[: len(self.by) + 1] for key in self._keys().values()}, key=missing_last)

    def _keys(self) -> dict[str, tuple[Any, ...]]:
        if self._statistics is None:
            raise DataError("no rows have been added yet.", source=_WHO)
        return {str(label): key_of(label) for label in self._statistics.classes}

    @snapshot_read
    def statistics(
        self, /, *, since: str | float | None = None, until: str | float | None = None, **where: Any
    ) -> ClassStatistics:
        """The statistics of a slice.

        Parameters
        ----------
        since, until : time, optional
            From the first, up to and without the second; both at the border of a bucket.
        **where
            A column and its value, or a list of values; None stands for rows without one.
        """
        return self._regrouped(self._chosen(since, until, where))

    def _chosen(
        self, since: str | float | None, until: str | float | None, where: Mapping[str, Any]
    ) -> dict[Any, Any]:
        self._check_cut_by(where)
        allowed = {
            self.by.index(name): {
                None if v is None else str(v)
                for v in (value if isinstance(value, list | tuple | set) else [value])
            }
            for name, value in where.items()
        }
        low, high = self._border(since), self._border(until)
        return {
            label: key[-1]
            for label, key in self._keys().items()
            if all(key[place] in values for place, values in allowed.items())
            and (low is None or key[len(self.by)] >= low)
            and (high is None or key[len(self.by)] < high)
        }

    def _border(self, moment: str | float | None) -> int | None:
        if moment is None:
            return None
        if self.time is None:
            raise ParameterError("this cube has no buckets of time.", source=_WHO, hint="make it with time=")
        at = float(moment) if isinstance(moment, int | float) else seconds(str(moment))
        if isinstance(moment, datetime):
            at = moment.timestamp()
        if not abs(at) < FARTHEST:
            raise ParameterError(
                f"expected a time; got {moment!r}.", source=_WHO, hint="for example 2026-01-31"
            )
        bucket, rest = divmod(at, self._length)
        if rest:
            raise ParameterError(
                f"{moment!r} is not at the border of a bucket of {self.bucket}.",
                source=_WHO,
                hint="smaller buckets can be asked for finer spans",
            )
        return int(bucket)

    @snapshot_read
    def model(
        self,
        /,
        *,
        since: str | float | None = None,
        until: str | float | None = None,
        borrow: float | str = 0.0,
        learner: ProximalSVC | None = None,
        **where: Any,
    ) -> TableModel:
        """The model of a slice, exactly that of a fit on its rows.

        Parameters
        ----------
        since, until, **where
            As for :meth:`statistics`.
        borrow : float or "auto", default=0.0
            A slice with few rows may borrow: all rows of the cube are added with so much weight together as
            this many rows of the slice would have. "auto" takes what does best on rows of the slice left
            out, fold by fold, and needs a cube with ``folds``.
        learner : ProximalSVC, optional
            Whose parameters are used.
        """
        own = self._chosen(since, until, where)
        statistics = self._regrouped(own)
        if borrow == "auto":
            borrow = self._best_borrow(own, learner)
        if not isinstance(borrow, int | float) or not borrow >= 0.0:
            raise ParameterError(f'borrow must be a number of rows or "auto"; got {borrow!r}.', source=_WHO)
        if borrow > 0.0:
            statistics.merge(shrink(self.statistics(), float(borrow)))
        return self._table_model(statistics, learner)

    def _best_borrow(self, own: Mapping[Any, Any], learner: ProximalSVC | None) -> float:
        if not self.folds:
            raise ParameterError('borrow="auto" needs folds.', source=_WHO, hint="make the cube with folds=5")
        keys = self._keys()
        cells = Cells(self._regrouped, {label: (key[-2], key[-1]) for label, key in keys.items()}, self.folds)
        return select_shrinkage(cells, own, _parameters(learner))

    @snapshot_read
    def models(self, by: str | Sequence[str], learner: ProximalSVC | None = None) -> dict[Any, TableModel]:
        """One model for each value of a column, or for each combination of several.

        Parameters
        ----------
        by : str or sequence of str
            Columns that the cube is cut by.
        learner : ProximalSVC, optional
            Whose parameters are used.
        """
        return {key: self._table_model(part, learner) for key, part in self._slices(by).items()}

    def _regrouped(self, chosen: Mapping[Any, Any]) -> ClassStatistics:
        if not chosen:
            raise DataError("no row is in this slice.", source=_WHO, hint="cells lists the values there are")
        assert self._statistics is not None
        return self._statistics.regrouped(chosen)

    def _slices(self, by: str | Sequence[str]) -> dict[Any, ClassStatistics]:
        names = [by] if isinstance(by, str) else list(by)
        self._check_cut_by(names)
        places = [self.by.index(name) for name in names]
        groups: dict[Any, dict[Any, Any]] = {}
        for label, key in self._keys().items():
            chosen = tuple(key[place] for place in places)
            groups.setdefault(chosen[0] if isinstance(by, str) else chosen, {})[label] = key[-1]
        return {key: self._regrouped(groups[key]) for key in sorted(groups, key=missing_last)}

    def _check_cut_by(self, names: Iterable[str]) -> None:
        for name in names:
            if name not in self.by:
                closest = near(name, self.by)
                raise ParameterError(
                    f"{name!r} is none of the columns that the cube is cut by: {', '.join(self.by)}.",
                    source=_WHO,
                    hint=f"did you mean {closest!r}?" if closest else None,
                )

    def _table_model(self, statistics: ClassStatistics, learner: ProximalSVC | None) -> TableModel:
        model = ProximalSVC(**_parameters(learner)).merge(statistics)
        return TableModel(model, self._encoder, self.target)

    @snapshot_read
    def compare(self, by: str | Sequence[str], learner: ProximalSVC | None = None) -> list[SliceStanding]:
        """Where the common model fails, and by how much: largest slices first."""
        return standings(self.statistics(), self._slices(by), _parameters(learner))

    # -- files --------------------------------------------------------------------------------------

    def get_params(self, deep: bool = True) -> dict[str, Any]:  # noqa: ARG002  as scikit-learn asks
        """What it was made with."""
        return {
            "by": self.by,
            "target": self.target,
            "time": self.time,
            "bucket": self.bucket,
            "missing": self.missing,
            "folds": self.folds,
            "max_bytes": self.max_bytes,
        }

    def _get_state(self) -> dict[str, Any]:
        if self._statistics is None:
            return {}
        return {"encoder": self._encoder, "statistics": self._statistics.to_bytes()}

    def _set_state(self, state: dict[str, Any]) -> None:
        encoder, statistics = state["encoder"], ClassStatistics.from_bytes(state["statistics"])
        if not isinstance(encoder, TableEncoder) or statistics.n_features > len(encoder.feature_names):
            raise ValueError("the columns do not make the features of the statistics")
        self._encoder, self._statistics = encoder, statistics
        for label in statistics.classes:
            key = key_of(label)
            values, numbers = key[: len(self.by)], key[len(self.by) : -1]
            fits = len(key) == len(self.by) + 2 + bool(self.folds) and all(type(k) is int for k in numbers)
            if not fits or not all(value is None or type(value) is str for value in values):
                raise ValueError("a cell has a name that none can have")
        check_label_types([key[-1] for key in self._keys().values()], _WHO)
        check_sortable([key[-1] for key in self._keys().values()], _WHO)

    def __repr__(self) -> str:
        return f"StatisticsCube(by={self.by!r}, {self.n_rows:,.0f} rows)"


def _parameters(learner: ProximalSVC | None) -> dict[str, Any]:
    return {} if learner is None else learner.get_params(deep=False)
