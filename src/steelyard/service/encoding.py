"""Conversion of the rows of a request to the input of a learner: a table, or encoded numbers."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from steelyard._types import FloatArray
from steelyard.exceptions import DataError
from steelyard.service.spec import Spec
from steelyard.streams.chunks import Chunk
from steelyard.tables.columns import ColumnBatch, Place, RowError, Values, listed, near
from steelyard.tables.encoding import TableEncoder

REQUEST = Place("the request")


def reads_tables(learner: Any) -> bool:
    """Return whether a learner learns the columns of a table without an encoder."""
    return hasattr(learner, "reads_table") and bool(learner.reads_table({}))


class Model(Protocol):
    """Model that is learning or published."""

    spec: Spec
    learner: Any
    encoder: TableEncoder


def encoded_chunk(
    model: Model,
    batch: ColumnBatch,
    labels: NDArray[Any] | None = None,
    *,
    learn: bool = False,
    times: FloatArray | None = None,
) -> Chunk:
    """Return the rows of a request as a chunk. If ``learn`` is true, the encoder adds new categories.

    A learner that reads tables gets the columns without encoding.
    """
    spec, learner, encoder = model.spec, model.learner, model.encoder
    labels = np.zeros(batch.n_rows) if labels is None else labels
    absent = [name for name in encoder.columns_ if name not in batch.columns]
    if absent:
        check_features(spec, encoder, batch)
        batch = _with_missing_columns(encoder, batch, absent)
    if not batch.is_matrix:  # a matrix has no text
        batch = _as_numbers(encoder, batch)
    if not reads_tables(learner):
        X, fixed = encoder.encode(batch, REQUEST, 0, learn=learn)
        return Chunk(X, labels, 0, times, fixed)
    table = encoder.encode_table(batch, REQUEST, 0, learn=learn)
    names = spec.feature_names(batch.columns)
    known = names if learn else [name for name in names if name in encoder.columns_]
    columns = {name: table[name] for name in known}
    return Chunk(np.empty((batch.n_rows, 0)), labels, 0, times, columns=columns)


def check_features(spec: Spec, encoder: TableEncoder, batch: ColumnBatch) -> None:
    """Raise DataError if rows lack a column that must not be missing, or have no known column."""
    known, found = encoder.columns_, batch.columns
    absent = next((name for name in known if name not in found), None)
    if absent is None or (spec.columns_may_change and any(name in found for name in known)):
        return
    raise missing_column(absent, found)


def check_known_values(spec: Spec, encoder: TableEncoder, batch: ColumnBatch) -> None:
    """Raise RowError for a row that has no value in any column known when the row is learned.

    A column becomes known with its first value, in the order of the rows. Therefore the result does not
    depend on how the messages of a topic are divided into batches.
    """
    names = spec.feature_names(batch.columns)
    if not spec.columns_may_change or not names:
        return
    has_value = np.stack([_has_values(batch.columns[name]) for name in names], axis=1)
    is_known = np.isin(names, encoder.columns_ if encoder.is_fitted else [])
    if has_value[:, is_known].any(axis=1).all():
        return
    known_before = np.logical_or.accumulate(np.vstack([is_known, has_value[:-1]]), axis=0)
    # No column is known before the first row of a stream, so a value in any column of this row is sufficient.
    usable = np.where(known_before.any(axis=1, keepdims=True), has_value & known_before, has_value)
    unusable = ~usable.any(axis=1)
    if unusable.any():
        row = int(unusable.argmax())
        raise RowError("no known column has a value.", source=REQUEST.of_row(row), row=row)


def row_costs(spec: Spec, batch: ColumnBatch) -> FloatArray | None:
    """Return the cost factors of rows, or None if the spec has no cost column."""
    if spec.cost is None:
        return None
    values = batch.columns.get(spec.cost)
    if values is None or values.dtype != np.float64 or not (np.isfinite(values) & (values >= 0.0)).all():
        raise DataError(
            f"the column {spec.cost!r} must have a number >= 0 in every row: it is the cost of a row.",
            source="the request",
        )
    return values


def missing_column(name: str, found: Collection[str]) -> DataError:
    """Return the error for a column that the rows of a request lack."""
    closest = near(name, list(found))
    return DataError(
        f"the column {name!r} is missing; there are {listed(found)}.",
        source="the request",
        hint=f"did you mean {closest!r}?" if closest else None,
    )


def extend_columns(spec: Spec, encoder: TableEncoder, batch: ColumnBatch) -> None:
    """Fit the encoder to the first rows, or add the columns that have their first value in these rows."""
    names = spec.feature_names(batch.columns)
    if not encoder.is_fitted:
        filled = (
            [name for name in names if _has_value(batch.columns[name])] if spec.columns_may_change else []
        )
        encoder.fit_columns(batch, filled or names, (), dates=True)
    elif spec.columns_may_change:
        known = set(encoder.columns_)
        new = [name for name in names if name not in known and _has_value(batch.columns[name])]
        if new:
            columns = {name: batch.columns[name] for name in new}
            encoder.add_columns(ColumnBatch(columns, batch.n_rows, times=batch.times))


def _has_value(values: Values) -> bool:
    return bool(_has_values(values).any())


def _has_values(values: Values) -> NDArray[np.bool_]:
    if values.dtype == object:
        return np.array([value is not None for value in values.tolist()], dtype=bool)
    return ~np.isnan(values)


def _with_missing_columns(encoder: TableEncoder, batch: ColumnBatch, absent: list[str]) -> ColumnBatch:
    """Return the batch with missing values in the columns that it does not have."""
    texts = set(encoder.categorical_)
    columns = {name: np.full(batch.n_rows, None if name in texts else np.nan) for name in absent}
    return ColumnBatch({**batch.columns, **columns}, batch.n_rows, batch.coded, times=batch.times)


def _as_numbers(encoder: TableEncoder, batch: ColumnBatch) -> ColumnBatch:
    """Convert text in numeric columns to numbers; raise RowError if a text is not a number."""
    names = [name for name in encoder.numbers if name not in encoder.times_]
    if batch.first_text(names) is None:
        return batch
    columns = dict(batch.columns)
    for name in names:
        if columns[name].dtype == object:
            columns[name] = _numbers(name, columns[name])
    return ColumnBatch(columns, batch.n_rows, batch.coded, times=batch.times)


def _numbers(name: str, values: Values) -> FloatArray:
    found = np.full(len(values), np.nan)
    for row, value in enumerate(values.tolist()):
        try:
            found[row] = np.nan if value is None else float(value)
        except ValueError:
            raise RowError(
                f"expected a number; got {value!r}.", source=REQUEST.of_row(row, name), row=row, column=name
            ) from None
    return found
