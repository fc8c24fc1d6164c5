"""Slices of a cube as a page: where the rare class is frequent, and where the common model fails."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from steelyard.report.page import render, write_page
from steelyard.sql import SliceSummary
from steelyard.sql.slice_summary import format_slice

__all__ = ["render_slices", "write_slices"]

_MOST_LINES, _MOST_COLUMNS = 60, 16
_Values = tuple[str | None, ...]


def write_slices(standings: Sequence[SliceSummary], by: Sequence[str], path: str | Path) -> Path:
    """Write the page of some slices to a file.

    Parameters
    ----------
    standings : sequence of SliceSummary
        What :meth:`steelyard.sql.StatisticsCube.compare` gave.
    by : sequence of str
        The columns that it was asked for.
    path : str or Path
        Where to write it.
    """
    return write_page(render_slices(standings, by), path)


def render_slices(standings: Sequence[SliceSummary], by: Sequence[str]) -> str:
    """The page of some slices, as one HTML document.

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
        lines=[_line(standing, rare) for standing in standings[:_MOST_LINES]],
        n_more=max(len(standings) - _MOST_LINES, 0),
        moments=[],
    )


def _headline(worst: SliceSummary | None) -> str:
    if worst is None:
        return "No slice has rows of two classes"
    if worst.own_auc - worst.auc < 0.01:
        return "The common model serves every slice about as well as a model of its own would"
    aucs = f"AUC {worst.auc:.2f}, where its own has {worst.own_auc:.2f}"
    return f"The common model loses most on {worst.name}: {aucs}"


def _line(standing: SliceSummary, rare: str) -> dict[str, Any]:
    return {
        "name": standing.name,
        "rows": standing.rows,
        "share": standing.shares.get(rare, 0.0),
        "measures": [
            standing.squared_error,
            standing.own_squared_error,
            standing.auc,
            standing.own_auc,
            standing.gmean,
            standing.own_gmean,
        ],
        "fails": standing.own_auc - standing.auc >= 0.05,
    }


def _map(standings: Sequence[SliceSummary], title: str, values: list[float], kind: str) -> dict[str, Any]:
    """A table of colours: the first column down, the others across."""
    found = {(s.slice[:1], s.slice[1:]): (value, s.rows) for s, value in zip(standings, values, strict=True)}
    # The largest come first, as the standings do.
    lines = list(dict.fromkeys(line for line, _ in found))[:_MOST_LINES]
    columns = list(dict.fromkeys(column for _, column in found))[:_MOST_COLUMNS]
    known = [value for value in values if not math.isnan(value)]
    low, high = (min(known), max(known)) if known else (0.0, 1.0)
    if kind == "quality":
        low, high = 0.5, max(high, 0.5)

    def cell(line: _Values, column: _Values) -> dict[str, Any] | None:
        if (line, column) not in found:
            return None
        value, rows = found[line, column]
        if math.isnan(value):
            return {"text": "none", "deep": 0.0, "rows": rows, "bad": False}
        deep = 0.0 if high <= low else min(max((value - low) / (high - low), 0.0), 1.0)
        bad = kind == "quality" and value < 0.5
        if bad:
            deep = min(1.0, 2.0 * (0.5 - value) + 0.25)
        text = f"{100 * value:.1f} %" if kind == "share" else f"{value:.2f}"
        return {"text": text, "deep": round(deep, 3), "rows": rows, "bad": bad}

    return {
        "title": title,
        "columns": [format_slice(column) for column in columns],
        "lines": [
            {"name": format_slice(line), "cells": [cell(line, column) for column in columns]}
            for line in lines
        ],
        "low": f"{100 * low:.1f} %" if kind == "share" else f"{low:.2f}",
        "high": f"{100 * high:.1f} %" if kind == "share" else f"{high:.2f}",
        "kind": kind,
    }
