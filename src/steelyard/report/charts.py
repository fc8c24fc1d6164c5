"""Charts of a report in a wide version for screens and a narrow version for phones."""

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
from steelyard.evaluation.tracking import LOSSES
from steelyard.metrics import ReliabilityCurve
from steelyard.report.svg import Frame
from steelyard.report.text import class_shares, number, shortened, time_of_row

WIDE, NARROW = 900.0, 360.0  # pixels
COST_RATIOS = (1, 5, 20)
N_COLOURS = 6
_ZOOM_ABOVE = 0.6  # if all values are above this, the axis does not start at 0

Series = tuple[str, Sequence[float], Sequence[float]]  # name, row numbers and values of a curve
Sample = tuple[FloatArray, NDArray[np.bool_], FloatArray]  # scores, mask of the positive rows, weights


def _row_axis(result: PrequentialResult) -> tuple[str, Callable[[float], str]]:
    """Return label and tick format of the x axis: times if the stream has them, else row numbers."""
    return ("time", lambda row: time_of_row(result, row) or "") if result.moments else ("row", number)


def others(n_classes: int) -> list[str]:
    """Return the name of the sum of several classes, or nothing if there is no class."""
    return [f"{n_classes:,} other classes"] if n_classes else []


def largest_classes(result: PrequentialResult, limit: int) -> list[Any]:
    """Return the ``limit`` classes with the most rows, largest first."""
    return sorted(result.labels, key=lambda label: -result.labels[label])[:limit]


def _series(result: PrequentialResult, key: str) -> list[Series]:
    """Return the curve of an entry of the records over time, for every model."""
    records = {name: result.records(name) for name in result.models}
    return [
        (name, [r["row"] for r in lines], [r.get(key, math.nan) for r in lines])
        for name, lines in records.items()
    ]


# -- charts over time --------------------------------------------------------------------------------


def stream_chart(
    series: Sequence[Series],
    *,
    title: str,
    n_rows: int,
    y_range: tuple[float, float] = (0.0, 1.0),
    height: float = 260,
    width: float | None = None,
    axis: tuple[str, Callable[[float], str]] = ("row", number),
    y_label: str = "",
    lead: int | None = None,
    css: str = "series",
    before: Callable[[Frame], None] = lambda _: None,
    **options: Any,
) -> Markup:
    """Return a chart of curves over time, of which that with index ``lead`` is thicker and on top.

    ``before`` draws the background. ``options`` are further arguments of the frame.
    """
    options |= {"x_format": axis[1], "y_label": y_label, "top": 22 if y_label else 10, "has_row_axis": True}
    options |= {"x_label": axis[0], "bottom": 36} if height > 160 else {"bottom": 24}

    def draw(wide: float) -> Markup:
        frame = Frame(wide, height, (0, n_rows), y_range, title, **options)
        before(frame)
        order = sorted(range(len(series)), key=lambda index: (index == lead, -index))
        for index in order:
            name, rows, values = series[index]
            kind = f"{css}{index % N_COLOURS}" + (" lead" if index == lead else "")
            kind += " dashed" if index >= N_COLOURS else ""
            frame.line(rows, values, kind, name, f"{css}{index}")
        return frame.svg(n_y_ticks=5 if height > 180 else 3)

    if width is not None:
        return draw(width)
    # The style sheet shows the version that fits the screen.
    both = Markup('<div class="wide-only">{}</div><div class="narrow-only">{}</div>')
    return both.format(draw(WIDE), draw(NARROW))


def axis_minimum(values: Sequence[float]) -> float:
    """Return the start of the y axis: 0, or slightly below the lowest value if all values are high.

    >>> axis_minimum([0.3, 0.9]), axis_minimum([0.83, 0.97]), axis_minimum([])
    (0.0, 0.7, 0.0)
    """
    lowest = min(values, default=0.0)
    return math.floor(10 * lowest - 0.5) / 10 if lowest > _ZOOM_ABOVE else 0.0


def measure_chart(
    result: PrequentialResult,
    measure: str,
    *,
    lead: str,
    label: str = "",
    height: float = 260,
    small: bool = False,
) -> Markup:
    """Return a chart of a measure of every model over time, with drifts and the band of the best model."""
    names = list(result.models)
    series = _series(result, measure)
    values = [v for _, _, ys in series for v in ys if not math.isnan(v)]
    bottom, highest = 0.0 if measure in LOSSES else axis_minimum(values), max(values, default=1.0)

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

    return stream_chart(
        series,
        title=f"{label or measure} over time",
        n_rows=result.n_rows,
        y_range=(bottom, (1.1 * highest or 1.0) if measure in LOSSES else max(1.0, min(highest, 2.0))),
        height=height,
        width=NARROW if small else None,
        axis=_row_axis(result),
        y_label=f"{label} (axis starts at {bottom:g})" if label and bottom else label,
        lead=names.index(lead),
        before=before,
    )


