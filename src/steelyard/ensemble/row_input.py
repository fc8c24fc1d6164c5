"""Input of StreamClassifier: conversion of tables, sparse matrices and wide rows to coded rows.

A coded row has one number per column, see :mod:`steelyard.tables.schema`. Rows with more than
``SETTINGS.max_columns`` columns are hashed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from steelyard import _native
from steelyard._types import FloatArray
from steelyard._validation import check_finite, check_not_infinite
from steelyard.ensemble.layout import Layout
from steelyard.ensemble.settings import SETTINGS
from steelyard.ensemble.views import HashedTable, HashedView
from steelyard.exceptions import DataError
from steelyard.tables.frames import is_table
from steelyard.tables.schema import Schema

if TYPE_CHECKING:
    from steelyard.ensemble.stream_classifier import StreamClassifier

_MISSING_KEY = 1.5e-310  # value that is hashed in place of a missing value


@dataclass(frozen=True)
class RowInput:
    """Columns that a model has learned, and the conversion of rows to these columns; immutable."""

    schema: Schema | None = None  # columns of the learned tables; None for arrays of numbers
    first_width: int = 0  # number of coded columns of the first rows
    hashed: HashedView | HashedTable | None = None  # hash function of rows with too many columns
    feature_names: list[str] | None = None  # names of the columns of arrays, in models of version 0.2

    def started(
        self, width: int, seed: int, feature_names: Any = None, *, keeps_wide: bool = True
    ) -> RowInput:
        """Return the input of a model whose first rows have ``width`` coded columns."""
        hashed: HashedView | HashedTable | None = None
        if width > SETTINGS.max_columns:
            hashed = HashedView(width, SETTINGS.max_columns, seed, keeps_wide)
            if self.schema is not None:
                hashed = HashedTable(SETTINGS.max_columns, seed, width)
        names = None if feature_names is None else list(map(str, feature_names))
        return RowInput(self.schema, width, hashed, names)

    @property
    def categorical(self) -> tuple[int, ...]:
        """Indices of the columns of category codes; empty if the columns are hashed."""
        return () if self.schema is None or self.hashed is not None else self.schema.categorical

    # -- conversion of tables -----------------------------------------------------------------------

    def encode(
        self, X: Any, n_features: int | None, source: str, *, learn: bool
    ) -> tuple[RowInput, FloatArray | None]:
        """Convert a table to numbers. Returns a RowInput that knows the new columns of X, and the rows.

        ``n_features`` features were learned before; None for the first rows. With ``learn``, new columns and
        categories extend the schema. The returned rows are None if the model learns arrays and X is an array.
        """
        if not is_table(X):
            return self, None if self.schema is None else _positional(X, self.schema, source)
        if self.schema is None and n_features is not None:
            return self, _unnamed(X, n_features, source)
        schema = Schema() if self.schema is None else self.schema.copy() if learn else self.schema
        coded = schema.encode(X, source, learn=learn)
        return replace(self, schema=schema) if learn else self, coded

    def check_known_categories(self, X: FloatArray) -> None:
        """Raise DataError for categories that were never learned."""
        for column in self.categorical:
            if (X[:, column] < 0).any():
                assert self.schema is not None
                name, row = self.schema.coded_names[column], int((X[:, column] < 0).argmax())
                raise DataError(
                    f"row {row} has a value in column {name!r} that was never learned; nothing was changed."
                )

    # -- conversion of coded rows -------------------------------------------------------------------

    def dense(
        self, X: Any, learner: StreamClassifier, method: str
    ) -> tuple[FloatArray, sp.csr_matrix | None]:
        """Return dense rows of finite numbers or NaN with at most ``SETTINGS.max_columns`` columns.

        The second result has the rows before hashing, or is None if rows are not hashed or come from a table.
        Rows with fewer columns than those that ``learner`` has learned are padded with missing values.
        ``learner`` and ``method`` are named in error messages.
        """
        is_sparse = type(X) is not np.ndarray and sp.issparse(X)
        if is_sparse:
            X = check_finite(learner, X, method)
        else:
            X = np.ascontiguousarray(X, dtype=np.float64)
            if not _native.all_finite(X):
                check_not_infinite(learner, X, method)
        if isinstance(self.hashed, HashedTable):
            assert self.schema is not None
            return self.hashed.apply(X, self.schema.categorical), None
        if self.hashed is not None:
            return self.hashed.apply(X), self.hashed.wide(X)
        if is_sparse:
            X = np.ascontiguousarray(X.toarray(), dtype=np.float64)
        n_columns = learner._ensemble.rows.n_columns
        if X.shape[1] < n_columns:  # an array is passed after tables were learned
            X = np.pad(X, ((0, 0), (0, n_columns - X.shape[1])), constant_values=np.nan)
        return X, None

    @property
    def keeps_wide(self) -> bool:
        """Whether an expert also learns the columns before hashing."""
        return isinstance(self.hashed, HashedView) and self.hashed.keeps_wide

    def monitored(self, X: FloatArray, *, has_gaps: bool) -> tuple[FloatArray, list[str] | None]:
        """Return the columns of X that are tested for drift: those that the first learned rows had.

        The second result has their names, or is None if they have no names or are hashed. Missing values
        become 0. Columns of times become 0 too, because their values always increase.
        """
        X = X[:, : min(self.first_width, X.shape[1])]
        X = np.nan_to_num(X) if has_gaps else X
        schema = self.schema
        if schema is not None and self.hashed is None and "time" in schema.kinds.values():
            times = [place for (name, _), place in schema.places.items() if schema.kinds[name] == "time"]
            X = X.copy()
            X[:, [place for place in times if place < X.shape[1]]] = 0.0
        names = self.feature_names if schema is None else schema.coded_names[: self.first_width]
        return np.ascontiguousarray(X), None if self.hashed is not None else names


def row_keys(
    X: FloatArray, layout: Layout | None = None, wide: sp.csr_matrix | None = None
) -> NDArray[np.uint64]:
    """Return a hash of each row, which ignores missing values in columns that the first rows did not have.

    A row therefore keeps its hash when columns are added to the table. The layout is None if all rows are
    plain numbers. If the columns are hashed, the values before feature hashing are used, because different
    rows may have the same hashed columns.
    """
    if wide is not None:
        return _native.sparse_row_hashes(wide.data, wide.indices, wide.indptr)
    n_first = X.shape[1] if layout is None else layout.n_first
    if not _native.all_finite(X):
        missing = np.isnan(X)
        known = np.where(missing, _MISSING_KEY, X)
        if n_first < X.shape[1]:
            late = X[:, n_first:]  # row_hashes() ignores zeros
            late = np.where(late == 0.0, _MISSING_KEY, late)
            known[:, n_first:] = np.where(missing[:, n_first:], 0.0, late)
        X = known
    elif n_first < X.shape[1]:
        X = X.copy()
        X[:, n_first:][X[:, n_first:] == 0.0] = _MISSING_KEY
    return _native.row_hashes(X)


def has_feature_names(X: Any) -> bool:
    """Return whether a table has named columns. Arrays of objects and lists of lists have none."""
    return not isinstance(X, np.ndarray | list | tuple) or isinstance(X[0], Mapping)


def _positional(X: Any, schema: Schema, source: str) -> FloatArray:
    """Convert an array for a model that has learned tables; columns are matched by position."""
    rows = np.asarray(X.toarray() if sp.issparse(X) else X, dtype=np.float64)
    if rows.ndim != 2 or rows.shape[1] != schema.width or schema.width != len(schema.names):
        raise DataError(
            f"the model has learned tables with the columns {', '.join(map(repr, schema.names[:8]))}"
            f"{', ...' if len(schema.names) > 8 else ''}; got an array of shape {rows.shape}.",
            source=source,
            hint="pass a table with these columns",
        )
    if schema.categorical:
        raise DataError(
            f"column {schema.coded_names[schema.categorical[0]]!r} contains categories; got an array of "
            "numbers.",
            source=source,
            hint="pass a table with the same columns",
        )
    return np.ascontiguousarray(rows)


def _unnamed(X: Any, n_features: int, source: str) -> FloatArray:
    """Convert a table for a model that has learned arrays; columns are matched by position."""
    schema = Schema()
    coded = schema.encode(X, source, learn=True)
    text = next((name for name, kind in schema.kinds.items() if kind not in {"number", "unknown"}), None)
    if text is not None:
        raise DataError(
            f"the model has learned arrays of numbers; column {text!r} contains no numbers.",
            source=source,
            hint="learn tables from the first call on",
        )
    if coded.shape[1] != n_features:
        raise DataError(
            f"X has {coded.shape[1]} features, but {source.partition('.')[0]} is expecting "
            f"{n_features} features as input.",
            source=source,
        )
    return coded
