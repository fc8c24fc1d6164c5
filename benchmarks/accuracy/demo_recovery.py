"""Measure how fast StreamClassifier and SGD recover from the drift of the built-in stream.

    python benchmarks/accuracy/demo_recovery.py [--rows 60000] [--chunk 100] [--window 500]

Both predict every chunk before they learn it, as in ``steelyard stream`` without a source. The script prints
the G-mean of the windows around the drift, and the number of rows after which the G-mean of each learner is
again within 0.02 of its mean over the ten windows before the drift.
"""

from __future__ import annotations

import argparse

import numpy as np
from sklearn.linear_model import SGDClassifier

from steelyard import StreamClassifier
from steelyard.evaluation import SklearnPeer
from steelyard.metrics import g_mean_score
from steelyard.streams import demo_stream

BEFORE, AFTER = 10, 20  # number of windows before and after the drift


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--rows", type=int, default=60_000)
    parser.add_argument("--chunk", type=int, default=100)
    parser.add_argument("--window", type=int, default=500)
    options = parser.parse_args()
    stream = demo_stream(options.rows, chunk=options.chunk)
    drift = 2 * options.rows // 3
    n = min(drift + AFTER * options.window, options.rows)
    X, y = stream.rows(0, n)
    models = {
        "StreamClassifier": StreamClassifier(),
        "SGD": SklearnPeer(SGDClassifier(loss="log_loss", random_state=0)),
    }
    windows = range(drift - BEFORE * options.window, n, options.window)
    found = {}
    for name, model in models.items():
        predicted = np.full(n, y[0])
        for begin in range(0, n, options.chunk):
            part = slice(begin, begin + options.chunk)
            if begin:
                predicted[part] = model.predict(X[part])
            model.partial_fit(X[part], y[part])
        parts = [slice(begin, begin + options.window) for begin in windows]
        found[name] = np.array([g_mean_score(y[part], predicted[part]) for part in parts])
    print(f"G-mean in windows of {options.window} rows; the drift begins at row {drift}")
    print("window  " + "  ".join(f"{name:>16}" for name in found))
    for number, begin in enumerate(windows):
        print(f"{begin - drift:+6d}  " + "  ".join(f"{found[name][number]:16.3f}" for name in found))
    for name, g_means in found.items():
        usual = g_means[:BEFORE].mean()
        back = np.flatnonzero(g_means[BEFORE + 1 :] >= usual - 0.02)
        recovery = f"recovered after {(back[0] + 2) * options.window} rows" if len(back) else "not recovered"
        print(f"{name}: before {usual:.3f}, lowest {g_means[BEFORE:].min():.3f}, {recovery}")


if __name__ == "__main__":
    main()
