"""Two runs side by side, from what ``steelyard stream --json`` printed."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from markupsafe import Markup

from steelyard.exceptions import DataError, FileAccessError
from steelyard.report.charts import along_chart, floor_of
from steelyard.report.svg import GAP
from steelyard.report.text import MEASURES

__all__ = ["compare_runs", "read_run", "render_comparison", "write_comparison"]

_NEEDED = ("stream", "rows", "summary", "table", "leading")
_SHOWN_CLASSES = 30
_COLUMNS = (
    "sensitivity",
    "specificity",
    "g_mean",
    "mean_g_mean",
    "lowest_g_mean",
    "f1",
    "auc",
    "rows_per_second",
)
_COLUMNS_OF_MANY = (
    "macro_recall",
    "mean_macro_recall",
    "lowest_macro_recall",
    "f1",
    "accuracy",
    "rows_per_second",
)


def read_run(path: str | Path) -> dict[str, Any]:
    """What a run printed as JSON.

    Parameters
    ----------
    path : str or Path
        A file with the output of ``steelyard stream --json`` or of ``PrequentialResult.to_json``.

    Returns
    -------
    dict
    """
    try:
        run = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise FileAccessError(f"cannot be read: {error.strerror or error}.", source=str(path)) from error
    except UnicodeDecodeError as error:  # its text would hold all that was read
        raise DataError("this is not a JSON document: it is not text.", source=str(path)) from error
    except (ValueError, RecursionError) as error:
        raise DataError(f"this is not a JSON document: {error}.", source=str(path)) from error
    if not isinstance(run, dict) or any(name not in run for name in _NEEDED) or not run["summary"]:
        raise DataError(
            "this is not the outcome of a run.",
            source=str(path),
            hint="runs are written by `steelyard stream ... --json > run.json`",
        )
    return run


def compare_runs(
    a: Mapping[str, Any], b: Mapping[str, Any], names: tuple[str, str] = ("a", "b")
) -> dict[str, Any]:
    """What two runs have in common and where they differ, as plain values.

    Parameters
    ----------
    a, b : mapping
        Two runs, as :func:`read_run` gives them.
    names : pair of str
        What to call them.

    Returns
    -------
    dict
        ``leading`` (the measure that decides), ``lines`` (one for each model of each run), ``best`` (the line
        of each run), ``difference`` (of the best, second minus first), ``clear`` (whether the 95 % bands of
        the two, over all rows, are apart), ``warnings`` and ``differences``.
    """
    leading = a["leading"] if a["leading"] == b["leading"] else "g_mean"
    lines = [
        {"run": name, **line}
        for name, run in zip(names, (a, b), strict=True)
        for line in _sorted(run, leading)
    ]
    best = [next(line for line in lines if line["run"] == name) for name in names]
    figures = [_figure(line, leading) for line in best]
    return {
        "leading": leading,
        "lines": lines,
        "best": best,
        "difference": figures[1] - figures[0],
        "clear": not _bands_overlap(best[0], best[1], leading),
        "warnings": _warnings(a, b),
        "differences": _differences(a, b),
    }


def render_comparison(a: Mapping[str, Any], b: Mapping[str, Any], names: tuple[str, str] = ("a", "b")) -> str:
    """The comparison of two runs as HTML text.

    Parameters
    ----------
    a, b : mapping
        Two runs, as ``PrequentialResult.as_dict`` and ``steelyard stream --json`` have them.
    names : pair of str
        What to call them.

    Returns
    -------
    str
    """
    from steelyard.report.page import render

    found = compare_runs(a, b, names)
    columns = [
        key
        for key in (_COLUMNS_OF_MANY if found["leading"] == "macro_recall" else _COLUMNS)
        if any(line.get(key) is not None for line in found["lines"])
    ]
    lines = [
        {
            "run": line["run"],
            "model": line["model"],
            "values": line,
            "best": _is_best(line, found["lines"], columns),
        }
        for line in found["lines"]
    ]
    classes, more = _classes(a, b, found["best"])
    curves = [
        _curve(run, line["model"], found["leading"]) for run, line in zip((a, b), found["best"], strict=True)
    ]
    titles = [f"{line['run']}: {line['model']}" for line in found["best"]]
    return render(
        "compare.html",
        title=f"{names[0]} and {names[1]}",
        headline=_headline(found, names),
        story=_story(found, a, b),
        warnings=found["warnings"],
        columns=columns,
        lines=lines,
        leading=MEASURES[found["leading"]],
        names=titles,
        chart=_chart(curves, titles, max(a["rows"], b["rows"])),
        classes=classes,
        more_classes=more,
        runs=[{"name": name} for name in names],
        differences=found["differences"],
        moments=[],
    )


def write_comparison(
    a: Mapping[str, Any], b: Mapping[str, Any], path: str | Path, names: tuple[str, str] = ("a", "b")
) -> Path:
    """Write the comparison of two runs to one HTML file that needs nothing else."""
    from steelyard.report.page import write_page

    return write_page(render_comparison(a, b, names), path)


def _figure(line: Mapping[str, Any], leading: str) -> float:
    value = line.get(f"mean_{leading}")
    return math.nan if value is None else float(value)


def _bands_overlap(a: Mapping[str, Any], b: Mapping[str, Any], leading: str) -> bool:
    low, high = f"{leading}_low", f"{leading}_high"
    if any(line.get(end) is None for line in (a, b) for end in (low, high)):
        return False
    return bool(a[low] <= b[high] and b[low] <= a[high])


def _sorted(run: Mapping[str, Any], leading: str) -> list[dict[str, Any]]:
    return sorted(run["summary"], key=lambda line: -_or(_figure(line, leading), -1.0))


def _or(value: float, otherwise: float) -> float:
    return otherwise if math.isnan(value) else value


def _is_best(line: Mapping[str, Any], lines: list[dict[str, Any]], columns: list[str]) -> dict[str, bool]:
    return {
        key: line.get(key) is not None and line[key] == max(x[key] for x in lines if x.get(key) is not None)
        for key in columns
    }


def _headline(found: Mapping[str, Any], names: tuple[str, str]) -> str:
    name, difference = MEASURES[found["leading"]].name, found["difference"]
    if math.isnan(difference):
        return "One of the runs measured too little to be compared"
    if abs(difference) < 0.0005:
        return f"Both runs reach the same {name}"
    better = names[int(difference > 0)]
    if not found["clear"]:
        return f"“{better}” is ahead by {abs(difference):.3f} {name}, which chance may explain"
    return f"“{better}” is better: {abs(difference):.3f} more {name} on average over time"


def _story(found: Mapping[str, Any], a: Mapping[str, Any], b: Mapping[str, Any]) -> list[str]:
    said = []
    for line, run in zip(found["best"], (a, b), strict=True):
        figure = _figure(line, found["leading"])
        said.append(
            f"“{line['run']}”: {run['rows']:,} rows of {run['stream']}, best model “{line['model']}” with "
            f"{'no figure' if math.isnan(figure) else format(figure, '.3f')}."
        )
    return said


def _warnings(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[str]:
    """What makes a comparison unfair."""
    found = []
    prints = [run.get("provenance", {}).get("data", {}).get("sha256") for run in (a, b)]
    if a["rows"] != b["rows"]:
        found.append(f"The runs saw {a['rows']:,} and {b['rows']:,} rows.")
    if all(prints) and prints[0] != prints[1]:
        found.append("The runs saw different data: their fingerprints differ.")
    if a.get("positive") != b.get("positive"):
        found.append(f"Different classes count as positive: {a.get('positive')!r} and {b.get('positive')!r}.")
    if (a.get("window"), a.get("delay")) != (b.get("window"), b.get("delay")):
        found.append(
            "Windows or delays of the measures differ, so the figures over time are not of the same kind."
        )
    found += [f"One run ended early: {run['ended']}" for run in (a, b) if run.get("ended")]
    return found


def _differences(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Settings that are not the same, in words."""
    flat = [_flat(run.get("provenance", {})) for run in (a, b)]
    skipped = {"started", "seconds"}
    names = [name for name in dict.fromkeys([*flat[0], *flat[1]]) if name not in skipped]
    return [
        (name, str(flat[0].get(name, GAP)), str(flat[1].get(name, GAP)))
        for name in names
        if flat[0].get(name) != flat[1].get(name)
    ]


