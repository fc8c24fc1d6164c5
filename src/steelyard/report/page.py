"""HTML page of a report. This module collects the content, and the templates define the layout."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

from steelyard.evaluation import PrequentialResult
from steelyard.evaluation.contributions import contributions
from steelyard.explanation.rows import value_text
from steelyard.report import charts, text
from steelyard.report.rendering import render, write_page

_SHOWN_CLASSES = 12
_CONFUSION_CLASSES = 8
_MAX_HALF_PAGE_CLASSES = 4  # a larger confusion matrix takes the full width
_SHOWN_FEATURES = 8
_CHARTED_FEATURES = 5
_SHOWN_DAYS = 14
_MAX_TOOLTIP_TIMES = 200
_COLUMNS = (
    "sensitivity", "precision", "g_mean", "mean_g_mean", "lowest_g_mean", "f1", "rows_per_second",
)  # fmt: skip
_COLUMNS_OF_MANY = (
    "macro_recall", "mean_macro_recall", "lowest_macro_recall", "mean_f1", "accuracy", "rows_per_second",
)  # fmt: skip


def write_report(result: PrequentialResult, path: str | Path) -> Path:
    """Write the report of a run to one self-contained HTML file.

    Parameters
    ----------
    result : PrequentialResult
        Result of a run.
    path : str or Path
        Output file; it is written atomically.

    Returns
    -------
    Path
    """
    return write_page(render_report(result), path)


def render_report(result: PrequentialResult) -> str:
    """Return the report as HTML.

    Parameters
    ----------
    result : PrequentialResult
        Result of a run.

    Returns
    -------
    str
    """
    summary = text.ranked(result.summary(), result.leading)
    order = [line["model"] for line in summary]
    lead, models = order[0], _models(result, summary)
    measured = any(result.records(name) for name in result.models)
    values = [line["values"] for line in models]
    rare = result.positive
    if rare is None:
        rare = min(result.labels, key=result.labels.__getitem__, default=None)
    days = result.days(lead)
    memory = [r["memory_mb"] for name in result.models for r in result.records(name)]
    memory = [megabytes for megabytes in memory if not math.isnan(megabytes)]
    return render(
        "report.html",
        title=f"Report: {result.stream_name}",
        headline=text.headline(result),
        story=text.summary_sentences(result),
        result=result,
        lead=lead,
        measured=measured,
        rare=rare,
        rare_share=result.labels.get(rare, 0) / max(result.n_rows, 1),
        n_untested=result.n_rows - max(line["tested"] for line in summary),
        columns=text.known_columns(values, _COLUMNS if result.positive is not None else _COLUMNS_OF_MANY),
        ranking_columns=text.known_columns(values, text.RANKING_COLUMNS),
        models=models,
        promises=_promises(result, lead),
        alarms=_alarms(result, lead),
        days=days if len(days) > 1 else None,
        last_days=days[: -_SHOWN_DAYS - 1 : -1],
        day_charts=[charts.day_chart(result, f"{name}_at_k", lead=lead) for name in ("precision", "recall")]
        if len(days) > 1
        else [],
        over_time=_over_time(result, lead) if measured and len(result.labels) > 1 else None,
        events=[
            {**event, "when": text.time_of_row(result, event["row"])}
            for event in text.describe_events(result, lead)
        ],
        drift=_drift(result, lead),
        importance=_importance(result, lead),
        details=[{"name": name, **_model_details(result, name)} for name in order],
        throughput=charts.throughput_chart(result) if measured else None,
        memory=(min(memory), max(memory)) if memory else None,
        label_delay=_label_delay(result),
        format_parameters=text.format_parameters,
        # Pairs of row number and date for the tooltip script, empty if the stream has no times.
        moments=[
            [row, text.time_of_row(result, row)]
            for row, _ in result.moments[:: max(1, len(result.moments) // _MAX_TOOLTIP_TIMES)]
        ],
    )


# -- content of the page ----------------------------------------------------------------------------


def _models(result: PrequentialResult, summary: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the lines of the model table, best first."""
    lines = []
    for row in summary:
        precisions = {line["label"]: line["precision"] for line in result.by_class(row["model"])}
        values = {**row, "precision": precisions.get(result.positive, math.nan)}
        if result.positive is None:
            values["mean_f1"] = row.get("f1", math.nan)
        bands = {
            key: f"95% confidence interval: {row[f'{key}_low']:.3f} to {row[f'{key}_high']:.3f}"
            for key in text.MEASURES
            if not math.isnan(row.get(f"{key}_low", math.nan))
        }
        lines.append({"name": row["model"], "values": values, "bands": bands})
    best = text.best_cells([line["values"] for line in lines], text.MEASURES)
    return [
        {**line, "best": cells if len(lines) > 1 else dict.fromkeys(cells, False)}
        for line, cells in zip(lines, best, strict=True)
    ]


