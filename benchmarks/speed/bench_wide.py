"""Wide sparse rows: 20,000 columns, 0.3 % filled, predicted and then learned in chunks of 1,000.

Run as ``python benchmarks/speed/bench_wide.py [--rows 20000] [--ensemble]``. AROW and scikit-learn's
SGDClassifier alternate chunk by chunk. Times are processor times of the thread, so other load has little
effect on the ratio. The rows are generated like TF-IDF values of texts: words have Zipf frequencies, and
topics differ in some words.
"""

from __future__ import annotations

import argparse
import os
import sys
from time import thread_time
from typing import Any

os.environ["STEELYARD_NUM_THREADS"] = "1"
os.environ["OPENBLAS_NUM_THREADS"] = "1"

import numpy as np
import scipy.sparse as sp
from sklearn.linear_model import SGDClassifier
from sklearn.metrics import average_precision_score, roc_auc_score

from steelyard import StreamClassifier
from steelyard.online import AROW

CHUNK_ROWS, N_COLUMNS, N_WORDS = 1000, 20_000, 63
N_TOPIC_WORDS, TOPIC_SHARE, POSITIVE_SHARE = 400, 0.05, 0.05


def texts(n_rows: int, seed: int) -> tuple[Any, Any]:
    """Return TF-IDF rows with about 60 different words each, of which 5 % belong to the positive topic."""
    rng = np.random.default_rng(seed)
    y = (rng.random(n_rows) < POSITIVE_SHARE).astype(int)
    weights = 1.0 / np.arange(10, N_COLUMNS + 10)
    words = rng.choice(N_COLUMNS, size=(n_rows, N_WORDS), p=weights / weights.sum())
    topic = 200 + rng.integers(0, N_TOPIC_WORDS, size=words.shape)
    is_topic = rng.random(words.shape) < TOPIC_SHARE * (1.0 + 3.0 * y[:, None])
    words = np.where(is_topic, topic, words)
    rows = np.repeat(np.arange(n_rows), N_WORDS)
    counts = sp.csr_matrix((np.ones(words.size), (rows, words.ravel())), (n_rows, N_COLUMNS))
    frequency = np.bincount(counts.indices, minlength=N_COLUMNS)
    X = counts @ sp.diags(np.log((1.0 + n_rows) / (1.0 + frequency)) + 1.0)
    return sp.csr_matrix(sp.diags(1.0 / np.sqrt(X.multiply(X).sum(axis=1).A1)) @ X), y


def run(models: dict[str, Any], X: Any, y: Any, chunk_rows: int) -> None:
    """Predict and learn chunks by all models in turn; print time per row, AUC and average precision."""
    seconds = dict.fromkeys(models, 0.0)
    scores: dict[str, list[Any]] = {name: [] for name in models}
    for begin in range(0, X.shape[0], chunk_rows):
        rows, labels = X[begin : begin + chunk_rows], y[begin : begin + chunk_rows]
        for name, model in models.items():
            started = thread_time()
            if begin:
                scores[name].append(model.decision_function(rows))
            if isinstance(model, SGDClassifier):
                model.partial_fit(rows, labels, classes=[0, 1])
            else:
                model.partial_fit(rows, labels)
            seconds[name] += thread_time() - started
    peer = seconds["SGDClassifier"]
    for name, parts in scores.items():
        given = np.concatenate(parts)
        auc, ap = (measure(y[chunk_rows:], given) for measure in (roc_auc_score, average_precision_score))
        print(
            f"  {name:18}{1e6 * seconds[name] / X.shape[0]:8.2f} us per row, {seconds[name] / peer:6.2f} of "
            f"SGDClassifier, AUC {auc:.4f}, AP {ap:.4f}"
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--ensemble", action="store_true", help="run StreamClassifier too")
    options = parser.parse_args()
    X, y = texts(100, 0)
    for model in (AROW(), SGDClassifier()):  # imports and first calls are not measured
        model.fit(X, y).decision_function(X)
    for seed in range(options.seeds):
        X, y = texts(options.rows, seed)
        print(f"seed {seed}: {X.shape[0]:,} x {X.shape[1]:,}, {X.nnz / X.shape[0]:.0f} values per row")
        models: dict[str, Any] = {"AROW": AROW(), "SGDClassifier": SGDClassifier(random_state=0)}
        if options.ensemble:
            models["StreamClassifier"] = StreamClassifier()
        run(models, X, y, CHUNK_ROWS)
    return 0


if __name__ == "__main__":
    sys.exit(main())
