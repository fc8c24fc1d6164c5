"""The charts of a report, each in a wide form for a desk and a narrow one for a phone."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray
from sklearn.metrics import precision_recall_curve, roc_curve

from steelyard._types import FloatArray
from steelyard.evaluation import PrequentialResult
from steelyard.report.svg import Frame, number, shortened
from steelyard.report.text import moment_of_row

__all__ = [
    "COST_RATIOS",
    "along_chart",
    "axis_of",
    "carried_chart",
    "cost_chart",
    "floor_of",
    "histogram_chart",
    "largest",
    "measure_chart",
    "precision_recall_chart",
    "roc_chart",
    "share_chart",
    "throughput_chart",
]

WIDE, NARROW = 900.0, 360.0
COST_RATIOS = (1, 5, 20)
N_COLOURS = 6
_HIGH = 0.6  # curves that all stay above would lie on one another on an axis from 0

Series = tuple[str, Sequence[float], Sequence[float]]  # name, rows, values


def both_widths(draw: Callable[[float], Markup]) -> Markup:
    """A drawing in both forms; the style sheet shows the one that fits."""
    return Markup('<div class="wide-only">{}</div><div class="narrow-only">{}</div>').format(
        draw(WIDE), draw(NARROW)
    )


def axis_of(result: PrequentialResult) -> tuple[str, Callable[[float], str]]:
    """What stands under a chart along the stream: rows, or the dates at which they happened."""
    written = moment_of_row(result)
    return ("rows", number) if written is None else ("time of the rows", written)


def largest(result: PrequentialResult, limit: int) -> list[Any]:
    """The classes with most rows, the largest first."""
    return sorted(result.labels, key=lambda label: -result.labels[label])[:limit]


# -- along the stream -------------------------------------------------------------------------------


def along_chart(
    series: Sequence[Series],
    *,
    title: str,
    n_rows: int,
    y_top: float = 1.0,
    y_bottom: float = 0.0,
    height: float = 260,
    width: float | None = None,
    axis: tuple[str, Callable[[float], str]] = ("rows", number),
    y_label: str = "",
    y_format: Callable[[float], str] = number,
    left: float = 44,
    lead: int | None = None,
    css: str = "series",
    before: Callable[[Frame], None] = lambda _: None,
) -> Markup:
    """Curves along the stream; ``before`` draws what lies beneath, ``lead`` is drawn last and thicker."""

    def draw(wide: float) -> Markup:
        frame = Frame(
            wide,
            height,
            (0, n_rows),
            (y_bottom, y_top),
            title,
            y_label=y_label,
            x_label=axis[0] if height > 160 else "",
            x_format=axis[1],
            y_format=y_format,
            left=left,
            top=22 if y_label else 10,
            along=True,
            bottom=36 if height > 160 else 24,
        )
        before(frame)
        order = sorted(range(len(series)), key=lambda index: (index == lead, -index))
        for index in order:
            name, rows, values = series[index]
            kind = f"{css}{index % N_COLOURS}" + (" lead" if index == lead else "")
            kind += " dashed" if index >= N_COLOURS else ""
            frame.line(rows, values, kind, name, f"{css}{index}")
        return frame.svg(n_y_ticks=5 if height > 180 else 3)

    return draw(width) if width is not None else both_widths(draw)


def floor_of(values: Sequence[float]) -> float:
    """Where the axis of a measure begins: at 0, or where all values are high a little below the lowest.

    >>> floor_of([0.3, 0.9]), floor_of([0.83, 0.97]), floor_of([])
    (0.0, 0.7, 0.0)
    """
    lowest = min(values, default=0.0)
    return math.floor(10 * lowest - 0.5) / 10 if lowest > _HIGH else 0.0


def measure_chart(
    result: PrequentialResult,
    measure: str,
    *,
    lead: str,
    label: str = "",
    height: float = 260,
    small: bool = False,
) -> Markup:
    """A measure of every model along the stream, with the band of the leading one and the drifts."""
    names = list(result.models)
    series = [
        (
            name,
            [r["row"] for r in result.records(name)],
            [r.get(measure, math.nan) for r in result.records(name)],
        )
        for name in names
    ]
    values = [v for _, _, ys in series for v in ys if not math.isnan(v)]
    bottom = floor_of(values)

    def before(frame: Frame) -> None:
        _mark_drifts(frame, result, lead)
        if small:
            return
        records = result.records(lead)
        low, high = (
            [max(r.get(f"{measure}_{end}", math.nan), bottom) for r in records] for end in ("low", "high")
        )
        index = names.index(lead)
        frame.band([r["row"] for r in records], low, high, f"series{index % N_COLOURS}", f"series{index}")

    return along_chart(
        series,
        title=f"{label or measure} along the stream",
        n_rows=result.n_rows,
        y_top=max(1.0, min(max(values, default=1.0), 2.0)),
        y_bottom=bottom,
        height=height,
        width=NARROW if small else None,
        axis=axis_of(result),
        y_label=f"{label}, from {bottom:g} up" if label and bottom else label,
        lead=names.index(lead),
        before=before,
    )


def share_chart(result: PrequentialResult, *, lead: str, limit: int = 5) -> Markup:
    """The share of the positive class, or of the largest classes and all others together."""
    records = result.records(lead)
    rows = [record["row"] for record in records]
    totals = [max(sum(record["class_counts"].values()), 1) for record in records]

    def share_of(labels: Sequence[Any]) -> list[float]:
        return [
            sum(record["class_counts"].get(label, 0) for label in labels) / total
            for record, total in zip(records, totals, strict=True)
        ]

    if result.positive is not None:
        shares = {f"share of {result.positive}": share_of([result.positive])}
    else:
        shown = largest(result, limit)
        rest = [label for label in result.labels if label not in shown]
        shares = {str(label): share_of([label]) for label in shown}
        if rest:
            shares[f"{len(rest):,} other classes"] = share_of(rest)
    top = max((max(values, default=0.0) for values in shares.values()), default=0.0)
    one = result.positive is not None
    return along_chart(
        [(name, rows, values) for name, values in shares.items()],
        title="shares of the classes along the stream",
        n_rows=result.n_rows,
        y_top=max(top * 1.1, 0.01),
        height=150,
        axis=axis_of(result),
        y_format=lambda v: f"{100 * v:.3g}%",
        css="class",
        y_label=f"share of “{shortened(result.positive, 24)}”" if one else "share of the rows",
        before=lambda frame: _mark_drifts(frame, result, lead),
    )


def throughput_chart(result: PrequentialResult) -> Markup:
    """Rows a second of every model, predicting and learning."""
    series = [
        (name, [r["row"] for r in result.records(name)], [r["rows_per_second"] for r in result.records(name)])
        for name in result.models
    ]
    top = max((v for _, _, ys in series for v in ys), default=1.0)
    return along_chart(
        series,
        title="rows a second of each model",
        n_rows=result.n_rows,
        y_top=top * 1.1,
        height=190,
        axis=axis_of(result),
        y_label="rows a second",
        left=64,
    )


def carried_chart(result: PrequentialResult, rows: list[int], shares: FloatArray, names: list[str]) -> Markup:
    """How much of a model each of a few features carries, along the stream."""
    return along_chart(
        [(name, rows, shares[:, index].tolist()) for index, name in enumerate(names)],
        title="what the features carry along the stream",
        n_rows=result.n_rows,
        width=NARROW,
        y_top=max(float(shares.max(initial=0.0)) * 1.1, 0.01),
        height=220,
        axis=axis_of(result),
        css="feature",
        y_label="share of all strengths",
        y_format=lambda v: f"{100 * v:.3g}%",
    )


def _mark_drifts(frame: Frame, result: PrequentialResult, lead: str) -> None:
    """Known drifts as areas; what models found and changes that the leading one's hits show as lines."""
    low, high = frame.y_range
    least = (frame.x_range[1] - frame.x_range[0]) / 400
    for begin, end in result.known_drifts:
        frame.bar(begin, max(end, begin + least), low, high, "drift", f"drift from row {begin:,} to {end:,}")
    if result.known_drifts:
        return
    for row in result.changes(lead):
        frame.mark(row, "change", f"the hits changed about row {row:,}")