def _promises(result: PrequentialResult, lead: str) -> list[dict[str, Any]]:
    """Return the rates of the best model, those with a target first, then targets of other models."""
    return [
        {"model": name, **rate.as_dict()}
        for name in sorted(result.models, key=lambda name: name != lead)
        for rate in sorted(result.promises(name), key=lambda rate: rate.target is None)
        if rate.n_rows and (name == lead or rate.target is not None)
    ]


def _alarms(result: PrequentialResult, lead: str) -> list[dict[str, Any]]:
    """Return the last alarms of the best model with values and contributions of the main columns."""
    return [
        {
            **alarm,
            "when": text.time_of_row(result, alarm["row"]),
            "columns": [(name, value_text(value), size) for name, value, size in alarm["columns"]],
            "largest": max((abs(size) for *_, size in alarm["columns"]), default=0.0) or 1.0,
        }
        for alarm in result.last_alarms(lead)
    ]


def _over_time(result: PrequentialResult, lead: str) -> dict[str, Any]:
    """Return the charts over time: a large one for the main measure, and small ones for the others."""
    leading = text.MEASURES[result.leading]
    wanted = (
        ("sensitivity", "specificity", "auc", "f1", "average_precision", "brier")
        if result.positive is not None
        else ("f1", "accuracy", "log_loss")
    )
    small = [
        (
            text.MEASURES["mean_f1" if result.positive is None and key == "f1" else key],
            charts.measure_chart(result, key, lead=lead, height=180, small=True),
        )
        for key in wanted
        if any(not math.isnan(r.get(key, math.nan)) for name in result.models for r in result.records(name))
    ]
    classes = charts.largest_classes(result, 5) if result.positive is None else []
    return {
        "leading": leading,
        "lead_index": list(result.models).index(lead),
        "main": charts.measure_chart(result, result.leading, lead=lead, label=leading.name),
        "share": charts.share_chart(result, lead=lead),
        "classes": [*map(str, classes), *charts.others(len(result.labels) - len(classes) if classes else 0)],
        "small": small,
        "marks": "drift" if result.known_drifts else ("change" if result.changes(lead) else None),
    }


