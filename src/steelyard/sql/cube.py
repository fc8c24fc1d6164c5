"""Statistics cube, which computes the model of any slice without reading the rows again."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from steelyard._concurrency import snapshot_read, snapshot_view, state_without_lock, transactional
from steelyard._deprecation import renamed_parameters
from steelyard._labels import LabelEncoder, restored_labels
from steelyard._memory import check_fits_memory
from steelyard._types import FloatArray
from steelyard.base import Batch
from steelyard.exceptions import DataError, DataTypeError, MemoryLimitError, ParameterError
from steelyard.params import AnyOf, Integer, OneOf, check_value
from steelyard.persistence import from_bytes, storable, to_bytes
from steelyard.proximal import ClassStatistics, ProximalSVC
from steelyard.proximal.row_ledger import fold_numbers
from steelyard.sql.pushdown import PushdownNotSupported, execute, plan_pushdown
from steelyard.sql.slices import (
    MAX_SECONDS,
    SliceSummary,
    batched,
    bucket_codes,
    cell_codes,
    encode,
    key_of,
    missing_last,
    select_shrinkage,
    shrink,
    summarize_slices,
)
from steelyard.streams.chunks import padded
from steelyard.tables import TableEncoder, TableModel
from steelyard.tables.columns import ColumnBatch, Columns, Place, did_you_mean
from steelyard.tables.databases import DatabaseSource, open_database
from steelyard.tables.encoding import LabelReader
from steelyard.tables.frames import seconds_of
from steelyard.tables.source import is_address
from steelyard.tables.table_stream import open_source
from steelyard.windowing.sliding import window_size

_MAX_FOLDS = 100
_MAX_BUFFER_BYTES = 1 << 26  # memory limit of rows that are buffered before they are added
_MIN_BYTES_TO_COMPACT = 1 << 25  # smaller cubes are not compacted
_CELL_OVERHEAD_BYTES = 400  # memory per cell and class in addition to its sums
# Number of first rows of a data frame of Dask or Spark that determine the columns and the quantizer.
_N_CALIBRATION_ROWS = 1000
_SOURCE = "StatisticsCube"


@storable("StatisticsCube")
class StatisticsCube:
    """Statistics cube: one set of statistics for each cell, a combination of column values and time bucket.

    The model of a slice is solved from the sum of its cells. It equals a fit on the rows of the slice.

    Parameters
    ----------
    by : sequence of str
        Columns whose values define the cells. They are not features. Rows with a missing value form a cell
        with the value None.
    target : str
        The column of labels.
    time : str, optional
        The column with the time of a row.
    bucket : str, default="1d"
        Length of a time bucket: "1h", "1d", "4w".
    missing : {"refuse", "mean", "zero"}, default="refuse"
        Treatment of missing values: raise an error, or fill with the mean or zero.
    folds : int, default=0
        Number of cross-validation folds for ``borrow="auto"``. Rows are assigned to folds by their values.
        Each fold of a cell takes as much memory as a cell. 0 stores no folds.
    max_bytes : int, optional
        Memory limit of all cells; exceeding it raises MemoryLimitError. By default the free memory.

    Examples
    --------
    >>> import pandas as pd
    >>> from steelyard.sql import StatisticsCube
    >>> amounts, frauds = [k % 13 for k in range(200)], [k // 3 % 2 for k in range(200)]
    >>> shops = pd.DataFrame({"shop": ["A", "B"] * 100, "amount": amounts, "fraud": frauds})
    >>> cube = StatisticsCube(["shop"], "fraud").add(shops)
    >>> cube.n_rows, len(cube.cells)
    (200.0, 2)
    >>> cube.model(shop="A").estimator.statistics_.n_rows
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
        if not Integer(0).accepts(folds) or folds == 1 or folds > _MAX_FOLDS:
            raise ParameterError(
                f"folds must be 0, or from 2 to {_MAX_FOLDS}; got {folds!r}.", source=_SOURCE
            )
        check_value("max_bytes", max_bytes, AnyOf(OneOf(None), Integer(1)), _SOURCE)
        if not all(isinstance(name, str) for name in (*self.by, target, "" if time is None else time)):
            raise ParameterError("by, target and time must be names of columns.", source=_SOURCE)
        if len(set(self.by)) < len(self.by) or target in self.by or time in self.by:
            raise ParameterError("by, target and time must be different columns.", source=_SOURCE)
        if not isinstance(window_size(bucket), timedelta):
            raise ParameterError(f"bucket must be a duration such as '1d'; got {bucket!r}.", source=_SOURCE)
        self._encoder = TableEncoder(missing)
        self._statistics: ClassStatistics | None = None

    # -- adding and removing rows ------------------------------------------------------------------------

    @transactional
    def add(
        self,
        source: Any,
        *,
        features: Sequence[str] | None = None,
        drop: Sequence[str] = (),
        how: str = "auto",
    ) -> Self:
        """Add the rows of a table. A failing call adds none of them.

        Parameters
        ----------
        source : table, stream, path, address or data frame of Dask or Spark
            As for :func:`steelyard.tables.open_stream`, or :func:`steelyard.sql.source`.
        features, drop : sequences of str
            Columns to use or to leave out. The first table determines the columns.
        how : {"auto", "pushed", "streamed"}
            For databases: "pushed" computes the sums of all cells in the database (``GROUP BY``), "streamed"
            and "auto" read the rows.
        """
        self._copy_state()
        engine = type(source).__module__.partition(".")[0]
        if engine in ("dask", "dask_expr", "pyspark"):
            _add_partitions(self, source, engine, features, drop)
            return self
        if is_address(source):
            source = open_database(source)
        if isinstance(source, DatabaseSource) and how == "pushed":
            _add_sums(self, source, features, drop)
            return self
        classes = self._label_reader()
        for batch in batched(self._read(source, features, drop), self._min_batch_rows):
            X, labels, codes = self._encode(batch, classes, learn=True)
            if self._statistics is None:
                self._statistics = ClassStatistics(X.shape[1])
            self._statistics.grow(X.shape[1])
            self._check_memory(labels, self._statistics.n_features)  # no cell has been allocated yet
            self._statistics.add_batch(Batch(X, labels, codes, None))
        self._compact()
        return self

    def _min_batch_rows(self) -> int:
        """Return the batch size that amortizes the cost per cell, within a memory limit."""
        if self._statistics is None:
            return 0
        row_bytes = 8 * (self._statistics.n_features + 1)
        return min(128 * len(self._statistics.classes), _MAX_BUFFER_BYTES // row_bytes)

    def _compact(self) -> None:
        """Add buffered rows to the sums of their cells if that saves memory."""
        statistics = self._statistics
        if statistics is None or not statistics.is_frozen:
            return
        d = statistics.n_features
        if statistics.nbytes > max(9 * (d + 1) * (d + 2) * len(statistics.classes), _MIN_BYTES_TO_COMPACT):
            # Writing and reading the statistics frees the unused capacity of emptied row buffers.
            self._statistics = ClassStatistics.from_bytes(statistics.fold().to_bytes())

    def _copy_state(self) -> None:
        """Copy the state that a call changes, so that the changes become visible atomically."""
        self._encoder = self._encoder.copy()
        self._statistics = None if self._statistics is None else self._statistics.copy()

    @snapshot_read
    def empty(self) -> StatisticsCube:
        """Return a cube without rows that has the same columns and quantizer, for a worker to fill."""
        other = StatisticsCube(**self.get_params())
        other._encoder = self._encoder.copy()
        if self._statistics is not None:
            other._statistics = ClassStatistics(
                self._statistics.n_features, quantizer=self._statistics.quantizer
            )
        return other

    @transactional
    def forget(self, source: Any) -> Self:
        """Remove rows that were added before. A failing call removes none of them."""
        self._keys()  # raises an error if nothing was added
        self._copy_state()
        assert self._statistics is not None
        classes = self._label_reader()
        for batch in self._read(source, None, ()):
            X, labels, codes = self._encode(batch, classes, learn=False)
            self._statistics.remove_batch(Batch(X, labels, codes, None), f"{_SOURCE}.forget")
        return self

    @transactional
    def merge(self, other: StatisticsCube) -> Self:
        """Add the cells of another cube with the same columns, buckets and folds."""
        if not isinstance(other, StatisticsCube) or other._kind != self._kind:
            raise DataError(
                "only cubes with the same columns, buckets and folds can be merged.", source=_SOURCE
            )
        self._copy_state()
        self._merge(snapshot_view(other))
        return self

    def _merge(self, other: StatisticsCube) -> None:
        if other._statistics is None:
            return
        if self._statistics is None:
            self._encoder, self._statistics = other._encoder, other._statistics
            self._copy_state()
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
        columns = Columns.of(self.target, self.time, features=features, drop=(*self.by, *drop))
        if self._encoder.is_fitted:
            columns = self._encoder.roles(self.target, self.time)
        columns = replace(columns, categorical=(*self.by, *columns.categorical))
        try:
            names = columns.chosen(reader.names, reader.place.source, reader.index_names)
            wanted = [*columns.wanted(names), *self.by]
            for batch in reader.batches(wanted, reader.kinds(columns, wanted)):
                if not self._encoder.is_fitted:
                    self._encoder.fit_columns(batch, names, ())
                yield batch
        finally:
            reader.close()

    def _label_reader(self) -> LabelReader:
        """Return a reader of labels that knows the labels of all cells, so labels of another type raise."""
        cells = {} if self._statistics is None else self._keys()
        return LabelReader(self.target, table=LabelEncoder(dict.fromkeys(key[-1] for key in cells.values())))

    def _encode(
        self, batch: ColumnBatch, classes: LabelReader, *, learn: bool
    ) -> tuple[FloatArray, list[str], NDArray[np.int32]]:
        """Return features, the names of (cell, class) pairs, and the index of each row's pair."""
        place = Place(_SOURCE)
        _, codes = classes.encode(batch.columns[self.target], place, 0)
        X, _ = self._encoder.encode(batch, place, 0, learn=learn)
        X = np.ascontiguousarray(X if self._statistics is None else padded(X, self._statistics.n_features))
        columns = [batch.dictionary_encode(name) for name in self.by]
        columns.append(bucket_codes(batch, self.time, self._bucket_seconds, place))
        if self.folds:
            columns.append(encode(fold_numbers(X, self.folds).astype(np.int64)))
        columns.append((classes.table.labels, np.asarray(codes, dtype=np.int64)))
        return X, *cell_codes(columns)

    @property
    def _bucket_seconds(self) -> float:
        length = window_size(self.bucket)
        assert isinstance(length, timedelta)
        return length.total_seconds()

    def _check_memory(self, labels: Iterable[str], d: int) -> None:
        """Raise an error if cells with ``d`` features would exceed the memory limit."""
        known = set() if self._statistics is None else set(self._statistics.classes)
        n_new = len(set(labels) - known)
        size = 8 * (d + 1) * (d + 2) + _CELL_OVERHEAD_BYTES  # (d + 1) (d + 2) / 2 sums of 16 bytes
        what = f"{len(known) + n_new:,} pairs of cell and class with {d:,} features"
        hint = "use fewer columns in by=, or longer time buckets"
        total = (len(known) + n_new) * size
        if self.max_bytes is not None and total > self.max_bytes:
            raise MemoryLimitError(
                f"{what} would take {total:,} bytes; at most {self.max_bytes:,} are allowed; nothing was "
                "added.",
                source=_SOURCE,
                hint=hint,
            )
        check_fits_memory(n_new * size, what, hint)

    # -- models of slices --------------------------------------------------------------------------------

    @property
    def n_rows(self) -> float:
        """Number of rows in all cells."""
        return 0.0 if self._statistics is None else self._statistics.n_rows

    @property
    def nbytes(self) -> int:
        """Memory of the cells in bytes."""
        return 0 if self._statistics is None else self._statistics.nbytes

    @property
    def cells(self) -> list[tuple[Any, ...]]:
        """Column values and time bucket of every cell that has rows, sorted with missing values last."""
        return sorted({key[: len(self.by) + 1] for key in self._keys().values()}, key=missing_last)

    def _keys(self) -> dict[str, tuple[Any, ...]]:
        if self._statistics is None:
            raise DataError("no rows have been added yet.", source=_SOURCE)
        return {str(label): key_of(label) for label in self._statistics.classes}

    @snapshot_read
    def statistics(
        self, /, *, since: str | float | None = None, until: str | float | None = None, **where: Any
    ) -> ClassStatistics:
        """Return the statistics of the rows of a slice.

        Parameters
        ----------
        since, until : time, optional
            Start (inclusive) and end (exclusive); both must be boundaries of buckets.
        **where
            A column and its value or a list of values; None selects rows with a missing value.
        """
        return self._regrouped(self._chosen(since, until, where))

    def _chosen(
        self, since: str | float | None, until: str | float | None, where: Mapping[str, Any]
    ) -> dict[Any, Any]:
        self._check_columns(where)
        allowed = {
            self.by.index(name): {
                None if v is None else str(v)
                for v in (value if isinstance(value, list | tuple | set) else [value])
            }
            for name, value in where.items()
        }
        first, end = self._bucket_at(since), self._bucket_at(until)
        return {
            label: key[-1]
            for label, key in self._keys().items()
            if all(key[index] in values for index, values in allowed.items())
            and (first is None or key[len(self.by)] >= first)
            and (end is None or key[len(self.by)] < end)
        }

    def _bucket_at(self, time: str | float | None) -> int | None:
        if time is None:
            return None
        if self.time is None:
            raise ParameterError(
                "this cube has no time buckets.", source=_SOURCE, hint="create the cube with time="
            )
        try:
            at = float(time) if isinstance(time, int | float) else seconds_of(str(time))
        except ValueError:
            at = math.nan
        if not abs(at) < MAX_SECONDS:
            raise ParameterError(
                f"expected a time; got {time!r}.", source=_SOURCE, hint="for example 2026-01-31"
            )
        bucket, rest = divmod(at, self._bucket_seconds)
        if rest:
            raise ParameterError(
                f"{time!r} is not a boundary of the buckets of {self.bucket}.",
                source=_SOURCE,
                hint="use shorter buckets to select shorter periods",
            )
        return int(bucket)

    @renamed_parameters(learner="estimator")
    @snapshot_read
    def model(
        self,
        /,
        *,
        since: str | float | None = None,
        until: str | float | None = None,
        borrow: float | str = 0.0,
        estimator: ProximalSVC | None = None,
        **where: Any,
    ) -> TableModel:
        """Return the model of a slice, which equals a fit on the rows of the slice.

        Parameters
        ----------
        since, until, **where
            As for :meth:`statistics`.
        borrow : float or "auto", default=0.0
            Shrinkage towards all rows, for slices with few rows: all rows of the cube are added, scaled to a
            total weight of ``borrow`` rows. "auto" selects the weight by cross-validation on the slice and
            needs a cube with ``folds``.
        estimator : ProximalSVC, optional
            Estimator whose parameters are used.
        """
        own = self._chosen(since, until, where)
        statistics = self._regrouped(own)
        if borrow == "auto":
            if not self.folds:
                raise ParameterError(
                    'borrow="auto" needs folds.', source=_SOURCE, hint="create the cube with folds=5"
                )
            cells = {label: (key[-2], key[-1]) for label, key in self._keys().items()}
            borrow = select_shrinkage(self._regrouped, cells, own, self.folds, _parameters(estimator))
        if not isinstance(borrow, int | float) or not borrow >= 0.0:
            raise ParameterError(
                f'borrow must be a number of rows or "auto"; got {borrow!r}.', source=_SOURCE
            )
        if borrow > 0.0:
            statistics.merge(shrink(self.statistics(), float(borrow)))
        return self._table_model(statistics, estimator)

    @renamed_parameters(learner="estimator")
    @snapshot_read
    def models(self, by: str | Sequence[str], estimator: ProximalSVC | None = None) -> dict[Any, TableModel]:
        """Return one model for each value of a column, or for each combination of values.

        Parameters
        ----------
        by : str or sequence of str
            One or more of the columns ``by`` of the cube.
        estimator : ProximalSVC, optional
            Estimator whose parameters are used.
        """
        return {key: self._table_model(part, estimator) for key, part in self._slices(by).items()}

    def _regrouped(self, chosen: Mapping[Any, Any]) -> ClassStatistics:
        if not chosen:
            raise DataError(
                "there are no rows in this slice.",
                source=_SOURCE,
                hint="the attribute `cells` lists all slices with rows",
            )
        assert self._statistics is not None
        return self._statistics.regrouped(chosen)

    def _slices(self, by: str | Sequence[str]) -> dict[Any, ClassStatistics]:
        names = [by] if isinstance(by, str) else list(by)
        self._check_columns(names)
        indices = [self.by.index(name) for name in names]
        groups: dict[Any, dict[Any, Any]] = {}
        for label, key in self._keys().items():
            chosen = tuple(key[index] for index in indices)
            groups.setdefault(chosen[0] if isinstance(by, str) else chosen, {})[label] = key[-1]
        return {key: self._regrouped(groups[key]) for key in sorted(groups, key=missing_last)}

    def _check_columns(self, names: Iterable[str]) -> None:
        for name in names:
            if name not in self.by:
                raise ParameterError(
                    f"{name!r} is not in by={self.by!r} of the cube.",
                    source=_SOURCE,
                    hint=did_you_mean(name, self.by),
                )

    def _table_model(self, statistics: ClassStatistics, estimator: ProximalSVC | None) -> TableModel:
        model = ProximalSVC(**_parameters(estimator)).merge(statistics)
        return TableModel(model, self._encoder, self.target)

    @renamed_parameters(learner="estimator")
    @snapshot_read
    def compare(self, by: str | Sequence[str], estimator: ProximalSVC | None = None) -> list[SliceSummary]:
        """Compare the common model, fitted on all rows, with the model of each slice, largest slice first."""
        return summarize_slices(self.statistics(), self._slices(by), _parameters(estimator))

    # -- saving and loading -------------------------------------------------------------------------

    def get_params(self, deep: bool = True) -> dict[str, Any]:  # noqa: ARG002  signature of scikit-learn
        """Return the constructor parameters."""
        names = ("by", "target", "time", "bucket", "missing", "folds", "max_bytes")
        return {name: getattr(self, name) for name in names}

    def _get_state(self) -> dict[str, Any]:
        if self._statistics is None:
            return {}
        return {"encoder": self._encoder, "statistics": self._statistics.to_bytes()}

    def _set_state(self, state: dict[str, Any]) -> None:
        encoder, statistics = state["encoder"], ClassStatistics.from_bytes(state["statistics"])
        if not isinstance(encoder, TableEncoder) or statistics.n_features > len(encoder.feature_names):
            raise ValueError("the columns do not match the features of the statistics")
        self._encoder, self._statistics = encoder, statistics
        for label in statistics.classes:
            key = key_of(label)
            values, numbers = key[: len(self.by)], key[len(self.by) : -1]
            is_valid = len(key) == len(self.by) + 2 + bool(self.folds) and all(
                type(k) is int for k in numbers
            )
            if not is_valid or not all(value is None or type(value) is str for value in values):
                raise ValueError("the name of a cube cell is invalid")
        restored_labels((key[-1] for key in self._keys().values()), _SOURCE)

    def __repr__(self) -> str:
        return f"StatisticsCube(by={self.by!r}, {self.n_rows:,.0f} rows)"


def _parameters(estimator: ProximalSVC | None) -> dict[str, Any]:
    return {} if estimator is None else estimator.get_params(deep=False)


# -- rows of other engines: partitions of Dask and Spark, and GROUP BY in a database ------------------


def _add_partitions(
    cube: StatisticsCube, frame: Any, engine: str, features: Sequence[str] | None, drop: Sequence[str]
) -> None:
    """Add the rows of a Dask or Spark data frame to a cube: each worker fills a cube, and they are merged."""
    if not hasattr(frame, "mapInPandas" if engine == "pyspark" else "to_delayed"):
        raise DataTypeError(f"expected a data frame; got {type(frame).__name__}.", source=_SOURCE)
    start = cube.empty()
    if not cube.n_rows:
        first = (
            frame.limit(_N_CALIBRATION_ROWS).toPandas()
            if engine == "pyspark"
            else frame.head(_N_CALIBRATION_ROWS, npartitions=-1)
        )
        first.attrs.clear()  # Spark stores its query plan in attrs, which cannot be converted to Arrow
        start = start.add(first, features=features, drop=drop).empty()
        cube._statistics = None  # the cube starts without the calibration rows
        cube._merge(start)
    message = to_bytes(start)
    parts = _spark_parts(frame, message) if engine == "pyspark" else _dask_parts(frame, message)
    for part in parts:
        cube._merge(from_bytes(part))


def _filled(message: bytes, tables: Iterable[Any]) -> bytes:
    """Return the cube of one partition, filled from an empty one. This function runs in a worker."""
    cube = from_bytes(message)
    for table in tables:
        if len(table):
            cube.add(table)
    return to_bytes(cube)


def _dask_parts(frame: Any, message: bytes) -> Iterable[bytes]:
    import dask

    return dask.compute(*(dask.delayed(_filled)(message, [part]) for part in frame.to_delayed()))


def _spark_parts(frame: Any, message: bytes) -> Iterable[bytes]:
    def fill(batches: Iterator[Any]) -> Iterator[Any]:
        import pandas as pd

        yield pd.DataFrame({"cube": [_filled(message, batches)]})

    rows = frame.mapInPandas(fill, "cube binary").toLocalIterator()
    return (bytes(row["cube"]) for row in rows)


def _add_sums(
    cube: StatisticsCube, source: DatabaseSource, features: Sequence[str] | None, drop: Sequence[str]
) -> None:
    """Add rows to a cube by push-down: the database computes the sums of every cell."""
    if cube.time is not None or cube.folds:
        source.close()
        raise PushdownNotSupported(
            "time buckets and folds cannot be computed by push-down.",
            source=_SOURCE,
            hint='use how="auto", which reads the rows',
        )
    encoder = cube._encoder
    columns = Columns.of(cube.target, features=features, drop=(*cube.by, *drop))
    if encoder.is_fitted:
        columns = encoder.roles(cube.target)
    quantizer = None if cube._statistics is None else cube._statistics.quantizer
    try:
        with source.connection.reading():
            plan = plan_pushdown(source, columns, encoder, quantizer=quantizer, cells=tuple(cube.by))
            statistics = execute(plan, name_of=lambda cells, label: json.dumps([*cells, 0, label]))
    finally:
        source.close()
    cube._check_memory(map(str, statistics.classes), statistics.n_features)
    if cube._statistics is not None:
        statistics = cube._statistics.grow(statistics.n_features).merge(statistics)
    cube._encoder, cube._statistics = plan.encoder, statistics