# -- of one model -----------------------------------------------------------------------------------


def histogram_chart(result: PrequentialResult, model: str) -> Markup:
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
        NARROW,
        220,
        (low, float(edges[-1])),
        (0.0, float(max(d.max() for d in densities)) * 1.1 or 1.0),
        "scores of both sides",
        x_label="score; right of 0 is predicted positive",
        y_label="share of the class",
        y_format=lambda v: f"{100 * v:.3g}%",
    )
    names = ("the rest", str(result.positive))
    for density, css, name in zip(densities, ("negative", "positive"), names, strict=True):
        for begin, end, share in zip(edges[:-1], edges[1:], density, strict=True):
            if share > 0:
                words = f"{name}: {share:.1%} from {begin:.3g} to {end:.3g}"
                frame.bar(begin, end, 0.0, share, f"column {css}", words)
    frame.bar(0.0, 0.0, *frame.y_range, "cut")
    return frame.svg(n_x_ticks=4, n_y_ticks=4)


def _share_frame(title: str, x_label: str, y_label: str) -> Frame:
    """A frame of one share against another."""
    return Frame(NARROW, 260, (0, 1), (0, 1), title, x_label=x_label, y_label=y_label)


def roc_chart(result: PrequentialResult, model: str) -> Markup:
    """Hits against false alarms for every threshold; the dot is where it stands now."""
    scores, is_positive, weights = result.score_sample(model).against(result.positive)
    false_rate, hit_rate, _ = roc_curve(is_positive, scores, sample_weight=weights)
    frame = _share_frame("ROC curve", "others taken for cases (1 - specificity)", "cases found (sensitivity)")
    frame.line([0, 1], [0, 1], "chance", "guessing")
    xs, ys = _thinned(false_rate, hit_rate)
    frame.band(xs, [0.0] * len(xs), ys, "series0")
    frame.line(xs, ys, "series0", model)
    now = _rates(scores, is_positive, weights, 0.0)
    frame.dot(
        now[1], now[0], "series0", f"now: {now[0]:.1%} found, {now[1]:.1%} of the others taken for cases"
    )
    return frame.svg(n_x_ticks=5)