def _importance(result: PrequentialResult, lead: str) -> dict[str, Any] | None:
    """Return the most important features of the best model, and the change of their importance."""
    rows, strengths = result.feature_strengths(lead)
    if not rows or not strengths[-1].sum() > 0:
        return None
    sums = strengths.sum(axis=1, keepdims=True)
    shares = np.divide(strengths, sums, out=np.zeros_like(strengths), where=sums > 0)
    names = result.strength_names(lead)
    if len(names) < shares.shape[1]:
        names = [f"feature {k + 1}" for k in range(shares.shape[1])]
    order = np.argsort(-shares[-1], kind="stable")
    middle = shares[len(rows) // 2]
    shown, charted = order[:_SHOWN_FEATURES].tolist(), order[:_CHARTED_FEATURES].tolist()
    charted_names = [str(names[k]) for k in charted]
    chart = None
    if len(rows) > 1:
        chart = charts.importance_chart(result, rows, shares[:, charted], charted_names)
    return {
        "features": [(str(names[k]), float(shares[-1, k]), float(middle[k])) for k in shown],
        "largest": float(shares[-1, order[0]]),
        "rest": len(order) - len(shown),
        "rest_share": float(shares[-1, order[_SHOWN_FEATURES:]].sum()),
        "since": rows[len(rows) // 2],
        "is_linear": contributions(result.models[lead]) is not None,
        "names": charted_names,
        "chart": chart,
    }


def _drift(result: PrequentialResult, lead: str) -> dict[str, Any] | None:
    """Return recent changes in the data reported by the best model, or None if it has no drift report."""
    model = result.models[lead]
    if not hasattr(model, "drift_events_"):
        return None
    report = model.drift_report().renamed(result.feature_names or ())
    return {
        "causes": report.causes,
        "columns": [(change, f"{change.p_value:.1e}") for change in report.columns[:_SHOWN_FEATURES]],
        "before": report.n_rows[0],
        "after": report.n_rows[1],
        "shares": report.shares,
    }


def _model_details(result: PrequentialResult, name: str) -> dict[str, Any]:
    """Return the details of one model: classes, confusion matrix and, with a positive class, score charts."""
    by_class = result.by_class(name)
    if not by_class:
        return {"tested": False}
    details: dict[str, Any] = {
        "tested": True,
        "classes": by_class[:_SHOWN_CLASSES],
        "folded": by_class[_SHOWN_CLASSES:],
        "confusion": _confusion(result, name),
        "follows_scores": getattr(result.models[name], "labels_follow_scores", True),
        "cost_names": [f"cost of a miss: {ratio}" for ratio in charts.COST_RATIOS],
    }
    classes, curve = result.score_sample(name), result.reliability(name)
    kind = "predicted" if result.positive is None else "positive"
    details["reliability"] = None if curve is None else charts.reliability_chart(curve, name, kind)
    details["has_scores"] = len(classes.labels) > 1 and result.positive in classes.labels
    if details["has_scores"]:
        sample = classes.against(result.positive)
        details["histogram"] = charts.histogram_chart(sample, result.positive)
        details["roc"] = charts.roc_chart(sample, name)
        details["precision_recall"] = charts.precision_recall_chart(sample, name)
        details["cost"], details["thresholds"] = charts.cost_chart(sample)
    return details


def _confusion(result: PrequentialResult, name: str) -> dict[str, Any]:
    """Return the confusion matrix. With many classes, the smaller classes are summed in one entry."""
    labels, counts = result.confusion(name)
    order = sorted(range(len(labels)), key=lambda k: -counts[k].sum())
    n_shown = len(labels) if len(labels) <= _CONFUSION_CLASSES + 1 else _CONFUSION_CLASSES
    rest = order[n_shown:]
    groups = [[k] for k in order[:n_shown]] + ([rest] if rest else [])
    names = [str(labels[k]) for k in order[:n_shown]] + charts.others(len(rest))
    cells = np.array([[counts[np.ix_(row, column)].sum() for column in groups] for row in groups])
    shares = cells / np.maximum(cells.sum(axis=1, keepdims=True), 1)
    return {
        "names": names,
        "counts": cells.tolist(),
        "shares": shares.tolist(),
        "folded": bool(rest),
        "large": len(groups) > _MAX_HALF_PAGE_CLASSES,
    }


def _label_delay(result: PrequentialResult) -> str | None:
    parts = []
    if result.delay:
        parts.append(f"{result.delay:,} rows")
    if result.learned and result.chunk is not None and result.chunk > 1:
        parts.append(
            f"up to {result.chunk - 1:,} rows, because chunks of {result.chunk:,} rows are learned at once"
        )
    if result.warmup:
        parts.append(f"the first {result.warmup:,} rows were learned without a test")
    return "; ".join(parts) or None
