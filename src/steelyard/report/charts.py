"""The charts of a report, each in a wide form for a desk and a narrow one for a phone."""

from __future__ import annotations

import math
from collections.abc import Callable
from html import escape
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import precision_recall_curve, roc_curve

from steelyard._types import FloatArray
from steelyard.evaluation import PrequentialResult
from steelyard.report.svg import Frame

__all__ = [
    "confusion_table",
    "cost_chart",
    "histogram_chart",
    "legend",
    "measure_chart",
    "precision_recall_chart",
    "roc_chart",
    "share_chart",
    "throughput_chart",
]


WIDE, NARROW = 900.0, 360.0
_COST_RATIOS = (1, 5, 20)


def both_widths(draw: Callable[[float], str]) -> str:
    """A drawing in both forms; the style sheet shows the one that fits."""
    return f'<div class="wide-only">{draw(WIDE)}</div><div class="narrow-only">{draw(NARROW)}</div>'


def legend(names: list[str], css: str = "series") -> str:
    """Names beside their colours."""
    items = (f'<span class="key {css}{index % 6}">{escape(name)}</span>' for index, name in enumerate(names))
    return f'<div class="legend">{"".join(items)}</div>'


# -- along the stream -------------------------------------------------------------------------------


def measure_chart(
    result: PrequentialResult,
    measure: str,
    label: str,
    *,
    height: float = 260,
    bands: bool = False,
    labelled: bool = True,
) -> str:
    """A measure of every model along the stream, with the band of the first and the drifts."""

    def draw(width: float) -> str:
        values = [r.get(measure, math.nan) for name in result.models for r in result.records(name)]
        top = max((v for v in values if not math.isnan(v)), default=1.0)
        frame = Frame(
            width, height, (0, result.n_rows), (0.0, max(1.0, min(top, 2.0))), f"{label} along the stream",
            y_label=label if labelled else "", top=22 if labelled else 10,
            x_label="rows" if height > 200 else "",
        )  # fmt: skip
        _mark_drifts(frame, result)
        for index, name in reversed(list(enumerate(result.models))):
            records = result.records(name)
            rows = [record["row"] for record in records]
            if bands and index == 0:
                low = [record.get(f"{measure}_low", math.nan) for record in records]
                high = [record.get(f"{measure}_high", math.nan) for record in records]
                frame.band(rows, low, high, "series0")
            frame.line(rows, [r.get(measure, math.nan) for r in records], f"series{index % 6}", name)
        return frame.svg()

    return both_widths(draw)


def share_chart(result: PrequentialResult, *, height: float = 130) -> str:
    """The share of the positive class, or of every class, beneath the measures."""
    records = result.records(next(iter(result.models)))
    rows = [record["row"] for record in records]
    labels = [result.positive] if result.positive is not None else list(result.labels)[:6]
    shares = {
        label: [r["class_counts"].get(label, 0) / max(sum(r["class_counts"].values()), 1) for r in records]
        for label in labels
    }
    top = max((max(values, default=0.0) for values in shares.values()), default=0.0)

    def draw(width: float) -> str:
        what = f"share of class “{result.positive}”" if result.positive is not None else "share of each class"
        frame = Frame(
            width, height, (0, result.n_rows), (0.0, max(top * 1.1, 0.01)), f"{what} along the stream",
            y_label=what, x_label="rows", y_format=lambda v: f"{100 * v:.3g}%",
        )  # fmt: skip
        _mark_drifts(frame, result)
        for index, (label, values) in enumerate(shares.items()):
            if result.positive is not None:
                frame.band(rows, [0.0] * len(rows), values, "share")
                frame.line(rows, values, "share", f"share of {label}")
            else:
                frame.line(rows, values, f"class{index % 6}", f"share of {label}")
        return frame.svg(n_y_ticks=3)

    return both_widths(draw)


def throughput_chart(result: PrequentialResult, *, height: float = 180) -> str:
    """Rows a second of every model, predicting and learning."""
    values = [r["rows_per_second"] for name in result.models for r in result.records(name)]

    def draw(width: float) -> str:
        frame = Frame(
            width, height, (0, result.n_rows), (0.0, max(values, default=1.0) * 1.1),
            "rows a second of each model", y_label="rows a second", x_label="rows", left=64,
        )  # fmt: skip
        for index, name in enumerate(result.models):
            records = result.records(name)
            rates = [record["rows_per_second"] for record in records]
            frame.line([record["row"] for record in records], rates, f"series{index % 6}", name)
        return frame.svg(n_y_ticks=4)

    return both_widths(draw)


