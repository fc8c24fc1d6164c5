"""Comparison of two runs from the output of ``steelyard stream --json``."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from markupsafe import Markup

from steelyard.exceptions import DataError, FileAccessError
from steelyard.report import text
from steelyard.report.charts import axis_minimum, stream_chart
from steelyard.report.rendering import render, write_page

_REQUIRED = ("stream", "rows", "summary", "table", "leading")
_SHOWN_CLASSES = 30
_EQUAL_DIFFERENCE = 0.0005  # smaller differences would be printed as 0.000
_COLUMNS = (
    "sensitivity", "specificity", "g_mean", "mean_g_mean", "lowest_g_mean", "f1", *text.RANKING_COLUMNS,
    "rows_per_second",
)  # fmt: skip
_COLUMNS_OF_MANY = (
    "macro_recall", "mean_macro_recall", "lowest_macro_recall", "f1", "accuracy", "log_loss", "brier",
    "rows_per_second",
)  # fmt: skip


def read_run(path: str | Path) -> dict[str, Any]:
    """Read a run from the output of ``steelyard stream --json`` or ``PrequentialResult.to_json``."""
    try:
        run = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise FileAccessError(f"cannot be read: {error.strerror or error}.", source=str(path)) from error
    except UnicodeDecodeError as error:  # the message of this error would contain the whole file
        raise DataError("this is not a JSON document: it is a binary file.", source=str(path)) from error
    except (ValueError, RecursionError) as error:
        raise DataError(f"this is not a JSON document: {error}.", source=str(path)) from error
    if not isinstance(run, dict) or any(name not in run for name in _REQUIRED) or not run["summary"]:
        raise DataError(
            "this JSON document is not the result of a run.",
            source=str(path),
            hint="runs are written by `steelyard stream ... --json > run.json`",
        )
    return run


def compare_runs(
    a: Mapping[str, Any], b: Mapping[str, Any], names: tuple[str, str] = ("a", "b")
) -> dict[str, Any]:
    """Compare two runs of :func:`read_run`.

    The result has ``leading`` (the measure that ranks models), ``lines`` (one per run and model), ``best``
    (the best line of each run), ``difference`` (leading measure of the second run minus that of the first),
    ``clear`` (whether the 95% confidence intervals over all rows are disjoint), ``warnings`` and
    ``differences`` (settings that differ).
    """
    leading = a["leading"] if a["leading"] == b["leading"] else "g_mean"
    lines = [
        {"run": name, **line}
        for name, run in zip(names, (a, b), strict=True)
        for line in text.ranked(run["summary"], leading)
    ]
    best = [next(line for line in lines if line["run"] == name) for name in names]
    figures = [_number(line.get(f"mean_{leading}")) for line in best]
    ends: list[Any] = [line.get(f"{leading}_{end}") for line in best for end in ("low", "high")]
    return {
        "leading": leading,
        "lines": lines,
        "best": best,
        "difference": figures[1] - figures[0],
        "clear": None in ends or not (ends[0] <= ends[3] and ends[2] <= ends[1]),
        "warnings": _warnings(a, b),
        "differences": _differences(a, b),
    }


def render_comparison(a: Mapping[str, Any], b: Mapping[str, Any], names: tuple[str, str] = ("a", "b")) -> str:
    """Return the comparison of two runs as HTML.

    Parameters
    ----------
    a, b : mapping
        Two runs, as returned by :func:`read_run` or ``PrequentialResult.as_dict``.
    names : pair of str
        Names of the runs.

    Returns
    -------
    str
    """
    found = compare_runs(a, b, names)
    name = text.in_sentence(found["leading"])
    many = found["leading"] == "macro_recall"
    columns = {
        key: text.MEASURES["mean_f1" if many and key == "f1" else key]
        for key in text.known_columns(found["lines"], _COLUMNS_OF_MANY if many else _COLUMNS)
    }
    lines = [
        {"run": line["run"], "model": line["model"], "values": line, "best": best}
        for line, best in zip(found["lines"], text.best_cells(found["lines"], columns), strict=True)
    ]
    classes, more = _classes(a, b, found["best"])
    titles = [f"{line['run']}: {line['model']}" for line in found["best"]]
    return render(
        "compare.html",
        title=f"{names[0]} and {names[1]}",
        headline=_headline(found, names),
        story=[
            f"“{line['run']}”: {run['rows']:,} rows of {run['stream']}; the best model is “{line['model']}”, "
            f"{'not measured' if math.isnan(figure) else f'{name} {figure:.3f}'}."
            for line, run in zip(found["best"], (a, b), strict=True)
            for figure in [_number(line.get(f"mean_{found['leading']}"))]
        ],
        warnings=found["warnings"],
        columns=columns,
        lines=lines,
        leading=text.MEASURES[found["leading"]],
        names=titles,
        chart=_chart((a, b), found, titles),
        classes=classes,
        more_classes=more,
        runs=names,
        differences=found["differences"],
    )


def write_comparison(
    a: Mapping[str, Any], b: Mapping[str, Any], path: str | Path, names: tuple[str, str] = ("a", "b")
) -> Path:
    """Write the comparison of two runs to one self-contained HTML file."""
    return write_page(render_comparison(a, b, names), path)


def _number(value: float | None) -> float:
    """Return a number of a JSON document, where None is nan."""
    return math.nan if value is None else float(value)


def _headline(found: Mapping[str, Any], names: tuple[str, str]) -> str:
    name, difference = text.in_sentence(found["leading"]), found["difference"]
    if math.isnan(difference):
        return "One run has too few rows to be compared"
    if abs(difference) < _EQUAL_DIFFERENCE:
        return f"Both runs have the same {name}"
    better_by = f"“{names[int(difference > 0)]}” is better by {abs(difference):.3f} in {name}"
    significance = "on average over time" if found["clear"] else "which is not statistically significant"
    return f"{better_by}, {significance}"


def _warnings(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[str]:
    """Return one warning for each difference that makes the comparison unfair."""
    found = []
    hashes = [run.get("provenance", {}).get("data", {}).get("sha256") for run in (a, b)]
    if a["rows"] != b["rows"]:
        found.append(f"The runs have {a['rows']:,} and {b['rows']:,} rows.")
    if all(hashes) and hashes[0] != hashes[1]:
        found.append("The runs used different data: their SHA-256 hashes differ.")
    if a.get("positive") != b.get("positive"):
        found.append(f"The positive classes differ: {a.get('positive')!r} and {b.get('positive')!r}.")
    if a.get("k", b.get("k")) != b.get("k", a.get("k")):
        found.append(f"Precision and recall at k are not comparable: k is {a['k']:,} and {b['k']:,}.")
    if (a.get("window"), a.get("delay")) != (b.get("window"), b.get("delay")):
        found.append("The windows or label delays differ, so the measures over time are not comparable.")
    found += [f"One run ended early: {run['ended']}" for run in (a, b) if run.get("ended")]
    return found


def _differences(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Return each setting that differs between the runs, with its two values."""
    records = [dict(run.get("provenance", {})) for run in (a, b)]
    models = [record.get("parameters", {}) for record in records]
    for record, own in zip(records, models, strict=True):
        # If a model has different parameter names in both runs, all its parameters are compared as one text.
        record["parameters"] = {
            name: values
            if all(set(other.get(name, ())) == set(values) for other in models)
            else text.format_parameters(values)
            for name, values in own.items()
        }
    flat = [_flat(record) for record in records]
    skipped = {"started", "seconds"}
    names = [name for name in dict.fromkeys([*flat[0], *flat[1]]) if name not in skipped]
    return [
        (name, str(flat[0].get(name, text.GAP)), str(flat[1].get(name, text.GAP)))
        for name in names
        if flat[0].get(name) != flat[1].get(name)
    ]


