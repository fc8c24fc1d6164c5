"""HTML page for the slices of a cube: class shares, and errors of the common model."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from steelyard.report.rendering import render, write_page
from steelyard.sql import SliceSummary
from steelyard.sql.slices import format_slice

_MAX_LINES, _MAX_COLUMNS = 60, 16
_NOTICEABLE_AUC = 0.01  # smaller differences between the AUC of the common and the local model are ignored
# The common model fails on a slice if its AUC is lower than that of the local model by this much.
_FAILING_AUC = 0.05
_Values = tuple[str | None, ...]


def write_slices(standings: Sequence[SliceSummary], by: Sequence[str], path: str | Path) -> Path:
    """Write the comparison of slices to an HTML file.

    Parameters
    ----------
    standings : sequence of SliceSummary
        Result of :meth:`steelyard.sql.StatisticsCube.compare`.
    by : sequence of str
        Columns that define the slices.
    path : str or Path
        Output file.
    """
    return write_page(render_slices(standings, by), path)


def render_slices(standings: Sequence[SliceSummary], by: Sequence[str]) -> str:
    """Return the comparison of slices as HTML.

    Parameters
    ----------
    standings, by
        As for :func:`write_slices`.
    """
    totals: dict[str, float] = {}
    for standing in standings:
        for label, share in standing.shares.items():
            totals[label] = totals.get(label, 0.0) + share * standing.rows
    rare = min(totals, key=lambda label: totals[label])
    n_rows = sum(standing.rows for standing in standings)
    measured = [standing for standing in standings if not math.isnan(standing.auc)]
    worst = min(measured, key=lambda standing: standing.auc - standing.own_auc, default=None)
    return render(
        "cube.html",
        title="Slices compared",
        headline=_headline(worst),
        by=list(by),
        rare=rare,
        n_rows=n_rows,
        n_slices=len(standings),
        overall=totals[rare] / n_rows,
        maps=[
            _map(standings, f"Share of class {rare}", [s.shares.get(rare, 0.0) for s in standings], "share"),
            _map(standings, "AUC of the common model", [s.auc for s in standings], "quality"),
        ],
        lines=standings[:_MAX_LINES],
        failing_auc=_FAILING_AUC,
        n_more=max(len(standings) - _MAX_LINES, 0),
    )


def _headline(worst: SliceSummary | None) -> str:
    if worst is None:
        return "No slice has rows of two classes"
    if worst.own_auc - worst.auc < _NOTICEABLE_AUC:
        return "On every slice, the common model is about as good as a separate model"
    aucs = f"AUC {worst.auc:.2f} instead of {worst.own_auc:.2f}"
    return f"The common model is worst on {worst.name}: {aucs}"


def _map(standings: Sequence[SliceSummary], title: str, values: list[float], kind: str) -> dict[str, Any]:
    """Return a heat map: rows are values of the first column, columns are combinations of the others."""
    found = {(s.slice[:1], s.slice[1:]): (value, s.rows) for s, value in zip(standings, values, strict=True)}
    lines = list(dict.fromkeys(line for line, _ in found))[:_MAX_LINES]
    columns = list(dict.fromkeys(column for _, column in found))[:_MAX_COLUMNS]
    known = [value for value in values if not math.isnan(value)]
    low, high = (min(known), max(known)) if known else (0.0, 1.0)
    if kind == "quality":
        low, high = 0.5, max(high, 0.5)

    def shown(value: float) -> str:
        return f"{100 * value:.1f}%" if kind == "share" else f"{value:.2f}"

    def cell(line: _Values, column: _Values) -> dict[str, Any] | None:
        if (line, column) not in found:
            return None
        value, rows = found[line, column]
        if math.isnan(value):
            return {"text": "none", "depth": 0.0, "rows": rows, "bad": False}
        depth = 0.0 if high <= low else min(max((value - low) / (high - low), 0.0), 1.0)
        bad = kind == "quality" and value < 0.5
        if bad:
            depth = min(1.0, 2.0 * (0.5 - value) + 0.25)
        return {"text": shown(value), "depth": round(depth, 3), "rows": rows, "bad": bad}

    return {
        "title": title,
        "columns": [format_slice(column) for column in columns],
        "lines": [
            {"name": format_slice(line), "cells": [cell(line, column) for column in columns]}
            for line in lines
        ],
        "low": shown(low),
        "high": shown(high),
        "kind": kind,
    }
