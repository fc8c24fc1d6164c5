"""Trees of StreamClassifier compared with LightGBM on one thread, in one run.

Run ``python benchmarks/speed/bench_boosting.py``. ``--quick`` leaves out the largest table. LightGBM must be
installed. Both fit 100 trees of 16 leaves with at least 20 rows per leaf. The times include the binning of
the rows. LightGBM runs row-wise and column-wise, and the faster of the two counts.
"""

from __future__ import annotations

import argparse

import lightgbm
import numpy as np
from timing import best_times

from steelyard.ensemble.experts.boosting import fit_trees

TREES, LEAVES, MIN_ROWS_PER_LEAF, LEARNING_RATE = 100, 16, 20, 0.1


class Rows:
    """Rows with the attributes that the trees of the ensemble expect."""

    def __init__(self, X):
        self.X = X


def make_table(n_rows, n_columns):
    """Return normal columns and labels with an interaction; 15 % of the rows are positive."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n_rows, n_columns))
    score = X[:, 0] * X[:, 1] + X[:, 2] + 0.5 * np.sin(3.0 * X[:, 3]) + 0.5 * rng.normal(size=n_rows)
    return X, (score > 1.5).astype(np.int64)


def fit_ours(X, y, max_bins):
    return fit_trees(
        X,
        y,
        n_trees=TREES,
        learning_rate=LEARNING_RATE,
        max_leaves=LEAVES,
        min_rows_per_leaf=MIN_ROWS_PER_LEAF,
        l2_regularization=1e-3,
        max_columns=X.shape[1],
        max_bins=max_bins,
    )


def fit_lightgbm(X, y, max_bins, layout):
    parameters = {
        "objective": "binary",
        "num_leaves": LEAVES,
        "min_child_samples": MIN_ROWS_PER_LEAF,
        "learning_rate": LEARNING_RATE,
        "max_bin": max_bins,
        "num_threads": 1,
        "verbose": -1,
        layout: True,
    }
    return lightgbm.train(parameters, lightgbm.Dataset(X, y, params=parameters), TREES)


def compare_training(n_rows, n_columns, max_bins, repeats):
    X, y = make_table(n_rows, n_columns)
    layouts = ("force_row_wise", "force_col_wise")
    ours, *theirs = best_times(
        lambda: fit_ours(X, y, max_bins),
        *(lambda layout=layout: fit_lightgbm(X, y, max_bins, layout) for layout in layouts),
        repeats=repeats,
    )
    print(
        f"fit {n_rows:>7,} x {n_columns}, {max_bins:>3} bins: steelyard {ours:.4f} s"
        f"   LightGBM {min(theirs):.4f} s   ratio {min(theirs) / ours:.2f}"
    )


def compare_prediction(n_rows, n_columns, max_bins, repeats):
    X, y = make_table(n_rows, n_columns)
    rule = fit_ours(X, y, max_bins)
    booster = fit_lightgbm(X, y, max_bins, "force_row_wise")
    for n, n_calls in ((10_000, 1), (1, 1000)):  # each call with one row gets another row, as in a stream
        batches = [Rows(X[i : i + n]) for i in range(n_calls)]
        ours, theirs = best_times(
            lambda batches=batches: [rule.scores(rows) for rows in batches],
            lambda batches=batches: [
                booster.predict(rows.X, raw_score=True, num_threads=1) for rows in batches
            ],
            repeats=repeats,
        )
        print(
            f"predict {n:>6,} of {n_columns} columns: steelyard {1e6 * ours / n_calls:.1f} us"
            f"   LightGBM {1e6 * theirs / n_calls:.1f} us   ratio {theirs / ours:.2f}"
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="without the table of 500,000 rows")
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    for max_bins in (63, 255):
        compare_training(67_000, 15, max_bins, arguments.repeats)
        compare_training(5_000, 30, max_bins, arguments.repeats)
        if not arguments.quick:
            compare_training(500_000, 15, max_bins, max(1, arguments.repeats // 2))
    compare_prediction(67_000, 15, 255, arguments.repeats)


if __name__ == "__main__":
    main()
