"""Checks for columns that are unlikely to be features.

Such columns contain dates, identifiers, sentences, counters or constants. Only the first rows are checked.
Each finding names the command-line option that helps. A text column with a different value in nearly every
row raises an error, because every value would become a feature. Columns that are constant at first often
change later, for example when a sensor is switched on. So they are reported at the end of the table.
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
    "to learn from the words, use Python: TfidfVectorizer of scikit-learn makes a sparse matrix of the "
    "column (docs/faq.md, Text and TF-IDF)"
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
        self._parts: list[ColumnBatch] = []  # first rows, until they are checked
        self._n_rows = 0
        self._constants: dict[str, Any] = {}  # columns that are constant so far, with their value
        self._is_done = not self._features

    def add(self, batch: ColumnBatch) -> list[str]:
        """Check more rows and return the findings; raise DataError if a text column has too many values."""
        n_before = self._n_rows
        self._n_rows += batch.n_rows
        if self._is_done:
            constants = self._constants.items()
            self._constants = {name: x for name, x in constants if np.all(batch.columns[name] == x)}
            return []
        self._parts.append(batch)
        is_full = self._n_rows >= _CHECKED_ROWS
        if is_full or n_before < _EARLY_ROWS <= self._n_rows:
            first = ColumnBatch.concat(self._parts).take(0, _CHECKED_ROWS)
            for name in self._features:
                values = first.columns[name]
                if values.dtype == object and (problem := _text_problem(name, values)) is not None:
                    raise DataError(
                        f"column {name!r} {problem[0]}; every value would become a feature of its own.",
                        source=self._source,
                        hint=problem[1],
                    )
        return self._first_findings() if is_full else []

    def finish(self) -> list[str]:
        """Return the remaining findings at the end of the table."""
        findings = [] if self._is_done else self._first_findings()
        if not self._constants:
            return findings
        what = f"is constant in all {self._n_rows:,} rows"
        return [*findings, _finding(list(self._constants), what, "--drop")]

    def _first_findings(self) -> list[str]:
        """Return the findings in the first rows, and keep the columns that are constant so far."""
        self._is_done = True
        if not self._parts:
            return []
        batch, self._parts = ColumnBatch.concat(self._parts), []
        first = batch.take(0, _CHECKED_ROWS)
        findings, times, counters, clocks = list[str](), list[str](), list[str](), list[str]()
        for name in self._features:
            values = first.columns[name]
            is_text = values.dtype == object
            if is_text and (problem := _text_problem(name, values)) is not None:
                findings.append(f"column {name!r} {problem[0]} ({problem[1]})")
            if name in self._times or (is_text and times_of(set(values.tolist()) - {None}) is not None):
                times.append(name)
            elif not is_text and len(values) >= _MIN_ROWS_FOR_FORM:
                steps = np.diff(values)
                if np.all(steps == 1.0):
                    counters.append(name)
                elif len(values) >= _MIN_ROWS and np.all(steps >= 0) and 2 * (steps > 0).sum() > len(steps):
                    clocks.append(name)
            if batch.n_rows >= _MIN_ROWS and np.all(batch.columns[name] == values[0]):
                self._constants[name] = values[0]
        groups = (
            (times, "contains times, which become seconds as a feature", "--time or --drop"),
            (counters, "counts the rows, as an index does", "--drop"),
            (clocks, "increases from row to row, like a clock or counter", "--time or --drop"),
        )
        return [*findings, *(_finding(*group) for group in groups if group[0])]


def _finding(names: list[str], what: str, option: str) -> str:
    shown = ", ".join(map(repr, names[:_MAX_NAMES]))
    more = f" and {len(names) - _MAX_NAMES:,} more" if len(names) > _MAX_NAMES else ""
    if len(names) == 1:
        return f"column {shown} {what} ({option} {shlex.quote(names[0])})"
    return f"columns {shown}{more}: each {what} ({option})"


def _text_problem(name: str, values: NDArray[Any]) -> tuple[str, str] | None:
    """Return a description and a hint if a text column does not look like categories, or None."""
    known = [value for value in values.tolist() if value is not None]
    distinct, name = set(known), shlex.quote(name)
    has_few_texts = len(known) < _MIN_ROWS_FOR_FORM or 2 * len(distinct) < len(known)
    if has_few_texts or times_of(distinct) is not None:  # a column of dates becomes a feature
        return None
    if all(_OTHER_DATE.match(value) for value in distinct):
        hint = f"dates like 2026-01-31 can be the time of the rows (--time {name})"
        return "contains dates", f"leave it out (--drop {name}); {hint}"
    if contains_sentences(distinct, len(known)):
        return "contains sentences", f"leave it out (--drop {name}); {_SENTENCES_HINT}"
    if len(known) >= _MIN_ROWS and len(distinct) > 0.9 * len(known):
        return (
            "has a different value in nearly every row, like an identifier",
            f"leave it out (--drop {name}), or use it anyway (--categorical {name})",
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
