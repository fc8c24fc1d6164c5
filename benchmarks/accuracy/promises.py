"""Promised rates of StreamClassifier: the realised rates in windows of the stream, also with late labels.

    python benchmarks/accuracy/promises.py --data-dir DIR [--goal alarms=0.01] [--stream NAME]
        [--late 0 500 5000] [--limit 20000]

Rows are predicted in chunks of 100 before they are learned. For alarms the windows are all stretches of 2,000
consecutive predicted rows. For recall they are all stretches of 500 consecutive positives, because 2,000 rows
of a rare class have too few positives for a rate. A window is kept if its rate is within one point of the
target. For precision the realised precision of all alarms is given.
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path

import numpy as np
from large_streams import CHUNK, LARGE
from stream_data import FloatArray, IntArray

from steelyard import StreamClassifier

_WINDOW_ROWS, _WINDOW_POSITIVES = 2000, 500
_ONE_POINT = 0.01 + 1e-9


def alarms_of(goal: dict[str, float], X: FloatArray, y: IntArray, late: int) -> tuple[FloatArray, IntArray]:
    """Return the alarms of the rows that were predicted, and their labels."""
    model, learned = StreamClassifier(threshold=goal), 0
    alarms = np.full(len(y), np.nan)
    for begin in range(0, len(y), CHUNK):
        end = min(begin + CHUNK, len(y))
        if learned and len(model.classes_) == 2:
            alarms[begin:end] = model.predict(X[begin:end]) == model.classes_[1]
        if end - late > learned:
            model.partial_fit(X[learned : end - late], y[learned : end - late])
            learned = end - late
    predicted = ~np.isnan(alarms)
    return alarms[predicted], y[predicted]


def _windows(events: FloatArray, size: int) -> FloatArray:
    sums = np.concatenate([[0.0], np.cumsum(events)])
    return (sums[size:] - sums[:-size]) / size


def line(name: str, goal: dict[str, float], late: int, alarms: FloatArray, y: IntArray) -> str:
    ((kind, target),) = goal.items()
    found = alarms[y == 1]
    recall = found.mean() if len(found) else np.nan
    precision = y[alarms == 1].mean() if alarms.any() else np.nan
    rates = _windows(alarms, _WINDOW_ROWS) if kind == "alarms" else _windows(found, _WINDOW_POSITIVES)
    kept = np.mean(np.abs(rates - target) <= _ONE_POINT) if kind != "precision" and len(rates) else np.nan
    numbers = [alarms.mean(), recall, precision, kept]
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
    parser.add_argument("--limit", type=int, default=20_000, help="rows of a stream at most")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    print("| stream | late | predicted rows | alarms | recall | precision | windows within one point |")
    print("|---" * 7 + "|")
    for name in options.stream or LARGE:
        X, y = LARGE[name](options.data_dir, options.limit)
        for late in options.late:
            print(line(name, options.goal, late, *alarms_of(options.goal, X, y, late)), flush=True)


if __name__ == "__main__":
    main()
