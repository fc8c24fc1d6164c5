"""Compare target rates of StreamClassifier with observed rates in windows of streams, also with late labels.

    python benchmarks/accuracy/promises.py --data-dir DIR [--goal alarms=0.01] [--stream NAME]
        [--late 0 500 5000] [--limit 20000]

Rows are predicted in chunks of 100 before they are learned. The script prints the share of windows whose
observed rate is within one percentage point of the target rate. For alarms, the windows are all sequences of
2,000 consecutive predicted rows. For alarms per day, a day has 2,000 rows. For recall, the windows are all
sequences of 2,000 rows that have positives, and all sequences of 500 consecutive positives. "Independent" is
the share of windows that would be within one point if every positive were found independently with the target
probability (binomial distribution). Without knowing labels in advance, a threshold cannot do much better. For
precision, the script prints the observed precision of all alarms.
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path

import numpy as np
from large_streams import CHUNK, LARGE
from scipy.stats import binom
from stream_data import FloatArray, IntArray

from steelyard import StreamClassifier

_WINDOW_ROWS, _WINDOW_POSITIVES = 2000, 500
_ONE_POINT = 0.01 + 1e-9
_SECONDS_PER_ROW = 86_400 / _WINDOW_ROWS


def alarms_of(goal: dict[str, float], X: FloatArray, y: IntArray, late: int) -> tuple[FloatArray, IntArray]:
    """Return alarms (0 or 1) and labels of all predicted rows."""
    model, learned = StreamClassifier(threshold=goal), 0
    alarms, time = np.full(len(y), np.nan), _SECONDS_PER_ROW * np.arange(len(y))
    for begin in range(0, len(y), CHUNK):
        end = min(begin + CHUNK, len(y))
        if learned and len(model.classes_) == 2:
            alarms[begin:end] = model.predict(X[begin:end], time=time[begin:end]) == model.classes_[1]
        if end - late > learned:
            rows = slice(learned, end - late)
            model.partial_fit(X[rows], y[rows], time=time[rows])
            learned = end - late
    predicted = ~np.isnan(alarms)
    return alarms[predicted], y[predicted]


def _sums(events: FloatArray | IntArray, size: int) -> FloatArray:
    """Return the sums of ``events`` over all windows of ``size`` rows."""
    sums = np.concatenate([[0.0], np.cumsum(events)])
    return sums[size:] - sums[:-size]


def _kept(n_found: FloatArray, n_positives: FloatArray, target: float) -> tuple[float, float]:
    """Return the share of windows within one point of the target, also for independent decisions."""
    is_used = n_positives > 0
    n_found, n_positives = n_found[is_used], n_positives[is_used]
    if not len(n_found):
        return np.nan, np.nan
    kept = np.abs(n_found / n_positives - target) <= _ONE_POINT
    sizes, counts = np.unique(n_positives, return_counts=True)
    high, low = np.floor(sizes * (target + _ONE_POINT)), np.ceil(sizes * (target - _ONE_POINT))
    independent = binom.cdf(high, sizes, target) - binom.cdf(low - 1.0, sizes, target)
    return float(kept.mean()), float(np.average(independent, weights=counts))


def line(name: str, goal: dict[str, float], late: int, alarms: FloatArray, y: IntArray) -> str:
    ((kind, target),) = goal.items()
    found = alarms[y == 1]
    recall = found.mean() if len(found) else np.nan
    precision = y[alarms == 1].mean() if alarms.any() else np.nan
    numbers = [alarms.mean(), recall, precision]
    if kind in {"alarms", "alarms_per_day"}:
        target /= 1.0 if kind == "alarms" else _WINDOW_ROWS
        rates = _sums(alarms, _WINDOW_ROWS) / _WINDOW_ROWS
        numbers.append(np.mean(np.abs(rates - target) <= _ONE_POINT) if len(rates) else np.nan)
    elif kind == "recall":
        positives = _sums(y, _WINDOW_ROWS), _sums(np.ones(len(found)), _WINDOW_POSITIVES)
        hits = _sums(alarms * (y == 1), _WINDOW_ROWS), _sums(found, _WINDOW_POSITIVES)
        numbers += [x for pair in zip(hits, positives, strict=True) for x in _kept(*pair, target)]
    return f"| {name} | {late} | {len(y)} | {' | '.join(f'{number:.4f}' for number in numbers)} |"


def _goal(text: str) -> dict[str, float]:
    name, _, number = text.partition("=")
    return {name: float(number)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--goal", type=_goal, default={"alarms": 0.01})
    parser.add_argument("--stream", action="append", choices=list(LARGE))
    parser.add_argument("--late", type=int, nargs="+", default=[0, 500, 5000])
    parser.add_argument("--limit", type=int, default=20_000, help="maximum number of rows of a stream")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    columns = ["stream", "late", "predicted rows", "alarms", "recall", "precision"]
    windows = [f"{_WINDOW_ROWS} rows", "independent", f"{_WINDOW_POSITIVES} positives", "independent"]
    shown = {"alarms": windows[:1], "alarms_per_day": windows[:1], "recall": windows, "precision": []}
    columns += shown[next(iter(options.goal))]
    print(f"| {' | '.join(columns)} |\n" + "|---" * len(columns) + "|")
    for name in options.stream or LARGE:
        X, y = LARGE[name](options.data_dir, options.limit)
        for late in options.late:
            print(line(name, options.goal, late, *alarms_of(options.goal, X, y, late)), flush=True)


if __name__ == "__main__":
    main()
