"""What a run has shown, in sentences that need no glossary."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from steelyard.evaluation import PrequentialResult

__all__ = [
    "MEASURES",
    "Measure",
    "describe_changes",
    "headline",
    "moment",
    "moment_of_row",
    "of_100",
    "ranked",
    "story",
]

_DAY = 86400.0
_YEAR = 365 * _DAY


@dataclass(frozen=True)
class Measure:
    """A measure as the page names it, with what it means in a few words and in one sentence."""

    name: str
    short: str
    meaning: str


MEASURES = {
    "g_mean": Measure(
        "G-mean",
        "high only if every class is found",
        "The hit rates of the classes multiplied, and the root taken: a model that ignores the rare class "
        "gets 0, however many rows it has right.",
    ),
    "macro_recall": Measure(
        "Mean recall",
        "of the classes, all alike",
        "How many rows of a class are found, averaged over the classes.",
    ),
    "mean_g_mean": Measure("Mean over time", "G-mean of running windows", "Every time has the same say."),
    "lowest_g_mean": Measure("Lowest", "the worst running window", "How bad the worst time was."),
    "mean_macro_recall": Measure(
        "Mean over time", "recall in running windows", "Every time has the same say."
    ),
    "lowest_macro_recall": Measure("Lowest", "the worst running window", "How bad the worst time was."),
    "sensitivity": Measure(
        "Sensitivity", "cases found", "Of the rows of the positive class, how many were found."
    ),
    "specificity": Measure(
        "Specificity", "others left alone", "Of all other rows, how many were rightly left alone."
    ),
    "precision": Measure("Precision", "alarms that are right", "Of the alarms, how many were right."),
    "f1": Measure(
        "F1", "cases found and alarms right", "The harmonic mean of cases found and alarms that are right."
    ),
    "mean_f1": Measure(
        "Mean F1", "of the classes, all alike", "The F1 of every class, averaged over the classes."
    ),
    "auc": Measure(
        "AUC",
        "0.5 is guessing",
        "The chance that a positive row scores above another; 0.5 is guessing, 1 is perfect.",
    ),
    "accuracy": Measure(
        "Accuracy", "all rows alike", "Of all rows, how many were right; a large class can hide all others."
    ),
    "rows_per_second": Measure("Rows/s", "predicting and learning", "Without reading and measuring."),
}


def ranked(result: PrequentialResult) -> list[dict[str, Any]]:
    """The lines of the summary, the best first: by the leading measure, averaged over time."""
    return sorted(result.summary(), key=lambda row: -_or(row.get(f"mean_{result.leading}"), -1.0))


def _or(value: float | None, otherwise: float) -> float:
    return otherwise if value is None or math.isnan(value) else value


def of_100(share: float) -> str:
    """A share as so many of a hundred.

    >>> [of_100(x) for x in (0.874, 1.0, 0.9991, 0.0003, 0.0)]
    ['87', '100', 'more than 99', 'fewer than 1', '0']
    """
    if 0.0 < share < 0.005:
        return "fewer than 1"
    if 0.995 <= share < 1.0:
        return "more than 99"
    return f"{100 * share:.0f}"


def headline(result: PrequentialResult) -> str:
    """What a manager wants to know: how many cases are found, and how many alarms are false."""
    if len(result.labels) == 1:
        return f"Only “{next(iter(result.labels))}” came, so nothing could be told apart"
    best = next((row for row in ranked(result) if f"mean_{result.leading}" in row), None)
    if best is None or (result.positive is None and math.isnan(best.get("macro_recall", math.nan))):
        return "Too few rows to tell anything"
    if result.positive is None:
        found = of_100(best["macro_recall"])
        return f"Finds {found} of 100 rows of a class, averaged over {len(result.labels):,} classes"
    line = next((x for x in result.by_class(best["model"]) if x["label"] == result.positive), None)
    if line is None or math.isnan(line["recall"]):
        return f"No row of class “{result.positive}” could be tested"
    found = f"Finds {of_100(line['recall'])} of 100 “{result.positive}” rows"
    if math.isnan(line["precision"]):
        return f"{found}, and never raised an alarm"
    false = 1 - line["precision"]
    return f"{found}; {of_100(false)} of 100 alarms {'is' if of_100(false) == '1' else 'are'} false"


def story(result: PrequentialResult) -> list[str]:
    """A few sentences about the race."""
    if len(result.labels) == 1:
        return [f"{result.n_rows:,} rows came, all of one class. Figures need rows of another one."]
    lines = [row for row in ranked(result) if f"mean_{result.leading}" in row]
    if not lines:
        return [f"{result.n_rows:,} rows came, and no model had learned enough to be tested."]
    best, others = lines[0], lines[1:]
    name = MEASURES[result.leading].name
    said = [f"These are the figures of “{best['model']}”{_of_how_many(others)}."]
    low = best[f"lowest_{result.leading}"]
    said.append(
        f"In running windows of {result.window:,} rows its {name.lower() if name != 'G-mean' else name} was "
        f"{best[f'mean_{result.leading}']:.2f} on average"
        + (f" and never below {low:.2f}." if low >= 0.005 else ", with moments of 0.")
    )
    if others:
        second = others[0]
        said.append(
            f"The next best, “{second['model']}”, had {second[f'mean_{result.leading}']:.2f} on average and "
            f"fell to {second[f'lowest_{result.leading}']:.2f}."
        )
    said += _shares(result, best["model"])
    return said


def _of_how_many(others: list[dict[str, Any]]) -> str:
    return f", the best of {len(others) + 1} models" if others else ""


def _shares(result: PrequentialResult, model: str) -> list[str]:
    if result.positive is None:
        return []
    shares = [
        r["class_counts"].get(result.positive, 0) / max(sum(r["class_counts"].values()), 1)
        for r in result.records(model)
    ]
    if not shares:
        return []
    return [
        f"Meanwhile the share of “{result.positive}” moved between {min(shares):.1%} and {max(shares):.1%}."
    ]


def moment_of_row(result: PrequentialResult) -> Callable[[float], str] | None:
    """How the times of a stream are written, by row; None where it has none.

    Numbers that would be dates of 1970 are seconds since some beginning, and written so.
    """
    if not result.moments:
        return None
    times = [seconds for _, seconds in result.moments]
    span = abs(times[-1] - times[0])
    since_start = min(times) >= 0 and max(times) < _YEAR
    written = elapsed if since_start else moment
    return lambda row: written(result.time_of(row) or 0.0, span)


def elapsed(seconds: float, span: float) -> str:
    """A time since the beginning, as short as the span of the whole stream allows.

    >>> elapsed(93784.0, 5 * 86400), elapsed(3725.0, 7200)
    ('1 d 02:03', '1:02:05')
    """
    minutes, rest = divmod(int(seconds), 60)
    if span > _DAY:
        return f"{minutes // 1440:,} d {minutes // 60 % 24:02d}:{minutes % 60:02d}"
    return f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}"


def moment(seconds: float, span: float) -> str:
    """A date as short as the span of the whole stream allows.

    >>> moment(0.0, 10 * 365 * 86400), moment(0.0, 20 * 86400), moment(0.0, 3600)
    ('Jan 1970', '1 Jan 1970', '1 Jan 00:00')
    """
    try:
        when = datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, ValueError, OSError):
        return f"{seconds:,.0f} s"
    if span > 3 * _YEAR:
        return when.strftime("%b %Y")
    if span > 4 * _DAY:
        return f"{when.day} {when:%b %Y}"
    return f"{when.day} {when:%b %H:%M}"


def describe_changes(result: PrequentialResult, model: str, limit: int = 12) -> list[dict[str, Any]]:
    """What happened, place by place: the row and a few words; what is known, found by a model, or seen."""
    found: list[dict[str, Any]] = [
        {
            "row": begin,
            "what": "drift",
            "text": f"The concept drifts until row {end:,}. {_before_and_after(result, model, begin, end)}",
        }
        for begin, end in result.known_drifts
    ]
    if not found:
        found = [
            {
                "row": row,
                "what": "change",
                "text": f"The hits of “{model}” changed. {_before_and_after(result, model, row, row)}",
            }
            for row in result.changes(model)
        ]
    for event in result.events:
        if event.kind == "class" and event.row < result.window:
            continue  # all classes come for the first time at the beginning
        source = "" if event.model is None else f"“{event.model}”: "
        found.append({"row": event.row, "what": event.kind, "text": _sentence(f"{source}{event.text}.")})
    found.sort(key=lambda entry: entry["row"])
    if len(found) > limit:
        rest = len(found) - limit
        found = [
            *found[:limit],
            {"row": found[limit]["row"], "what": "more", "text": f"and {rest:,} more events."},
        ]
    return found


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def _before_and_after(result: PrequentialResult, model: str, begin: int, end: int) -> str:
    """How the leading measure and its parts stood before and after, and whether it came back."""
    records = [r for r in result.records(model) if not math.isnan(r.get(result.leading, math.nan))]
    reach = 3 * result.window
    before = [r for r in records if begin - reach < r["row"] <= begin]
    after = [r for r in records if begin < r["row"] <= end + reach]
    if not before or not after:
        return ""
    name = MEASURES[result.leading].name
    stood = sum(r[result.leading] for r in before) / len(before)
    lowest = min(after, key=lambda r: r[result.leading])
    parts = [
        f"{label} from {of_100(sum(r[key] for r in before) / len(before))} to {of_100(lowest[key])} of 100"
        for key, label in (("sensitivity", "cases found"), ("specificity", "others left alone"))
        if result.positive is not None
        and not any(math.isnan(r.get(key, math.nan)) for r in (*before, lowest))
    ]
    detail = f" ({', '.join(parts)})" if parts else ""
    if lowest[result.leading] >= stood - 0.02:
        least = lowest[result.leading]
        return f"The {name} of “{model}” held: {stood:.2f} before, at least {least:.2f} after{detail}."
    text = f"The {name} of “{model}” fell from {stood:.2f} to {lowest[result.leading]:.2f}{detail}. "
    back = next(
        (r["row"] for r in records if r["row"] > lowest["row"] and r[result.leading] >= stood - 0.02), None
    )
    if back is None:
        return text + "By the end it had not come back."
    return text + f"It was back after about {back - begin:,} rows."
