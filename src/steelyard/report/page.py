"""The report as one HTML page: words first, then charts."""

from __future__ import annotations

import math
from datetime import datetime
from html import escape
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Any

from steelyard.evaluation import PrequentialResult
from steelyard.persistence import write_whole
from steelyard.report import charts
from steelyard.report.svg import GAP as _GAP
from steelyard.report.svg import number

__all__ = ["render_report", "write_report"]

_COLUMNS = {
    "g_mean": "G-mean",
    "mean_g_mean": "mean over time",
    "lowest_g_mean": "lowest",
    "sensitivity": "sensitivity",
    "specificity": "specificity",
    "f1": "F1",
    "auc": "AUC",
    "rows_per_second": "rows/s",
}
_GLOSSARY = {
    "G-mean": "the hit rates of the classes multiplied and the root taken. It is high only if every class is "
    "recognised; a model that ignores the rare class gets 0, however many rows it has right.",
    "Sensitivity": "of the rows of the positive class, how many were found.",
    "Specificity": "of all other rows, how many were rightly left alone.",
    "F1": "balances how many cases are found against how many alarms are right.",
    "AUC": "the chance that a positive row scores above another; 0.5 is guessing, 1 is perfect.",
    "Test, then train": "every row was first predicted and only then learned, so no model was ever tested on "
    "what it knew already.",
}


def write_report(result: PrequentialResult, path: str | Path) -> Path:
    """Write the report of a run to one HTML file that needs nothing else.

    Parameters
    ----------
    result : PrequentialResult
        What was measured.
    path : str or Path
        Where to write.

    Returns
    -------
    Path
    """
    target = Path(path)
    write_whole(target, [render_report(result).encode("utf-8", "backslashreplace")], who="report")
    return target


def render_report(result: PrequentialResult) -> str:
    """The report as HTML text.

    Parameters
    ----------
    result : PrequentialResult
        What was measured.

    Returns
    -------
    str
    """
    style = (files("steelyard.report") / "style.css").read_text(encoding="utf-8")
    body = "".join(
        [_header(result), _models_table(result), _along(result), _each_model(result), _ending(result)]
    )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<link rel="icon" href="data:,"><title>Report: {escape(result.stream_name)}</title>'
        f"<style>{style}</style></head>"
        f"<body><main>{body}</main></body></html>\n"
    )


# -- words ------------------------------------------------------------------------------------------


def _header(result: PrequentialResult) -> str:
    rare = min(result.labels, key=result.labels.__getitem__, default=None)
    tiles = {
        "rows learned and tested": f"{result.n_rows:,}",
        "rows a second, all models together": number(result.n_rows / max(result.seconds, 1e-9)),
        "classes": f"{len(result.labels):,}",
        f"of all rows are of the rarest class, “{rare}”": f"{_share(result, rare):.1%}",
    }
    drawn = "".join(
        f'<div class="tile"><b>{value}</b><span>{escape(name)}</span></div>' for name, value in tiles.items()
    )
    return (
        f"<h1>{escape(_headline(result))}</h1>"
        f'<p class="soft">Stream: {escape(result.stream_name)}</p>'
        f'<p class="lede">{escape(_story(result))}</p><div class="tiles">{drawn}</div>'
    )


def _share(result: PrequentialResult, label: Any) -> float:
    return result.labels.get(label, 0) / max(result.n_rows, 1)


def _ranked(result: PrequentialResult) -> list[dict[str, Any]]:
    return sorted(result.summary(), key=lambda row: -_or_zero(row.get("mean_g_mean")))


def _or_zero(value: float | None) -> float:
    return 0.0 if value is None or math.isnan(value) else value


def _headline(result: PrequentialResult) -> str:
    ranked = [row for row in _ranked(result) if "mean_g_mean" in row]
    if not ranked:
        return "Too few rows to tell anything"
    best = ranked[0]
    if len(ranked) == 1:
        return f"“{best['model']}” reached a G-mean of {best['mean_g_mean']:.2f}"
    return f"“{best['model']}” kept up best: a G-mean of {best['mean_g_mean']:.2f} on average"


