"""Text of a report: measures, headline, summary and events in plain sentences."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from steelyard._visible import visible
from steelyard.evaluation import PrequentialResult
from steelyard.evaluation.tracking import LOSSES

GAP = "\N{EN DASH}"  # printed for a missing number
_DAY_SECONDS = 86400.0
_YEAR_SECONDS = 365 * _DAY_SECONDS
_MIN_DAYS_FOR_DAILY_ALARMS = 2.0
_NOTICEABLE_DROP = 0.02  # drops of the main measure below this count as stable


@dataclass(frozen=True)
class Measure:
    """Texts for a measure: its name, a short description for tables, an explanation for charts."""

    name: str
    short: str
    meaning: str = ""


MEASURES = {
    "g_mean": Measure(
        "G-mean",
        "high only if every class is found",
        "The geometric mean of the recalls of all classes. It is 0 if a model never finds the rare class, "
        "even if most rows are right.",
    ),
    "macro_recall": Measure(
        "Mean recall",
        "average over classes",
        "Recall is the share of the rows of a class that are found; this is its average over all classes.",
    ),
    "mean_g_mean": Measure("Mean over time", "average of all windows"),
    "lowest_g_mean": Measure("Lowest", "worst window"),
    "mean_macro_recall": Measure("Mean over time", "average of all windows"),
    "lowest_macro_recall": Measure("Lowest", "worst window"),
    "sensitivity": Measure(
        "Sensitivity", "positive rows found", "The share of the positive rows that the model finds."
    ),
    "specificity": Measure(
        "Specificity",
        "negative rows without alarm",
        "The share of the negative rows for which the model raises no alarm.",
    ),
    "precision": Measure("Precision", "correct alarms"),
    "f1": Measure(
        "F1",
        "sensitivity and precision",
        "The harmonic mean of sensitivity (positive rows found) and precision (correct alarms).",
    ),
    "mean_f1": Measure("Mean F1", "average over classes", "The average of the F1 scores of all classes."),
    "auc": Measure(
        "AUC",
        "0.5 is guessing",
        "The probability that a positive row has a higher score than a negative row: 0.5 is guessing, 1 is "
        "perfect.",
    ),
    "average_precision": Measure(
        "Average precision",
        "area under precision-recall",
        "The mean precision over all thresholds, weighted by the increase of recall. Guessing gives the "
        "share of the positive class.",
    ),
    "precision_at_k": Measure(
        "Precision at k",
        "correct among the k highest",
        "The share of positive rows among the k highest scores.",
    ),
    "recall_at_k": Measure(
        "Recall at k",
        "found among the k highest",
        "The share of the positive rows among the k highest scores.",
    ),
    "log_loss": Measure(
        "Log-loss",
        "lower is better",
        "The mean negative logarithm of the probability that was predicted for the true class.",
    ),
    "brier": Measure(
        "Brier score", "lower is better", "The mean squared error of the predicted probabilities."
    ),
    "expected_calibration_error": Measure("Calibration error", "lower is better"),
    "accuracy": Measure(
        "Accuracy",
        "correct rows",
        "The share of the rows that are right. A frequent class can hide errors in the others.",
    ),
    "rows_per_second": Measure("Rows/s", "predicting and learning"),
}

RANKING_COLUMNS = (
    "auc", "average_precision", "precision_at_k", "recall_at_k", "log_loss", "brier",
    "expected_calibration_error",
)  # fmt: skip


def best_cells(lines: Sequence[Mapping[str, Any]], columns: Iterable[str]) -> list[dict[str, bool]]:
    """Return which measures of each line are the best of all lines: the lowest losses, else the highest."""
    best = {}
    for key in columns:
        known = [line[key] for line in lines if not is_missing(line.get(key))]
        best[key] = (min if key in LOSSES else max)(known, default=None)
    return [
        {key: value is not None and line.get(key) == value for key, value in best.items()} for line in lines
    ]


def known_columns(lines: Sequence[Mapping[str, Any]], wanted: Sequence[str]) -> list[str]:
    """Return the measures in ``wanted`` that are known in at least one line."""
    return [key for key in wanted if not all(is_missing(line.get(key)) for line in lines)]


def is_missing(value: float | None) -> bool:
    """Return whether a measure is unknown: nan, or None in a run that was read from JSON."""
    return value is None or math.isnan(value)


def ranked(lines: Sequence[Mapping[str, Any]], leading: str) -> list[dict[str, Any]]:
    """Sort the lines of a summary by the mean of the leading measure over time, best first."""
    key = f"mean_{leading}"
    return sorted(map(dict, lines), key=lambda x: -1.0 if is_missing(x.get(key)) else x[key], reverse=True)


def in_sentence(measure: str) -> str:
    """Return the name of a measure for use inside a sentence: lower case, except G-mean."""
    name = MEASURES[measure].name
    return name if name == "G-mean" else name.lower()


def format_parameters(parameters: Mapping[str, Any]) -> str:
    """Return the parameters of a model in one line."""
    return ", ".join(f"{name}={value}" for name, value in parameters.items()) or "none"


def number(value: float) -> str:
    """Return a number with three significant digits or thousands separators.

    >>> [number(x) for x in (0.25, 3.0, 1500, 2_000_000, 1e-6, float("nan"))]
    ['0.25', '3', '1,500', '2M', '1e-06', '–']
    """
    if math.isnan(value):
        return GAP
    if abs(value) >= 1e6:
        return f"{value / 1e6:.3g}M"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def shortened(text: object, length: int = 32) -> str:
    """Return the text truncated to a length, because SVG text does not wrap.

    >>> shortened("a" * 40, 9)
    'aaaaaaaa…'
    """
    shown = visible(text)
    return shown if len(shown) <= length else shown[: length - 1] + "…"


def per_hundred(share: float) -> str:
    """Return a share as a number out of 100.

    >>> [per_hundred(x) for x in (0.874, 1.0, 0.9991, 0.0003, 0.0)]
    ['87', '100', 'more than 99', 'fewer than 1', '0']
    """
    if 0.0 < share < 0.005:
        return "fewer than 1"
    if 0.995 <= share < 1.0:
        return "more than 99"
    return f"{100 * share:.0f}"


def headline(result: PrequentialResult) -> str:
    """Return a headline with the main result of the best model: positive rows found, and false alarms."""
    if len(result.labels) == 1:
        return f"All rows are of class “{next(iter(result.labels))}”, so nothing could be measured"
    best = next(iter(_measured_lines(result)), None)
    if best is None or (result.positive is None and math.isnan(best.get("macro_recall", math.nan))):
        return "Too few rows to measure anything"
    if result.positive is None:
        found = per_hundred(best["macro_recall"])
        return f"Finds {found} of 100 rows of a class, on average over {len(result.labels):,} classes"
    line = next((x for x in result.by_class(best["model"]) if x["label"] == result.positive), None)
    if line is None or math.isnan(line["recall"]):
        return f"No row of class “{result.positive}” was tested"
    found = f"Finds {per_hundred(line['recall'])} of 100 rows of class “{result.positive}”"
    if math.isnan(line["precision"]):
        return f"{found} and never raises an alarm"
    false = per_hundred(1 - line["precision"])
    daily = alarms_per_day(result, best["model"])
    rate = "" if daily is None else f" with {daily:,.0f} alarms a day"
    return f"{found}{rate}; {false} of 100 alarms {'is' if false == '1' else 'are'} false"


def alarms_per_day(result: PrequentialResult, model: str) -> float | None:
    """Return the mean number of alarms per day, or None if the stream has no times or covers few days."""
    lines = result.by_class(model)
    n_tested = sum(line["support"] for line in lines)
    begin, end = result.time_of(result.n_rows - n_tested), result.time_of(result.n_rows)
    if begin is None or end is None or end - begin < _MIN_DAYS_FOR_DAILY_ALARMS * _DAY_SECONDS:
        return None
    n_alarms = sum(line["answered"] for line in lines if line["label"] == result.positive)
    return n_alarms / ((end - begin) / _DAY_SECONDS)


def _measured_lines(result: PrequentialResult) -> list[dict[str, Any]]:
    lines = ranked(result.summary(), result.leading)
    return [line for line in lines if f"mean_{result.leading}" in line]


def summary_sentences(result: PrequentialResult) -> list[str]:
    """Return a few sentences that summarise the best and the second-best model."""
    if len(result.labels) == 1:
        return [f"The stream has {result.n_rows:,} rows of one class; measures need at least two classes."]
    lines = _measured_lines(result)
    if not lines:
        return [f"The stream has {result.n_rows:,} rows, too few for a model to be tested."]
    leading, best = result.leading, lines[0]
    rank = f", the best of {len(lines)} models" if len(lines) > 1 else ""
    figures = [
        f"{line[f'mean_{leading}']:.2f} on average and {line[f'lowest_{leading}']:.2f} in the worst window"
        for line in lines[:2]
    ]
    sentences = [
        f"This is the result of “{best['model']}”{rank}.",
        f"In windows of {result.window:,} rows its {in_sentence(leading)} is {figures[0]}.",
    ]
    if len(lines) > 1:
        sentences.append(f"The second best, “{lines[1]['model']}”, reaches {figures[1]}.")
    shares = class_shares(result, best["model"], [result.positive])
    if result.positive is not None and shares:
        sentences.append(
            f"The share of class “{result.positive}” varies between {min(shares):.1%} and {max(shares):.1%}."
        )
    return sentences


def class_shares(result: PrequentialResult, model: str, labels: Sequence[Any]) -> list[float]:
    """Return the share of some classes together in every window of a model."""
    counts = [record["class_counts"] for record in result.records(model)]
    return [sum(rows.get(label, 0) for label in labels) / max(sum(rows.values()), 1) for rows in counts]


def time_of_row(result: PrequentialResult, row: float) -> str | None:
    """Return the time of a row as text, or None if the stream has no times.

    Times that would be dates in 1970 are formatted as the time elapsed since the start.
    """
    if not result.moments:
        return None
    times = [seconds for _, seconds in result.moments]
    is_relative = min(times) >= 0 and max(times) < _YEAR_SECONDS
    formatted = format_elapsed if is_relative else format_date
    return formatted(result.time_of(row) or 0.0, abs(times[-1] - times[0]))


def format_elapsed(seconds: float, span: float) -> str:
    """Format the time elapsed since the start; ``span`` is the duration of the stream in seconds.

    >>> format_elapsed(93784.0, 5 * 86400), format_elapsed(3725.0, 7200)
    ('1 d 02:03', '1:02:05')
    """
    minutes, rest = divmod(int(seconds), 60)
    if span > _DAY_SECONDS:
        return f"{minutes // 1440:,} d {minutes // 60 % 24:02d}:{minutes % 60:02d}"
    return f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}"


def format_date(seconds: float, span: float) -> str:
    """Format a time as a date; the precision depends on ``span``, the duration of the stream in seconds.

    >>> format_date(0.0, 10 * 365 * 86400), format_date(0.0, 20 * 86400), format_date(0.0, 3600)
    ('Jan 1970', '1 Jan 1970', '1 Jan 00:00')
    """
    try:
        when = datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, ValueError, OSError):
        return f"{seconds:,.0f} s"
    if span > 3 * _YEAR_SECONDS:
        return when.strftime("%b %Y")
    if span > 4 * _DAY_SECONDS:
        return f"{when.day} {when:%b %Y}"
    return f"{when.day} {when:%b %H:%M}"


def describe_events(result: PrequentialResult, model: str, limit: int = 12) -> list[dict[str, Any]]:
    """Return the events of a run (drifts, changes of recall, new classes) with row, kind and text."""
    events: list[dict[str, Any]] = [
        {
            "row": begin,
            "what": "drift",
            "text": f"Known concept drift{f' until row {end:,}' if end > begin else ''}. "
            f"{_effect(result, model, begin, end)}",
        }
        for begin, end in result.known_drifts
    ]
    if not events:
        events = [
            {
                "row": row,
                "what": "change",
                "text": f"The recall of “{model}” changed significantly. {_effect(result, model, row, row)}",
            }
            for row in result.changes(model)
        ]
    for event in result.events:
        if event.kind == "class" and event.row < result.window:
            continue  # at the start of the stream, every class occurs for the first time
        text = event.described(result.feature_names or ())
        text = f"{text}." if event.model is None else f"“{event.model}”: {text}."
        events.append({"row": event.row, "what": event.kind, "text": text[:1].upper() + text[1:]})
    events.sort(key=lambda event: event["row"])
    if len(events) > limit:
        text = f"and {len(events) - limit:,} more events."
        events[limit:] = [{"row": events[limit]["row"], "what": "more", "text": text}]
    return events


def _effect(result: PrequentialResult, model: str, begin: int, end: int) -> str:
    """Return sentences about the leading measure before and after a change, and whether it recovered."""
    leading = result.leading
    records = [r for r in result.records(model) if not math.isnan(r.get(leading, math.nan))]
    reach = 3 * result.window
    before = [r for r in records if begin - reach < r["row"] <= begin]
    after = [r for r in records if begin < r["row"] <= end + reach]
    if not before or not after:
        return ""
    level = sum(r[leading] for r in before) / len(before)
    lowest = min(after, key=lambda r: r[leading])
    parts = [
        f"{key} from {sum(r[key] for r in before) / len(before):.0%} to {lowest[key]:.0%}"
        for key in ("sensitivity", "specificity")
        if result.positive is not None
        and not any(math.isnan(r.get(key, math.nan)) for r in (*before, lowest))
    ]
    detail = f" ({', '.join(parts)})" if parts else ""
    subject = f"The {in_sentence(leading)} of “{model}”"
    if lowest[leading] >= level - _NOTICEABLE_DROP:
        return f"{subject} was stable: {level:.2f} before, at least {lowest[leading]:.2f} after{detail}."
    text = f"{subject} fell from {level:.2f} to {lowest[leading]:.2f}{detail}. "
    recovered = (r for r in records if r["row"] > lowest["row"] and r[leading] >= level - _NOTICEABLE_DROP)
    back = next(recovered, None)
    if back is None:
        return text + "It did not recover before the end."
    return text + f"It recovered after about {back['row'] - begin:,} rows."
