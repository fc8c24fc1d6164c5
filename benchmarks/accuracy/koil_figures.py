"""Reproduce five results of the program of the KOIL authors, on their files and splits.

    python benchmarks/accuracy/koil_figures.py --data-dir DIR

DIR contains ``koil_<name>.csv.gz`` (last column ``target``, +1 for the minority class) and
``koil_<name>.splits.npz`` (``idx_cv``: the test fold of each row in each of four partitions). The policy
``fifo++`` of the program is deterministic, so its mean AUC over the 20 runs can be reproduced to the printed
digits.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from sklearn.metrics import roc_auc_score

from steelyard import KOIL

TOLERANCE = 0.0005


class PrintedResult(NamedTuple):
    """Parameters of a run of the authors' program, and the mean AUC that it printed."""

    data: str
    loss: str
    C: float
    gamma: float
    auc: float


RESULTS = [
    PrintedResult("glass", "hinge", 32.0, 32.0, 0.87816),
    PrintedResult("diabetes", "hinge", 128.0, 0.25, 0.82045),
    PrintedResult("ionosphere", "hinge", 32.0, 0.25, 0.97015),
    PrintedResult("glass", "smooth", 8.0, 8.0, 0.88624),
    PrintedResult("diabetes", "smooth", 64.0, 1.0, 0.82188),
]


def mean_auc(data_dir: Path, result: PrintedResult, policy: str = "fifo++") -> float:
    """Return the mean AUC over four partitions into five folds. Rows are learned in file order."""
    table = pd.read_csv(data_dir / f"koil_{result.data}.csv.gz")
    folds = np.load(data_dir / f"koil_{result.data}.splits.npz")["idx_cv"]
    X, y = table.iloc[:, :-1].to_numpy(float), table["target"].to_numpy()
    aucs = []
    for partition in folds.T:
        for fold in range(1, 6):
            train, test = partition != fold, partition == fold
            model = KOIL(
                result.C, budget=100, n_neighbors=5, learning_rate=0.01, loss=result.loss, policy=policy,
                gamma=result.gamma, threshold="zero", random_state=0,
            ).fit(X[train], y[train])  # fmt: skip
            aucs.append(roc_auc_score(y[test], model.decision_function(X[test])))
    return float(np.mean(aucs))


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data-dir", type=Path, required=True)
    data_dir = parser.parse_args().data_dir
    missed = 0
    print(f"{'data':12}{'loss':8}{'program':>9}{'here':>9}{'':4}{'reservoir++ here':>17}")
    for result in RESULTS:
        auc = mean_auc(data_dir, result)
        equal = abs(auc - result.auc) <= TOLERANCE
        missed += not equal
        sampled = mean_auc(data_dir, result, "reservoir++")
        print(
            f"{result.data:12}{result.loss:8}{result.auc:9.5f}{auc:9.5f} "
            f"{'equal' if equal else 'DIFFERENT':10}{sampled:10.5f}"
        )
    print(f"{len(RESULTS) - missed} of {len(RESULTS)} reproduced within {TOLERANCE}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
