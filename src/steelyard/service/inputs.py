"""Rows as input of a model: checks of columns and values, guards, quotas, and encoding for the learner."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from steelyard._types import FloatArray
from steelyard.exceptions import DataError
from steelyard.service.errors import Conflict
from steelyard.service.rows import REQUEST, texts
from steelyard.service.spec import Spec
from steelyard.streams.chunks import Chunk
from steelyard.tables.columns import ColumnBatch, Values, listed, near
from steelyard.tables.encoding import TableEncoder

if TYPE_CHECKING:
    from steelyard.service.engine import Engine
    from steelyard.service.published import PublishedModel

_MEGABYTE = 1_000_000
_MAX_LISTED = 99  # maximum length of the list of classes in a message


def reads_tables(learner: Any) -> bool:
    """Return whether a learner learns the columns of a table without an encoder."""
    return hasattr(learner, "reads_table") and bool(learner.reads_table({}))


def encoded_chunk(
    model: Engine | PublishedModel,
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
        texts = set(encoder.categorical_)
        columns = {name: np.full(batch.n_rows, None if name in texts else np.nan) for name in absent}
        batch = ColumnBatch({**batch.columns, **columns}, batch.n_rows, batch.coded, times=batch.times)
    names = [name for name in encoder.numbers if name not in encoder.times_]
    if not batch.is_matrix and batch.first_text(names) is not None:  # a matrix has no text
        numbers = {n: _numbers(n, batch.columns[n]) for n in names if batch.columns[n].dtype == object}
        batch = ColumnBatch({**batch.columns, **numbers}, batch.n_rows, batch.coded, times=batch.times)
    if not reads_tables(learner):
        X, fixed = encoder.encode(batch, REQUEST, 0, learn=learn)
        return Chunk(X, labels, 0, times, fixed)
    table = encoder.encode_table(batch, REQUEST, 0, learn=learn)
    names = spec.feature_names(batch.columns)
    known = names if learn else [name for name in names if name in encoder.columns_]
    return Chunk(np.empty((batch.n_rows, 0)), labels, 0, times, columns=table.choose(known))


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
    has_value = np.stack([has_values(batch.columns[name]) for name in names], axis=1)
    is_known = np.isin(names, encoder.columns_ if encoder.is_fitted else [])
    if has_value[:, is_known].any(axis=1).all():
        return
    known_before = np.logical_or.accumulate(np.vstack([is_known, has_value[:-1]]), axis=0)
    # No column is known before the first row of a stream, so a value in any column of this row is sufficient.
    usable = np.where(known_before.any(axis=1, keepdims=True), has_value & known_before, has_value)
    unusable = ~usable.any(axis=1)
    if unusable.any():
        row = int(unusable.argmax())
        raise REQUEST.error("no known column has a value.", row)


def row_costs(batch: ColumnBatch, column: str) -> FloatArray:
    """Return the cost factors of rows."""
    values = batch.columns.get(column)
    if values is None or values.dtype != np.float64 or not (np.isfinite(values) & (values >= 0.0)).all():
        raise DataError(
            f"the column {column!r} must have a number >= 0 in every row: it is the cost of a row.",
            source=REQUEST.source,
        )
    return values


def missing_column(name: str, found: Collection[str]) -> DataError:
    """Return the error for a column that the rows of a request lack."""
    closest = near(name, list(found))
    others = f"there are {listed(found)}" if found else "the rows have no columns"
    return DataError(
        f"the column {name!r} is missing; {others}.",
        source=REQUEST.source,
        hint=f"did you mean {closest!r}?" if closest else None,
    )


def extend_columns(spec: Spec, encoder: TableEncoder, batch: ColumnBatch) -> None:
    """Fit the encoder to the first rows, or add the columns that have their first value in these rows."""
    names = spec.feature_names(batch.columns)
    if not encoder.is_fitted:
        filled = [name for name in names if has_values(batch.columns[name]).any()]
        encoder.fit_columns(batch, (spec.columns_may_change and filled) or names, (), dates=True)
    elif spec.columns_may_change:
        known = set(encoder.columns_)
        new = [name for name in names if name not in known and has_values(batch.columns[name]).any()]
        if new:
            columns = {name: batch.columns[name] for name in new}
            encoder.add_columns(ColumnBatch(columns, batch.n_rows, times=batch.times))


def has_values(values: Values) -> NDArray[np.bool_]:
    """Return a mask of the values that are not missing."""
    if values.dtype == object:
        return np.array([value is not None for value in values.tolist()], dtype=bool)
    return ~np.isnan(values)


def _numbers(name: str, values: Values) -> FloatArray:
    found = np.full(len(values), np.nan)
    for row, value in enumerate(values.tolist()):
        try:
            found[row] = np.nan if value is None else float(value)
        except ValueError:
            raise REQUEST.error(f"expected a number; got {value!r}.", row, name) from None
    return found


# -- guards and quotas ------------------------------------------------------------------------------


def violations(spec: Spec, batch: ColumnBatch) -> dict[int, tuple[str, str]]:
    """Return column and reason for each row that violates a guard. Reasons contain no values of rows."""
    found: dict[int, tuple[str, str]] = {}
    allowed = spec.allowed_labels
    if allowed is not None:
        reason = f"the label is not one of the classes {', '.join(sorted(allowed))[:_MAX_LISTED]}"
        labels = texts(batch, spec.target)
        found = {row: (spec.target, reason) for row, label in enumerate(labels) if label not in allowed}
    for name, (low, high) in (spec.ranges or {}).items():
        values = batch.columns.get(name)
        if values is None or values.dtype != np.float64:
            continue  # other checks report missing columns and texts
        outside = np.zeros(batch.n_rows, dtype=bool)
        if low is not None:
            outside |= values < low
        if high is not None:
            outside |= values > high
        for row in np.flatnonzero(outside).tolist():
            found.setdefault(row, (name, f"{name} is outside the range {low} to {high}"))
    return found


def check_guards(spec: Spec, batch: ColumnBatch) -> None:
    """Raise RowError if a row violates a guard."""
    found = violations(spec, batch)
    if found:
        row = min(found)
        column, reason = found[row]
        closest = None
        if column == spec.target and spec.allowed_labels is not None:
            label = str(texts(batch, column)[row])
            reason = reason.replace("the label", f"the label {label[:60]!r}", 1)
            closest = near(label, sorted(spec.allowed_labels))
        hint = "correct the row; the settings classes and ranges define what is allowed"
        hint = f"did you mean {closest!r}?" if closest else hint
        raise REQUEST.error(f"{reason}; nothing was changed.", row, column, hint)


def check_quota(engine: Engine, batch: ColumnBatch, state_bytes: int) -> None:
    """Raise Conflict if learning the rows of ``batch`` would exceed a quota of the model."""
    spec = engine.spec
    n_new = len(set(spec.feature_names(batch.columns)) - engine.column_kinds().keys())
    used: dict[str, float] = {"columns": engine.n_features + n_new}
    if spec.window is None:
        used["rows"] = engine.n_rows + batch.n_rows
    used["megabytes"] = state_bytes / _MEGABYTE
    for name, value in used.items():
        if value > spec.limit(name):
            raise Conflict(
                f"the quota of this model is {spec.limit(name):,g} {name}, but it would have {value:,g}; "
                "nothing was changed.",
                hint="an administrator can change quota in the settings of the model",
            )
