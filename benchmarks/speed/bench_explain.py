"""Time to explain rows compared with the time to predict the same rows, in one run.

Run ``python benchmarks/speed/bench_explain.py``. The model is a StreamClassifier that has learned a ring in
30 columns. 1,000 new rows are explained (contributions and nearest rows, without ``changes``) and predicted.
``--rows`` sets the number of learned rows, which determines the experts that are used.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
from timing import best_times

from steelyard import StreamClassifier

COLUMNS, EXPLAINED_ROWS, MAX_SECONDS = 30, 1000, 1.0


def make_model(n_rows):
    """Return a model that has learned a noisy ring in the first two columns. The other columns are noise."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n_rows, COLUMNS))
    radius = X[:, 0] ** 2 + X[:, 1] ** 2 + 0.3 * rng.normal(size=n_rows)
    y = ((radius > 3.0) & (radius < 5.0)).astype(int)
    model = StreamClassifier()
    for begin in range(0, n_rows, 500):
        model.partial_fit(X[begin : begin + 500], y[begin : begin + 500])
    return model


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=[3000, 25_000])
    options = parser.parse_args()
    new = np.random.default_rng(1).normal(size=(EXPLAINED_ROWS, COLUMNS))
    for n_rows in options.rows:
        model = make_model(n_rows)
        experts = [expert.name for expert in model.explain().experts if expert.weight > 0.0]
        explain, predict = best_times(
            lambda model=model: model.explain(new),
            lambda model=model: model.decision_function(new),
            repeats=5,
        )
        started = time.process_time()
        model.explain(new)
        processor = time.process_time() - started
        print(
            f"{n_rows:,} rows learned, experts {', '.join(experts)}: "
            f"{EXPLAINED_ROWS:,} rows of {COLUMNS} columns "
            f"explained in {explain:.2f} s, {processor:.2f} s of processor time (limit {MAX_SECONDS:g} s), "
            f"{explain / predict:.0f} times predicting them"
        )


if __name__ == "__main__":
    main()