def _flat(value: Any, before: str = "") -> dict[str, Any]:
    if not isinstance(value, Mapping):
        return {before: value}
    found: dict[str, Any] = {}
    for name, item in value.items():
        found |= _flat(item, f"{before} · {name}" if before else str(name))
    return found


def _classes(
    a: Mapping[str, Any], b: Mapping[str, Any], best: list[dict[str, Any]]
) -> tuple[list[dict[str, Any]], int]:
    tables = [
        {str(line["label"]): line for line in run.get("by_class", {}).get(winner["model"], [])}
        for run, winner in zip((a, b), best, strict=True)
    ]
    labels = sorted(
        {*tables[0], *tables[1]}, key=lambda x: -max(t[x]["support"] if x in t else 0 for t in tables)
    )
    lines = []
    for label in labels[:_SHOWN_CLASSES]:
        recalls = [table.get(label, {}).get("recall") for table in tables]
        known = [math.nan if value is None else float(value) for value in recalls]
        difference = known[1] - known[0]
        lines.append(
            {
                "label": label,
                "a": known[0],
                "b": known[1],
                "difference": GAP if math.isnan(difference) else f"{100 * difference:+.1f} points",
            }
        )
    return lines, max(0, len(labels) - _SHOWN_CLASSES)


def _curve(run: Mapping[str, Any], model: str, leading: str) -> tuple[list[float], list[float]]:
    lines = [line for line in run["table"] if line["model"] == model]
    values = [math.nan if line.get(leading) is None else float(line[leading]) for line in lines]
    return [float(line["row"]) for line in lines], values


def _chart(curves: list[tuple[list[float], list[float]]], titles: list[str], n_rows: int) -> Markup | None:
    if not any(rows for rows, _ in curves):
        return None
    series = [(title, rows, values) for title, (rows, values) in zip(titles, curves, strict=True)]
    known = [value for _, values in curves for value in values if not math.isnan(value)]
    return along_chart(series, title="both runs along the stream", n_rows=n_rows, y_bottom=floor_of(known))