def precision_recall_chart(result: PrequentialResult, model: str) -> Markup:
    """How many alarms are right against how many cases are found."""
    scores, is_positive, weights = result.score_sample(model).against(result.positive)
    precision, recall, _ = precision_recall_curve(is_positive, scores, sample_weight=weights)
    frame = _share_frame("precision and recall", "cases found (recall)", "alarms that are right (precision)")
    base = float(weights[is_positive].sum() / weights.sum())
    frame.line([0, 1], [base, base], "chance", "guessing")
    frame.line(*_thinned(recall[::-1], precision[::-1]), "series0", model)
    return frame.svg(n_x_ticks=5)


def cost_chart(result: PrequentialResult, model: str) -> tuple[Markup, list[dict[str, float]]]:
    """Cost of every threshold, a missed case costing 1, 5 or 20 false alarms; and where each is lowest."""
    scores, is_positive, weights = result.score_sample(model).against(result.positive)
    low, high = (float(q) for q in np.quantile(scores, [0.005, 0.995]))
    low, high = min(low, -1e-9), max(high, 1e-9)
    cuts = np.linspace(low, high, 121)
    total = float(weights.sum())
    curves, best = [], []
    for ratio in COST_RATIOS:
        costs = [_cost(scores, is_positive, weights, cut, ratio) / total * 1000 for cut in cuts]
        curves.append(costs)
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
    top = max(curves[1])
    frame = Frame(
        NARROW,
        260,
        (low, high),
        (0.0, top * 1.05 or 1.0),
        "cost of other thresholds",
        x_label="threshold; now it is 0",
        y_label="cost of 1,000 rows, in false alarms",
    )
    for index, costs in enumerate(curves):
        clipped = [cost if cost <= top * 1.05 else math.nan for cost in costs]
        frame.line(cuts.tolist(), clipped, f"class{index}", f"a miss costs {COST_RATIOS[index]}")
        at = best[index]
        frame.dot(at["cut"], at["cost"], f"class{index}", f"lowest at {at['cut']:.3g}")
    frame.bar(0.0, 0.0, *frame.y_range, "cut")
    return frame.svg(n_x_ticks=4), best


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
