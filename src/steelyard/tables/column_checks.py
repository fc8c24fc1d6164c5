"""Checks for columns that are unlikely to be features: dates, identifiers, sentences, counters, constants.

Only the first rows are checked. Each finding names the command-line option that helps. A text column with a
different value in nearly every row raises an error, because every value would become a feature. Columns that
are constant at first often change later, for example when a sensor is switched on. So constant columns are
reported at the end of the table.
"""

from __future__ import annotations

import re
import shlex
import warnings
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from steelyard.exceptions import DataError
from steelyard.tables.columns import ColumnBatch
from steelyard.tables.frames import times_of

_EARLY_ROWS = 200  # number of rows after which text columns are first checked
_CHECKED_ROWS = 1000
# Ten rows are enough to recognise dates and counters.
# Checks for distinct, increasing or constant values need more rows, because few values can be so by chance.
_MIN_ROWS_FOR_FORM = 10
_MIN_ROWS = 30
_MAX_COLUMNS = 5000  # maximum number of checked columns; checking more would take longer than learning
_MAX_NAMES = 5
_OTHER_DATE = re.compile(r"\d{4}-\d{2}\b|\d{1,2}[./-]\d{1,2}[./-]\d{2,4}\b|\d{4}[./]\d{1,2}[./]\d{1,2}\b")
_WORD = re.compile(r"[^\W\d_]{2,}")
_MIN_WORDS = 4  # minimum mean number of words per value in a column of sentences
_SENTENCES_HINT = (
    "leave it out (--drop {name}); to learn from the words, use Python: TfidfVectorizer of scikit-learn "
    "makes a sparse matrix of the column (docs/faq.md, Text and TF-IDF)"
)


class ColumnChecks:
    """Checks of the columns in the first thousand rows of a table; constant columns are checked in all rows.

    Columns in ``named``, which the user has named as categories or features, are not checked. ``times`` are
    the columns whose declared type is a date or time.
    """

    def __init__(
        self, features: Sequence[str], named: Sequence[str], source: str, times: Sequence[str] = ()
    ) -> None:
        excluded = set(named)
        self._features = [name for name in features if name not in excluded][:_MAX_COLUMNS]
        self._source, self._times = source, frozenset(times)
        self._parts: list[ColumnBatch] = []
        self._n_rows = 0
        self._checked_early = False
        self._constants: dict[str, Any] = {}  # columns that are constant so far, with their value
        self.done = not self._features

    def add(self, batch: ColumnBatch) -> list[str]:
        """Check more rows and return the findings; raise DataError if a text column has too many values."""
        if self.done:
            self._follow_constants(batch)
            return []
        part = batch.take(0, _CHECKED_ROWS - self._n_rows)
        self._parts.append(part.choose(self._features))
        self._n_rows += part.n_rows
        is_full = self._n_rows >= _CHECKED_ROWS
        if is_full or (self._n_rows >= _EARLY_ROWS and not self._checked_early):
            self._checked_early = True
            for name, (what, hint) in _suspicious_texts(ColumnBatch.concat(self._parts)).items():
                raise DataError(
                    f"column {name!r} {what}; every value would become a feature of its own.",
                    source=self._source,
                    hint=hint,
                )
        if not is_full:
            return []
        findings = self._close()
        self._follow_constants(batch.take(part.n_rows, batch.n_rows))
        return findings

    def _follow_constants(self, batch: ColumnBatch) -> None:
        """Remove columns whose value changes in the rows of ``batch`` from the list of constant columns."""
        if self._constants and batch.n_rows:
            self._n_rows += batch.n_rows
            self._constants = {
                name: value
                for name, value in self._constants.items()
                if _has_only(batch.columns[name], value)
            }

    def finish(self) -> list[str]:
        """Return the remaining findings at the end of the table."""
        findings = [] if self.done else self._close()
        names, self._constants = list(self._constants), {}
        return [*findings, *_finding(names, f"is constant in all {self._n_rows:,} rows", "--drop")]

    def _close(self) -> list[str]:
        """Return the findings in the first rows, and keep the columns that are constant so far."""
        self.done = True
        if not self._parts:
            return []
        batch, self._parts = ColumnBatch.concat(self._parts), []
        self._constants = {
            name: values[0]
            for name, values in batch.columns.items()
            if len(values) >= _MIN_ROWS and _has_only(values, values[0])
        }
        times, counters, clocks = list[str](), list[str](), list[str]()
        for name, values in batch.columns.items():
            is_text = values.dtype == object
            if name in self._times or (is_text and times_of(set(values.tolist()) - {None}) is not None):
                times.append(name)
            elif not is_text and len(values) >= _MIN_ROWS_FOR_FORM:
                steps = np.diff(values)
                if np.all(steps == 1.0):
                    counters.append(name)
                elif len(values) >= _MIN_ROWS and np.all(steps >= 0) and 2 * (steps > 0).sum() > len(steps):
                    clocks.append(name)
        return [
            *(f"column {name!r} {what} ({hint})" for name, (what, hint) in _suspicious_texts(batch).items()),
            *_finding(times, "contains times, which become seconds as a feature", "--time or --drop"),
            *_finding(counters, "counts the rows, as an index does", "--drop"),
            *_finding(clocks, "increases from row to row, like a clock or counter", "--time or --drop"),
        ]