def _mark_drifts(frame: Frame, result: PrequentialResult) -> None:
    """Known drifts as areas; changes that the first model's hits show as dashed lines."""
    low, high = frame.y_range
    least = (frame.x_range[1] - frame.x_range[0]) / 400
    for begin, end in result.known_drifts:
        frame.bar(begin, max(end, begin + least), low, high, "drift", f"drift from row {begin:,} to {end:,}")
    if result.known_drifts:
        return
    for row in result.changes(next(iter(result.models))):
        frame.add(
            f'<line class="change" x1="{frame.x(row):.1f}" x2="{frame.x(row):.1f}" y1="{frame.y(low):.1f}" '
            f'y2="{frame.y(high):.1f}"><title>a recall changed about row {row:,}</title></line>'
        )


# -- of one model -----------------------------------------------------------------------------------


def confusion_table(labels: list[Any], counts: NDArray[Any], limit: int = 12) -> str:
    """True labels by row, predicted by column; the darker, the larger the share of the row."""
    shown = labels[:limit]
    head = "".join(f"<th scope='col'>{escape(str(label))}</th>" for label in shown)
    body = ""
    for row, label in enumerate(shown):
        total = max(float(counts[row].sum()), 1.0)
        cells = ""
        for column in range(len(shown)):
            share = float(counts[row, column]) / total
            kind = "hit" if row == column else "miss"
            cells += (
                f'<td class="{kind}" style="--share:{share:.3f}"><b>{int(counts[row, column]):,}</b>'
                f"<span>{share:.1%}</span></td>"
            )
        body += f"<tr><th scope='row'>{escape(str(label))}</th>{cells}</tr>"
    more = f"<p class='note'>and {len(labels) - limit} more classes</p>" if len(labels) > limit else ""
    return (
        "<div class='scroll'><table class='confusion'><thead><tr><th class='corner'>true ↓ predicted →</th>"
        f"{head}</tr></thead><tbody>{body}</tbody></table></div>{more}"
    )


def histogram_chart(result: PrequentialResult, model: str) -> str:
    """Scores of both sides; where they overlap, mistakes are made."""
    scores, is_positive, weights = result.score_sample(model).against(result.positive)
    low, high = np.quantile(scores, [0.002, 0.998])
    low, high = min(float(low), 0.0), max(float(high), 0.0)
    edges = np.linspace(low, high if high > low else low + 1.0, 41)
    densities = []
    for side in (~is_positive, is_positive):
        counts, _ = np.histogram(np.clip(scores[side], low, high), edges, weights=weights[side])
        densities.append(counts / max(counts.sum(), 1e-12))
    frame = Frame(
        NARROW, 220, (low, float(edges[-1])), (0.0, float(max(d.max() for d in densities)) * 1.1 or 1.0),
        "scores of both sides", x_label="score; right of 0 is predicted positive",
        y_label="share of the class",
        y_format=lambda v: f"{100 * v:.3g}%",
    )  # fmt: skip
    for density, css, name in zip(
        densities, ("negative", "positive"), ("the rest", str(result.positive)), strict=True
    ):
        for begin, end, share in zip(edges[:-1], edges[1:], density, strict=True):
            if share > 0:
                frame.bar(
                    begin,
                    end,
                    0.0,
                    share,
                    f"column {css}",
                    f"{name}: {share:.1%} from {begin:.3g} to {end:.3g}",
                )
    frame.bar(0.0, 0.0, *frame.y_range, "cut")
    return frame.svg(n_x_ticks=4, n_y_ticks=4)


