"""Layout of coded rows: kinds of columns, and the features of linear experts.

A coded row has one number per column: numbers, category codes, and NaN where a value is missing. Linear
experts get these features: the columns of numbers, an indicator of missing values for each column in which
a value was missing, and one feature per category. A column without values in the first rows has an indicator
of present values instead. A feature is added at the end when it is first needed and is 0 in all earlier rows,
so sums over earlier rows stay exact.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from steelyard._types import FloatArray, IntArray

# Maximum number of features of linear experts; beyond it, new categories share hash features.
_MAX_FEATURES = 320
_MAX_SHARED_FEATURES = 448
_HASH_FEATURES = 16  # number of hash features per column, shared by categories without their own feature
_VALUE, _MISSING, _PRESENT, _CATEGORY, _HASH = range(5)

Feature = tuple[int, int, int]  # kind, column, and category code or index of the hash feature


@dataclass(frozen=True)
class Layout:
    """Columns of coded rows and the features that linear experts derive from them; immutable."""

    n_columns: int  # number of columns of a coded row
    categorical: tuple[int, ...] = ()  # columns of category codes
    # Columns with values in the first rows; the numeric ones are the first features.
    early: tuple[int, ...] = ()
    added: tuple[Feature, ...] = ()  # features that were added later, in order
    # Number that replaces missing values of a column, fixed at the first of them.
    fills: Mapping[int, float] = field(default_factory=dict)
    # Number that is subtracted from the values of a column without values in the first rows.
    shifts: Mapping[int, float] = field(default_factory=dict)
    n_first: int = 0  # number of columns of the first rows

    @classmethod
    def of_rows(cls, X: FloatArray, categorical: tuple[int, ...] = ()) -> Layout:
        """Return the layout of the first rows of a stream."""
        early = np.flatnonzero(~np.isnan(X).all(axis=0))
        return cls(X.shape[1], categorical, tuple(early.tolist()), n_first=X.shape[1])

    @cached_property
    def base(self) -> list[int]:
        """Numeric columns, which are the first features."""
        categorical = set(self.categorical)
        return [column for column in self.early if column not in categorical]

    @property
    def is_plain(self) -> bool:
        """Whether all columns are numbers without missing values so far, so that rows need no expansion."""
        return len(self.base) == self.n_columns and not self.added

    @property
    def width(self) -> int:
        """Number of features of linear experts."""
        return len(self.base) + len(self.added)

    @property
    def columns_of_features(self) -> list[int]:
        """Index of the column of the coded row to which each feature of linear experts belongs."""
        return [*self.base, *(column for _, column, _ in self.added)]

    def extended(self, X: FloatArray, earlier: FloatArray, categorical: tuple[int, ...] = ()) -> Layout:
        """Return the layout extended by new rows, which may have new columns and categories.

        Some ``earlier`` rows together with X determine the replacement of missing numbers. ``categorical``
        are all columns of category codes.
        """
        missing = np.isnan(X)
        is_category = np.zeros(X.shape[1], dtype=bool)
        is_category[list(categorical)] = True
        known, new = set(self.added), list[Feature]()
        fills, shifts = dict(self.fills), dict(self.shifts)
        base = set(self.base)
        for column in np.flatnonzero(~missing.all(axis=0) & ~is_category).tolist():
            if column not in base and (_VALUE, column, 0) not in known:  # first values of this column
                shifts[column] = float(np.nanmedian(X[:, column]))
                new += [(_VALUE, column, 0), (_PRESENT, column, 0)]
        early = set(self.early)
        for column in np.flatnonzero(missing.any(axis=0)).tolist():
            if column not in early or (_MISSING, column, 0) in known:
                continue
            new.append((_MISSING, column, 0))
            if column in base:
                values = np.concatenate([earlier[:, column], X[:, column]])
                fills[column] = float(np.nanmedian(values))
        for column in categorical:
            new += self._new_categories(X[:, column], column, known, self.width + len(new))
        if not new and X.shape[1] == self.n_columns and categorical == self.categorical:
            return self
        return Layout(X.shape[1], categorical, self.early, (*self.added, *new), fills, shifts, self.n_first)

    def _new_categories(
        self, values: FloatArray, column: int, known: set[Feature], width: int
    ) -> list[Feature]:
        codes = np.unique(values[values >= 0]).astype(np.int64).tolist()
        new: list[Feature] = []
        for code in codes:
            shared = (_HASH, column, code % _HASH_FEATURES)
            if (_CATEGORY, column, code) in known or shared in new:
                continue
            if width + len(new) < _MAX_FEATURES and not self._is_shared(column, known):
                new.append((_CATEGORY, column, code))
            elif shared not in known and width + len(new) < _MAX_SHARED_FEATURES:
                new.append(shared)
        return new

    @staticmethod
    def _is_shared(column: int, known: set[Feature]) -> bool:
        """Return whether some categories of a column already share hash features."""
        return any((_HASH, column, number) in known for number in range(_HASH_FEATURES))

    def expand(self, X: FloatArray) -> FloatArray:
        """Return the features of the rows ``X`` for linear experts."""
        if self.is_plain:
            return X
        out = np.zeros((len(X), self.width))
        n_base = len(self.base)
        values = X[:, self.base] if n_base < X.shape[1] else X
        gaps = np.isnan(values)
        if gaps.any():
            values = np.where(gaps, [self.fills.get(column, 0.0) for column in self.base], values)
        out[:, :n_base] = values
        for place, column, _ in self._places[_VALUE]:
            out[:, place] = np.nan_to_num(X[:, column] - self.shifts[column], nan=0.0)
        for place, column, _ in self._places[_MISSING]:
            out[:, place] = np.isnan(X[:, column])
        for place, column, _ in self._places[_PRESENT]:
            out[:, place] = ~np.isnan(X[:, column])
        for column, (own, shared) in self._category_places.items():
            codes = np.nan_to_num(X[:, column], nan=-1.0).astype(np.int64)
            # A negative code reads the last entry, which is -1.
            places = own[np.minimum(codes, len(own) - 2)]
            places = np.where(codes < len(own) - 1, places, shared[codes % _HASH_FEATURES])
            rows = np.flatnonzero(places >= 0)
            out[rows, places[rows]] = 1.0
        return out

    @cached_property
    def _places(self) -> list[list[tuple[int, int, int]]]:
        """Index, column and code of the added features, by kind."""
        places: list[list[tuple[int, int, int]]] = [[] for _ in range(_HASH + 1)]
        for place, (kind, column, code) in enumerate(self.added, len(self.base)):
            places[kind].append((place, column, code))
        return places

    @cached_property
    def _category_places(self) -> dict[int, tuple[IntArray, IntArray]]:
        """Two lookup tables per column of categories: feature index by code, and by hash value of the code.

        A code without a feature of its own has its hash feature. -1 means no feature; the first table ends
        with -1 for missing values.
        """
        found = {}
        for column in self.categorical:
            own, common = (
                {code: place for place, at, code in self._places[kind] if at == column}
                for kind in (_CATEGORY, _HASH)
            )
            shared = np.array([common.get(k, -1) for k in range(_HASH_FEATURES)], dtype=np.int64)
            n_codes = max(own, default=-1) + 1
            lookup = [own.get(code, int(shared[code % _HASH_FEATURES])) for code in range(n_codes)]
            found[column] = np.array([*lookup, -1], dtype=np.int64), shared
        return found

    def get_state(self) -> dict[str, Any]:
        """Return the layout as plain values."""
        return {
            "n_columns": self.n_columns,
            "n_first": self.n_first,
            "categorical": list(self.categorical),
            "early": list(self.early),
            "added": [list(feature) for feature in self.added],
            "fills": [[column, value] for column, value in self.fills.items()],
            "shifts": [[column, value] for column, value in self.shifts.items()],
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Layout:
        """Restore a layout from the result of :meth:`get_state`; raise ValueError if it is inconsistent."""
        fills, shifts = (
            {int(column): float(value) for column, value in state[name]} for name in ("fills", "shifts")
        )
        added = tuple((int(kind), int(column), int(code)) for kind, column, code in state["added"])
        categorical, early = (tuple(map(int, state[name])) for name in ("categorical", "early"))
        n_columns, n_first = int(state["n_columns"]), int(state["n_first"])
        layout = cls(n_columns, categorical, early, added, fills, shifts, n_first)
        columns = [*layout.columns_of_features, *categorical, *fills, *shifts]
        if not all(0 <= column < layout.n_columns for column in columns):
            raise ValueError("a feature belongs to no column")
        if not all(0 <= kind <= _HASH and code >= 0 for kind, _, code in added):
            raise ValueError("a feature has an unknown kind")
        if any(kind == _VALUE and column not in shifts for kind, column, _ in added):
            raise ValueError("a late column has no reference point")
        return layout
