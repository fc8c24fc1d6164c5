"""Average precision of KeyedClassifier, of one model for all rows, and of a separate model for each key.

    python benchmarks/accuracy/keyed_panel.py [--fraud fraud_handbook.parquet]

In the generated panel, every key has its own usual values and its own effect of the class. There are 5 %
positives and few or many rows per key. Training rows precede test rows. The card payments are those of the
Fraud Detection Handbook: training rows are from days 30 to 113, test rows from days 121 to 150. The key is
the customer or the terminal, with the three raw columns and with all fifteen columns.
"""

from __future__ import annotations

import argparse

import numpy as np
import pandas as pd
from sklearn.metrics import average_precision_score

from steelyard import KeyedClassifier, ProximalSVC

NUMBERS_OF_ROWS = (10, 40, 160)
SECONDS_PER_DAY = 86_400
NO_FEATURES = {"time", "customer", "terminal", "scenario", "target"}


def panel(n_keys: int, rows_per_key: int, seed: int) -> tuple[pd.DataFrame, np.ndarray]:
    rng = np.random.default_rng(seed)
    n_rows, d = n_keys * rows_per_key, 6
    keys = rng.integers(0, n_keys, n_rows)
    y = (rng.random(n_rows) < 0.05).astype(int)
    usual = rng.normal(size=(n_keys, d))
    effect = 1.0 + 0.5 * rng.normal(size=(n_keys, d))
    X = usual[keys] + y[:, None] * effect[keys] + rng.normal(size=(n_rows, d))
    return pd.DataFrame(X, columns=[f"x{k}" for k in range(d)]).assign(key=keys), y


def alone(key: str, X: pd.DataFrame, y: np.ndarray, new: pd.DataFrame) -> np.ndarray:
    """Return the scores of one ProximalSVC per key. A key with only one class has a constant score."""
    scores = np.zeros(len(new))
    places = new.groupby(key).indices
    for value, rows in X.groupby(key).indices.items():
        if value not in places:
            continue
        labels, asked = y[rows], places[value]
        if len(set(labels.tolist())) < 2:
            scores[asked] = 2.0 * labels[0] - 1.0
        else:
            model = ProximalSVC().fit(X.iloc[rows].drop(columns=key), labels)
            scores[asked] = model.decision_function(new.iloc[asked].drop(columns=key))
    return scores


Rows = tuple[pd.DataFrame, np.ndarray]


def compare(name: str, key: str, training: Rows, test: Rows) -> None:
    (X, y), (new, wanted) = training, test
    keyed = KeyedClassifier(key).fit(X, y)
    group = ProximalSVC().fit(X.drop(columns=key), y)
    fixed = {
        borrow: KeyedClassifier(key, borrow=borrow).fit(X, y).decision_function(new)
        for borrow in (30.0, 300.0, 3000.0)
    }
    results = {
        f"keyed, {keyed.borrow_:g} rows": keyed.decision_function(new),
        **{f"keyed, fixed {borrow:g}": scores for borrow, scores in fixed.items()},
        "one model": group.decision_function(new.drop(columns=key)),
        "each key alone": alone(key, X, y, new),
    }
    values = [f"{label} {average_precision_score(wanted, scores):.3f}" for label, scores in results.items()]
    print(f"{name:<40}", "; ".join(values), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fraud", help="table of card payments")
    arguments = parser.parse_args()
    for rows_per_key in NUMBERS_OF_ROWS:
        X, y = panel(500, 2 * rows_per_key, seed=0)
        half = len(X) // 2
        compare(f"panel, {rows_per_key} rows per key", "key", (X[:half], y[:half]), (X[half:], y[half:]))
    if arguments.fraud is None:
        return
    rows = pd.read_parquet(arguments.fraud)
    day = rows["time"] // SECONDS_PER_DAY
    training, test = rows[(day >= 30) & (day < 114)], rows[(day >= 121) & (day < 151)]
    columns = [name for name in rows.columns if name not in NO_FEATURES]
    for key in ("customer", "terminal"):
        for chosen in (columns[:3], columns):
            used = [key, *chosen]
            name = f"payments by {key}, {len(chosen)} columns"
            y, wanted = training["target"].to_numpy(), test["target"].to_numpy()
            compare(name, key, (training[used], y), (test[used], wanted))


if __name__ == "__main__":
    main()