def day_chart(result: PrequentialResult, measure: str, *, lead: str) -> Markup:
    """Return a chart of a measure of every model for each day."""
    names = list(result.models)
    lines = {name: result.days(name) for name in names}
    dates = np.array(sorted({x["day"] for name in names for x in lines[name]}), dtype="datetime64[D]")
    days = {str(date): int((date - dates[0]).astype(int)) for date in dates}
    return stream_chart(
        [(name, [days[x["day"]] for x in lines[name]], [x[measure] for x in lines[name]]) for name in names],
        title=f"{measure} of each day",
        n_rows=max(days.values()),
        height=180,
        width=NARROW,
        axis=("day", lambda day: str(dates[0] + np.timedelta64(round(day), "D"))),
        lead=names.index(lead),
    )


def share_chart(result: PrequentialResult, *, lead: str, limit: int = 5) -> Markup:
    """Return a chart of the share of the positive class, or of the largest classes if none is positive."""
    if result.positive is not None:
        classes = {f"share of {result.positive}": [result.positive]}
    else:
        shown = largest_classes(result, limit)
        rest = [label for label in result.labels if label not in shown]
        classes = {str(label): [label] for label in shown} | dict.fromkeys(others(len(rest)), rest)
    rows = [record["row"] for record in result.records(lead)]
    shares = {name: class_shares(result, lead, labels) for name, labels in classes.items()}
    top = max((max(values, default=0.0) for values in shares.values()), default=0.0)
    return stream_chart(
        [(name, rows, values) for name, values in shares.items()],
        title="class shares over time",
        n_rows=result.n_rows,
        y_range=(0.0, max(top * 1.1, 0.01)),
        height=150,
        axis=_row_axis(result),
        y_format=lambda v: f"{100 * v:.3g}%",
        css="class",
        y_label="share of the rows"
        if result.positive is None
        else f"share of “{shortened(result.positive, 24)}”",
        before=lambda frame: _mark_drifts(frame, result, lead),
    )


def throughput_chart(result: PrequentialResult) -> Markup:
    """Return a chart of the number of rows per second that every model predicts and learns."""
    series = _series(result, "rows_per_second")
    top = max((v for _, _, ys in series for v in ys), default=1.0)
    return stream_chart(
        series,
        title="rows per second of each model",
        n_rows=result.n_rows,
        y_range=(0.0, top * 1.1),
        height=190,
        axis=_row_axis(result),
        y_label="rows per second",
        left=64,
    )


def importance_chart(
    result: PrequentialResult, rows: list[int], shares: FloatArray, names: list[str]
) -> Markup:
    """Return a chart of the importance of a few features over time."""
    return stream_chart(
        [(name, rows, shares[:, index].tolist()) for index, name in enumerate(names)],
        title="feature importance over time",
        n_rows=result.n_rows,
        width=NARROW,
        y_range=(0.0, max(float(shares.max(initial=0.0)) * 1.1, 0.01)),
        height=220,
        axis=_row_axis(result),
        css="feature",
        y_label="share of the total importance",
        y_format=lambda v: f"{100 * v:.3g}%",
    )


def _mark_drifts(frame: Frame, result: PrequentialResult, lead: str) -> None:
    """Draw known drifts as areas or, if none are known, significant changes of the recall as lines."""
    low, high = frame.y_range
    min_width = (frame.x_range[1] - frame.x_range[0]) / 400
    for begin, end in result.known_drifts:
        title = f"concept drift from row {begin:,} to {end:,}"
        frame.bar(begin, max(end, begin + min_width), low, high, "drift", title)
    for row in [] if result.known_drifts else result.changes(lead):
        frame.mark(row, "change", f"recall changed at about row {row:,}")


# -- charts of one model -----------------------------------------------------------------------------


def histogram_chart(sample: Sample, positive: Any) -> Markup:
    """Return a chart with the score histograms of positive and negative rows."""
    scores, is_positive, weights = sample
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
        "score distribution",
        x_label="score (positive is predicted above 0)",
        y_label="share of the class",
        y_format=lambda v: f"{100 * v:.3g}%",
    )
    sides = (("other classes", "negative"), (str(positive), "positive"))
    for density, (name, css) in zip(densities, sides, strict=True):
        for begin, end, share in zip(edges[:-1], edges[1:], density, strict=True):
            if share > 0:
                text = f"{name}: {share:.1%} from {begin:.3g} to {end:.3g}"
                frame.bar(begin, end, 0.0, share, f"column {css}", text)
    frame.bar(0.0, 0.0, *frame.y_range, "threshold")
    return frame.svg(n_x_ticks=4, n_y_ticks=4)


def _share_frame(title: str, x_label: str, y_label: str) -> Frame:
    """Return a frame with both axes from 0 to 1."""
    return Frame(NARROW, 260, (0, 1), (0, 1), title, x_label=x_label, y_label=y_label)


