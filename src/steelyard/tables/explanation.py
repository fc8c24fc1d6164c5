"""Explanations of encoded tables in terms of the columns of the table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from steelyard.exceptions import DataError
from steelyard.explanation import Change, NearRow, RowExplanations
from steelyard.tables.encoding import TableEncoder

__all__ = ["explain_encoded", "source_columns"]


def explain_encoded(
    estimator: Any,
    encoder: TableEncoder,
    X: NDArray[Any],
    table: Mapping[str, Any],
    changes: bool | None = None,
    *,
    is_hashed: bool,
) -> RowExplanations:
    """Return the explanation of encoded rows, with the columns and values of the table.

    Contributions of all features of a column are summed. Changes of categories are not listed, because a
    change of one indicator alone is no row of the table.
    """
    if not hasattr(estimator, "explain"):
        raise DataError(
            f"a model of class {type(estimator).__name__} cannot explain predictions.", source="explain"
        )
    found: RowExplanations = estimator.explain(X, changes=changes)
    names, sources = source_columns(encoder, X.shape[1], is_hashed=is_hashed)
    summed = np.zeros((len(found), len(names), *found.contributions.shape[2:]))
    for feature, source in enumerate(sources):
        summed[:, source] += found.contributions[:, feature]
    features = dict(zip(found.column_names, range(X.shape[1]), strict=True))
    numeric = {
        name: encoder.numeric_[place] for name, place in features.items() if place < len(encoder.numeric_)
    }
    return replace(
        found,
        contributions=summed,
        column_names=names,
        values=_table_values(names, table, len(found)),
        nearest=[
            [_near_row(near, encoder, names, is_hashed=is_hashed) for near in rows] for rows in found.nearest
        ],
        changes=[_numeric_changes(rows, numeric) for rows in found.changes],
    )


def source_columns(encoder: TableEncoder, n_features: int, *, is_hashed: bool) -> tuple[list[str], list[int]]:
    """Return the columns of the table, and the position of the column of each feature.

    Categories that are hashed together share one position, named after all categorical columns.
    """
    numeric, categorical = list(encoder.numeric_), list(encoder.categorical_)
    sources, n_rest = list(range(len(numeric))), n_features - len(numeric)
    if not categorical:
        return numeric, sources
    if is_hashed:
        return [*numeric, ", ".join(categorical)], [*sources, *[len(numeric)] * n_rest]
    places = {name: len(numeric) + k for k, name in enumerate(categorical)}
    return [*numeric, *categorical], [*sources, *(places[c] for c, _ in encoder.categories_[:n_rest])]


def _table_values(names: list[str], table: Mapping[str, Any], n_rows: int) -> NDArray[Any]:
    """Return the values of the table; columns that were hashed together are joined."""
    values = np.empty((n_rows, len(names)), dtype=object)
    for place, name in enumerate(names):
        if name in table:
            values[:, place] = list(table[name])
        else:
            parts = zip(*(table[part] for part in name.split(", ") if part in table), strict=True)
            values[:, place] = [", ".join(map(str, part)) for part in parts] or [""] * n_rows
    return values


def _near_row(near: NearRow, encoder: TableEncoder, names: list[str], *, is_hashed: bool) -> NearRow:
    """Return a remembered row with the values of the table; None for hashed categories."""
    if near.values is None:
        return near
    n_numeric = len(encoder.numeric_)
    values = np.empty(len(names), dtype=object)
    values[:n_numeric] = near.values[:n_numeric]
    if not is_hashed:
        for feature in np.flatnonzero(near.values[n_numeric:]).tolist():
            column, value = encoder.categories_[feature]
            values[names.index(column)] = value
    return replace(near, values=values)


def _numeric_changes(changes: list[Change], numeric: dict[str, str]) -> list[Change]:
    return [
        replace(change, values={numeric[name]: value for name, value in change.values.items()})
        for change in changes
        if change.values.keys() <= numeric.keys()
    ]
