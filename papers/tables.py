"""Conversion of results to text: cells, lines, CSV and Markdown."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator, Sequence

from papers.result import Result, Row, Series
from papers.verdict import judge

__all__ = ["header", "lines", "markdown_table", "rows_csv", "series_csv"]

_MARKS = {"reached": "=", "better": "+", "short": "-", "none": ""}


def header(result: Result) -> list[str]:
    """Return the column names of :func:`lines`."""
    if result.layout == "long":
        return ["on", "learner", "measure", "paper", "ours", "verdict"]
    return ["on", "learner", *_measures(result.rows)]


def lines(result: Result) -> Iterator[list[str]]:
    """Return the lines of the table."""
    if result.layout == "long":
        for row in result.rows:
            numbers = [_paper(row) or "-", _ours(row), str(judge(row))]
            yield [row.subject, row.learner, row.measure, *numbers]
        return
    cells_of: dict[tuple[str, str], dict[str, str]] = {}
    for row in result.rows:
        cells_of.setdefault((row.subject, row.learner), {})[row.measure] = _wide_cell(row)
    for (subject, learner), cells in cells_of.items():
        yield [subject, learner, *(cells.get(measure, "-") for measure in _measures(result.rows))]


def markdown_table(result: Result) -> str:
    """Return the table as Markdown."""
    names = header(result)
    body = [f"| {' | '.join(names)} |", f"|{'---|' * len(names)}"]
    body += [f"| {' | '.join(line)} |" for line in lines(result)]
    return "\n".join(body)


def rows_csv(rows: Sequence[Row]) -> str:
    """Return CSV with every number in full precision."""
    columns = ["on", "learner", "measure", "paper", "paper_std", "mean", "std", "rounds", "verdict"]
    return _csv(
        columns,
        (
            [r.subject, r.learner, r.measure, r.paper, r.paper_std, r.mean, r.std, r.rounds, str(judge(r))]
            for r in rows
        ),
    )


def series_csv(series: Sequence[Series]) -> str:
    """Return CSV with every point of every curve."""
    return _csv(
        ["figure", "panel", "curve", "x", "y", "std"],
        (
            [s.figure, s.panel, s.label, x, s.y[place], None if s.std is None else s.std[place]]
            for s in series
            for place, x in enumerate(s.x)
        ),
    )


def _csv(columns: Sequence[str], body: Iterator[list[object]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(body)
    return text.getvalue()


def _measures(rows: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(row.measure for row in rows))


def _wide_cell(row: Row) -> str:
    paper = _paper(row)
    mark = _MARKS[judge(row).kind]
    return f"{_ours(row)} ({paper}){mark and ' ' + mark}" if paper else _ours(row)


def _ours(row: Row) -> str:
    return _with_spread(row.mean, row.std if row.rounds > 1 else None, row.digits)


def _paper(row: Row) -> str:
    return "" if row.paper is None else _with_spread(row.paper, row.paper_std, row.digits)


def _with_spread(mean: float, std: float | None, digits: int) -> str:
    if std is None or math.isnan(mean):
        return _number(mean, digits)
    return f"{_number(mean, digits)} ± {_number(std, digits)}"


def _number(value: float, digits: int) -> str:
    if math.isnan(value):
        return "nan"
    if value and abs(value) < 0.5 * 10.0**-digits:
        return f"{value:.1e}"
    return f"{value:,.{digits}f}" if value else "0"