def roc_chart(sample: Sample, model: str) -> Markup:
    """Return a chart of the ROC curve, with a dot at the current threshold."""
    scores, is_positive, weights = sample
    false_rate, hit_rate, _ = roc_curve(is_positive, scores, sample_weight=weights)
    frame = _share_frame(
        "ROC curve", "false positive rate (1 - specificity)", "positive rows found (sensitivity)"
    )
    frame.line([0, 1], [0, 1], "chance", "guessing")
    xs, ys = _thinned(false_rate, hit_rate)
    frame.band(xs, [0.0] * len(xs), ys, "series0")
    frame.line(xs, ys, "series0", model)
    found, false, positives, negatives = _alarms(*sample, np.zeros(1))
    hits, alarms = float(found[0] / max(positives, 1e-12)), float(false[0] / max(negatives, 1e-12))
    frame.dot(alarms, hits, "series0", f"current threshold: {hits:.1%} found, {alarms:.1%} false positives")
    return frame.svg(n_x_ticks=5)


def precision_recall_chart(sample: Sample, model: str) -> Markup:
    """Return a chart of the precision-recall curve."""
    scores, is_positive, weights = sample
    precision, recall, _ = precision_recall_curve(is_positive, scores, sample_weight=weights)
    frame = _share_frame(
        "precision-recall curve", "positive rows found (recall)", "correct alarms (precision)"
    )
    base = float(weights[is_positive].sum() / weights.sum())
    frame.line([0, 1], [base, base], "chance", "guessing")
    frame.line(*_thinned(recall[::-1], precision[::-1]), "series0", model)
    return frame.svg(n_x_ticks=5)


def reliability_chart(curve: ReliabilityCurve, model: str, kind: str) -> Markup:
    """Return a chart of observed frequencies by predicted probabilities of the class of a kind."""
    x_label = f"predicted probability of the {kind} class"
    frame = _share_frame("reliability curve", x_label, "observed frequency")
    frame.line([0, 1], [0, 1], "chance", "calibrated")
    frame.line(curve.mean_probability.tolist(), curve.positive_rate.tolist(), "series0", model)
    for predicted, observed, n_rows in zip(*curve, strict=True):
        text = f"{n_rows:,.0f} rows: predicted {predicted:.1%}, observed {observed:.1%}"
        frame.dot(float(predicted), float(observed), "series0", text)
    return frame.svg(n_x_ticks=5)


def cost_chart(sample: Sample) -> tuple[Markup, list[dict[str, float]]]:
    """Return a chart of the cost of every threshold, and the best threshold for each cost ratio.

    A cost ratio is the cost of a missed positive row divided by the cost of a false alarm.
    """
    low, high = (float(q) for q in np.quantile(sample[0], [0.005, 0.995]))
    low, high = min(low, -1e-9), max(high, 1e-9)
    thresholds = np.linspace(low, high, 121)
    frame = Frame(
        NARROW,
        260,
        (low, high),
        (0.0, 1.0),
        "cost of other thresholds",
        x_label="threshold (current: 0)",
        y_label="cost per 1,000 rows, in false alarms",
    )
    # The last column belongs to the current threshold.
    found, false, positives, negatives = _alarms(*sample, np.append(thresholds, 0.0))
    costs = [1000 * (false + ratio * (positives - found)) / (positives + negatives) for ratio in COST_RATIOS]
    top = float(costs[1][:-1].max()) * 1.05
    frame.y_range = (0.0, top or 1.0)
    best = []
    for index, (ratio, cost) in enumerate(zip(COST_RATIOS, costs, strict=True)):
        k = int(np.argmin(cost[:-1]))
        at = float(thresholds[k])
        best.append(
            {
                "ratio": ratio,
                "now": float(cost[-1]),
                "threshold": at,
                "cost": float(cost[k]),
                "hits": float(found[k] / max(positives, 1e-12)),
                "alarms": float(false[k] / max(negatives, 1e-12)),
            }
        )
        clipped = np.where(cost[:-1] <= top, cost[:-1], np.nan).tolist()
        frame.line(thresholds.tolist(), clipped, f"class{index}", f"cost of a miss: {ratio}")
        frame.dot(at, float(cost[k]), f"class{index}", f"lowest at {at:.3g}")
    frame.bar(0.0, 0.0, *frame.y_range, "threshold")
    return frame.svg(n_x_ticks=4), best


def _alarms(
    scores: FloatArray, is_positive: NDArray[np.bool_], weights: FloatArray, thresholds: FloatArray
) -> tuple[FloatArray, FloatArray, float, float]:
    """Return the weights of true and of false alarms at each threshold, and of positive and negative rows."""
    is_alarm = scores[:, None] > thresholds
    positive, negative = weights * is_positive, weights * ~is_positive
    return positive @ is_alarm, negative @ is_alarm, float(positive.sum()), float(negative.sum())


def _thinned(xs: FloatArray, ys: FloatArray, limit: int = 200) -> tuple[list[float], list[float]]:
    kept = np.unique(np.linspace(0, len(xs) - 1, min(limit, len(xs))).astype(int))
    return xs[kept].tolist(), ys[kept].tolist()
