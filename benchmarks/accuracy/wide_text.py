"""Topics of Reuters-21578, each against the rest, from TF-IDF rows with 20,000 columns.

StreamClassifier is compared with refitted logistic regressions.

    python benchmarks/accuracy/wide_text.py --data-dir FOLDER

The folder contains reuters5.jsonl.gz. Documents are used in the order of the file. StreamClassifier learns
the first 100 documents, then it predicts and learns chunks of 50. The logistic regressions are refitted on
all rows before each chunk. The measures are AUC and AP of all scores. The type and the settings of the expert
for wide rows were chosen on the generated texts of benchmarks/speed/bench_wide.py. The scaling of its columns
was corrected after a run on Reuters.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score, roc_auc_score

from steelyard import StreamClassifier, datasets

TOPICS = ("wheat", "corn", "coffee", "soybean", "cocoa")
FIRST_ROWS, CHUNK_ROWS, N_COLUMNS = 100, 50, 20_000


def refitted(make: Callable[[], Any], X: Any, y: Any) -> Any:
    """Return the scores of a model that is refitted on all rows before each chunk."""
    starts = range(FIRST_ROWS, len(y), CHUNK_ROWS)
    return np.concatenate(
        [
            make().fit(X[:begin], y[:begin]).decision_function(X[begin : begin + CHUNK_ROWS])
            for begin in starts
        ]
    )


def streamed(X: Any, y: Any) -> Any:
    """Return the scores of StreamClassifier before it learns each chunk."""
    model, scores = StreamClassifier().partial_fit(X[:FIRST_ROWS], y[:FIRST_ROWS]), []
    for begin in range(FIRST_ROWS, len(y), CHUNK_ROWS):
        rows, labels = X[begin : begin + CHUNK_ROWS], y[begin : begin + CHUNK_ROWS]
        scores.append(model.decision_function(rows))
        model.partial_fit(rows, labels)
    return np.concatenate(scores)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--data-dir", required=True, help="folder with reuters5.jsonl.gz")
    documents = datasets.load("reuters5", data_dir=parser.parse_args().data_dir)
    X = TfidfVectorizer(max_features=N_COLUMNS, ngram_range=(1, 2)).fit_transform(documents.X)
    print(f"{X.shape[0]} x {X.shape[1]:,}, {X.nnz / X.shape[0]:.0f} values per row; AUC / AP")
    models: dict[str, Callable[[Any, Any], Any]] = {
        "StreamClassifier": streamed,
        "LogisticRegression": lambda X, y: refitted(lambda: LogisticRegression(max_iter=300), X, y),
        "balanced": lambda X, y: refitted(
            lambda: LogisticRegression(max_iter=300, class_weight="balanced"), X, y
        ),
    }
    results: dict[str, list[tuple[float, float]]] = {name: [] for name in models}
    for topic in TOPICS:
        y = np.array([topic in topics for topics in documents.y]).astype(int)
        for name, scored in models.items():
            scores = scored(X, y)
            results[name].append(
                (roc_auc_score(y[FIRST_ROWS:], scores), average_precision_score(y[FIRST_ROWS:], scores))
            )
        print(f"{topic:8}", "  ".join(f"{name} %.3f / %.3f" % results[name][-1] for name in models))
    print(
        f"{'mean':8}", "  ".join(f"{name} %.3f / %.3f" % tuple(np.mean(results[name], 0)) for name in models)
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
