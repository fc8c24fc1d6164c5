"""Thresholds of ProximalSVC: ``threshold="gmean"`` compared with ``"zero"`` on real imbalanced datasets.

    python benchmarks/accuracy/proximal_threshold.py --data-dir DIR

The script prints the mean G-mean over ten stratified splits into halves. DIR contains the datasets as
``<name>.csv.gz`` with the last column ``target``. Every value of a text column becomes an indicator column.
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.model_selection import StratifiedShuffleSplit

from steelyard import ProximalSVC
from steelyard.metrics import g_mean_score

# Name of each dataset, and the label of its rare class.
SETS = {
    "mammography": 1, "oil_spill": 1, "yeast": "ME2", "abalone": 19, "euthyroid_2000": "sick-euthyroid",
    "glass": 7, "car": "good", "creditcard_part": 1, "kdd99_smtp": 1, "weather": 1,
}  # fmt: skip


def load(path: Path, rare: object) -> tuple[np.ndarray, np.ndarray]:
    table = pd.read_csv(path)
    y = (table.pop("target").astype(str) == str(rare)).astype(int).to_numpy()
    return pd.get_dummies(table).to_numpy(float), y


def g_mean(model: ProximalSVC, X: np.ndarray, y: np.ndarray, splits: list) -> float:
    values = [
        g_mean_score(y[test], model.fit(X[train], y[train]).predict(X[test]), pos_label=1)
        for train, test in splits
    ]
    return float(np.mean(values))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--data-dir", type=Path, required=True)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    print("| set | rows | one rare row in | unweighted, zero | unweighted, gmean", end=" | ")
    print("balanced, zero | balanced, gmean |")
    print("|---|---|---|---|---|---|---|")
    for name, rare in SETS.items():
        X, y = load(options.data_dir / f"{name}.csv.gz", rare)
        splits = list(StratifiedShuffleSplit(10, test_size=0.5, random_state=0).split(X, y))
        cells = [
            f"{g_mean(ProximalSVC(class_weight=weight, threshold=cut), X, y, splits):.3f}"
            for weight in (None, "balanced")
            for cut in ("zero", "gmean")
        ]
        print(f"| {name} | {len(y)} | {len(y) / y.sum():.0f} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
