"""Columns that are hardly features: dates and identifiers as text, counters, clocks and constants.

They are noticed by the first rows and named together with the option that helps. Text with a value of its
own in nearly every row is refused: it would become a feature for each of them.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from steelyard.exceptions import DataError
from steelyard.tables.columns import ColumnBatch

__all__ = ["ColumnWatch"]

_EARLY_ROWS = 200  # enough to see that text does not repeat
_ALL_ROWS = 1000
# Rows of a short table from which on there is enough to see: a date has a form, a counter never misses a
# step, but values that differ, grow or stay the same may do so by chance.
_FEWEST_DATES = _FEWEST_STEPS = 10
_FEWEST_ROWS = 30
_MOST_COLUMNS = 5000  # of more, looking would take longer than learning
_NAMED = 5
_ISO_DATE = re.compile(r"\d{4}-\d{2}(-\d{2})?([T ]\d{2}(:\d{2}.*)?)?$")
_OTHER_DATE = re.compile(r"\d{1,2}[./-]\d{1,2}[./-]\d{2,4}\b|\d{4}[./]\d{1,2}[./]\d{1,2}\b")


class ColumnWatch:
    """Looks at the first thousand rows of a table, however they are cut.

    Parameters
    ----------
    features : sequence of str
        The columns that are to be features.
    wanted : sequence of str
        Columns that somebody has named as categories or features: these are taken as they are.
    source : str
        Where the rows come from, for sentences.
    moments : sequence of str
        Columns that are declared to hold dates or times.
    """

    def __init__(
        self, features: Sequence[str], wanted: Sequence[str], source: str, moments: Sequence[str] = ()
    ) -> None:
        named = set(wanted)
        self._features = [name for name in features if name not in named][:_MOST_COLUMNS]
        self._source, self._moments = source, frozenset(moments)
        self._parts: list[ColumnBatch] = []
        self._n_rows = 0
        self._looked_early = False
        self.done = not self._features

    def add(self, batch: ColumnBatch) -> list[str]:
        """Look at more rows and tell what was noticed; raises where a column must not become features."""
        if self.done:
            return []
        part = batch.take(0, _ALL_ROWS - self._n_rows)
        self._parts.append(ColumnBatch({name: part.columns[name] for name in self._features}, part.n_rows))
        self._n_rows += part.n_rows
        if self._n_rows >= _EARLY_ROWS and not self._looked_early:
            self._looked_early = True
            self._refuse_texts()
        if self._n_rows >= _ALL_ROWS:
            self._refuse_texts()
            return self.finish()
        return []

    def finish(self) -> list[str]:
        """What was noticed; of a table with fewer rows at its end."""
        if self.done:
            return []
        self.done = True
        found = self._sentences() if self._parts else []
        self._parts = []
        return found

    def _columns(self) -> dict[str, NDArray[Any]]:
        return dict(ColumnBatch.joined(self._parts).columns)

    def _refuse_texts(self) -> None:
        for name, values in self._columns().items():
            if values.dtype == object and (found := _kind_of_text(values)) is not None:
                what, hint = found
                raise DataError(
                    f"column {name!r} {what}; every value would become a feature of its own.",
                    source=self._source,
                    hint=hint.format(name=shlex.quote(name)),
                )

    def _sentences(self) -> list[str]:
        columns = self._columns()
        texts = [
            f"column {name!r} {found[0]} ({found[1].format(name=shlex.quote(name))})"
            for name, values in columns.items()
            if values.dtype == object and (found := _kind_of_text(values)) is not None
        ]
        moments = [name for name in columns if name in self._moments]
        numbers = {
            name: values
            for name, values in columns.items()
            if values.dtype != object and name not in self._moments
        }
        counters = [name for name, values in numbers.items() if _counts_rows(values)]
        clocks = [name for name, values in numbers.items() if name not in counters and _only_grows(values)]
        constants = [name for name, values in columns.items() if _is_constant(values)]
        return [
            *texts,
            *_told(moments, "holds moments, of which seconds become a feature", "--time or --drop"),
            *_told(counters, "counts the rows, as an index does", "--drop"),
            *_told(clocks, "grows from row to row, as a clock or a counter does", "--time or --drop"),
            *_told(constants, f"is the same in the first {self._n_rows:,} rows and tells nothing", "--drop"),
        ]


def _told(names: list[str], what: str, option: str) -> list[str]:
    if not names:
        return []
    shown = ", ".join(map(repr, names[:_NAMED]))
    more = f" and {len(names) - _NAMED:,} more" if len(names) > _NAMED else ""
    if len(names) == 1:
        return [f"column {shown} {what} ({option} {shlex.quote(names[0])})"]
    return [f"columns {shown}{more}: each {what} ({option})"]


def _kind_of_text(values: NDArray[Any]) -> tuple[str, str] | None:
    """What a column of text seems to be if it is no category, and what to do about it."""
    known = [value for value in values.tolist() if value is not None]
    distinct = set(known)
    if len(known) < _FEWEST_DATES or 2 * len(distinct) < len(known):
        return None
    if all(_ISO_DATE.match(value) for value in distinct):
        return (
            "holds dates",
            "take it as the time of the rows (--time {name}) or leave it out (--drop {name})",
        )
    if all(_OTHER_DATE.match(value) for value in distinct):
        return (
            "holds dates",
            "leave it out (--drop {name}); dates like 2026-01-31 can be the time of the rows (--time {name})",
        )
    if len(known) >= _FEWEST_ROWS and len(distinct) > 0.9 * len(known):
        return (
            "has another value in nearly every row, as an identifier has",
            "leave it out (--drop {name}), or insist (--categorical {name})",
        )
    return None


def _counts_rows(values: NDArray[Any]) -> bool:
    return len(values) >= _FEWEST_STEPS and bool(np.all(np.diff(values) == 1.0))


def _only_grows(values: NDArray[Any]) -> bool:
    steps = np.diff(values)
    if len(values) < _FEWEST_ROWS:
        return False
    return bool(np.all(steps >= 0) and np.count_nonzero(steps) > 0.5 * len(steps))


def _is_constant(values: NDArray[Any]) -> bool:
    if len(values) < _FEWEST_ROWS:
        return False
    if values.dtype == object:
        return len(set(values.tolist())) == 1
    return bool(np.all(values == values[0]))