def roc_chart(result: PrequentialResult, model: str) -> str:
    """Hits against false alarms for every threshold; the dot is where it stands now."""
    scores, is_positive, weights = result.score_sample(model).against(result.positive)
    false_rate, hit_rate, _ = roc_curve(is_positive, scores, sample_weight=weights)
    frame = Frame(
        NARROW,
        260,
        (0, 1),
        (0, 1),
        "ROC curve",
        x_label="false alarms (1 - specificity)",
        y_label="hits (sensitivity)",
    )
    frame.line([0, 1], [0, 1], "chance", "guessing")
    xs, ys = _thinned(false_rate, hit_rate)
    frame.band(xs, [0.0] * len(xs), ys, "series0")
    frame.line(xs, ys, "series0", model)
    now = _rates(scores, is_positive, weights, 0.0)
    frame.dot(now[1], now[0], "series0", f"now: {now[0]:.1%} hits, {now[1]:.1%} false alarms")
    return frame.svg(n_x_ticks=5)


def precision_recall_chart(result: PrequentialResult, model: str) -> str:
    """How many alarms are right against how many cases are found."""
    scores, is_positive, weights = result.score_sample(model).against(result.positive)
    precision, recall, _ = precision_recall_curve(is_positive, scores, sample_weight=weights)
    frame = Frame(
        NARROW, 260, (0, 1), (0, 1), "precision and recall",
        x_label="cases found (recall)", y_label="alarms that are right (precision)",
    )  # fmt: skip
    base = float(weights[is_positive].sum() / weights.sum())
    frame.line([0, 1], [base, base], "chance", "guessing")
    frame.line(*_thinned(recall[::-1], precision[::-1]), "series0", model)
    return frame.svg(n_x_ticks=5)


def cost_chart(result: PrequentialResult, model: str) -> tuple[str, list[dict[str, float]]]:
    """Cost of every threshold, a missed case costing 1, 5 or 20 false alarms; and where each is lowest."""
    scores, is_positive, weights = result.score_sample(model).against(result.positive)
    low, high = (float(q) for q in np.quantile(scores, [0.005, 0.995]))
    low, high = min(low, -1e-9), max(high, 1e-9)
    cuts = np.linspace(low, high, 121)
    total = float(weights.sum())
    frame_costs, best = [], []
    for ratio in _COST_RATIOS:
        costs = [_cost(scores, is_positive, weights, cut, ratio) / total * 1000 for cut in cuts]
        frame_costs.append(costs)
        place = int(np.argmin(costs))
        now = _cost(scores, is_positive, weights, 0.0, ratio) / total * 1000
        hits, alarms = _rates(scores, is_positive, weights, float(cuts[place]))
        best.append(
            {
                "ratio": ratio,
                "now": now,
                "cut": float(cuts[place]),
                "cost": costs[place],
                "hits": hits,
                "alarms": alarms,
            }
        )
    top = max(frame_costs[1])
    frame = Frame(
        NARROW, 260, (low, high), (0.0, top * 1.05 or 1.0), "cost of other thresholds",
        x_label="threshold; now it is 0", y_label="cost of 1,000 rows, in false alarms",
    )  # fmt: skip
    for index, costs in enumerate(frame_costs):
        clipped = [cost if cost <= top * 1.05 else math.nan for cost in costs]
        frame.line(cuts.tolist(), clipped, f"class{index}", f"a miss costs {_COST_RATIOS[index]}")
        frame.dot(
            best[index]["cut"], best[index]["cost"], f"class{index}", f"lowest at {best[index]['cut']:.3g}"
        )
    frame.bar(0.0, 0.0, *frame.y_range, "cut")
    names = [f"a miss costs {ratio}" for ratio in _COST_RATIOS]
    return legend(names, "class") + frame.svg(n_x_ticks=4), best


def _cost(
    scores: FloatArray, is_positive: NDArray[np.bool_], weights: FloatArray, cut: float, ratio: float
) -> float:
    alarm = scores > cut
    return float(weights[alarm & ~is_positive].sum() + ratio * weights[~alarm & is_positive].sum())


def _rates(
    scores: FloatArray, is_positive: NDArray[np.bool_], weights: FloatArray, cut: float
) -> tuple[float, float]:
    alarm = scores > cut
    hits = weights[alarm & is_positive].sum() / max(weights[is_positive].sum(), 1e-12)
    false = weights[alarm & ~is_positive].sum() / max(weights[~is_positive].sum(), 1e-12)
    return float(hits), float(false)


def _thinned(xs: FloatArray, ys: FloatArray, limit: int = 200) -> tuple[list[float], list[float]]:
    places = np.unique(np.linspace(0, len(xs) - 1, min(limit, len(xs))).astype(int))
    return xs[places].tolist(), ys[places].tolist()
