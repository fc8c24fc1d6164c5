"""Conversion of tables in memory to columns, and of dates and times to seconds.

Tables are data frames of pandas and polars, Arrow tables, lists of dictionaries, and arrays.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse

from steelyard._types import FloatArray
from steelyard.exceptions import DataError, DataTypeError
from steelyard.tables.columns import (
    Coded,
    ColumnBatch,
    Place,
    Values,
    check_unique,
    encode_texts,
    in_seconds,
    listed,
)

_NUMPY_NUMBERS = "biuf"
_DATE = re.compile(r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:?\d\d)?)?", re.ASCII)
_YEAR = re.compile(r"[+-]?\d{1,5}(?!\d)", re.ASCII)


def concat_tables(parts: Sequence[Any]) -> Any:
    """Concatenate the rows of several arrays, or of several batches of columns."""
    return np.concatenate(parts) if isinstance(parts[0], np.ndarray) else ColumnBatch.concat(parts)


def is_table(X: Any) -> bool:
    """Return whether X has named columns, or is an array or list with values that are not numbers."""
    if hasattr(X, "tocsr"):  # sparse matrix; the DOK format is a subclass of dict
        return False
    if isinstance(X, np.ndarray):
        return X.dtype.kind in "OUS" and X.ndim == 2 and X.size > 0 and not _is_numeric(X)
    if isinstance(X, list | tuple):
        if not X:
            return False
        return isinstance(X[0], Mapping) or (
            isinstance(X[0], list | tuple | np.ndarray) and any(isinstance(cell, str) for cell in X[0])
        )
    return isinstance(X, Mapping) or hasattr(type(X), "columns") or hasattr(X, "__arrow_c_stream__")


def _is_numeric(X: NDArray[Any]) -> bool:
    """Return whether an array of objects contains only numbers, or text of numbers."""
    try:
        X.astype(np.float64)
    except (TypeError, ValueError):
        return False
    return True


def memory_batch(X: Any, source: str, known: Sequence[str] = (), *, extend: bool = False) -> ColumnBatch:
    """Return a table in memory as a batch of columns; an array of numbers has the columns x0, x1 and so on.

    The columns are those in ``known`` that the table has. With ``extend``, or if ``known`` is empty, all
    other columns with at least one value are included.
    """
    if not is_table(X):
        X = _matrix(X, source)
        names = _array_names(X.shape[1])
        if known and list(known) != names:
            problem = (
                f"X has {len(names)} features, but TableModel is expecting {len(known)} features as input."
            )
            if list(known) != _array_names(len(known)):
                missing = next((name for name in known if name not in names), known[0])
                problem = f"an array of numbers has no column {missing!r}, which was learned from a table."
            raise DataError(problem, source=source)
        return ColumnBatch.from_matrix(names, X)
    found = table_batch(X, source)
    check_some_known(found.columns, known, source)
    if list(found.columns) == known:
        return found
    keeps_new = extend or not known
    names = [x for x in found.columns if x in known or (keeps_new and found.kind(x) != "unknown")]
    return found if len(names) == len(found.columns) else found.choose(names or found.columns)


def check_some_known(found: Collection[str], known: Collection[str], source: str) -> None:
    """Raise DataError if a table has none of the known columns."""
    if known and not any(name in found for name in known):
        raise DataError(
            f"no column of the table is known; got {listed(found)}, expected some of {listed(known)}.",
            source=source,
        )


def _matrix(X: Any, source: str) -> FloatArray:
    """Return an array of numbers with two dimensions."""
    if issparse(X):
        raise DataTypeError(
            "expected a table or a dense array; sparse input is not supported.",
            source=source,
            hint="pass X.toarray(), or learn sparse rows without a TableModel",
        )
    values = np.asarray(X)
    if values.dtype.kind == "c":
        raise DataError("Complex data not supported: expected real numbers.", source=source)
    matrix = np.ascontiguousarray(values, dtype=np.float64)
    if matrix.ndim != 2:
        raise DataError(
            f"expected a table or a 2D array; got an array of shape {matrix.shape}.",
            source=source,
            hint="Reshape your data: X.reshape(1, -1) is a single row",
        )
    if not len(matrix):
        raise DataError("X has no rows (0 sample(s)); at least one is needed.", source=source)
    return matrix


def _array_names(n_columns: int) -> list[str]:
    return [f"x{k}" for k in range(n_columns)]


def table_batch(X: Any, source: str) -> ColumnBatch:
    """Return all columns of a table, with names as text; raise DataError for repeated names or no cells."""
    if isinstance(X, ColumnBatch):
        return X
    names, columns = _columns(X, source)
    texts = [str(name) for name in names]
    check_unique(texts, source)
    if not texts:
        raise DataError("X has no columns (0 feature(s)); at least one is needed.", source=source)
    matrix = _numeric_matrix(X)
    if matrix is not None:
        return ColumnBatch.from_matrix(texts, matrix)
    try:
        found = dict(zip(texts, columns, strict=True))
    except DataError as error:
        raise error.with_source(source) from None
    lengths = {len(values[1] if isinstance(values, tuple) else values) for values in found.values()}
    if len(lengths) != 1:
        raise DataError("all columns must have the same number of rows.", source=source)
    n_rows = lengths.pop()
    if not n_rows:
        raise DataError("X has no rows (0 sample(s)); at least one is needed.", source=source)
    batch = ColumnBatch.of_cells(found, n_rows)
    # The kind of a column without any value is not known yet, whatever its declared type.
    empty = {name: np.full(n_rows, np.nan) for name in texts if batch.kind(name) == "unknown"}
    return batch.with_columns(empty) if empty else batch


def _numeric_matrix(X: Any) -> FloatArray | None:
    """Return a copy of the values of a pandas data frame of plain numbers, or None for other tables."""
    pandas = sys.modules.get("pandas")
    if pandas is None or not isinstance(X, pandas.DataFrame) or not len(X):
        return None
    if not all(isinstance(dtype, np.dtype) and dtype.kind in _NUMPY_NUMBERS for dtype in X.dtypes):
        return None
    return np.array(X.to_numpy(dtype=np.float64), order="C")


# A column of a table: numbers, datetime64, texts with None for missing values, or coded texts.
Cells = Values | Coded


def _columns(X: Any, source: str) -> tuple[list[Any], Iterable[Cells]]:
    pandas = sys.modules.get("pandas")
    if pandas is not None and isinstance(X, pandas.DataFrame):
        return list(X.columns), (_pandas_column(X.iloc[:, k], k) for k in range(X.shape[1]))
    columns: Mapping[Any, Sequence[Any]]
    if isinstance(X, Mapping):
        columns = {name: _whole_column(name, values, source) for name, values in X.items()}
    elif isinstance(X, list | tuple) and isinstance(X[0], Mapping):
        if not all(isinstance(row, Mapping) for row in X):
            raise DataTypeError("expected a list of dictionaries; got other items too.", source=source)
        names = dict.fromkeys(name for row in X for name in row)
        columns = {name: [row.get(name) for row in X] for name in names}
    elif isinstance(X, list | tuple | np.ndarray):
        rows = [list(row) for row in X]
        if len({len(row) for row in rows}) != 1:
            raise DataError("all rows must have the same number of values.", source=source)
        columns = dict(zip(_array_names(len(rows[0])), zip(*rows, strict=True), strict=True))
    else:
        return _arrow_columns(X, source)
    return list(columns), (_object_column(values, name) for name, values in columns.items())


def _whole_column(name: Any, values: Any, source: str) -> list[Any]:
    """Return a column of a mapping as a list; raise DataTypeError for a single value."""
    if isinstance(values, str) or not hasattr(values, "__len__"):
        raise DataTypeError(
            f"a dictionary maps names to columns; {name!r} has the single value {values!r}.",
            source=source,
            hint="for one row, pass a list of dictionaries: [row]",
        )
    return list(values)


def _pandas_column(series: Any, position: int) -> Cells:
    import pandas as pd

    dtype, name = series.dtype, series.name if series.name is not None else position
    if isinstance(dtype, pd.CategoricalDtype):
        known = [_text(value) for value in dtype.categories.tolist()]
        return _coded(series.cat.codes.to_numpy(), known)
    if isinstance(dtype, pd.ArrowDtype) and "binary" not in str(dtype.pyarrow_dtype):
        return _arrow_column(series.array.__arrow_array__(), name)
    if pd.api.types.is_datetime64_any_dtype(dtype):
        naive = series.dt.tz_convert("UTC").dt.tz_localize(None) if series.dt.tz is not None else series
        return np.asarray(naive.to_numpy("datetime64[us]"))
    if pd.api.types.is_timedelta64_dtype(dtype):
        return in_seconds(series.to_numpy("timedelta64[us]"))
    if pd.api.types.is_complex_dtype(dtype):
        raise DataTypeError(f"column {str(name)!r} contains complex numbers; expected real numbers.")
    if pd.api.types.is_numeric_dtype(dtype) or pd.api.types.is_bool_dtype(dtype):
        return np.asarray(series.to_numpy(np.float64, na_value=np.nan))
    return _pandas_objects(series, name)


def _pandas_objects(series: Any, name: Any) -> Cells:
    import pandas as pd

    try:
        codes, values = pd.factorize(series, use_na_sentinel=True)
    except TypeError:  # values that cannot be hashed, such as dictionaries
        return _object_column(list(series), name)
    objects = list(values)
    if all(type(value) is str for value in objects):
        return _coded(codes, objects)
    return _object_column([None if code < 0 else objects[code] for code in codes.tolist()], name)


def _arrow_columns(X: Any, source: str) -> tuple[list[Any], Iterable[Cells]]:
    import pyarrow as pa

    from steelyard.tables.arrow_sources import arrow_stream

    expected = "a table of pandas, polars or pyarrow, a list of dictionaries or an array"
    table = pa.RecordBatchReader.from_stream(arrow_stream(X, expected, source)).read_all()

    return table.column_names, (
        _arrow_column(values, name) for name, values in zip(table.column_names, table.columns, strict=True)
    )


def _arrow_column(values: Any, name: Any) -> Cells:
    """Return a column of a pyarrow table."""
    import pyarrow as pa

    from steelyard.tables.arrow_sources import arrow_cells

    kind = values.type
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    if isinstance(values, pa.ChunkedArray):  # an empty column stays chunked
        values = values.chunk(0) if values.num_chunks else pa.array([], type=kind)
    return arrow_cells(values, str(name), as_text=pa.types.is_dictionary(kind))


def _object_column(values: Sequence[Any], name: Any) -> Cells:
    """Return a column of numbers, times or texts from Python objects."""
    known = [value for value in values if not _is_missing(value)]
    if all(isinstance(value, Real | Decimal | np.bool_) for value in known):
        return np.array([np.nan if _is_missing(value) else float(value) for value in values])
    if all(isinstance(value, timedelta | np.timedelta64) for value in known):
        return in_seconds(_moments(values, "timedelta64[us]"))
    if all(isinstance(value, date | np.datetime64) for value in known):
        return _moments(values, "datetime64[us]")
    if all(isinstance(value, time) for value in known):
        return np.array([np.nan if _is_missing(v) else _seconds_of_day(v) for v in values])
    strange = next((value for value in known if not _is_cell(value)), None)
    if strange is not None:
        raise DataTypeError(
            f"column {str(name)!r}: every argument must be a string, a number, a boolean, a date or a time; "
            f"got {type(strange).__name__}."
        )
    return encode_texts([None if _is_missing(value) else _text(value) for value in values])


def _is_cell(value: Any) -> bool:
    return isinstance(value, str | bytes | Real | Decimal | date | time | timedelta | np.generic) or (
        # pandas values such as periods and intervals have a readable text form.
        type(value).__module__.startswith("pandas")
    )


def _is_missing(value: Any) -> bool:
    if value is None or isinstance(value, str):
        return value is None
    return type(value).__name__ in {"NAType", "NaTType"} or bool(
        (isinstance(value, float | np.floating) and math.isnan(value))
        or (isinstance(value, np.datetime64 | np.timedelta64) and np.isnat(value))
        or (isinstance(value, Decimal) and value.is_nan())
    )


def _text(value: Any) -> str:
    """Return a category as text. Integers have no decimal point."""
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, float | np.floating) and float(value).is_integer():
        return str(int(value))
    return str(value)


def _coded(codes: NDArray[Any], texts: list[str]) -> Coded:
    """Return coded texts, with the text None in place of the code -1."""
    return [*texts, None], np.where(codes < 0, len(texts), codes).astype(np.int64)


def _moments(values: Sequence[Any], dtype: str) -> NDArray[Any]:
    found = []
    for value in values:
        moment = "NaT" if _is_missing(value) else value
        if hasattr(moment, "to_pydatetime"):  # a pandas Timestamp
            moment = moment.to_pydatetime()
        if isinstance(moment, datetime) and moment.tzinfo is not None:
            moment = moment.astimezone(UTC).replace(tzinfo=None)
        found.append(moment)
    return np.array(found, dtype=dtype)


def _seconds_of_day(value: time) -> float:
    return 3600.0 * value.hour + 60.0 * value.minute + value.second + 1e-6 * value.microsecond


def is_date(text: str) -> bool:
    """Return whether a text has the form of a date such as 2026-01-31 or 2026-01-31T09:30."""
    return _DATE.fullmatch(text) is not None


def times_of(texts: Collection[str]) -> dict[str, float] | None:
    """Return the seconds since 1970 of dates, or None if a text is not a date or there are no texts."""
    if not texts or not all(map(is_date, texts)):
        return None
    try:
        return {text: seconds_of(text) for text in texts}
    except ValueError:  # such as the 31st of February
        return None


def with_dates(batch: ColumnBatch, names: Iterable[str]) -> ColumnBatch:
    """Convert those of the named columns that contain only dates as text to columns of times."""
    found = {}
    for name in names:
        if batch.columns[name].dtype == object:
            texts, codes = batch.dictionary_encode(name)
            is_used = np.bincount(codes, minlength=len(texts)) > 0
            seconds = times_of({text for text, used in zip(texts, is_used, strict=True) if used} - {None})
            if seconds is not None:
                found[name] = np.array([seconds.get(text, np.nan) for text in texts])[codes]
    return batch.with_columns(found, found) if found else batch


def first_unreadable(values: Values, *, is_time: bool) -> int | None:
    """Return the first row whose text is no number (or, with ``is_time``, no date), or None."""
    is_valid = is_date if is_time else _is_number
    texts = enumerate(values.tolist())
    return next((row for row, text in texts if text is not None and not is_valid(text)), None)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def seconds_of(text: str) -> float:
    """Return a date and time as seconds since 1970. A time without time zone is UTC."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        # NumPy also parses "2026" and "2026-01", but years with more than five digits would overflow.
        if _YEAR.match(text) is None:
            raise
        return float(np.datetime64(text, "us").astype(np.int64)) / 1e6
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def time_texts(seconds: FloatArray) -> NDArray[Any]:
    """Return seconds since 1970 as texts such as 2026-01-31 09:30, in UTC, and None for NaN."""
    whole = np.round(np.where(np.isnan(seconds), 0.0, seconds)).astype("datetime64[s]")
    texts = np.char.replace(np.datetime_as_string(whole), "T", " ").astype(object)
    for ending in (":00", " 00:00"):  # seconds, then hours and minutes, are left out if they are 0
        texts = np.array([text.removesuffix(ending) for text in texts.ravel().tolist()], dtype=object)
    texts[np.isnan(seconds).ravel()] = None
    return texts.reshape(np.shape(seconds))


def column_seconds(values: NDArray[Any], column: str, place: Place, first_row: int = 0) -> FloatArray:
    """Return a column of times as seconds since 1970; raise RowError for a missing or invalid time.

    The first value belongs to the row ``first_row`` of the source.
    """
    hint = "times are numbers of seconds, or dates and times such as 2026-01-31T12:30:00"
    seconds = np.full(len(values), np.nan)
    if values.dtype != object:
        seconds = np.asarray(values, dtype=np.float64)
    else:
        for row, value in enumerate(values):
            try:
                seconds[row] = np.nan if value is None else seconds_of(value)
            except (ValueError, TypeError) as error:
                message = f"expected a time; got {value!r}."
                raise place.error(message, first_row + row, column, hint) from error
    bad = ~np.isfinite(seconds)
    if bad.any():
        raise place.error("the time is missing.", first_row + int(bad.argmax()), column, hint)
    return seconds