def _story(result: PrequentialResult) -> str:
    ranked = [row for row in _ranked(result) if "mean_g_mean" in row]
    if not ranked:
        return f"{result.n_rows:,} rows came, and no model had learned enough to be tested."
    best, others = ranked[0], ranked[1:]
    lowest = best["lowest_g_mean"]
    fate = (
        f"never fell below a G-mean of {lowest:.2f}" if lowest >= 0.005 else "had moments with a G-mean of 0"
    )
    story = f"In running windows of {result.window:,} rows, “{best['model']}” {fate}. "
    story += "".join(
        f"“{row['model']}” had {row['mean_g_mean']:.2f} on average and fell to {row['lowest_g_mean']:.2f}. "
        for row in others
    )
    if result.positive is not None:
        shares = [
            r["class_counts"].get(result.positive, 0) / max(sum(r["class_counts"].values()), 1)
            for r in result.records(best["model"])
        ]
        if shares:
            story += f"Meanwhile the share of class “{result.positive}” moved between {min(shares):.1%} and "
            story += f"{max(shares):.1%}."
    return story


def _models_table(result: PrequentialResult) -> str:
    summary = result.summary()
    columns = {
        k: name for k, name in _COLUMNS.items() if any(not math.isnan(r.get(k, math.nan)) for r in summary)
    }
    best = {k: max((_or_zero(row.get(k)) for row in summary), default=0.0) for k in columns}
    head = "".join(f"<th scope='col'>{name}</th>" for name in columns.values())
    body = ""
    for row in summary:
        cells = ""
        for key in columns:
            value = row.get(key, math.nan)
            text = (
                number(value) if key == "rows_per_second" else (_GAP if math.isnan(value) else f"{value:.3f}")
            )
            css = ' class="best"' if len(summary) > 1 and value == best[key] else ""
            title = (
                f' title="95 % band: {row[f"{key}_low"]:.3f} to {row[f"{key}_high"]:.3f}"'
                if f"{key}_low" in row
                else ""
            )
            cells += f"<td{css}{title}>{text}</td>"
        body += f"<tr><td>{escape(row['model'])}</td>{cells}</tr>"
    return (
        "<h2>The models</h2><div class='card scroll'><table><thead><tr><th scope='col'>model</th>"
        f"{head}</tr></thead><tbody>{body}</tbody></table></div>"
        f"<p class='note'>Every row was predicted before it was learned. “Mean over time” and “lowest” are "
        "the G-mean of running "
        f"windows of {result.window:,} rows, so that times when a class is rare count as much as others.</p>"
    )


# -- charts -----------------------------------------------------------------------------------------


def _along(result: PrequentialResult) -> str:
    if not any(result.records(name) for name in result.models):
        return ""
    names = list(result.models)
    keys = charts.legend(names).removesuffix("</div>")
    keys += f'<span class="key bandkey">95 % band of “{escape(names[0])}”</span>'
    if result.known_drifts:
        keys += '<span class="key driftkey">the concept drifts</span>'
    elif result.changes(names[0]):
        keys += '<span class="key changekey">a recall changed</span>'
    keys += "</div>"
    more = ""
    measures = {"sensitivity": "Sensitivity", "specificity": "Specificity", "auc": "AUC", "f1": "F1"}
    for measure, label in measures.items():
        known = any(not math.isnan(r.get(measure, math.nan)) for name in names for r in result.records(name))
        if known:
            chart = charts.measure_chart(result, measure, label, height=200, labelled=False)
            more += f'<div class="card"><h3>{label}</h3>{_small(chart)}</div>'
    share_keys = (
        "" if result.positive is not None else charts.legend([str(x) for x in result.labels][:6], "class")
    )
    return (
        '<h2>Along the stream</h2><div class="card">'
        f"<h3>G-mean over the last {result.window:,} rows</h3>{keys}"
        f"{charts.measure_chart(result, 'g_mean', 'G-mean', bands=True)}{share_keys}"
        f"{charts.share_chart(result)}</div>"
        f'<div class="grid2">{more}</div>'
    )