def _flat(value: Any, prefix: str = "") -> dict[str, Any]:
    if not isinstance(value, Mapping):
        return {prefix: value}
    found: dict[str, Any] = {}
    for name, item in value.items():
        found |= _flat(item, f"{prefix} · {name}" if prefix else str(name))
    return found


def _classes(
    a: Mapping[str, Any], b: Mapping[str, Any], best: list[dict[str, Any]]
) -> tuple[list[dict[str, Any]], int]:
    tables = [
        {str(line["label"]): line for line in run.get("by_class", {}).get(winner["model"], [])}
        for run, winner in zip((a, b), best, strict=True)
    ]
    labels = sorted(
        dict.fromkeys([*tables[0], *tables[1]]),
        key=lambda x: -max(t[x]["support"] if x in t else 0 for t in tables),
    )
    lines = []
    for label in labels[:_SHOWN_CLASSES]:
        recalls = [_number(table.get(label, {}).get("recall")) for table in tables]
        difference = recalls[1] - recalls[0]
        shown = text.GAP if math.isnan(difference) else f"{100 * difference:+.1f} percentage points"
        lines.append({"label": label, "recalls": recalls, "difference": shown})
    return lines, max(0, len(labels) - _SHOWN_CLASSES)


def _chart(
    runs: tuple[Mapping[str, Any], Mapping[str, Any]], found: Mapping[str, Any], titles: list[str]
) -> Markup | None:
    """Return a chart with the curve of the best model of each run, or None if neither has records."""
    series = []
    for title, run, best in zip(titles, runs, found["best"], strict=True):
        lines = [line for line in run["table"] if line["model"] == best["model"]]
        values = [_number(line.get(found["leading"])) for line in lines]
        series.append((title, [float(line["row"]) for line in lines], values))
    if not any(rows for _, rows, _ in series):
        return None
    known = [value for *_, values in series for value in values if not math.isnan(value)]
    n_rows = max(run["rows"] for run in runs)
    return stream_chart(
        series, title="both runs over time", n_rows=n_rows, y_range=(axis_minimum(known), 1.0)
    )
