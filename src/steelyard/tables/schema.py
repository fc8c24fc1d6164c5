"""Schema of a table: kinds and categories of its columns, which encode tables as coded rows.

A coded row is a row of numbers: numbers and booleans as they are, times in seconds, categories as integer
codes, and NaN for missing values. Times get two further columns: the hour of the day and the day of the week.
A text column is a column of times if its first rows are dates such as 2026-01-31 or 2026-01-31T09:30.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from functools import partial
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from steelyard._types import FloatArray
from steelyard.exceptions import DataError
from steelyard.tables import frames
from steelyard.tables.column_checks import warn_of_sentences
from steelyard.tables.columns import ColumnBatch, Values, erased_codes, new_values

# Number of values per column with their own code; further values share hash codes.
MAX_EXACT_CATEGORIES = 4096
_SECONDS_PER_HOUR, _SECONDS_PER_DAY = 3600.0, 86_400.0
_FIRST_WEEKDAY = 3.0  # 1970-01-01 was a Thursday; Monday is 0
_TIME_PARTS = ("hour", "weekday")
_WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


class Schema:
    """Kinds and categories of columns. New columns and categories get the next free index.

    :meth:`encode` with ``learn=True`` extends the schema. Rows that were coded before remain valid: new
    columns are appended, and are NaN in these rows. :meth:`copy` is cheap.
    """

    def __init__(self) -> None:
        # Kind of each column: "number", "time", "category", or "unknown" before its first value.
        self.kinds: dict[str, str] = {}
        # Index of each coded column, by the column of the table and a part: "" for the value itself, "hour"
        # or "weekday" of a time.
        self.places: dict[tuple[str, str], int] = {}
        self.codes: dict[str, dict[str, int]] = {}  # code of each value, by column of categories

    def copy(self) -> Self:
        """Return a copy that can be extended without changing this schema."""
        other = copy(self)
        other.kinds, other.places = dict(self.kinds), dict(self.places)
        other.codes = dict(self.codes)  # the inner dictionaries are replaced when they are extended
        return other

    @property
    def names(self) -> list[str]:
        """Names of the columns of the table, in the order of their first occurrence."""
        return list(self.kinds)

    @property
    def coded_names(self) -> list[str]:
        """Names of the coded columns, such as "time" and "time hour"."""
        return [f"{name} {part}".rstrip() for name, part in self.places]

    @property
    def width(self) -> int:
        """Number of coded columns."""
        return len(self.places)

    @property
    def categorical(self) -> tuple[int, ...]:
        """Indices of the coded columns that contain category codes."""
        return tuple(self.places[name, ""] for name, kind in self.kinds.items() if kind == "category")

    def categories_of(self, place: int) -> list[str]:
        """Return the categories of a coded column in code order; the list is empty for other columns."""
        name, part = list(self.places)[place]
        return [] if part else list(self.codes.get(name, ()))

    def texts_of(self, place: int) -> Callable[[FloatArray], NDArray[Any]] | None:
        """Return a function that converts a coded column to texts, or None for a column of numbers.

        The function returns None for missing values and for codes that are not those of a known category.
        """
        name, part = list(self.places)[place]
        if self.kinds[name] == "category":
            return partial(_texts_of_codes, texts=self.categories_of(place))
        if self.kinds[name] == "time" and part != "hour":
            return partial(_texts_of_codes, texts=_WEEKDAYS) if part else frames.time_texts
        return None

    def category_texts(self, X: Any, source: str) -> dict[int, NDArray[Any]]:
        """Return the texts of each column of categories in a table, by the index of the coded column."""
        batch = frames.table_batch(X, source)
        if batch.matrix is not None:
            return {}
        names = [name for name, _ in self.places]
        found = {}
        for place in self.categorical:
            if names[place] in batch.columns:
                texts, codes = batch.dictionary_encode(names[place])
                found[place] = np.array(texts, dtype=object)[codes]
        return found

    def encode(self, X: Any, source: str, *, learn: bool) -> FloatArray:
        """Return the coded rows of a table, whose columns are matched by name.

        If the schema does not ``learn`` new columns and categories, new columns are ignored, and unknown
        categories get the code -1. ``source`` is the caller in error messages.
        """
        batch = frames.table_batch(X, source)
        has_only_numbers = batch.matrix is not None and set(self.kinds.values()) == {"number"}
        if has_only_numbers and list(batch.columns) == self.names:
            return batch.to_matrix(self.names)
        frames.check_some_known(batch.columns, self.kinds, source)
        known = self.kinds.get
        batch = frames.with_dates(
            batch, [x for x in batch.columns if known(x, "unknown") in {"time", "unknown"}]
        )
        kinds = {name: kind for name in batch.columns if (kind := batch.kind(name)) != "unknown"}
        if learn:
            for name in batch.columns:
                self._extend(name, kinds.get(name, "unknown"), batch)
        coded = np.full((batch.n_rows, self.width), np.nan)
        for name, kind in kinds.items():
            if self.kinds.get(name, "unknown") != "unknown":
                self._write(coded, name, kind, batch, source)
        return coded

    def _extend(self, name: str, kind: str, batch: ColumnBatch) -> None:
        if self.kinds.get(name, "unknown") == "unknown":
            self.kinds[name] = kind
            self.places.setdefault((name, ""), len(self.places))
            for part in _TIME_PARTS if kind == "time" else ():
                self.places.setdefault((name, part), len(self.places))
            if kind == "category":
                warn_of_sentences(name, batch)
        if self.kinds[name] == "category":
            known = self.codes.get(name, {})
            new = new_values(batch.dictionary_encode(name), known)[: MAX_EXACT_CATEGORIES - len(known)]
            self.codes[name] = known | {text: len(known) + k for k, (_, text) in enumerate(new)}

    def _write(self, coded: FloatArray, name: str, kind: str, batch: ColumnBatch, source: str) -> None:
        known, place = self.kinds[name], self.places[name, ""]
        if known == "category":
            texts, codes = batch.dictionary_encode(name)
            coded[:, place] = np.array([self._code_of(name, text) for text in texts])[codes]
            return
        values = batch.columns[name]
        coded[:, place] = values if kind == known else _converted(values, kind, known, name, source)
        if known == "time":
            coded[:, self.places[name, "hour"]] = values % _SECONDS_PER_DAY / _SECONDS_PER_HOUR
            days = np.floor(values / _SECONDS_PER_DAY)
            coded[:, self.places[name, "weekday"]] = (days + _FIRST_WEEKDAY) % 7.0

    def _code_of(self, name: str, text: str | None) -> float:
        if text is None:
            return np.nan
        known = self.codes[name]
        code = known.get(text)
        if code is not None:
            return code
        if len(known) < MAX_EXACT_CATEGORIES:
            return -1
        return MAX_EXACT_CATEGORIES + zlib.crc32(text.encode()) % MAX_EXACT_CATEGORIES

    def without_texts(self, categories: Iterable[tuple[str, str]]) -> Schema:
        """Return a copy in which the texts of some categories, as pairs (column, text), are erased."""
        schema, erased = self.copy(), set(categories)
        for name in {name for name, _ in erased} & self.codes.keys():
            schema.codes[name] = erased_codes(self.codes[name], {text for at, text in erased if at == name})
        return schema

    # -- saving and loading -------------------------------------------------------------------------

    def get_state(self) -> dict[str, Any]:
        """Return the schema as plain values."""
        return {
            "kinds": [list(pair) for pair in self.kinds.items()],
            "places": [list(pair) for pair in self.places],
            "categories": [[name, list(known)] for name, known in self.codes.items()],
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Schema:
        """Restore a schema from the result of :meth:`get_state`; raise ValueError if it is inconsistent."""
        schema = cls()
        schema.kinds = {str(name): str(kind) for name, kind in state["kinds"]}
        schema.places = {(str(name), str(part)): k for k, (name, part) in enumerate(state["places"])}
        schema.codes = {
            str(name): {str(value): code for code, value in enumerate(values)}
            for name, values in state["categories"]
        }
        is_valid = (
            len(schema.places) == len(state["places"])
            and {name for name, part in schema.places if not part} == set(schema.kinds)
            and set(schema.kinds.values()) <= {"number", "time", "category", "unknown"}
            and {name for name, kind in schema.kinds.items() if kind == "category"} == set(schema.codes)
            and all(len(schema.codes[str(name)]) == len(values) for name, values in state["categories"])
        )
        if not is_valid:
            raise ValueError("columns and categories are inconsistent")
        return schema


def _texts_of_codes(codes: FloatArray, texts: Sequence[str]) -> NDArray[Any]:
    """Return the text of each code, and None for values that are not the code of a text."""
    is_code = np.isin(codes, np.arange(len(texts)))
    return np.array([*texts, None], dtype=object)[np.where(is_code, codes, len(texts)).astype(np.int64)]


def _converted(values: Values, kind: str, known: str, name: str, source: str) -> FloatArray:
    """Return texts of a column that held numbers before as numbers; raise DataError for other columns."""
    row = frames.first_unreadable(values, is_time=known == "time") if kind == "category" else 0
    if kind == "category" and known == "number" and row is None:
        return np.array([np.nan if value is None else float(value) for value in values.tolist()])
    row = row or 0
    value = repr(values[row]) if kind == "category" else f"a {kind}"
    raise DataError(
        f"column {name!r} contained {'times' if known == 'time' else 'numbers'} before; got {value} in row "
        f"{row}; nothing was changed.",
        source=source,
        hint="give a column the same kind in all calls; a column of text (str) from the first call on holds "
        "categories",
    )