def _small(both: str) -> str:
    """Only the narrow form: two of them stand side by side on a desk."""
    narrow = both[both.index('<div class="narrow-only">') :]
    return narrow.replace('class="narrow-only"', 'class="small"', 1)


def _each_model(result: PrequentialResult) -> str:
    parts = "<h2>Model by model</h2>"
    for index, name in enumerate(result.models):
        state = " open" if index == 0 else ""
        parts += f"<details{state}><summary>{escape(name)}</summary>{_one_model(result, name)}</details>"
    return parts


def _one_model(result: PrequentialResult, name: str) -> str:
    labels, counts = result.confusion(name)
    if not len(labels):
        return "<p>This model was never tested.</p>"
    cards = [f"<h3>What was taken for what</h3>{charts.confusion_table(labels, counts)}"]
    sample = result.score_sample(name)
    if result.positive is not None and result.positive in sample.labels and len(sample.labels) > 1:
        keys = (
            '<div class="legend"><span class="key negkey">the rest</span>'
            f'<span class="key posskey">{escape(str(result.positive))}</span></div>'
        )
        cards.append(f"<h3>Scores of both sides</h3>{keys}{charts.histogram_chart(result, name)}")
        cards.append(f"<h3>ROC</h3>{charts.roc_chart(result, name)}")
        cards.append(f"<h3>Precision and recall</h3>{charts.precision_recall_chart(result, name)}")
        chart, best = charts.cost_chart(result, name)
        cards.append(f"<h3>The cost of other thresholds</h3>{chart}")
        cards.append(f"<h3>Which threshold, then?</h3>{_threshold_table(best)}")
    return '<div class="grid2">' + "".join(f'<div class="card">{card}</div>' for card in cards) + "</div>"


def _threshold_table(best: list[dict[str, float]]) -> str:
    rows = "".join(
        f"<tr><td>{row['ratio']:g}</td><td>{row['cut']:.2f}</td><td>{row['now']:.0f} → {row['cost']:.0f}</td>"
        f"<td>{row['hits']:.0%}</td><td>{row['alarms']:.0%}</td></tr>"
        for row in best
    )
    return (
        "<p class='note'>If a missed case costs as much as so many false alarms, this threshold is cheapest; "
        "the cost is that of 1,000 rows.</p><div class='scroll'><table><thead><tr><th>a miss costs</th>"
        "<th>threshold</th><th>cost, now → then</th><th>found</th><th>false alarms</th></tr></thead><tbody>"
        f"{rows}</tbody></table></div>"
    )


def _ending(result: PrequentialResult) -> str:
    words = "".join(f"<dt>{term}</dt><dd>{meaning}</dd>" for term, meaning in _GLOSSARY.items())
    now = datetime.now().astimezone().strftime("%Y-%m-%d %H:%M %Z")
    throughput = ""
    if any(result.records(name) for name in result.models):
        memory = [r["memory_mb"] for name in result.models for r in result.records(name)]
        throughput = (
            f'<h2>Throughput</h2><div class="card">{charts.legend(list(result.models))}'
            f"{charts.throughput_chart(result)}"
            f"<p class='note'>Predicting and learning, without reading and measuring. The whole run took "
            f"{result.seconds:.1f} s, {number(result.n_rows / max(result.seconds, 1e-9))} rows a second with "
            "everything; "
            f"the process held {min(memory):,.0f} to {max(memory):,.0f} MB.</p></div>"
        )
    late = f" Labels arrived {result.delay:,} rows late." if result.delay else ""
    warm = f" The first {result.warmup:,} rows were learned without being tested." if result.warmup else ""
    return (
        f'{throughput}<h2>How to read this</h2><div class="card"><dl>{words}</dl></div>'
        f"<footer>Written by steelyard {version('steelyard')} on {now}.{late}{warm} Score charts are "
        "drawn from a fair sample of at most 4,000 rows a class.</footer>"
    )
