"""Explanations of predictions in terms of the original columns of a table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from steelyard.exceptions import DataError
from steelyard.explanation import Change, NearRow, RowExplanations
from steelyard.tables.encoding import GAP, PRESENT, VALUE, TableEncoder
from steelyard.tables.frames import time_texts


def explain_encoded(
    estimator: Any,
    encoder: TableEncoder,
    X: NDArray[Any],
    table: Mapping[str, Any],
    changes: bool | None = None,
    *,
    is_fixed: bool,
) -> RowExplanations:
    """Return the explanation of encoded rows, with the columns and values of the table.

    Contributions of all features of a column are summed. Only changes of numbers are listed: changing a
    single indicator of a category would not correspond to any table row. ``is_fixed`` is whether ``X`` is in
    the fixed encoding of :class:`TableEncoder`.
    """
    if not hasattr(estimator, "explain"):
        raise DataError(
            f"a model of class {type(estimator).__name__} cannot explain predictions.", source="explain"
        )
    found: RowExplanations = estimator.explain(X, changes=changes)
    names, sources = source_columns(encoder, X.shape[1], is_fixed=is_fixed)
    summed = np.zeros((len(found), len(names), *found.contributions.shape[2:]))
    for feature, source in enumerate(sources):
        summed[:, source] += found.contributions[:, feature]
    numeric = dict(zip(found.column_names, encoder.numeric_, strict=False))
    return replace(
        found,
        contributions=summed,
        column_names=names,
        values=_table_values(names, table, len(found), encoder),
        nearest=[
            [_near_row(near, encoder, names, is_fixed=is_fixed) for near in rows] for rows in found.nearest
        ],
        changes=[_numeric_changes(rows, numeric, encoder) for rows in found.changes],
    )


def source_columns(encoder: TableEncoder, n_features: int, *, is_fixed: bool) -> tuple[list[str], list[int]]:
    """Return the columns of the table, and the column index of each feature.

    Categorical columns that share hash features are one entry, whose name lists all of them.
    """
    numbers, categorical = list(encoder.numeric_), list(encoder.categorical_)
    if is_fixed:
        n_hashes = n_features - len(numbers) - len(encoder.fixed_gaps)
        columns = [*numbers, *encoder.fixed_gaps, *[", ".join(categorical)] * n_hashes]
    else:
        columns = [*numbers, *(column for column, _ in encoder.categories_)]
    columns = columns[:n_features]
    names = list(dict.fromkeys([*numbers, *([] if is_fixed else categorical), *columns]))
    return names, [names.index(column) for column in columns]


def _table_value(encoder: TableEncoder, name: str, value: Any) -> Any:
    """Return a value of a column, as text if it is a time."""
    if name not in encoder.times_ or not isinstance(value, (float, np.floating)):
        return value
    return time_texts(np.array([value]))[0]


def _table_values(
    names: list[str], table: Mapping[str, Any], n_rows: int, encoder: TableEncoder
) -> NDArray[Any]:
    """Return the values of the table. Values of columns that share hash features are joined to one text."""
    values = np.empty((n_rows, len(names)), dtype=object)
    for place, name in enumerate(names):
        if name in table:
            values[:, place] = [_table_value(encoder, name, value) for value in table[name]]
        else:
            parts = zip(*(table[part] for part in name.split(", ") if part in table), strict=True)
            values[:, place] = [", ".join(map(str, part)) for part in parts] or [""] * n_rows
    return values


def _near_row(near: NearRow, encoder: TableEncoder, names: list[str], *, is_fixed: bool) -> NearRow:
    """Return a stored row with the values of the table, and None for missing values and hashed categories."""
    if near.values is None:
        return near
    n_numeric = len(encoder.numeric_)
    values = np.empty(len(names), dtype=object)
    values[:n_numeric] = [
        _table_value(encoder, name, value)
        for name, value in zip(names[:n_numeric], near.values, strict=False)
    ]
    features = [(name, GAP) for name in encoder.fixed_gaps] if is_fixed else encoder.categories_
    numbers = dict(zip(features, near.values[n_numeric:].tolist(), strict=False))
    for (column, part), number in numbers.items():
        if column not in encoder.numbers:
            if number:
                values[names.index(column)] = part
        elif part == GAP and number:
            values[names.index(column)] = None
        elif part == VALUE and numbers.get((column, PRESENT), 1.0):
            values[names.index(column)] = _table_value(encoder, column, number + encoder.shift_of(column))
    return replace(near, values=values)


def _numeric_changes(changes: list[Change], numeric: dict[str, str], encoder: TableEncoder) -> list[Change]:
    found = []
    for change in changes:
        if change.values.keys() <= numeric.keys():
            values = {numeric[name]: value for name, value in change.values.items()}
            shown = {name: _table_value(encoder, name, value) for name, value in values.items()}
            found.append(replace(change, values=shown))
    return found