def _finding(names: list[str], what: str, option: str) -> list[str]:
    if not names:
        return []
    shown = ", ".join(map(repr, names[:_MAX_NAMES]))
    more = f" and {len(names) - _MAX_NAMES:,} more" if len(names) > _MAX_NAMES else ""
    if len(names) == 1:
        return [f"column {shown} {what} ({option} {shlex.quote(names[0])})"]
    return [f"columns {shown}{more}: each {what} ({option})"]


def _suspicious_texts(batch: ColumnBatch) -> dict[str, tuple[str, str]]:
    """Return a description and a hint for each text column that does not look like categories."""
    found = {}
    for name, values in batch.columns.items():
        if values.dtype == object and (pair := _kind_of_text(values)) is not None:
            found[name] = pair[0], pair[1].format(name=shlex.quote(name))
    return found


def _kind_of_text(values: NDArray[Any]) -> tuple[str, str] | None:
    """Return a description and a hint if a text column does not look like categories, or None."""
    known = [value for value in values.tolist() if value is not None]
    distinct = set(known)
    if len(known) < _MIN_ROWS_FOR_FORM or 2 * len(distinct) < len(known):
        return None
    if times_of(distinct) is not None:
        return None  # a column of dates becomes a feature: seconds since 1970
    if all(_OTHER_DATE.match(value) for value in distinct):
        return (
            "contains dates",
            "leave it out (--drop {name}); dates like 2026-01-31 can be the time of the rows (--time {name})",
        )
    if contains_sentences(distinct, len(known)):
        return ("contains sentences", _SENTENCES_HINT)
    if len(known) >= _MIN_ROWS and len(distinct) > 0.9 * len(known):
        return (
            "has a different value in nearly every row, like an identifier",
            "leave it out (--drop {name}), or use it anyway (--categorical {name})",
        )
    return None


def contains_sentences(distinct: Collection[str], n_known: int) -> bool:
    """Return whether a column with the given distinct values in ``n_known`` rows contains sentences."""
    if n_known < _MIN_ROWS or 2 * len(distinct) < n_known:
        return False
    return sum(len(_WORD.findall(text)) for text in distinct) >= _MIN_WORDS * len(distinct)


def warn_of_sentences(name: str, batch: ColumnBatch) -> None:
    """Warn if a column of a table in memory contains sentences."""
    known = [text for text in batch.columns[name].tolist() if text is not None]
    if contains_sentences(set(known), len(known)):
        warnings.warn(
            f"column {name!r} contains sentences, which are learned as categories, not by their words; "
            "TfidfVectorizer of scikit-learn makes a sparse matrix of the column, from which "
            "StreamClassifier and ProximalSVC(standardize=False) learn.",
            UserWarning,
            stacklevel=2,
        )


def _has_only(values: NDArray[Any], value: Any) -> bool:
    """Return whether all values equal ``value``. NaN does not equal anything."""
    return set(values.tolist()) == {value} if values.dtype == object else bool(np.all(values == value))
